"""What a peer can do to `weir serve`: take connections, trickle, send too much. Decisions go on."""

import http.client
import json
import os
import resource
import signal
import socket
import time

import support
from support import DEADLINE_S, expect, until
from support.service import Service

IDLE = 10000
CHECK = b"*5\r\n$10\r\nWEIR.CHECK\r\n$5\r\nevent\r\n$3\r\nocr\r\n$3\r\nkey\r\n$2\r\n%s\r\n"
RULES = """
rules:
  - { id: ocr, match: { event: ocr }, by: [key], limits: [ "1000000 per 1h" ] }
"""


def connect(where, source="127.0.0.1"):
    return socket.create_connection(where, DEADLINE_S, source_address=(source, 0))


def in_time(work, limit_s):
    """Does it until it took less than that: who stands still for as long may be cut off, by right."""

    def done():
        begin = time.monotonic()
        try:
            work()
        except (OSError, AssertionError, http.client.HTTPException):
            if time.monotonic() - begin < limit_s:
                raise
            return False
        return True

    until(done, f"something takes less than {limit_s} s")


def decides(s, limit_s=DEADLINE_S):
    """Over both listeners, on new connections. limit_s: what the service gives a client."""

    def ask():
        expect(s.check(event="ocr", key="u1").status, 200, "over HTTP")
        with s.socket(s.resp) as c:
            c.sendall(CHECK % b"u1")
            expect(c.recv(100)[:6], b"*7\r\n:1", "over RESP")

    in_time(ask, limit_s)


def is_closed(c):
    """Without waiting."""
    c.setblocking(False)
    try:
        return c.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def ends(c, what):
    """Reads to the end; what came."""
    text = b""
    c.settimeout(DEADLINE_S)
    try:
        while True:
            piece = c.recv(65536)
            if not piece:
                return text
            text += piece
    except ConnectionError:
        return text
    except socket.timeout as error:
        raise AssertionError(f"{what}: still open after {DEADLINE_S} s") from error


