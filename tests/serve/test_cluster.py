"""Services that count in a real Redis Cluster: keys of many slots, masters that die, slots that move meanwhile."""

import json
import os
import time

from support import expect, has, until, weir
from support.certificates import Authority
from support.cluster import Cluster, slot_of, tags
from support.crowd import READ, Crowd, Node, charged, spend, total
from support.outage import more, settled
from support.service import Service
from support.wire import Wire, words

MAX, SMALL, LARGE = 300, 20, 1000000
REST_S = 0.01
# A machine that stands still for longer makes an outage of its own.
FLAGS = ("--store-deadline", "2s")
RULES = f"""
rules:
  - {{ id: some, match: {{ event: some }}, by: [key], on_store_failure: deny,
      limits: [ {{ name: n, algorithm: fixed_window, max: {MAX}, per: 365d }} ] }}
  - {{ id: deny, match: {{ event: deny }}, by: [key], on_store_failure: deny,
      limits: [ {{ name: n, algorithm: fixed_window, max: {LARGE}, per: 365d }} ] }}
  - {{ id: users, match: {{ event: two }}, by: [user], on_store_failure: deny,
      limits: [ {{ name: n, algorithm: fixed_window, max: {MAX}, per: 365d }} ] }}
  - {{ id: keys, match: {{ event: two }}, by: [key], on_store_failure: allow,
      limits: [ {{ name: n, algorithm: fixed_window, max: {SMALL}, per: 365d }} ] }}
  - {{ id: held, match: {{ event: held }}, by: [key], on_store_failure: deny,
      limits: [ {{ name: n, max: {MAX}, per: 365d }}, {{ name: d, calendar: year, max: {MAX} }} ] }}
  - {{ id: flight, match: {{ event: flight }}, by: [key], on_store_failure: deny, limits: [ {{ concurrent: 4, ttl: 60s }} ] }}
  - {{ id: lent, match: {{ event: lent }}, by: [key], on_store_failure: deny, lease: {{ slice: 5%, ttl: 10m }},
      limits: [ {{ name: n, algorithm: fixed_window, max: {MAX}, per: 365d }} ] }}
"""


class Host(Node):
    """Each node of a cluster is up or down by itself."""

    def __enter__(self):
        Service.__enter__(self)
        until(lambda: len(self.told()[0]) >= 3, "all masters are reached")
        return self


def address(cluster, nodes=1):
    return "redis+cluster://" + ",".join(cluster.hosts.split(",")[:nodes])


def keys_of(cluster, count):
    """Keys whose slots are spread over all masters."""
    found = []
    for i in range(cluster.masters):
        names = tags(*cluster.first_slots(i))
        found += [next(names) for _ in range(count)]
    return found


def test_decisions():
    """One node is named, all are used; exact and leased."""
    with Cluster(3) as cluster, Host(address(cluster), RULES, *FLAGS) as host:
        for event in ("some", "lent"):
            for key in keys_of(cluster, 3):
                expect(spend(host, (event, key)), MAX, f"{event} {key}")
                expect(charged(cluster, (event, key), "n.f"), MAX)
        status = host.status()
        expect([status[name] for name in ("late", "failed", "unsent", "lost")], [0] * 4)


def test_the_command(folder):
    """It asks once, before it knows any other node: it waits for the one that has the key."""
    rules = os.path.join(folder, "rules.yaml")
    with open(rules, "w", encoding="utf-8") as file:
        file.write(RULES)
    with Cluster(3) as cluster:
        for key in keys_of(cluster, 1):
            ask = ("check", "--rules", rules, "--counters", address(cluster), "--event", "two", "--user", f"{key}x", "--key", key)
            left = [json.loads(weir(*ask).stdout)["remaining"] for _ in range(3)]
            expect(left, [SMALL - 1, SMALL - 2, SMALL - 3])
        for node in cluster.nodes:
            node.stop()
        has(weir(*ask).stderr.decode(), "Connection refused")


