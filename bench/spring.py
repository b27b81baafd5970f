#!/usr/bin/env python3
"""A call with @Detect in a Spring application beside an EVALSHA through the same Lettuce, in one JVM: ratios.

    bench/spring.py BUILD/weir [--rounds N] [--seconds S] [--json]

Redis runs the classic script with two counters, weir decides the same by a rule. Both stand on one CPU, the JVM on the other. One call is
under way at a time. Each round measures the sides one after the other, the next round the other way round; of each the median call
counts, and what is shown is the median of the rounds' ratios.
"""

import csv
import os
import subprocess
import sys
import tempfile

from common import Bench, Server, arguments, client, free_port
from serve import SCRIPT

STARTER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients", "spring")
CLASSPATH = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"

RULES = """
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits:
      - { name: day, calendar: day, max: 1000000, tz: Asia/Shanghai }
      - { name: hour, calendar: hour, max: 1000000, tz: Asia/Shanghai }
"""


def class_path(folder):
    """Of the starter and its tests, built."""
    file = os.path.join(folder, "classpath")
    done = subprocess.run(
        ["mvn", "-q", "-B", "-f", STARTER, "test-compile", CLASSPATH, f"-Dmdep.outputFile={file}"],
        capture_output=True, text=True, timeout=600, check=False,
    )
    if done.returncode != 0:
        sys.exit(f"the starter cannot be built: {done.stdout}{done.stderr}")
    with open(file, encoding="utf-8") as text:
        return ":".join([f"{STARTER}/target/classes", f"{STARTER}/target/test-classes", text.read().strip()])


class SpringBench(Bench):
    parts = ("call",)

    def servers(self, folder):
        redis = free_port()
        Server(folder, redis, "redis-server", "--port", redis, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        rules = os.path.join(folder, "rules.yaml")
        with open(rules, "w", encoding="utf-8") as out:
            out.write(RULES)
        weir = free_port()
        Server(
            folder, weir, self.options.weir, "serve", "--data", os.path.join(folder, "data"), "--rules", rules, "--resp",
            f"127.0.0.1:{weir}", "--http", "off", "--admin", "off", "--threads", "1",
        )
        return f"redis://127.0.0.1:{weir}", f"redis://127.0.0.1:{redis}"

    def call(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ("java", "-cp", class_path(folder), "io.weir.spring.CallBenchKt")
            text = client(*words, *self.servers(folder), SCRIPT, self.options.rounds, self.options.seconds)
            lines = text[text.index("guarded,evalsha,bare"):].splitlines()
            rounds = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(lines)]
            for r in rounds:
                self.say(f"  @Detect {r['guarded']:.1f} µs, EVALSHA {r['evalsha']:.1f} µs, unprotected {r['bare']:.3f} µs")
            name = "one call: median time, with @Detect / EVALSHA through the same Lettuce"
            self.ratio(name, [r["guarded"] / r["evalsha"] for r in rounds], 1.0, at_most=True)
            self.ratio("one call: microseconds that @Detect adds", [r["guarded"] - r["bare"] for r in rounds], None)
            for server in Server.all:
                server.stop()


if __name__ == "__main__":
    SpringBench(arguments(__doc__, ("weir",), SpringBench.parts, rounds=7, seconds=2)).run()
