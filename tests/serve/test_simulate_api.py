"""What would a change have done? POST /v1/simulate against `weir simulate` on the same requests, and the sample behind it."""

import json
import os
import random
import tempfile
import threading
import time

from support import SANITIZED, expect, has, until, weir
from support.contract import Checked

SEED = int(os.environ.get("TEST_SEED", "7"))

SETTINGS = {"trusted_proxies": ["10.200.0.0/16"], "except": {"ip": ["10.7.0.0/23"], "user": ["root"]}}


def limit(most, days=100, **more):
    """In windows so long that it does not matter when within the test a request is decided. Of several limits that refuse it,
    the verdict names the one with the longest wait: each rule has another one."""
    return {"name": "w", "max": most, "algorithm": "fixed_window", "per": f"{days}d", **more}


RULES = [
    {"id": "nets", "match": {"path": "/a/{x}", "ip": {"is": ["10.0.0.0/13", "2001:db8::/37"], "not": "10.0.4.0/22"}}, "by": ["ip"], "limits": limit(3)},
    {"id": "users", "match": {"event": "ev", "user": {"not": ["u3", "u4"]}}, "by": ["user"], "limits": limit(2, 131)},
    {"id": "plans", "match": {"header": {"X-Plan": {"present": True}}}, "by": ["header:x-tenant"], "plan": "header:x-plan",
     "plans": {"pro": limit(4, 173), "free": limit(1, 173)}, "limits": limit(2, 173), "mode": "shadow"},
    {"id": "keys", "match": {"key": ["k1", "k2", "k3"], "method": "POST"}, "by": ["key", "host"],
     "limits": [limit(90, 211, unit="tokens")], "except": {"ip": ["2001:db8:1::/48"], "user": ["u5"]}},
    {"id": "paths", "by": ["route"], "limits": limit(120, 257)},
]
OVERRIDES = [
    {"rule": "nets", "by": {"ip": "10.1.0.9"}, "limits": [limit(1)]},
    {"rule": "nets", "by": {"ip": "2001:db8:3::1"}, "unlimited": True},
    {"rule": "users", "by": {"user": "u1"}, "unlimited": True},
    {"rule": "plans", "by": {"header:x-tenant": "t1"}, "deny": True},
    {"rule": "keys", "by": {"key": "k2", "host": "h2.example"}, "limits": [limit(30, 211, unit="tokens")]},
]
CHANGED = [
    {"id": "nets", "match": {"ip": ["10.1.0.0/21", "2001:db8:2::/47", "10.0.4.9"]}, "by": ["ip"], "limits": limit(1)},
    {"id": "fresh", "match": {"header": {"X-Plan": ["free"]}, "user": "u2"}, "by": ["key", "ip"], "limits": limit(1, 313)},
]
REMOVED = ["paths"]
TIMED = [
    {"id": "bucket", "by": ["ip"], "limits": "1 per 100ms"},
    {"id": "sliding", "by": ["path"], "mode": "shadow", "limits": {"max": 2, "per": "50ms", "algorithm": "sliding_window"}},
    {"id": "day", "by": ["user"], "limits": {"max": 30, "calendar": "day", "tz": "Europe/Berlin"}},
]


def document(rules, overrides=()):
    return json.dumps({"settings": SETTINGS, "rules": rules, "overrides": list(overrides)})


def changed_document(more=()):
    """The rules as the change would leave them."""
    by_id = {rule["id"]: rule for rule in [*CHANGED, *more]}
    rules = [by_id.pop(rule["id"], rule) for rule in RULES if rule["id"] not in REMOVED]
    return document(rules + list(by_id.values()), OVERRIDES)


def some_request(chance):
    request = {
        "method": chance.choice(["GET", "POST"]),
        "path": chance.choice(["/a/1", "/a/2?token=secret", "/a//3", "/b/%2e%2e/a/4", "/c"]),
        "host": chance.choice(["H1.example:80", "h2.example"]),
        "event": chance.choice(["ev", "other"]),
        "user": chance.choice(["", "root", *(f"u{i}" for i in range(7))]),
        "key": f"k{chance.randrange(5)}",
        "headers": {"X-Tenant": f"t{chance.randrange(4)}", "X-Other": "not kept"},
    }
    address = chance.choice([f"10.{chance.randrange(9)}.{chance.randrange(9)}.9", f"2001:db8:{chance.randrange(5)}::{chance.randrange(3)}"])
    if chance.random() < 0.3:
        request |= {"peer": "10.200.0.1", "headers": {**request["headers"], "X-Forwarded-For": address}}
    else:
        request["ip"] = address
    if chance.random() < 0.6:
        request["headers"]["x-plan"] = chance.choice(["pro", "free", "odd", " free "])
    if chance.random() < 0.5:
        request["costs"] = {"requests": 1, "tokens": chance.randrange(60)}
    return request


