"""`weir check` and `weir explain` on shared cells, in many processes, some of them killed; `weir simulate` of logs."""

import gzip
import json
import os
import random
import subprocess
import tempfile
import threading
import time
import unicodedata

import support
from support import expect, weir

RULES = """
settings:
  trusted_proxies: [10.0.0.0/8]
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits: [ { name: day, calendar: day, max: 3, tz: Asia/Shanghai } ]
  - id: many
    match: { event: many }
    limits:
      - { name: day, algorithm: fixed_window, max: 40, per: 1d }
      - { name: all, algorithm: sliding_window, max: 60, per: 1d }
  - id: login
    match: { method: POST, path: /login }
    by: [ip]
    limits: [ { algorithm: fixed_window, max: 2, per: 60s } ]
  - id: trial
    match: { path: "/search/*" }
    by: [ip]
    mode: shadow
    limits: [ "1 per 1h" ]
"""
NOW = "2026-03-02T01:00:00Z"


class Folder(tempfile.TemporaryDirectory):
    """A folder with the rules in it, and the name of a cells file."""

    def __enter__(self):
        self.path = super().__enter__()
        self.cells = os.path.join(self.path, "cells")
        self.rules = self.write("rules.yaml", RULES)
        return self

    def write(self, name, content):
        path = os.path.join(self.path, name)
        with open(path, "wb") as out:
            out.write(content if isinstance(content, bytes) else content.encode())
        return path

    def read(self, name):
        with open(os.path.join(self.path, name), "rb") as file:
            return file.read()

    def words(self, *more):
        """A table of a few thousand cells: quick to make."""
        return ["check", "--rules", self.rules, "--cells", self.cells, "--cells-keys", "10k", *more]

    def check(self, *more):
        """(exit status, verdict)"""
        done = weir(*self.words(*more))
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr.decode()


# ---- check ----


def test_exit_status():
    with Folder() as folder:
        ocr = ["--event", "ocr", "--key", "u1", "--now", NOW]
        expect([folder.check(*ocr)[0] for _ in range(5)], [0, 0, 0, 1, 1])
        expect(
            folder.check(*ocr)[1],
            {
                "allowed": False,
                "status": 429,
                "rule": "ocr",
                "limit": "day",
                "max": 3,
                "remaining": 0,
                "reset_ms": 15 * 3_600_000,
                "retry_after_ms": 15 * 3_600_000,
                "shadow": [],
            },
        )
        expect(folder.check("--event", "ocr", "--key", "u2", "--now", NOW)[0], 0)
        expect(folder.check("--event", "other", "--now", NOW)[1]["rule"], None)
        expect(
            folder.check("--event", "ocr", "--key", "u1", "--now", "2026-03-02T16:00:00Z")[0], 0, "the next day in Shanghai"
        )
        for wrong in (
            ["--colour", "red"],
            ["--cost", "-1"],
            ["--cost", "many"],
            ["--cost", "9007199254740992"],
            ["--now", "yesterday"],
            ["--header", "no-value"],
            ["stray"],
        ):
            expect(folder.check(*wrong)[0], 2, str(wrong))
        expect(weir("check", "--event", "ocr").returncode, 2, "no rules")
        expect(weir("check", "--rules", folder.path + "/missing").returncode, 2)
        expect(weir("check", "--rules", folder.write("bad", "rules: 5\n"), "--cells", folder.path + "/new").returncode, 2)
        expect(os.path.exists(folder.path + "/new"), False, "bad rules make no cells")


def test_one_line_of_json():
    with Folder() as folder:
        done = weir(*folder.words("--event", "ocr", "--key", "u1", "--now", NOW))
        expect(
            done.stdout,
            b'{"allowed":true,"status":200,"rule":"ocr","limit":"day","max":3,"remaining":2,"reset_ms":54000000,"retry_after_ms":0,'
            b'"shadow":[]}\n',
        )
        done = weir(*folder.words("--event", "none"))
        expect(
            done.stdout,
            b'{"allowed":true,"status":200,"rule":null,"limit":null,"max":null,"remaining":null,"reset_ms":null,"retry_after_ms":0,'
            b'"shadow":[]}\n',
        )


