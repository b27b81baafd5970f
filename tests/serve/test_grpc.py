"""Envoy's rate limit service, as grpcio asks it."""

import concurrent.futures
import json
import os
import signal

import grpc
import pytest
from google.protobuf import json_format

from support import DEADLINE_S, expect, has, until
from support.envoy import (
    HEALTH_CHECK,
    NOT_SERVING,
    OK,
    OVER_LIMIT,
    RATE_LIMIT,
    SERVICE_UNKNOWN,
    SERVING,
    UNITS,
    Client,
    RateLimitResponse,
    descriptor,
    request,
)
from support.store import PATIENT

GRPC = ("--grpc", "127.0.0.1:0")
ONE = descriptor(("key", "value"))
RULES = """
rules:
  - { id: three, match: { domain: three }, by: [domain], limits: [ { name: min, algorithm: fixed_window, max: 3, per: 1m } ] }
  - { id: ten, match: { domain: ten }, by: [domain], limits: [ { algorithm: fixed_window, max: 10, per: 1h } ] }
  - { id: big, match: { domain: big }, by: [domain], limits: [ { algorithm: fixed_window, max: 9007199254740991, per: 1h } ] }
  - { id: bucket, match: { domain: bucket }, by: [domain], limits: [ "1000000 per 1h" ] }
  - { id: shadow, mode: shadow, match: { domain: shadow }, by: [domain], limits: [ { algorithm: fixed_window, max: 1, per: 1h } ] }
  - { id: second, match: { domain: second }, by: [domain], limits: [ { algorithm: fixed_window, max: 0, per: 90s } ] }
  - { id: month, match: { domain: month }, by: [domain], limits: [ { max: 5, calendar: month } ] }
"""


def status_of(call, *arguments, **more):
    """(code, details) of a call that fails."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **more)
    return caught.value.code(), caught.value.details()


def metadata_of(answer):
    return {key: value.string_value or value.number_value for key, value in answer.dynamic_metadata.fields.items()}


def test_decisions(service):
    s = service(*GRPC, rules=RULES)
    with Client(s.grpc) as envoy:
        for left in (2, 1, 0):
            answer = envoy.ask("three", ONE)
            expect(answer.overall_code, OK)
            expect(len(answer.statuses), 1)
            status = answer.statuses[0]
            expect((status.code, status.limit_remaining), (OK, left))
            limit = status.current_limit
            expect((limit.name, limit.requests_per_unit, limit.unit), ("min", 3, UNITS["MINUTE"]))
            assert not limit.HasField("unit_multiplier")
            assert 0 < status.duration_until_reset.seconds <= 60, status
            assert not answer.HasField("dynamic_metadata") and not answer.response_headers_to_add
        answer = envoy.ask("three", ONE)
        expect((answer.overall_code, answer.statuses[0].code, answer.statuses[0].limit_remaining), (OVER_LIMIT, OVER_LIMIT, 0))
        told = metadata_of(answer)
        expect((told["rule"], told["limit"], told["descriptor"]), ("three", "min", 0))
        assert 0 < told["retry_after_ms"] <= 60000, told
        answer = envoy.ask("unknown", ONE)
        expect((answer.overall_code, answer.statuses[0].code), (OK, OK))
        assert not answer.statuses[0].HasField("current_limit") and not answer.statuses[0].HasField("duration_until_reset")
        expect(envoy.code("shadow", ONE, hits=5), OK, "a shadow rule refuses nobody")


def test_numbers(service):
    s = service(*GRPC, rules=RULES)
    with Client(s.grpc) as envoy:
        limit = envoy.ask("second", ONE).statuses[0].current_limit
        expect((limit.requests_per_unit, limit.unit, limit.unit_multiplier.value), (0, UNITS["SECOND"], 90))
        status = envoy.ask("big", ONE).statuses[0]
        expect((status.current_limit.requests_per_unit, status.limit_remaining), (2**32 - 1, 2**32 - 1), "as much as fits")
        expect(envoy.ask("month", ONE).statuses[0].current_limit.unit, UNITS["MONTH"])
        expect(envoy.ask("bucket", ONE).statuses[0].current_limit.unit, UNITS["HOUR"])


SHOWN = """
rules:
  - { id: watch, mode: shadow, match: { domain: { prefix: w } }, by: [domain], limits: [ { name: few, max: 2, calendar: 30d } ] }
  - { id: all, match: { domain: wide }, by: [domain], limits: [ { max: 9, calendar: 30d } ] }
  - { id: free, match: { domain: { glob: "*free" } }, limits: none }
  - { id: quiet, mode: shadow, match: { domain: quiet }, limits: none }