def test_slots_move():
    """Key by key, there and back, while a crowd asks: everything is counted once, and nobody notices."""
    with Cluster(3) as cluster, Host(address(cluster), RULES, *FLAGS) as one, Host(address(cluster, 3), RULES, *FLAGS) as two:
        keys = keys_of(cluster, 2)
        subjects = [(event, key) for key in keys for event in ("deny", "some")]
        with Crowd([one, two], subjects, greedy=True, rest_s=REST_S) as crowd:
            more(crowd, [("deny", key) for key in keys])
            for turn in range(2):
                for key in keys:
                    source = cluster.owner_of_key(key)
                    target = cluster.nodes[(cluster.nodes.index(source) + 1) % 3]
                    cluster.move_begin(slot_of(key), source, target)
                    more(crowd, [("deny", key)], count=10)
                    cluster.move_key(f"weir:1:{{{key}}}:deny:key", source, target)
                    more(crowd, [("deny", key)], count=10)
                    while cluster.move_keys(slot_of(key), source, target):
                        pass
                    cluster.move_end(slot_of(key), source, target, wait=False)
                    more(crowd, [("deny", key)], count=10)
        for subject in subjects:
            settled(cluster, [one, two], subject, crowd.allowed(subject))
            expect(subject[0] != "some" or crowd.allowed(subject) == MAX, True, f"{subject}")
        expect(crowd.count("denied"), 0)


def test_masters_come_and_go():
    """One that had no slots gets some, and has none again, while a crowd asks: nobody notices, and no answer is lost."""
    with Cluster(3, spare=1) as cluster, Host(address(cluster), RULES, *FLAGS) as one, Host(address(cluster, 3), RULES, *FLAGS) as two:
        keys = keys_of(cluster, 2)
        subjects = [("deny", key) for key in keys]
        spare = cluster.nodes[3]
        with Crowd([one, two], subjects, greedy=True, rest_s=REST_S) as crowd:
            for _ in range(3):
                more(crowd, subjects, count=10)
                sources = [cluster.owner_of_key(key) for key in keys]
                for key, source in zip(keys, sources):
                    cluster.move_begin(slot_of(key), source, spare)
                    while cluster.move_keys(slot_of(key), source, spare):
                        pass
                    # The map of the cluster mentions the node only when it has a slot.
                    more(crowd, subjects, count=10)
                    cluster.move_end(slot_of(key), source, spare, wait=False)
                more(crowd, subjects, count=10)
                for key, source in zip(keys, sources):
                    cluster.move([slot_of(key)], spare, source)
                until(lambda: one.status()["nodes"] == two.status()["nodes"] == 3, "the node has left")
        for subject in subjects:
            settled(cluster, [one, two], subject, crowd.allowed(subject))
        expect((crowd.count("denied"), [total([one, two], why) for why in ("lost", "unsent", "late", "failed")]), (0, [0] * 4))


def test_masters_are_replaced():
    """Planned failovers lose nothing: each master hands over to its replica, and back."""
    with Cluster(3, 1) as cluster, Host(address(cluster), RULES, *FLAGS) as one, Host(address(cluster), RULES, *FLAGS) as two:
        keys = keys_of(cluster, 2)
        subjects = [(event, key) for key in keys for event in ("deny", "some")]
        with Crowd([one, two], subjects, greedy=True, rest_s=REST_S) as crowd:
            for replica in (*cluster.nodes[3:], *cluster.nodes[:3]):
                more(crowd, [("deny", key) for key in keys], count=10)
                cluster.failover(replica)
            more(crowd, [("deny", key) for key in keys], count=10)
        lost = total([one, two], "lost")
        for subject in subjects:
            settled(cluster, [one, two], subject, crowd.allowed(subject), lost)
            expect(subject[0] != "some" or crowd.allowed(subject) <= MAX, True, f"{subject}")


def received(replica, subject):
    """What a replica knows of the count."""
    with Wire(replica) as wire:
        expect(wire.ask("READONLY"), "OK")
        return wire.ask("EVAL_RO", READ, 1, f"weir:1:{{{subject[1]}}}:{subject[0]}:key", "n.f")


