"""Limits with `concurrent` over HTTP and RESP, gauges of them, and hold_max."""

import json
import os
import re

from support import expect, until, weir
from support.service import Service
from support.store import Store
from support.wire import Wire

JSON = {"Content-Type": "application/json"}
RULES = """
rules:
  - id: run
    match: { event: run }
    by: key
    limits:
      - { name: running, concurrent: 2, ttl: 1h }
      - { name: rate, algorithm: fixed_window, max: 100, per: 1h }
  - { id: short, match: { event: short }, by: key, limits: [ { concurrent: 1, ttl: 1s } ] }
  - { id: none, match: { event: none }, by: key, limits: 0 concurrent }
  - { id: budget, match: { event: budget }, by: key, hold_max: 50%, limits: [ { name: tokens, max: 100, per: 24h, unit: tokens } ] }
  - { id: trial, match: { event: trial }, by: key, mode: shadow, limits: 1 concurrent }
"""


def post(s, what, **document):
    return s.ask(s.http, "POST", f"/v1/{what}", json.dumps(document), JSON)


def in_status(s):
    return {f"{entry['rule']}/{entry['limit']}": entry["holds"] for entry in s.steer("GET", "/v1/status").json()["holds"]}


def gauges(s):
    """{rule/limit: holds}, the same in the metrics and in the status."""
    text = s.steer("GET", "/metrics").body.decode()
    expect("# TYPE weir_holds gauge\n" in text, True, text)
    found = {f"{rule}/{limit}": int(value)
             for rule, limit, value in re.findall(r'^weir_holds\{rule="(\w+)",limit="(\w+)"\} (\d+)$', text, re.M)}
    expect(in_status(s), found, "the status says the same")
    return found


def begin_http(s, event, key):
    answer = s.check(event=event, key=key).json()
    return answer["allowed"], answer.get("hold")


def test_http():
    with Service(rules=RULES) as s:
        idle = {"run/running": 0, "short/concurrent": 0, "none/concurrent": 0, "trial/concurrent": 0}
        expect(gauges(s), idle)
        holds = [begin_http(s, "run", "a") for _ in range(3)]
        expect([allowed for allowed, _ in holds], [True, True, False])
        expect([hold is not None for _, hold in holds], [True, True, False])
        answer = s.check(event="run", key="a")
        policy = '"run/running";q=2;qu="concurrent-requests", "run/rate";q=100;w=3600'
        expect((answer.headers["RateLimit-Policy"], answer.headers["RateLimit"]), (policy, '"run/running";r=0;t=1'))
        refused = answer.json()
        expect((refused["limit"], refused["max"], refused["remaining"], refused["retry_after_ms"]), ("running", 2, 0, 1000))
        expect(gauges(s), {**idle, "run/running": 2})
        other = begin_http(s, "run", "b")[1]
        document = s.steer("GET", "/v1/explain?event=run&key=b").json()
        limit = next(rule for rule in document["rules"] if rule["id"] == "run")["limits"][0]
        expect((limit["algorithm"], limit["max"], limit["used"], limit["remaining"]), ("concurrent", 2, 1, 1))
        expect(gauges(s)["run/running"], 3)
        for hold in (holds[0][1], holds[1][1], other):
            expect(post(s, "settle", hold=hold).status, 200)
            expect(post(s, "settle", hold=hold).json(), {"settled": 0}, "twice is once")
        expect(gauges(s), idle)
        expect(s.check(event="run", key="a", peek=True).json()["allowed"], True)
        expect(s.check(event="run", key="a", cost=0).json()["allowed"], True)
        expect(gauges(s), idle, "what only looks holds nothing")
        never = s.check(event="none", key="a").json()
        expect((never["allowed"], never["retry_after_ms"]), (False, -1), "0 refuses all")


def test_resp():
    with Service(rules=RULES) as s, Wire(s) as wire:
        request = ("event", "run", "key", "a")
        replies = [wire.ask("WEIR.CHECK", *request) for _ in range(3)]
        expect([reply[0] for reply in replies], [1, 1, 0])
        expect([len(reply) for reply in replies], [8, 8, 7], "the hold is the eighth")
        expect(gauges(s)["run/running"], 2)
        expect(wire.ask("WEIR.SETTLE", replies[0][7]) > 0, True)
        expect(wire.ask("WEIR.SETTLE", replies[0][7]), 0)
        expect(wire.ask("WEIR.RENEW", replies[1][7], "ttl", "60000") > 0, True)
        expect(wire.ask("WEIR.REFUND", replies[1][7]) > 0, True)
        expect(gauges(s)["run/running"], 0)


