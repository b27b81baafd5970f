"""Costs by unit: every way in names them alike, and all units pass or fail together."""

import json
import os

import pytest

from support import expect, until, weir
from support.contract import Checked
from support.service import Service
from support.store import PATIENT, Store
from support.wire import Error, Wire

JSON = {"Content-Type": "application/json"}


def rules(more=""):
    return f"""
rules:
  - id: llm
    match: {{ event: llm }}
    by: [key]
    {more}
    limits:
      - {{ name: calls, algorithm: fixed_window, max: 1000, per: 1h }}
      - {{ name: tokens, unit: tokens, algorithm: fixed_window, max: 5000, per: 1h }}
      - {{ name: spend, unit: micro-dollars, calendar: year, max: 40000000000 }}
"""


def used(s, key):
    """Of each limit, as explain says."""
    asked = s.steer("GET", f"/v1/explain?event=llm&key={key}&cost=0").json()
    return [limit["used"] for limit in asked["rules"][0]["limits"]]


def exercise(s, wire, key):
    def post(**body):
        return s.ask(s.http, "POST", "/v1/check", json.dumps({"event": "llm", "key": key, **body}), JSON)

    def ask(*words):
        return wire.ask("WEIR.CHECK", "event", "llm", "key", key, *words)[:5]

    verdict = post(costs={"requests": 1, "tokens": 4990, "micro-dollars": 5_000_000_000}).json()
    expect((verdict["allowed"], verdict["limit"], verdict["unit"], verdict["remaining"]), (True, "tokens", "tokens", 10))
    expect(used(s, key), [1, 4990, 5_000_000_000])
    verdict = post(costs={"requests": 1, "tokens": 11, "micro-dollars": 7}).json()
    expect((verdict["allowed"], verdict["unit"], verdict["max"]), (False, "tokens", 5000), "one unit refuses")
    expect(used(s, key), [1, 4990, 5_000_000_000], "and nothing is charged")
    expect(ask("cost:tokens", "6"), [1, "llm", "tokens", 5000, 4], "requests cost 0 if another unit is named")
    expect(used(s, key), [1, 4996, 5_000_000_000])
    expect(ask("cost", "3", "cost:tokens", "4"), [1, "llm", "tokens", 5000, 0])
    expect(ask("cost:requests", "2", "cost:micro-dollars", "35000000000"), [1, "llm", "tokens", 5000, 0])
    expect(ask("cost:micro-dollars", "1")[:4], [0, "llm", "spend", 40_000_000_000], "spent")
    expect(ask(), [1, "llm", "tokens", 5000, 0], "a plain request costs one request")
    expect(used(s, key), [7, 5000, 40_000_000_000])
    for body in ({"cost": 1, "costs": {}}, {"costs": {"a b": 1}}, {"costs": {"tokens": 1.5}}, {"costs": 3}):
        expect(post(**body).status, 400, str(body))
    expect(wire.ask("WEIR.CHECK", "event", "llm", "key", key, "cost", "1", "cost:requests", "1"),
           Error("ERR attribute 'cost:requests' is given twice"))
    expect(str(wire.ask("WEIR.CHECK", "event", "llm", "key", key, "cost:", "1"))[:60],
           str(Error("ERR attribute 'cost:' is not the name of a unit: letters, digits"))[:60])
    expect(used(s, key), [7, 5000, 40_000_000_000], "mistakes charge nothing")


def refund(wire, s, key):
    request = ("event", "llm", "key", key)
    receipt = wire.ask("WEIR.CHECK", *request, "cost", "5", "cost:tokens", "700", "reply", "receipt")[10]
    expect(used(s, key), [5, 700, 0])
    expect(wire.ask("WEIR.REFUND", receipt, *request), 2, "limits that were charged")


def units_in_replies(wire, key):
    """Long replies end with the unit of the limit that they name, if it is not requests."""
    request = ("event", "llm", "key", key)
    reply = wire.ask("WEIR.CHECK", *request, "reply", "long")
    expect((len(reply), reply[2], reply[10]), (11, "calls", None), "a limit without a unit counts requests")
    reply = wire.ask("WEIR.CHECK", *request, "cost:tokens", "4999", "reply", "receipt")
    expect((len(reply), reply[2], reply[4], reply[11]), (12, "tokens", 1, "tokens"))
    expect(wire.ask("WEIR.REFUND", reply[10], *request), 1)
    refused = wire.ask("WEIR.PEEK", *request, "cost:tokens", "5001", "reply", "long")
    expect((refused[0], refused[8:]), (0, [429, 0, None, "tokens"]))
    expect(len(wire.ask("WEIR.PEEK", *request, "cost:tokens", "5001")), 7, "a short one has none")
    expect(wire.ask("WEIR.CHECK", "event", "none", "reply", "long"), [1] + [None] * 5 + [0, None, 0, 0, None])


def test_local():
    with Service(rules=rules()) as s, Wire(s) as wire:
        exercise(s, wire, "k")
        refund(wire, s, "r")
        expect(used(s, "r"), [0, 0, 0])
        units_in_replies(wire, "f")
        expect(wire.ask("HELLO", "3")["proto"], 3)
        units_in_replies(wire, "f3")


