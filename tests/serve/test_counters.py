"""`weir serve --counters`: limits that hosts share, in a real redis-server, over everything that one can ask with."""

import contextlib
import functools
import json
import os
import re
import signal
import tempfile
import threading
import time

from support import DEADLINE_S, at_once, expect, until, weir
from support.contract import Checked
from support.service import Service
from support.store import Store
from support.wire import Error, Gone, Wire, words

MAX = 100
SHARED = f"""
settings: {{ trusted_proxies: [127.0.0.0/8] }}
rules:
  - {{ id: exact, match: {{ event: exact }}, by: [key], limits: [ {{ name: day, algorithm: fixed_window, max: {MAX}, per: 24h }} ] }}
  - {{ id: web, match: {{ path: "/web" }}, by: [user], limits: [ {{ name: day, algorithm: fixed_window, max: {MAX}, per: 24h }} ] }}
  - {{ id: here, match: {{ event: both }}, by: [key], counters: local,
      limits: [ {{ name: day, algorithm: fixed_window, max: 3, per: 24h }} ] }}
  - {{ id: all, match: {{ event: both }}, by: [key], limits: [ {{ name: day, algorithm: fixed_window, max: 5, per: 24h }} ] }}
  - {{ id: tried, match: {{ event: tried }}, by: [key], mode: shadow,
      limits: [ {{ name: day, algorithm: fixed_window, max: 2, per: 24h }} ] }}
  - {{ id: alone, match: {{ event: alone }}, by: [key], counters: local,
      limits: [ {{ name: day, algorithm: fixed_window, max: 1000000, per: 24h }} ] }}
  - {{ id: leased, match: {{ event: leased }}, by: [key], lease: true,
      limits: [ {{ name: day, algorithm: fixed_window, max: {MAX}, per: 24h }} ] }}
  - {{ id: local, match: {{ event: local }}, by: [key], limits: [ {{ name: day, algorithm: fixed_window, max: 10, per: 24h }} ] }}
  - {{ id: allow, match: {{ event: allow }}, by: [key], on_store_failure: allow,
      limits: [ {{ name: day, algorithm: fixed_window, max: 5, per: 24h }} ] }}
  - {{ id: deny, match: {{ event: deny }}, by: [key], on_store_failure: deny,
      limits: [ {{ name: day, algorithm: fixed_window, max: 1000, per: 24h }} ] }}
"""
BY_PATH = """
rules:
  - { id: exact, match: { path: "/exact/*" }, by: [path], limits: [ { name: day, algorithm: fixed_window, max: 5, per: 24h } ] }
  - { id: leased, match: { path: "/leased/*" }, by: [path], lease: true,
      limits: [ { name: day, algorithm: fixed_window, max: 5, per: 24h } ] }
  - { id: tried, match: { path: "/tried/*" }, by: [path], mode: shadow,
      limits: [ { name: day, algorithm: fixed_window, max: 5, per: 24h } ] }
"""
# Longer than the default, so that a slow machine does not miss it.
PATIENT = ["--store-deadline", "10s", "--threads", "2"]


@contextlib.contextmanager
def node(store, *flags, kind=Service, **more):
    """A service that counts there."""
    with kind("--counters", store.address, *flags, **{"rules": SHARED, **more}) as service:
        until(lambda: service.steer("GET", "/v1/status").json()["store"]["up"], "the store is reached")
        yield service


def test_answers():
    """Headers and bodies for clients, of decisions that wait for the store, and without it."""
    ask = {"event": "both", "key": "k"}
    with Store() as store, node(store, *PATIENT) as s, Wire(s) as wire:
        policy = '"here/day";q=3;w=86400, "all/day";q=5;w=86400'
        headers = s.check(**ask).headers
        expect((headers["RateLimit-Policy"], headers["RateLimit"]), (policy, '"here/day";r=2;t=86400, "all/day";r=4;t=86400'))
        wire.send(3 * words("WEIR.CHECK", "event", "both", "key", "k", "answer", "always"))
        replies = [wire.reply() for _ in range(3)]
        expect([reply[0] for reply in replies], [1, 1, 0])
        expect([reply[16] for reply in replies], [policy] * 3, "the same on every answer")
        expect([reply[18].split(";t=")[0] for reply in replies], ['"here/day";r=1', '"here/day";r=0', '"here/day";r=0'])
        expect(replies[2][13:15], ["text/plain; charset=utf-8", "Too many requests\n"])
        refused = s.check(**ask, cost=6)
        expect((refused.status, refused.headers["RateLimit-Policy"]), (429, policy), "refused here, so the store is not asked")
        expect(refused.headers["RateLimit"].startswith('"here/day";r=0'), True, refused.headers["RateLimit"])
        store.kill()
        ask = {"event": "deny", "key": "k", "reject": True, "headers": {"Accept": "application/problem+json"}}
        refused = until(lambda: (found := s.check(**ask)).status == 503 and found, "the store is missed")
        headers = refused.headers
        expect((headers["RateLimit-Policy"], headers["RateLimit"], headers["Retry-After"]),
               ('"deny/day";q=1000;w=86400', '"deny/day";r=0;t=1', "1"))
        expect(refused.json()["type"].partition("#")[2], "temporary-reduced-capacity")
        expect(refused.json()["violated-policies"], ["deny/day"])