def test_ten_thousand_idle():
    """10,000 idle connections, and decisions go on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, IDLE + 1000), hard))
    with Service("--connections", 18000, rules=RULES) as s:
        held = []
        try:
            for i in range(IDLE):
                held.append(connect(s.resp if i % 2 else s.http, f"127.0.0.{1 + i % 8}"))
            until(lambda: s.steer("GET", "/v1/status").json()["connections"]["open"] >= IDLE, "all are counted")
            decides(s)
            expect(sum(map(is_closed, held)), 0, "closed, though there was room")
            # Whoever comes after many others is served too.
            for c in (held[0], held[-2]):
                c.setblocking(True)
                c.sendall(b"GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n")
                expect(c.recv(12), b"HTTP/1.1 404")
        finally:
            for c in held:
                c.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_idle_ones_give_way(service):
    """The longest idle give way, of the same address first."""
    s = service("--connections", 60, "--connections-per-address", 50, "--threads", 1, rules=RULES)
    held = [connect(s.http, "127.0.0.2") for i in range(200)]
    until(lambda: sum(map(is_closed, held)) >= 150, "the address keeps 50")
    decides(s)
    expect(sum(map(is_closed, held[150:])), 0, "those that came last stay")
    others = [connect(s.resp, "127.0.0.3") for i in range(30)]
    until(lambda: sum(map(is_closed, held)) >= 170, "there are 60 in all")
    decides(s)
    counts = s.steer("GET", "/v1/status").json()["connections"]
    if counts["gave_way"] < 170:
        raise AssertionError(counts)
    for c in held + others:
        c.close()


TRICKLES = [
    ("http", b"POST /v1/check HTTP/1.1\r\nHost: x\r\nX-Slow: "),
    ("http", b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"),
    ("http", b""),
    ("resp", b"*3\r\n$10000\r\n"),
    ("resp", b"PING"),
    ("admin", b"GET /healthz HTTP/1.1\r\nHost: "),
]


def test_trickling_does_not_help(service):
    """A trickle of bytes extends nothing."""
    s = service("--request", "600ms", "--idle", "900ms", rules=RULES)
    slow = []
    for front, text in TRICKLES * 20:
        c = s.socket(getattr(s, front))
        c.sendall(text)
        slow.append(c)
    left, end = slow, time.monotonic() + DEADLINE_S
    while left:
        if time.monotonic() > end:
            raise AssertionError(f"{len(left)} are still open")
        decides(s, 0.5)
        for c in left:
            try:
                c.send(b"1")
            except OSError:
                pass
        left = [c for c in left if not is_closed(c)]
        time.sleep(0.05)
    for c in slow:
        c.close()
    overdue = s.steer("GET", "/v1/status").json()["connections"]["overdue"]
    if overdue < len(slow):
        raise AssertionError(f"{overdue} were counted as overdue, of {len(slow)}")


def test_busy_ones_are_not_cut_off(service):
    """A connection that goes on asking lives longer than one request may take."""
    s = service("--request", "500ms", "--idle", "500ms", rules=RULES)

    def asks_for(seconds):
        """How long it took at most from one answer to the next, and whether the last one came."""
        begin = last = time.monotonic()
        longest = 0
        with s.socket(s.resp) as c:
            while last < begin + seconds:
                try:
                    c.sendall(CHECK % b"u1")
                    answered = c.recv(100)[:6] == b"*7\r\n:1"
                except ConnectionError:
                    answered = False
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
                if not answered:
                    return longest, False
                time.sleep(0.02)
        return longest, True

    # A client that stood still for longer was idle, and is asked again.
    longest, answered = until(lambda: (found := asks_for(1.5)) and (found[1] or found[0] < 0.4) and found, "all in time")
    expect(answered, True, f"cut off, {longest:.3f} s after an answer")


def test_who_stands_still_himself_hears_first(service):
    """A service that was stopped for longer than a client may be idle: what came meanwhile is answered."""
    s = service("--request", "1s", "--idle", "1s", rules=RULES)

    def ask():
        begin = time.monotonic()
        clients = [s.socket(s.resp if i % 2 else s.http) for i in range(20)]
        until(lambda: s.steer("GET", "/v1/status").json()["connections"]["open"] > len(clients), "all are taken in")
        s.process.send_signal(signal.SIGSTOP)
        in_force = time.monotonic() - begin < 0.7
        for i, c in enumerate(clients):
            c.sendall(b"PING\r\n" if i % 2 else b"GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(1.2)
        s.process.send_signal(signal.SIGCONT)
        found = [ends_or_answers(c) for c in clients]
        for c in clients:
            c.close()
        return in_force and found

    found = until(ask, "clients that are quick enough")
    expect(found, [b"HTTP/1.1 404", b"+PONG\r\n"] * 10)


def ends_or_answers(c):
    try:
        return c.recv(12)
    except ConnectionError:
        return b""


def test_too_much(service):
    """Bodies, headers and commands that are too large."""
    s = service("--request-bytes", "10k", "--header-bytes", "4k", rules=RULES)
    with s.socket(s.http) as c:
        c.sendall(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10241\r\n\r\n")
        expect(ends(c, "a body of 10,241 bytes")[:12], b"HTTP/1.1 413")
    with s.socket(s.http) as c:
        c.sendall(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(100):
                c.sendall(b"400\r\n" + b" " * 0x400 + b"\r\n")
        except OSError:
            pass
        if b"HTTP/1.1 200" in ends(c, "a body of pieces"):
            raise AssertionError("a body of pieces that is too large was accepted")
    with s.socket(s.http) as c:
        try:
            c.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Large: " + b"x" * 20000 + b"\r\n\r\n")
        except OSError:
            pass
        expect(c.recv(12), b"HTTP/1.1 431", "headers of 20,000 bytes")
    with s.socket(s.http) as c:
        c.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: 1\r\n" % i for i in range(150)) + b"\r\n")
        expect(c.recv(12), b"HTTP/1.1 431", "150 headers")
    with s.socket(s.resp) as c:
        try:
            c.sendall(b"*2\r\n$4\r\nECHO\r\n$20000\r\n" + b"x" * 20000)
        except OSError:
            pass
        if not ends(c, "a command of 20,000 bytes").startswith(b"-ERR"):
            raise AssertionError("a command of 20,000 bytes was accepted")
    decides(s)


GATEWAY = """
settings: { trusted_proxies: [127.0.0.0/8] }
rules:
  - { id: all, match: { path: "/*" }, by: [ip], limits: [ { algorithm: fixed_window, max: 1000000, per: 1h } ] }
