"""`weir serve` through its life: load on both listeners, kill -9, SIGTERM, SIGHUP, tokens."""

import http.client
import json
import os
import re
import signal
import stat
import subprocess
import threading
import time

from support import DEADLINE_S, expect, until
from support.service import Service

LIMIT = 10000000  # more than anybody asks for, however long the slowest client takes
RULES = f"""
rules:
  - id: ocr
    match: {{ event: ocr }}
    by: [key]
    limits:
      - {{ name: day, algorithm: fixed_window, max: {LIMIT}, per: 24h }}
      - {{ name: hour, algorithm: fixed_window, max: {LIMIT}, per: 1h }}
"""
CHECK = b"*5\r\n$10\r\nWEIR.CHECK\r\n$5\r\nevent\r\n$3\r\nocr\r\n$3\r\nkey\r\n$1\r\nk\r\n"


def resp_load(s, counts, stop):
    """Commands in pipelines; counts what was sent and what was answered with yes."""
    try:
        with s.socket(s.resp) as c:
            c.settimeout(DEADLINE_S)
            while not stop.is_set():
                counts["sent"] += 16
                c.sendall(CHECK * 16)
                text = b""
                while text.count(b"*7\r\n") < 16 or not text.endswith(b"\r\n") or text.count(b"\r\n") < 16 * 10:
                    piece = c.recv(65536)
                    if not piece:
                        return
                    text += piece
                    counts["allowed"] += piece.count(b"*7\r\n:1\r\n")
    except OSError:
        pass


def http_load(s, counts, stop):
    try:
        while not stop.is_set():
            counts["sent"] += 1
            if s.check(event="ocr", key="k").status == 200:
                counts["allowed"] += 1
    except (OSError, http.client.HTTPException):
        pass


def used(s):
    return LIMIT - s.check(event="ocr", key="k", cost=0).json()["remaining"]


def test_kill_and_restart(service):
    """Kill -9 under load, and no count is lost."""
    s = service("--threads", 2, rules=RULES)
    all_counts = []
    for _ in range(5):
        stop = threading.Event()
        counts = [{"sent": 0, "allowed": 0} for _ in range(4)]
        threads = [
            threading.Thread(target=load, args=(s, counts[i], stop))
            for i, load in enumerate((resp_load, http_load, resp_load, http_load))
        ]
        for thread in threads:
            thread.start()
        until(lambda: all(c["allowed"] > 30 for c in counts), "all have got answers")
        s.kill()
        stop.set()
        for thread in threads:
            thread.join()
        all_counts += counts
        s.start()
        allowed, sent = (sum(c[what] for c in all_counts) for what in ("allowed", "sent"))
        found = used(s)
        if not allowed <= found <= sent:
            raise AssertionError(f"{allowed} were allowed and {sent} asked for, and {found} are counted")