def test_cost_and_peek():
    with Folder() as folder:
        ocr = ["--event", "ocr", "--key", "u1", "--now", NOW]
        expect(
            [
                folder.check(*ocr, *more)[1]["remaining"]
                for more in (["--peek"], ["--cost", "0"], ["--cost", "2"], ["--cost", "2", "--peek"])
            ],
            [3, 3, 1, 1],
        )
        expect(folder.check(*ocr, "--cost", "2", "--peek")[0], 1)
        expect(folder.check(*ocr, "--cost", "4")[1]["retry_after_ms"], -1)


KEYS = """
settings: { repeated_headers: REPEATED }
rules:
  - { id: key, by: "header:X-Api-Key", limits: [ { algorithm: fixed_window, max: 2, per: 1h } ] }
  - { id: user, match: { event: e }, by: user, limits: [ { algorithm: fixed_window, max: 2, per: 1h } ] }
"""


def test_blanks_around_values():
    with Folder() as folder:
        folder.rules = folder.write("keys.yaml", KEYS.replace("REPEATED", "refuse"))
        spellings = ("k", "\tk", "k \t", " k ")
        expect([folder.check("--header", f"X-Api-Key={k}")[0] for k in spellings], [0, 0, 1, 1], "a header")
        for user in spellings:
            found = [folder.check("--event", "e", "--user", user)[0] for _ in range(3)]
            expect(found, [0, 0, 1], f"a user counts as it is given: {user!r}")
        expect(folder.check("--event", " e", "--user", "k")[1]["rule"], None, "another event")
        done = weir("explain", "--rules", folder.rules, "--cells", folder.cells, "--header", "X-Api-Key=\tk ")
        expect("counts for header x-api-key k\n" in done.stdout.decode(), True, done.stdout.decode())
        traffic = [json.dumps({"t": n, "headers": {"x-api-key": "k" + " \t"[n % 2] * n}}) for n in range(9)]
        path = folder.write("traffic", "\n".join(traffic))
        done = weir("simulate", "--rules", folder.rules, "--verdicts", path)
        expect([json.loads(line)["allowed"] for line in done.stdout.splitlines()], [True] * 2 + [False] * 7)


def test_a_header_twice():
    twice = ["--header", "X-Api-Key=junk", "--header", "x-api-key=real"]
    with Folder() as folder:
        folder.rules = folder.write("keys.yaml", KEYS.replace("REPEATED", "refuse"))
        for _ in range(5):
            status, verdict = folder.check(*twice)
            expect((status, verdict["rule"], verdict["repeated_header"]), (1, None, "x-api-key"), verdict)
        expect(folder.check("--header", "X-Api-Key=real")[1]["remaining"], 1, "nothing was charged")
        done = weir("explain", "--rules", folder.rules, "--cells", folder.cells, *twice)
        for part in ("repeats the header x-api-key with different values", "refused: the header x-api-key is repeated"):
            expect(part in done.stdout.decode(), True, done.stdout.decode())
        traffic = [json.dumps({"t": n, "headers": {"x-api-key": ["real", f"junk{n}"]}}) for n in range(9)]
        path = folder.write("traffic", "\n".join(traffic))
        done = json.loads(weir("simulate", "--rules", folder.rules, "--json", path).stdout)
        expect((done["passed"], done["refused"], done["no_rule"]), (0, 9, 0), done)
        done = weir("simulate", "--rules", folder.rules, folder.write("one", '{"t": 0, "headers": {"a": "1", "a": "2"}}'))
        expect((done.returncode, "duplicate" in done.stderr.decode()), (2, True), done.stderr.decode())
    for repeated, wanted in (("first", [0, 0, 1]), ("last", [0, 0, 0])):
        with Folder() as folder:
            folder.rules = folder.write("keys.yaml", KEYS.replace("REPEATED", repeated))
            asked = [["--header", "X-Api-Key=real", "--header", f"X-Api-Key=junk{n}"] for n in range(3)]
            expect([folder.check(*words)[0] for words in asked], wanted, repeated)


