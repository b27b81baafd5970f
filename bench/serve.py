#!/usr/bin/env python3
"""`weir serve` beside Redis and nginx, in one run, on loopback: ratios.

    bench/serve.py BUILD/weir BUILD/bench/paced [--only resp|several|idle|http|change|pages] [--rounds N] [--seconds S] [--json]

Each round measures both sides one after the other, the next round the other way round; what is shown is the median of the
rounds' ratios. One loop, one worker, one Redis, on a CPU of its own; the client has the other one.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from common import CLIENT_CPU, Bench, Server, arguments, client, cpu_s, free_port

MANY = 3900  # connections: one address may have 4,000

RULES = """
settings: { trusted_proxies: [127.0.0.0/8] }
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits:
      - { name: day, calendar: day, max: 1000, tz: Asia/Shanghai }
      - { name: hour, calendar: hour, max: 200, tz: Asia/Shanghai }
  - id: route
    match: { path: "/api/{name}" }
    by: [ip]
    limits: [ "1000000 per 1s" ]
"""

# Two counters, each with an end; refused by the second, the first is rolled back.
SCRIPT = """
local day, hour = KEYS[1] .. ':day', KEYS[1] .. ':hour'
local used = redis.call('GET', day)
if used and tonumber(used) >= tonumber(ARGV[1]) then return {0, 'day'} end
if used then redis.call('INCR', day) else redis.call('SET', day, 1, 'PX', 86400000) end
used = redis.call('GET', hour)
if used and tonumber(used) >= tonumber(ARGV[2]) then redis.call('DECR', day) return {0, 'hour'} end
if used then redis.call('INCR', hour) else redis.call('SET', hour, 1, 'PX', 3600000) end
return {1, ''}
"""

# (limits of a rule, rules that all apply, keys)
SEVERAL = {
    "1M keys": ((1, 1, 1000000), (3, 1, 333333), (8, 1, 125000)),  # as many cells with several limits as with one
    "10M keys": ((1, 1, 10000000), (3, 1, 3333333), (8, 1, 1250000)),
    "100,000 subjects": ((1, 1, 100000), (1, 16, 100000), (1, 64, 100000)),
}
SEVERAL_WANTED = {"3 limits": 1.6, "8 limits": 3, "16 rules": 4, "64 rules": 16}

NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port}; location / {{ return 200; }} }}
}}
"""

POST = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local n = 0
request = function()
  n = n + 7919
  return wrk.format(nil, "/v1/check", nil, '{"event":"ocr","key":"u' .. n % 1000000 .. '"}')
end
"""

AUTH = """
wrk.headers["X-Forwarded-Method"] = "GET"
wrk.headers["X-Forwarded-Host"] = "api.example.com"
wrk.headers["X-Forwarded-Uri"] = "/api/orders?page=2"
local n = 0
request = function()
  n = n + 7919
  wrk.headers["X-Forwarded-For"] = string.format("10.%d.%d.%d", n % 200, n % 251, n % 241)
  return wrk.format(nil, "/v1/auth")
