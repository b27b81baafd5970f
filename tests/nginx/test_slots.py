"""Limits with `concurrent`: a slot is taken while the request runs, and free when it is over, on every path."""

import contextlib
import json
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from support import DEADLINE_S, expect, until
from support.gateway import Gateway

HTTP = """
weir_zone main 1m rules=@FOLDER@/rules.yaml;
weir_zone other 1m rules=@FOLDER@/other.yaml;
weir_zone kept 1m rules=@FOLDER@/rules.yaml cells=@FOLDER@/cells;
"""
SLOW = "proxy_pass http://@SLOW@;"
PASS = "proxy_pass http://@BACKEND@;"
SERVER = f"""
root @FOLDER@;
proxy_buffering off;
recursive_error_pages on;
location / {{ weir main; {SLOW} }}
location = /status {{ weir_status main; }}
location = /status/other {{ weir_status other; }}
location = /status/kept {{ weir_status kept; }}
location /fast/ {{ weir main; {PASS} }}
location /timeout {{ weir main; proxy_read_timeout 200ms; {SLOW} }}
location /down {{ weir main; proxy_pass http://127.0.0.1:1; }}
location /page {{ weir main; proxy_intercept_errors on; error_page 404 = @page; {PASS} }}
location @page {{ weir other; {SLOW} }}
location /accel {{ weir main; {PASS} }}
location /inside/ {{ internal; weir other; {SLOW} }}
location /rewritten {{ weir main; try_files /none /inside/tried; }}
location /return {{ weir main; return 204; }}
location /moved {{ weir main; return 301 /; }}
location /gif {{ weir main; empty_gif; }}
location /file {{ weir main; }}
location /none {{ weir main; return 444; }}
location /auth {{ weir main; auth_request /sub/auth; {SLOW} }}
location /forbidden {{ weir main; auth_request /sub/no; {SLOW} }}
location /mirror {{ weir main; mirror /sub/mirror; {SLOW} }}
location /ssi {{ weir main; ssi on; ssi_types *; {PASS} }}
location /sub/ {{ weir main; {PASS} }}
location /later {{ weir main after_auth; {SLOW} }}
location /both {{ weir main; weir other; {SLOW} }}
location /second {{ weir main; weir other path=/never; {SLOW} }}
location /dry {{ weir main; weir_dry_run on; {SLOW} }}
location /kept {{ weir kept; {SLOW} }}
location /socket {{
    weir main;
    proxy_http_version 1.1;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection upgrade;
    {SLOW}
}}
"""
FOR_EVER = "ttl: 24h"  # what is not freed stays taken
RULES = {
    "rules": f"""
rules:
  - {{ id: run, match: {{ path: {{ not: [ /short, "/shadow/*", /socket, "/stress/*" ] }} }}, by: path, limits: [ {{ name: running, concurrent: 2, {FOR_EVER} }} ] }}
  - {{ id: shadow, match: {{ path: "/shadow/*" }}, by: path, mode: shadow, limits: [ {{ name: running, concurrent: 1, {FOR_EVER} }} ] }}
  - {{ id: short, match: {{ path: [ /short, /socket ] }}, by: path, limits: [ {{ name: running, concurrent: 1, ttl: 10s }}, 1000 per 1m ] }}
  - {{ id: stress, match: {{ path: "/stress/*" }}, limits: [ {{ name: running, concurrent: 5, ttl: 2s }} ] }}
""",
    "other": f"""
rules:
  - {{ id: never, match: {{ path: /never }}, limits: [ {{ max: 0, per: 1h }} ] }}
  - {{ id: all, limits: [ {{ name: running, concurrent: 2, {FOR_EVER} }} ] }}
""",
}
g = Gateway(http=HTTP, server=SERVER, rules=RULES, workers=2)