def check(event, key, *more):
    return words("WEIR.CHECK", "event", event, "key", key, *more)


def send_check(connection, document):
    """A question over HTTP, whose answer is not waited for."""
    body = json.dumps(document).encode()
    connection.sendall(b"POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n")
    connection.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


# ---- ways to ask: each sends `count` requests and returns how many passed ----


def resp_single(service, key, count):
    with Wire(service) as wire:
        return sum(wire.ask("WEIR.CHECK", "event", "exact", "key", key)[0] for _ in range(count))


def resp_pipeline(service, key, count):
    with Wire(service) as wire:
        wire.send(check("exact", key) * count)
        return sum(wire.reply()[0] for _ in range(count))


def resp_multi(service, key, count):
    with Wire(service) as wire:
        wire.send(words("MULTI") + check("exact", key) * count + words("EXEC"))
        for _ in range(count + 1):
            wire.reply()
        return sum(reply[0] for reply in wire.reply())


def http_single(service, key, count):
    return sum(service.check(event="exact", key=key).json()["allowed"] for _ in range(count))


def http_many(service, key, count):
    body = json.dumps([{"event": "exact", "key": key}] * count)
    answer = service.ask(service.http, "POST", "/v1/check", body, {"Content-Type": "application/json"})
    expect(len(answer.json()), count, "verdicts")
    return sum(verdict["allowed"] for verdict in answer.json())


def http_auth(service, key, count):
    headers = {"X-Forwarded-Uri": "/web", "X-Forwarded-Method": "GET", "X-Forwarded-For": "203.0.113.9", "X-User": key}
    statuses = [service.ask(service.http, "GET", "/v1/auth", None, headers).status for _ in range(count)]
    expect(set(statuses) <= {200, 429}, True, f"statuses {set(statuses)}")
    return statuses.count(200)


def together(nodes, way, key, connections, count):
    """From tens of connections to all nodes at once. Returns how many passed."""
    return sum(at_once([functools.partial(way, service, key, count) for service in nodes for _ in range(connections)]))


def test_exact():
    flags = [*PATIENT, "--user-header", "X-User"]
    with Store() as store, node(store, *flags) as a, node(store, *flags) as b:
        for way, connections, count in (
            (resp_single, 20, 5),
            (resp_pipeline, 20, 70),
            (resp_multi, 10, 70),
            (http_single, 10, 8),
            (http_many, 8, 70),
            (http_auth, 10, 8),
        ):
            expect(together([a, b], way, way.__name__, connections, count), MAX, way.__name__)
        status = a.steer("GET", "/v1/status").json()["store"]
        expect((status["late"], status["failed"], status["lost"], status["unsent"]), (0, 0, 0, 0), "nothing went wrong")


def large(maximum):
    """A limit of each kind that counts so far, and a leased one."""
    kinds = {
        "bucket": f"{{ name: n, max: 1, per: 365d, burst: {maximum} }}",
        "window": f"{{ name: n, algorithm: fixed_window, max: {maximum}, per: 24h }}",
        "year": f"{{ name: n, calendar: year, max: {maximum} }}",
    }
    rules = [f"{{ id: {name}, match: {{ event: {name} }}, by: [key], limits: [ {limit} ] }}" for name, limit in kinds.items()]
    lease = f"{{ id: leased, match: {{ event: leased }}, by: [key], lease: true, limits: [ {kinds['year']} ] }}"
    return kinds, "rules:\n" + "".join(f"  - {rule}\n" for rule in [*rules, lease])


