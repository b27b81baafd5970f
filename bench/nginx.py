#!/usr/bin/env python3
"""weir's nginx module beside limit_req, a counter in nginx's Lua and HAProxy's stick table, in one run: ratios.

    bench/nginx.py BUILD/nginx/ngx_http_weir_module.so [--only one|keys|refused|memory|instructions] [--rounds N] [--seconds S] [--json]

one      one rule by address
keys     1,000 rules, 1M keys in a header
refused  everything is refused
memory   bytes of table for each live key
instructions  of the worker for a request with one rule by address, as valgrind counts them: without the kernel's

Each server has one worker on a CPU of its own, and is asked by wrk on the other one, on loopback. Each round measures all
sides one after the other, the next round the other way round, and ratios are medians of the rounds'; those of requests a
second only of rounds in which both servers were busy.
"""

import collections
import contextlib
import dataclasses
import itertools
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import urllib.request

from common import CLIENT_CPU, Bench, Server, arguments, client, cpu_s, free_port

RULES = 1000
ROUTES = 10  # that are asked for
PARTS = 1000  # of a key: a number before and one behind the dash
KEYS = PARTS * PARTS
MODULES = "/usr/lib/nginx/modules"

# `return` would answer before any limit is asked. empty_gif answers after them, from memory: nginx has nothing cheaper.
NGINX = """
daemon off; worker_processes 1; {mode} pid pid; error_log {log}; {user}
{load}
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 600s;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  limit_req_status 429;
  {http}
  server {{ listen 127.0.0.1:{port}; location / {{ {location} {answer} }} }}
  server {{ listen 127.0.0.1:{probe_port}; location / {{ {probe} empty_gif; }} {status} }}
}}
"""

HAPROXY = """
global
  nbthread 1
defaults
  mode http
  timeout client 600s
frontend limited
  bind 127.0.0.1:{port}
  stick-table type string len 32 size 2m expire 7d store http_req_rate(7d)
  http-request track-sc0 req.hdr(x-api-key)
  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 1000 }}
  http-request return status 200 content-type image/gif string "0123456789012345678901234567890123456789012"
frontend probe
  bind 127.0.0.1:{probe_port}
  http-request deny deny_status 429 if {{ req.hdr(x-api-key),table_http_req_rate(limited) gt 0 }}
  http-request return status 200 content-type image/gif string "0123456789012345678901234567890123456789012"
"""

# A linear congruence with the full period: each key once in KEYS requests, in an order that no cache foresees.
FACTOR, SUMMAND = 48941, 7919
HEAD = "GET /api/s%d/items/7 HTTP/1.1\r\nHost: bench\r\nX-Api-Key: key-%d-"
WRK = """
local heads, tails, n = {}, {}, 0
function init(args)
  n = tonumber(args[1])
  for i = 0, {parts} - 1 do
    heads[i] = string.format({head}, i % tonumber(args[2]), i)
    tails[i] = i .. "\\r\\n\\r\\n"
  end
end
function request()
  n = (n * {factor} + {summand}) % {keys}
  return heads[math.floor(n / {parts})] .. tails[n % {parts}]
end
"""


def write_wrk_script(path):
    words = {"parts": PARTS, "head": json.dumps(HEAD), "factor": FACTOR, "summand": SUMMAND, "keys": KEYS}
    with open(path, "w", encoding="utf-8") as out:
        out.write(re.sub(r"\{(\w+)\}", lambda word: str(words[word[1]]), WRK))


def keys(count):
    """The numbers of the first keys, in wrk's order."""
    numbers, n = [], 0
    for _ in range(count):
        n = (n * FACTOR + SUMMAND) % KEYS
        numbers.append(n)
    return numbers


