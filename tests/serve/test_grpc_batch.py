"""Calls that arrive in one read are decided one after another, in the order in which they are complete, as if each had come alone."""

import random

import pytest

from support import expect, number
from support.envoy import OK, OVER_LIMIT, Client, HealthCheckRequest, HealthCheckResponse, RateLimitResponse, descriptor, request
from support.h2 import DATA, END_STREAM, RST_STREAM, Http2, frame, message

GRPC = ("--grpc", "127.0.0.1:0", "--threads", "1")
RULES = """
rules:
  - id: forty
    match: { domain: edge, descriptor: { key: value } }
    by: [domain]
    limits: [ { algorithm: fixed_window, max: 40, per: 1h } ]
  - id: many
    match: { domain: many }
    by: ["descriptor:user"]
    limits: [ { algorithm: fixed_window, max: 1000000, per: 1h } ]
  - id: watched
    mode: shadow
    match: { domain: edge, descriptor: { key: value } }
    by: [domain]
    limits: [ { algorithm: fixed_window, max: 10, per: 1h } ]
"""
GIVEN = """
  - id: given
    match: { domain: edge, descriptor_limit: { present: true } }
    by: [descriptor]
    limits: given
"""
KEY = descriptor(("key", "value"))
ONE = request("edge", KEY)
TWO = request("edge", KEY, descriptor(("other", "value")))
WRONG = request("", KEY)
CANCEL = (8).to_bytes(4, "big")
HEALTH = "/grpc.health.v1.Health/Check"
INVALID = 3
SEED = number("TEST_SEED", 1)


def bytes_of(c, stream, call, **changed):
    body = call if isinstance(call, bytes) else call.SerializeToString()
    return c.headers(stream, **changed) + frame(DATA, END_STREAM, stream, message(body))


def decoded(answer, kind=RateLimitResponse):
    return kind.FromString(answer["data"][5:])


def left(s, domain="edge", one=("key", "value")):
    with Client(s.grpc) as envoy:
        return envoy.ask(domain, descriptor(one, hits=0)).statuses[0].limit_remaining


def counts(s, rule):
    """(allowed, refused, refused in shadow mode): decisions that the metrics have for a rule."""
    lines = [line for line in s.steer("GET", "/metrics").body.decode().splitlines() if f'rule="{rule}"' in line]
    lines = [line for line in lines if line.startswith("weir_decisions_total{")]
    return tuple(sum(int(line.split()[-1]) for line in lines if f'"{one}"' in line) for one in ("allowed", "refused", "shadow"))


def test_order(service):
    """One limit, and more calls than it allows: the first ones pass, and each says what it has left for the next one."""
    s = service(*GRPC, rules=RULES)
    streams = range(1, 120, 2)
    with Http2(s.grpc) as c:
        c.send(b"".join(bytes_of(c, stream, ONE) for stream in streams))
        answers = [decoded(c.answer(stream)) for stream in streams]
    expect([answer.overall_code for answer in answers], [OK] * 40 + [OVER_LIMIT] * 20)
    expect([answer.statuses[0].limit_remaining for answer in answers], [*reversed(range(40))] + [0] * 20)
    expect(counts(s, "forty"), (40, 20, 0))
    expect(counts(s, "watched"), (0, 0, 50))


def test_mixed(service):
    """Calls with several descriptors, wrong calls and other methods among them do not change the order."""
    s = service(*GRPC, rules=RULES)
    health = {"path": HEALTH}
    with Http2(s.grpc) as c:
        text, wanted, stream, rest = b"", [], 1, 40
        for call, changed in ((ONE, {}), (ONE, {}), (TWO, {}), (WRONG, {}), (ONE, {}), (HealthCheckRequest(), health)) * 6:
            text += bytes_of(c, stream, call, **changed)
            rest -= call in (ONE, TWO)
            wanted.append((stream, call, rest))
            stream += 2
        c.send(text)
        for stream, call, remaining in wanted:
            expect(c.status(stream), INVALID if call is WRONG else 0)
            if isinstance(call, HealthCheckRequest):
                expect(decoded(c.answer(stream), HealthCheckResponse).status, 1)
            elif call is not WRONG:
                expect(decoded(c.answer(stream)).statuses[0].limit_remaining, remaining)
    expect(left(s), 40 - 24)


