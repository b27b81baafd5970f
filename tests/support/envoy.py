"""Envoy's rate limit service and gRPC's health checks, as grpcio speaks them. Their messages are described here, as far as
weir knows them, so that no generated code is needed."""

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, struct_pb2, wrappers_pb2

from support import DEADLINE_S

RATE_LIMIT = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
HEALTH_CHECK = "/grpc.health.v1.Health/Check"
HEALTH_WATCH = "/grpc.health.v1.Health/Watch"

OK, OVER_LIMIT = 1, 2
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
UNITS = {"UNKNOWN": 0, "SECOND": 1, "MINUTE": 2, "HOUR": 3, "DAY": 4, "MONTH": 5, "YEAR": 6, "WEEK": 7}

_KINDS = {"string": 9, "uint32": 13, "bool": 8, "enum": 14, "message": 11}


def _add(message, name, number, kind, type_name=None, repeated=False):
    field = message.field.add(name=name, number=number, label=3 if repeated else 1, type=_KINDS[kind])
    if type_name:
        field.type_name = type_name


def _enum(owner, name, values):
    enum = owner.enum_type.add(name=name)
    for key, number in values.items():
        enum.value.add(name=key, number=number)


def _file(name, package, needs):
    return descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=needs)


def _descriptors():
    file = _file("ratelimit.proto", "envoy.extensions.common.ratelimit.v3", ["google/protobuf/wrappers.proto", "unit.proto"])
    message = file.message_type.add(name="RateLimitDescriptor")
    entry = message.nested_type.add(name="Entry")
    _add(entry, "key", 1, "string")
    _add(entry, "value", 2, "string")
    limit = message.nested_type.add(name="RateLimitOverride")
    _add(limit, "requests_per_unit", 1, "uint32")
    _add(limit, "unit", 2, "enum", ".envoy.type.v3.RateLimitUnit")
    _add(limit, "unit_multiplier", 3, "message", ".google.protobuf.UInt32Value")
    here = ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor"
    _add(message, "entries", 1, "message", here + ".Entry", repeated=True)
    _add(message, "limit", 2, "message", here + ".RateLimitOverride")
    _add(message, "hits_addend", 3, "message", ".google.protobuf.UInt64Value")
    _add(message, "is_negative_hits", 4, "bool")
    return file


def _unit():
    file = _file("unit.proto", "envoy.type.v3", [])
    _enum(file, "RateLimitUnit", UNITS)
    return file


