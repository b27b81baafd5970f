"""Holds that three services take of one store: what all together hold, settling on another host, and hosts that are killed."""

import contextlib
import json
import threading
import time

import pytest

from support import expect, until
from support.service import Service
from support.store import Store
from support.wire import Error, Gone, Wire, words

HOSTS = 3
BUDGET = 100
JSON = {"Content-Type": "application/json"}
RULES = f"""
rules:
  - {{ id: bucket, match: {{ event: bucket }}, by: [key], on_store_failure: deny,
      limits: [ {{ name: n, algorithm: token_bucket, max: {BUDGET}, per: 365d }} ] }}
  - {{ id: window, match: {{ event: window }}, by: [key], on_store_failure: deny,
      limits: [ {{ name: n, algorithm: fixed_window, max: {BUDGET}, per: 365d }} ] }}
  - {{ id: sliding, match: {{ event: sliding }}, by: [key], on_store_failure: deny,
      limits: [ {{ name: n, algorithm: sliding_window, max: {BUDGET}, per: 365d }} ] }}
  - id: year
    match: {{ event: year }}
    by: [key]
    on_store_failure: deny
    limits:
      - {{ name: requests, calendar: year, max: {10 * BUDGET} }}
      - {{ name: tokens, calendar: year, max: {BUDGET}, unit: tokens }}
  - {{ id: lent, match: {{ event: lent }}, by: [key], on_store_failure: deny, lease: {{ slice: 10%, ttl: 300ms }},
      limits: [ {{ name: n, algorithm: fixed_window, max: {BUDGET}, per: 365d }} ] }}
"""
HOLD = 10  # where the hold is in a reply


@pytest.fixture(scope="module")
def store():
    with Store() as running:
        yield running


@pytest.fixture(scope="module", name="hosts")
def fleet(store):
    with contextlib.ExitStack() as stack:
        flags = ("--counters", store.address, "--store-deadline", "5s", "--threads", "2")
        hosts = [stack.enter_context(Service(*flags, rules=RULES)) for _ in range(HOSTS)]
        until(lambda: all(status(host)["up"] and status(host)["hosts"] == HOSTS for host in hosts), "they have counted each other")
        yield hosts


def status(host):
    return host.steer("GET", "/v1/status").json()["store"]


def reserve(wire, event, key, cost, ttl_ms, *more):
    return wire.ask("WEIR.RESERVE", "event", event, "key", key, "cost", str(cost), "ttl", str(ttl_ms), *more)


def left(wire, event, key):
    return wire.ask("WEIR.PEEK", "event", event, "key", key)[4]


def all_at_once(works):
    """Runs them in threads; what fails in one fails the test."""
    problems = []

    def run(work):
        try:
            work()
        except BaseException as problem:  # pylint: disable=broad-except
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


# ---- what is held ----