def test_masters_die():
    """kill -9, one after another: the others go on meanwhile, and the replica takes over."""
    options = ("--cluster-require-full-coverage", "no")
    with (
        Cluster(3, 1, *options) as cluster,
        Host(address(cluster, 6), RULES, *FLAGS) as one,
        Host(address(cluster, 6), RULES, *FLAGS) as two,
    ):
        keys = keys_of(cluster, 1)
        subjects = [("deny", key) for key in keys]
        unknown = dict.fromkeys(subjects, 0)  # charges that a master answered, and its replica did not receive
        with Crowd([one, two], subjects, greedy=True, rest_s=REST_S) as crowd:
            more(crowd, subjects)
            for replaced, key in enumerate(keys[:2], 1):
                node, others = cluster.owner_of_key(key), [("deny", other) for other in keys if other != key]
                (replica,) = cluster.replicas_of(node)
                node.kill()
                until(lambda: all(host.status()["nodes_up"] == 2 for host in (one, two)), "each host notices it")
                crowd.takes_turns()
                known = received(replica, ("deny", key))
                unknown[("deny", key)] = crowd.allowed(("deny", key)) - known
                more(crowd, others)
                cluster.wait_failover(slot_of(key), node)
                more(crowd, [("deny", key)])
                until(lambda: all(host.status()["replaced"] == replaced for host in (one, two)), "each host knows it")
                node.start()
                until(lambda: node.id in [replica.id for replica in cluster.replicas_of(cluster.owner_of_key(key))], "it is a replica")
                until(lambda: "master_link_status:up" in node.ask("INFO", "replication"), "it has the data")
            more(crowd, subjects)
        expect(crowd.unanswered(), 0)
        lost = total([one, two], "lost")
        for subject in subjects:
            passed, count = crowd.allowed(subject), charged(cluster, subject, "n.f")
            said = f"{subject}: {passed} passed, {count} charged, {lost} lost, {unknown[subject]} unknown to the replica"
            expect(passed - max(unknown[subject], 0) <= count <= passed + lost, True, said)
        for host in (one, two):
            told = host.told()[0]
            expect((told.count("replaced"), told.count("down")), (2, 2), f"{host.told()[1]}")


# ---- several slots ----


def both(host, user, key, command="WEIR.CHECK", *more):
    """By user and by key."""
    with Wire(host) as wire:
        return wire.ask(command, "event", "two", "user", user, "key", key, *more)


def used(cluster, rule, by, value):
    return cluster.ask("EVAL", READ, 1, f"weir:1:{{{value}}}:{rule}:{by}", "n.f")


def test_several_slots():
    """All or nothing over two masters; while one of them is down, the rule that counts at the other goes on."""
    with Cluster(3, 0, "--cluster-require-full-coverage", "no") as cluster, Host(address(cluster), RULES, *FLAGS) as host:
        users, keys = tags(*cluster.first_slots(0), start="ann"), tags(*cluster.first_slots(1), start="k")
        user, key, other = next(users), next(keys), next(keys)
        verdicts = [both(host, user, key) for _ in range(SMALL + 10)]
        expect([verdict[0] for verdict in verdicts], [1] * SMALL + [0] * 10)
        expect(verdicts[-1][1:5], ["keys", "n", SMALL, 0])
        expect((used(cluster, "users", "user", user), used(cluster, "keys", "key", key)), (SMALL, SMALL), "refused ones are not charged")
        receipt = both(host, user, other, "WEIR.RESERVE", "cost", "5", "ttl", "60000")
        expect(receipt[0], 1)
        expect((used(cluster, "users", "user", user), used(cluster, "keys", "key", other)), (SMALL + 5, 5))
        with Wire(host) as wire:
            expect(wire.ask("WEIR.SETTLE", receipt[10], "cost", "2"), 2)
        until(lambda: (used(cluster, "users", "user", user), used(cluster, "keys", "key", other)) == (SMALL + 2, 2), "it is settled at both")
        cluster.nodes[1].kill()
        until(lambda: host.status()["nodes_up"] == 2, "it is noticed")
        passed = sum(both(host, user, key)[0] for _ in range(MAX))
        expect(passed, MAX - SMALL - 2, "keys lets everything through, users still counts")
        expect(used(cluster, "users", "user", user), MAX)


def test_slots_of_two_rules_move():
    """The keys of one subject and two rules are at two nodes for a while."""
    with Cluster(3) as cluster, Host(address(cluster), RULES, *FLAGS) as host:
        name = next(tags(*cluster.first_slots(0)))
        source, target = cluster.nodes[:2]
        expect(both(host, name, name)[0], 1)
        cluster.move_begin(slot_of(name), source, target)
        expect(both(host, name, name)[0], 1)
        cluster.move_key(f"weir:1:{{{name}}}:keys:key", source, target)
        expect([both(host, name, name)[0] for _ in range(SMALL)], [1] * (SMALL - 2) + [0] * 2)
        counts = [node.ask("ASKING") and node.ask("EVAL", READ, 1, f"weir:1:{{{name}}}:{rule}", "n.f")
                  for node, rule in ((source, "users:user"), (target, "keys:key"))]
        expect(counts[0], SMALL, "what one refuses is not charged to the other")
        while cluster.move_keys(slot_of(name), source, target):
            pass
        cluster.move_end(slot_of(name), source, target)
        expect(both(host, name, name)[0], 0)
        expect((used(cluster, "users", "user", name), used(cluster, "keys", "key", name)), (SMALL, SMALL))


