"""weir top: printed once, and live on a terminal."""

import fcntl
import http.server
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import threading
import time

from support import DEADLINE_S, ENVIRONMENT, WEIR, expect, has, until, weir
from support.service import Service

RULES = """
rules:
  - { id: login, match: { path: /login }, by: [ip], limits: [ { name: m, algorithm: fixed_window, max: 0, per: 24h } ] }
  - { id: ocr, match: { event: ocr }, by: [key], limits: [ "0 per 1h" ] }
"""
BAD = "  - { id: broken, match: { event: x }, limits: [ { max: -1, per: 1h } ] }\n"
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def where(place):
    return f"unix:{place}" if isinstance(place, str) else f"{place[0]}:{place[1]}"


def words_for(s, *more):
    return ["top", "--data", s.data, "--admin", where(s.admin), *map(str, more)]


def once(s, *more):
    done = weir(*words_for(s, "--once", *more))
    expect((done.returncode, done.stderr), (0, b""), "weir top --once")
    return done.stdout.decode()


def fails(parts, *words):
    done = weir("top", *words)
    expect(done.returncode, 2, "exit status")
    expect(done.stderr.count(b"\n"), 1, f"one line, not {done.stderr!r}")
    has(done.stderr.decode(), *parts)


def refuse(s, times, **request):
    for _ in range(times):
        expect(s.check(**request).status, 429, "refused")


# ---- once ----


def test_printed_once(service):
    s = service(rules=RULES)
    has(once(s), "decisions    0 allowed, 0 refused, 0 shadow\n", f"2 from {s.rules_file}, ", "0 bad rules", "nobody\n")
    has(once(s), ", checked ", " ago, ")
    refuse(s, 5, path="/login", ip="203.0.113.9")
    refuse(s, 7, event="ocr", key="\x1b[31mevil")
    s.check(event="other")
    text = once(s)
    has(text, "decisions    1 allowed, 12 refused, 0 shadow\n", "of 12 in all", "cells in use")
    lines = [line.split() for line in text.splitlines()[-2:]]
    expect([(line[0], *line[2:]) for line in lines], [("7", "ocr", "key=?[31mevil"), ("5", "login", "ip=203.0.113.9")], text)
    expect("\x1b" in text, False, "an escape sequence")
    expect("login" in once(s, "--most", 1), False, "--most")
    expect("ocr" in once(s, "--rule", "login"), False, "--rule")
    has(once(s, "--rule", "no\x1bpe"), "nobody: there is no rule no?pe\n")
    expect("q ends" in text, False, "nobody can type here")


def test_what_the_list_is_of(service):
    """Keys of CL.THROTTLE are listed, peeks are not."""
    s = service(rules=RULES)
    has(once(s, "--rule", "login"), "nobody\n")
    s.check(event="ocr", key="k", peek=True)
    with s.socket(s.resp) as client:
        client.sendall(b"CL.THROTTLE k7 0 1 3600\r\n" * 3 + b"QUIT\r\n")
        while client.recv(4096):
            pass
    text = once(s)
    has(text, "decisions    1 allowed, 2 refused, 0 shadow\n", "(cl.throttle)", "key=k7")
    expect("ocr" in text, False, "a peek")
    has(once(s, "--rule", "(cl.throttle)"), "key=k7")