@pytest.mark.parametrize("event", ["bucket", "window", "sliding"])
def test_a_thousand_reservations_of_a_hundred(hosts, event):
    """Exactly the budget passes, and what is given back passes once more: never more is held than there is."""
    lock = threading.Lock()
    passed, holds = [], []

    def ask(host, count):
        with Wire(host) as wire:
            wire.send(words("WEIR.RESERVE", "event", event, "key", "crowd", "ttl", "600000") * count)
            replies = [wire.reply() for _ in range(count)]
        with lock:
            passed.extend(reply[0] for reply in replies)
            holds.extend(reply[HOLD] for reply in replies if reply[0])

    all_at_once([lambda host=host: ask(host, 34) for host in hosts for _ in range(10)])
    expect((len(passed), sum(passed), len(holds)), (1020, BUDGET, BUDGET))

    # Half of them are given back on a host that did not take them, all twice.
    half = holds[: BUDGET // 2]

    def give_back(host):
        with Wire(host) as wire:
            for hold in half:
                expect(wire.ask("WEIR.SETTLE", hold, "cost", "0") in (0, 1), True)

    all_at_once([lambda host=host: give_back(host) for host in hosts])
    passed.clear()
    with Wire(hosts[0]) as wire:
        back = BUDGET // 2 - (event == "bucket")  # parts of a token may be left of it
        until(lambda: left(wire, event, "crowd") >= back, "half is free")
    all_at_once([lambda host=host: ask(host, 34) for host in hosts for _ in range(3)])
    expect(sum(passed) in (back, BUDGET // 2), True, f"{sum(passed)}")


def test_holds_end_by_themselves(hosts):
    with Wire(hosts[0]) as wire, Wire(hosts[1]) as there:
        expect(reserve(wire, "window", "ends", BUDGET, 300)[0], 1)
        expect(there.ask("WEIR.CHECK", "event", "window", "key", "ends")[0], 0)
        until(lambda: there.ask("WEIR.CHECK", "event", "window", "key", "ends", "cost", str(BUDGET))[0] == 1, "it is over")
        expect(reserve(wire, "window", "stays", BUDGET, 300, "on_expiry", "keep")[0], 1)
        time.sleep(0.5)
        expect(there.ask("WEIR.CHECK", "event", "window", "key", "stays")[0], 0)


# ---- settling ----


def test_settled_on_another_host_once(hosts):
    with contextlib.ExitStack() as stack:
        first, second, third = (stack.enter_context(Wire(host)) for host in hosts)
        hold = reserve(first, "window", "moves", 60, 600000)[HOLD]
        expect(left(third, "window", "moves"), 40)
        expect(second.ask("WEIR.SETTLE", hold, "cost", "25"), 1)
        until(lambda: left(third, "window", "moves") == 75, "35 were given back")
        for wire in (third, first, second):
            wire.ask("WEIR.SETTLE", hold, "cost", "3")
        hold = reserve(second, "window", "moves", 5, 600000)[HOLD]
        expect(first.ask("WEIR.SETTLE", hold, "cost", "80"), 1)
        until(lambda: left(third, "window", "moves") == 0, "more was charged than there is room for")
        expect(third.ask("WEIR.CHECK", "event", "window", "key", "moves", "cost", "0")[0], 0)


def test_by_unit_over_http(hosts):
    def post(host, path, document):
        answer = host.ask(host.http, "POST", path, json.dumps(document), JSON)
        return answer.status, answer.json()

    request = {"event": "year", "key": "llm", "costs": {"requests": 1, "tokens": 90}, "ttl_ms": 600000}
    code, verdict = post(hosts[0], "/v1/reserve", request)
    expect((code, verdict["allowed"]), (200, True))
    expect(post(hosts[1], "/v1/reserve", request)[0], 429)
    expect(post(hosts[1], "/v1/settle", {"hold": verdict["hold"], "costs": {"tokens": 20}})[1], {"settled": 2})
    look = {"event": "year", "key": "llm", "costs": {"requests": 1, "tokens": 80}, "peek": True}
    until(lambda: post(hosts[2], "/v1/check", look)[1]["allowed"], "70 tokens were given back")
    expect(post(hosts[2], "/v1/check", {"event": "year", "key": "llm", "costs": {"tokens": 81}})[0], 429)


def test_renewed_on_another_host(hosts):
    with Wire(hosts[0]) as wire, Wire(hosts[1]) as there:
        hold = reserve(wire, "sliding", "renewed", BUDGET, 1500)[HOLD]
        expect(there.ask("WEIR.RENEW", hold, "ttl", "600000"), 1)
        time.sleep(2)
        expect(wire.ask("WEIR.CHECK", "event", "sliding", "key", "renewed")[0], 0)
        expect(wire.ask("WEIR.SETTLE", hold, "cost", "0"), 1)
        until(lambda: left(there, "sliding", "renewed") == BUDGET, "it is free")


# ---- leased rules ----


def passes(wire, key, cost):
    return wire.ask("WEIR.CHECK", "event", "lent", "key", key, "cost", str(cost))[0] == 1


def spent(wires, key):
    """Nothing is left on any host, also when idle slices were given back."""
    time.sleep(1)
    for wire in wires:
        expect(passes(wire, key, 1), False)


def test_leased_holds_end_by_themselves(hosts):
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(host)) for host in hosts]
        expect(reserve(wires[0], "lent", "ends", BUDGET, 500)[0], 1)
        until(lambda: passes(wires[1], "ends", BUDGET), "it is over, and another host has the budget")
        spent(wires, "ends")
        expect(reserve(wires[0], "lent", "stays", BUDGET, 1, "on_expiry", "keep")[0], 1)
        spent(wires, "stays")


def test_leased_holds_are_settled_on_any_host(hosts):
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(host)) for host in hosts]
        first, second, third = wires
        # before its end, and then again everywhere
        hold = reserve(first, "lent", "before", 60, 600000)[HOLD]
        expect(passes(second, "before", 41), False)
        expect(second.ask("WEIR.SETTLE", hold, "cost", "10"), 1)
        until(lambda: passes(third, "before", 80), "50 were given back")
        for wire in wires:
            wire.ask("WEIR.SETTLE", hold, "cost", "0")
            wire.ask("WEIR.RENEW", hold, "ttl", "1")
        until(lambda: passes(second, "before", 10), "the rest")
        spent(wires, "before")
        # after its end, when others have what it had
        hold = reserve(first, "lent", "after", BUDGET, 300)[HOLD]
        until(lambda: passes(second, "after", 40), "it is over")
        expect(third.ask("WEIR.SETTLE", hold, "cost", "50"), 1)
        time.sleep(0.5)
        for wire in wires:
            wire.ask("WEIR.SETTLE", hold, "cost", "0")
        until(lambda: passes(second, "after", 10), "50 were charged, and 10 are left")
        spent(wires, "after")


