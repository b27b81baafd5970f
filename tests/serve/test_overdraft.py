"""Limits with overdraft: the debt in the answers, in explanations and in the metrics, over every way in."""

from support import expect
from support.service import Service
from support.wire import Wire

RULES = """
rules:
  - { id: o, match: { event: o }, by: [key], limits: [ { name: n, algorithm: fixed_window, max: 10, per: 1h, overdraft: true } ] }
  - { id: t, match: { event: t }, by: [key], limits: [ { name: n, max: 10, per: 1h, unit: tokens, overdraft: true }, "5 per 1h" ] }
"""


def overdrawn(s):
    lines = s.steer("GET", "/metrics").body.decode().splitlines()
    expect("# TYPE weir_overdrawn_total counter" in lines, True, "the family")
    return sorted(line for line in lines if line.startswith("weir_overdrawn_total"))


def test_answers():
    with Service(rules=RULES) as s, Wire(s) as wire:
        expect(overdrawn(s), [], "nothing yet")
        first = s.check(event="o", key="k", cost=4).json()
        expect((first["remaining"], "debt" in first), (6, False), first)
        second = s.check(event="o", key="k", cost=1000).json()
        expect((second["allowed"], second["remaining"], second["debt"], second["retry_after_ms"]), (True, 0, 994, 0), second)
        third = s.check(event="o", key="k", cost=1000).json()
        expect((third["allowed"], third["remaining"], third["debt"]), (False, 0, 994), third)
        expect(0 < third["retry_after_ms"] <= 3600_000, True, third)
        expect(wire.ask("WEIR.CHECK", "event", "o", "key", "r", "cost", "11")[:5], [1, "o", "n", 10, 0], "over RESP")
        expect(wire.ask("WEIR.CHECK", "event", "o", "key", "r")[:5], [0, "o", "n", 10, 0], "then it owes")
        fourth = s.check(event="t", key="k", costs={"requests": 1, "tokens": 12}).json()
        expect((fourth["allowed"], fourth["unit"], fourth["debt"]), (True, "tokens", 2), fourth)
        expect(s.check(event="o", key="x", cost=1000, peek=True).json()["remaining"], 10, "a peek owes nothing")
        wanted = ['weir_overdrawn_total{rule="o"} 995', 'weir_overdrawn_total{rule="t"} 2']
        expect(overdrawn(s), wanted, "994 and 1, and 2")


def test_explanations():
    with Service(rules=RULES) as s:
        s.check(event="o", key="k", cost=25)
        limit = s.steer("GET", "/v1/explain?event=o&key=k&cost=7").json()["rules"][0]["limits"][0]
        expect((limit["used"], limit["remaining"], limit["debt"], limit["fits"]), (10, 0, 15, False), limit)
        expect(limit["text"], "10 per 1h fixed_window with overdraft", limit)
        expect(limit["retry_after_ms"] is not None, True, "7 pass as soon as 1 fits")
        limit = s.steer("GET", "/v1/explain?event=o&key=other&cost=700").json()["rules"][0]["limits"][0]
        expect((limit["fits"], "debt" in limit), (True, False), limit)


def test_refund():
    with Service(rules=RULES) as s, Wire(s) as wire:
        request = ("event", "o", "key", "k")
        receipt = wire.ask("WEIR.CHECK", *request, "cost", str(2**53 - 1), "reply", "receipt")[10]
        expect(wire.ask("WEIR.CHECK", *request)[0], 0, "in debt")
        expect(wire.ask("WEIR.REFUND", receipt, *request), 1, "given back")
        expect(wire.ask("WEIR.CHECK", *request)[:5], [1, "o", "n", 10, 9], "all of it")