def test_large_amounts():
    most = 2**53 - 1
    kinds, rules = large(most)
    with Store() as store, node(store, *PATIENT, rules=rules) as a, node(store, *PATIENT, rules=rules) as b:
        with Wire(a) as first, Wire(b) as second:
            for event in kinds:
                request = ("event", event, "key", "k")
                receipt = first.ask("WEIR.CHECK", *request, "cost", str(most - 2), "reply", "receipt")[10]
                expect(second.ask("WEIR.CHECK", *request, "cost", "3")[0], 0, f"{event}: one too many")
                expect(second.ask("WEIR.CHECK", *request, "cost", "2")[:5], [1, event, "n", most, 0], f"{event}: the last")
                expect(first.ask("WEIR.CHECK", *request, "cost", "0")[0], 1, f"{event}: no more than max is used")
                expect(first.ask("WEIR.REFUND", receipt, *request), 1, f"{event}: given back")
                left = most - 3 if event == "bucket" else most - 2  # a refund rounds up what is used of a bucket
                look = functools.partial(first.ask, "WEIR.CHECK", *request, "cost", "0")
                until(lambda look=look, left=left: look()[4] == left, f"{event}: it is left again")
            # A slice has 32 bits.
            for _ in range(3):
                expect(first.ask("WEIR.CHECK", "event", "leased", "key", "k", "cost", str(2**32 - 1))[0], 1, "leased")
            expect(first.ask("WEIR.CHECK", "event", "leased", "key", "k", "cost", str(2**32))[0], 0, "more than a slice")


def rule_change(service, maximum):
    service.write_rules(large(maximum)[1])
    until(lambda: service.check(event="year", key="other", cost=0).json()["max"] == maximum, f"the max is {maximum}")


def test_large_amounts_that_change():
    """What was used stays used when `max` moves across 2^32, limit by limit."""
    kinds, rules = large(2**40)
    with Store() as store, node(store, *PATIENT, rules=rules) as service, Wire(service) as wire:

        def ask(event, cost):
            return wire.ask("WEIR.CHECK", "event", event, "key", "k", "cost", str(cost))

        for event in kinds:
            expect(ask(event, 2**33)[4], 2**40 - 2**33, event)
        for maximum in (1000, 2**32 - 1, 2**33 - 1):
            rule_change(service, maximum)
            for event in kinds:
                expect((ask(event, 1)[:1], ask(event, 0)[:1]), ([0], [0]), f"{event}: {maximum} is overdrawn")
        rule_change(service, 2**33 + 5)
        for event in kinds:
            expect((ask(event, 6)[0], ask(event, 5)[0], ask(event, 0)[0], ask(event, 1)[0]), (0, 1, 1, 0), event)


def order_of_replies(wire):
    """What is decided at once, what is not, and mistakes, in one pipeline."""
    sent, wanted = b"", []
    for i in range(150):
        sent += check("exact", "order") + check("alone", "order")
        wanted += [("exact", MAX - 1 - i if i < MAX else 0), ("alone", 999999 - i)]
        if i % 10 == 0:
            sent += words("ECHO", f"e{i}") + words("WEIR.CHECK", "event") + words("WEIR.CHECK", "evnt", "x")
            sent += b'WEIR.CHECK event "alone" key "order" cost 0\r\n' if i % 20 == 0 else b'ECHO "a b"\r\n'
            wanted += [f"e{i}", Error, Error, ("alone", 999999 - i) if i % 20 == 0 else "a b"]
    wire.send(sent)
    for want in wanted:
        reply = wire.reply()
        if want is Error:
            expect(isinstance(reply, Error), True, f"an error: {reply}")
        else:
            expect(reply if isinstance(want, str) else (reply[1], reply[4]), want)


def test_order(store):
    with node(store, *PATIENT) as service:
        with Wire(service) as wire:
            order_of_replies(wire)
            # An inline command in quotes is read once, whatever it waits for.
            wire.send(check("exact", "quoted") + b'WEIR.CHECK event "exact" key "quoted"\r\n' + b"WEIR.CHECK event exact key 'quoted'\r\n")
            expect([wire.reply()[4] for _ in range(3)], [MAX - 1, MAX - 2, MAX - 3])
            # EXEC goes on where it stopped.
            wire.send(words("MULTI") + (check("exact", "multi") + words("PING") + words("WEIR.CHECK", "x")) * 40)
            wire.send(b'EXE"C"\r\n' + words("PING", "behind"))
            for _ in range(121):
                wire.reply()
            replies = wire.reply()
            expect([reply[4] for reply in replies[::3]], list(range(MAX - 1, MAX - 41, -1)))
            expect(set(replies[1::3]), {"PONG"})
            expect({type(reply) for reply in replies[2::3]}, {Error})
            expect(wire.reply(), "behind")
            # A connection that ends with a question still gets its answer.
            wire.send(check("exact", "last") + words("QUIT"))
            expect(wire.reply()[4], MAX - 1)
            expect(wire.reply(), "OK")
            expect(wire.rest(), b"")
        with Wire(service) as wire:
            wire.ask("HELLO", "3")
            wire.send(check("none", "x") + check("exact", "three") + check("none", "x"))
            expect([wire.reply()[1] for _ in range(3)], [None, "exact", None])