def test_nobody_comes():
    with Service(rules=RULES) as s:
        expect(begin_http(s, "short", "a")[0], True)
        until(lambda: in_status(s)["short/concurrent"] == 0, "the time to live is over")
        expect(begin_http(s, "short", "a")[0], True)
        s.kill()
        s.start()
        until(lambda: in_status(s)["short/concurrent"] == 0, "also after a kill")


def test_a_kill_keeps_what_is_in_flight():
    with Service(rules=RULES) as s:
        holds = [begin_http(s, "run", "a")[1] for _ in range(2)]
        s.kill()
        s.start()
        expect(gauges(s)["run/running"], 2)
        expect(begin_http(s, "run", "a")[0], False)
        for hold in holds:
            post(s, "settle", hold=hold)
        expect(gauges(s)["run/running"], 0)


def test_shadow():
    with Service(rules=RULES) as s:
        first, second = (s.check(event="trial", key="a").json() for _ in range(2))
        expect((first["shadow"], second["shadow"]), ([], ["trial"]))
        expect(gauges(s)["trial/concurrent"], 1)
        for answer in (first, second):
            if "hold" in answer:
                post(s, "settle", hold=answer["hold"])
        expect(gauges(s)["trial/concurrent"], 0)


def test_hold_max():
    with Service(rules=RULES) as s, Wire(s) as wire:
        request = {"event": "budget", "key": "a"}
        too_much = post(s, "reserve", **request, costs={"tokens": 51}, ttl_ms=60000).json()
        expect((too_much["allowed"], too_much["limit"], too_much["retry_after_ms"]), (False, "tokens", -1))
        half = post(s, "reserve", **request, costs={"tokens": 50}, ttl_ms=60000).json()
        expect(half["allowed"], True)
        expect(gauges(s)["budget/tokens"], 1)
        expect(post(s, "settle", hold=half["hold"], costs={"tokens": 10}).json(), {"settled": 1})
        expect("budget/tokens" in gauges(s), False)
        expect(s.check(**request, costs={"tokens": 90}).json()["allowed"], True, "a plain check takes all of it")
        refused = wire.ask("WEIR.RESERVE", "event", "budget", "key", "b", "cost:tokens", "51", "ttl", "1000")
        expect((refused[0], refused[6]), (0, -1))


def test_hold_max_without_the_store():
    """What passes while the store is away is owed to it. A reservation that is too large never passes."""
    rules = "".join(f"""
  - {{ id: {name}, match: {{ event: {name} }}, by: key, hold_max: 50%, on_store_failure: {name},
       limits: [ {{ name: f, algorithm: fixed_window, max: 100, per: 24h }} ] }}""" for name in ("allow", "local"))
    with Store() as store, Service("--counters", store.address, rules="rules:" + rules) as s:
        def too_much(event):
            answer = post(s, "reserve", event=event, key="a", cost=51, ttl_ms=60000).json()
            return answer["allowed"], answer["limit"], answer["retry_after_ms"]

        until(lambda: s.steer("GET", "/v1/status").json()["store"]["up"], "the store is up")
        for event in ("allow", "local"):
            expect(too_much(event), (False, "f", -1), event)
        store.kill()
        until(lambda: not s.steer("GET", "/v1/status").json()["store"]["up"], "the store is down")
        for event in ("allow", "local"):
            expect(too_much(event), (False, "f", -1), f"{event}, without the store")
        store.start()
        until(lambda: s.steer("GET", "/v1/status").json()["store"]["up"], "the store is back")
        for event in ("allow", "local"):
            expect(s.check(event=event, key="a", cost=100).json()["allowed"], True, f"{event}: nothing is owed")


# ---- the command ----


def test_commands(folder):
    rules, cells = os.path.join(folder, "rules.yaml"), os.path.join(folder, "cells")
    with open(rules, "w", encoding="utf-8") as out:
        out.write(RULES)
    words = ("--rules", rules, "--cells", cells, "--event", "run", "--key", "a")
    held = json.loads(weir("check", *words).stdout)
    expect("hold" in held or held["allowed"], True, held)
    said = weir("explain", *words).stdout.decode()
    expect("2 concurrent (ttl 1h)" in said and "1 of 2 in flight" in said, True, said)
    lines = [{"t": 1700000000000 + i, "event": "run", "key": "k"} for i in range(5)]
    lines.append({"t": 1700000000009, "event": "none", "key": "k"})
    path = os.path.join(folder, "input")
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)
    summary = weir("simulate", "--rules", rules, path).stdout.decode()
    expect("Limits with `concurrent` were not simulated" in summary, True, summary)
    found = [json.loads(line)["allowed"] for line in weir("simulate", "--rules", rules, "--verdicts", path).stdout.splitlines()]
    expect(found, [True] * 5 + [False], "a log does not say when requests end: slots are free at once")
