#!/usr/bin/env python3
"""Limits for many hosts: `weir serve --counters` beside the same limit as a Lua script in Redis, in one run: ratios.

    bench/redis.py BUILD/weir BUILD/bench/store [--only exact|leased|tls|cluster] [--rounds N] [--seconds S] [--json]

Each round measures the sides one after the other, the next round the other way round; what is shown is the median of the
rounds' ratios. Redis, weir and the client share the CPUs that there are, and none of them has one of its own.
"""

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from common import Bench, Server, arguments, cpu_s, free_port
from serve import SCRIPT

RULES = """
rules:
  - id: exact
    match: { event: exact }
    by: [key]
    limits:
      - { name: day, calendar: day, max: 1000, tz: Asia/Shanghai }
      - { name: hour, calendar: hour, max: 200, tz: Asia/Shanghai }
  - id: leased
    match: { event: leased }
    by: [key]
    lease: true
    limits:
      - { name: day, calendar: day, max: 4000000000, tz: Asia/Shanghai }
      - { name: hour, calendar: hour, max: 1000000000, tz: Asia/Shanghai }
"""

MASTERS, SLOTS = 3, 16384


def run(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed: {done.stdout}{done.stderr}")
    return done.stdout


class RedisBench(Bench):
    parts = ("exact", "leased", "tls", "cluster")

    def servers(self, folder):
        redis = self.redis(folder)
        return redis, self.weir(folder, f"redis://127.0.0.1:{redis.port}/0")

    def redis(self, folder, *more, name="redis"):
        port = free_port()
        os.mkdir(os.path.join(folder, name))
        return Server(
            os.path.join(folder, name), port, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "no", *more, pin=False,
        )

    def weir(self, folder, counters, name="data"):
        rules = os.path.join(folder, "rules.yaml")
        with open(rules, "w", encoding="utf-8") as out:
            out.write(RULES)
        resp, admin, data = free_port(), free_port(), os.path.join(folder, name)
        weir = Server(
            folder, resp, self.options.weir, "serve", "--data", data, "--rules", rules, "--counters", counters,
            "--resp", f"127.0.0.1:{resp}", "--http", "off", "--admin", f"127.0.0.1:{admin}",
            "--threads", "1", "--log-refusals", "0", pin=False,
        )
        weir.admin, weir.data = admin, data
        while not self.store(weir)["up"]:
            time.sleep(0.05)
        return weir

    def store(self, weir):
        with open(os.path.join(weir.data, "admin-token"), encoding="ascii") as file:
            headers = {"Authorization": f"Bearer {file.read().strip()}"}
        url = f"http://127.0.0.1:{weir.admin}/v1/status"
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return json.load(answer)["store"]

    def sound(self, weir):
        """What was decided without the store is quick, and says nothing."""
        status = self.store(weir)
        if status["late"] + status["unsent"] + status["failed"] + status["lost"] > 0:
            sys.exit(f"the store did not answer all in time, so this says nothing; is the machine busy? {status}")

    def redis_benchmark(self, server, stores, keys, pipeline, *command):
        """(requests a second, microseconds of Redis's CPU for each, calls of scripts for each)"""
        count = 50000 if pipeline == 1 else 1000000
        before, calls, total, rates = self.cpu_s(stores), self.calls(stores), 0, []
        end = time.monotonic() + self.options.seconds
        while time.monotonic() < end:
            words = ("-h", "127.0.0.1", "-p", server.port, "-c", 50, "-P", pipeline, "-n", count, "-r", keys, "--csv")
            rows = list(csv.reader(run("redis-benchmark", *words, *command).splitlines()))
            rates.append(float(rows[-1][1]))
            total += count
        cpu_us = (self.cpu_s(stores) - before) / total * 1e6
        return statistics.median(rates), cpu_us, (self.calls(stores) - calls) / total

    def cpu_s(self, stores):
        return sum(cpu_s(redis.process.pid) for redis in stores)

    def calls(self, stores):
        """Of scripts, since they started."""
        text = "".join(run("redis-cli", "-p", redis.port, "INFO", "commandstats") for redis in stores)
        lines = [line for line in text.splitlines() if line.startswith(("cmdstat_evalsha:", "cmdstat_eval:"))]
        return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines)

    def exact(self):
        with tempfile.TemporaryDirectory() as folder:
            redis, weir = self.servers(folder)
            sha = run("redis-cli", "-p", redis.port, "SCRIPT", "LOAD", SCRIPT).strip()
            lua = ("EVALSHA", sha, "1", "u__rand_int__", "1000", "200")
            check = ("WEIR.CHECK", "event", "exact", "key", "u__rand_int__")
            rounds = list(self.rounds(
                lambda: self.redis_benchmark(weir, [redis], 1000000, 1, *check),
                lambda: self.redis_benchmark(redis, [redis], 1000000, 1, *lua),
            ))
            for (weir_rate, weir_cpu, _), (redis_rate, redis_cpu, _) in rounds:
                self.say(
                    f"  weir {weir_rate:,.0f}/s, {weir_cpu:.2f} µs of Redis's CPU;"
                    f" the script alone {redis_rate:,.0f}/s, {redis_cpu:.2f} µs"
                )
            self.ratio("exact: decisions a second, weir before Redis / a script in Redis", [w[0] / r[0] for w, r in rounds], 0.9)
            name = "exact: CPU of Redis for a decision, weir / the script"
            self.ratio(name, [w[1] / r[1] for w, r in rounds], 1.1, at_most=True)
            self.sound(weir)
            weir.stop()
            redis.stop()

    def leased(self):
        with tempfile.TemporaryDirectory() as folder:
            redis, weir = self.servers(folder)
            words = ("WEIR.CHECK", "event")
            exact, leased = (*words, "exact", "key", "u__rand_int__"), (*words, "leased", "key", "u__rand_int__")
            rounds = list(self.rounds(
                lambda: self.redis_benchmark(weir, [redis], 1000000, 1, *exact),
                lambda: self.redis_benchmark(weir, [redis], 16, 1, *leased),
                lambda: self.redis_benchmark(weir, [redis], 16, 64, *leased),
                lambda: json.loads(run(self.options.store, f"redis://127.0.0.1:{redis.port}/1", str(self.options.seconds))),
            ))
            for one, single, many, inside in rounds:
                self.say(
                    f"  service: exact {one[0]:,.0f}/s; leased {single[0]:,.0f}/s, pipelined {many[0]:,.0f}/s,"
                    f" {many[2]:.6f} calls each; in process: exact {inside['exact']:,.0f}/s, leased {inside['leased']:,.0f}/s"
                )
            name = "leased, 16 hot keys: decisions a second, in a process, leased / exact"
            self.ratio(name, [i["leased"] / i["exact"] for *_, i in rounds], 20)
            name = "leased, 16 hot keys: the same through the service, pipelined by 64 / exact"
            self.ratio(name, [m[0] / e[0] for e, _, m, _ in rounds], 20)
            calls = [max(s[2], m[2], i["calls"]) for _, s, m, i in rounds]
            self.ratio("leased, 16 hot keys: calls of Redis for a decision", calls, 1 / 50, at_most=True)
            self.sound(weir)
            weir.stop()
            redis.stop()

    def tls(self):
        """Two services on one Redis, one of them over TLS."""
        with tempfile.TemporaryDirectory() as folder:
            certificate, key, port = os.path.join(folder, "own.pem"), os.path.join(folder, "own.key"), free_port()
            run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2, "-subj", "/CN=redis",
                "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate)
            redis = self.redis(folder, "--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key,
                               "--tls-ca-cert-file", certificate, "--tls-auth-clients", "no")
            plain = self.weir(folder, f"redis://127.0.0.1:{redis.port}/0", "plain")
            secure = self.weir(folder, f"rediss://127.0.0.1:{port}/0?ca={certificate}", "secure")
            check = [("WEIR.CHECK", "event", event, "key", "u__rand_int__") for event in ("exact", "leased")]
            rounds = list(self.rounds(
                lambda: self.redis_benchmark(plain, [redis], 1000000, 1, *check[0]),
                lambda: self.redis_benchmark(secure, [redis], 1000000, 1, *check[0]),
                lambda: self.redis_benchmark(plain, [redis], 16, 64, *check[1]),
                lambda: self.redis_benchmark(secure, [redis], 16, 64, *check[1]),
            ))
            for exact, exact_tls, leased, leased_tls in rounds:
                self.say(
                    f"  exact {exact[0]:,.0f}/s, with TLS {exact_tls[0]:,.0f}/s; leased, pipelined by 64,"
                    f" {leased[0]:,.0f}/s, with TLS {leased_tls[0]:,.0f}/s"
                )
            self.ratio("exact: decisions a second, with TLS to the store / without", [r[1][0] / r[0][0] for r in rounds], 0.8)
            self.ratio("leased, 16 hot keys: the same", [r[3][0] / r[2][0] for r in rounds], 0.95)
            self.sound(plain)
            self.sound(secure)
            for server in (plain, secure, redis):
                server.stop()

    def masters(self, folder):
        """A cluster of three."""
        nodes, buses = [], []
        for i in range(MASTERS):
            buses.append(free_port())
            nodes.append(self.redis(folder, "--cluster-enabled", "yes", "--cluster-port", buses[i], name=f"node{i}"))
            first, last = SLOTS * i // MASTERS, SLOTS * (i + 1) // MASTERS - 1
            run("redis-cli", "-p", nodes[i].port, "CLUSTER", "ADDSLOTSRANGE", first, last)
            run("redis-cli", "-p", nodes[i].port, "CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for node in nodes[1:]:
            run("redis-cli", "-p", nodes[0].port, "CLUSTER", "MEET", "127.0.0.1", node.port, buses[nodes.index(node)])
        for node in nodes:
            while "cluster_state:ok" not in run("redis-cli", "-p", node.port, "CLUSTER", "INFO"):
                time.sleep(0.1)
        return nodes

    def cluster(self):
        """Two services, one on a Redis, the other on three masters, which have the same two CPUs."""
        with tempfile.TemporaryDirectory() as folder:
            redis, nodes = self.redis(folder), self.masters(folder)
            plain = self.weir(folder, f"redis://127.0.0.1:{redis.port}/0", "plain")
            spread = self.weir(folder, f"redis+cluster://127.0.0.1:{nodes[0].port}", "spread")
            check = [("WEIR.CHECK", "event", event, "key", "u__rand_int__") for event in ("exact", "leased")]
            rounds = list(self.rounds(
                lambda: self.redis_benchmark(plain, [redis], 1000000, 1, *check[0]),
                lambda: self.redis_benchmark(spread, nodes, 1000000, 1, *check[0]),
                lambda: self.redis_benchmark(plain, [redis], 16, 64, *check[1]),
                lambda: self.redis_benchmark(spread, nodes, 16, 64, *check[1]),
            ))
            for exact, exact_spread, leased, leased_spread in rounds:
                self.say(
                    f"  exact {exact[0]:,.0f}/s with {exact[1]:.2f} µs of Redis's CPU, in a cluster {exact_spread[0]:,.0f}/s with"
                    f" {exact_spread[1]:.2f} µs; leased, pipelined by 64, {leased[0]:,.0f}/s, in a cluster {leased_spread[0]:,.0f}/s"
                )
            self.ratio("exact: decisions a second, three masters of a cluster / one Redis", [r[1][0] / r[0][0] for r in rounds], 0.8)
            self.ratio("leased, 16 hot keys: the same", [r[3][0] / r[2][0] for r in rounds], 0.95)
            self.sound(plain)
            self.sound(spread)
            for server in (plain, spread, redis, *nodes):
                server.stop()


if __name__ == "__main__":
    RedisBench(arguments(__doc__, ("weir", "store"), RedisBench.parts, rounds=3, seconds=5)).run()