def test_all_or_nothing(store):
    with node(store, *PATIENT) as a, node(store, *PATIENT) as b:
        with Wire(a) as at_a, Wire(b) as at_b:
            replies = [at_a.ask("WEIR.CHECK", "event", "both", "key", "k") for _ in range(5)]
            expect([reply[0] for reply in replies], [1, 1, 1, 0, 0], "this host's own limit")
            expect(replies[4][1], "here")
            # What the first node refused was not charged there: two are left of five, and three here.
            replies = [at_b.ask("WEIR.CHECK", "event", "both", "key", "k") for _ in range(4)]
            expect([reply[0] for reply in replies], [1, 1, 0, 0], "the limit of all")
            expect(replies[3][1], "all")
            # What the store refused is given back here.
            expect(at_b.ask("WEIR.PEEK", "event", "both", "key", "new")[0], 1)
            verdicts = [a.check(event="tried", key="k").json() for _ in range(2)] + [b.check(event="tried", key="k").json()]
            expect([verdict["shadow"] for verdict in verdicts], [[], [], ["tried"]])
        # Peeks charge nothing.
        with Wire(a) as wire:
            expect([wire.ask("WEIR.PEEK", "event", "exact", "key", "p")[4] for _ in range(2)], [MAX, MAX])


def test_leased(store):
    """Slices are waited for, and spent here."""
    with node(store, *PATIENT) as a, node(store, *PATIENT) as b:

        def resp_leased(service, key, count):
            with Wire(service) as wire:
                wire.send(check("leased", key) * count)
                return sum(wire.reply()[0] for _ in range(count))

        def http_leased(service, key, count):
            return sum(service.check(event="leased", key=key).json()["allowed"] for _ in range(count))

        for way, count in ((resp_leased, 20), (http_leased, 20)):
            passed = together([a, b], way, way.__name__, 5, count)
            expect(MAX // 2 <= passed <= MAX, True, f"{way.__name__}: {passed} passed")
        found = metrics_of(a)
        expect(found["weir_lease_slices_total"] > 0 and found["weir_lease_tokens_lent_total"] > 0, True, f"{found}")


# ---- a store that says nothing ----


def timed(what, most_s, call):
    start = time.monotonic()
    result = call()
    took = time.monotonic() - start
    expect(took < most_s, True, f"{what} took {took:.3f} s")
    return result


def store_lines(service, level):
    return [entry["message"] for entry in service.events("store") if entry["level"] == level]


def test_pause(store):
    """Every answer comes in time; rules do as they say; each change is told once."""
    with node(store, "--store-deadline", "300ms", "--hosts", "2") as service, Wire(service) as wire:
        for event in ("local", "allow", "deny"):
            until(lambda event=event: wire.ask("WEIR.CHECK", "event", event, "key", "k")[0], f"{event} passes")
        warned, informed = (len(store_lines(service, level)) for level in ("warning", "info"))
        store.pause()

        def ask(event, count):
            return [
                timed(event, 20, lambda: wire.ask("WEIR.CHECK", "event", event, "key", "away"))[0] for _ in range(count)
            ]

        # max / hosts, 5 / 1, and nothing.
        expect(ask("local", 7), [1, 1, 1, 1, 1, 0, 0])
        expect(ask("allow", 7), [1] * 7)
        expect(ask("deny", 3), [0] * 3)
        expect(timed("http", 20, lambda: service.check(event="deny", key="away")).status, 429)
        until(lambda: not service.steer("GET", "/v1/status").json()["store"]["up"], "it is noticed")
        # Hundreds at once do not queue up behind it.
        wire.send(check("allow", "many") * 500)
        expect(timed("500", 20, lambda: {wire.reply()[0] for _ in range(500)}), {1})
        store.go_on()
        until(lambda: service.steer("GET", "/v1/status").json()["store"]["up"], "it is back")
        until(lambda: wire.ask("WEIR.CHECK", "event", "deny", "key", "back")[0] == 1, "it is asked")
        expect(len(store_lines(service, "warning")), warned + 1, "\n".join(store_lines(service, "warning")))
        expect(len(store_lines(service, "info")), informed + 1, "\n".join(store_lines(service, "info")))
        status = service.steer("GET", "/v1/status").json()["store"]
        expect(status["late"] > 0 and status["unsent"] >= 500 and status["breaker_opened"] >= 1, True, f"{status}")


def test_outages_in_a_row():
    """What was let through in place of the store is not forgotten by the next outage, whatever became of the call that was to
    charge it: max, and at most a further one."""
    with Store(persistent=True) as store, node(store, "--hosts", "1", "--store-deadline", "50ms") as service:
        passed = {"local": 0, "leased": 0}

        def ask_all():
            with Wire(service) as wire:
                for event in passed:
                    wire.send(check(event, "often") * 150)
                    passed[event] += sum(wire.reply()[0] for _ in range(150))

        for _ in range(3):
            store.pause()
            ask_all()
            store.kill()
            ask_all()
            store.start()
            until(lambda: service.steer("GET", "/v1/status").json()["store"]["up"], "it is back")
        ask_all()
        expect(10 <= passed["local"] <= 20 and MAX <= passed["leased"] <= 2 * MAX, True, f"{passed}")


def test_queue_that_overflows():
    """A request is refused for lack of room, and for nothing else."""
    limits = ", ".join(f"{{ name: l{i}, algorithm: fixed_window, max: 1000000, per: {i + 1}h }}" for i in range(16))
    rules = "rules:\n" + "".join(
        f"  - {{ id: r{i}, match: {{ event: e }}, by: [key], on_store_failure: deny, limits: [{limits}] }}\n" for i in range(8)
    )
    with Store() as store, Service("--counters", store.address, "--store-deadline", "10s", "--request", "60s", "--threads", "1", rules=rules) as service:
        until(lambda: service.steer("GET", "/v1/status").json()["store"]["up"], "the store is reached")
        store.pause()
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(Wire(service)) for _ in range(20)]
            for i, wire in enumerate(wires):
                wire.send(b"".join(check("e", f"u{i}-{k}") for k in range(64)))
            # 8 MB are about 1,000 of these.
            until(lambda: service.steer("GET", "/v1/status").json()["store"]["unsent"] > 100, "the queue is full")
            store.go_on()
            passed = sum(wire.reply()[0] for wire in wires for _ in range(64))
        unsent = service.steer("GET", "/v1/status").json()["store"]["unsent"]
        expect(passed + unsent, 20 * 64, f"{passed} passed, {unsent} were not sent")