"""


def test_what_a_status_shows(service):
    """The limit of enforced rules, else that of shadow rules, else that there is none."""
    s = service(*GRPC, rules=SHOWN)
    unlimited = 2**32 - 1
    with Client(s.grpc) as envoy:
        for _ in range(2):
            answer = envoy.ask("watched", ONE, ONE, hits=1)
            expect([status.code for status in answer.statuses], [OK, OK])
            expect([status.current_limit.name for status in answer.statuses], ["few", "few"])
        expect([status.limit_remaining for status in answer.statuses], [0, 0], "shadow rules are not charged beyond their max")
        status = envoy.ask("wide", ONE).statuses[0]
        expect((status.limit_remaining, status.current_limit.name), (8, ""), "a name that nobody gave is not shown")
        for domain, remaining in {"free": unlimited, "quiet": unlimited, "other": 0}.items():
            status = envoy.ask(domain, ONE).statuses[0]
            expect((status.code, status.limit_remaining), (OK, remaining), domain)
            assert not status.HasField("current_limit") and not status.HasField("duration_until_reset")
        status = envoy.ask("w-free", ONE).statuses[0]
        expect((status.limit_remaining, status.current_limit.name), (1, "few"), "a shadow rule limits more than none")
        status = envoy.ask("wild", descriptor(("k", "v"), hits=0)).statuses[0]
        expect(status.limit_remaining, 2)
        assert status.duration_until_reset.seconds > 0, "the end of the window, also of what is unused"
    asked = json.dumps({"domain": "free", "descriptors": [{"entries": [{"key": "a", "value": "b"}]}]})
    expect(s.ask(s.http, "POST", "/json", asked).json()["statuses"], [{"code": "OK", "limitRemaining": unlimited}])


def test_hits(service):
    s = service(*GRPC, rules=RULES)
    with Client(s.grpc) as envoy:
        left = lambda *one, **more: envoy.ask("ten", *one, **more).statuses[0].limit_remaining
        expect(left(ONE), 9, "0 is 1")
        expect(left(ONE, hits=4), 5)
        expect(left(descriptor(("a", "b"), hits=2), hits=4), 3, "the descriptor's own")
        expect(left(descriptor(("a", "b"), hits=0)), 3, "0 of a descriptor looks")
        expect(envoy.code("ten", ONE, hits=4), OVER_LIMIT, "more than is left")
        expect(left(descriptor(("a", "b"), hits=0)), 3, "which was not charged")
        expect(envoy.code("ten", descriptor(("a", "b"), hits=2**64 - 1)), OVER_LIMIT)
        expect(left(ONE, hits=3), 0)
        expect(envoy.code("ten", descriptor(("a", "b"), hits=0)), OK, "a look fits while no more than max is used")
        expect(envoy.code("ten", ONE), OVER_LIMIT)


def test_headers(service):
    s = service(*GRPC, "--envoy-headers", "yes", rules=RULES)
    with Client(s.grpc) as envoy:
        headers = lambda: {h.key: h.value for h in envoy.ask("three", ONE, hits=2).response_headers_to_add}
        found = headers()
        expect((found["RateLimit-Limit"], found["RateLimit-Remaining"]), ("3", "1"))
        assert 0 < int(found["RateLimit-Reset"]) <= 60
        found = headers()
        expect((found["RateLimit-Limit"], found["RateLimit-Remaining"]), ("3", "1"), "nothing was charged")
        expect(list(envoy.ask("unknown", ONE).response_headers_to_add), [])


def test_mistakes(service):
    s = service(*GRPC, rules=RULES)
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    with Client(s.grpc) as envoy:
        for why, arguments in {
            "the domain is empty": ("", ONE),
            "there are no descriptors": ("three",),
            "at most 64 descriptors": ("three", *[ONE] * 65),
            "descriptor [1]: a descriptor may have at most 32 entries": ("three", ONE, descriptor(*[("k", "v")] * 33)),
            "descriptor [0]: the limit has an unknown unit": ("three", descriptor(("k", "v"), limit=(1, "UNKNOWN"))),
            "unit_multiplier that is 0": ("three", descriptor(("k", "v"), limit=(1, "DAY", 0))),
        }.items():
            code, details = status_of(envoy.ask, *arguments)
            expect(code, invalid, why)
            has(details, why, "nothing was charged")
        raw = lambda path: envoy.channel.unary_unary(path, lambda body: body, lambda body: body)
        for body in (b"\x0a", b"\x0a\x01\xff", b"\x08\x01"):
            expect(status_of(raw(RATE_LIMIT), body)[0], invalid)
        code, details = status_of(raw("/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit"), b"")
        expect(code, grpc.StatusCode.UNIMPLEMENTED)
        has(details, "unknown method /envoy.service.ratelimit.v2.", "envoy.service.ratelimit.v3")
        expect(status_of(raw("/%/ä€"), b"")[0], grpc.StatusCode.UNIMPLEMENTED)
        code, details = status_of(raw(RATE_LIMIT), b"x" * (1 << 20) + b"x")
        expect(code, grpc.StatusCode.RESOURCE_EXHAUSTED)
        has(details, "request-bytes")
        expect(envoy.ask("three", ONE).statuses[0].limit_remaining, 2, "nothing was charged before")
        compressed = envoy.channel.unary_unary(RATE_LIMIT, request_serializer=type(request("three")).SerializeToString)
        code, _ = status_of(compressed, request("three" * 100, ONE), compression=grpc.Compression.Gzip)
        expect(code, grpc.StatusCode.UNIMPLEMENTED)
    has("".join(entry["message"] for entry in s.events("mistake")), "grpc")


def test_largest_request(service):
    """64 descriptors of 32 entries, and a message of many frames."""
    s = service(*GRPC, rules=RULES)
    entries = [("k" * 50, "v" * 100)] * 32
    with Client(s.grpc) as envoy:
        answer = envoy.ask("unknown", *[descriptor(*entries)] * 64)
        expect((answer.overall_code, len(answer.statuses)), (OK, 64))
        answer = envoy.ask("unknown", descriptor(("k", "v" * 1000000)))
        expect(answer.overall_code, OK)


def test_token(service, folder):
    file = os.path.join(folder, "token")
    with open(file, "w", encoding="ascii") as out:
        out.write("s3cret-s3cret-s3cret")
    s = service(*GRPC, "--token-file", file, rules=RULES)
    for token in (None, "wrong", "s3cret-s3cret-s3cre"):
        with Client(s.grpc, token=token) as envoy:
            code, details = status_of(envoy.ask, "three", ONE)
            expect(code, grpc.StatusCode.UNAUTHENTICATED)
            has(details, "authorization: Bearer TOKEN")
            expect(envoy.health(), SERVING, "health checks need no token")
    with Client(s.grpc, token="s3cret-s3cret-s3cret") as envoy:
        expect(envoy.ask("three", ONE).statuses[0].limit_remaining, 2)
    assert "s3cret" not in "".join(s.lines())
    body = json.dumps({"domain": "three", "descriptors": [{}]})
    expect(s.ask(s.http, "POST", "/json", body).status, 401)
    expect(s.ask(s.http, "GET", "/healthcheck").status, 200)
    expect(s.ask(s.http, "POST", "/json", body, {"Authorization": "Bearer s3cret-s3cret-s3cret"}).status, 200)


def test_unix_socket(service, folder):
    path = os.path.join(folder, "grpc.sock")
    s = service("--grpc", f"unix:{path}", rules=RULES)
    with Client(s.grpc) as envoy:
        expect(envoy.code("three", ONE), OK)


# ---- health ----


def test_health(service):
    s = service(*GRPC, rules=RULES)
    with Client(s.grpc) as envoy:
        expect([envoy.health(), envoy.health("ratelimit")], [SERVING, SERVING])
        expect(status_of(envoy.health, "other")[0], grpc.StatusCode.NOT_FOUND)
        unknown = envoy.watch("other")
        expect(next(unknown).status, SERVICE_UNKNOWN)
        unknown.cancel()
        bad = envoy.channel.unary_unary(HEALTH_CHECK, lambda body: body, lambda body: body)
        expect(status_of(bad, b"\x0a\x05x")[0], grpc.StatusCode.INVALID_ARGUMENT)


def test_watch_until_the_end(service):
    s = service(*GRPC, rules=RULES)
    with Client(s.grpc) as envoy, Client(s.grpc) as other:
        watches = [envoy.watch(), envoy.watch("ratelimit"), other.watch("ratelimit")]
        expect([next(watch).status for watch in watches], [SERVING] * 3)
        expect(envoy.code("three", ONE), OK, "calls go on beside it")
        s.process.send_signal(signal.SIGTERM)
        for watch in watches:
            expect(next(watch).status, NOT_SERVING)
            with pytest.raises(grpc.RpcError) as caught:
                next(watch)
            expect(caught.value.code(), grpc.StatusCode.UNAVAILABLE)
    expect(s.process.wait(DEADLINE_S), 0)


def test_watches_outlast_idle_time(service):
    """A connection that only watches is not idle: its peer answers pings."""
    s = service(*GRPC, "--idle", "200ms", "--request", "200ms", rules=RULES)
    with Client(s.grpc) as envoy:
        watch = envoy.watch()
        expect(next(watch).status, SERVING)
        # An idle one is closed meanwhile; the sweeps that close it would close the other, too.
        with s.socket(s.grpc) as idle:
            expect(idle.recv(100), b"")
        s.process.send_signal(signal.SIGTERM)
        expect(next(watch).status, NOT_SERVING)
    expect(s.process.wait(DEADLINE_S), 0)


def test_too_many_watches(service):
    s = service(*GRPC, "--threads", "1", rules=RULES)
    with Client(s.grpc) as one, Client(s.grpc) as two:
        watches = [client.watch() for client in (one, two) for _ in range(128)]
        expect({next(watch).status for watch in watches}, {SERVING})
        with pytest.raises(grpc.RpcError) as caught:
            next(two.watch())
        expect(caught.value.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        watches[0].cancel()

        def again():
            watch = two.watch()
            try:
                return next(watch).status == SERVING
            except grpc.RpcError:
                return False

        until(again, "one that has ended makes room")


# ---- many at the same time ----


def test_many_calls(service):
    """Several connections and threads: exactly as many pass as there are."""
    s = service(*GRPC, "--threads", "2", rules=RULES.replace("max: 10,", "max: 1000,"))
    clients = [Client(s.grpc) for _ in range(8)]
    try:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            codes = list(pool.map(lambda i: clients[i % 8].code("ten", ONE), range(4000)))
        expect((codes.count(OK), codes.count(OVER_LIMIT)), (1000, 3000))
    finally:
        for client in clients:
            client.channel.close()


def test_many_streams_of_one_connection(service):
    """More than it allows at the same time: grpcio waits for its turn."""
    s = service(*GRPC, "--threads", "1", rules=RULES.replace("max: 10,", "max: 700,"))
    with Client(s.grpc) as envoy:
        futures = [envoy.call.future(request("ten", ONE), timeout=DEADLINE_S) for _ in range(2000)]
        codes = [future.result().overall_code for future in futures]
    expect((codes.count(OK), codes.count(OVER_LIMIT)), (700, 1300))


def test_stop_while_clients_ask(service):
    """Nothing is lost: a call is decided, or its client may send it elsewhere."""
    s = service(*GRPC, rules=RULES)
    decided = []

    def ask(client):
        while True:
            try:
                client.ask("bucket", ONE)
                decided.append(1)
            except grpc.RpcError as error:
                return error.code()

    clients = [Client(s.grpc) for _ in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        ends = [pool.submit(ask, client) for client in clients]
        until(lambda: len(decided) > 200, "calls are decided")
        s.process.send_signal(signal.SIGTERM)
        expect({end.result(DEADLINE_S) for end in ends}, {grpc.StatusCode.UNAVAILABLE})
    expect(s.process.wait(DEADLINE_S), 0)
    for client in clients:
        client.channel.close()
    s.start()
    with Client(s.grpc) as envoy:
        left = envoy.ask("bucket", descriptor(("key", "value"), hits=0)).statuses[0].limit_remaining
    assert 1000000 - left <= len(decided) + len(clients), "at most one for each client was charged and not answered"


# ---- what the service says about itself ----


def test_reports(service):
    s = service(*GRPC, rules=RULES)
    with Client(s.grpc) as envoy:
        for _ in range(5):
            envoy.ask("three", ONE)
        envoy.ask("shadow", ONE, hits=2)
        status = s.steer("GET", "/v1/status").json()
        expect(status["listeners"]["grpc"], f"{s.grpc[0]}:{s.grpc[1]}")
        expect(status["connections"]["grpc"], 1)
        metrics = s.steer("GET", "/metrics").body.decode()
        has(metrics, 'weir_connections{front="grpc"} 1\n')
        has(metrics, 'rule="three"', 'rule="shadow"')
        top = s.steer("GET", "/v1/top").json()
        has(json.dumps(top), "three")
        refusals = s.events("refused")
        expect(len(refusals), 2, "refusals in the log")
        recent = s.steer("GET", "/v1/refusals").json()
        has(json.dumps(recent), "three", "shadow")


def test_off(service):
    s = service(rules=RULES)
    expect(s.grpc, None)
    expect(s.steer("GET", "/v1/status").json()["listeners"]["grpc"], "off")


# ---- with a store ----


def test_store(service, store):
    s = service(*GRPC, "--counters", store.address, *PATIENT, rules=RULES)
    other = service(*GRPC, "--counters", store.address, *PATIENT, rules=RULES)
    with Client(s.grpc) as envoy, Client(other.grpc) as second:
        codes = [client.code("ten", ONE) for client in (envoy, second) for _ in range(6)]
        expect(codes, [OK] * 10 + [OVER_LIMIT] * 2)
        futures = [envoy.call.future(request("bucket", ONE), timeout=DEADLINE_S) for _ in range(500)]
        expect({future.result().overall_code for future in futures}, {OK})


def test_deadline_while_the_store_is_silent(service, store):
    """The client has its answer by its deadline, whatever the store does; what is charged later is given back."""
    s = service(*GRPC, "--counters", store.address, "--store-deadline", "10s", rules=RULES)
    with Client(s.grpc) as envoy:
        expect(envoy.ask("ten", ONE).statuses[0].limit_remaining, 9)
        store.process.send_signal(signal.SIGSTOP)
        try:
            code, _ = status_of(envoy.ask, "ten", ONE, timeout=0.2)
            expect(code, grpc.StatusCode.DEADLINE_EXCEEDED)
            cancelled = envoy.call.future(request("ten", ONE), timeout=DEADLINE_S)
            until(lambda: s.steer("GET", "/v1/status").json()["connections"]["grpc"] == 1, "it is connected")
            cancelled.cancel()
        finally:
            store.process.send_signal(signal.SIGCONT)
        until(
            lambda: envoy.ask("ten", descriptor(("k", "v"), hits=0)).statuses[0].limit_remaining == 9,
            "what nobody waited for is given back",
        )


def test_stop_while_the_store_is_silent(service, store):
    s = service(*GRPC, "--counters", store.address, "--store-deadline", "5s", "--drain", "200ms", rules=RULES)
    with Client(s.grpc) as envoy:
        envoy.ask("ten", ONE)
        store.process.send_signal(signal.SIGSTOP)
        try:
            pending = [envoy.call.future(request("ten", ONE), timeout=DEADLINE_S) for _ in range(20)]
            s.process.send_signal(signal.SIGTERM)
            expect(s.process.wait(DEADLINE_S), 0)
            for one in pending:
                assert one.exception(DEADLINE_S) is not None or one.result().overall_code == OK
        finally:
            store.process.send_signal(signal.SIGCONT)


# ---- /json and /healthcheck ----


def post(s, document, **headers):
    body = document if isinstance(document, (str, bytes)) else json.dumps(document)
    return s.ask(s.http, "POST", "/json", body, headers)


def test_json(service):
    s = service(*GRPC, "--envoy-headers", "yes", rules=RULES)
    for left in (2, 1):
        answer = post(s, {"domain": "three", "descriptors": [{"entries": [{"key": "a", "value": "b"}]}]})
        expect((answer.status, answer.headers["Content-Type"]), (200, "application/json"))
        found = answer.json()
        expect((found["overallCode"], found["statuses"][0]["limitRemaining"]), ("OK", left))
        limit = {"name": "min", "requestsPerUnit": 3, "unit": "MINUTE"}
        expect(found["statuses"][0]["currentLimit"], limit)
        expect(found["responseHeadersToAdd"][0], {"key": "RateLimit-Limit", "value": "3"})
        assert found["statuses"][0]["durationUntilReset"].endswith("s")
    answer = post(s, {"domain": "three", "descriptors": [{"entries": [{"key": "a"}]}], "hitsAddend": "2"})
    expect(answer.status, 429)
    expect(answer.json()["overallCode"], "OVER_LIMIT")
    expect(answer.json()["dynamicMetadata"]["rule"], "three")
    parsed = json_format.Parse(answer.body, RateLimitResponse())
    expect(parsed.overall_code, OVER_LIMIT, "protobuf reads it")


def test_json_names(service):
    """Both spellings, numbers as strings, null: as protobuf's JSON has them."""
    s = service(rules=RULES)
    left = lambda document: post(s, {"domain": "ten", **document}).json()["statuses"][0].get("limitRemaining", 0)
    expect(left({"descriptors": [{"entries": [{"key": "a", "value": "b"}], "hits_addend": "0"}]}), 10)
    expect(left({"descriptors": [{"hitsAddend": 2}], "hits_addend": 5}), 8)
    expect(left({"descriptors": [{"hitsAddend": None, "limit": None, "isNegativeHits": None}], "hitsAddend": None}), 7)
    expect(left({"descriptors": [{"hitsAddend": 1.0}]}), 6)
    limit = {"requestsPerUnit": 5, "unit": "WEEK", "unitMultiplier": 2}
    expect(left({"descriptors": [{"limit": limit}]}), 5)
    expect(left({"descriptors": [{"limit": {"requests_per_unit": 5, "unit": 2}, "is_negative_hits": False}]}), 4)


