"""Outages that follow each other within one window, with requests in between: what services let through in place of the store
stays counted, however often the store stops, dies and comes back, and across a kill of the services themselves."""

import contextlib

from support import expect
from support.crowd import Crowd, Node, ask, spend, total
from support.outage import all_down, all_up, more, nothing_owed, settled
from support.store import Store

MAX = 20
OUTAGES = 5
FLAGS = ("--store-deadline", "200ms")
PATIENT = ("--store-deadline", "5s")
LIMITS = {
    "bucket": f"algorithm: token_bucket, max: {MAX}, per: 365d",
    "fixed": f"algorithm: fixed_window, max: {MAX}, per: 365d",
    "sliding": f"algorithm: sliding_window, max: {MAX}, per: 365d",
    "calendar": f"calendar: year, max: {MAX}",
}
RULES = "rules:\n"
for name, limit in LIMITS.items():
    RULES += f"  - {{ id: {name}, match: {{ event: {name} }}, by: [key], limits: [ {{ name: n, {limit} }} ] }}\n"
    if name in ("fixed", "calendar"):
        RULES += f"  - {{ id: lent-{name}, match: {{ event: lent-{name} }}, by: [key], lease: true, limits: [ {{ name: n, {limit} }} ] }}\n"
SUBJECTS = [(event, "k") for name in LIMITS for event in (name, f"lent-{name}") if f"id: {event}," in RULES]


def stops(store, nodes):
    store.pause()
    for node in nodes:
        while node.is_up():
            ask(node, ("fixed", "another"))
    yield
    store.go_on()


def dies(store, nodes):
    store.kill()
    all_down(nodes)
    yield
    store.start()


def is_killed_with(store, nodes):
    """The store, and then each service, which begins again on its cells file."""
    store.kill()
    all_down(nodes)
    for node in nodes:
        expect(spend(node, ("fixed", "k"), 1) <= 1, True)
        node.kill()
        node.start()
    yield
    store.start()


def most(hosts):
    """Of the store, and of all hosts in its place."""
    return MAX + hosts * (MAX // hosts)


def with_hosts(hosts, *ways):
    passed = dict.fromkeys(SUBJECTS, 0)
    first = dict.fromkeys(SUBJECTS, 0)
    before = 0  # decided in place of a store that was up, but late: they count among those of the first outage
    with Store(persistent=True) as store, contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(Node(store, RULES, "--hosts", hosts, *FLAGS)) for _ in range(hosts)]
        for number in range(OUTAGES):
            all_up(nodes)
            for node in nodes:
                for subject in SUBJECTS:
                    passed[subject] += sum(ask(node, subject)[0] == "allowed" for _ in range(2))
            before = total(nodes, "late") + total(nodes, "unsent") if number == 0 else before
            with contextlib.contextmanager(ways[number % len(ways)])(store, nodes):
                for node in nodes:
                    for subject in SUBJECTS:
                        count = spend(node, subject, 2 * MAX)
                        passed[subject] += count
                        first[subject] += count if number == 0 else 0
        all_up(nodes)
        for node in nodes:
            for subject in SUBJECTS:
                passed[subject] += spend(node, subject, 4 * MAX)
    for subject in SUBJECTS:
        expect(first[subject] + before >= hosts * (MAX // hosts), True, f"{subject}: {first[subject]} passed in the first outage")
        expect(passed[subject] <= most(hosts), True, f"{subject}: {passed[subject]} have passed of {most(hosts)}")


def test_one_host():
    with_hosts(1, stops, dies, is_killed_with)


def test_three_hosts():
    with_hosts(3, dies, is_killed_with, stops)


def test_crowds():
    """The same with two loops and many clients at once, while the store comes and goes."""
    with Store(persistent=True) as store, Node(store, RULES, "--hosts", 1, *FLAGS) as node:
        with Crowd([node], SUBJECTS, greedy=True, rest_s=0.005) as crowd:
            for number in range(OUTAGES):
                all_up([node])
                crowd_asks(crowd)
                store.pause() if number % 2 else store.kill()
                all_down([node])
                crowd_asks(crowd)
                store.go_on() if number % 2 else store.start()
            all_up([node])
            crowd_asks(crowd)
        for subject in SUBJECTS:
            expect(crowd.allowed(subject) <= most(1), True, f"{subject}: {crowd.allowed(subject)} have passed of {most(1)}")
            expect(crowd.allowed(subject) >= MAX, True, f"{subject}: {crowd.allowed(subject)} have passed")


def crowd_asks(crowd, count=30):
    more(crowd, SUBJECTS, "refused", 1)
    more(crowd, SUBJECTS, "sent", count)


def test_one_cells_file():
    """Two services on one host: both find the same debt when the store is back, and it is charged once."""
    subject = ("local", "k")
    rules = "rules: [ { id: local, match: { event: local }, by: [key], limits: [ { name: n, algorithm: fixed_window, max: 1000000, per: 365d } ] } ]"
    with Store(persistent=True) as store, Node(store, rules, "--hosts", 1, *PATIENT) as first:
        with Node(store, rules, "--hosts", 1, "--cells", f"{first.data}/cells", *PATIENT) as second:
            nodes = [first, second]
            with Crowd(nodes, [subject], connections=8, greedy=True, rest_s=0.002) as crowd:
                for _ in range(OUTAGES):
                    all_up(nodes)
                    more(crowd, [subject], count=1000)
                    nothing_owed(crowd, nodes)  # a debt whose answer is lost is charged again
                    store.kill()
                    all_down(nodes)
                    more(crowd, [subject], count=200)
                    store.start()
                all_up(nodes)
                more(crowd, [subject])
            expect(crowd.unanswered(), 0)
            settled(store, nodes, subject, crowd.allowed(subject), total(nodes, "lost"))
