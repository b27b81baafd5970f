"""What the benchmarks that drive servers share: servers on one CPU, clients on the other, rounds in turns, ratios."""

import argparse
import atexit
import csv
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

SERVER_CPU, CLIENT_CPU = "0", "1"
# Tables of services are in memory, as they are for users, and gone when the benchmark ends.
if os.access("/dev/shm", os.W_OK):
    os.environ["RUNTIME_DIRECTORY"] = tempfile.mkdtemp(prefix="weir-bench-", dir="/dev/shm")
    atexit.register(shutil.rmtree, os.environ["RUNTIME_DIRECTORY"], ignore_errors=True)
BUSY = 0.9  # part of its CPU that a server has to use for its requests a second to mean anything


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cpu_s(pid):
    """CPU time of a process and its children, as far as they and their threads still run."""
    total_ns = 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as stat:
                parent = int(stat.read().rsplit(")", 1)[1].split()[1])
            if pid not in (int(entry), parent):
                continue
            for thread in os.listdir(f"/proc/{entry}/task"):
                with open(f"/proc/{entry}/task/{thread}/schedstat", encoding="utf-8") as schedstat:
                    total_ns += int(schedstat.read().split()[0])
        except OSError:
            continue
    return total_ns / 1e9


class Server:
    """A process on the servers' CPU, until something listens at its port."""

    all = []

    def __init__(self, folder, port, *command, pin=True):
        self.port = port
        Server.all.append(self)
        pinned = ["taskset", "-c", SERVER_CPU] if pin else []
        with open(os.path.join(folder, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [*pinned, *map(str, command)], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    with open(os.path.join(folder, "log"), encoding="utf-8") as log:
                        sys.exit(f"{command[0]} did not start:\n{log.read()}")
                time.sleep(0.05)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)


def client(*command, pin=True):
    pinned = ["taskset", "-c", CLIENT_CPU] if pin else []
    done = subprocess.run([*pinned, *map(str, command)], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed: {done.stdout}{done.stderr}")
    return done.stdout


def by_key(program, keys, threads, seconds, *more):
    """(nanoseconds of a check, the largest size of the process)"""
    pinned = ["taskset", "-c", SERVER_CPU if threads == 1 else f"{SERVER_CPU},{CLIENT_CPU}"]
    words = [*pinned, program, *map(str, (keys, threads, seconds)), *more]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        text = process.stdout.read().strip()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(words[3:])} failed with status {process.returncode}")
    try:
        ns = float(text)
    except ValueError:
        ns = -1
    if not 0 <= ns < 1e12 or (ns == 0) != (seconds == 0):
        sys.exit(f"{' '.join(words[3:])} printed {text!r} instead of the nanoseconds of a check")
    return ns, usage.ru_maxrss * 1024


class Bench:
    """Parts are methods; `parts` names them."""

    parts = ()

    def __init__(self, options):
        self.options = options
        self.results = []

    def say(self, text):
        print(text, file=sys.stderr if self.options.json else sys.stdout, flush=True)

    def ratio(self, name, values, wanted, at_most=False):
        is_value = statistics.median(values)
        self.results.append({"name": name, "is": is_value, "rounds": values, "wanted": wanted, "at_most": at_most})
        if wanted is None:
            self.say(f"{name:<78} {is_value:6.2f}")
            return
        met = is_value <= wanted if at_most else is_value >= wanted
        self.say(f"{name:<78} {is_value:6.2f}  ({'≤' if at_most else '≥'} {wanted}){'' if met else '  NOT REACHED'}")

    def rounds(self, *sides):
        """One after another: [value of the first side, value of the second, …]; alternating, who begins changes."""
        for number in range(self.options.rounds):
            order = list(range(len(sides)))
            if number % 2:
                order.reverse()
            values = [None] * len(sides)
            for i in order:
                values[i] = sides[i]()
            yield values

    def compare(self, what, result, peer, rate_wanted=None, cpu_wanted=None, side="weir", unit="requests"):
        """Two sides of {name of a side: [(requests a second, CPU of each, how busy), …]}"""
        pairs = list(zip(result[side], result[peer]))
        full = [w[0] / p[0] for w, p in pairs if min(w[2], p[2]) >= BUSY]
        peer_full = [w[0] / p[0] for w, p in pairs if p[2] >= BUSY]
        # A server that waits for its client answers as fast as it is asked, and could do more.
        if 2 * len(full) > len(pairs):
            self.ratio(f"{what}: {unit} a second, {side} / {peer}", full, rate_wanted)
        elif 2 * len(peer_full) > len(pairs):
            self.ratio(f"{what}: {unit} a second, {side} / {peer}, at least", peer_full, rate_wanted)
        else:
            self.say(f"{what}: {unit} a second, {side} / {peer}: unknown, busy in {len(full)} of {len(pairs)} rounds")
        self.ratio(f"{what}: CPU for each, {side} / {peer}", [w[1] / p[1] for w, p in pairs], cpu_wanted, at_most=True)

    # ---- clients ----

    def redis_benchmark(self, server, pipeline, *command, keys=1000000):
        """(requests a second, CPU microseconds of the server for each); `__rand_int__` is one of so many keys"""
        count = (100000 if pipeline == 1 else 400000) // (20 if getattr(self.options, "quick", False) else 1)
        before, total, rates = cpu_s(server.process.pid), 0, []
        end = time.monotonic() + self.options.seconds
        while time.monotonic() < end:
            words = ("-h", "127.0.0.1", "-p", server.port, "-c", 50, "-P", pipeline, "-n", count, "-r", keys, "--csv")
            rows = list(csv.reader(client("redis-benchmark", *words, *command).splitlines()))
            rates.append(float(rows[-1][1]))
            total += count
        return statistics.median(rates), (cpu_s(server.process.pid) - before) / total * 1e6

    def wrk(self, url, folder, script=None):
        more = ()
        if script:
            path = os.path.join(folder, "wrk.lua")
            with open(path, "w", encoding="utf-8") as out:
                out.write(script)
            more = ("-s", path)
        text = client("wrk", "-t", 1, "-c", 50, "-d", f"{self.options.seconds}s", *more, url)
        if "Non-2xx" in text or "Socket errors" in text:
            sys.exit(f"wrk at {url}: {text}")
        return float(re.search(r"Requests/sec: *([0-9.]+)", text)[1])

    def run(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            for part in self.options.only or self.parts:
                getattr(self, part)()
        finally:
            for server in Server.all:
                server.stop()
        if self.options.json:
            print(json.dumps(self.results, indent=2))


def arguments(description, files, parts, rounds, seconds, **more):
    """more: further options that name a file, with their help"""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for file in files:
        parser.add_argument(file, type=os.path.abspath)
    parser.add_argument("--only", action="append", choices=parts)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seconds", type=int, default=seconds)
    parser.add_argument("--json", action="store_true", help="print the ratios as JSON; all else goes to stderr")
    for name, text in more.items():
        parser.add_argument(f"--{name}", type=os.path.abspath, metavar="PATH", help=text)
    return parser.parse_args()
