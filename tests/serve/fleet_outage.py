#!/usr/bin/python3
"""Three services on one store, with a crowd of clients, while the store stops, dies, or cannot be reached: who is let through
meanwhile, how long it takes, and what the counts are afterwards.

tests/serve/fleet_outage.py BUILD/weir
"""

import contextlib
import os
import time

from crowd import Crowd, Node, agree, ask, charged, spend, total
from harness import main
from proxy import Proxy
from service import SANITIZED, expect, until
from store import Store

HOSTS = 3
LONGER = int(os.environ.get("TEST_LONGER", "1"))
STOP_S = 5
DEADLINE_S = 0.5
# Far more than scheduling takes on a busy machine, and far less than the store is away.
SLACK_S = 2
FLAGS = ("--hosts", HOSTS, "--store-deadline", "500ms")
REST_S = 0.02
HELD_S = 0.2  # what is held is looked up several times meanwhile
GROWTH_KB = 8 << 10
LARGE, SMALL = 1000000, 30
RULES = f"""
rules:
  - {{ id: local, match: {{ event: local }}, by: [key], limits: [ {{ name: n, algorithm: fixed_window, max: {LARGE}, per: 365d }} ] }}
  - {{ id: small, match: {{ event: small }}, by: [key], limits: [ {{ name: n, algorithm: fixed_window, max: {SMALL}, per: 365d }} ] }}
  - {{ id: allow, match: {{ event: allow }}, by: [key], on_store_failure: allow, limits: [ {{ name: n, calendar: year, max: {LARGE} }} ] }}
  - {{ id: deny, match: {{ event: deny }}, by: [key], on_store_failure: deny,
      limits: [ {{ name: n, algorithm: fixed_window, max: {LARGE}, per: 365d }} ] }}
  - {{ id: some, match: {{ event: some }}, by: [key], on_store_failure: deny,
      limits: [ {{ name: n, algorithm: fixed_window, max: 2000, per: 365d }} ] }}
  - {{ id: lent, match: {{ event: lent }}, by: [key], on_store_failure: deny, lease: {{ slice: 5%, ttl: 10m }},
      limits: [ {{ name: n, algorithm: fixed_window, max: 20000, per: 365d }} ] }}
  - {{ id: owed, match: {{ event: owed }}, by: [key], lease: {{ slice: 0.01%, ttl: 10m }},
      limits: [ {{ name: n, calendar: year, max: {LARGE} }} ] }}
"""
FIELDS = {"allow": "n.c", "owed": "n.c"}
LEASED = ("lent", "owed")


def field(subject):
    return FIELDS.get(subject[0], "n.f")


def subjects_of(key, *events):
    return [(event, key) for event in events]


@contextlib.contextmanager
def fleet(*stores):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Node(store, RULES, *FLAGS)) for store in stores]


def all_up(nodes):
    until(lambda: all(node.is_up() for node in nodes), "the store is reached")


def all_down(nodes):
    until(lambda: not any(node.is_up() for node in nodes), "it is noticed")


def more(crowd, subjects, kind="allowed", count=50):
    """Until so many more of each have passed."""
    before = {subject: crowd.count(kind, subject) for subject in subjects}
    until(lambda: all(crowd.count(kind, subject) >= before[subject] + count for subject in subjects), f"more are {kind}")


def settled(store, nodes, subject, passed, lost=0):
    """The store has charged what was let through, once, wherever that was: what a host owes it takes with its next question.
    Of what was lost nobody knows."""

    def found():
        for node in nodes:
            ask(node, subject, "WEIR.PEEK")
        count = charged(store, subject, field(subject))
        return passed <= count <= passed + lost

    try:
        until(found, "")
    except AssertionError as why:
        count = charged(store, subject, field(subject))
        raise AssertionError(f"{subject}: {passed} have passed, {count} are charged, {lost} were lost") from why


def settled_leases(store, nodes, passed, subjects):
    """Charged is what was spent and what is held; nothing was lost. What is owed comes with the next slice."""
    found = ""

    def same():
        nonlocal passed, found
        passed += sum(ask(node, subject)[0] == "allowed" for node in nodes for subject in subjects)
        time.sleep(HELD_S)
        held = total(nodes, "lease_tokens_held")
        count = sum(charged(store, subject, field(subject)) for subject in subjects)
        found = f"{passed} have passed, {held} are held, {count} are charged"
        return count == passed + held

    try:
        until(same, "")
    except AssertionError as why:
        raise AssertionError(found) from why


# ---- the store stops ----


