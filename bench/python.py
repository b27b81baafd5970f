#!/usr/bin/env python3
"""What `@detect` adds to a call in Python: in the process, and through the service beside a script in Redis.

    bench/python.py BUILD/weir BUILD/libweir.so.3 [--only inside|service] [--rounds N] [--seconds S] [--json]

Each round measures the sides one after the other, for S seconds in all, the next round the other way round; what is shown
is the median of the rounds. `inside` needs Python alone, `service` also redis-py and redis-server. In `service` the servers
have one CPU, and the client the other.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time

from common import CLIENT_CPU, Bench, Server, arguments, free_port
from serve import SCRIPT

# No longer this folder, whose redis.py is not redis-py.
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients", "python", "src")

from weir import TooFrequent, Weir, detect  # noqa: E402  (needs the path above)

KEYS = [f"user-{number}" for number in range(1000)]
MOST = 4000000000
RULES = f"""
rules:
  - id: ocr
    match: {{ event: ocr }}
    by: [key]
    limits:
      - {{ name: day, calendar: day, max: {MOST}, tz: Asia/Shanghai }}
      - {{ name: hour, calendar: hour, max: {MOST}, tz: Asia/Shanghai }}
  - id: shut
    match: {{ event: shut }}
    by: [key]
    limits: [ {{ name: hour, calendar: hour, max: 0 }} ]
"""


def work(user_id, image):
    return image


async def work_async(user_id, image):
    return image


class Meter:
    """µs a call, of calls in batches until the time is over: the median of the batches."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, call):
        batches, end = [], time.perf_counter() + self.seconds
        while time.perf_counter() < end or len(batches) < 3:
            begin = time.perf_counter()
            for key in KEYS:
                call(key, "a.png")
            batches.append((time.perf_counter() - begin) * 1e6 / len(KEYS))
        return statistics.median(batches)

    def coroutine(self, call):
        async def batch():
            begin = time.perf_counter()
            for key in KEYS:
                await call(key, "a.png")
            return (time.perf_counter() - begin) * 1e6 / len(KEYS)

        async def measure():
            batches, end = [], time.perf_counter() + self.seconds
            while time.perf_counter() < end or len(batches) < 3:
                batches.append(await batch())
            return statistics.median(batches)

        return asyncio.run(measure())


def refused(call):
    def ask(key, image):
        try:
            call(key, image)
        except TooFrequent:
            pass

    return ask


class PythonBench(Bench):
    parts = ("inside", "service")

    def table(self, rows):
        """rows: (name, µs of each round)."""
        for name, values in rows:
            self.say(f"  {name:<60} {statistics.median(values):8.2f} µs  ({min(values):.2f} to {max(values):.2f})")
        self.say("")

    def inside(self):
        meter = Meter(self.options.seconds / 6)
        with Weir.open(rules_text=RULES) as weir:
            guarded, shut = (detect(weir, event, key="user_id")(work) for event in ("ocr", "shut"))
            guarded_async = detect(weir, "ocr", key="user_id")(work_async)
            rounds = list(self.rounds(
                lambda: meter(work),
                lambda: meter(guarded),
                lambda: meter(refused(shut)),
                lambda: meter(lambda key, image: weir.check(event="ocr", key=key)),
                lambda: meter.coroutine(work_async),
                lambda: meter.coroutine(guarded_async),
            ))
        names = ("a call", "a protected call", "a refused call", "weir.check", "a coroutine", "a protected coroutine")
        self.say("in the process")
        self.table([(name, [values[i] for values in rounds]) for i, name in enumerate(names)])
        self.ratio("in the process: µs that @detect adds to a call", [r[1] - r[0] for r in rounds], 3, at_most=True)
        self.ratio("in the process: µs that @detect adds to a coroutine", [r[5] - r[4] for r in rounds], 3, at_most=True)

    def servers(self, folder):
        port, resp = free_port(), free_port()
        os.mkdir(os.path.join(folder, "redis"))
        Server(
            os.path.join(folder, "redis"), port, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "no",
        )
        rules = os.path.join(folder, "rules.yaml")
        with open(rules, "w", encoding="utf-8") as out:
            out.write(RULES)
        Server(
            folder, resp, self.options.weir, "serve", "--data", os.path.join(folder, "data"), "--rules", rules, "--resp",
            f"127.0.0.1:{resp}", "--http", "off", "--admin", "off", "--threads", "1",
        )
        return port, resp

    def service(self):
        try:
            import redis
        except ImportError:
            sys.exit("redis-py is missing: apt-get install python3-redis, or pip install redis")
        os.sched_setaffinity(0, {int(CLIENT_CPU)})
        meter = Meter(self.options.seconds / 4)
        with tempfile.TemporaryDirectory() as folder:
            port, resp = self.servers(folder)
            client = redis.Redis(port=port)
            sha = client.script_load(SCRIPT)

            def scripted(user_id, image):
                client.evalsha(sha, 1, user_id, MOST, MOST)
                return work(user_id, image)

            with Weir.connect(f"redis://127.0.0.1:{resp}", deadline=10) as weir:
                rounds = list(self.rounds(
                    lambda: meter(work),
                    lambda: meter(detect(weir, "ocr", key="user_id")(work)),
                    lambda: meter(scripted),
                    lambda: meter.coroutine(detect(weir, "ocr", key="user_id")(work_async)),
                ))
                if weir.unreachable:
                    sys.exit("weir serve did not answer")
            for server in Server.all:
                server.stop()
        names = ("a call", "a protected call", "the same by EVALSHA in Redis", "a protected coroutine")
        self.say("through the service, by redis-py " + redis.__version__)
        self.table([(name, [values[i] for values in rounds]) for i, name in enumerate(names)])
        name = "through the service: what @detect adds / what EVALSHA in Redis adds"
        self.ratio(name, [(r[1] - r[0]) / (r[2] - r[0]) for r in rounds], None)


if __name__ == "__main__":
    options = arguments(__doc__, ("weir", "library"), PythonBench.parts, rounds=7, seconds=2)
    os.environ["WEIR_LIBRARY"] = options.library
    PythonBench(options).run()