def uncounted(s, event, *costs):
    words = "".join(f"&cost={cost}" for cost in costs)
    return s.steer("GET", f"/v1/explain?event={event}&key=k{words}").json().get("uncounted")


def test_units_that_nobody_counts():
    """Checked holds the answers against openapi.json."""
    with Store() as store:
        for words, more in (((), ""), (("--counters", store.address), ""), (("--counters", store.address), "lease: true"), ((), "mode: shadow")):
            with Checked(*words, rules=rules(more)) as s:
                expect(uncounted(s, "llm"), None)
                expect(uncounted(s, "llm", "5", "tokens:1"), None)
                expect(uncounted(s, "llm", "token:1", "tokens:1", "usd:0"), ["token", "usd"])
                expect(uncounted(s, "other", "tokens:1"), ["tokens"], "no rule applies")


@pytest.mark.parametrize("more", ["", "lease: { slice: 1% }"])
def test_store(more):
    with Store() as store, Service("--counters", store.address, *PATIENT, rules=rules(more)) as s, Wire(s) as wire:
        if not more:
            exercise(s, wire, "k")
            refund(wire, s, "r")
            expect(used(s, "r"), [0, 0, 0])
            units_in_replies(wire, "f")
            return
        request = {"event": "llm", "key": "k", "costs": {"requests": 1, "tokens": 4000}}
        passed = [s.check(**request).json()["allowed"] for _ in range(3)]
        expect(passed, [True, False, False], "4000 of 5000")
        expect(s.check(event="llm", key="k", costs={"tokens": 500}).json()["allowed"], True, "half of the rest")
        expect(s.check(event="llm", key="k").json()["allowed"], True, "other units go on")
        expect(s.check(event="llm", key="k", costs={"micro-dollars": 2**32}).json()["retry_after_ms"], -1, "no slice holds it")


@pytest.mark.parametrize("more", ["", "lease: true"])
def test_outage(more):
    """A host whose share of a unit is below 1 refuses what costs that unit, and nothing else."""
    more += "\n    on_store_failure: local"
    with Store() as store, Service("--counters", store.address, "--hosts", "5001", rules=rules(more).replace("1000,", "50010,")) as s:
        store.kill()
        until(lambda: not s.steer("GET", "/v1/status").json()["store"]["up"], "the store is gone")
        expect(s.check(event="llm", key="k", costs={"requests": 1, "tokens": 1}).json()["status"], 503, "a share below 1")
        costs = ({}, {"cost": 0}, {"costs": {"micro-dollars": 7_000_000}}, {"costs": {"micro-dollars": 998_401}}, {"cost": 9}, {})
        found = [s.check(event="llm", key="k", **cost).json() for cost in costs]
        expect([verdict["status"] for verdict in found], [200, 200, 200, 429, 200, 429])


def test_command(folder):
    path, cells = os.path.join(folder, "rules.yaml"), os.path.join(folder, "cells")
    with open(path, "w", encoding="utf-8") as out:
        out.write(rules())
    words = ("--rules", path, "--cells", cells, "--event", "llm", "--key", "k", "--now", "2026-01-01T00:00:00Z")
    verdict = json.loads(weir("check", *words, "--cost", "1", "--cost", "tokens=4000").stdout)
    expect((verdict["limit"], verdict["remaining"]), ("calls", 999), "the least is left")
    verdict = json.loads(weir("check", *words, "--cost", "tokens=1001").stdout)
    expect((verdict["allowed"], verdict["unit"]), (False, "tokens"))
    said = weir("explain", *words, "--cost", "tokens=1001").stdout.decode()
    for part in ("1001 tokens", "limit tokens: 5000 tokens per 1h fixed_window", "4000 of 5000 used"):
        expect(part in said, True, said)
    none = "no limit that applies counts the unit"
    expect(none in said, False, said)
    said = weir("explain", *words, "--cost", "token=1", "--cost", "tokens=1", "--cost", "usd=0").stdout.decode()
    for unit, wanted in {"token": True, "tokens": False, "usd": True}.items():
        expect(f"  {none} {unit}, so this cost has no effect\n" in said, wanted, said)
    for wrong in ("tokens=", "=5", "a b=1", "tokens=-1", "tokens=9007199254740992", "x"):
        done = weir("check", *words, "--cost", wrong)
        expect((done.returncode, b"--cost: '" in done.stderr), (2, True), wrong)
    expect(b"given twice" in weir("check", *words, "--cost", "a=1", "--cost", "a=2").stderr, True)
    lines = [{"t": 0, "event": "llm", "key": "k", "costs": {"tokens": n}} for n in (4000, 1001, 1000)]
    lines.append({"t": 0, "event": "llm", "key": "k", "cost": 1, "costs": {}})
    path_in = os.path.join(folder, "in")
    with open(path_in, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines[:3])
    found = [json.loads(line) for line in weir("simulate", "--rules", path, "--verdicts", path_in).stdout.splitlines()]
    expect([verdict["allowed"] for verdict in found], [True, False, True])
    with open(path_in, "w", encoding="utf-8") as out:
        out.write(json.dumps(lines[3]) + "\n")
    expect(b"cost: must be left out beside costs" in weir("simulate", "--rules", path, path_in).stderr, True)
