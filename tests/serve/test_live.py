"""/v1/live: an event each second, for as many clients as there may be, none of whom can harm the service."""

import json
import os
import signal
import socket
import time

import pytest

from support import DEADLINE_S, expect, has, until
from support.contract import Checked

RULES = """
rules:
  - { id: login, match: { path: /login }, by: [ip], limits: [ { name: m, algorithm: fixed_window, max: 2, per: 24h } ] }
  - { id: '<img onerror="x">', match: { event: odd }, by: [key], limits: [ "1000 per 24h" ] }
  - { id: tried, match: { event: tried }, by: [key], mode: shadow, limits: [ "0 per 1h" ] }
"""
STREAMS_MAX = 32


@pytest.fixture
def s():
    with Checked(rules=RULES) as running:
        running.steer("GET", "/v1/status")  # it has the document now
        yield running


class Listener:
    """A client of /v1/live."""

    def __init__(self, s, method="GET", version="1.1", token=None):
        self.s = s
        self.socket = s.socket(s.admin)
        self.socket.sendall(
            f"{method} /v1/live HTTP/{version}\r\nHost: localhost\r\nAuthorization: Bearer {token or s.token}\r\n\r\n".encode()
        )
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers = {}
        for line in iter(self.file.readline, b"\r\n"):
            name, value = line.decode().strip().split(": ", 1)
            self.headers[name.lower()] = value
        self.chunked = self.headers.get("transfer-encoding") == "chunked"
        self.text = b""
        self.over = False  # the answer is complete

    def __enter__(self):
        return self

    def __exit__(self, *details):
        self.close()

    def close(self):
        self.file.close()
        self.socket.close()

    def more(self):
        """False: there is no more."""
        if not self.chunked:
            line = self.file.readline()
            self.text += line
            return bool(line)
        head = self.file.readline()
        size = int(head or b"0", 16)
        self.over = bool(head) and size == 0
        self.text += self.file.read(size)
        self.file.readline()
        return size > 0

    def block(self):
        """Up to an empty line; None: the stream has ended."""
        while b"\n\n" not in self.text:
            if not self.more():
                return None
        block, self.text = self.text.split(b"\n\n", 1)
        return block.decode()

    def event(self):
        block = self.block()
        while block is not None and not block.startswith("data: "):
            expect(block, "retry: 2000", "a field")
            block = self.block()
        if block is None:
            return None
        expect("\n" in block, False, "one line")
        event = json.loads(block[len("data: ") :])
        Checked.document.fits({"$ref": "#/components/schemas/Live"}, event)
        return event


def decide(s, **request):
    s.check(**request)


def streams(s):
    """How many there are, as one of them is told."""
    with Listener(s) as listener:
        return listener.event()["streams"]


def test_events(s):
    with Listener(s) as listener:
        expect(listener.status, 200)
        expect(listener.headers["content-type"], "text/event-stream")
        expect(listener.headers["cache-control"], "no-store")
        first = listener.event()
        expect((first["interval_s"], first["rules"]["source_reachable"], first["rules"]["source_problem"]), (0, True, None))
        expect(first["decisions"], {"allowed": 0, "refused": 0, "shadow": 0, "without_rule": 0})
        expect((first["busiest"], first["rules"]["count"], first["store"], first["streams"]), ([], 3, None, 1))
        for _ in range(5):
            decide(s, path="/login", ip="192.0.2.1")
        for _ in range(4):
            decide(s, event="odd", key="k")
        decide(s, event="tried", key="k")
        decide(s, event="none")
        sums, rules, spent = {}, {}, 0
        while sum(sums.get(name, 0) for name in ("allowed", "refused")) < 11:
            event = listener.event()
            spent += event["interval_s"]
            for name, value in event["decisions"].items():
                sums[name] = sums.get(name, 0) + value
            for rule in event["busiest"]:
                said = rules.setdefault(rule["rule"], [0, 0, 0])
                for i, name in enumerate(("passed", "refused", "would_refuse")):
                    said[i] += rule[name]
        expect(sums, {"allowed": 8, "refused": 3, "shadow": 1, "without_rule": 1})
        expect(rules, {"login": [2, 3, 0], '<img onerror="x">': [4, 0, 0], "tried": [0, 0, 1]})
        version = event["rules"]["version"]
        s.write_rules(RULES + '  - { id: more, limits: [ "1 per 1h" ] }\n')
        until(lambda: listener.event()["rules"] == {**event["rules"], "count": 4, "version": version + 1}, "new rules")


def test_all_hear_the_same(s):
    with Listener(s) as one, Listener(s) as two:
        decide(s, event="odd", key="k")
        heard = [{event["time"]: event for event in (listener.event() for _ in range(3))} for listener in (one, two)]
        same = set(heard[0]) & set(heard[1])
        expect(bool(same), True, heard)
        for moment in same:
            expect(heard[0][moment], heard[1][moment], moment)


def test_the_first_event_comes_at_once(s):
    """It is the newest one that others have."""
    with Listener(s) as one:
        event = one.event()
        expect(event["interval_s"], 0, "nothing was waited for")
        with Listener(s) as two:
            early = two.event()
            heard = [event]
            while heard[-1]["time"] < early["time"]:
                heard.append(one.event())
            expect(early in heard, True, "what others have heard")
            expect(two.event()["time"] > early["time"], True)