def test_drain_answers(service):
    """What was sent before SIGTERM is answered, on both listeners, and idle connections do not hold up the end."""
    s = service(rules=RULES)
    idle = [s.socket(where) for where in (s.http, s.resp, s.admin) for _ in range(5)]
    half = s.socket(s.http)
    body = json.dumps({"event": "ocr", "key": "k"}).encode()
    half.sendall(
        b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    half.sendall(body[:5])
    until(lambda: s.steer("GET", "/v1/status").json()["connections"]["open"] >= 16, "all are taken in")
    pipelined = s.socket(s.resp)
    pipelined.sendall(CHECK * 1000)
    s.process.send_signal(signal.SIGTERM)
    until(lambda: s.events("stop"), "the end begins")
    half.sendall(body[5:])
    text = half.recv(65536)
    expect(text[:12], b"HTTP/1.1 200", "the request that was half sent")
    expect(re.search(rb"(?i)connection: close", text) is not None, True, "says that it closes")
    answers = b""
    while piece := pipelined.recv(65536):
        answers += piece
    expect(answers.count(b"*7\r\n:1\r\n"), 1000, "answers of the pipeline")
    expect(s.process.wait(DEADLINE_S), 0, "exit status")
    for c in [*idle, half, pipelined]:
        c.close()


def test_drain_takes_in_all(service):
    """SIGTERM: who waits in the kernel is taken in.
    Whom the kernel has let in before the end is answered, however many they are."""
    s = service("--threads", 1, rules=RULES)
    s.process.send_signal(signal.SIGSTOP)
    waiting = []
    for i in range(400):
        c = s.socket(s.resp if i % 2 else s.http)
        c.sendall(b"PING\r\n" if i % 2 else b"GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n")
        waiting.append(c)
    s.process.send_signal(signal.SIGTERM)
    s.process.send_signal(signal.SIGCONT)
    for i, c in enumerate(waiting):
        expect(c.recv(12), b"+PONG\r\n" if i % 2 else b"HTTP/1.1 404")
        c.close()
    expect(s.process.wait(DEADLINE_S), 0, "exit status")


def test_drain_ends(service):
    """A request that never gets whole cannot keep it."""
    s = service("--drain", "300ms", rules=RULES)
    with s.socket(s.http) as c, s.socket(s.resp) as d:
        c.sendall(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        d.sendall(b"*2\r\n$4\r\nECHO\r\n$10\r\nabc")
        until(lambda: s.steer("GET", "/v1/status").json()["connections"]["open"] >= 3, "both are taken in")
        s.stop()


def test_reload(service):
    """SIGHUP: the rules are read at once, and counts stay."""
    s = service(rules=RULES)
    c = s.socket(s.resp)
    c.sendall(CHECK)
    c.recv(100)
    before = used(s)
    s.write_rules(RULES.replace("id: ocr", "id: ocr\n    mode: off"))
    s.process.send_signal(signal.SIGHUP)
    until(lambda: not s.check(event="ocr", key="k", cost=0).json()["rule"], "the changed rules are in force")
    s.write_rules(RULES)
    s.process.send_signal(signal.SIGHUP)
    until(lambda: s.check(event="ocr", key="k", cost=0).json()["rule"], "the first rules are in force again")
    expect(used(s), before, "what was used stays used")
    s.write_rules("rules: [ nonsense ]")
    s.process.send_signal(signal.SIGHUP)
    until(lambda: s.steer("GET", "/v1/status").json()["rules"]["problem_count"], "the bad rules are reported")
    c.sendall(CHECK)
    expect(c.recv(100)[:9], b"*7\r\n:1\r\n$", "the old connection goes on, by the old rules")
    c.close()


def test_reload_takes_over(service):
    """SIGHUP: options and tokens."""
    s = service(rules=RULES)
    config = os.path.join(s.folder.name, "weir.yaml")
    token = os.path.join(s.folder.name, "token")

    def write(path, text):
        with open(path, "w", encoding="ascii") as out:
            out.write(text)

    write(token, "first-token-of-decisions\n")
    write(config, "idle: 50s\nrequest: 20s\n")
    flags = ["--config", config, "--token-file", token]
    s.stop()
    s.flags += flags
    s.start()
    idle = s.socket(s.resp)
    expect(s.check(event="ocr", key="k").status, 401)
    ask = {"Content-Type": "application/json", "Authorization": "Bearer first-token-of-decisions"}
    body = json.dumps({"event": "ocr", "key": "k"})

    def status():
        """A connection that is idle for 200 ms, see below, is closed before it has sent a request."""

        def asked():
            begin = time.monotonic()
            try:
                return s.ask(s.http, "POST", "/v1/check", body, ask).status
            except (OSError, http.client.HTTPException):
                if time.monotonic() - begin < 0.15:
                    raise
                return None

        return until(asked, "an answer")

    expect(status(), 200)
    write(token, "second-token-of-decisions\n")
    write(config, "idle: 200ms\nrequest: 20s\nthreads: 3\n")
    s.process.send_signal(signal.SIGHUP)
    until(lambda: status() == 401, "the old token is refused")
    ask["Authorization"] = "Bearer second-token-of-decisions"
    expect(status(), 200)
    until(lambda: any("idle" in entry["message"] for entry in s.events("reload")), "the log says what changed")
    until(lambda: any("threads" in entry["message"] for entry in s.events("reload")), "… and what needs a restart")
    with s.socket(s.resp) as c:
        c.settimeout(DEADLINE_S)
        expect(c.recv(1), b"", "new connections have the new time")
    write(config, "idle: never\n")
    s.process.send_signal(signal.SIGHUP)
    until(lambda: any(entry["level"] == "error" for entry in s.events("reload")), "a bad file is reported")
    expect(status(), 200)
    idle.close()


def test_tokens(service):
    """The admin token."""
    s = service(rules=RULES)
    path = os.path.join(s.data, "admin-token")
    expect(stat.S_IMODE(os.stat(path).st_mode), 0o600)
    expect(re.fullmatch(r"[0-9a-f]{48}", s.token) is not None, True, s.token)
    first = s.token
    s.restart()
    expect(s.token, first, "it is kept")
    expect(first in "".join(s.lines()), False, "the log has the token")
    s.stop()
    os.chmod(path, 0o644)
    done = subprocess.run(s.command(), capture_output=True, timeout=DEADLINE_S, check=False)
    expect(done.returncode, 2)
    expect(b"chmod 600" in done.stderr, True, done.stderr)
    expect(done.stderr.count(b"\n"), 1, done.stderr)
    os.chmod(path, 0o600)
    s.start()


def test_many_clients():
    """Two loops, HTTP and RESP at once, one key: not one more than there may be."""
    limit = 500
    rules = RULES.replace(str(LIMIT), str(limit))
    with Service("--threads", 2, rules=rules) as s:
        stop, counts = threading.Event(), [{"sent": 0, "allowed": 0} for _ in range(8)]
        threads = [
            threading.Thread(target=(resp_load, http_load)[i % 2], args=(s, counts[i], stop)) for i in range(len(counts))
        ]
        for thread in threads:
            thread.start()
        until(lambda: sum(c["sent"] for c in counts) > 5 * limit, "they have asked for more than there is")
        stop.set()
        for thread in threads:
            thread.join()
        expect(sum(c["allowed"] for c in counts), limit)
