#!/usr/bin/env python3
"""Figures for docs/production.md: memory and CPU of the service and of the store, and how often many hosts with leases call the store.

    bench/sizing.py BUILD [--only connections|cpu|store|fleet] [--hosts N] [--rounds N] [--seconds S] [--json]

connections  memory of the service for each idle connection that has sent one request: RESP, HTTP and gRPC, with TLS and without
cpu          CPU of the service for a decision by each interface, as a multiple of that of RESP without pipelining
store        CPU of Redis for an exact decision; memory of Redis for a subject
fleet        HOSTS services (50) that share one Redis, with one leased limit: calls of the store by size of the slice, what is refused too
             early, and what hosts that do nothing cost the store

Memory is what the kernel says (Pss of the process, used_memory of Redis), and CPU what the scheduler says. Both depend less on what else
runs on the machine than rates do.
"""

import argparse
import json
import os
import resource
import socket
import ssl
import statistics
import sys
import tempfile
import time
import urllib.request

from common import Bench, Server, client, cpu_s, free_port
from envoy import CONFIGURATION, CONNECTIONS, HEADERS, METHOD, OK, STREAMS, call
from serve import POST

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))

from support.certificates import Authority  # noqa: E402
from support.h2 import DATA, END_HEADERS, END_STREAM, HEADERS as HEADERS_FRAME, PREFACE, SETTINGS, frame  # noqa: E402

IDLE = 2000  # connections
SUBJECTS = 200000
FLEET_MAX = 100000  # of the leased limit
FLEET_RATE = 5000  # decisions a second of all hosts together
SLICES = (None, "0.01%", "0.1%", "0.5%", "1%", "5%")  # None: exact

RULES = """
settings: { trusted_proxies: [127.0.0.0/8] }
rules:
  - { id: ocr, match: { event: ocr }, by: [key], limits: [ { name: day, calendar: day, max: 1000 }, { name: hour, calendar: hour, max: 200 } ] }
  - { id: one, match: { event: one }, by: [key], limits: [ { name: day, calendar: day, max: 1000 } ] }
  - { id: lent, match: { event: lent }, by: [key], limits: [ { name: day, calendar: day, max: 1000000 } ], lease: { slice: 1% } }
"""

FLEET = "rules: [ { id: api, by: [key], limits: [ { name: month, calendar: month, max: %d } ], %s } ]\n"


def command(*words):
    """As a Redis client sends it."""
    return b"".join((b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)))


