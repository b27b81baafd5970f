"""Several descriptors in one call: they pass or fail together. Limits that a call brings, giving back, and the reference's way
to charge."""

from support import expect
from support.envoy import OK, OVER_LIMIT, UNITS, Client, descriptor, request
from support.h2 import Http2
from support.store import PATIENT

GRPC = ("--grpc", "127.0.0.1:0")
RULES = """
rules:
  - id: ip
    match: { domain: edge }
    by: ["descriptor:ip"]
    limits: [ { name: ip, algorithm: fixed_window, max: 5, per: 1h } ]
  - id: path
    match: { domain: edge, descriptor: { path: /search } }
    by: ["descriptor:path"]
    limits: [ { name: path, algorithm: fixed_window, max: 3, per: 1h } ]
"""
GIVEN = """
rules:
  - id: given
    match: { domain: edge, descriptor_limit: { present: true } }
    by: [descriptor]
    limits: given
"""


def ip(value, **more):
    return descriptor(("ip", value), **more)


def path(value, **more):
    return descriptor(("path", value), **more)


def left(envoy, one):
    """What is left of the limit of a descriptor."""
    entries, limit, _, negative = one
    return envoy.ask("edge", (entries, limit, 0, negative)).statuses[0].limit_remaining


def codes(answer):
    return answer.overall_code, [status.code for status in answer.statuses]


def test_together(service):
    s = service(*GRPC, rules=RULES)
    with Client(s.grpc) as envoy:
        answer = envoy.ask("edge", ip("10.0.0.1"), path("/search"))
        expect(codes(answer), (OK, [OK, OK]))
        expect([status.limit_remaining for status in answer.statuses], [4, 2])
        expect([status.current_limit.name for status in answer.statuses], ["ip", "path"])
        answer = envoy.ask("edge", ip("10.0.0.1"), path("/other"))
        expect(codes(answer), (OK, [OK, OK]))
        assert not answer.statuses[1].HasField("current_limit")
        for _ in range(2):
            expect(envoy.code("edge", path("/search")), OK)
        answer = envoy.ask("edge", ip("10.0.0.1"), path("/search"))
        expect(codes(answer), (OVER_LIMIT, [OK, OVER_LIMIT]))
        fields = answer.dynamic_metadata.fields
        expect((fields["rule"].string_value, fields["descriptor"].number_value), ("path", 1))
        expect(left(envoy, ip("10.0.0.1")), 3, "the other descriptor was not charged")


def test_same_rule_twice(service):
    """Two descriptors that one rule counts, for two subjects and for the same one."""
    s = service(*GRPC, rules=RULES)
    with Client(s.grpc) as envoy:
        expect(codes(envoy.ask("edge", ip("a"), ip("b"))), (OK, [OK, OK]))
        expect([left(envoy, ip("a")), left(envoy, ip("b"))], [4, 4])
        expect(envoy.code("edge", ip("c"), ip("c"), hits=2), OK)
        expect(left(envoy, ip("c")), 1, "both were charged")
        expect(envoy.code("edge", ip("c"), ip("c")), OVER_LIMIT)
        expect(left(envoy, ip("c")), 1, "neither was charged")


def test_own_hits(service):
    s = service(*GRPC, rules=RULES)
    with Client(s.grpc) as envoy:
        expect(envoy.code("edge", ip("a", hits=3), path("/search", hits=0)), OK)
        expect([left(envoy, ip("a")), left(envoy, path("/search"))], [2, 3])


def test_charge_each(service):
    """As the reference: every descriptor is charged, whatever the others say, and whether or not there is room."""
    s = service(*GRPC, "--envoy-charge", "each", rules=RULES)
    with Client(s.grpc) as envoy:
        for _ in range(3):
            expect(envoy.code("edge", ip("a"), path("/search")), OK)
        expect(codes(envoy.ask("edge", ip("a"), path("/search"))), (OVER_LIMIT, [OK, OVER_LIMIT]))
        expect(left(envoy, ip("a")), 1, "charged all the same")
        expect(codes(envoy.ask("edge", ip("a", hits=3))), (OVER_LIMIT, [OVER_LIMIT]))
        expect(envoy.code("edge", ip("a")), OVER_LIMIT, "what did not fit was charged, too")


def test_give_back(service):
    s = service(*GRPC, rules=RULES)
    with Client(s.grpc) as envoy:
        expect(envoy.code("edge", ip("a"), hits=4), OK)
        expect(envoy.code("edge", ip("a", hits=2, negative=True)), OK)
        expect(left(envoy, ip("a")), 3)
        expect(envoy.code("edge", ip("a", hits=100, negative=True)), OK)
        expect(left(envoy, ip("a")), 5, "no more than was used")
        expect(envoy.code("edge", ip("a", hits=2**64 - 1, negative=True)), OK)


def test_limit_of_the_call(service):
    s = service(*GRPC, rules=GIVEN)
    with Client(s.grpc) as envoy:
        for remaining in (1, 0):
            status = envoy.ask("edge", ip("a", limit=(2, "MINUTE"))).statuses[0]
            limit = status.current_limit
            found = (limit.requests_per_unit, limit.unit, status.limit_remaining)
            expect(found, (2, UNITS["MINUTE"], remaining))
        expect(envoy.code("edge", ip("a", limit=(2, "MINUTE"))), OVER_LIMIT)
        expect(envoy.code("edge", ip("b", limit=(2, "MINUTE"))), OK)
        limit = envoy.ask("edge", ip("c", limit=(7, "SECOND", 30))).statuses[0].current_limit
        expect((limit.requests_per_unit, limit.unit, limit.unit_multiplier.value), (7, UNITS["SECOND"], 30))
        expect(envoy.code("edge", ip("d", limit=(0, "DAY"))), OVER_LIMIT, "0 refuses everything")
        assert not envoy.ask("edge", ip("a")).statuses[0].HasField("current_limit"), "a call without a limit"


def test_with_a_store(service, store):
    s = service(*GRPC, "--counters", store.address, *PATIENT, rules=RULES)
    with Client(s.grpc) as envoy:
        for _ in range(3):
            expect(codes(envoy.ask("edge", ip("a"), path("/search"))), (OK, [OK, OK]))
        expect(codes(envoy.ask("edge", ip("a"), path("/search"))), (OVER_LIMIT, [OK, OVER_LIMIT]))
        expect(left(envoy, ip("a")), 2, "the other descriptor was not charged")


def test_most_descriptors(service, store):
    for flags in ((), ("--counters", store.address, *PATIENT)):
        s = service(*GRPC, *flags, rules=RULES)
        with Client(s.grpc) as envoy:
            answer = envoy.ask("edge", *[ip(f"10.0.0.{i}") for i in range(64)])
            expect(codes(answer), (OK, [OK] * 64))
            expect({status.limit_remaining for status in answer.statuses}, {4})
            expect(envoy.code("edge", *[ip("one")] * 64), OVER_LIMIT)
            expect(left(envoy, ip("one")), 5)


def test_pending_calls_of_lost_clients(service, store):
    """Connections that end while their decisions wait for the store."""
    s = service(*GRPC, "--counters", store.address, *PATIENT, rules=RULES)
    for _ in range(50):
        with Http2(s.grpc) as c:
            for stream in range(1, 41, 2):
                c.call(stream, request("edge", ip("lost"), path("/lost")))
    with Client(s.grpc) as envoy:
        expect(envoy.code("edge", ip("other")), OK)