def some_requests(count):
    chance = random.Random(SEED)
    return [some_request(chance) for _ in range(count)]


def serving(*flags, **more):
    """With time enough for a simulation, also on a busy host: its thread has the lowest priority."""
    return Checked("--request", "5m", *flags, **more)


def send(s, requests):
    """In order, over one loop."""
    for first in range(0, len(requests), 50):
        batch = json.dumps(requests[first:first + 50])
        expect(s.ask(s.http, "POST", "/v1/check", batch, {"Content-Type": "application/json"}).status, 200)


def command(rules, lines, *flags):
    """What `weir simulate` says of the same requests."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("rules", rules), ("log", lines)):
            with open(f"{folder}/{name}", "w", encoding="utf-8") as out:
                out.write(text)
        done = weir("simulate", "--rules", f"{folder}/rules", "--json", "--cells-keys", 1 << 20, *flags, f"{folder}/log")
        expect((done.returncode, done.stderr), (0, b""), "weir simulate")
        return json.loads(done.stdout)


def json_lines(requests):
    start_ms = int(time.time() * 1000)
    return "".join(json.dumps({"t": start_ms + i, **request}) + "\n" for i, request in enumerate(requests))


def counts(replay, names=True):
    """Without times, and if the values are hashed without the names of subjects."""
    rules = {}
    for rule in replay["rules"]:
        subjects = sorted((sorted(subject["by"].items()) if names else sorted(subject["by"]), subject["refused"]) for subject in rule["subjects"])
        rules[rule["id"]] = (rule["mode"], *(rule[field] for field in ("requests", "passed", "refused", "would_refuse", "subject_count")), subjects)
    return {**{field: replay[field] for field in ("requests", "passed", "refused", "no_rule", "unreadable_addresses", "shadow_left_out")}, "rules": rules}


def simulate(s, **body):
    answer = s.steer("POST", "/v1/simulate", body)
    expect(answer.status, 200, answer.body)
    return answer.json()


def refused(answer, status, *parts):
    expect(answer.status, status, answer.body)
    has(answer.json()["error"], *parts)


# ---- agreeing ----


def test_the_sample_agrees_with_the_command():
    """Plain and hashed: the counts of both sides are those of the command, which reads the requests from a file."""
    requests = some_requests(1500)
    lines = json_lines(requests)
    wanted = [command(document(RULES, OVERRIDES), lines, "--top", 100), command(changed_document(), lines, "--top", 100)]
    idle = [rule["id"] for side in wanted for rule in side["rules"] if rule["refused"] + rule["would_refuse"] == 0]
    expect(len(idle) <= 2, True, f"rules that refuse nothing: {idle}")
    for values in ("plain", "hashed"):
        with serving("--sample", 5000, "--sample-values", values, "--threads", 1, rules=document(RULES, OVERRIDES)) as s:
            send(s, requests)
            found = simulate(s, rules=CHANGED, remove=REMOVED, input="sample", top=100)
            for side, name in zip(wanted, ("now", "then")):
                expect(counts(found[name], values == "plain"), counts(side, values == "plain"), f"{values}, {name}")
            about = found["input"]
            expect((about["replayed"], about["complete"], about["part"], about["cut"]), (1500, True, 1, 0))
            # The service began with empty counts, so it has decided the same.
            expect((about["passed"], about["refused"]), (wanted[0]["passed"], wanted[0]["refused"]), values)
            expect((about["not_judged"], about["missing_headers"]), ([], []))
            difference = found["changed"]["to_passed"] - found["changed"]["to_refused"]
            expect(difference, wanted[1]["passed"] - wanted[0]["passed"], "changed")
            expect(len(found["changed"]["requests"]), 20)
            for one in found["changed"]["requests"]:
                expect(one["now"]["allowed"] != one["then"]["allowed"], True, one)
            text = json.dumps(found)
            for secret in ("u2", "k1", "t1", "10.1.0.9", "2001:db8:2"):
                expect(f'"{secret}' in text, values == "plain", f"{secret} with {values} values")
            expect("secret" in text, False, "a query")
            expect('"hash:' in text, values == "hashed")


def test_a_log_agrees_with_the_command():
    requests = some_requests(800)
    lines = json_lines(requests)
    log = "".join(
        f'10.1.0.{i % 7} - u{i % 3} [10/Oct/2025:13:55:{i // 20:02} -0700] "GET /a/{i % 5} HTTP/1.1" 200 23 "-" "agent"\r\n\n' for i in range(600))
    with serving(rules=document(RULES, OVERRIDES)) as s:
        for kind, text in (("json", lines), ("combined", log)):
            found = simulate(s, rules=CHANGED + TIMED, remove=REMOVED, input=kind, log=text)
            expect(found["now"], command(document(RULES, OVERRIDES), text, "--format", kind), kind)
            expect(found["then"], command(changed_document(TIMED), text, "--format", kind), kind)
            expect(found["input"]["lines"], text.count("\n"))
        found = simulate(s, input="json", log=lines)
        expect(found["now"], found["then"], "nothing is changed")
        expect(found["changed"], {"to_refused": 0, "to_passed": 0, "requests": []})
        for empty in ("", "\n\n", "  \r\n"):
            found = simulate(s, input="combined", log=empty)
            expect((found["input"]["replayed"], found["input"]["part"], found["now"]["requests"]), (0, 1, 0))
        expect(s.steer("GET", "/v1/sample").json()["size"], 0)


def test_nothing_is_changed():
    with serving("--sample", 100, rules=None) as s:
        before = s.steer("GET", "/v1/rules").json()
        for _ in range(3):
            s.check(event="x", key="k")
        counted = s.steer("GET", "/v1/explain?event=x&key=k").json()
        simulate(s, rules=[{"id": "n", "limits": "0 per 1h"}], remove=[before["rules"][0]["rule"]["id"]])
        expect(s.steer("GET", "/v1/rules").json(), before)
        after = s.steer("GET", "/v1/explain?event=x&key=k").json()
        expect([rule["id"] for rule in after["rules"]], [rule["id"] for rule in counted["rules"]])
        expect(s.check(event="x", key="k").status, 200)


# ---- the sample ----


def test_the_newest_requests_are_kept():
    with serving("--sample", 20, "--sample-values", "plain", "--threads", 1, rules=document(RULES)) as s:
        empty = s.steer("GET", "/v1/sample").json()
        expect((empty["size"], empty["requests"], empty["seen"], "from" in empty), (20, 0, 0, False))
        expect(simulate(s)["input"]["replayed"], 0)
        send(s, [{"path": f"/c/{i}", "user": f"u{i}"} for i in range(33)])
        send(s, [{"path": "/c", "peek": True}])
        found = s.steer("GET", "/v1/sample").json()
        expect((found["requests"], found["seen"], found["values"], found["memory_bytes"]), (20, 33, "plain", 20 * 512))
        expect(found["headers"], ["x-plan", "x-tenant"])
        answer = simulate(s, rules=[{"id": "all", "by": ["user"], "limits": "0 per 1h"}], top=100)
        subjects = {subject["by"]["user"] for rule in answer["then"]["rules"] if rule["id"] == "all" for subject in rule["subjects"]}
        expect(subjects, {f"u{i}" for i in range(13, 33)})
        expect((answer["now"]["from"], answer["now"]["to"]), (found["from"], found["to"]))
        s.restart()
        expect(s.steer("GET", "/v1/sample").json()["seen"], 0, "it is in memory alone")


def test_the_sample_is_off_by_default():
    with serving() as s:
        s.check(event="ocr", key="k")
        found = s.steer("GET", "/v1/sample").json()
        expect((found["size"], found["requests"], found["seen"], found["memory_bytes"]), (0, 0, 0, 0))
        refused(s.steer("POST", "/v1/simulate", {}), 409, "no sample is kept")


def test_what_the_sample_cannot_say():
    """Patterns of hashed values, headers that no rule used before, values that were too long."""
    pattern = {"id": "jobs", "match": {"user": {"prefix": "job-"}}, "limits": "0 per 1h"}
    header = {"id": "new", "match": {"header": {"X-New": "a"}}, "limits": "0 per 1h"}
    for values, replayed in (("hashed", 0), ("plain", 3)):
        with serving("--sample", 100, "--sample-values", values, "--threads", 1, "--poll", "100ms", rules=document(RULES)) as s:
            send(s, [{"user": f"job-{i}", "headers": {"X-New": "a"}} for i in range(3)])
            send(s, [{"user": "u" * 121, "path": "/p"}, {"user": "u", "path": "/" + "p" * 300}])
            found = simulate(s, rules=[pattern, header])
            expect(found["then"]["refused"], replayed, values)
            judged = [] if values == "plain" else [{"rule": "jobs", "why": "it matches a prefix or a pattern of a value that is hashed"}]
            expect(found["input"]["not_judged"], judged)
            expect(found["input"]["missing_headers"], [{"header": "x-new", "requests": 5}])
            expect(found["input"]["cut"], 1 if values == "hashed" else 2)
            s.write_rules(document([*RULES, {**header, "mode": "shadow"}]))
            until(lambda: s.steer("GET", "/v1/status").json()["rules"]["count"] == len(RULES) + 1, "the new rules")
            send(s, [{"headers": {"X-New": "a"}}])
            found = simulate(s, rules=[header])
            expect(found["input"]["missing_headers"], [{"header": "x-new", "requests": 5}])
            expect((found["input"]["replayed"], found["changed"]["to_refused"]), (6, 1))


def test_reading_under_load():
    """Loops decide on all threads, the rules change, and simulations see whole requests only."""
    other = [{**RULES[0], "by": ["header:x-more"]}, *RULES[1:]]
    with serving("--sample", 300, "--threads", 2, "--poll", "100ms", "--connections", 100, rules=document(RULES)) as s:
        stop = threading.Event()
        problems = []

        def ask():
            requests = some_requests(200)
            try:
                while not stop.is_set():
                    send(s, requests)
            except Exception as problem:  # shown below
                problems.append(problem)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for i in range(12):
                s.write_rules(document(other if i % 2 else RULES))
                found = simulate(s, rules=CHANGED, remove=["paths"])
                expect(found["now"]["requests"], found["then"]["requests"])
                about = found["input"]
                expect((about["replayed"], about["passed"] + about["refused"]), (about["requests"],) * 2)
                expect(about["requests"] <= 300, True)
                s.steer("GET", "/v1/sample")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        expect(problems, [])


# ---- bounds ----


def long_log():
    """More than can be replayed in 5 s: paths that servers read in many ways take long."""
    odd = "/a%2fb;c/..%2f%5cd//e;f" * 20
    return "".join(f'{{"t":{i},"path":"{odd}/{i}"}}\n' for i in range(100000, 150000))


class Begun:
    """A simulation of a long log whose answer is not read yet."""

    def __init__(self, s):
        body = json.dumps({"input": "json", "log": long_log()}).encode()
        self.socket = s.socket(s.admin)
        self.socket.sendall(
            (f"POST /v1/simulate HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {s.token}\r\n"
             f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body)

    def answer(self):
        text = b""
        while b"\r\n\r\n" not in text or len(text) < self.whole(text):
            piece = self.socket.recv(1 << 16)
            if not piece:
                break
            text += piece
        self.socket.close()
        return int(text.split()[1]), json.loads(text.partition(b"\r\n\r\n")[2])

    @staticmethod
    def whole(text):
        head, _, _ = text.partition(b"\r\n\r\n")
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return len(head) + 4 + int(length[0].split(b":")[1])


def is_busy(s):
    return s.steer("GET", "/v1/sample").json()["simulating"]


def simulated_in_time(s, attempt):
    """Simulates a long log. Returns what was replayed when the answer was due, or None if the host was too busy to replay any of it."""
    begun = Begun(s)
    until(lambda: is_busy(s), "it runs")
    again = s.steer("POST", "/v1/simulate", {"input": "combined", "log": ""})
    if again.status == 503:
        refused(again, 503, "only one at a time")
        expect(again.headers["Retry-After"], "5")
    expect(s.check(path="/a/1", ip=f"10.0.0.{attempt}").status, 200, "decisions go on")
    status, found = begun.answer()
    until(lambda: not is_busy(s), "the next one can begin")
    if status == 504:
        has(found["error"], "did not end in time")
        return None
    expect((status, found["input"]["complete"]), (200, False), found["input"])
    has(found["input"]["stopped"], "the answer is due")
    expect(found["now"]["requests"], found["input"]["replayed"])
    return found["input"] if found["input"]["replayed"] else None


def test_one_at_a_time_and_in_time():
    """A second simulation has to wait. The first is answered before the time of its request ends, with what it has."""
    for request_s in (5, 5, 10, 20):
        with Checked("--request", f"{request_s}s", rules=document(RULES)) as s:
            found = simulated_in_time(s, request_s)
        if found:
            break
    expect(0 < found["part"] < 1, True, found)


def test_a_client_that_leaves_ends_it():
    with Checked("--request", "60s", rules=document(RULES)) as s:
        begun = Begun(s)
        until(lambda: is_busy(s), "it runs")
        begun.socket.close()
        until(lambda: s.events("simulate"), "it is cancelled")
        has(s.events("simulate")[-1]["message"], "the client has closed")
        until(lambda: not is_busy(s), "the next one can begin")


def test_the_service_ends_in_the_middle():
    """SIGTERM: the call is answered, and the service does not wait for the end of the log. Also if there is no time at all. On a busy
    host the thread, which has the lowest priority, may get its next turn only after seconds."""
    for drain in ("60s", "0ms"):
        with Checked("--request", "60s", "--drain", drain, rules=document(RULES)) as s:
            begun = Begun(s)
            until(lambda: is_busy(s), "it runs")
            s.stop()
            has(s.events("simulate")[-1]["message"], "the service is ending")
            if drain == "60s":
                status, found = begun.answer()
                expect((status, found["error"]), (503, "the simulation was cancelled: the service is ending"))
            begun.socket.close()


def test_sizes():
    with serving("--request-bytes", "64k", rules=document(RULES)) as s:
        line = '10.1.0.9 - - [10/Oct/2025:13:55:36 -0700] "GET /a/1 HTTP/1.1" 200 23\n'
        body = json.dumps({"input": "combined", "log": line})
        longest = json.dumps({"input": "combined", "log": line + " " * ((32 << 20) - 2 * len(body))})
        expect(s.steer("POST", "/v1/simulate", longest).json()["now"]["requests"], 1, "a body of almost 32 MiB")
        with s.socket(s.admin) as client:
            client.sendall((f"POST /v1/simulate HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {s.token}\r\n"
                            f"Content-Type: application/json\r\nContent-Length: {(32 << 20) + 1}\r\n\r\n").encode())
            answer = b"".join(iter(lambda: client.recv(4096), b"")).decode()
        has(answer, "HTTP/1.1 413 ", "the body has more than 33554432 bytes")
        refused(s.steer("PUT", "/v1/rules/x", " " * ((64 << 10) + 1)), 413, "more than 65536 bytes")
        many = [{"id": f"r{i}", "limits": "1 per 1h"} for i in range(1001)]
        refused(s.steer("POST", "/v1/simulate", {"input": "json", "log": "", "rules": many}), 400, "at most 1000")
        expect(len(simulate(s, input="json", log="", rules=many[:1000])["then"]["rules"]), 1005)


def peak(s):
    """The most memory that the service has had, in bytes."""
    with open(f"/proc/{s.process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024


def test_many_small_values_take_no_memory():
    """Of JSON: each of them would take a hundred times its bytes."""
    with serving() as s:
        before = peak(s)
        for small in ("{},", "[],", "0,", '"":0,', '{"":[]},', "[" * 1000):
            body = '{"rules":[' + small * ((31 << 20) // len(small))
            refused(s.steer("POST", "/v1/simulate", body), 413, "more than 200000 JSON values")
        # A body of 31 MiB, and the copies that it leaves behind while it arrives; a sanitizer keeps what was freed for a while.
        expect(peak(s) - before < (700 if SANITIZED else 250) << 20, True, (before, peak(s)))
        # What a text contains is none, and the limit itself is allowed.
        log = '{"t":1,"event":"\\\\\\"[,"}\n' * 100000
        expect(simulate(s, input="json", log=log)["now"]["requests"], 100000)
        rest = 200000 - len(["body", "remove", "its list"])
        for more, status, part in ((0, 400, "at most 1000"), (1, 413, "more than 200000")):
            body = '{"remove":[' + ",".join(["0"] * (rest + more)) + "]}"
            refused(s.steer("POST", "/v1/simulate", body), status, part)


# ---- what is wrong with a request ----


def test_bad_rules_are_refused_as_by_put():
    with serving(rules=document(RULES, OVERRIDES)) as s:
        bad = [{"id": "x", "limits": {"max": -1, "per": "1h"}}, {"id": "users", "by": ["nobody"], "limits": "1 per 1h"}]
        answer = s.steer("POST", "/v1/simulate", {"input": "json", "log": "", "rules": bad})
        refused(answer, 422, "rule users: by[0]: must be")
        problems = answer.json()["problems"]
        expect({"x", "users"} <= {problem["rule"] for problem in problems}, True, problems)
        # Its override counts by user.
        other = [{"id": "users", "by": ["key", "host"], "limits": "1 per 1h"}]
        refused(s.steer("POST", "/v1/simulate", {"input": "json", "log": "", "rules": other}), 422, "users")
        for body, part in (
            ({"remove": ["nope"]}, "there is no rule `nope`"),
            ({"remove": ["users", "users"]}, "there is no rule `users`"),
            ({"rules": [{"limits": "1 per 1h"}]}, "with an `id`"),
            ({"rules": [{"id": 7, "limits": "1 per 1h"}]}, "with an `id`"),
            ({"rules": [{"id": "", "limits": "1 per 1h"}]}, "with an `id`"),
            ({"rules": ["x"]}, "with an `id`"),
            ({"rules": [None]}, "with an `id`"),
            ({"rules": [{"id": "i" * 101, "limits": "1 per 1h"}]}, "with an `id`"),
            ({"rules": [{"id": "a\nb", "limits": "1 per 1h"}]}, "id"),
            ({"rules": [{"id": " a", "limits": "1 per 1h"}]}, "id"),
            ({"rules": [{"id": "x", "limits": "1 per 1h"}] * 2}, "`x` is there twice"),
            ({"rules": [RULES[1]] * 2}, "`users` is there twice"),
            ({"rules": [{"id": "x"}]}, "limits"),
            ({"rules": [{"id": "x", "limits": "1 per 1h", "colour": 1}]}, "colour"),
        ):
            refused(s.steer("POST", "/v1/simulate", {"input": "json", "log": "", **body}), 422, part)
        # Removed and put: the new one has no overrides, and is the last.
        found = simulate(s, input="json", log="", rules=other, remove=["users"])
        expect([rule["id"] for rule in found["then"]["rules"]][-1], "users")


LINE = '203.0.113.9 - - [02/Mar/2026:01:00:59 +0000] "GET /login HTTP/1.1" 200 12\n'


def test_other_requests_are_refused():
    with serving("--sample", 10, rules=document(RULES)) as s:
        for body, part in (
            ("", "not JSON"), ("{", "not JSON"), ("[]", "must be an object"), ("7", "not JSON"), ('{"a": 1, "a": 2}', "not JSON"),
            ('"\\u0000"', "not JSON"), ("{}\0", "not JSON"), (b"\xff", "not JSON"), ("[" * 5000, "not JSON"),
            ({"colour": 1}, "unknown field `colour`"), ({"rules": {}}, "rules: must be a list"), ({"remove": "a"}, "remove: must be a list"),
            ({"remove": [7]}, "remove: must be a list"), ({"input": 7}, "input: must be"), ({"input": "file"}, "input: must be"),
            ({"input": None}, "input: must be"), ({"log": "x"}, "give its format"), ({"input": "sample", "log": ""}, "give its format"),
            ({"input": "json"}, "log: must be the text"), ({"input": "json", "log": ["x"]}, "log: must be the text"),
            ({"top": -1}, "top: must be"), ({"top": 101}, "top: must be"), ({"top": "1"}, "top: must be"), ({"top": 1.5}, "top: must be"),
            ({"input": "json", "log": '{"t":1}\nx'}, "log: line 2: no JSON"),
            ({"input": "json", "log": '\n\n{"t":-1}'}, "log: line 3: t: must be"),
            ({"input": "json", "log": '{"t":1,"set_rules":[]}'}, "log: line 1: set_rules is not allowed here"),
            ({"input": "combined", "log": "x"}, "log: line 1: not an access log line"),
            ({"input": "combined", "log": "\nx\ny"}, "log: line 2: not an access log line"),
            ({"input": "combined", "log": LINE + "x\n" + LINE, "strict": True}, "log: line 2: not an access log line"),
            ({"input": "combined", "log": LINE, "strict": 1}, "strict: must be true or false"),
        ):
            refused(s.steer("POST", "/v1/simulate", body), 400, part)
        refused(s.steer("POST", "/v1/simulate?x=1", {}), 400, "unknown parameter")
        refused(s.steer("GET", "/v1/sample?x=1"), 400, "unknown parameter")
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            refused(s.steer("POST", "/v1/simulate", "{}", {"Content-Type": kind}), 415, "application/json")
        expect(s.ask(s.admin, "POST", "/v1/simulate", "{}", {"Content-Type": "application/json"}).status, 401)
        expect(s.ask(s.admin, "GET", "/v1/sample").status, 401)
        expect(s.steer("GET", "/v1/simulate").status, 405)


def test_bad_lines_of_a_log_are_skipped():
    with serving(rules=document(RULES)) as s:
        found = simulate(s, input="combined", log="\n" + "<b>\n" + LINE + "\x01\n" * 7 + LINE[:40])["input"]
        expect((found["lines"], found["replayed"], found["bad_lines"], found["complete"]), (11, 1, 9, True))
        expect([one["line"] for one in found["bad"]], [2, 4, 5, 6, 7])
        expect(all(one["why"].startswith("not an access log line") for one in found["bad"]), True)
        for kind, text in (("combined", LINE), ("json", '{"t": 1}\n'), ("combined", "\n")):
            found = simulate(s, input=kind, log=text, strict=True)["input"]
            expect((found["bad_lines"], found["bad"]), (0, []))


def test_hostile_values_are_shown_and_not_run():
    """Whatever clients and logs say comes back as JSON strings."""
    rule = {"id": "all", "by": ["user"], "limits": "0 per 1h"}
    names = ['<img onerror="x">', "\u202e\u2028\x1b[31m", "\\\"}", "a\x7f"]
    lines = "".join(json.dumps({"t": i, "user": name, "path": name}) + "\n" for i, name in enumerate(names))
    with serving("--sample", 100, "--sample-values", "plain", "--threads", 1, rules=document(RULES)) as s:
        send(s, [{"user": name, "path": name} for name in names])
        with s.socket(s.resp) as client:
            client.sendall(b"*5\r\n$10\r\nWEIR.CHECK\r\n$4\r\nuser\r\n$4\r\n\xff\0\r\n\r\n$4\r\npath\r\n$2\r\n/\xff\r\n*1\r\n$4\r\nQUIT\r\n")
            while client.recv(4096):
                pass
        for body in ({}, {"input": "json", "log": lines}):
            answer = s.steer("POST", "/v1/simulate", {"rules": [rule], **body})
            users = {one["user"] for one in answer.json()["changed"]["requests"]}
            expect(set(names) <= users, True, users)
            for bad in (b"\x1b", b"\x7f", b"\xe2\x80\xae", b"\xff", b"\0"):
                expect(bad in answer.body, False, bad)


def test_many_hosts_and_a_store(store):
    """Rules that count in the store or in slices count on this host in both replays."""
    rules = [{"id": "exact", "by": ["key"], "limits": {"max": 2, "per": "1h", "algorithm": "fixed_window"}},
             {"id": "leased", "by": ["user"], "lease": True, "limits": {"max": 3, "per": "1h", "algorithm": "fixed_window"}}]
    with serving("--sample", 100, "--threads", 1, "--counters", store.address, rules=json.dumps({"rules": rules})) as s:
        for i in range(20):
            s.check(key=f"k{i % 2}", user="u")
        found = simulate(s, rules=[{"id": "exact", "by": ["key"], "limits": {"max": 1, "per": "1h", "algorithm": "fixed_window"}}])
        expect((found["input"]["replayed"], found["now"]["passed"], found["then"]["passed"]), (20, 3, 2))
        expect(s.steer("GET", "/v1/sample").json()["seen"], 20)