def any_call(choose):
    one = choose.choice((KEY[0], (("user", choose.choice("abc")),), (("key", "value"), ("user", "a")), (("none", "x"),)))
    limit = choose.choice((None, None, None, (5, "HOUR")))
    first = descriptor(*one, limit=limit, hits=choose.choice((None, None, 0, 1, 7, 90)), negative=choose.random() < 0.1)
    return request(choose.choice(("edge", "edge", "many")), *([first] + [KEY] * (choose.random() < 0.1)))


def without_time(answer):
    for status in answer.statuses:
        status.ClearField("duration_until_reset")
    answer.dynamic_metadata.fields.pop("retry_after_ms", None)
    return answer


@pytest.mark.parametrize("charge", ("together", "each"))
def test_as_if_alone(service, charge):
    """All kinds of calls in one read, and the same calls one by one in another service: the answers are the same."""
    choose = random.Random(f"{SEED} {charge}")
    together, alone = (service(*GRPC, "--envoy-charge", charge, rules=RULES + GIVEN) for _ in range(2))
    with Http2(together.grpc) as t, Http2(alone.grpc) as a:
        first = 1
        for _ in range(10):
            calls = [(first + 2 * i, any_call(choose)) for i in range(choose.randrange(1, 80))]
            first += 2 * len(calls)
            t.send(b"".join(bytes_of(t, stream, call) for stream, call in calls))
            for stream, call in calls:
                a.call(stream, call)
                expect(t.status(stream), a.status(stream), f"{call}")
                expect(without_time(decoded(t.answer(stream))), without_time(decoded(a.answer(stream))), f"{call}")


def test_own_strings(service):
    """Each call of a batch has its own entries and its own subject."""
    s = service(*GRPC, rules=RULES)
    streams = range(1, 100, 2)
    with Http2(s.grpc) as c:
        calls = (request("many", descriptor(("user", f"u{i % 7}")), hits=i + 1) for i in streams)
        c.send(b"".join(bytes_of(c, stream, call) for stream, call in zip(streams, calls)))
        used = {}
        for i in streams:
            used[i % 7] = used.get(i % 7, 0) + i + 1
            expect(decoded(c.answer(i)).statuses[0].limit_remaining, 1000000 - used[i % 7])


def test_body_in_a_later_read(service):
    """Calls whose headers came earlier than those of the others in their batch."""
    s = service(*GRPC, rules=RULES)
    body = message(ONE.SerializeToString())
    with Http2(s.grpc) as c:
        c.send(c.headers(1) + frame(DATA, 0, 1, body[:9]))
        c.call(3, ONE)
        expect(c.status(3), 0)
        c.send(bytes_of(c, 5, ONE) + frame(DATA, END_STREAM, 1, body[9:]) + bytes_of(c, 7, ONE))
        expect([decoded(c.answer(stream)).statuses[0].limit_remaining for stream in (3, 5, 1, 7)], [39, 38, 37, 36])


def test_reset_in_the_same_read(service):
    """A call that its client resets at once is neither answered nor charged; the others are."""
    s = service(*GRPC, rules=RULES)
    with Http2(s.grpc) as c:
        c.send(bytes_of(c, 1, ONE) + bytes_of(c, 3, ONE) + frame(RST_STREAM, 0, 3, CANCEL) + bytes_of(c, 5, ONE))
        expect([decoded(c.answer(stream)).statuses[0].limit_remaining for stream in (1, 5)], [39, 38])
        assert 3 not in c.answers
    expect(left(s), 38)


def test_many_resets(service):
    """More calls than may be open at the same time, since most are reset: those that stay are answered."""
    s = service(*GRPC, rules=RULES)
    call = request("many", descriptor(("user", "ann")))
    with Http2(s.grpc) as c:
        text, stay = b"", range(1, 1201, 8)
        for stream in range(1, 1201, 2):
            text += bytes_of(c, stream, call)
            text += b"" if stream in stay else frame(RST_STREAM, 0, stream, CANCEL)
        c.send(text)
        expect({c.status(stream) for stream in stay}, {0})
    assert 1000000 - 600 <= left(s, "many", ("user", "ann")) <= 1000000 - 150