def ask(port, routes, numbers):
    """Asks once for each of these keys, many in flight; {status: count}."""
    heads = [(HEAD % (i % routes, i)).encode() for i in range(PARTS)]
    tails = [b"%d\r\n\r\n" % i for i in range(PARTS)]
    statuses = collections.Counter()
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        for start in range(0, len(numbers), 200):
            batch = [heads[n // PARTS] + tails[n % PARTS] for n in numbers[start : start + 200]]
            connection.sendall(b"".join(batch))
            missing, rest = len(batch), b""
            while missing:
                data = connection.recv(1 << 18)
                if not data:
                    sys.exit(f"the server at port {port} closed the connection")
                rest += data
                for found in re.finditer(rb"HTTP/1\.1 ([0-9]{3})", rest):
                    statuses[int(found[1])] += 1
                    missing -= 1
                rest = rest[-11:]  # one byte less than what is looked for: it cannot be found twice
    return dict(statuses)


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass
class Side:
    """A server and how it limits. At its other port, a key that its table holds is refused."""

    name: str
    http: str = ""
    location: str = ""
    probe: str = ""
    load: str = ""
    status: str = ""
    log: str = "/dev/null crit"
    answer: str = "empty_gif;"
    routes: int = ROUTES
    mode: str = ""
    under: tuple = ()  # the command that runs it
    server: Server = None
    probe_port: int = 0
    rounds: itertools.count = dataclasses.field(default_factory=itertools.count)

    def start(self, parent):
        folder = tempfile.mkdtemp(dir=parent)
        words = {k: getattr(self, k) for k in ("http", "location", "probe", "load", "status", "log", "answer", "mode")}
        words["user"] = "user root;" if os.geteuid() == 0 else ""
        words["port"], words["probe_port"] = port, self.probe_port = free_port(), free_port()
        conf = os.path.join(folder, "conf")
        if self.name == "HAProxy":
            text, command = HAPROXY, ("haproxy", "-db", "-f", conf)
        else:
            text, command = NGINX, ("nginx", "-p", folder, "-e", os.path.join(folder, "error.log"), "-c", conf)
        with open(conf, "w", encoding="utf-8") as out:
            out.write(text.format(**words))
        self.server = Server(folder, port, *self.under, *command)

    def ask(self, numbers):
        return ask(self.server.port, self.routes, numbers)

    def ask_slowly(self, count):
        """One request after the other, over one connection."""
        with socket.create_connection(("127.0.0.1", self.server.port), 60) as connection:
            for _ in range(count):
                connection.sendall(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n")
                answer = connection.recv(4096)
                if not answer.startswith(b"HTTP/1.1 200"):
                    sys.exit(f"{self.name}: {answer}")

    def ask_probe(self, numbers):
        return ask(self.probe_port, self.routes, numbers)


def limit_req(key, size, rate, burst):
    zone = f"limit_req_zone {key} zone=z:{size} rate={rate};"
    return Side("limit_req", zone, f"limit_req zone=z {burst};", "limit_req zone=z nodelay;")


def lua(size):
    load = f"load_module {MODULES}/ndk_http_module.so; load_module {MODULES}/ngx_http_lua_module.so;"
    access = """access_by_lua_block {
      local count = ngx.shared.counts:incr(ngx.var.http_x_api_key, 1, 0, 604800)
      if not count or count > 1000 then return ngx.exit(429) end
    }"""
    probe = "access_by_lua_block { if ngx.shared.counts:get(ngx.var.http_x_api_key) then return ngx.exit(429) end }"
    return Side("Lua", f"lua_shared_dict counts {size};", access, probe, load)


def haproxy():
    return Side("HAProxy", probe="see HAPROXY")


def make_files(folder):
    """A small file for each route that is asked for."""
    for i in range(ROUTES):
        items = os.path.join(folder, "api", f"s{i}", "items")
        os.makedirs(items)
        with open(os.path.join(items, "7"), "w", encoding="ascii") as out:
            out.write("x" * 1000)


class NginxBench(Bench):
    parts = ("one", "keys", "refused", "memory", "instructions")

    def weir(self, folder, size, rules, name="weir", headers="refused", **more):
        """A request that costs all that a rule in `routes` lets through is refused once anything was used."""
        file = os.path.join(folder, "rules.yaml")
        with open(file, "w", encoding="utf-8") as out:
            out.write(f"rules:\n{rules}")
        return Side(
            name, f"weir_zone z {size} rules={file}; weir_headers {headers};", "weir z;", "weir z cost=1000;",
            f"load_module {self.options.module};", "location = /weir/status { weir_status z; }", **more,
        )

    def start(self, folder, *sides):
        for side in sides:
            side.start(folder)
        return sides

    def stop(self, sides):
        for side in sides:
            side.server.stop()

    # ---- one side, measured ----

    def wrk(self, side, script=None, refused=False):
        """(requests a second, CPU microseconds of the server for each, how busy its CPU was)"""
        words = ("-t", 1, "-c", 50, "-d", f"{self.options.seconds}s")
        if script:
            words += ("-s", script)
        words += (f"http://127.0.0.1:{side.server.port}/",)
        if script:
            words += ("--", 314159 * next(side.rounds) % KEYS, side.routes)
        before = cpu_s(side.server.process.pid)
        text = client("wrk", *words)
        used_s = cpu_s(side.server.process.pid) - before
        count = int(re.search(r"(\d+) requests in", text)[1])
        others = int((re.search(r"Non-2xx or 3xx responses: (\d+)", text) or [0, 0])[1])
        if "Socket errors" in text or (others < count - 1 if refused else others):
            sys.exit(f"{side.name}, wrk: {text}")
        rate = float(re.search(r"Requests/sec: *([0-9.]+)", text)[1])
        return rate, used_s / count * 1e6, used_s / count * rate

    def measure(self, what, sides, **how):
        """{name of a side: [(requests a second, CPU of each, how busy), …]}"""
        result = {side.name: [] for side in sides}
        for side in sides:
            self.wrk(side, **how)
        for values in self.rounds(*(lambda s=side: self.wrk(s, **how) for side in sides)):
            parts = []
            for side, (rate, cpu_us, busy) in zip(sides, values):
                result[side.name].append((rate, cpu_us, busy))
                parts.append(f"{side.name} {rate:,.0f}/s {cpu_us:.2f} µs ({busy:.0%})")
            self.say(f"  {what}: {'; '.join(parts)}")
        return result

    # ---- the parts ----

    def by_address(self, folder):
        return (
            Side("bare"),
            limit_req("$binary_remote_addr", "10m", "1000000r/s", "burst=1000000 nodelay"),
            self.weir(folder, "10m", "  - { id: address, by: [ip], limits: [ 1000000 per 1s ] }\n"),
        )

    def one(self):
        with tempfile.TemporaryDirectory() as folder:
            sides = self.start(folder, *self.by_address(folder))
            result = self.measure("one rule", sides)
            self.compare("One rule by address", result, "limit_req", 1, 1)
            self.compare("One rule by address", result, "bare")
            self.stop(sides)

    def instructions_for(self, name, count):
        """All that a worker executes, from its start to its end, for so many requests one after the other."""
        with tempfile.TemporaryDirectory() as folder:
            side = next(side for side in self.by_address(folder) if side.name == name)
            side.mode = "master_process off;"
            out = os.path.join(folder, "counted")
            side.under = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={out}")
            side.start(folder)
            side.ask_slowly(count)
            side.server.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(OSError):
                side.ask_slowly(0)  # as one process nginx may not notice the signal before its next event
            side.server.stop()
            with open(out, encoding="utf-8") as file:
                return int(re.search(r"^(?:summary|totals): (\d+)", file.read(), re.MULTILINE)[1])

    def instructions(self):
        if not shutil.which("valgrind"):
            self.say("Instructions for a request: left out, since valgrind is not installed")
            return
        few, many = 200, 1200
        counts = {
            name: (self.instructions_for(name, many) - self.instructions_for(name, few)) / (many - few) for name in ("bare", "limit_req", "weir")
        }
        self.say(f"  one rule: {', '.join(f'{name} {count:,.0f}' for name, count in counts.items())} instructions for a request")
        for peer in ("limit_req", "bare"):
            self.ratio(f"One rule by address: instructions of the worker, weir / {peer}", [counts["weir"] / counts[peer]], None)
        added = {name: count - counts["bare"] for name, count in counts.items()}
        self.ratio("One rule by address: instructions added, weir / limit_req", [added["weir"] / added["limit_req"]], None)

    def fill(self, side, numbers):
        """Makes a side's table know all keys; those that came first would be the first to be forgotten."""
        if side.ask(numbers) != {200: len(numbers)}:
            sys.exit(f"{side.name} refused a key that it had not seen")
        oldest = numbers[:20000]
        if side.ask_probe(oldest) != {429: len(oldest)}:
            sys.exit(f"{side.name} has not kept {len(numbers):,} keys")
        if side.status and self.drops(side):
            sys.exit(f"{side.name} dropped {self.drops(side)} of {len(numbers):,} keys")

    def held(self, side, numbers):
        """How many of these keys a side knows. The newest are asked for first: looking for the others may replace them."""
        return side.ask_probe(numbers[::-1]).get(429, 0)

    def drops(self, side):
        with urllib.request.urlopen(f"http://127.0.0.1:{side.probe_port}/weir/status", timeout=30) as answer:
            return json.load(answer)["table"]["drops"]

    def routes(self):
        return "".join(
            f"  - {{ id: s{i}, match: {{ path: '/api/s{i}/items/#' }}, by: 'header:X-Api-Key', limits: 1000 per 7d }}\n"
            for i in range(RULES)
        )

    def keys(self):
        what = "1,000 rules, 1M keys"
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "wrk.lua")
            write_wrk_script(script)
            make_files(folder)
            files = f"root {folder};"
            sides = self.start(
                folder,
                Side("bare, files", answer=files),
                self.weir(folder, "48m", self.routes(), "weir, files", answer=files),
                Side("bare"),
                self.weir(folder, "48m", self.routes()),
                limit_req("$http_x_api_key", "160m", "1r/m", "burst=1000 nodelay"),
                self.weir(folder, "48m", self.routes(), "weir, all routes", routes=RULES),
                lua("256m"),
                haproxy(),
            )
            numbers = keys(KEYS)
            for side in sides:
                if side.probe:
                    self.fill(side, numbers)
                    self.say(f"  {side.name} knows {len(numbers):,} keys")
            result = self.measure(what, sides, script=script)
            self.compare(what, result, "bare", 0.95, 1.03)
            self.compare(what, result, "bare, files", 0.95, side="weir, files")
            self.compare(what, result, "bare", side="weir, all routes")
            for peer in ("limit_req", "Lua", "HAProxy"):
                self.compare(what, result, peer, 1, 1)
            self.stop(sides)

    def refused(self):
        with tempfile.TemporaryDirectory() as folder:
            rule = "  - { id: address, by: [ip], limits: [ 1 per 7d ] }\n"
            sides = self.start(
                folder,
                limit_req("$binary_remote_addr", "10m", "1r/m", ""),
                self.weir(folder, "10m", rule, log="error.log error"),
                self.weir(folder, "10m", rule, "weir, no headers", log="error.log error", headers="off"),
            )
            result = self.measure("refused", sides, refused=True)
            self.compare("Everything refused", result, "limit_req", 1, 1)
            self.compare("Everything refused", result, "limit_req", side="weir, no headers")
            self.stop(sides)

    def memory(self):
        what, count = "Bytes of table for each live key", 200000
        with tempfile.TemporaryDirectory() as folder:
            numbers = keys(count)
            # A table that just holds them all.
            size = count * 43
            weir = self.weir(folder, size, self.routes())
            # Tables that are too small for all, and forget those that came first.
            small = (limit_req("$http_x_api_key", "16m", "1r/m", "burst=1000 nodelay"), lua("16m"))
            # One that takes memory as it needs it; the first tenth brings along what there is besides the keys.
            growing = haproxy()
            sides = self.start(folder, weir, *small, growing)

            self.fill(weir, numbers)
            if self.held(weir, numbers) < count:
                sys.exit(f"weir has not kept {count:,} keys in {size:,} bytes")
            self.ratio(f"{what}: weir", [size / count], 43, at_most=True)
            for side in small:
                side.ask(numbers)
                self.ratio(f"{what}: {side.name}", [(16 << 20) / self.held(side, numbers)], None)
            self.fill(growing, numbers[: count // 10])
            before = resident_bytes(growing.server.process.pid)
            self.fill(growing, numbers)
            bytes_more = resident_bytes(growing.server.process.pid) - before
            self.ratio(f"{what}: HAProxy", [bytes_more / (count - count // 10)], None)
            self.stop(sides)


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(CLIENT_CPU)})
    NginxBench(arguments(__doc__, ("module",), NginxBench.parts, rounds=7, seconds=2)).run()