def test_lost_data(store):
    with node(store, *PATIENT) as service, Wire(service) as wire:
        for _ in range(3):
            expect(wire.ask("WEIR.CHECK", "event", "deny", "key", "k")[0], 1)
        store.restart()
        until(lambda: wire.ask("WEIR.CHECK", "event", "deny", "key", "k")[0] == 1, "it goes on without a restart")
        status = until(
            lambda: (found := service.steer("GET", "/v1/status").json()["store"])["replaced"] and found, "it is noticed"
        )
        expect(status["replaced"], 1)
        expect(len([line for line in store_lines(service, "warning") if "away" in line or "reach" in line]) <= 1, True)


def top_of(service):
    found = weir("top", "--data", service.data, "--admin", "%s:%d" % service.admin, "--once")
    return next(line for line in found.stdout.decode().splitlines() if line.startswith("store"))


def test_away_at_the_start():
    with Store() as store:
        store.kill()
        with Service("--counters", store.address, *PATIENT, rules=SHARED) as service, Wire(service) as wire:
            until(lambda: store_lines(service, "warning"), "that it is away is said")
            expect([wire.ask("WEIR.CHECK", "event", "local", "key", "k")[0] for _ in range(2)], [1, 1])
            expect("unreachable" in top_of(service), True, top_of(service))
            store.start()
            until(lambda: service.steer("GET", "/v1/status").json()["store"]["up"], "it is reached")
            expect(store.address.rsplit("/", 1)[0] in top_of(service), True, top_of(service))
            expect("unreachable" in top_of(service), False, top_of(service))
            expect((len(store_lines(service, "warning")), len(store_lines(service, "info"))), (1, 1))
            # Subjects are set free there, too.
            wire.ask("AUTH", service.token)
            ask = ("WEIR.CHECK", "event", "exact", "key", "k", "cost", MAX)
            expect(until(lambda: wire.ask(*ask), "an answer")[0], 1)
            expect(wire.ask(*ask)[0], 0)
            expect(wire.ask("WEIR.RESET", "exact", "k"), "OK")
            wire.send(words(*ask) * 2 + b'WEIR.RESET "exact" "k"\r\n' + words(*ask) + words("WEIR.RESET", "none", "k"))
            wire.send(words("MULTI") + (words("WEIR.RESET", "exact", "k") + words(*ask)) * 2 + words("EXEC"))
            expect([wire.reply()[0] for _ in range(2)], [1, 0])
            expect((wire.reply(), wire.reply()[0], type(wire.reply())), ("OK", 1, Error))
            expect([wire.reply() for _ in range(5)], ["OK"] + ["QUEUED"] * 4)
            replies = wire.reply()
            expect((replies[0], replies[1][0], replies[2], replies[3][0]), ("OK", 1, "OK", 1))
            expect(len(service.events("change")), 4)
            expect(service.steer("DELETE", "/v1/subjects?rule=exact&by=k").status, 204)
            # What was never counted is neither here nor in the store.
            for _ in range(2):
                found = service.steer("DELETE", "/v1/subjects?rule=exact&by=k")
                expect((found.status, "no count for this subject" in found.json()["error"]), (404, True))
            expect(type(wire.ask("WEIR.RESET", "exact", "never")), Error)
            expect(len(service.events("change")), 5)
            expect([wire.ask(*ask)[0] for _ in range(2)], [1, 0])
    done = weir("serve", "--data", store.log + "/none", "--counters", "http://me:swordfish@127.0.0.1/")
    expect((done.returncode, b"swordfish" in done.stderr), (2, False), "a wrong address")


