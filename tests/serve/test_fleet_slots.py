"""Limits with `concurrent` that three services count in one store: what is in flight on all of them together."""

import contextlib
import json
import signal
import threading

import pytest

from support import expect, until
from support.service import Service
from support.store import Store
from support.wire import Wire, words

HOSTS = 3
JSON = {"Content-Type": "application/json"}
RULES = """
rules:
  - id: jobs
    match: { event: job }
    by: [key]
    limits:
      - { name: running, concurrent: 10, ttl: 60s }
      - { name: hour, algorithm: fixed_window, max: 100000, per: 1h }
  - { id: brief, match: { event: brief }, by: [key], limits: [ { name: running, concurrent: 2, ttl: 1s } ] }
"""
HOLD = 10  # where the hold is in a reply


def status(host):
    return host.steer("GET", "/v1/status").json()["store"]


@pytest.fixture(scope="module", name="hosts")
def fleet():
    with Store() as store, contextlib.ExitStack() as stack:
        flags = ("--counters", store.address, "--store-deadline", "5s")
        hosts = [stack.enter_context(Service(*flags, rules=RULES)) for _ in range(HOSTS)]
        until(lambda: all(status(host)["up"] for host in hosts), "the store is reached")
        yield hosts


def take(wire, event, key):
    return wire.ask("WEIR.CHECK", "event", event, "key", key, "reply", "receipt")


def test_never_more_than_there_are_slots(hosts):
    lock, replies = threading.Lock(), []

    def ask(host):
        with Wire(host) as wire:
            wire.send(words("WEIR.CHECK", "event", "job", "key", "crowd", "reply", "receipt") * 40)
            mine = [wire.reply() for _ in range(40)]
        with lock:
            replies.extend(mine)

    threads = [threading.Thread(target=ask, args=(host,)) for host in hosts for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    holds = [reply[HOLD] for reply in replies if reply[0]]
    expect((len(replies), len(holds)), (960, 10))
    with Wire(hosts[0]) as wire, Wire(hosts[1]) as there:
        for hold in holds[:4] * 2:  # twice is once
            there.ask("WEIR.SETTLE", hold, "cost", "1")
        until(lambda: wire.ask("WEIR.PEEK", "event", "job", "key", "crowd")[4] == 4, "four are free")
        expect([take(wire, "job", "crowd")[0] for _ in range(5)], [1, 1, 1, 1, 0])


def test_a_slot_is_free_after_its_time_to_live(hosts):
    with Wire(hosts[0]) as wire, Wire(hosts[1]) as there:
        expect([take(wire, "brief", "u")[0] for _ in range(3)], [1, 1, 0])
        until(lambda: take(there, "brief", "u")[0] == 1, "one is free")
        hold = []
        until(lambda: (hold.append(take(wire, "brief", "v")), hold[-1][0])[1], "a slot")
        expect(there.ask("WEIR.RENEW", hold[-1][HOLD], "ttl", "600000"), 1)
        until(lambda: wire.ask("WEIR.PEEK", "event", "brief", "key", "v")[4] == 1, "it lasts")


def test_over_http(hosts):
    def post(host, path, document):
        return host.ask(host.http, "POST", path, json.dumps(document), JSON).json()

    verdict = post(hosts[0], "/v1/check", {"event": "job", "key": "web"})
    expect((verdict["allowed"], verdict["remaining"]), (True, 9))
    expect(post(hosts[2], "/v1/settle", {"hold": verdict["hold"]}), {"settled": 2})
    with Wire(hosts[1]) as wire:
        until(lambda: wire.ask("WEIR.PEEK", "event", "job", "key", "web")[4] == 10, "it is free")


def test_slots_are_never_owed():
    """Without the store each host has its share of the slots; they are free when they are released, and not charged later."""
    with Store() as store, contextlib.ExitStack() as stack:
        flags = ("--counters", store.address, "--store-deadline", "5s")
        host, _ = (stack.enter_context(Service(*flags, rules=RULES)) for _ in range(2))
        until(lambda: status(host)["up"] and status(host)["hosts"] == 2, "they have counted each other")
        with Wire(host) as wire:
            store.kill()
            until(lambda: not status(host)["up"], "the store is missed")
            for _ in range(2):
                replies = [take(wire, "job", "u") for _ in range(7)]
                expect([reply[0] for reply in replies], [1] * 5 + [0] * 2)
                expect([wire.ask("WEIR.SETTLE", reply[HOLD], "cost", "1") for reply in replies[:5]], [1] * 5)
            expect([take(wire, "job", "u")[0] for _ in range(5)], [1] * 5)
            store.start()
            until(lambda: take(wire, "job", "u")[0] == 1, "it is back: this host's share is in use")
            expect([take(wire, "job", "u")[0] for _ in range(10)], [1] * 9 + [0])


def test_hosts_of_a_store_that_lost_its_data():
    """A host that finds itself alone in it does not take the slots of the others in the next outage."""
    with Store() as store, contextlib.ExitStack() as stack:
        flags = ("--counters", store.address, "--store-deadline", "5s")
        host, other = (stack.enter_context(Service(*flags, rules=RULES)) for _ in range(2))
        until(lambda: status(host)["up"] and status(host)["hosts"] == 2, "they have counted each other")
        other.process.send_signal(signal.SIGSTOP)
        try:
            store.ask("FLUSHALL")
            until(lambda: status(host)["emptied"] == 1, "the loss is noticed")
            until(lambda: store.ask("ZCARD", "weir:1:hosts") == 1, "it is alone there")
            store.kill()
            until(lambda: not status(host)["up"], "the store is missed")
            expect(status(host)["hosts"], 2)
            with Wire(host) as wire:
                expect([take(wire, "job", "u")[0] for _ in range(7)], [1] * 5 + [0] * 2)
        finally:
            other.process.send_signal(signal.SIGCONT)
