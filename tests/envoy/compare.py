#!/usr/bin/python3
"""Compares weir with envoyproxy/ratelimit, or with a model of it: one random configuration, the same random calls.

  tests/envoy/compare.py --reference PROGRAM      the reference with a redis-server of its own, and `--envoy-charge each`
  tests/envoy/compare.py --model each|together    the model in tests/support/envoy_model.py; also unit_multiplier and negative hits

The reference is the program in src/service_cmd of the Go module github.com/envoyproxy/ratelimit. Run by hand: the tests use
the model."""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# pylint: disable=wrong-import-position
from support import DEADLINE_S, free_port
from support.envoy import Client
from support.envoy_compare import Comparison, Modelled, plain
from support.envoy_random import Calls, Configuration
from support.service import Service
from support.store import Store


class Reference:
    """with Reference(program, root) as reference: reference.ask(call). The configuration is in root/ratelimit/config."""

    def __init__(self, program, root):
        self.program, self.root = program, root

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        store = self.stack.enter_context(Store())
        port = free_port()
        environment = {
            "USE_STATSD": "false",
            "DISABLE_STATS": "true",
            "RUNTIME_ROOT": self.root,
            "RUNTIME_SUBDIRECTORY": "ratelimit",
            "RUNTIME_WATCH_ROOT": "false",
            "REDIS_SOCKET_TYPE": "tcp",
            "REDIS_URL": f"127.0.0.1:{store.port}",
            "LOCAL_CACHE_SIZE_IN_BYTES": "0",
            "LOG_LEVEL": "warn",
            **{f"{name}HOST": "127.0.0.1" for name in ("", "GRPC_", "DEBUG_")},
            **{"GRPC_PORT": str(port), "PORT": str(free_port()), "DEBUG_PORT": str(free_port())},
        }
        self.process = subprocess.Popen([self.program], env={**os.environ, **environment}, stdin=subprocess.DEVNULL)
        self.stack.callback(self.end)
        self.client = self.stack.enter_context(Client(("127.0.0.1", port)))
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                self.client.health()
                return self
            except Exception:  # pylint: disable=broad-except
                if time.monotonic() > deadline or self.process.poll() is not None:
                    self.stack.close()
                    raise
                time.sleep(0.05)

    def __exit__(self, *details):
        self.stack.__exit__(*details)

    def end(self):
        self.process.terminate()
        self.process.wait(DEADLINE_S)

    def ask(self, call, _now_s):
        domain, descriptors, hits = call
        return plain(self.client.ask(domain, *descriptors, hits=hits))


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    with_what = parser.add_mutually_exclusive_group(required=True)
    with_what.add_argument("--reference", metavar="PROGRAM", help="the program of envoyproxy/ratelimit")
    with_what.add_argument("--model", choices=("each", "together"), help="the model, with this --envoy-charge")
    parser.add_argument("--requests", type=int, default=100000, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5, metavar="N", help="differences of each kind to show in full")
    parser.add_argument("--keep", metavar="FOLDER", help="write the configuration here")
    return parser.parse_args()


def main():
    chosen = options()
    choose = random.Random(chosen.seed)
    more = chosen.model is not None
    configuration = Configuration(choose, multipliers=more)
    calls = Calls(choose, configuration, multipliers=more, negative=more)
    with contextlib.ExitStack() as stack:
        root = chosen.keep or stack.enter_context(tempfile.TemporaryDirectory())
        folder = os.path.join(root, "ratelimit", "config")
        os.makedirs(folder, exist_ok=True)
        configuration.write(folder)
        charge = chosen.model or "each"
        flags = ("--rules", "envoy:" + folder, "--grpc", "127.0.0.1:0", "--envoy-charge", charge)
        service = stack.enter_context(Service(*flags, rules=False))
        weir = stack.enter_context(Client(service.grpc))
        if more:
            other = Modelled(configuration, chosen.model == "together")
        else:
            other = stack.enter_context(Reference(chosen.reference, root))
        comparison = Comparison(other, weir, chosen.show)
        for _ in range(chosen.requests):
            comparison.run(calls.call())
    comparison.summary()
    return 1 if comparison.kinds else 0


if __name__ == "__main__":
    sys.exit(main())
