"""Access logs are read and matched by a thread of their own, in blocks: the verdicts have to be those of the same requests as JSON Lines,
which are read and decided one after another. Lines have any length, end and content; the log is a file, gzip or a pipe."""

import gzip
import json
import os
import random
import subprocess
import tempfile
import threading

import pytest

import support
from support import expect, number, weir

SEED = number("TEST_SEED", 20260302)
FILES = number("TEST_COUNT", 6)
LINES = 3000
SHOWN = 5  # bad lines that are shown
LARGE = 64 << 20  # bytes of a file that gets large pages

COUNTED = """
rules:
  - { id: address, by: [ip], limits: [ { name: a, max: 5, per: 10s }, { name: b, algorithm: sliding_window, max: 40, per: 1m } ] }
  - { id: user, match: { path: "/u/*", method: [POST] }, by: [user], limits: [ { name: day, calendar: day, max: 7, tz: Asia/Shanghai } ] }
  - { id: trial, match: { path: "/{name}" }, by: [ip, user], mode: shadow, limits: [ 2 per 1m ] }
"""
HELD = """
rules:
  - { id: held, by: [ip], limits: [ { name: h, concurrent: 2, ttl: 10s }, { name: a, max: 5, per: 10s } ] }
"""
BAD = ("junk", "\0", "1.2.3.4 - - [nonsense] \"GET / HTTP/1.1\" 200 1", '1.2.3.4 - - [02/Mar/2026:01:00:02 +0000] "GET / HTTP', "[[[[", '"' * 300000)


class Log:
    """A log as bytes, its requests, and the numbers of its bad lines."""

    def __init__(self, seed):
        self.rng, self.requests, self.bad = random.Random(seed), [], []
        self.now, self.lines = 1772409600, []
        for line in range(1, LINES):
            self.lines.append(self.line(line))
        self.lines.append(self.request())
        ends = [self.rng.choice(("\n", "\n", "\r\n")) for _ in self.lines]
        ends[-1] = self.rng.choice(("", "\n", "\r\n", "\r"))
        self.bytes = "".join(map("".join, zip(self.lines, ends))).encode("latin-1")

    def line(self, line):
        chance = self.rng.random()
        if chance < 0.02:
            self.bad.append(line)
            return self.rng.choice(BAD)
        return self.rng.choice(("", " ", "\t ")) if chance < 0.04 else self.request()

    def filler(self):
        """For fields that no rule looks at: often short, sometimes longer than a block of the reader, also with NUL and any byte."""
        size = self.rng.choice((0, 1, 5, 80)) if self.rng.random() < 0.995 else self.rng.choice((70000, 131072, 140000, 600000))
        byte = self.rng.choice(("x", "\0", "\xff", "\r", "\\\\", '\\"', "\\x41"))
        return "agent" + byte * size

    def request(self):
        self.now += self.rng.choice((0, 0, 0, 0, 1, 2, 40, -1, 3600))
        ip, user = f"10.0.0.{self.rng.randrange(20)}", self.rng.choice((None, "ann", "b o b", "c[d"))
        method, path = self.rng.choice(("GET", "POST")), self.rng.choice(("/", "/u/x", "/u/%41?q=1", "//login/", "/a b"))
        self.requests.append({"t": self.now * 1000, "ip": ip, "method": method, "path": path, **({"user": user} if user else {})})
        day, second = divmod(self.now - 1772323200, 86400)  # the first of March 2026
        when = f"{day + 1:02}/Mar/2026:{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02} +0000"
        return f'{ip} - {user or "-"} [{when}] "{method} {path} HTTP/1.1" 200 7 "{self.filler()}" "{self.filler()}"'

    def packed(self):
        """As gzip, in several members that end anywhere."""
        cuts = sorted(self.rng.randrange(len(self.bytes)) for _ in range(3))
        return b"".join(gzip.compress(self.bytes[a:b], 1) for a, b in zip((0, *cuts), (*cuts, len(self.bytes))))