"""
FORWARDED = (
    b"GET /v1/auth HTTP/1.1\r\nHost: x\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /a\r\nX-Forwarded-For: 203.0.113.9\r\n"
)


def padding(kind, size):
    if kind == "one":
        return b"X-Pad: " + b"x" * size + b"\r\n"
    if kind == "many":
        return b"".join(b"X-%02d: " % i + b"x" * (size // 90) + b"\r\n" for i in range(90))
    if kind == "cookies":
        return b"Cookie: " + b"; ".join(b"c%d=%d" % (i, i) for i in range(size // 12)) + b"\r\n"
    return b"Cookie: c=" + b"y" * size + b"\r\n"


def test_no_charge_without_an_answer(service):
    """Headers of all sizes around the bound of 8 KiB: a request that is charged is answered, and up to twice
    the bound no request is left without an answer. (A gateway that lets requests pass while weir is unavailable would let it pass.)"""
    s = service("--threads", 1, rules=GATEWAY)

    def used():
        return 1000000 - s.check(path="/a", ip="203.0.113.9", cost=0).json()["remaining"]

    before, statuses = 0, set()
    for kind in ("one", "many", "cookies", "cookie"):
        for size in [*range(3000, 9000, 131), *range(9000, 40000, 311)]:
            with s.socket(s.http) as c:
                c.sendall(FORWARDED + padding(kind, size) + b"\r\n")
                c.settimeout(DEADLINE_S)
                try:
                    status = c.recv(12)[9:12]
                except ConnectionError:
                    status = b""
            after = used()
            # Far more, or so many cookies, are beyond the library, which may then close without a word.
            silent = status == b"" and kind != "cookies" and size <= 16384
            if silent or after - before != (1 if status == b"200" else 0):
                raise AssertionError(f"{kind}, {size} bytes: charged {after - before}, answered {status!r}")
            before = after
            statuses.add(status)
    expect({b"200", b"431"} <= statuses, True, statuses)


def test_lengths_are_clear():
    """Lengths that can be read in two ways."""
    body = b'{"event": "ocr", "key": "u1"}'
    head = b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with Service(rules=RULES) as s:
        for headers, status in (
            (b"Content-Length: 29\r\nContent-Length: 5\r\n", b"400"),
            (b"Content-Length: 29\r\nTransfer-Encoding: chunked\r\n", b"400"),
            (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"400"),
            (b"Transfer-Encoding: gzip\r\n", b"501"),
            (b"Content-Length: 29\r\n", b"200"),
        ):
            with s.socket(s.http) as c:
                c.sendall(head + headers + b"Connection: close\r\n\r\n" + body)
                expect(ends(c, headers)[9:12], status, headers)
        with s.socket(s.http) as c:
            c.sendall(head.replace(b"/v1", b"http://example.com/v1") + b"Content-Length: 29\r\n\r\n" + body)
            expect(c.recv(12), b"HTTP/1.1 200", "an absolute URI")


def test_strangers_take_no_memory(service):
    """Without the token nothing that is sent is kept."""
    s = service(rules=RULES)
    s.stop()
    token = f"{s.folder.name}/token"
    with open(token, "w", encoding="ascii") as out:
        out.write("a-token-that-nobody-knows")
    s.flags += ["--token-file", token]
    s.start()
    before, held = s.allocated(), []
    for i in range(300):
        c = s.socket(s.http if i % 2 else s.resp)
        c.settimeout(5)
        try:
            if i % 2:
                c.sendall(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 900000)
            else:
                c.sendall(b"*2\r\n$4\r\nECHO\r\n$1000000\r\n" + b"x" * 900000)
        except OSError:
            pass
        held.append(c)
    grown = s.allocated() - before
    expect(support.SANITIZED or grown < 64 << 20, True, f"{grown} bytes more")
    for c in held:
        c.close()


def test_slow_senders_give_way(service):
    s = service("--connections", 60, "--connections-per-address", 20, "--threads", 1, rules=RULES)
    slow = []
    for i in range(120):
        c = connect(s.http if i % 2 else s.resp, f"127.0.0.{2 + i % 4}")
        c.sendall(b"POST /v1/check HTTP/1.1\r\nHost: x\r\n" if i % 2 else b"*2\r\n$4\r\nECHO\r\n")
        slow.append(c)
        if i % 20 == 19:
            decides(s)
    decides(s)
    for c in slow:
        c.close()


def test_admin_connections_are_apart():
    """Connections of the admin listener are apart. However many there are, decisions have their descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    try:
        with Service("--connections", 1000, "--threads", 1, rules=RULES) as s:
            held = [connect(s.admin) for _ in range(1200)] + [connect(s.resp) for _ in range(1200)]
            until(lambda: s.steer("GET", "/v1/status").status == 200, "the admin listener answers")
            decides(s)
            for c in held:
                c.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_out_of_descriptors():
    """Fewer than the connections that are there: the longest idle give way, and newcomers are served."""
    code = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80)); os.execv(sys.argv[1], sys.argv[1:])"

    class Poor(Service):
        def command(self):
            return ["setpriv", "--bounding-set=-sys_resource", "/usr/bin/python3", "-c", code, *super().command()]

    with Poor("--connections", 1000, "--threads", 1, rules=RULES) as s:
        held = [connect(s.resp) for _ in range(300)]
        until(lambda: s.steer("GET", "/v1/status").json()["connections"]["accepted"] >= 300, "all were taken in")
        decides(s)
        expect(any("ulimit" in entry["message"] for entry in s.events("start")), True, "the log says so")
        for c in held:
            c.close()


