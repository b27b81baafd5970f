#!/usr/bin/env python3
"""weir beside other rate limiters, in one run on one machine: ratios, and charts of them.

    bench/peers.py BUILD [--governor PROGRAM] [--throttlecrab-library PROGRAM] [--throttlecrab PROGRAM] [--gubernator PROGRAM]
                   [--ratelimit PROGRAM] [--redis-cell MODULE] [--only process|resp|http|grpc|memory] [--rounds N] [--seconds S]
                   [--quick] [--svg FOLDER] [--page FILE] [--json]

process  a check by a text, in one process: 1,000, 1M and 10M keys, on one thread and on two
resp     decisions over the protocol of Redis, pipelined by 1 and by 16, also beside a script in Redis
http     decisions over HTTP with JSON
grpc     decisions over gRPC
memory   bytes for a key

Each option names the program of a peer; a peer without one is left out. For a library it is a program KEYS THREADS SECONDS that prints
the nanoseconds of a check: docs/benchmarks.md shows them. A server and its Redis have one CPU, the client has the other one. All sides
have the same limit, which nobody reaches, and 1M keys, each as likely as any other.

Each round measures the sides one after the other, the next round the other way round; what is shown is the median of the
rounds' ratios: how much a peer does in the time, or the CPU time, in which weir does 1. --svg draws them into FOLDER, and --page also
writes them into FILE, between the marks there.
"""

import argparse
import os
import re
import socket
import statistics
import sys
import tempfile
import time
import urllib.request

from charts import LARGER, SMALLER, Bar, Chart, machine, write_page
from common import BUSY, Server, by_key, client, cpu_s, free_port
from envoy import METHOD, OK, EnvoyBench, call, field, made

KEYS = 1000000
PROCESS_KEYS = {"1,000 keys": 1000, "1M keys": 1000000, "10M keys": 10000000}
# In a process as many as are larger than this program: the size of a process begins with that of the one that started it.
MEMORY_KEYS = {"in a process": 4000000, "a service": 200000}
MEMORY_SECONDS = 20  # of calls, where they cannot be counted beforehand
PROCESS_BYTES = 200  # for a key at most, with its text: without room for it, a size is left out

# A day, so that no peer forgets a key while it is measured.
RULES = "rules: [ { id: api, match: { event: api }, by: [key], limits: [ 1000 per 24h ] } ]\n"

# The usual fixed window.
SCRIPT = """
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return count <= tonumber(ARGV[1]) and 1 or 0
"""

# %s: how the body begins, and how it ends
POST = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local n = 0
request = function()
  n = (n + 7919) %% 1000000
  return wrk.format(nil, nil, nil, '%s' .. string.format("%%06d", n) .. '%s')
end
"""

LIBRARIES = {"governor": "governor", "throttlecrab_library": "throttlecrab, the library"}
SERVERS = {
    "throttlecrab": "throttlecrab", "gubernator": "gubernator", "ratelimit": "ratelimit with Redis", "redis_cell": "redis-cell",
}


def varint(number, value):
    """A field of a protobuf message."""
    out = bytearray((number << 3,))
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes((value,))


def message(content):
    """As a call of gRPC has it."""
    return b"\0" + len(content).to_bytes(4, "big") + content


class Side:
    """A limiter that runs as one or more servers, and how it is asked: `resp` (port, words of a command), `http` (port, path, how a
    body begins and ends, what an answer contains that lets pass), `grpc` (port, method, call, how an answer begins)."""

    def __init__(self, *servers, resp=None, http=None, grpc=None):
        self.servers, self.ways = servers, {"resp": resp, "http": http, "grpc": grpc}

    def stop(self):
        for server in self.servers:
            server.stop()

    def cpu_s(self):
        return sum(cpu_s(server.process.pid) for server in self.servers)

    def resident_bytes(self):
        total = 0
        for server in self.servers:
            with open(f"/proc/{server.process.pid}/smaps_rollup", encoding="ascii") as file:
                total += 1024 * sum(int(line.split()[1]) for line in file if line.startswith("Rss:"))
        return total

    def table_bytes(self):
        """Resident bytes of weir's table: a service that saves it has looked at all of it before the first key comes."""
        total, mapped = 0, False
        with open(f"/proc/{self.servers[0].process.pid}/smaps", encoding="ascii") as file:
            for line in file:
                if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                    mapped = "/weir-" in line or line.rstrip().endswith("/cells")
                elif mapped and line.startswith("Rss:"):
                    total += 1024 * int(line.split()[1])
        return total