def test_what_clients_send_is_no_command():
    """NUL, bytes that are not UTF-8, controls, and text that runs the other way."""
    keys = (b"a\0b", b"c\xff\xed\xa0\x80", "d\u202ee\u2028f\u200bg\x9b".encode(), b"h\r\ni")
    with Service(rules=RULES) as s:
        with s.socket(s.resp) as client:
            for key in keys:
                words = [b"WEIR.CHECK", b"event", b"ocr", b"key", key]
                client.sendall(b"*5\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
            client.sendall(b"*1\r\n$4\r\nQUIT\r\n")
            while client.recv(4096):
                pass
        text = once(s)
        has(text, "key=a?b", "key=d?e?f?g?", "key=h??i")
        for bad in "\0\x9b\u202e\u2028\u200b\r":
            expect(bad in text, False, f"{bad!r} in {text!r}")
        answer = s.steer("GET", "/v1/top")
        values = {subject["by"][0]["value"] for subject in answer.json()["subjects"]}
        expect({"a\0b", "d\u202ee\u2028f\u200bg\x9b", "h\r\ni"} - values, set())
        for bad in (b"\0", b"\xe2\x80\xae", b"\xe2\x80\xa8", b"\xc2\x9b", b"\xff"):
            expect(bad in answer.body, False, f"{bad!r} in {answer.body!r}")
        log = "".join(s.lines())
        for bad in "\0\x9b\u202e\u2028\u200b":
            expect(bad in log, False, f"{bad!r} in the log")


def test_a_pipe_gets_it_once(service):
    s = service(rules=RULES)
    done = weir(*words_for(s))
    expect(done.returncode, 0, "exit status")
    has(done.stdout.decode(), "nobody\n")


def test_over_a_unix_socket():
    with tempfile.TemporaryDirectory() as folder:
        with Service("--admin", f"unix:{folder}/admin.sock", rules=RULES) as s:
            has(once(s), f"at unix:{folder}/admin.sock")


def test_problems_are_shown(service):
    """Problems of the rules are shown."""
    s = service("--poll", "100ms", rules=RULES)
    s.write_rules(RULES + BAD)
    until(lambda: "1 bad rule\n" in once(s), "the bad rule")


def test_a_database_has_rows(service):
    s = service(rules=None)
    has(once(s), "0 bad rows\n")
    has(once(s, "--rule", "nope"), "nobody: there is no rule nope\n")


# ---- errors ----


def test_wrong_words():
    fails(["--interval", "1s to 1h"], "--interval", "0")
    fails(["--most", "1 to 1000"], "--most", "1001")
    fails(["--most", "1 to 1000"], "--most", "0")
    fails(["--admin", "HOST:PORT", "unix:PATH"], "--admin", "nowhere")
    fails(["--admin"], "--admin", "::1:80")
    fails(["--admin"], "--admin", "[::1]:0")
    fails(["--admin"], "--admin", "unix:")
    fails(["--rule", "100"], "--rule", "x" * 101)
    fails(["unexpected argument 'x'"], "x")


def test_no_service():
    """No service there."""
    with tempfile.TemporaryDirectory() as folder:
        fails(["admin-token", "No such file", "--data"], "--data", folder)
        with open(os.path.join(folder, "admin-token"), "w", encoding="ascii") as token:
            token.write("t\n")
        fails([f"unix:{folder}/none: No such file"], "--data", folder, "--admin", f"unix:{folder}/none")


def test_another_token():
    """Another token, another listener."""
    with Service(rules=RULES) as s, tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "admin-token"), "w", encoding="ascii") as token:
            token.write("wrong\n")
        fails(["does not accept the token", folder, "--data"], "--data", folder, "--admin", where(s.admin))
        fails(["not an admin listener"], "--data", s.data, "--admin", where(s.http))


def test_read_token_is_enough():
    """The admin token may be missing in the folder, as in one for monitoring. The read token lists penalties, and lifts none."""
    with Service(rules=RULES) as s, tempfile.TemporaryDirectory() as folder:
        there = ["--data", folder, "--admin", where(s.admin)]
        with open(os.path.join(s.data, "read-token"), encoding="ascii") as token:
            with open(os.path.join(folder, "read-token"), "w", encoding="ascii") as copy:
                copy.write(token.read())
        done = weir("top", "--once", *there)
        expect((done.returncode, done.stderr), (0, b""))
        done = weir("rules", "penalties", *there)
        since = s.steer("GET", "/v1/status").json()["started"]
        told = f"weir: nobody is penalised, as far as the service knows: it remembers who was refused since {since}\n"
        expect((done.returncode, done.stderr.decode()), (1, told))
        done = weir("rules", "lift", "login", "x", *there)
        expect(done.returncode, 2)
        has(done.stderr.decode(), "admin-token", "No such file")
        os.rename(os.path.join(folder, "read-token"), os.path.join(folder, "operate-token"))
        done = weir("rules", "lift", "login", "x", *there)
        has(done.stderr.decode(), "answers 403", "needs the role operate", "has the role read")


class Stranger(http.server.BaseHTTPRequestHandler):
    """Something else that listens there."""

    body = b"{}"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *words):
        pass


class Shortened(Stranger):
    body = b'{"decisions": {}'


def test_strangers_answer():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "admin-token"), "w", encoding="ascii") as token:
            token.write("t\n")
        for kind, part in ((Stranger, "is this a weir service?"), (Shortened, "not JSON")):
            with http.server.HTTPServer(("127.0.0.1", 0), kind) as server:
                thread = threading.Thread(target=server.serve_forever)
                thread.start()
                try:
                    fails([part], "--data", folder, "--admin", where(server.server_address))
                finally:
                    server.shutdown()
                    thread.join()


# ---- live ----