class Slow:
    """A backend that answers when it is told to."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.asked = queue.Queue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                connection = self.listener.accept()[0]
                connection.settimeout(DEADLINE_S)
                self.asked.put(connection)

    def take(self):
        """The next connection, when its request is there."""
        connection = self.asked.get(timeout=DEADLINE_S)
        request = b""
        while b"\r\n\r\n" not in request:
            part = connection.recv(65536)
            expect(len(part) > 0, True, "a whole request")
            request += part
        return connection

    def pass_over(self, path):
        """Drops the connections that came before the request for this path, whose clients are gone, and that one."""
        request = b""
        while path not in request:
            with self.asked.get(timeout=DEADLINE_S) as connection, contextlib.suppress(ConnectionError):
                request = connection.recv(65536)

    def answer(self, body=b"ok"):
        connection = self.take()
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        connection.close()


@pytest.fixture(scope="module")
def backends():
    server = Slow()
    g.names["SLOW"] = "{}:{}".format(*server.listener.getsockname())
    yield server
    server.listener.close()


@pytest.fixture(name="slow", autouse=True)
def fixture_slow(backends):
    """Each test ends with nothing in flight."""
    yield backends
    for zone in ("", "/other", "/kept"):
        for rule in holds(zone):
            expect_holds(rule, 0, zone)


def holds(zone=""):
    return {entry["rule"]: entry["holds"] for entry in json.loads(g.ask("/status" + zone).body)["holds"]}


def expect_holds(rule, wanted, zone=""):
    """The answer may be there a moment before the request is over."""
    until(lambda: holds(zone)[rule] == wanted, f"{wanted} of {rule} in flight, not {holds(zone)}")


def begin(path, more=""):
    """A request whose answer is not waited for."""
    s = socket.create_connection(("127.0.0.1", g.port), DEADLINE_S)
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\n{more}\r\n".encode())
    return s


def status_of(s):
    with s, s.makefile("rb") as answer:
        return int(answer.readline().split()[1])


# ---- as it should be ----


def test_answers(slow):
    first, second = begin("/a"), begin("/a")
    expect_holds("run", 2)
    refused = g.ask("/a")
    expect((refused.status, refused.headers["Retry-After"]), (429, "1"), "the third at once")
    other = begin("/b")
    expect_holds("run", 3)
    for _ in range(3):
        slow.answer()
    expect([status_of(s) for s in (first, second, other)], [200] * 3)
    expect_holds("run", 0)
    prometheus = g.ask("/status?format=prometheus").body.decode()
    expect('weir_holds{zone="main",rule="run",limit="running"} 0\n' in prometheus, True, prometheus)


def test_keep_alive():
    """A slot is free before the next request of its connection, or the next of its client, is read."""
    with contextlib.closing(g.connection()) as connection:
        for _ in range(10):
            expect(g.ask("/fast/keep", over=connection).status, 200)
    many = b"GET /fast/pipe HTTP/1.1\r\nHost: h\r\n\r\n" * 10 + b"GET /fast/pipe HTTP/1.0\r\n\r\n"
    expect(g.raw(many).count(b"HTTP/1.1 200"), 11, "in one piece")


@pytest.mark.parametrize("path, status", [("/return", 204), ("/moved", 301), ("/gif", 200), ("/file", 200), ("/file/none", 404),
                                          ("/down", 502), ("/fast/x", 200)])
def test_short_ways(path, status):
    g.write("file", "text")
    expect(g.statuses(5, path), [status] * 5)


def test_no_answer_at_all():
    for _ in range(5):
        expect(g.raw(b"GET /none HTTP/1.1\r\nHost: h\r\n\r\n"), b"", "return 444")


# ---- requests that end badly ----


def test_client_is_gone(slow):
    for path in ("/gone", "/later"):
        clients = [begin(path), begin(path)]
        expect_holds("run", 2)
        for s in clients:
            s.close()
        expect_holds("run", 0)
        for _ in range(2):
            slow.asked.get(timeout=DEADLINE_S).close()


def test_client_is_gone_during_the_answer(slow):
    client = begin("/stream")
    upstream = slow.take()
    upstream.sendall(b"HTTP/1.0 200 OK\r\n\r\nfirst")
    expect(client.recv(12), b"HTTP/1.1 200")
    expect_holds("run", 1)
    client.close()
    expect_holds("run", 0)
    upstream.close()


def test_upstream_fails(slow):
    expect(g.ask("/timeout").status, 504)
    slow.take().close()
    client = begin("/closed")
    slow.take().close()
    expect(status_of(client), 502)
    client = begin("/short-answer")
    upstream = slow.take()
    upstream.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    upstream.close()
    expect(status_of(client), 200)


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is missing")
def test_stream_is_reset(slow):
    words = ["curl", "-s", "--http2-prior-knowledge", f"http://127.0.0.1:{g.h2_port}/h2"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as client:
        expect_holds("run", 1)
        client.kill()
    expect_holds("run", 0)
    slow.asked.get(timeout=DEADLINE_S).close()


# ---- requests that are decided more than once ----


@pytest.mark.parametrize("path", ["/page", "/accel", "/rewritten", "/both"])
def test_a_hold_for_each_decision(path, slow):
    g.backend.answers["/page"] = (404, {}, b"")
    g.backend.answers["/accel"] = (200, {"X-Accel-Redirect": "/inside/x"}, b"")
    client = begin(path)
    expect_holds("run", 1)
    expect_holds("all", 1, "/other")
    slow.answer()
    expect(status_of(client), 200)
    expect_holds("all", 0, "/other")
    client = begin(path)
    expect_holds("all", 1, "/other")
    client.close()
    expect_holds("all", 0, "/other")
    slow.asked.get(timeout=DEADLINE_S).close()


def test_refused_by_the_second_zone():
    expect(g.statuses(5, "/second"), [429] * 5)


def test_subrequests(slow):
    g.backend.answers["/sub/no"] = (403, {}, b"")
    g.backend.answers["/ssi"] = (200, {}, b'<!--# include virtual="/sub/one" --><!--# include virtual="/sub/two" -->')
    expect((g.ask("/forbidden").status, g.ask("/ssi").body), (403, b"okok"))
    for path in ("/auth", "/mirror"):
        client = begin(path)
        expect_holds("run", 1)
        slow.answer()
        expect(status_of(client), 200)


# ---- rules that do not refuse ----


def test_dry_run_and_shadow(slow):
    for path, rule, most in (("/dry", "run", 2), ("/shadow/x", "shadow", 1)):
        clients = [begin(path) for _ in range(4)]
        for _ in clients:
            slow.answer()
        expect([status_of(s) for s in clients], [200] * 4, path)
        clients = [begin(path) for _ in range(most)]
        expect_holds(rule, most)
        for s in clients:
            slow.answer()
            s.close()
        expect_holds(rule, 0)


# ---- processes ----


def test_reload(slow):
    client = begin("/reloaded")
    expect_holds("run", 1)
    g.reload()
    expect(holds()["run"], 1, "a request of an old worker")
    second = begin("/reloaded")
    expect_holds("run", 2)
    expect(g.ask("/reloaded").status, 429)
    for s in (client, second):
        slow.answer()
        expect(status_of(s), 200)


def test_rules_change(slow):
    """A slot of a rule that is removed meanwhile is free when the rule is back."""
    client = begin("/changed")
    expect_holds("run", 1)
    g.write_rules("rules: []")
    until(lambda: holds() == {}, "other rules")
    slow.answer()
    expect(status_of(client), 200)
    again = begin("/changed")
    g.write_rules(RULES["rules"].replace("concurrent: 2", "concurrent: 3"))
    until(lambda: "run" in holds(), "the rules are back")
    slow.answer()
    expect(status_of(again), 200)
    g.write_rules(RULES["rules"])
    g.reload()  # each worker reads changed rules for itself, and one may still have none


def test_worker_is_killed(slow):
    client = begin("/short")
    expect_holds("short", 1)
    upstream = slow.take()
    for pid in g.workers():
        os.kill(pid, signal.SIGKILL)
    client.close()
    until(lambda: len(g.workers()) == 2 and g.ask("/status").status == 200, "new workers")
    expect_holds("short", 0)
    upstream.close()


@pytest.mark.parametrize("zone, path", [("", "/killed"), ("/kept", "/kept")])
def test_slots_of_a_killed_worker_are_free(zone, path, slow):
    """They do not wait for their time to live, which is a day."""
    clients = [begin(path), begin(path)]
    expect_holds("run", 2, zone)
    upstreams = [slow.take(), slow.take()]
    expect(g.ask(path).status, 429)
    for pid in g.workers():
        os.kill(pid, signal.SIGKILL)
    for s in (*clients, *upstreams):
        s.close()
    until(lambda: len(g.workers()) == 2 and g.ask("/status").status == 200, "new workers")
    expect_holds("run", 0, zone)
    again = [begin(path), begin(path)]
    for s in again:
        slow.answer()
    expect([status_of(s) for s in again], [200, 200])


def test_worker_ends_without_its_requests(slow):
    """Nothing waits for the time to live, where nginx tells its workers to end at once."""
    client = begin("/kept")
    expect_holds("run", 1, "/kept")
    g.process.terminate()
    expect(g.process.wait(DEADLINE_S), 0)
    client.close()
    g.start()
    expect(holds("/kept")["run"], 0)
    slow.take().close()


def come_and_go(number, stop, found):
    """Clients that wait for the answer, and clients that do not."""
    rng = random.Random(number)
    while not stop.is_set():
        with contextlib.suppress(OSError, IndexError, ValueError):
            client = begin(f"/stress/{number}")
            if rng.random() < 0.5:
                client.settimeout(rng.random() / 10)
                client.recv(1)
                found.append(1)
            client.close()


def answer_some(slow, stop):
    rng = random.Random(1)
    while not stop.is_set() or not slow.asked.empty():
        with contextlib.suppress(OSError, queue.Empty):
            connection = slow.asked.get(timeout=0.05)
            if rng.random() < 0.7:
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")
            connection.close()


def test_stress(slow):
    """Never more than there are slots, and none in the end: with clients that go, workers that are killed and reloads."""
    stop, found = threading.Event(), []
    threads = [threading.Thread(target=come_and_go, args=(i, stop, found)) for i in range(12)]
    threads.append(threading.Thread(target=answer_some, args=(slow, stop)))
    for thread in threads:
        thread.start()
    try:
        for i in range(12):
            expect(holds()["stress"] <= 5, True, "no more than there are")
            if i % 4 == 3:
                g.reload()
            elif i % 2 == 0:
                before = len(found)
                os.kill(g.workers()[0], signal.SIGKILL)
                until(lambda: len(g.workers()) == 2 and len(found) > before, "it goes on")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    expect_holds("stress", 0)
    with begin("/stress/last"):
        slow.pass_over(b"/stress/last")


# ---- requests that outlive the time to live ----


def test_renewed(slow):
    """Twice as long as a worker that renews nothing would need to lose it."""
    download, upgraded = begin("/short"), begin("/socket", "Upgrade: x\r\nConnection: upgrade\r\n")
    expect_holds("short", 2)
    upstream = [slow.take(), slow.take()]
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > 13, "more than the time to live")
    expect(holds()["short"], 2, "still in flight")
    expect((g.ask("/short").status, g.ask("/socket").status), (429, 429))
    for s in (*upstream, download, upgraded):
        s.close()


def test_renewed_sooner(slow):
    """The rules make the time to live shorter while the request runs. The next time but one it would be too late."""
    download = begin("/short")
    expect_holds("short", 1)
    upstream = slow.take()
    g.write_rules(RULES["rules"].replace("ttl: 10s", "ttl: 3s"))
    begun, found = time.monotonic(), set()
    while time.monotonic() - begun < 11:
        found.add(holds()["short"])
        time.sleep(0.1)
    expect(found, {1}, "in flight all the time")
    for s in (upstream, download):
        s.close()
    g.write_rules(RULES["rules"])