def test_leased_holds_are_renewed_on_any_host(hosts):
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(host)) for host in hosts]
        hold = reserve(wires[0], "lent", "renewed", BUDGET, 1500)[HOLD]
        expect(wires[1].ask("WEIR.RENEW", hold, "ttl", "600000"), 1)
        time.sleep(2)
        spent(wires, "renewed")
        expect(wires[2].ask("WEIR.RENEW", hold, "ttl", "100"), 1)
        until(lambda: passes(wires[0], "renewed", BUDGET), "it is over")
        spent(wires, "renewed")


def test_a_thousand_leased_reservations(hosts):
    """They end all the time: at no moment more than the budget is held."""
    ttl = 1.0
    lock = threading.Lock()
    held = []

    def ask(host):
        with Wire(host) as wire:
            for _ in range(100):
                before = time.monotonic()
                reply = reserve(wire, "lent", "crowd", 1, int(ttl * 1000))
                after = time.monotonic()
                with lock:
                    held.extend([(before, after)] if reply[0] else [])

    all_at_once([lambda host=host: ask(host) for host in hosts for _ in range(4)])
    expect(len(held) >= BUDGET // 2, True, f"{len(held)} passed")
    # Half a time to live after `start`, those that were asked for and answered since then are held for sure.
    for start, _ in held:
        expect(sum(start <= before and after <= start + ttl / 2 for before, after in held) <= BUDGET, True)
    with Wire(hosts[0]) as wire:
        until(lambda: passes(wire, "crowd", BUDGET), "all of it is free")


def test_a_killed_host_leaks_no_leased_hold(store, hosts):
    """The store ends what it held; a reservation that it had not told the store of may stay a charge."""
    flags = ("--counters", store.address, "--store-deadline", "5s")
    with Service(*flags, rules=RULES) as victim, Wire(hosts[0]) as wire:
        until(lambda: status(victim)["up"], "the store is reached")
        with Wire(victim) as there:
            replies = [reserve(there, "lent", "dies", 10, 2000) for _ in range(5)]
        expect([reply[0] for reply in replies], [1] * 5)
        until(lambda: store.ask("ZCARD", "weir:1:{dies}:lent:key:h") == 5, "the store knows of them")
        victim.kill()
        # Tokens of its slice are lost with it: at most one slice.
        until(lambda: passes(wire, "dies", 9 * BUDGET // 10), "they are over")
        expect(wire.ask("WEIR.SETTLE", replies[0][HOLD], "cost", "0"), 1)
        time.sleep(1)
        expect(sum(passes(wire, "dies", 1) for _ in range(BUDGET)) <= BUDGET // 10, True)


def test_a_receipt_of_another_store_is_void(hosts):
    with Store() as other, Service("--counters", other.address, "--store-deadline", "5s", rules=RULES) as alone:
        until(lambda: status(alone)["up"], "the store is reached")
        with Wire(alone) as wire, Wire(hosts[0]) as there:
            hold = reserve(wire, "window", "void", 60, 600000)[HOLD]
            expect(there.ask("WEIR.SETTLE", hold, "cost", "0"), 0)
            changed = hold[:-1] + ("0" if hold[-1] != "0" else "1")
            expect(there.ask("WEIR.SETTLE", changed, "cost", "0"), 0)
            # A store that has lost its data voids what it gave.
            expect(other.ask("FLUSHALL"), "OK")
            until(lambda: status(alone)["emptied"] == 1, "that is noticed")
            expect(reserve(wire, "window", "void", 60, 600000)[0], 1)
            expect(wire.ask("WEIR.SETTLE", hold, "cost", "0"), 0)
            expect(left(wire, "window", "void"), 40)


# ---- outages ----


def test_without_the_store_nothing_is_settled_yet():
    with Store(persistent=True) as store, Service("--counters", store.address, rules=RULES) as host, Wire(host) as wire:
        until(lambda: status(host)["up"], "the store is reached")
        # 20 ms may be too short for a busy machine.
        holds = []
        until(lambda: holds.append(reserve(wire, "window", "waits", 60, 600000)) or holds[-1][0], "it is reserved")
        store.kill()
        until(lambda: not status(host)["up"], "the store is missed")
        expect(wire.ask("WEIR.SETTLE", holds[-1][HOLD], "cost", "10"), 0)
        expect(wire.ask("WEIR.RENEW", holds[-1][HOLD], "ttl", "600000"), 0)
        store.start()
        until(lambda: status(host)["up"], "it is back")
        expect(wire.ask("WEIR.SETTLE", holds[-1][HOLD], "cost", "10"), 1)
        until(lambda: left(wire, "window", "waits") == 90, "the receipt was good")


def test_leased_holds_and_a_store_that_is_killed():
    """A hold that the store did not learn of stays a charge, and can be settled when the store is back."""
    with Store(persistent=True) as store, Service("--counters", store.address, rules=RULES) as host, Wire(host) as wire:
        until(lambda: status(host)["up"], "the store is reached")
        until(lambda: passes(wire, "waits", 40), "it is charged")
        holds = []
        until(lambda: holds.append(reserve(wire, "lent", "waits", 30, 600)) or holds[-1][0], "it is reserved")
        until(lambda: store.ask("ZCARD", "weir:1:{waits}:lent:key:h") == 1, "the store knows of it")
        # Some of the slice is left to this host.
        until(lambda: passes(wire, "waits", 1), "a slice is there")
        store.kill()
        until(lambda: not status(host)["up"], "the store is missed")
        lost = reserve(wire, "lent", "waits", 1, 1)
        expect(wire.ask("WEIR.SETTLE", holds[-1][HOLD], "cost", "10"), 0)
        store.start()
        until(lambda: status(host)["up"], "it is back")
        # 30 are over: what is settled now is charged.
        until(lambda: passes(wire, "waits", 55), "they are free")
        expect(wire.ask("WEIR.SETTLE", holds[-1][HOLD], "cost", "100"), 1)
        if lost[0]:
            expect(wire.ask("WEIR.SETTLE", lost[HOLD], "cost", "1"), 1)
        spent([wire], "waits")


def test_a_killed_host_leaks_nothing(store, hosts):
    """It dies in the middle of reservations: after their time to live everything is free."""
    flags = ("--counters", store.address, "--store-deadline", "5s")
    with Service(*flags, rules=RULES) as victim, Wire(hosts[0]) as wire:
        until(lambda: status(victim)["up"], "the store is reached")

        def ask():
            with contextlib.suppress(Gone, OSError), Wire(victim) as there:
                for _ in range(1000):
                    there.send(words("WEIR.RESERVE", "event", "window", "key", "dies", "ttl", "1000") * 5)
                    for _ in range(5):
                        reply = there.reply()
                        expect(isinstance(reply, Error), False, reply)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: left(wire, "window", "dies") < BUDGET // 2, "it reserves")
        victim.kill()
        for thread in threads:
            thread.join()
        until(lambda: reserve(wire, "window", "dies", BUDGET, 600000)[0] == 1, "all of it is free")
        expect(wire.ask("WEIR.CHECK", "event", "window", "key", "dies")[0], 0)


def test_units_that_were_not_named(hosts):
    """They are charged when they are settled, on any host, once."""
    with Wire(hosts[0]) as wire, Wire(hosts[1]) as there:
        hold = reserve(wire, "year", "unnamed", 1, 60000)[HOLD]
        for _ in range(2):
            there.ask("WEIR.SETTLE", hold, "cost", "1", "cost:tokens", "60")
        peek = ("WEIR.PEEK", "event", "year", "key", "unnamed", "cost:tokens")
        until(lambda: wire.ask(*peek, "41")[0] == 0, "they are charged")
        expect((wire.ask(*peek, "40")[0], wire.ask(*peek, "0", "cost", str(10 * BUDGET - 1))[0]), (1, 1))
        expect(wire.ask(*peek, "0", "cost", str(10 * BUDGET))[0], 0)