class Terminal:
    """weir top on a terminal of its own."""

    def __init__(self, words, rows=24, columns=100):
        self.own, other = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(other)
        self.output = ""
        environment = {**ENVIRONMENT, "TERM": "xterm"}
        self.process = subprocess.Popen(
            [WEIR, *words],
            stdin=other,
            stdout=other,
            stderr=other,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.other = other

    def __enter__(self):
        return self

    def __exit__(self, *details):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_S)
        os.close(self.own)
        os.close(self.other)

    def resize(self, rows, columns):
        fcntl.ioctl(self.own, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        while select.select([self.own], [], [], 0.01)[0]:
            self.output += os.read(self.own, 65536).decode()

    def type(self, text):
        os.write(self.own, text.encode())

    def frame(self):
        """The newest that is whole, as text."""
        self.read()
        frames = [part for part in self.output.split("\x1b[H")[1:] if "\x1b[J" in part]
        return SEQUENCE.sub("", frames[-1].split("\x1b[J")[0]) if frames else ""

    def shows(self, *parts):
        return until(lambda: all(part in (frame := self.frame()) for part in parts) and frame, f"{parts} on the screen")

    def ends(self):
        """It has ended well, and left the terminal as it was."""

        def ended():
            self.read()
            return self.process.poll() is not None

        until(ended, "the end")
        self.read()
        expect(self.process.returncode, 0, "exit status")
        has(self.output, "\x1b[?1049h", "\x1b[?25l")
        expect(self.output.endswith("\x1b[?25h\x1b[?1049l"), True, "screen and cursor are back")
        expect(termios.tcgetattr(self.other), self.before, "the terminal is as it was")


def test_live_until_q():
    with Service(rules=RULES) as s, Terminal(words_for(s, "--interval", 1)) as t:
        t.shows("nobody", "0 refused", "q ends this")
        refuse(s, 3, path="/login", ip="203.0.113.9")
        t.shows("3 refused", "a second", "login", "ip=203.0.113.9")
        expect("\x1b[33m" in t.output, True, "colour")
        t.type("xq")
        t.ends()


def test_live_until_interrupted():
    """Live, until it is interrupted."""
    for end in (lambda t: t.type("\x03"), lambda t: t.process.send_signal(signal.SIGTERM)):
        with Service(rules=RULES) as s, Terminal(words_for(s)) as t:
            t.shows("nobody")
            end(t)
            t.ends()


def test_stopped_and_continued():
    with Service(rules=RULES) as s, Terminal(words_for(s)) as t:
        t.shows("nobody")
        t.process.send_signal(signal.SIGTSTP)
        until(lambda: os.waitid(os.P_PID, t.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT), "it stops")
        t.read()
        expect(t.output.endswith("\x1b[?25h\x1b[?1049l"), True, "the screen is back")
        t.output = ""
        t.process.send_signal(signal.SIGCONT)
        t.shows("nobody")
        has(t.output, "\x1b[?1049h")
        t.type("q")
        t.ends()


def test_fits_the_screen(service):
    s = service(rules=RULES)
    for i in range(30):
        refuse(s, 1, event="ocr", key=f"user-{i}")
    with Terminal(words_for(s, "--interval", 1), rows=15, columns=60) as t:
        frame = t.shows("user-")
        expect(len(frame.split("\r\n")) <= 15, True, frame)
        count = frame.count("user-")
        t.resize(40, 100)
        until(lambda: t.frame().count("user-") > count, "more room is used")
        expect(t.frame().count("user-"), 30, "all of them")
        t.type("q")
        t.ends()


def test_the_service_goes_and_comes():
    """The service goes and comes back."""
    with tempfile.TemporaryDirectory() as folder:
        with Service("--admin", f"unix:{folder}/admin.sock", rules=RULES) as s:
            with Terminal(words_for(s, "--interval", 1)) as t:
                t.shows("nobody")
                s.kill()
                t.shows("no answer: unix:", "retrying every 1 s", "the last answer was")
                s.start()
                t.shows("nobody")
                t.type("q")
                t.ends()


def test_nobody_types(service):
    s = service(rules=RULES)
    own, other = pty.openpty()
    process = subprocess.Popen(
        [WEIR, *words_for(s)], stdin=subprocess.DEVNULL, stdout=other, env={**ENVIRONMENT, "TERM": "xterm"}
    )
    try:
        output = b""
        end = time.monotonic() + DEADLINE_S
        while b"nobody" not in output and time.monotonic() < end:
            if select.select([own], [], [], 0.1)[0]:
                output += os.read(own, 65536)
        has(output.decode(), "nobody")
        process.terminate()
        expect(process.wait(DEADLINE_S), 0, "exit status")
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        os.close(own)
        os.close(other)