def _service():
    needs = ["ratelimit.proto"] + [f"google/protobuf/{name}.proto" for name in ("duration", "struct", "wrappers")]
    file = _file("rls.proto", "envoy.service.ratelimit.v3", needs)
    request = file.message_type.add(name="RateLimitRequest")
    _add(request, "domain", 1, "string")
    _add(request, "descriptors", 2, "message", ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor", repeated=True)
    _add(request, "hits_addend", 3, "uint32")
    response = file.message_type.add(name="RateLimitResponse")
    header = file.message_type.add(name="HeaderValue")
    _add(header, "key", 1, "string")
    _add(header, "value", 2, "string")
    here = ".envoy.service.ratelimit.v3.RateLimitResponse"
    _enum(response, "Code", {"UNKNOWN": 0, "OK": OK, "OVER_LIMIT": OVER_LIMIT})
    limit = response.nested_type.add(name="RateLimit")
    _enum(limit, "Unit", UNITS)
    _add(limit, "requests_per_unit", 1, "uint32")
    _add(limit, "unit", 2, "enum", here + ".RateLimit.Unit")
    _add(limit, "name", 3, "string")
    _add(limit, "unit_multiplier", 4, "message", ".google.protobuf.UInt32Value")
    status = response.nested_type.add(name="DescriptorStatus")
    _add(status, "code", 1, "enum", here + ".Code")
    _add(status, "current_limit", 2, "message", here + ".RateLimit")
    _add(status, "limit_remaining", 3, "uint32")
    _add(status, "duration_until_reset", 4, "message", ".google.protobuf.Duration")
    _add(response, "overall_code", 1, "enum", here + ".Code")
    _add(response, "statuses", 2, "message", here + ".DescriptorStatus", repeated=True)
    _add(response, "response_headers_to_add", 3, "message", ".envoy.service.ratelimit.v3.HeaderValue", repeated=True)
    _add(response, "dynamic_metadata", 6, "message", ".google.protobuf.Struct")
    return file


def _health():
    file = _file("health.proto", "grpc.health.v1", [])
    request = file.message_type.add(name="HealthCheckRequest")
    _add(request, "service", 1, "string")
    response = file.message_type.add(name="HealthCheckResponse")
    _enum(response, "ServingStatus", {"UNKNOWN": 0, "SERVING": 1, "NOT_SERVING": 2, "SERVICE_UNKNOWN": 3})
    _add(response, "status", 1, "enum", ".grpc.health.v1.HealthCheckResponse.ServingStatus")
    return file


def _make():
    pool = descriptor_pool.DescriptorPool()
    for module in (duration_pb2, struct_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for file in (_unit(), _descriptors(), _service(), _health()):
        pool.AddSerializedFile(file.SerializeToString())
    names = ["envoy.service.ratelimit.v3.RateLimitRequest", "envoy.service.ratelimit.v3.RateLimitResponse"]
    names += ["grpc.health.v1.HealthCheckRequest", "grpc.health.v1.HealthCheckResponse"]
    factory = message_factory.MessageFactory(pool)
    return [factory.GetPrototype(pool.FindMessageTypeByName(name)) for name in names]


RateLimitRequest, RateLimitResponse, HealthCheckRequest, HealthCheckResponse = _make()


def descriptor(*entries, limit=None, hits=None, negative=False):
    """A descriptor as the arguments of request() have it: entries are ("key", "value"); limit is (max, "UNIT"[, n])."""
    return entries, limit, hits, negative


def request(domain, *descriptors, hits=0):
    message = RateLimitRequest(domain=domain, hits_addend=hits)
    for entries, limit, own_hits, negative in descriptors:
        to = message.descriptors.add(is_negative_hits=negative)
        for key, value in entries:
            to.entries.add(key=key, value=value)
        if limit:
            to.limit.requests_per_unit = limit[0]
            to.limit.unit = UNITS[limit[1]]
            if len(limit) > 2:
                to.limit.unit_multiplier.value = limit[2]
        if own_hits is not None:
            to.hits_addend.value = own_hits
    return message


def address(where):
    return f"unix:{where}" if isinstance(where, str) else f"{where[0]}:{where[1]}"


class Client:
    """with Client(s.grpc) as envoy: envoy.ask("domain", descriptor(("key", "value"))).overall_code"""

    def __init__(self, where, token=None, options=()):
        # A channel of its own, and with it a connection: grpcio shares those of equal channels.
        self.channel = grpc.insecure_channel(address(where), options=[("grpc.use_local_subchannel_pool", 1), *options])
        self.metadata = [("authorization", f"Bearer {token}")] if token else []
        self.call = self.channel.unary_unary(RATE_LIMIT, RateLimitRequest.SerializeToString, RateLimitResponse.FromString)
        self.health_call = self.channel.unary_unary(
            HEALTH_CHECK, HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
        )
        self.watch_call = self.channel.unary_stream(
            HEALTH_WATCH, HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def ask(self, domain, *descriptors, hits=0, timeout=DEADLINE_S):
        return self.call(request(domain, *descriptors, hits=hits), timeout=timeout, metadata=self.metadata)

    def code(self, *arguments, **options):
        return self.ask(*arguments, **options).overall_code

    def health(self, service=""):
        return self.health_call(HealthCheckRequest(service=service), timeout=DEADLINE_S).status

    def watch(self, service=""):
        return self.watch_call(HealthCheckRequest(service=service), timeout=DEADLINE_S)