def pss_bytes(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return 1024 * sum(int(line.split()[1]) for line in file if line.startswith("Pss_Anon:"))


class SizingBench(Bench):
    parts = ("connections", "cpu", "store", "fleet")

    def number(self, name, value, unit):
        self.results.append({"name": name, "is": value, "unit": unit})
        self.say(f"{name:<78} {value:10.2f} {unit}")

    def program(self, name):
        return os.path.join(self.options.build, name)

    # ---- servers ----

    def weir(self, folder, name, rules, fronts=("resp", "http", "grpc"), pin=False, **more):
        ports = {front: free_port() for front in (*fronts, "admin")}
        options = {front: "off" for front in ("resp", "http", "grpc")}
        options.update({front: f"127.0.0.1:{port}" for front, port in ports.items()})
        data = os.path.join(folder, name)
        options.update({"data": data, "rules": rules, "threads": 1, "log-refusals": 0})
        options.update({key.replace("_", "-"): value for key, value in more.items()})
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        server = Server(folder, ports["admin"], self.program("weir"), "serve", *words, pin=pin)
        server.ports, server.data = ports, data
        return server

    def redis(self, folder, pin=False):
        port = free_port()
        words = ("--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        return Server(folder, port, "redis-server", *words, pin=pin)

    def status(self, weir):
        with open(os.path.join(weir.data, "read-token"), encoding="ascii") as file:
            headers = {"Authorization": f"Bearer {file.read().strip()}"}
        request = urllib.request.Request(f"http://127.0.0.1:{weir.ports['admin']}/v1/status", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def info(self, redis, section, *names):
        lines = client("redis-cli", "-p", redis.port, "INFO", section, pin=False).splitlines()
        found = dict(line.strip().split(":", 1) for line in lines if ":" in line)
        return [found.get(name, "") for name in names]

    def rules(self, folder, text=RULES, name="rules.yaml"):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    # ---- memory of connections ----

    def first_words(self, front):
        if front == "resp":
            return command("WEIR.CHECK", "event", "ocr", "key", "u1")
        if front == "http":
            body = b'{"event":"ocr","key":"u1"}'
            return b"POST /v1/check HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        import hpack

        fields = [(":method", "POST"), (":scheme", "http"), (":authority", "h"), (":path", METHOD), *HEADERS]
        head = frame(HEADERS_FRAME, END_HEADERS, 1, hpack.Encoder().encode(fields))
        return PREFACE + frame(SETTINGS) + head + frame(DATA, END_STREAM, 1, call())

    def grown(self, weir, front, context):
        """Bytes of the process for each of many connections."""
        before, opened = None, []
        for number in range(IDLE + 200):
            if number == 200:  # the first ones also fill what is kept for all
                before = pss_bytes(weir.process.pid)
            one = socket.create_connection(("127.0.0.1", weir.ports[front]), 10)
            if context:
                one = context.wrap_socket(one, server_hostname="localhost")
            one.sendall(self.first_words(front))
            if not one.recv(4096):
                sys.exit(f"{front}: closed")
            opened.append(one)
        time.sleep(0.5)
        bytes_each = (pss_bytes(weir.process.pid) - before) / IDLE
        for one in opened:
            one.close()
        return bytes_each

    def connections(self):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        with tempfile.TemporaryDirectory() as folder, Authority() as authority:
            certificate, key = authority.issue("server")
            context = ssl.create_default_context(cafile=authority.path)
            for tls in (False, True):
                for front in ("resp", "http", "grpc"):
                    more = {"certificate": certificate, "certificate_key": key, "admin_tls": "no"} if tls else {}
                    context.set_alpn_protocols(["h2"] if front == "grpc" else ["http/1.1"])
                    weir = self.weir(folder, f"{front}{tls}", self.rules(folder), idle="10m", **more)
                    value = self.grown(weir, front, context if tls else None) / 1024
                    self.number(f"an idle connection, {front}{', TLS' if tls else ''}: memory", value, "KiB")
                    weir.stop()

    # ---- CPU by interface ----

    def spent(self, servers, decisions, run):
        """Microseconds of CPU for a decision, by server. run() makes them; decisions() counts them."""
        before, first = [cpu_s(server.process.pid) for server in servers], decisions()
        run()
        done = decisions() - first
        return [(cpu_s(server.process.pid) - cpu) / done * 1e6 for server, cpu in zip(servers, before)]

    def decided(self, weir):
        found = self.status(weir)["decisions"]
        return found["allowed"] + found["refused"]

    def redis_benchmark(self, weir, pipeline, *words, keys=1000000, connections=50, tls=()):
        count = 40000 * self.options.seconds * (8 if pipeline > 1 else 1) // (2 if connections == 1 or tls else 1)
        options = ("-h", "127.0.0.1", "-p", weir.ports["resp"], "-c", connections, "-P", pipeline, "-n", count, "-r", keys, "-q", *tls)
        client("redis-benchmark", *options, *words)

    def wrk(self, folder, weir, scheme):
        script = self.rules(folder, POST, "post.lua")
        words = ("-t", 1, "-c", 50, "-d", f"{self.options.seconds}s", "-s", script)
        client("wrk", *words, f"{scheme}://127.0.0.1:{weir.ports['http']}/v1/check")

    def h2_load(self, folder, weir):
        with open(os.path.join(folder, "call"), "wb") as out:
            out.write(call())
        words = (weir.ports["grpc"], METHOD, f"{folder}/call", CONNECTIONS, STREAMS, self.options.seconds, 0, 1000000, OK)
        client(self.program("bench/h2_load"), *words, *(word for pair in HEADERS for word in pair))

    def cpu(self):
        with tempfile.TemporaryDirectory() as folder, Authority() as authority:
            certificate, key = authority.issue("server")
            os.mkdir(os.path.join(folder, "shop"))
            self.rules(os.path.join(folder, "shop"), CONFIGURATION, "shop.yaml")
            plain = self.weir(folder, "plain", self.rules(folder), pin=True, cells_keys=2200000)
            secret = self.weir(
                folder, "secret", self.rules(folder), pin=True, cells_keys=2200000, certificate=certificate, certificate_key=key, admin_tls="no"
            )
            shop = self.weir(folder, "envoy", f"envoy:{folder}/shop", pin=True, cells_keys=2200000)
            check, tls = ("WEIR.CHECK", "event", "ocr", "key", "u__rand_int__"), ("--tls", "--insecure")
            sides = {
                "RESP": (plain, lambda: self.redis_benchmark(plain, 1, *check)),
                "RESP, pipeline 16": (plain, lambda: self.redis_benchmark(plain, 16, *check)),
                "RESP, TLS": (secret, lambda: self.redis_benchmark(secret, 1, *check, tls=tls)),
                "HTTP, POST /v1/check": (plain, lambda: self.wrk(folder, plain, "http")),
                "HTTP, TLS": (secret, lambda: self.wrk(folder, secret, "https")),
                "gRPC, 100 streams": (shop, lambda: self.h2_load(folder, shop)),
            }
            rounds = list(self.rounds(*(
                lambda w=weir, r=run: self.spent([w], lambda: self.decided(w), r)[0] for weir, run in sides.values()
            )))
            for number, name in enumerate(sides):
                self.number(f"{name}: CPU of the service for a decision", statistics.median(r[number] for r in rounds), "µs")
            for number, name in enumerate(sides):
                self.number(f"{name}: CPU / RESP", statistics.median(r[number] / r[0] for r in rounds), "times")
            for weir in (plain, secret, shop):
                weir.stop()

    # ---- the store ----

    def store(self):
        with tempfile.TemporaryDirectory() as folder:
            redis = self.redis(folder)
            address = f"redis://127.0.0.1:{redis.port}/0"
            weir = self.weir(folder, "data", self.rules(folder), ("resp",), counters=address, store_deadline="1s")
            for event, what in (("one", "one limit"), ("ocr", "two limits"), ("lent", "one leased limit")):
                self.fill(redis, weir, event, what)
            for connections in (1, 50):
                words = ("WEIR.CHECK", "event", "ocr", "key", "u__rand_int__")
                rounds = list(self.rounds(lambda c=connections, w=words: self.spent(
                    [redis, weir], lambda: self.decided(weir), lambda: self.redis_benchmark(weir, 1, *w, keys=100000, connections=c))))
                who = f"exact, {connections} connection{'s' if connections > 1 else ''}"
                self.number(f"{who}: CPU of Redis for a decision", statistics.median(r[0][0] for r in rounds), "µs")
                self.number(f"{who}: CPU of the service for a decision", statistics.median(r[0][1] for r in rounds), "µs")
            self.sound([weir])
            weir.stop()
            redis.stop()

    def fill(self, redis, weir, event, what):
        client("redis-cli", "-p", redis.port, "FLUSHALL", pin=False)
        before = int(self.info(redis, "memory", "used_memory")[0])
        with socket.create_connection(("127.0.0.1", weir.ports["resp"])) as one:
            self.pipeline(one, (command("WEIR.CHECK", "event", event, "key", f"user-{10000000 + n}") for n in range(SUBJECTS)))
        after = int(self.info(redis, "memory", "used_memory")[0])
        self.number(f"a subject with {what}: memory of Redis", (after - before) / SUBJECTS, "bytes")

    def pipeline(self, one, words, depth=100):
        """How many of them were allowed; each answer has seven items, the first of them a number."""
        words, allowed, rest = list(words), 0, b""
        for start in range(0, len(words), depth):
            batch = words[start : start + depth]
            one.sendall(b"".join(batch))
            answers = 0
            while answers < len(batch):
                rest += one.recv(1 << 16)
                heads = rest.split(b"*7\r\n:")
                complete = [part for part in heads[1:] if part.count(b"\r\n") >= 7 + part.count(b"$") - part.count(b"$-1")]
                if len(complete) == len(batch):
                    allowed += sum(part[:1] == b"1" for part in complete)
                    answers, rest = len(batch), b""
        return allowed

    def sound(self, fleet):
        for weir in fleet:
            found = self.status(weir)["store"]
            if found["late"] + found["unsent"] + found["failed"] + found["lost"] > 0:
                sys.exit(f"the store did not answer all in time, so this says nothing; is the machine busy? {found}")

    # ---- many hosts ----

    def fleet(self):
        with tempfile.TemporaryDirectory() as folder:
            redis = self.redis(folder)
            rules = self.rules(folder, FLEET % (FLEET_MAX, "counters: shared"))
            address = f"redis://127.0.0.1:{redis.port}/0"
            fleet = [
                self.weir(folder, f"host{n}", rules, ("resp",), counters=address, store_deadline="5s", cells_keys=10000, poll="100ms")
                for n in range(self.options.hosts)
            ]
            links = [socket.create_connection(("127.0.0.1", weir.ports["resp"])) for weir in fleet]
            while min(self.status(weir)["store"]["hosts"] for weir in fleet) < len(fleet):
                time.sleep(0.2)
            self.nothing_to_do(redis, fleet)
            for place in SLICES:
                self.round_of_fleet(folder, redis, fleet, links, place)
            for place in SLICES[1:]:
                self.others_hold(folder, redis, fleet, links, place)
            self.sound(fleet)
            for weir in fleet:
                weir.stop()
            redis.stop()

    def nothing_to_do(self, redis, fleet):
        before, first = cpu_s(redis.process.pid), int(self.info(redis, "stats", "total_commands_processed")[0])
        time.sleep(10)
        used_s, calls = cpu_s(redis.process.pid) - before, int(self.info(redis, "stats", "total_commands_processed")[0]) - first
        self.number(f"{len(fleet)} hosts that do nothing: commands of Redis in a second", calls / 10, "")
        self.number("the same: part of a CPU of Redis", used_s / 10 * 100, "%")

    def begin(self, folder, redis, place):
        """With empty counts, a rule that all hosts have read, and hosts that the store has counted."""
        self.rules(folder, FLEET % (FLEET_MAX, f"lease: {{ slice: {place} }}" if place else "counters: shared"))
        time.sleep(1.5)
        client("redis-cli", "-p", redis.port, "FLUSHALL", pin=False)
        time.sleep(2.5)

    def round_of_fleet(self, folder, redis, fleet, links, place):
        """All hosts ask at the same rate."""
        self.begin(folder, redis, place)
        before = [self.status(weir)["store"] for weir in fleet]
        cpu = cpu_s(redis.process.pid)
        asked, allowed, early = self.drive(links, f"even {place}")
        after = [self.status(weir)["store"] for weir in fleet]
        cpu = cpu_s(redis.process.pid) - cpu
        calls = sum(a["calls"] - b["calls"] for a, b in zip(after, before))
        name = f"{len(fleet)} hosts, max {FLEET_MAX:,}, " + (f"slice {place}" if place else "exact")
        self.number(f"{name}: calls of the store for 1,000 decisions", calls / asked * 1000, "")
        self.number(f"{name}: CPU of Redis for a decision", cpu / asked * 1e6, "µs")
        self.number(f"{name}: passed before the first refusal", early, "")
        self.number(f"{name}: passed in the end", allowed, "")

    def others_hold(self, folder, redis, fleet, links, place):
        """All hosts ask once, and one of them uses up what is left: the others hold slices."""
        self.begin(folder, redis, place)
        words = [command("WEIR.CHECK", "key", f"uneven {place}")] * 100
        allowed = sum(self.pipeline(link, words[:1]) for link in links)
        early = None
        end = time.monotonic() + 30
        while allowed < FLEET_MAX and time.monotonic() < end:
            passed = self.pipeline(links[0], words)
            allowed += passed
            if early is None and passed < len(words):
                early, first = allowed, time.monotonic()
        name = f"{len(fleet)} hosts that hold slices of {place}, one that asks"
        self.number(f"{name}: passed before the first refusal", early or allowed, "")
        self.number(f"{name}: until all has passed", time.monotonic() - first if early and allowed >= FLEET_MAX else 0, "s")

    def drive(self, links, key):
        """Each host gets the same number of decisions, at a steady rate, until all of max has passed or no host passes any more."""
        each = 10
        batch = [command("WEIR.CHECK", "key", key)] * each
        asked = allowed = stuck = 0
        early = None
        next_at = time.monotonic()
        while asked < FLEET_MAX + 20 * len(links) * each and stuck < 40:
            passed = sum(self.pipeline(link, batch) for link in links)
            asked += each * len(links)
            allowed += passed
            stuck = 0 if passed else stuck + 1
            if early is None and passed < each * len(links):
                early = allowed
            if allowed >= FLEET_MAX:
                break
            next_at += each * len(links) / FLEET_RATE
            time.sleep(max(0, next_at - time.monotonic()))
        return asked, allowed, early if early is not None else allowed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=os.path.abspath)
    parser.add_argument("--only", action="append", choices=SizingBench.parts)
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON; all else goes to stderr")
    SizingBench(parser.parse_args()).run()
