#!/usr/bin/env python3
"""`weir simulate` beside `awk '{n[$1]++}'` on the same access log, in one run: ratios.

    bench/simulate.py BUILD/weir [--only speed|memory] [--lines N] [--rounds N] [--json]

`speed` replays a combined log of N lines with examples/rules.yaml, and lets mawk and gawk, if they are installed, count its
addresses. Each round measures the sides one after the other, the next round the other way round; what is shown is the median
of the rounds' ratios. On a machine that is busy with other work, the CPU time of the busiest thread says how fast a side would
be. `memory` pipes N lines into weir, and then ten times as many, each of any of 8 million addresses.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from common import Bench

RULES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples", "rules.yaml")

PATHS = ("/", "/index.html", "/login", "/api/v1/items?page=%d", "/repo/v1/entity/%d/bundle", "/static/app.%d.js", "/files/%d")
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/122.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_3 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148 Safari/604.1",
    "curl/8.5.0",
)
TAILS = 10007  # different requests; a prime, so that addresses meet all of them


def tails(chance):
    """What follows the time in a line."""
    for _ in range(TAILS):
        path, number = chance.choice(PATHS), chance.randrange(100000)
        method = "POST" if path == "/login" or chance.random() < 0.1 else "GET"
        referer = chance.choice(("-", "https://example.org/page"))
        path = path.replace("%d", str(number))
        yield f'] "{method} {path} HTTP/1.1" 200 {number} "{referer}" "{chance.choice(AGENTS)}"\n'


def write_log(out, lines, addresses, uniform):
    """A combined log, 100 lines a second. Each address comes up as often as any, or the n-th in proportion to 1/n."""
    chance = random.Random(7)
    ends = list(tails(chance))
    users = ["-"] * 7500 + [f"user{number}" for number in range(5000)]
    for first in range(0, lines, 100):
        when = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(1772409600 + first // 100))
        text = []
        for line in range(first, min(first + 100, lines)):
            n = int(chance.random() * addresses if uniform else addresses ** chance.random())
            user = users[line * 7919 % 12500]
            text.append(f"{20 + (n >> 22)}.{n >> 16 & 63}.{n >> 8 & 255}.{n & 255} - {user} [{when}{ends[line % TAILS]}")
        out.write("".join(text).encode())


def busiest(pid, before):
    """CPU time of the thread that has used most, in seconds."""
    most = before
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as schedstat:
                most = max(most, int(schedstat.read().split()[0]) / 1e9)
    except (OSError, IndexError):
        pass
    return most


class Used:
    """What a command used: seconds, seconds of CPU of all threads and of the busiest one, and MiB of memory at most."""

    def __init__(self, command, stdin=None):
        begin, self.busiest_s, done = time.monotonic(), 0, 0
        with open(os.devnull, "wb") as null:
            process = subprocess.Popen(command, stdin=stdin, stdout=null)
        while not done:
            self.busiest_s = busiest(process.pid, self.busiest_s)
            time.sleep(0.002)
            done, status, usage = os.wait4(process.pid, os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{command[0]} failed")
        self.seconds = time.monotonic() - begin
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.mib = usage.ru_maxrss / 1024


class SimulateBench(Bench):
    parts = ("speed", "memory")

    def __init__(self, options):
        super().__init__(options)
        self.awks = [awk for awk in ("mawk", "gawk") if shutil.which(awk)]
        if not self.awks:
            sys.exit("neither mawk nor gawk is installed; install one of them")

    def weir(self, log):
        return [self.options.weir, "simulate", "--rules", RULES, "--format", "combined", log]

    def speed(self):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "access.log")
            with open(log, "wb") as out:
                write_log(out, self.options.lines, 200000, False)
            commands = [self.weir(log), *([awk, "{n[$1]++}", log] for awk in self.awks)]
            Used(commands[0])  # the log is in the cache now
            rounds = list(self.rounds(*(lambda command=command: Used(command) for command in commands)))
        for side, name in enumerate(["weir simulate", *self.awks]):
            rates = sorted(self.options.lines / values[side].seconds / 1e6 for values in rounds)
            cpu = sorted(self.options.lines / values[side].busiest_s / 1e6 for values in rounds)
            self.say(
                f"{name:<14} {rates[len(rates) // 2]:5.2f} million lines a second (best: {rates[-1]:.2f}); "
                f"{cpu[len(cpu) // 2]:.2f} for a second of its busiest thread's CPU (best: {cpu[-1]:.2f})"
            )
        for side, awk in enumerate(self.awks, 1):
            wanted = 1 if awk == "mawk" else None
            self.ratio(
                f"lines a second, weir simulate / {awk} '{{n[$1]++}}'", [v[side].seconds / v[0].seconds for v in rounds], wanted
            )
            self.ratio(
                "the same for a second of the busiest thread's CPU", [v[side].busiest_s / v[0].busiest_s for v in rounds], wanted
            )
            self.ratio("CPU of all threads for a line", [v[0].cpu_s / v[side].cpu_s for v in rounds], None)

    def piped(self, lines):
        read, write = os.pipe()
        with open(write, "wb") as out, open(read, "rb") as log:
            writer = threading.Thread(target=lambda: (write_log(out, lines, 8000000, True), out.close()))
            writer.start()
            used = Used(self.weir("-"), log).mib
            writer.join()
        self.say(f"{lines:>12,} lines, 8 million addresses: {used:.0f} MiB at most")
        return used

    def memory(self):
        few, many = self.piped(self.options.lines), self.piped(10 * self.options.lines)
        self.ratio("memory for ten times the lines / for the lines", [many / few], 1.1, at_most=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weir", type=os.path.abspath)
    parser.add_argument("--only", action="append", choices=SimulateBench.parts)
    parser.add_argument("--lines", type=int, default=2000000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print the ratios as JSON; all else goes to stderr")
    SimulateBench(parser.parse_args()).run()


if __name__ == "__main__":
    main()