def test_changes_while_waiting():
    """Of the rules and of the tokens: what has begun ends as it began."""
    with tempfile.TemporaryDirectory() as folder, Store() as store:
        token_file = os.path.join(folder, "token")

        def write_token(token):
            with open(token_file, "w", encoding="ascii") as file:
                file.write(token)

        write_token("the-first-token-of-all")
        flags = ["--token-file", token_file, "--poll", "100ms", "--store-deadline", "10s"]
        with node(store, *flags) as service, Wire(service) as wire:
            expect(wire.ask("AUTH", "the-first-token-of-all"), "OK")
            store.pause()
            wire.send(words("MULTI") + (check("allow", "k") + words("PING")) * 2 + words("EXEC") + words("PING"))
            expect([wire.reply() for _ in range(5)], ["OK"] + ["QUEUED"] * 4)
            write_token("another-token-than-that")
            service.process.send_signal(signal.SIGHUP)
            until(lambda: service.events("reload"), "the token is another")
            service.write_rules("rules: []")
            until(lambda: service.steer("GET", "/v1/status").json()["rules"]["count"] == 0, "the rules are others")
            store.go_on()
            replies = wire.reply()
            expect([replies[0][1], *replies[1:]][:2], ["allow", "PONG"])
            expect((replies[2][0], replies[3]), (1, "PONG"))
            expect(wire.reply().split()[0], "NOAUTH")


def test_closed_while_waiting(store):
    """Nobody touches a connection that is gone; what was asked is decided all the same."""
    with node(store, *PATIENT) as service:
        store.pause()
        for i in range(40):
            wire = Wire(service)
            if i % 4 == 0:
                wire.send(check("allow", "gone", "header:X-A", "b" * 100) * (i + 1))
            elif i % 4 == 1:
                wire.send(words("MULTI") + check("allow", "gone") * 100 + words("EXEC"))
            elif i % 8 == 2:
                wire.send(words("AUTH", service.token) + words("WEIR.RESET", "exact", "gone"))
            else:
                wire.socket.close()
                wire.socket = service.socket(service.http)
                send_check(wire.socket, [{"event": "allow", "key": "gone"}] * 40)
            if i % 3 == 0:
                time.sleep(0.005)
            wire.socket.close()
        time.sleep(0.1)
        store.go_on()
        with Wire(service) as wire:
            until(lambda: wire.ask("WEIR.CHECK", "event", "deny", "key", "x")[0] == 1, "it goes on")
            # One that says more while it waits is heard afterwards.
            store.pause()
            for i in range(10):
                wire.send(check("allow", "more"))
                time.sleep(0.002)
            store.go_on()
            expect([wire.reply()[1] for _ in range(10)], ["allow"] * 10)


def test_drain(store):
    """What waits when the end begins is answered."""
    with node(store, "--store-deadline", "1s", "--threads", "1") as service:
        store.pause()
        with Wire(service) as wire, Wire(service) as cut, contextlib.closing(service.socket(service.http)) as asking:
            send_check(asking, {"event": "deny", "key": "drain"})
            wire.send(words("PING") + check("allow", "drain") * 3)
            cut.send(words("MULTI") + check("deny", "drain") + words("EXEC"))
            # What follows these has come with them.
            expect(wire.reply(), "PONG")
            expect([cut.reply() for _ in range(2)], ["OK", "QUEUED"])
            time.sleep(0.2)
            service.process.terminate()
            expect([wire.reply()[0] for _ in range(3)], [1, 1, 1])
            expect(cut.reply()[0][0], 0)
            expect(asking.recv(12), b"HTTP/1.1 429")
            for left in (wire, cut):
                expect(left.rest(), b"")
            expect(service.process.wait(DEADLINE_S), 0, "exit status")
        store.go_on()
    # Cut off in the midst of it.
    with Store() as store, node(store, "--store-deadline", "10s", "--threads", "1", "--drain", "0ms") as service:
        store.pause()
        with Wire(service) as wire, contextlib.closing(service.socket(service.http)) as asking:
            wire.send(check("deny", "drain"))
            send_check(asking, [{"event": "deny", "key": "drain"}] * 100)
            time.sleep(0.2)
            timed("the end", 9, service.stop)
            try:
                wire.reply()
                raise AssertionError("a reply")
            except Gone:
                pass
        store.go_on()


