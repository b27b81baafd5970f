"""Services that find their store through a sentinel, with a crowd of clients, while its master dies or is cut off."""

import contextlib
import os

import pytest

from support import expect, until
from support.crowd import Crowd, Node, agree, charged, spend, total
from support.store import Store
from support.wire import Wire

MAX = 2000
REST_S = 0.02
AT_ONCE = ("--repl-diskless-sync-delay", 0)
CALM_MS = 600000  # so long it lets a master be silent, if nothing else was said
RULES = f"""
rules:
  - {{ id: some, match: {{ event: some }}, by: [key], on_store_failure: deny,
      limits: [ {{ name: n, algorithm: fixed_window, max: {MAX}, per: 365d }} ] }}
  - {{ id: lent, match: {{ event: lent }}, by: [key], on_store_failure: deny, lease: {{ slice: 5%, ttl: 10m }},
      limits: [ {{ name: n, algorithm: fixed_window, max: {MAX}, per: 365d }} ] }}
"""
# It does nothing until it is told to look more often.
CONFIG = """
bind 127.0.0.1
port {port}
dir {dir}
sentinel monitor fleet 127.0.0.1 {master} 1
sentinel down-after-milliseconds fleet {calm}
sentinel failover-timeout fleet 1000
"""


class Sentinel(Store):
    """It watches over one master."""

    def __init__(self, master):
        super().__init__()
        self.master = master

    def command(self):
        config = os.path.join(self.folder.name, "sentinel.conf")
        with open(config, "w", encoding="ascii") as out:
            out.write(CONFIG.format(port=self.port, dir=self.folder.name, master=self.master.port, calm=CALM_MS))
        return ["redis-server", config, "--sentinel"]

    @property
    def address(self):
        return f"redis+sentinel://127.0.0.1:{self.port}/fleet"

    def watch(self, milliseconds):
        expect(self.ask("SENTINEL", "SET", "fleet", "down-after-milliseconds", milliseconds), "OK")

    def knows(self, replica):
        found = self.ask("SENTINEL", "REPLICAS", "fleet")
        fields = [dict(zip(one[::2], one[1::2])) for one in found]
        return any(one["port"] == str(replica.port) and one["master-link-status"] == "ok" for one in fields)


def followed(master):
    """Its replica gets what is written. (Of the first write a master that has only now got one may say so too early.)"""
    with Wire(master) as wire:
        for _ in range(2):
            until(lambda: wire.ask("SET", "test", 1) == "OK" and wire.ask("WAIT", 1, 100) == 1, "the replica follows")


def fail_over(nodes, sentinel, master, replica, key, go_away):
    """Never more than max and what the replica had not got when its master went away."""
    exact, leased = ("some", key), ("lent", key)
    until(lambda: sentinel.knows(replica), "there is a replica")
    lost = total(nodes, "lost")
    with Crowd(nodes, [exact, leased], rest_s=REST_S) as crowd:
        until(lambda: all(crowd.allowed(subject) > MAX // 4 for subject in (exact, leased)), "some have passed")
        go_away(master)
        until(lambda: not any(node.is_up() for node in nodes), "it is noticed")
        crowd.takes_turns()  # an answer from before counts when its client has noted it
        before, lent = crowd.allowed(exact), total(nodes, "lease_tokens_lent")
        kept, kept_lent = (charged(replica, subject, "n.f") for subject in (exact, leased))
        sentinel.watch(300)
        until(lambda: all(node.is_up() for node in nodes), "the new master is found")
        sentinel.watch(CALM_MS)
    passed = crowd.allowed(exact) + sum(spend(node, exact) for node in nodes)
    lost = total(nodes, "lost") - lost
    said = f"{before} and {passed - before} have passed, the replica had {kept}, {lost} were lost"
    expect(before - kept <= passed - MAX + lost and passed - MAX <= before - kept, True, said)
    expect(charged(replica, exact, "n.f"), MAX)
    passed = crowd.allowed(leased) + sum(spend(node, leased) for node in nodes)
    expect(passed - MAX <= lent - kept_lent, True, f"{passed} have passed, {lent} were lent, the replica had {kept_lent}")
    for node in nodes:
        expect(f":{replica.port}" in node.status()["address"], True, node.status()["address"])


@pytest.fixture(scope="module")
def first():
    with Store(*AT_ONCE) as running:
        yield running


@pytest.fixture(scope="module")
def second(first):
    with Store(*AT_ONCE, "--replicaof", "127.0.0.1", first.port) as running:
        followed(first)
        yield running


@pytest.fixture(scope="module")
def sentinel(first, second):
    with Sentinel(first) as running:
        yield running


@pytest.fixture(scope="module")
def nodes(sentinel):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Node(sentinel, RULES, "--hosts", 2, "--store-deadline", "2s")) for _ in range(2)]


@pytest.fixture(scope="module")
def failed_over(nodes, sentinel, first, second):
    """The first master was killed."""
    fail_over(nodes, sentinel, first, second, "killed", Store.kill)


def test_killed(nodes, failed_over):
    for node in nodes:
        agree(node, up=2, down=1, replaced=1)


def test_stopped(nodes, sentinel, first, second, failed_over):
    """The old master comes back as a replica, and then the new one stops. When it goes on it takes itself for the master, and
    nobody asks it any more."""
    first.start()
    first.ask("REPLICAOF", "127.0.0.1", second.port)
    followed(second)
    # As it is it would see that only ten seconds later.
    sentinel.master = second
    sentinel.restart()
    fail_over(nodes, sentinel, second, first, "stopped", Store.pause)
    second.go_on()
    for node in nodes:
        expect(spend(node, ("some", "later"), 50), 50)
    expect(charged(first, ("some", "later"), "n.f"), 50 * len(nodes))
    for node in nodes:
        agree(node, up=3, down=2, replaced=2)


def test_all_end_well(nodes):
    for node in nodes:
        node.stop()
