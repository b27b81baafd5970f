"""Amounts up to 2^53 - 1: the same number on every way in and out, never rounded."""

import json
import os

from support import expect, weir
from support.service import Service
from support.wire import Wire

MOST = 2**53 - 1
TRUSTING = "settings: { trusted_proxies: [127.0.0.1] }\n"
KINDS = {
    "bucket": f"{{ name: n, max: 1, per: 365d, burst: {MOST} }}",
    "window": f"{{ name: n, algorithm: fixed_window, max: {MOST}, per: 1h }}",
    "year": f"{{ name: n, calendar: year, max: {MOST} }}",
}
RULES = "rules:\n" + "".join(
    f"  - {{ id: {name}, match: {{ event: {name} }}, by: [key], limits: [ {limit} ] }}\n" for name, limit in KINDS.items()
)


def test_http_and_resp():
    with Service(rules=RULES) as s, Wire(s) as wire:
        for event in KINDS:
            answer = s.check(event=event, key="h", cost=MOST - 2)
            expect(answer.json()["max"], MOST, f"{event}: max")
            expect(answer.json()["remaining"], 2, f"{event}: remaining")
            expect(f'"max":{MOST},' in answer.body.decode(), True, f"{event}: {answer.body}")
            expect(s.check(event=event, key="h", cost=3).json()["allowed"], False, f"{event}: one too many")
            expect(wire.ask("WEIR.CHECK", "event", event, "key", "h", "cost", "2")[:5], [1, event, "n", MOST, 0], event)
            expect(wire.ask("WEIR.CHECK", "event", event, "key", "r", "cost", str(MOST - 1))[:5], [1, event, "n", MOST, 1], event)
            expect(wire.ask("WEIR.CHECK", "event", event, "key", "r", "cost", str(MOST))[6] != 0, True, f"{event}: a wait")
        expect(s.check(event="bucket", key="x", cost=MOST + 1).status, 400, "too large")
        for number in ("1e300", "9007199254740993", "18446744073709551617", "1" + "0" * 400):
            body = '{"event": "bucket", "key": "x", "cost": %s}' % number
            expect(s.ask(s.http, "POST", "/v1/check", body, {"Content-Type": "application/json"}).status, 400, number[:30])


def test_refund():
    with Service(rules=RULES) as s, Wire(s) as wire:
        for event in KINDS:
            request = ("event", event, "key", "k")
            receipt = wire.ask("WEIR.CHECK", *request, "cost", str(MOST - 7), "reply", "receipt")[10]
            expect(wire.ask("WEIR.CHECK", *request, "cost", "7")[4], 0, f"{event}: nothing is left")
            expect(wire.ask("WEIR.REFUND", receipt, *request), 1, f"{event}: given back")
            left = wire.ask("WEIR.CHECK", *request, "cost", "0")[4]
            expect(MOST - 7 <= left <= MOST and (left == MOST - 7 or event == "bucket"), True, f"{event}: {left} is left")


def test_command_and_cells(folder):
    """The cells stay readable when `max` moves across 2^32."""
    rules, cells = os.path.join(folder, "rules.yaml"), os.path.join(folder, "cells")

    def check(maximum, cost):
        with open(rules, "w", encoding="utf-8") as out:
            out.write(f"rules: [{{ id: a, limits: [ {{ name: n, calendar: year, max: {maximum} }} ] }}]")
        words = ("--rules", rules, "--cells", cells, "--cost", str(cost), "--now", "2026-03-01T12:00:00Z")
        return json.loads(weir("check", *words).stdout)

    expect(check(100, 60)["remaining"], 40)
    expect(check(MOST, 10**15)["remaining"], MOST - 10**15 - 60)
    expect(check(100, 0)["allowed"], False, "lowered below what was used")
    expect(check(2**32 - 1, 1)["allowed"], False)
    expect(check(10**15 + 61, 1)["remaining"], 0, "raised, and all that was used is used")
    expect(check(10**15 + 61, 0)["allowed"], True, "no more than max is used")
    said = weir("explain", "--rules", rules, "--cells", cells, "--cost", "1", "--now", "2026-03-01T12:00:00Z").stdout.decode()
    expect("1000000000000061 of 1000000000000061 used" in said, True, said)


def test_simulate(folder):
    rules = os.path.join(folder, "rules.yaml")
    with open(rules, "w", encoding="utf-8") as out:
        out.write(RULES)
    lines = [{"t": 1700000000000, "event": event, "key": "k", "cost": cost} for event in KINDS for cost in (MOST - 1, 2, 1)]
    path = os.path.join(folder, "input")
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)
    found = [json.loads(line) for line in weir("simulate", "--rules", rules, "--verdicts", path).stdout.splitlines()]
    expect([verdict["allowed"] for verdict in found], [True, False, True] * 3)
    expect([verdict["remaining"] for verdict in found], [1, 1, 0] * 3)


def test_headers():
    with Service(rules=TRUSTING + f"rules: [{{ id: a, limits: [ {{ name: n, calendar: year, max: {MOST} }} ] }}]") as s:
        asked = {"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/", "X-Forwarded-For": "192.0.2.1"}
        headers = s.ask(s.http, "GET", "/v1/auth", None, asked).headers
        # A number of structured fields has at most 15 digits.
        expect(headers["RateLimit"].split(";")[1], f"r={10**15 - 1}")
        expect(headers["RateLimit-Policy"].split(";")[1], f"q={10**15 - 1}")


def test_a_leased_rule_has_no_slice_for_more_than_32_bits():
    leased = f"rules: [{{ id: a, by: [key], lease: true, limits: [ {{ name: n, calendar: year, max: {MOST} }} ] }}]"
    with Service("--counters", "redis://127.0.0.1:1", rules=leased) as s:
        verdict = s.check(key="k", cost=2**32).json()
        expect((verdict["allowed"], verdict["retry_after_ms"]), (False, -1))