def test_the_source_is_gone(s):
    with Listener(s) as listener:
        os.rename(s.rules_file, s.rules_file + ".away")
        rules = until_event(listener, lambda rules: not rules["source_reachable"])
        has(rules["source_problem"], s.rules_file)
        os.rename(s.rules_file + ".away", s.rules_file)
        expect(until_event(listener, lambda rules: rules["source_reachable"])["source_problem"], None)


def until_event(listener, wanted):
    """The rules of the first event that is wanted."""
    found = []
    until(lambda: found.append(listener.event()["rules"]) or wanted(found[-1]), "such an event")
    return found[-1]


def test_http_1_0(s):
    """Such clients know no chunks."""
    with Listener(s, version="1.0") as listener:
        expect((listener.status, listener.chunked), (200, False))
        expect(listener.event()["streams"], 1)


def test_head(s):
    with Listener(s, method="HEAD") as listener:
        expect((listener.status, listener.headers["content-type"]), (200, "text/event-stream"))
        # The connection goes on, and nothing but the next answer comes.
        line = f"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {s.token}\r\nConnection: close\r\n\r\n"
        listener.socket.sendall(line.encode())
        expect(listener.file.readline(), b"HTTP/1.1 200 OK\r\n")
    expect(streams(s), 1, "none is left")


def test_access(s):
    with Listener(s, token="wrong") as listener:
        expect(listener.status, 401)
    expect(s.ask(s.admin, "GET", "/v1/live").status, 401)
    expect(s.steer("POST", "/v1/live", {}).status, 405)
    expect(s.steer("GET", "/v1/live?x=1").status, 400)


def test_too_many(s):
    listeners = [Listener(s) for _ in range(STREAMS_MAX)]
    expect({listener.status for listener in listeners}, {200})
    for listener in (listeners[-1], listeners[0]):
        until(lambda: listener.event()["streams"] == STREAMS_MAX, "all are there")
    answer = s.steer("GET", "/v1/live")
    expect((answer.status, answer.headers["Retry-After"]), (503, "5"))
    for listener in listeners[1:]:
        listener.close()
    until(lambda: listeners[0].event()["streams"] == 1, "those that left are gone")
    expect(s.steer("HEAD", "/v1/live").status, 200)
    listeners[0].close()


def test_a_new_token_ends_them(s):
    with Listener(s) as listener:
        listener.event()
        path = os.path.join(s.data, "admin-token")
        os.unlink(path)
        s.process.send_signal(signal.SIGHUP)
        while listener.event():
            pass
        expect(listener.over, True, "it ends well")
    with Listener(s) as listener:
        expect(listener.status, 401, "with the old token")


def test_stop(s):
    """A stop ends streams at once: it would wait 30 s for others."""
    s.flags += ["--drain", "10m"]
    s.restart()
    with Listener(s) as listener, Listener(s) as silent:
        listener.event()
        silent.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        s.stop()
        while listener.event():
            pass
        expect(listener.over, True, "it ends well")


def test_kill_under_a_stream(s):
    with Listener(s) as listener:
        listener.event()
        s.kill()
        with pytest.raises((ConnectionError, ValueError, AssertionError)):
            while listener.event():
                pass
            raise ConnectionError("it has ended")
    s.start()
    expect(streams(s), 1)


def test_longer_than_a_request_may_take():
    """Its timeout is that of a peer that receives nothing."""
    with Checked("--request", "1s", "--idle", "1s", rules=RULES) as s:
        s.steer("GET", "/v1/status")
        with Listener(s) as listener:
            begin = time.monotonic()
            while time.monotonic() - begin < 8:
                expect(bool(listener.event()), True, "it lives")
            expect(s.steer("GET", "/v1/status").json()["connections"]["overdue"], 0)


def stuck(s):
    """A client that reads nothing, and has little room for what comes."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    client.settimeout(DEADLINE_S)
    client.connect(s.admin)
    client.sendall(f"GET /v1/live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {s.token}\r\n\r\n".encode())
    return client


def test_a_client_that_does_not_read():
    with Checked("--request", "2s", rules=RULES) as s:
        s.steer("GET", "/v1/status")
        with stuck(s), Listener(s) as listener:
            until(lambda: listener.event()["streams"] == 2, "both are there")
            until(lambda: listener.event()["streams"] == 1, "the stuck one is gone")
            expect(s.steer("GET", "/v1/status").json()["connections"]["overdue"], 1)
            has(json.dumps(listener.event()), '"streams": 1')


def test_unix_socket(folder):
    with Checked("--admin", f"unix:{folder}/admin", "--request", "1s", rules=RULES) as s:
        with Listener(s) as listener:
            for _ in range(8):
                expect(listener.event()["streams"], 1)


def test_pipelined_requests_wait(s):
    """A request behind an answer without an end is not answered, and harms nobody."""
    with Listener(s) as listener:
        listener.socket.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
        for _ in range(3):
            expect(bool(listener.event()), True)
    expect(streams(s) <= 2, True)
