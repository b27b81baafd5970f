"""Three services on one store, with a crowd of clients, while the store stops or dies: who is let through meanwhile, how long
it takes, and what the counts are afterwards."""

import time

from support import SANITIZED, expect, until
from support.crowd import Crowd, agree, ask, charged, spend, total
from support.outage import DEADLINE_S, HOSTS, REST_S, SLACK_S, SMALL
from support.outage import all_down, all_up, decided_without, field, fleet, more, settled, subjects_of
from support.service import Service
from support.store import PATIENT, Store

STOP_S = 5
HELD_S = 0.2  # what is held is looked up several times meanwhile
GROWTH_KB = 8 << 10
LEASED = ("lent", "owed")


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


def test_stopped():
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
            agree(node, up=2, down=1)
            expect((status["late"] > 0, status["refunded"] > 0, status["reconciled_tokens"] > 0), (True,) * 3, f"{status}")
            expect((status["lost"], status["replaced"], status["emptied"]), (0, 0, 0))


# ---- the store dies ----


def test_emptied():
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
            agree(node, up=2, down=1, replaced=1, emptied=1)
        expect(ask(nodes[0], subject)[0], "allowed", "it begins anew")


def test_kept():
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
            agree(node, up=3, down=2, replaced=2)


def test_headers_do_not_guess():
    """While the store is down, headers do not show counts that only the store knows: a refused client must not see room there."""
    rules = """
rules:
  - { id: one, by: key, on_store_failure: deny, limits: [ { name: a, max: 2, per: 1h }, { name: b, max: 2, per: 2h } ] }
  - { id: two, by: key, on_store_failure: deny, limits: [ { name: a, max: 2, per: 1h } ] }
"""
    with Store() as store, Service("--counters", store.address, *PATIENT, rules=rules) as s:
        expect(s.check(key="k", reject=True).status, 200)
        store.kill()
        refused = s.check(key="k", reject=True)
        expect((refused.status, refused.headers["RateLimit"]), (503, '"one/a";r=0;t=1'))
        expect(refused.headers["RateLimit-Policy"].count("q=2"), 3, "the policies stay")