def test_all_keys_are_elsewhere():
    """Two rules in a slot that is being moved: both keys have left, or are new. Nobody waits for the end of it."""
    with Cluster(3) as cluster, Host(address(cluster), RULES, "--store-deadline", "1500ms") as host:
        source, target = cluster.nodes[:2]
        old = next(tags(*cluster.first_slots(0)))
        new = next(tags(slot_of(old), slot_of(old), start="new"))
        expect(both(host, old, old)[0], 1)
        cluster.move_begin(slot_of(old), source, target)
        expect(cluster.move_keys(slot_of(old), source, target), 2)
        expect([both(host, name, name)[0] for name in (old, new)], [1, 1])
        cluster.move_end(slot_of(old), source, target)
        expect([used(cluster, "users", "user", name) for name in (old, new)], [2, 1])
        expect([total([host], why) for why in ("late", "failed", "unsent", "lost")], [0] * 4)


# ---- holds ----


def test_holds_leave_first():
    """What they belong to is still there: a reservation waits for the rest of the slot."""
    with Cluster(3) as cluster, Host(address(cluster), RULES, "--store-deadline", "5s") as host, Wire(host) as wire:
        key = next(tags(*cluster.first_slots(0)))
        source, target = cluster.nodes[:2]
        ask_for = ("WEIR.RESERVE", "event", "held", "key", key, "cost", "10", "ttl", "60000")
        expect(wire.ask(*ask_for)[0], 1)
        cluster.move_begin(slot_of(key), source, target)
        expect(cluster.move_key(f"weir:1:{{{key}}}:held:key:h", source, target), True)
        wire.send(words(*ask_for))
        time.sleep(0.2)
        while cluster.move_keys(slot_of(key), source, target):
            pass
        cluster.move_end(slot_of(key), source, target)
        expect(wire.reply()[0], 1)
        expect(wire.ask("WEIR.PEEK", "event", "held", "key", key)[4], MAX - 20)


def test_holds_while_slots_move():
    """They wait for their slot, and are settled where it is then."""
    with Cluster(3) as cluster, Host(address(cluster), RULES, "--store-deadline", "5s") as host, Wire(host) as wire:
        key = next(tags(*cluster.first_slots(0)))
        source, target = cluster.nodes[:2]
        ask_for = ("WEIR.RESERVE", "event", "held", "key", key, "cost", "10", "ttl", "60000")
        holds = [wire.ask(*ask_for)[10] for _ in range(3)]
        slots = [wire.ask("WEIR.RESERVE", "event", "flight", "key", key, "ttl", "60000")[10] for _ in range(3)]
        cluster.move_begin(slot_of(key), source, target)
        expect(wire.ask("WEIR.SETTLE", holds[0], "cost", "1"), 2)
        # The hash is there, its holds are not: nobody is let through for that.
        cluster.move_key(f"weir:1:{{{key}}}:flight:key", source, target)
        with Wire(host) as waiting:
            waiting.send(words("WEIR.RESERVE", "event", "flight", "key", key, "ttl", "60000"))
            with Wire(host) as another:
                another.send(words("WEIR.RESERVE", "event", "flight", "key", key, "ttl", "60000"))
                time.sleep(0.2)
                while cluster.move_keys(slot_of(key), source, target):
                    pass
                cluster.move_end(slot_of(key), source, target)
                expect(sorted(wire_.reply()[0] for wire_ in (waiting, another)), [0, 1], "four slots")
        for hold in holds[1:]:
            expect(wire.ask("WEIR.SETTLE", hold, "cost", "2"), 2)
        until(lambda: wire.ask("WEIR.PEEK", "event", "held", "key", key)[4] == MAX - 5, "each is settled once")
        for slot in slots:
            wire.ask("WEIR.SETTLE", slot)
        until(lambda: wire.ask("WEIR.PEEK", "event", "flight", "key", key)[4] == 3, "slots are free again")


# ---- TLS ----


def test_tls():
    """To all nodes, with their names as the nodes say them."""
    with Authority() as ca:
        ca.server = ca.issue("server")
        with Cluster(3, ca=ca, password="correct-horse") as cluster:
            where = f"rediss+cluster://:correct-horse@{cluster.hosts.split(',')[0]}?ca={ca.path}"
            with Host(where, RULES, *FLAGS) as host:
                for key in keys_of(cluster, 1):
                    expect(spend(host, ("some", key)), MAX)
                expect(host.status()["nodes_up"], 3)