def test_out_of_descriptors_is_said_once(service):
    """Not at each try, of each listener and thread: the log is not the client's to fill."""
    s = service("--threads", "2", rules=RULES)
    used = max(map(int, os.listdir(f"/proc/{s.process.pid}/fd")))
    limits = resource.prlimit(s.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(s.process.pid, resource.RLIMIT_NOFILE, (used + 2, limits[1]))
    clients = [connect(s.http) for _ in range(12)] + [connect(s.resp) for _ in range(12)]
    until(lambda: s.events("accept"), "it is said")
    time.sleep(1.5)
    expect(len(s.events("accept")), 1, "".join(s.lines()))
    resource.prlimit(s.process.pid, resource.RLIMIT_NOFILE, limits)
    for client in clients:
        client.close()
    decides(s)


def test_slow_readers(service):
    """A client that does not read. Who sends and does not read is not read from, and cut off in the end."""
    s = service("--request", "1s", "--pipeline-bytes", "64k", rules=RULES)
    with s.socket(s.resp) as c:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.settimeout(0.05)
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            try:
                c.send(CHECK % b"u1" * 1000)
            except socket.timeout:
                decides(s, 0.9)
            except OSError:
                break
        else:
            raise AssertionError("still open")
    decides(s, 0.9)
    expect(support.SANITIZED or s.allocated() < 1 << 30, True, f"{s.allocated()} bytes allocated")


def test_garbage(service):
    s = service("--idle", "2s", rules=RULES)
    for front in ("http", "resp", "admin"):
        for text in (b"\0" * 100, b"\xff" * 5000, b"\r\n" * 3000 + b"\x16\x03\x01\x02\x00\x01", json.dumps({"a": 1}).encode()):
            with s.socket(getattr(s, front)) as c:
                try:
                    c.sendall(text)
                    c.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
                ends(c, f"garbage at {front}")
    decides(s, 1.9)