def test_addresses():
    with Folder() as folder:
        login = ["--method", "POST", "--path", "/login?next=/", "--now", NOW]
        through = ["--peer", "10.0.0.1", "--header", "X-Forwarded-For=203.0.113.9, 10.2.3.4"]
        expect(folder.check(*login, "--ip", "203.0.113.9")[1]["remaining"], 1)
        expect(folder.check(*login, *through)[1]["remaining"], 0, "the same client through two proxies")
        expect(
            folder.check(*login, "--peer", "203.0.113.9", "--header", "X-Forwarded-For=1.2.3.4")[0],
            1,
            "not a proxy of ours",
        )
        expect(folder.check(*login, "--ip", "::ffff:203.0.113.9")[0], 1)
        twice = ["--peer", "10.0.0.1", "--header", "X-Forwarded-For=203.0.113.9", "--header", "x-forwarded-for=10.2.3.4"]
        expect(folder.check(*login, *twice)[0], 1, "several headers join")
        expect(folder.check(*login, "--ip", "2001:db8::1")[1]["remaining"], 1)
        expect(folder.check(*login, "--ip", "2001:db8::2")[1]["remaining"], 0, "the same /64")
        expect(folder.check(*login, "--ip", "2001:db8:0:1::1")[1]["remaining"], 1)
        expect(folder.check("--path", "/search/x", "--ip", "203.0.113.9")[1]["shadow"], [])
        expect(
            folder.check("--path", "/search/x", "--ip", "203.0.113.9"),
            (
                0,
                {
                    **dict.fromkeys(["rule", "limit", "max", "remaining", "reset_ms"]),
                    "allowed": True,
                    "status": 200,
                    "retry_after_ms": 0,
                    "shadow": ["trial"],
                },
            ),
        )


# ---- explain ----


def test_explain_charges_nothing():
    with Folder() as folder:
        ocr = ["--event", "ocr", "--key", "u1", "--now", NOW]
        folder.check(*ocr)
        before = folder.read("cells")
        words = folder.words(*ocr)
        words[0] = "explain"
        for _ in range(10):
            done = weir(*words)
            expect(done.returncode, 0, done.stderr.decode())
        text = done.stdout.decode()
        for word in ("ocr", "many", "login", "trial", "day", "u1"):
            expect(word in text, True, f"{word}: {text}")
        expect(folder.read("cells") == before, True, "the cells are as before")
        expect(folder.check(*ocr)[1]["remaining"], 1)
        login = weir(
            "explain",
            "--rules",
            folder.rules,
            "--method",
            "POST",
            "--path",
            "//x/../%6cogin;v=1/",
            "--peer",
            "10.0.0.1",
            "--header",
            "x-forwarded-for=203.0.113.9",
        ).stdout.decode()
        expect("/login" in login and "203.0.113.9" in login, True, login)
        for path in ("/login%2fx//../..", "/login%0a", "/x%2F..%2flogin"):
            text = weir("explain", "--rules", folder.rules, "--method", "POST", "--path", path, "--ip", "203.0.113.9").stdout.decode()
            said = "login applies\n      for the path as some servers read it: /login\n"
            expect(said in text and "\n  or       /login\n" in text, True, text)


def is_hidden(character):
    """What changes how its neighbours look, ends a line, or is obeyed by a terminal."""
    code = ord(character)
    return unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF


def test_nothing_hidden_is_shown():
    """Every character, as a value from outside: in what explain prints, in errors, and in JSON."""
    everything = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    hidden = [character for character in everything if is_hidden(character)]
    assigned = [c for c in everything if not is_hidden(c) and unicodedata.category(c) not in ("Cn", "Co")]
    with Folder() as folder:
        lines = []
        for begin in range(0, len(hidden), 50):
            text = "a" + "b".join(hidden[begin : begin + 50]) + "c"
            done = weir("explain", "--rules", folder.rules, "--event", "ocr", "--key", text)
            expect(done.returncode, 0)
            lines += done.stdout.decode().splitlines()
            done = weir("check", "--rules", folder.rules, f"--no{text}")
            expect((done.returncode, done.stderr.count(b"\n")), (2, 1))
            lines += done.stderr.decode().split("\n")
            done = weir("check", "--rules", folder.path + "/" + text[:60])
            expect(done.returncode, 2)
            lines += done.stderr.decode().split("\n")
        expect({c for line in lines for c in line if is_hidden(c)}, set())
        summary = weir("simulate", "--rules", folder.rules, "--json", "-", stdin="".join(
            json.dumps({"t": 1000, "event": "ocr", "cost": 9, "key": c}) + "\n" for c in hidden).encode()).stdout.decode()
        json.loads(summary)
        expect({c for c in summary if is_hidden(c)} - {"\n"}, set())
        # The rest is shown as it is.
        for begin in range(0, len(assigned), 20000):
            text = "".join(assigned[begin : begin + 20000])
            summary = weir("simulate", "--rules", folder.rules, "--json", "-", stdin=(
                json.dumps({"t": 1000, "event": "ocr", "cost": 9, "key": text}) + "\n").encode()).stdout.decode()
            shown = json.dumps(text, ensure_ascii=False)
            expect(shown in summary, True, f"from U+{ord(text[0]):04X}")
        done = weir("simulate", "--rules", folder.rules, "-", stdin='{"t": 1000, "key": \x1b[31m\u202e}\n'.encode())
        expect((done.returncode, b"\x1b" in done.stderr, "\u202e" in done.stderr.decode()), (2, False, False), done.stderr)