# ---- weir check and weir explain ----


def on_cells(command, service, *more):
    """(exit status, output, errors) of a command on the service's cells."""
    done = weir(command, "--rules", service.rules_file, "--cells", service.data + "/cells", *more)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def used_of(service, store, event, *more):
    status, out, errors = on_cells("explain", service, "--counters", store.address, "--event", event, "--key", "k", *more)
    expect((status, errors), (0, ""), "weir explain")
    return int(re.search(r"(\d+) of \d+ used", out)[1]), out


def commands_count_in_the_store(service, store, begin):
    """`begin` of `exact`, `alone` and `leased` are used; and one more of each when it returns."""
    for command in ("explain", "check"):
        status, out, errors = on_cells(command, service, "--event", "exact", "--key", "k")
        expect((status, out), (2, ""), "without the store")
        expect("rule exact counts in the store" in errors and "--counters ADDRESS" in errors, True, errors)
    for event in ("exact", "alone"):
        for _ in range(2):  # which charges nothing
            expect(used_of(service, store, event)[0], begin, event)
        status, out, errors = on_cells("check", service, "--counters", store.address, "--event", event, "--key", "k")
        expect((status, errors), (0, ""))
        most = MAX if event == "exact" else 1000000
        expect(json.loads(out)["remaining"], most - begin - 1)
    expect("counts in the store, for all hosts together" in used_of(service, store, "exact")[1], True)
    used, out = used_of(service, store, "leased")
    expect(used - int(re.search(r"this host holds (\d+) unspent", out)[1]), begin, out)
    status, out, errors = on_cells("check", service, "--counters", store.address, "--event", "leased", "--key", "k")
    expect((status, errors, json.loads(out)["rule"]), (0, "", "leased"))


def test_commands_on_the_cells():
    """The commands count where the service does, while it runs and after its end, and nobody notices them."""
    with Store() as store:
        with node(store, *PATIENT) as service:
            for event in ("exact", "alone", "leased"):
                for _ in range(3):
                    expect(service.check(event=event, key="k").status, 200)
            hosts = store.ask("ZRANGE", "weir:1:hosts", 0, -1)
            expect(len(hosts), 1)
            done = threading.Event()
            seen, found = set(), []

            def watch():
                while not done.is_set():
                    seen.add(tuple(store.ask("ZRANGE", "weir:1:hosts", 0, -1)))
                    found.append(service.steer("GET", "/v1/status").json()["store"]["up"])

            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                commands_count_in_the_store(service, store, 3)
                # With a table of its own, too, and that is no further host.
                words = ["--rules", service.rules_file, "--counters", store.address, "--event", "exact", "--key", "own"]
                for left in (99, 98):
                    expect(json.loads(weir("check", *words).stdout)["remaining"], left)
            finally:
                done.set()
                watcher.join()
            expect((seen, set(found)), ({tuple(hosts)}, {True}))
            # Neither the service nor a command forgets what the other has charged.
            expect(service.check(event="exact", key="k").json()["remaining"], MAX - 5)
            for event in ("alone", "leased"):
                expect(service.check(event=event, key="k").status, 200)
            service.stop()
            commands_count_in_the_store(service, store, 5)
            # What looks knows that there is nothing left to lend.
            expect(on_cells("check", service, "--counters", store.address, "--event", "leased", "--key", "k", "--cost", MAX - 6)[0], 0)
            for _ in range(2):
                used, out = used_of(service, store, "leased")
                expect((used, "refused by leased, limit day: " in out), (MAX, True), out)
                time.sleep(1.2)  # until what the cells knew of that has gone
            expect("the store has too little left to lend" in used_of(service, store, "leased")[1], True)
            expect(on_cells("check", service, "--counters", store.address, "--event", "leased", "--key", "k")[0], 1)
            store.kill()
            status, out, errors = on_cells("explain", service, "--counters", store.address, "--event", "exact", "--key", "k")
            expect((status, "the use is unknown" in out, " used" in out), (0, True, False), out)
            expect("does not answer" in errors and "on_store_failure" in errors, True, errors)
            status, out, errors = on_cells("check", service, "--counters", store.address, "--event", "deny", "--key", "k")
            expect((status, json.loads(out)["unavailable"], "does not answer" in errors), (1, True, True), errors)
            service.process = None