def distinct(keys, calls):
    """How many of `keys` come up in so many calls, each for any of them."""
    return keys * (1 - (1 - 1 / keys) ** calls)


def available_bytes():
    with open("/proc/meminfo", encoding="ascii") as file:
        return 1024 * sum(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))


class PeersBench(EnvoyBench):
    parts = ("process", "resp", "http", "grpc", "memory")

    def __init__(self, options):
        super().__init__(options)
        self.process_keys, self.memory_keys = PROCESS_KEYS, MEMORY_KEYS
        if options.quick:
            self.process_keys = {"1,000 keys": 1000}
            self.memory_keys = dict.fromkeys(MEMORY_KEYS, 10000)
            options.rounds = options.seconds = 1
        self.charts = {
            "process": Chart("Checks in a process", "checks a second, weir = 1", LARGER),
            "rate": Chart("Decisions of a service on one core", "decisions a second, weir = 1", LARGER),
            "cpu": Chart("Decisions of a service for its CPU time", "decisions for a second of CPU, weir = 1", LARGER),
            "memory": Chart("Memory for a key", "bytes, and multiples of weir's", SMALLER),
        }
        for name, what in {**LIBRARIES, **SERVERS}.items():
            path, option = getattr(options, name), name.replace("_", "-")
            if not path:
                self.say(f"{what}: left out; --{option} names it")
            elif not os.access(path, os.R_OK if name == "redis_cell" else os.X_OK) or os.path.isdir(path):
                self.say(f"{what}: left out; there is no {'module' if name == 'redis_cell' else 'program'} {path}")
                setattr(options, name, None)
        options.reference = options.ratelimit

    # ---- libraries ----

    def libraries(self):
        """{name: program}"""
        given = {what: getattr(self.options, name) for name, what in LIBRARIES.items() if getattr(self.options, name)}
        return {"weir": self.program("bench/by_key"), **given}

    def process(self):
        (weir, program), *others = self.libraries().items()
        # The next sides: what weir takes to do more.
        words_of = {"weir, with what is left": ("reported",), "weir, any request": ("whole",)}
        sides = {weir: program, **dict.fromkeys(words_of, program), **dict(others)}
        for size, keys in self.process_keys.items():
            if keys * PROCESS_BYTES > available_bytes():
                self.say(f"{size}: left out; there is not enough memory")
                continue
            for threads in (1, 2) if os.cpu_count() > 1 else (1,):
                group = f"{size}, {'one thread' if threads == 1 else 'two threads'}"
                words = (keys, threads, self.options.seconds)
                rounds = list(self.rounds(*(
                    lambda n=name, p=path: by_key(p, *words, *words_of.get(n, ()))[0] for name, path in sides.items()
                )))
                for values in rounds:
                    self.say(f"  {group}: {'; '.join(f'{name} {ns:.0f} ns' for name, ns in zip(sides, values))}")
                for i, name in enumerate(sides):
                    self.bar("process", group, name, [values[0] / values[i] for values in rounds])

    # ---- servers ----

    def listening(self, server, *ports):
        """The server, when it has more ports than the one that its start waits for."""
        end = time.monotonic() + 20
        for port in ports:
            while not self.is_open(port):
                if server.process.poll() is not None or time.monotonic() > end:
                    sys.exit(f"{' '.join(server.process.args)} does not listen on port {port}")
                time.sleep(0.05)
        return server

    @staticmethod
    def is_open(port):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            return False

    def start_weir(self, folder, keys):
        home, rules = made(folder, "own"), os.path.join(folder, "rules.yaml")
        with open(rules, "w", encoding="utf-8") as out:
            out.write(RULES)
        resp, http = free_port(), free_port()
        options = {"data": os.path.join(home, "data"), "rules": rules, "threads": 1, "cells-keys": keys, "log-refusals": 0}
        options.update({"resp": f"127.0.0.1:{resp}", "http": f"127.0.0.1:{http}", "admin": "off"})
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        server = self.listening(Server(home, resp, self.program("weir"), "serve", *words), http)
        body = ('{"event":"api","key":"u', '"}')
        return Side(
            server, resp=(resp, ("WEIR.CHECK", "event", "api", "key", "u__rand_int__")),
            http=(http, "/v1/check", *body, '"allowed":true'),
        )

    def redis(self, folder, name, *more):
        port = free_port()
        words = ("--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", *more)
        return Server(made(folder, name), port, "redis-server", *words)

    def start_script(self, folder, keys):
        del keys
        server = self.redis(folder, "script")
        sha = client("redis-cli", "-p", server.port, "SCRIPT", "LOAD", SCRIPT).strip()
        return Side(server, resp=(server.port, ("EVALSHA", sha, "1", "u__rand_int__", "1000", "86400000")))

    def start_redis_cell(self, folder, keys):
        del keys
        server = self.redis(folder, "cell", "--loadmodule", self.options.redis_cell)
        return Side(server, resp=(server.port, ("CL.THROTTLE", "u__rand_int__", "999", "1000", "86400", "1")))

    def start_throttlecrab(self, folder, keys):
        ports = {name: free_port() for name in ("redis", "http", "grpc")}
        words = [word for name, port in ports.items() for word in (f"--{name}", f"--{name}-host", "127.0.0.1", f"--{name}-port", port)]
        words += ["--store-capacity", keys, "--log-level", "error"]
        server = Server(made(folder, "throttlecrab"), ports["redis"], self.options.throttlecrab, *words)
        limit = varint(2, 1000) + varint(3, 1000) + varint(4, 86400) + varint(5, 1)
        return Side(
            self.listening(server, *ports.values()),
            resp=(ports["redis"], ("THROTTLE", "u__rand_int__", "1000", "1000", "86400", "1")),
            http=(ports["http"], "/throttle", '{"max_burst":1000,"count_per_period":1000,"period":86400,"key":"u', '"}', '"allowed":true'),
            grpc=(ports["grpc"], "/throttlecrab.RateLimiter/Throttle", message(limit + field(1, b"u000000")), "0801"),
        )

    def start_gubernator(self, folder, keys):
        grpc, http, members = free_port(), free_port(), free_port()
        settings = {"GRPC_ADDRESS": grpc, "HTTP_ADDRESS": http, "ADVERTISE_ADDRESS": grpc}
        settings.update({f"MEMBERLIST_{name}": members for name in ("ADDRESS", "BIND_ADDRESS", "KNOWN_NODES")})
        words = [f"GUBER_{name}=127.0.0.1:{port}" for name, port in settings.items()]
        words += [f"GUBER_CACHE_SIZE={keys}", "GUBER_LOG_LEVEL=error", "OTEL_TRACES_EXPORTER=none"]
        server = Server(made(folder, "gubernator"), grpc, "env", *words, self.options.gubernator)
        limit = field(1, b"api") + varint(3, 1) + varint(4, 1000) + varint(5, 86400000)
        body = ('{"requests":[{"name":"api","hits":"1","limit":"1000","duration":"86400000","unique_key":"u', '"}]}')
        side = Side(
            self.listening(server, http),
            http=(http, "/v1/GetRateLimits", *body, '"status":"UNDER_LIMIT","limit":"1000"'),
            grpc=(grpc, "/pb.gubernator.V1/GetRateLimits", message(field(1, limit + field(2, b"u000000"))), "0a..10"),
        )
        self.passes(side, 20)  # it has to find itself first
        return side

    def start_ratelimit(self, folder, keys):
        del keys
        service, redis = self.reference_server(folder)
        body = '{"domain":"shop","descriptors":[{"entries":[{"key":"path","value":"/orders"},{"key":"user","value":"u'
        return Side(
            self.listening(service, service.http), redis,
            http=(service.http, "/json", body, '"}]}]}', '"overallCode":"OK"'), grpc=(service.port, METHOD, call(), OK),
        )

    def start_weir_grpc(self, folder, keys):
        del keys
        (server,) = self.weir(folder)
        return Side(server, grpc=(server.port, METHOD, call(), OK))

    def sides(self, folder, way, keys):
        """{name: side} of all that can be asked in this way, weir first"""
        starts = {"weir": self.start_weir_grpc if way == "grpc" else self.start_weir}
        if way == "resp":
            starts["a script in Redis"] = self.start_script
        ways = {"redis_cell": ("resp",), "throttlecrab": ("resp", "http", "grpc"), "gubernator": ("http", "grpc"), "ratelimit": ("http", "grpc")}
        for name, what in SERVERS.items():
            if getattr(self.options, name) and way in ways[name]:
                starts[what] = getattr(self, f"start_{name}")
        return {name: start(folder, keys) for name, start in starts.items()}

    # ---- asking ----

    def passes(self, side, seconds=0):
        """Ends the program if a first request does not pass."""
        port, path, before, after, passed = side.ways["http"]
        end = time.monotonic() + seconds
        while True:
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", f"{before}000000{after}".encode(), headers)
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read().decode()
            if passed in text.replace('": "', '":"'):
                return
            if time.monotonic() > end:
                sys.exit(f"port {port}{path} answered {text!r} to a request that has to pass")
            time.sleep(0.1)

    def ask_resp(self, side, pipeline):
        port, words = side.ways["resp"]
        server = next(server for server in side.servers if server.port == port)
        rate, cpu_us = self.redis_benchmark(server, pipeline, *words)
        return rate, cpu_us, rate * cpu_us / 1e6

    def ask_http(self, folder, side):
        port, path, before, after, _ = side.ways["http"]
        used_s = side.cpu_s()
        rate = self.wrk(f"http://127.0.0.1:{port}{path}", folder, POST % (before, after))
        each_s = (side.cpu_s() - used_s) / (rate * self.options.seconds)
        return rate, each_s * 1e6, each_s * rate

    def ask_grpc(self, folder, side, keys=KEYS, seconds=None):
        port, method, body, answer = side.ways["grpc"]
        path = os.path.join(folder, "call")
        with open(path, "wb") as out:
            out.write(body)
        return self.ask(side.servers, path, keys, method, answer, port, seconds)

    def beside(self, group, sides, ask):
        """Measures, and makes the bars of a group."""
        for side in sides.values():
            ask(side)
        rounds = list(self.rounds(*(lambda s=side: ask(s) for side in sides.values())))
        for values in rounds:
            texts = (f"{name} {rate:,.0f}/s {cpu:.2f} µs ({busy:.0%})" for name, (rate, cpu, busy) in zip(sides, values))
            self.say(f"  {group}: {'; '.join(texts)}")
        for i, name in enumerate(sides):
            self.bar("cpu", group, name, [values[0][1] / values[i][1] for values in rounds])
            # A server that waits for its client could do more.
            good = [values for values in rounds if values[i][2] >= BUSY]
            full = [values for values in good if values[0][2] >= BUSY]
            if i == 0 or 2 * len(full) > len(rounds):
                self.bar("rate", group, name, [values[i][0] / values[0][0] for values in full or rounds])
            elif 2 * len(good) > len(rounds):
                self.bar("rate", group, name, [values[i][0] / values[0][0] for values in good], at_most=True)
            else:
                self.say(f"{group}: decisions a second, {name} / weir: unknown, a server waited for its client or for its core")

    def resp(self):
        with tempfile.TemporaryDirectory() as folder:
            sides = self.sides(folder, "resp", KEYS * 11 // 10)
            for pipeline in (1, 16):
                group = "RESP, one at a time" if pipeline == 1 else f"RESP, pipelined by {pipeline}"
                self.beside(group, sides, lambda side, p=pipeline: self.ask_resp(side, p))
            for side in sides.values():
                side.stop()

    def http(self):
        with tempfile.TemporaryDirectory() as folder:
            sides = self.sides(folder, "http", KEYS * 11 // 10)
            for side in sides.values():
                self.passes(side)
            self.beside("HTTP", sides, lambda side: self.ask_http(folder, side))
            for side in sides.values():
                side.stop()

    def grpc(self):
        with tempfile.TemporaryDirectory() as folder:
            sides = self.sides(folder, "grpc", KEYS * 11 // 10)
            self.beside("gRPC", sides, lambda side: self.ask_grpc(folder, side))
            for side in sides.values():
                side.stop()

    # ---- memory ----

    def grown(self, folder, side):
        """Bytes for a key, by the growth of the servers."""
        keys = self.memory_keys["a service"]
        if side.ways["resp"]:
            port, words = side.ways["resp"]
            one = ("-h", "127.0.0.1", "-p", port, "-c", 50, "-P", 16, "-r", keys, "-q")
            client("redis-benchmark", *one, "-n", 1000, *(word.replace("__rand_int__", "first") for word in words))
            before, calls = side.resident_bytes() - side.table_bytes(), 10 * keys
            client("redis-benchmark", *one, "-n", calls, *words)
        else:
            self.ask_grpc(folder, side, 1000)
            before = side.resident_bytes()
            seconds = 1 if self.options.quick else MEMORY_SECONDS
            calls = self.ask_grpc(folder, side, keys, seconds)[0] * seconds
        return (side.resident_bytes() - before) / distinct(keys, calls)

    def memory(self):
        found, (inside, service) = {}, self.memory_keys.values()
        for name, program in self.libraries().items():
            sizes = [by_key(program, inside, 1, seconds)[1] for seconds in (0, 1)]
            found[name] = (sizes[1] - sizes[0]) / inside
        self.memory_bars(f"in a process, {inside:,} keys", found)
        found = {}
        for way in ("resp", "grpc"):
            with tempfile.TemporaryDirectory() as folder:
                for name, side in self.sides(folder, way, service).items():
                    if name not in found:
                        found[name] = self.grown(folder, side)
                    side.stop()
        self.memory_bars(f"a service, {service:,} keys", found)

    def memory_bars(self, group, found):
        for name, each in found.items():
            self.bar("memory", group, name, [each], found["weir"])

    # ---- results ----

    def bar(self, chart, group, name, values, base=None, at_most=False):
        value = statistics.median(values)
        self.charts[chart].groups.setdefault(group, []).append(Bar(name, value, base, at_most))
        self.results.append({"chart": chart, "group": group, "name": name, "is": value, "rounds": values, "at_most": at_most})
        unit = "bytes for a key" if base else self.charts[chart].unit
        self.say(f"{f'{group}: {name}, {unit}':<78} {'≤ ' if at_most else ''}{value:8.2f}")

    def run(self):
        super().run()
        for chart in self.charts.values():
            chart.groups = {group: bars for group, bars in chart.groups.items() if len(bars) > 1}
        drawn = {name: chart for name, chart in self.charts.items() if chart.groups}
        if self.options.svg:
            os.makedirs(self.options.svg, exist_ok=True)
            for name, chart in drawn.items():
                with open(os.path.join(self.options.svg, f"peers-{name}.svg"), "w", encoding="utf-8") as out:
                    out.write(chart.svg())
        if self.options.page:
            write_page(self.options.page, drawn, f"{machine()}; rounds: {self.options.rounds}, seconds of each: {self.options.seconds}")


def positive(text):
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=os.path.abspath)
    for name, what in {**LIBRARIES, **SERVERS}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=os.path.abspath, metavar="PROGRAM", help=what)
    parser.add_argument("--only", action="append", choices=PeersBench.parts)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--seconds", type=positive, default=3)
    parser.add_argument("--quick", action="store_true", help="run for some seconds with few keys, to see that it works")
    parser.add_argument("--svg", type=os.path.abspath, metavar="FOLDER", help="draw charts here")
    parser.add_argument("--page", type=os.path.abspath, metavar="FILE", help="write tables into this page, between its marks")
    parser.add_argument("--json", action="store_true", help="print the ratios as JSON; all else goes to stderr")
    options = parser.parse_args()
    if options.page and options.only:
        parser.error("--page needs a run of all parts; leave out --only")
    PeersBench(options).run()


if __name__ == "__main__":
    main()