def test_json_mistakes(service):
    s = service(rules=RULES)
    for document in (
        "",
        "{",
        "[]",
        "{} {}",
        {"domain": "three"},
        {"descriptors": [{}]},
        {"domain": 1, "descriptors": [{}]},
        {"domain": "three", "descriptors": {}},
        {"domain": "three", "descriptors": [{"entries": {}}]},
        {"domain": "three", "descriptors": [{"entries": [{"key": 1}]}]},
        {"domain": "three", "descriptors": [{"unknown": 1}]},
        {"domain": "three", "descriptors": [{"hitsAddend": -1}]},
        {"domain": "three", "descriptors": [{"hitsAddend": 1.5}]},
        {"domain": "three", "descriptors": [{"hitsAddend": 1, "hits_addend": 1}]},
        {"domain": "three", "descriptors": [{}], "hitsAddend": 1 << 32},
        {"domain": "three", "descriptors": [{"limit": {"unit": "FORTNIGHT"}}]},
        {"domain": "three", "descriptors": [{"limit": {}}]},
        {"domain": "three", "descriptors": [{}] * 65},
        {"domain": "three", "descriptors": [{"entries": [{}] * 33}]},
        '{"domain": "three", "domain": "three", "descriptors": [{}]}',
        '{"domain": "three\\u0000", "descriptors": [{}]}',
        b'{"domain": "\xff", "descriptors": [{}]}',
        "[" * 10000,
    ):
        answer = post(s, document)
        expect(answer.status, 400, str(document)[:200])
        has(answer.json()["error"], "nothing was charged")
    expect(s.ask(s.http, "POST", "/json", "x" * 65537).status, 413)
    expect(s.ask(s.http, "GET", "/json").status, 405)
    good = {"domain": "three", "descriptors": [{}]}
    expect(post(s, good, Origin="http://evil.example").status, 415, "a page of another origin")
    expect(post(s, good).json()["statuses"][0]["limitRemaining"], 2)


def test_healthcheck(service):
    s = service(rules=RULES)
    answer = s.ask(s.http, "GET", "/healthcheck")
    expect((answer.status, answer.body), (200, b"OK"))


def test_json_with_a_store(service, store):
    s = service("--counters", store.address, *PATIENT, rules=RULES)
    codes = [post(s, {"domain": "three", "descriptors": [{"entries": [{"key": "a", "value": "b"}]}]}).status for _ in range(5)]
    expect(codes, [200, 200, 200, 429, 429])