def test_words_of_commands():
    with Store(password="swordfish") as store:
        with Service(rules=SHARED) as service:
            given = ["--rules", service.rules_file, "--event", "exact", "--key", "k"]
            for command in ("check", "explain"):
                for wrong, why in ((("--now", "5", "--counters", store.address), "--now cannot be combined with --counters"),
                                   (("--hosts", "2"), "--hosts has no effect without --counters"),
                                   (("--counters", "http://me:swordfish@127.0.0.1/"), "--counters: not a valid address of a store")):
                    done = weir(command, *given, *wrong)
                    expect((done.returncode, done.stdout), (2, b""))
                    expect((why in done.stderr.decode(), b"swordfish" in done.stderr), (True, False), done.stderr)
                done = weir(command, *given, "--counters", store.address.replace("//", "//:swordfish@", 1), "--hosts", "2")
                expect((done.returncode, done.stderr), (0, b""), command)


# ---- what is said of it ----

METRICS = {
    *("weir_store_up", "weir_store_hosts", "weir_store_nodes", "weir_store_nodes_up", "weir_store_clock_offset_seconds"),
    "weir_lease_tokens_held",
    *(f"weir_store_{name}_total" for name in ("calls", "late", "failed", "lost", "unsent", "refunded", "breaker_opened")),
    *(f"weir_store_{name}_total" for name in ("replaced", "emptied", "reconciled_tokens")),
    *(f"weir_lease_{name}_total" for name in ("slices", "tokens_lent", "tokens_returned")),
}


def test_by_path(store):
    """A path that may be read in several ways is charged for each, wherever a rule counts; explain finds each."""
    with node(store, *PATIENT, rules=BY_PATH) as one, node(store, *PATIENT, rules=BY_PATH) as other:
        for name in ("exact", "leased"):
            paths = [f"/J{n}/..%2F{name}%2Fx%2FQ/.." for n in range(4)] + [f"/J{n}%2fa/../{name}/x" for n in range(4)]
            found = [service.check(path=path).json()["allowed"] for path in paths for service in (one, other)]
            expect(sum(found), 5, f"{name}: {found}")
            shown = one.steer("GET", f"/v1/explain?path=/J9/..%252F{name}%252Fx%252FQ/..").json()
            rule = next(rule for rule in shown["rules"] if rule["id"] == name)
            expect((rule["reading"], rule["by"][0]["value"], shown["verdict"]["allowed"]), (f"/{name}/x", f"/{name}/x", False))
            if name == "exact":
                expect((rule["limits"][0]["used"], rule["limits"][0]["fits"]), (5, False))
            expect(one.check(path=f"/{name}/y").json()["allowed"], True, "another path")
        found = [one.check(path=f"/tried//..;J{n}/../x").json()["shadow"] for n in range(7)]
        expect(found, [[]] * 5 + [["tried"]] * 2, "in shadow, named once")


def metrics_of(service):
    found = {}
    for line in service.steer("GET", "/metrics").body.decode().splitlines():
        if match := re.fullmatch(r"(weir_(?:store|lease)_\w+) (\S+)", line):
            found[match[1]] = float(match[2])
    return found


def test_reports():
    secret = "swordfish-of-a-test"
    with Store(password=secret) as store:
        environment = {"WEIR_REDIS_PASSWORD": secret}
        with node(store, *PATIENT, kind=Checked, environment=environment) as service:
            for _ in range(3):
                expect(service.check(event="exact", key="k").status, 200)
            status = service.steer("GET", "/v1/status").json()["store"]
            expect(status["up"], True)
            expect(store.address.startswith(status["address"]), True, status["address"])
            expect((status["calls"] >= 3, status["hosts"] >= 1, abs(status["clock_offset_s"]) < 5), (True, True, True))
            found = metrics_of(service)
            expect(set(found), METRICS)
            expect((found["weir_store_up"], found["weir_store_calls_total"] >= 3), (1, True))
            # A refusal that had to wait is in the log and among the most refused.
            with Wire(service) as wire:
                wire.ask("WEIR.CHECK", "event", "exact", "key", "hot", "cost", "101")
            top = service.steer("GET", "/v1/top").json()
            expect([(one["rule"], one["by"][0]["value"]) for one in top["subjects"]], [("exact", "hot")])
            expect([entry["by"] for entry in service.events("refused")], [{"key": "hot"}])
            expect(secret in "".join(service.lines()), False, "no password in the log")
    with Checked(rules=SHARED.replace("by: [key], on", "counters: shared, by: [key], on")) as service:
        expect(service.steer("GET", "/v1/status").json()["store"], None)
        expect(metrics_of(service), {})
        told = [entry["message"] for entry in service.events("rules") if entry["level"] == "warning"]
        expect(len(told), 1, "told once")
        expect(told[0].endswith(": leased, allow, deny"), True, told[0])
        expect(service.check(event="exact", key="k").status, 200)
