"""Limits of many hosts inside nginx: workers spend slices that the host's `weir serve` fetches from a real redis-server."""

import contextlib
import functools
import itertools
import json
import re
import signal
import subprocess
import tempfile

import pytest

from support import DEADLINE_S, WEIR, at_once, expect, until
from support.gateway import Gateway
from support.service import Service
from support.store import Store

MAX, LOCAL, HOSTS, SLICE = 400, 40, 2, 20
# Where totals are compared a slice that comes too late is not to be made up for: it is refused, and asked for again.
RULES = f"""
rules:
  - {{ id: window, match: {{ event: window }}, by: [key], lease: true, on_store_failure: deny,
      limits: [ {{ algorithm: fixed_window, max: {MAX}, per: 24h }} ] }}
  - {{ id: month, match: {{ event: month }}, by: [key], lease: true, on_store_failure: deny, limits: [ "{MAX} per month" ] }}
  - {{ id: short, match: {{ event: short }}, by: [key], lease: {{ slice: 50%, ttl: 200ms }}, on_store_failure: deny,
      limits: [ {{ algorithm: fixed_window, max: 10, per: 24h }} ] }}
  - {{ id: local, match: {{ event: local }}, by: [key], lease: true,
      limits: [ {{ algorithm: fixed_window, max: {LOCAL}, per: 24h }} ] }}
  - {{ id: allow, match: {{ event: allow }}, by: [key], lease: true, on_store_failure: allow,
      limits: [ {{ algorithm: fixed_window, max: 1, per: 24h }} ] }}
"""
BYTES = 10_000
RULES += f"""
  - {{ id: bytes, match: {{ event: bytes }}, by: [key], lease: true, on_store_failure: deny,
      limits: [ {{ algorithm: fixed_window, max: {BYTES}, per: 24h, unit: bytes }} ] }}
"""
ONCE = "rules:\n  - { id: once, counters: local, limits: [ { algorithm: fixed_window, max: 1000000, per: 24h } ] }\n"

HTTP = """
weir_zone main 32m rules=@FOLDER@/rules.yaml cells=@CELLS@;
weir_zone once 1m rules=@FOLDER@/once.yaml;
log_format verdict '$request_uri $status [$weir_verdict]';
access_log @FOLDER@/access verdict;
"""
USE = "weir main key=$arg_k event=$arg_e"
SERVER = f"""
location / {{ {USE}; empty_gif; }}
location /post/ {{ {USE}; proxy_pass http://@BACKEND@; }}
location /bytes/ {{ {USE} cost=$content_length; proxy_pass http://@BACKEND@; }}
location /after/ {{ {USE} after_auth; empty_gif; }}
location /sent/ {{ {USE} cost:bytes=1; weir_after cost:bytes=$body_bytes_sent; proxy_pass http://@BACKEND@; }}
location /both/ {{ weir once; {USE}; weir_headers always; empty_gif; }}
location /status {{ weir_status main; }}
location /once {{ weir_status once; }}
"""