def piped(words, text, rng):
    """The command, while a pipe fills in pieces of any size."""
    with subprocess.Popen(
        [support.WEIR, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=support.ENVIRONMENT
    ) as process:

        def write():
            at = 0
            while at < len(text):
                size = rng.choice((1, 7, 1000, 65536, 200000))
                process.stdin.write(text[at : at + size])
                process.stdin.flush()
                at += size
            process.stdin.close()

        errors = []
        threads = [threading.Thread(target=write), threading.Thread(target=lambda: errors.append(process.stderr.read()))]
        for thread in threads:
            thread.start()
        out = process.stdout.read()
        for thread in threads:
            thread.join()
        return subprocess.CompletedProcess(words, process.wait(), out, errors[0])


@pytest.mark.parametrize("rules", [COUNTED, HELD], ids=["counted", "held"])
@pytest.mark.parametrize("seed", range(SEED, SEED + FILES))
def test_random_log(seed, rules):
    log = Log(seed)
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: os.path.join(folder, name) for name in ("rules", "log", "log.gz", "lines", "good")}
        # Bad lines end a run with --verdicts, so it has a log without them.
        good = b"\n".join(line.encode("latin-1") for number, line in enumerate(log.lines, 1) if number not in log.bad)
        lines = "".join(json.dumps(request) + "\n" for request in log.requests).encode()
        texts = {"rules": rules.encode(), "log": log.bytes, "log.gz": log.packed(), "lines": lines, "good": good}
        for name, text in texts.items():
            with open(paths[name], "wb") as out:
                out.write(text)
        words = ("simulate", "--rules", paths["rules"])
        wanted, found = (weir(*words, "--verdicts", *more) for more in ((paths["lines"],), ("--format", "combined", paths["good"])))
        expect((found.returncode, found.stderr), (0, b""), f"seed {seed}")
        for line, (one, other) in enumerate(zip(wanted.stdout.splitlines(), found.stdout.splitlines()), 1):
            expect(other, one, f"seed {seed}: verdict {line}, on {log.requests[line - 1]}")
        expect(len(found.stdout.splitlines()), len(log.requests), f"seed {seed}: verdicts")

        # With the bad lines, and however it is read: the same summary, but for them.
        summary = json.loads(weir(*words, "--json", paths["lines"]).stdout)
        combined = [*words, "--json", "--format", "combined"]
        summary["bad_lines"] = len(log.bad)
        for what, done in (
            ("file", weir(*combined, paths["log"])), ("gzip", weir(*combined, paths["log.gz"])),
            ("pipe", piped([*combined, "-"], log.bytes, log.rng)), ("gzip in a pipe", piped([*combined, "-"], texts["log.gz"], log.rng)),
        ):
            expect(done.returncode, 0, f"seed {seed}, {what}: {done.stderr.decode()}")
            expect(json.loads(done.stdout), summary, f"seed {seed}, {what}")
            told = [int(line.split(":")[1]) for line in done.stderr.decode().splitlines()]
            expect(told, log.bad[:SHOWN], f"seed {seed}, {what}: bad lines")
        strict = weir(*combined, "--strict", paths["log"])
        expect((strict.returncode, strict.stdout), (2, b""), f"seed {seed}: --strict")
        expect(strict.stderr.decode().split(":")[1], str(log.bad[0]), f"seed {seed}: --strict")


def test_large_file():
    """A large file has a table of another kind, which does not change what is decided."""
    log = Log(SEED)
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: os.path.join(folder, name) for name in ("rules", "log", "large")}
        rest = (b"x" * (LARGE // 2) + b"\n") * 2
        for name, text in (("rules", COUNTED.encode()), ("log", log.bytes), ("large", log.bytes.rstrip(b"\r\n") + b"\n" + rest)):
            with open(paths[name], "wb") as out:
                out.write(text)
        found = [json.loads(weir("simulate", "--rules", paths["rules"], "--json", "--format", "combined", paths[name]).stdout) for name in ("log", "large")]
        expect(found[1].pop("bad_lines"), found[0].pop("bad_lines") + 2)
        expect(found[1], found[0])