def decided_without(nodes, key):
    """What rules say is done: max / hosts on each host, everything, nothing."""
    for node in nodes:
        expect([ask(node, ("small", key))[0] for _ in range(12)], ["allowed"] * (SMALL // HOSTS) + ["refused"] * 2)
        expect([ask(node, ("allow", key))[0] for _ in range(12)], ["allowed"] * 12)
        expect([ask(node, ("deny", key))[0] for _ in range(3)], ["denied"] * 3)


def stopped():
    """SIGSTOP for 5 s, and everybody goes on asking."""
    subjects = subjects_of("stop", "local", "allow", "deny", *LEASED)
    with Store() as store, fleet(store, store, store) as nodes:
        with Crowd(nodes, subjects, greedy=True, rest_s=REST_S) as crowd:
            more(crowd, subjects)
            store.pause()
            begun = time.monotonic()
            all_down(nodes)
            before = [node.anon_kb() for node in nodes]
            decided_without(nodes, "fresh")
            time.sleep(max(0, begun + STOP_S - time.monotonic()))
            after = [node.anon_kb() for node in nodes]
            store.go_on()
            ended = time.monotonic()
            all_up(nodes)
            more(crowd, subjects)
        expect(crowd.unanswered(), 0)
        median, slowest = crowd.slowest(begun, ended)
        expect(slowest < DEADLINE_S + SLACK_S and median < DEADLINE_S, True, f"median {median:.3f} s, slowest {slowest:.3f} s")
        grown = max(b - a for a, b in zip(before, after))
        expect(SANITIZED or grown < GROWTH_KB, True, f"memory grew by {grown} kB")
        for subject in subjects:
            if subject[0] not in LEASED:
                settled(store, nodes, subject, crowd.allowed(subject))
        leased = subjects_of("stop", *LEASED)
        settled_leases(store, nodes, crowd.allowed(*leased), leased)
        settled(store, nodes, ("small", "fresh"), SMALL)
        settled(store, nodes, ("allow", "fresh"), 12 * HOSTS)
        settled(store, nodes, ("deny", "fresh"), 0)
        expect([ask(node, ("small", "fresh"))[0] for node in nodes], ["refused"] * HOSTS, "max was let through")
        for node in nodes:
            status = node.status()
            expect(agree(node), {"up": 2, "down": 1})
            expect((status["late"] > 0, status["refunded"] > 0, status["reconciled_tokens"] > 0), (True,) * 3, f"{status}")
            expect((status["lost"], status["replaced"], status["emptied"]), (0, 0, 0))


# ---- the store dies ----


def emptied():
    """What it forgot can be let through again. Everybody says so, once."""
    subject = ("some", "k")
    with Store() as store, fleet(store, store, store) as nodes:
        with Crowd(nodes, [subject]) as crowd:
            pass
        before = crowd.allowed() + sum(spend(node, subject) for node in nodes)
        expect(before, 2000)
        with Crowd(nodes, [("deny", "k")], greedy=True, rest_s=REST_S) as crowd:
            more(crowd, [("deny", "k")])
            store.kill()
            all_down(nodes)
            more(crowd, [("deny", "k")], "denied")
            store.start()
            all_up(nodes)
            more(crowd, [("deny", "k")])
            until(lambda: all(node.status()["emptied"] for node in nodes), "that it is empty is noticed")
        for node in nodes:
            expect(agree(node), {"up": 2, "down": 1, "replaced": 1, "emptied": 1})
        expect(ask(nodes[0], subject)[0], "allowed", "it begins anew")


def kept():
    """With appendonly always: all that was answered is still charged."""
    subject = ("some", "k")
    with Store(persistent=True) as store, fleet(store, store, store) as nodes:
        with Crowd(nodes, [subject], rest_s=REST_S) as crowd:
            for number in range(2):
                until(lambda: crowd.allowed() > 400 * (number + 1), "some have passed")
                store.kill()
                all_down(nodes)
                store.start()
                all_up(nodes)
        passed = crowd.allowed() + sum(spend(node, subject) for node in nodes)
        lost = total(nodes, "lost")
        expect(2000 - lost <= passed <= 2000, True, f"{passed} have passed, {lost} were lost")
        expect(charged(store, subject, "n.f"), 2000)
        for node in nodes:
            until(lambda: node.status()["replaced"] == 2, "that it is another is noticed")
            expect(agree(node), {"up": 3, "down": 2, "replaced": 2})


# ---- a node does not reach it ----


def cut_and_mended(store, way, nodes, cut):
    """One node is cut off for a while. Everything arrives in the end, and is counted once."""
    key = cut.__name__
    subjects = subjects_of(key, "local", "deny")
    with Crowd(nodes, subjects, greedy=True, rest_s=REST_S) as crowd:
        more(crowd, subjects)
        begun = time.monotonic()
        cut()
        all_down(nodes[:1])
        decided_without(nodes[:1], key)
        more(crowd, subjects_of(key, "local"))
        expect(nodes[1].is_up(), True, "the other one goes on")
        ended = time.monotonic()
        way.mend()
        all_up(nodes)
        more(crowd, subjects)
    expect(crowd.slowest(begun, ended)[1] < DEADLINE_S + SLACK_S, True, "in time")
    for subject in subjects:
        settled(store, nodes, subject, crowd.allowed(subject))
    settled(store, nodes, ("small", key), SMALL // HOSTS)
    expect(total(nodes, "lost"), 0)


def cut_and_broken(store, way, nodes, cut, arrives):
    """… and the connections break. What was charged stays charged, and nothing is let through twice: too few, never too
    many. `arrives`: the questions did."""
    subjects = subjects_of(cut.__name__ + "-off", "local", "deny")
    lost_before = total(nodes, "lost")
    with Crowd(nodes, subjects, greedy=True, rest_s=REST_S) as crowd:
        more(crowd, subjects)
        cut()
        all_down(nodes[:1])
        way.reset()
        way.mend()
        all_up(nodes)
        more(crowd, subjects)
    lost = total(nodes, "lost") - lost_before
    expect(lost > 0, True, "some were lost")
    for subject in subjects:
        settled(store, nodes, subject, crowd.allowed(subject), lost if arrives else 0)


def cuts():
    """Through a proxy that stops passing what is sent, in either direction, or delays it."""
    with Store() as store, Proxy(store) as way, fleet(way, store) as nodes:

        def no_answers():
            way.answers.clear()

        def no_requests():
            way.requests.clear()

        def silence():
            no_answers()
            no_requests()

        def slow():
            way.delay_s = 2 * DEADLINE_S

        cases = ((no_answers, True), (no_requests, False))
        for cut in (no_answers, no_requests, silence, slow):
            cut_and_mended(store, way, nodes, cut)
        for cut, arrives in cases:
            cut_and_broken(store, way, nodes, cut, arrives)
        expect(agree(nodes[0]), {"up": 7, "down": 6})
        expect(agree(nodes[1]), {"up": 1})


main([(case.__name__, case) for case in (stopped, emptied, kept, cuts)])