class Host:
    """A `weir serve` that counts in the store, and an nginx of two workers on the same cells."""

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.cells = stack.enter_context(tempfile.TemporaryDirectory()) + "/cells"
            self.service = stack.enter_context(
                Service("--counters", store.address, "--cells", self.cells, "--hosts", HOSTS, "--resp", "off", rules=RULES))
            until(self.is_up, "the store is reached")
            rules = {"rules": RULES, "once": ONCE}
            self.nginx = stack.enter_context(
                Gateway(http=HTTP, server=SERVER, rules=rules, workers=2, names={"CELLS": self.cells}))
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *why):
        return self.stack.__exit__(*why)

    def is_up(self):
        return self.service.steer("GET", "/v1/status").json()["store"]["up"]

    def status(self, path="/status"):
        return json.loads(self.nginx.ask(path).body)

    def ask(self, event, key, **more):
        """What nginx says."""
        return self.nginx.ask(f"/?e={event}&k={key}", **more).status

    def asking(self, connection):
        return lambda event, key: self.ask(event, key, over=connection)

    def serve(self, event, key):
        """What the service says."""
        return self.status_of(self.service.check(event=event, key=key).json())

    def check(self, event, key):
        """What a program with the library says."""
        words = ["check", "--rules", self.nginx.path("rules.yaml"), "--cells", self.cells, "--event", event, "--key", key]
        done = subprocess.run([WEIR, *words], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        return self.status_of(json.loads(done.stdout))

    @staticmethod
    def status_of(verdict):
        """As nginx has it. Who is denied, since no slice came, is to come again in a second."""
        return 200 if verdict["allowed"] else 503 if verdict["retry_after_ms"] == 1000 else 429


@pytest.fixture(scope="module", autouse=True)
def host():
    """A store, and the first host on it: `store` and `a` in all of these tests."""
    global store, a
    with Store() as store, Host() as a:
        yield


def answer_of(ask, event, key):
    """200 or 429. A request that timed out (503) is sent again."""
    return until(lambda: (found := ask(event, key)) != 503 and found, "a slice")


def spend(ask, event, key, most=None):
    """How many pass until there are no more, or so many have passed."""
    passed = 0
    while most is None or passed < most:
        status = answer_of(ask, event, key)
        if status != 200:
            expect(status, 429, "a refusal")
            break
        passed += 1
    return passed


def spend_at_once(event, key, *asks):
    """The same from all of them at the same time."""
    return sum(at_once([functools.partial(spend, ask, event, key, most) for ask, most in asks]))


# ---- slices ----


def test_one_host():
    """One host finds all of it, and no more.
    Workers, the service and programs spend the same slices. Nothing is lost: all that there is is found."""
    for event in ("window", "month"):
        with a.nginx.connection_to_each() as connections:
            asks = [(a.asking(connection), None) for connection in connections]
            passed = spend_at_once(event, "one", *asks, (a.serve, None), (a.check, 5))
        # Some may have been on their way when the last of them was refused.
        total = until(lambda: (found := passed + spend(a.ask, event, "one")) and found >= MAX and found, "the rest")
        expect(total, MAX, event)
        expect([answer_of(ask, event, "one") for ask in (a.ask, a.serve, a.check)], [429] * 3, "no more")


def test_two_hosts():
    """Two hosts together."""
    with Host() as b:
        for event in ("window", "month"):
            passed = spend_at_once(event, "two", (a.ask, None), (b.ask, None), (a.serve, None), (b.serve, None))
            expect(MAX - HOSTS * SLICE <= passed <= MAX, True, f"{event}: {passed} passed")


def test_given_back():
    """What is given back. What one host does not spend another finds."""
    expect(answer_of(a.ask, "short", "back"), 200, "a slice of 5 is taken")
    with Host() as b:
        total = 1
        while total < 10:
            total += until(lambda: spend(b.ask, "short", "back"), "what the other gave back")
        expect([total, *(answer_of(ask, "short", "back") for ask in (a.ask, b.ask))], [10, 429, 429], "all of them")


# ---- requests that wait ----


def test_waits_once():
    """Each zone is asked once.
    A new subject has no slice. However often the request looks for it, each zone is asked once, and it waits once."""
    before, waited = a.status("/once")["decisions"]["allowed"], a.status()["decisions"]["waited"]
    keys = [f"w{i}" for i in range(10)]
    for key in keys:
        answer = until(lambda: (found := a.nginx.ask(f"/both/?e=window&k={key}")).status == 200 and found, "a slice")
        expect(len(answer.headers.get_all("RateLimit")), 1, "headers")
        expect(a.nginx.ask(f"/after/?e=window&k=after-{key}").status in (200, 503), True, "after access control")
    asked = a.status("/once")["decisions"]["allowed"] - before
    until(lambda: a.nginx.read("access").count("/both/") == asked, f"{asked} requests: the zone before it was asked once")
    expect(a.status()["decisions"]["waited"] - waited >= 2 * len(keys), True, "those that waited")


def test_waits_with_a_body():
    """A chunked body is read first, since the cost depends on it. Then the request waits for a slice, and the body reaches the backend."""
    waited, passed = a.status()["decisions"]["waited"], 0
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (b"a", b"b" * 8)) + b"0\r\n\r\n"
    a.nginx.backend.seen.clear()
    asked = 0
    while asked < 10 or (passed == 0 and asked < 1000):  # on a busy machine many slices come too late
        head = f"POST /bytes/?e=window&k=b{asked} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        passed += a.nginx.raw(head.encode() + body).startswith(b"HTTP/1.1 200")
        asked += 1
    expect(passed > 0, True, "some got a slice in time")
    expect([request.body for request in a.nginx.backend.seen], [b"a" + b"b" * 8] * passed, "what the backend has")
    a.nginx.backend.seen.clear()
    expect(a.status()["decisions"]["waited"] - waited, asked, "each has waited once")