end
"""


class ServeBench(Bench):
    parts = ("resp", "several", "idle", "http", "change", "pages")

    def weir(self, folder, text=RULES, **flags):
        rules = os.path.join(folder, "rules.yaml")
        with open(rules, "w", encoding="utf-8") as out:
            out.write(text)
        ports = {front: free_port() for front in ("http", "resp", "admin")}
        options = {"data": os.path.join(folder, "data"), "rules": rules, "threads": 1, "cells-keys": 2200000, "log-refusals": 0}
        options.update({front: f"127.0.0.1:{port}" for front, port in ports.items()})
        pin = flags.pop("pin", True)
        options.update({name.replace("_", "-"): value for name, value in flags.items()})
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        server = Server(folder, ports["resp"] if options.get("resp") != "off" else ports["http"], self.options.weir, "serve", *words, pin=pin)
        server.ports = ports
        server.data = options["data"]
        return server

    # ---- RESP ----

    def resp(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "redis"))
            port = free_port()
            redis = Server(
                os.path.join(folder, "redis"), port, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
                "--appendonly", "no",
            )
            weir = self.weir(folder)
            sha = client("redis-cli", "-p", port, "SCRIPT", "LOAD", SCRIPT).strip()
            lua = ("EVALSHA", sha, "1", "u__rand_int__", "1000", "200")
            check = ("WEIR.CHECK", "event", "ocr", "key", "u__rand_int__")
            for pipeline, wanted in ((1, 1.3), (16, 6), (64, 12)):
                rounds = list(self.rounds(
                    lambda p=pipeline: self.redis_benchmark(weir, p, *check),
                    lambda p=pipeline: self.redis_benchmark(redis, p, *lua),
                ))
                for (weir_rate, weir_cpu), (redis_rate, redis_cpu) in rounds:
                    self.say(
                        f"  pipeline {pipeline}: weir {weir_rate:,.0f}/s, {weir_cpu:.2f} µs CPU;"
                        f" Redis {redis_rate:,.0f}/s, {redis_cpu:.2f} µs CPU"
                    )
                name = f"RESP, pipeline {pipeline}: decisions a second, weir / Redis with a Lua script"
                self.ratio(name, [w[0] / r[0] for w, r in rounds], wanted)
                if pipeline == 16:
                    name = "RESP, pipeline 16: CPU of the server for a decision, weir / Redis"
                    self.ratio(name, [w[1] / r[1] for w, r in rounds], 1 / 8, at_most=True)
            weir.stop()
            redis.stop()

    # ---- several limits, several rules ----

    def several_cpu(self, weir, event, keys):
        return self.redis_benchmark(weir, 16, "WEIR.CHECK", "event", event, "key", "u__rand_int__", keys=keys)[1]

    def several(self):
        for what, sides in SEVERAL.items():
            self.several_of(what, sides)

    def several_of(self, what, sides):
        text = "rules:\n"
        for number, (limits, rules, _) in enumerate(sides):
            periods = ", ".join(f'"1000000000 per {60 + i}s"' for i in range(limits))
            for i in range(rules):
                text += f"  - {{ id: r{number}-{i}, match: {{ event: e{number} }}, by: [key], limits: [ {periods} ] }}\n"
        with tempfile.TemporaryDirectory() as folder:
            weir = self.weir(folder, text, cells_keys=sum(limits * rules * keys for limits, rules, keys in sides))
            # Afterwards 95 in 100 subjects are known.
            for number, (_, _, keys) in enumerate(sides):
                words = ("-h", "127.0.0.1", "-p", weir.port, "-c", 50, "-P", 64, "-n", 3 * keys, "-r", keys, "--csv")
                client("redis-benchmark", *words, "WEIR.CHECK", "event", f"e{number}", "key", "u__rand_int__")
            rounds = list(self.rounds(*(lambda n=n, k=side[2]: self.several_cpu(weir, f"e{n}", k) for n, side in enumerate(sides))))
            for costs in rounds:
                self.say("  " + "; ".join(f"{side[0]} limits of {side[1]} rules {cost:.2f} µs CPU" for side, cost in zip(sides, costs)))
            for number, (limits, rules, _) in enumerate(sides[1:], 1):
                name = f"{limits} limits" if limits > 1 else f"{rules} rules"
                self.ratio(f"RESP, {what}: {name} / 1: CPU for a decision", [r[number] / r[0] for r in rounds], SEVERAL_WANTED[name], at_most=True)
            weir.stop()

    # ---- many connections ----

    def paced_cpu(self, weir, connections, idle):
        """50 decisions are under way at a time, each over a connection that is chosen at random: p99, CPU for each."""
        words = [self.options.paced, "127.0.0.1", weir.ports["resp"], 0, self.options.seconds, connections, 1000000, idle]
        process = subprocess.Popen(
            ["taskset", "-c", CLIENT_CPU, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if process.stdout.readline() != "ready\n":
            sys.exit("paced did not start")
        before = cpu_s(weir.process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        line = process.stdout.readline()
        used_s = cpu_s(weir.process.pid) - before
        process.communicate()
        if process.returncode != 0:
            sys.exit("paced failed")
        result = json.loads(line)
        return {**result, "cpu_us": used_s / result["sent"] * 1e6}

    def idle(self):
        sides = ((50, 0), (50, MANY - 50), (MANY, 0))
        with tempfile.TemporaryDirectory() as folder:
            weir = self.weir(folder)
            self.paced_cpu(weir, *sides[0])
            rounds = list(self.rounds(*(lambda s=side: self.paced_cpu(weir, *s) for side in sides)))
            for few, idle, many in rounds:
                self.say(
                    f"  50 under way: 50 connections {few['cpu_us']:.2f} µs CPU, p99 {few['p99_us']} µs; and {MANY - 50:,} idle ones"
                    f" {idle['cpu_us']:.2f} µs, {idle['p99_us']} µs; {MANY:,} in use {many['cpu_us']:.2f} µs, {many['p99_us']} µs"
                )
            for name, side, most in ((f"50 connections and {MANY - 50:,} idle ones / 50", 1, 1.05), (f"{MANY:,} connections / 50", 2, 1.25)):
                self.ratio(f"RESP, {name}: CPU for a decision", [r[side]["cpu_us"] / r[0]["cpu_us"] for r in rounds], most, at_most=True)
                self.ratio(f"RESP, {name}: p99", [r[side]["p99_us"] / r[0]["p99_us"] for r in rounds], None)
            weir.stop()

    # ---- HTTP ----

    def http(self):
        with tempfile.TemporaryDirectory() as folder:
            port = free_port()
            os.mkdir(os.path.join(folder, "nginx"))
            conf = os.path.join(folder, "nginx.conf")
            with open(conf, "w", encoding="utf-8") as out:
                out.write(NGINX.format(folder=os.path.join(folder, "nginx"), port=port))
            nginx = Server(os.path.join(folder, "nginx"), port, "nginx", "-e", os.path.join(folder, "nginx", "error.log"), "-c", conf)
            weir = self.weir(folder)
            own = f"http://127.0.0.1:{weir.ports['http']}"
            for what, path, script, wanted in (("POST /v1/check", "/v1/check", POST, 0.6), ("forward auth", "/v1/auth", AUTH, 0.8)):
                # The same client, with the same request: what its script costs, costs both.
                rounds = list(self.rounds(
                    lambda p=path, s=script: self.wrk(own + p, folder, s),
                    lambda p=path, s=script: self.wrk(f"http://127.0.0.1:{port}{p}", folder, s),
                    lambda p=path: self.wrk(f"http://127.0.0.1:{port}{p}", folder),
                ))
                for ours, same, plain in rounds:
                    self.say(f"  {what}: weir {ours:,.0f}/s; nginx {same:,.0f}/s, for a plain GET {plain:,.0f}/s")
                self.ratio(f"HTTP, {what}: requests a second, weir / nginx `return 200`, the same request", [o / s for o, s, _ in rounds], wanted)
                self.ratio(f"HTTP, {what}: the same / nginx with a plain GET", [o / p for o, _, p in rounds], wanted)
            weir.stop()
            nginx.stop()

    # ---- while rules change ----

    def paced(self, weir):
        text = subprocess.run(
            [self.options.paced, "127.0.0.1", str(weir.ports["resp"]), "50000", str(self.options.seconds), "50", "1000000"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )
        if text.returncode != 0:
            sys.exit(text.stderr)
        return json.loads(text.stdout.splitlines()[-1])

    def admin_call(self, weir, method, path, document=None):
        with open(os.path.join(weir.data, "admin-token"), encoding="ascii") as file:
            headers = {"Authorization": f"Bearer {file.read().strip()}"}
        url = f"http://127.0.0.1:{weir.ports['admin']}{path}"
        body = json.dumps(document).encode() if document else None
        if body:
            headers["Content-Type"] = "application/json"
        with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=30) as answer:
            return answer.read()

    def change_rule(self, weir, number):
        rule = {"id": "changing", "match": {"event": "other"}, "by": ["key"], "limits": [f"{number} per 1m"]}
        self.admin_call(weir, "PUT", "/v1/rules/changing", rule)

    def scrape(self, weir, number):
        del number
        self.admin_call(weir, "GET", "/metrics")

    def while_others(self, measure, weir, calls):
        """What is measured while others ask: calls is {name: (call, how often)}. Returns both, and how many calls there were."""
        stop, counts = threading.Event(), {}

        def again(name, call, period_s):
            # Elsewhere it is another host that does this: it must not take a CPU from those who are measured.
            os.sched_setscheduler(threading.get_native_id(), os.SCHED_IDLE, os.sched_param(0))
            counts[name], next_at = 0, time.monotonic()
            while not stop.is_set():
                counts[name] += 1
                call(weir, counts[name])
                next_at += period_s
                stop.wait(max(0, next_at - time.monotonic()))

        threads = [threading.Thread(target=again, args=(name, call, period)) for name, (call, period) in calls.items()]
        for thread in threads:
            thread.start()
        result = measure()
        stop.set()
        for thread in threads:
            thread.join()
        return result, counts

    def disturbed(self, weir):
        """Decisions while a rule changes every 100 ms, and the metrics are scraped every second."""
        result, counts = self.while_others(lambda: self.paced(weir), weir, {"changes": (self.change_rule, 0.1), "scrapes": (self.scrape, 1)})
        if counts["changes"] < 8 * self.options.seconds:
            sys.exit(f"only {counts['changes']} changes in {self.options.seconds} s: this says nothing; is the machine busy?")
        return {**result, **counts}

    def change(self):
        for count, wanted in ((100, 1.5), (1000, None)):
            self.change_with(count, wanted)

    def change_with(self, count, wanted):
        with tempfile.TemporaryDirectory() as folder:
            database = os.path.join(folder, "rules.db")
            text = RULES + "".join(
                f"  - {{ id: r{i}, match: {{ path: /r{i}/* }}, by: [ip], limits: [ 10 per 1s ] }}\n" for i in range(count)
            )
            source = os.path.join(folder, "all.yaml")
            with open(source, "w", encoding="utf-8") as out:
                out.write(text)
            for words in (("init",), ("import", source)):
                subprocess.run([self.options.weir, "rules", words[0], "--from", f"sqlite:{database}", *words[1:]], check=True, capture_output=True)
            weir = self.weir(folder, rules=f"sqlite:{database}", pin=False)
            self.paced(weir)

            rounds = list(self.rounds(lambda: self.paced(weir), lambda: self.disturbed(weir)))
            for quiet, busy in rounds:
                self.say(
                    f"  50,000/s: p99 {quiet['p99_us']} µs quiet, {busy['p99_us']} µs with {busy['changes']} changes of"
                    f" {count:,} rules and {busy['scrapes']} scrapes; p99.9 {quiet['p999_us']} and {busy['p999_us']} µs"
                )
            name = f"50,000 decisions/s: p99 while {count:,} rules change / quiet"
            self.ratio(name, [b["p99_us"] / q["p99_us"] for q, b in rounds], wanted, at_most=True)
            weir.stop()


    # ---- while people look at the page ----

    def page(self, weir, number):
        """What a page that shows Now does in a second or so."""
        with open(os.path.join(weir.data, "read-token"), encoding="ascii") as file:
            headers = {"Authorization": f"Bearer {file.read().strip()}"}
        url = f"http://127.0.0.1:{weir.ports['admin']}"
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/live", None, headers), timeout=30) as events:
            for _ in range(6):
                events.readline()
        if number % 3 == 0:
            self.admin_call(weir, "GET", "/v1/counts?last=1h&step=10s")
            self.admin_call(weir, "GET", "/v1/counts?last=1h&step=1m&rule=ocr&rule=route")

    def pages(self):
        with tempfile.TemporaryDirectory() as folder:
            weir = self.weir(folder)
            check = ("WEIR.CHECK", "event", "ocr", "key", "u__rand_int__")

            def measure():
                return self.redis_benchmark(weir, 16, *check)

            three = {f"page {i}": (self.page, 0) for i in range(3)}
            rounds = list(self.rounds(measure, lambda: self.while_others(measure, weir, three)[0]))
            for (alone, alone_cpu), (watched, watched_cpu) in rounds:
                self.say(f"  nobody looks: {alone:,.0f}/s, {alone_cpu:.2f} µs CPU; three pages: {watched:,.0f}/s, {watched_cpu:.2f} µs CPU")
            self.ratio("RESP, pipeline 16: decisions a second, with three pages open / with none", [w[0] / a[0] for a, w in rounds], 0.97)
            weir.stop()


if __name__ == "__main__":
    ServeBench(arguments(__doc__, ("weir", "paced"), ServeBench.parts, rounds=3, seconds=5)).run()
