"""Rules for services whose store is away, and what is to hold then."""

import contextlib

from support import expect, until
from support.crowd import Node, ask, charged, total

HOSTS = 3
# A machine that stands still for longer makes an outage of its own, and outages are counted.
DEADLINE_S = 2
# Far more than scheduling takes on a busy machine, and far less than the store is away.
SLACK_S = 2
FLAGS = ("--hosts", HOSTS, "--store-deadline", f"{DEADLINE_S}s")
REST_S = 0.02
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


def nothing_owed(crowd, nodes):
    """Until no debt exists, and none can arise while the store answers. A service says that the store is up as soon as one of its
    connections is; until the others are, their requests may be let through in its place, and owed.

    If none was let through while all clients took three turns, then: after the first, no call is on its way that took a debt
    along before, and each client has a connection that decides in the store; after the second, a call has taken along all that
    was left; after the third it is answered."""

    def found():
        before = decided_here(nodes)
        for _ in range(3):
            crowd.takes_turns()
        return decided_here(nodes) == before

    until(found, "nothing is owed")


def decided_here(nodes):
    """Decisions that were made without the store."""
    return sum(total(nodes, why) for why in ("unsent", "late", "failed"))


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
        expect(found(), True, "it stays so")
    except AssertionError as why:
        count = charged(store, subject, field(subject))
        raise AssertionError(f"{subject}: {passed} have passed, {count} are charged, {lost} were lost") from why


def decided_without(nodes, key):
    """What rules say is done: max / hosts on each host, everything, nothing."""
    for node in nodes:
        expect([ask(node, ("small", key))[0] for _ in range(12)], ["allowed"] * (SMALL // HOSTS) + ["refused"] * 2)
        expect([ask(node, ("allow", key))[0] for _ in range(12)], ["allowed"] * 12)
        expect([ask(node, ("deny", key))[0] for _ in range(3)], ["denied"] * 3)