def test_bytes_of_responses():
    """The bytes of a response are owed to the store. All hosts refuse when they exceed the limit."""
    path = "/sent/?e=bytes&k=sent"
    a.nginx.backend.answers["/sent/"] = (200, {}, b"x" * 1000)
    passed = 0

    def refused():
        nonlocal passed
        status = a.nginx.ask(path).status
        passed += status == 200
        return status == 429

    until(refused, "it is used up")
    # A slice that is not spent counts as used; the next request may come before the last response is charged.
    expect(BYTES // 1000 - 2 <= passed <= BYTES // 1000 + 2, True, f"{passed} passed")
    with Host() as b:
        until(lambda: b.nginx.ask(path).status == 429, "the other host")
    a.nginx.backend.seen.clear()


def test_http2():
    """Waiting on HTTP/2. Many on one connection, each for itself."""
    numbers = itertools.count()

    def some_pass():
        urls = [f"http://127.0.0.1:{a.nginx.h2_port}/?e=window&k=h{next(numbers)}" for _ in range(30)]
        done = subprocess.run(["nghttp", "-nv", *urls], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
        statuses = re.findall(r"recv \(stream_id=\d+\) :status: (\d+)", done.stdout)
        expect((len(statuses), set(statuses) <= {"200", "503"}), (30, True), f"{statuses}")
        return "200" in statuses

    until(some_pass, "slices in time")  # on a busy machine all of them may be late


def test_bodies():
    """Bodies, and what follows. They come while their request waits; and so does the next request on the connection."""
    body = bytes(range(256)) * 1024
    with contextlib.closing(a.nginx.connection()) as connection:
        statuses = [a.nginx.ask(f"/post/?e=window&k=p{i}", "POST", body, over=connection).status for i in range(5)]
    expect(set(statuses) <= {200, 503}, True, statuses)
    expect([request.body == body for request in a.nginx.backend.seen], [True] * statuses.count(200), "what came through")
    ask = "GET /?e=window&k=pipe%d HTTP/1.1\r\nHost: a\r\n%s\r\n"
    said = a.nginx.raw("".join(ask % (i, "" if i < 4 else "Connection: close\r\n") for i in range(5)).encode())
    expect(len(re.findall(rb"HTTP/1.1 (?:200|503) ", said)), 5, "in a pipeline")


def test_clients_go_away():
    """Clients that go away meanwhile.
    While the service is stopped nobody answers, and requests wait: of those that go away meanwhile no decision is made."""
    numbers = itertools.count()

    def gone():
        a.service.process.send_signal(signal.SIGSTOP)
        try:
            for _ in range(5):
                key = f"gone{next(numbers)}"
                a.nginx.raw(f"GET /?e=window&k={key} HTTP/1.1\r\nHost: a\r\n\r\n".encode(), end=True)
        finally:
            a.service.process.send_signal(signal.SIGCONT)
        return re.search(r"k=gone\d+ 499 \[-\]", a.nginx.read("access"))

    until(gone, "a request that was given up")
    words = ["timeout", "0.01", "nghttp", "-n", "-m", "20", f"http://127.0.0.1:{a.nginx.h2_port}/?e=window&k=gone-h2"]
    a.service.process.send_signal(signal.SIGSTOP)
    try:
        subprocess.run(words, capture_output=True, timeout=DEADLINE_S, check=False)
    finally:
        a.service.process.send_signal(signal.SIGCONT)
    until(lambda: a.ask("window", "gone") == 200, "slices come again")


# ---- rules ----


def test_rules_are_refused():
    """Rules that nginx does not take.
    Rules that would ask the store at every request: by `nginx -t`, and when they come while nginx runs."""
    until(lambda: answer_of(a.ask, "short", "old") == 429, "used up")
    plain = "rules:\n  - { id: plain, by: [ip], limits: [ 5 per day ] }\n"
    a.nginx.write_rules(plain, "plain")
    status, said = a.nginx.test_config(http=HTTP.replace("rules.yaml", "plain.yaml"))
    expect(status, 1, said)
    wanted = ("plain.yaml:2: rule plain counts in the store that many hosts share (the default on the cells of a `weir serve "
              "--counters`), and nothing here may wait for that; give it `lease: true`, or `counters: local`")
    expect(wanted in said, True, said)
    a.nginx.write_rules(plain)
    wanted = wanted.replace("plain.yaml", "rules.yaml")
    until(lambda: wanted in (a.status()["rules"]["problem"] or ""), "in the status")
    until(lambda: f"not all rules are in force: {a.nginx.folder}/{wanted}" in a.nginx.errors(), "in the log")
    expect(answer_of(a.ask, "short", "old"), 429, "the old rules stay")
    a.nginx.write_rules(RULES)
    until(lambda: "the rules changed" in a.nginx.errors(), "good again")


# ---- failures ----


def refuses_alone():
    """Without the store: on_store_failure."""
    until(lambda: a.ask("window", f"away{a.status()['decisions']['refused']}") == 503, "deny")
    answer = a.nginx.ask("/?e=window&k=denied")
    expect((answer.status, answer.headers["Retry-After"]), (503, "1"), "deny")
    expect(a.nginx.statuses(5, "/?e=allow&k=away"), [200] * 5, "allow")


def test_store_stops():
    """The store stops. A store that is away, and comes back with nothing: what was let through meanwhile is charged."""
    store.kill()
    until(lambda: not a.is_up(), "it is away")
    refuses_alone()
    share = LOCAL // HOSTS
    expect(spend(a.ask, "local", "away"), share, "this host's share")
    store.start()
    until(a.is_up, "it is back")
    until(lambda: a.ask("window", "back") == 200, "slices come again")
    rest = until(lambda: spend(a.ask, "local", "away"), "the rest")
    expect(0 < rest < LOCAL, True, f"{rest} more: {share} were charged")


def test_service_dies():
    """The service is killed. What it had fetched is spent; then it is as if the store were away; then there is another."""
    for event in ("window", "month"):
        expect(spend(a.ask, event, "dead", 3), 3, event)
    a.service.kill()
    for event in ("window", "month"):
        passed = sum(iter(lambda: a.ask(event, "dead") == 200, False))
        expect(0 < passed <= SLICE, True, f"{event}: {passed} in hand")
    refuses_alone()
    expect(spend(a.ask, "local", "dead"), LOCAL // HOSTS, "this host's share")
    a.service.start()
    until(lambda: a.ask("window", "dead") == 200, "slices come again")


def test_all_end_well():
    a.nginx.stop()
    a.service.stop()