# ---- cells ----


def count_together(folder, processes, rounds):
    """Runs checks of `many` in parallel; how many were allowed and refused."""
    results = []

    def work():
        for _ in range(rounds):
            results.append(folder.check("--event", "many")[0])

    threads = [threading.Thread(target=work) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results.count(0), results.count(1)


def test_many_processes():
    """The first ones make the table together; all of them count in it."""
    with Folder() as folder:
        expect(count_together(folder, 8, 8), (40, 24))
        found = folder.check("--event", "many", "--peek", "--cost", "20")[1]
        expect((found["limit"], found["remaining"]), ("day", 0))


def test_killed_in_the_middle():
    """A process that dies between two charges leaves at most its own cost; the file stays good."""
    with Folder() as folder:
        rng = random.Random(7)
        passed = silent = 0
        for _ in range(80):
            process = subprocess.Popen(
                [support.WEIR, *folder.words("--event", "many")],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=support.ENVIRONMENT,
            )
            time.sleep(rng.random() * 0.004)
            process.kill()
            said = process.communicate()[0]
            passed += bool(said) and json.loads(said)["allowed"]
            silent += not said
        allowed, refused = count_together(folder, 2, 30)
        expect(allowed + refused, 60, "the file is good")
        expect(40 - silent <= passed + allowed <= 40, True, f"{passed} passed, {silent} died, then {allowed} passed")
        expect(folder.check("--event", "ocr", "--key", "u1", "--now", NOW)[1]["remaining"], 2)


def test_killed_while_it_makes_the_table():
    """Nothing stays but, perhaps, the whole table."""
    with Folder() as folder:
        try:
            os.close(os.open(folder.path, os.O_TMPFILE | os.O_RDWR))
        except OSError:
            return  # this file system has no files without names
        rng = random.Random(5)
        for _ in range(20):
            words = ["check", "--rules", folder.rules, "--cells", folder.cells, "--event", "many"]
            process = subprocess.Popen([support.WEIR, *words], stdout=subprocess.DEVNULL, env=support.ENVIRONMENT)
            time.sleep(rng.random() * 0.005)
            process.kill()
            process.wait()
            expect(set(os.listdir(folder.path)) - {"cells"}, {"rules.yaml"})
            if os.path.exists(folder.cells):
                expect(folder.check("--event", "many")[0] in (0, 1), True, "a table that is there is whole")
                os.unlink(folder.cells)


def test_files_that_are_no_cells():
    with Folder() as folder:
        expect(folder.check("--event", "ocr", "--key", "u1", "--now", NOW)[0], 0)
        good = folder.read("cells")
        damaged = {
            "foreign": b"#!/bin/sh\necho hello\n" * 100,
            "text": b"hello",
            "half": good[: len(good) // 2],
            "one byte less": good[:-1],
            "one byte more": good + b"\0",
            "header only": good[:64],
            "one byte": good[:1],
            "no magic": b"\0" * 8 + good[8:],
            "bits in the header": bytes(byte ^ 0x55 for byte in good[8:64]).join([good[:8], good[64:]]),
            "zeros": bytes(len(good)),
        }
        for what, content in damaged.items():
            path = folder.write("damaged", content)
            done = weir("check", "--rules", folder.rules, "--cells", path, "--event", "ocr", "--key", "u1")
            expect((done.returncode, done.stdout), (2, b""), f"{what}: {done.stderr.decode()}")
            expect("damaged" in done.stderr.decode(), True, f"{what}: an error that names the file: {done.stderr.decode()}")
            expect(folder.read("damaged") == content, True, f"{what}: the file is untouched")
        for path in (folder.path, folder.path + "/no/such/folder/cells", "/dev/null"):
            expect(weir("check", "--rules", folder.rules, "--cells", path, "--event", "ocr").returncode, 2, path)
        expect(folder.check("--event", "ocr", "--key", "u1", "--now", NOW)[1]["remaining"], 1, "the good one still counts")


def test_damaged_cells():
    """Random bytes behind the header: counts may be wrong, nothing crashes."""
    with Folder() as folder:
        folder.check("--event", "ocr", "--key", "u1", "--now", NOW)
        good, rng = folder.read("cells"), random.Random(3)
        with open(folder.cells, "r+b") as file:
            file.seek(4096)
            file.write(rng.randbytes(len(good) - 4096))
        for number in range(20):
            expect(folder.check("--event", "ocr", "--key", f"u{number}", "--now", NOW)[0] in (0, 1), True)


def test_rules_change_cells_stay():
    with Folder() as folder:
        ocr = ["--event", "ocr", "--key", "u1", "--now", NOW]
        expect([folder.check(*ocr)[0] for _ in range(4)], [0, 0, 0, 1])
        folder.write("rules.yaml", RULES.replace("max: 3", "max: 5"))
        expect([folder.check(*ocr)[1]["remaining"] for _ in range(3)], [1, 0, 0])
        folder.write("rules.yaml", RULES.replace("max: 3", "max: 1"))
        expect(
            folder.check(*ocr),
            (
                1,
                {
                    "allowed": False,
                    "status": 429,
                    "rule": "ocr",
                    "limit": "day",
                    "max": 1,
                    "remaining": 0,
                    "reset_ms": 54_000_000,
                    "retry_after_ms": 54_000_000,
                    "shadow": [],
                },
            ),
        )


def test_a_flood_frees_nobody():
    """Far more subjects than the table holds: who is refused stays refused."""
    for limit in ("3 per 1d", {"algorithm": "sliding_window", "max": 3, "per": "1d"}, "3 per day"):
        rules = json.dumps({"rules": [{"id": "r", "by": "key", "limits": [limit]}]})
        lines = [{"t": 0, "key": "victim"}] * 3
        for number in range(200):
            lines += [{"t": number, "key": f"k{number}-{each}"} for each in range(50)] + [{"t": number, "key": "victim"}]
        found = support.simulate(rules, lines, "--cells-keys", "500")
        victim = [verdict["allowed"] for line, verdict in zip(lines, found) if line["key"] == "victim"]
        expect((victim.count(True), victim.count(False)), (3, 200), str(limit))


# ---- logs and bad input ----

LOG = "\n".join(
    [
        '203.0.113.9 - - [02/Mar/2026:01:00:00 +0000] "POST /login HTTP/1.1" 200 12 "-" "curl/8"',
        '203.0.113.9 - frank [02/Mar/2026:09:00:01 +0800] "POST /login?next=%2F HTTP/1.1" 200 12 "http://a/" "x (\\"y\\")"',
        '203.0.113.9 - - [02/Mar/2026:01:00:02 +0000] "POST //login/ HTTP/1.1" 200 12 "-" "-"',
        '2001:db8::1 - - [02/Mar/2026:01:00:02 +0000] "POST /login HTTP/2.0" 200 - "-" "-"',
        '203.0.113.9 - - [02/Mar/2026:01:00:59 +0000] "GET /login HTTP/1.1" 200 12',
        '203.0.113.9 - - [02/Mar/2026:01:01:00 +0000] "POST /login HTTP/1.1" 200 12 "-" "-"',
        "",
    ]
)


def test_access_log():
    with Folder() as folder:
        plain, packed = folder.write("log", LOG), folder.write("log.gz", gzip.compress(LOG.encode()))
        two = folder.write("two.gz", gzip.compress(LOG[:200].encode()) + gzip.compress(LOG[200:].encode()))
        for path in (plain, packed, two):
            done = weir("simulate", "--rules", folder.rules, "--format", "combined", "--verdicts", path)
            expect(done.returncode, 0, done.stderr.decode())
            found = [json.loads(line) for line in done.stdout.splitlines()]
            expect(
                [(each["allowed"], each["rule"], each["remaining"], each["retry_after_ms"]) for each in found],
                [
                    (True, "login", 1, 0),
                    (True, "login", 0, 0),
                    (False, "login", 0, 58_000),
                    (True, "login", 1, 0),
                    (True, None, None, 0),
                    (True, "login", 1, 0),
                ],
            )
        done = weir(
            "simulate", "--rules", folder.rules, "--format", "combined", "--json", "-", stdin=gzip.compress(LOG.encode())
        )
        expect(done.returncode, 0, done.stderr.decode())
        json.loads(done.stdout)


def test_summary():
    """The summary counts what the verdicts say."""
    with Folder() as folder:
        rng = random.Random(11)
        lines = [
            {
                "t": number * 1000,
                "event": rng.choice(["ocr", "none"]),
                "key": rng.choice("abc"),
                "path": "/search/x",
                "ip": "1.1.1.1",
            }
            for number in range(200)
        ]
        path = folder.write("input", "".join(json.dumps(line) + "\n" for line in lines))
        verdicts = support.simulate(RULES, lines)
        done = weir("simulate", "--rules", folder.rules, "--json", path)
        told = json.loads(done.stdout)
        passed = sum(verdict["allowed"] for verdict in verdicts)
        expect((told["requests"], told["passed"], told["refused"]), (200, passed, 200 - passed))
        expect((sum(told["over_time"]["passed"]), sum(told["over_time"]["refused"])), (passed, 200 - passed))
        by_id = {rule["id"]: rule for rule in told["rules"]}
        expect(by_id["ocr"]["refused"], 200 - passed)
        expect(by_id["trial"]["would_refuse"], sum("trial" in verdict["shadow"] for verdict in verdicts))
        expect(sum(each["refused"] for each in by_id["ocr"]["subjects"]), 200 - passed)


def test_bad_input():
    good = '{"t": 0}\n'
    with Folder() as folder:
        for bad in (
            "{",
            "x",
            "[]",
            '{"path": "/"}',
            '{"t": "yesterday"}',
            '{"t": -1}',
            '{"t": 1e30}',
            '{"t": 0, "cost": -1}',
            '{"t": 0, "cost": 1.5}',
            '{"t": 0, "cost": 9007199254740992}',
            '{"t": 0, "path": 5}',
            '{"t": 0, "headers": []}',
            '{"t": 0, "headers": {"a": 1}}',
            '{"t": 0, "set_rules": 5}',
            '{"t": 0, "set_rules": [{"id": "a"}]}',
            '{"t": 0, "colour": "red"}',
            '{"t": 0} {"t": 1}',
            '{"t": 0, "peek": "yes"}',
            '{"t": 0, "user": "\\ud800"}',
            '{"t": 0, "user": "a\udcff"}',
        ):
            path = folder.write("input", (good * 2 + bad + "\n" + good).encode("utf-8", "surrogateescape"))
            done = weir("simulate", "--rules", folder.rules, "--verdicts", path)
            expect((done.returncode, f"{path}:3: " in done.stderr.decode()), (2, True), f"{bad!r}: {done.stderr.decode()}")
        path = folder.write("log", LOG + "nonsense\n")
        for option in ("--strict", "--verdicts"):
            done = weir("simulate", "--rules", folder.rules, "--format", "combined", option, path)
            expect((done.returncode, f"{path}:7: " in done.stderr.decode()), (2, True), done.stderr.decode())
        done = weir("simulate", "--rules", folder.rules, "--format", "combined", path)
        expect((done.returncode, f"{path}:7: not an access log line" in done.stderr.decode()), (0, True), done.stderr.decode())
        expect("\n1 line was skipped, because it is not a request.\n" in done.stdout.decode(), True, done.stdout.decode())
        path = folder.write("log", "\0\n" * 3 + LOG[:-40] + "\n" + "x\n" * 7 + LOG)
        done = weir("simulate", "--rules", folder.rules, "--format", "combined", "--json", path)
        told = json.loads(done.stdout)
        expect((done.returncode, told["requests"], told["bad_lines"]), (0, 11, 11), done.stderr.decode())
        expect([line.split(":")[1] for line in done.stderr.decode().splitlines()], ["1", "2", "3", "9", "10"], "the first five")
        path = folder.write("log", "\nx\n\ny\n")
        done = weir("simulate", "--rules", folder.rules, "--format", "combined", path)
        expect((done.returncode, f"{path}: no line is a line of an access log" in done.stderr.decode()), (2, True), done.stderr.decode())
        path = folder.write("log", "\n\n")
        expect(weir("simulate", "--rules", folder.rules, "--format", "combined", path).returncode, 0, "nothing but blanks")
        path = folder.write("cut.gz", gzip.compress(LOG.encode())[:-20])
        expect(
            weir("simulate", "--rules", folder.rules, "--format", "combined", path).returncode, 2, "a gzip file cut short"
        )
        expect(weir("simulate", "--rules", folder.rules, folder.path + "/missing").returncode, 2)
