"""The traceparent of a request is in the log of its refusal, whichever way the request came; nothing else is."""

import json

import pytest

from support import expect, until
from support.envoy import OVER_LIMIT, RATE_LIMIT, Client, RateLimitRequest, RateLimitResponse, descriptor, request
from support.store import PATIENT
from support.wire import Wire, words

RULES = """
settings: { trusted_proxies: [127.0.0.0/8] }
rules:
  - { id: none, match: { event: none }, limits: [ { algorithm: fixed_window, max: 0, per: 1h } ] }
  - { id: path, match: { path: /no }, limits: [ { algorithm: fixed_window, max: 0, per: 1h } ] }
  - { id: envoy, match: { domain: d }, limits: [ { algorithm: fixed_window, max: 0, per: 1h } ] }
"""
STORED = RULES.replace("match:", "counters: shared, match:")
FLAGS = ("--grpc", "127.0.0.1:0", "--log-refusals", "1000")
JSON = {"Content-Type": "application/json"}
FORGED = ("", "1", "00-" + "0" * 32 + "-00f067aa0ba902b7-01", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
          '00-4bf92f3577b34da6a3ce929d0e0e473"-00f067aa0ba902b7-01', "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
          "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")


def trace(number):
    """The header, and what the log has of it."""
    ids = {"trace_id": f"{number:032x}", "span_id": f"{number % 2**60 + 1:016x}", "trace_flags": "01"}
    return "00-{trace_id}-{span_id}-{trace_flags}".format(**ids), ids


class Log:
    """The refusals of a service, each once."""

    def __init__(self, s):
        self.s, self.seen = s, 0

    def next(self, count=1):
        """The traces of so many more."""
        found = until(lambda: (lines := self.s.events("refused"))[self.seen + count - 1:] and lines, "a refusal in the log")
        new, self.seen = found[self.seen:], len(found)
        expect(len(new), count, "refusals")
        return [{name: entry[name] for name in ("trace_id", "span_id", "trace_flags") if name in entry} for entry in new]


@pytest.fixture(params=["cells", "store"])
def started(request, service):
    """With a store the decisions are made later."""
    if request.param == "cells":
        return service(*FLAGS, rules=RULES)
    return service(*FLAGS, *PATIENT, "--counters", request.getfixturevalue("store").address, rules=STORED)


def test_check(started):
    s, log = started, Log(started)
    value, ids = trace(0x4BF92F3577B34DA6A3CE929D0E0E4736)
    other, other_ids = trace(7)

    def check(body, headers):
        s.ask(s.http, "POST", "/v1/check", json.dumps(body), {**JSON, **headers})

    check({"event": "none", "headers": {"traceparent": value}}, {})
    expect(log.next(), [ids], "of the request")
    check({"event": "none"}, {"Traceparent": value})
    expect(log.next(), [ids], "of the call")
    check({"event": "none", "headers": {"Traceparent": value}}, {"traceparent": other})
    expect(log.next(), [ids], "the request's comes first")
    check({"event": "none", "headers": {"traceparent": ["x", "y"]}}, {"traceparent": other})
    expect(log.next(), [other_ids], "an invalid one is as none")
    check([{"event": "none", "headers": {"traceparent": value}}, {"event": "none"}], {"traceparent": other})
    expect(sorted(log.next(2), key=str), sorted([ids, other_ids], key=str), "a list")
    for text in FORGED:
        check({"event": "none", "headers": {"traceparent": text}}, {"traceparent": text} if text else {})
        expect(log.next(), [{}], text)


def test_auth(started):
    s, log = started, Log(started)
    value, ids = trace(1 << 127)
    gateway = {"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/no", "X-Forwarded-For": "203.0.113.7"}
    expect(s.ask(s.http, "GET", "/v1/auth", headers={**gateway, "traceparent": value}).status, 429)
    expect(log.next(), [ids])
    for text in FORGED:
        s.ask(s.http, "GET", "/v1/auth", headers={**gateway, "traceparent": text})
        expect(log.next(), [{}], text)


def test_resp(started):
    log = Log(started)
    value, ids = trace(12345)
    with Wire(started) as wire:
        wire.send(words("WEIR.CHECK", "event", "none", "header:traceparent", value))
        expect(wire.reply()[0], 0)
        expect(log.next(), [ids])
        for text in (*FORGED, value + "\n", "\n" + value[1:]):
            wire.send(words("WEIR.CHECK", "event", "none", "header:traceparent", text))
            expect(wire.reply()[0], 0)
            expect(log.next(), [{}], text)


def test_grpc(started):
    log = Log(started)
    one = descriptor(("key", "value"))
    with Client(started.grpc) as envoy:
        call = envoy.channel.unary_unary(RATE_LIMIT, RateLimitRequest.SerializeToString, RateLimitResponse.FromString)

        def ask(*values, descriptors=(one,)):
            answer = call.future(request("d", *descriptors), metadata=[("traceparent", value) for value in values])
            return answer

        value, ids = trace(99)
        expect(ask(value).result().overall_code, OVER_LIMIT)
        expect(log.next(), [ids])
        expect(ask(value, descriptors=(one, descriptor(("key", "b")))).result().overall_code, OVER_LIMIT)
        expect(log.next(), [ids], "two descriptors are one decision")
        ask(value, value).result()
        expect(log.next(), [{}], "two of them")
        for text in FORGED:
            ask(text).result()
            expect(log.next(), [{}], text)
        # Calls that come together are decided together.
        many = [trace(1000 + number) for number in range(100)]
        for answer in [ask(value) for value, _ in many] + [ask()]:
            answer.result()
        found = log.next(101)
        expect(sorted(found, key=str), sorted([ids for _, ids in many] + [{}], key=str), "each has its own")


def test_json(started):
    s, log = started, Log(started)
    value, ids = trace(77)
    body = json.dumps({"domain": "d", "descriptors": [{"entries": [{"key": "a", "value": "b"}]}]})
    expect(s.ask(s.http, "POST", "/json", body, {**JSON, "traceparent": value}).status, 429)
    expect(log.next(), [ids])
    s.ask(s.http, "POST", "/json", body, {**JSON, "traceparent": value.upper()})
    expect(log.next(), [{}])
