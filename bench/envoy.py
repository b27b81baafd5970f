#!/usr/bin/env python3
"""`weir serve --grpc` beside a bare nghttp2 server, beside envoyproxy/ratelimit with Redis, and behind Envoy, in one run: ratios.

    bench/envoy.py BUILD [--reference PATH] [--only floor|reference|proxy] [--rounds N] [--seconds S] [--json]

floor      100 streams on four connections, beside a server of nghttp2 that answers the same bytes and decides nothing
reference  the same beside envoyproxy/ratelimit and its Redis, with the same configuration; needs --reference
proxy      how long a request through Envoy takes, with the rate limit filter and without, at a steady rate

Each round measures the sides one after the other, the next round the other way round; what is shown is the median of the
rounds' ratios. weir has one loop. A server and its Redis share a CPU, and the client has the other one; in `proxy`, all share both.
"""

import json
import os
import sys
import tempfile
import urllib.request

from common import Bench, Server, arguments, client, cpu_s, free_port
from serve import NGINX

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))

# Each user has a limit for one path, which none of them reaches; other limits are there, too.
CONFIGURATION = """
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 60 }
  - key: path
    value: /orders
    descriptors:
      - key: user
        rate_limit: { unit: day, requests_per_unit: 4000000000 }
  - key: path
    rate_limit: { unit: second, requests_per_unit: 1000 }
"""

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
OK = "0801"  # RateLimitResponse begins with overall_code
# What Envoy sends along with a call.
HEADERS = (
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("grpc-timeout", "5S"),
    ("x-envoy-internal", "true"),
    ("x-forwarded-for", "10.0.0.1"),
)
CONNECTIONS, STREAMS = 4, 25
KEYS = 1000000  # users
RATE = 1000  # requests a second through Envoy


def field(number, content):
    """Of a protobuf message, with fewer than 128 bytes."""
    return bytes((number << 3 | 2, len(content))) + content


def call():
    """RateLimitRequest, as a whole body. Its last bytes are the digits that the client changes."""
    entries = ((b"path", b"/orders"), (b"user", b"u000000"))
    descriptor = b"".join(field(1, field(1, key) + field(2, value)) for key, value in entries)
    message = field(1, b"shop") + field(2, descriptor)
    return b"\0" + len(message).to_bytes(4, "big") + message


def made(*parts):
    """A folder that is new."""
    path = os.path.join(*parts)
    os.makedirs(path)
    return path


class EnvoyBench(Bench):
    parts = ("floor", "reference", "proxy")

    def program(self, name):
        return os.path.join(self.options.build, name)

    # ---- the servers: lists, whose first one is asked ----

    def weir(self, folder, pin=True):
        home = made(folder, "weir")
        rules = made(home, "rules")
        with open(os.path.join(rules, "shop.yaml"), "w", encoding="utf-8") as out:
            out.write(CONFIGURATION)
        port = free_port()
        options = {"data": os.path.join(home, "data"), "rules": f"envoy:{rules}", "grpc": f"127.0.0.1:{port}", "threads": 1}
        options.update({"http": "off", "resp": "off", "admin": "off", "cells-keys": 2200000, "log-refusals": 0})
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return [Server(home, port, self.program("weir"), "serve", *words, pin=pin)]

    def floor_server(self, folder, weir):
        """It answers what weir answers."""
        home, port = made(folder, "floor"), free_port()
        answer = os.path.join(home, "answer")
        headers = [word for name, value in HEADERS for word in ("-H", f"{name}: {value}")]
        url = f"http://127.0.0.1:{weir[0].port}{METHOD}"
        client("curl", "-sS", "--http2-prior-knowledge", *headers, "--data-binary", f"@{folder}/call", "-o", answer, url)
        return [Server(home, port, self.program("bench/h2_floor"), port, answer)]

    def reference_server(self, folder, pin=True):
        redis_port, port = free_port(), free_port()
        home, redis_home = made(folder, "reference"), made(folder, "redis")
        with open(os.path.join(made(home, "runtime", "ratelimit", "config"), "shop.yaml"), "w", encoding="utf-8") as out:
            out.write(CONFIGURATION)
        words = ("--port", redis_port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        redis = Server(redis_home, redis_port, "redis-server", *words, pin=pin)
        settings = {"HOST": "127.0.0.1", "PORT": free_port(), "GRPC_HOST": "127.0.0.1", "GRPC_PORT": port}
        settings.update({"DEBUG_HOST": "127.0.0.1", "DEBUG_PORT": free_port(), "USE_STATSD": "false", "LOG_LEVEL": "error"})
        settings.update({"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": f"127.0.0.1:{redis_port}", "RUNTIME_WATCH_ROOT": "false"})
        settings.update({"RUNTIME_ROOT": os.path.join(home, "runtime"), "RUNTIME_SUBDIRECTORY": "ratelimit"})
        words = [f"{name}={value}" for name, value in settings.items()]
        service = Server(home, port, "env", *words, self.options.reference, pin=pin)
        service.http = settings["PORT"]
        return [service, redis]

    def stop(self, *sides):
        for side in sides:
            for server in side:
                server.stop()

    # ---- calls, as many as it answers ----

    def ask(self, side, call_file, keys, method=METHOD, answer=OK, port=None, seconds=None):
        """(decisions a second, CPU microseconds of the servers for each, how busy their CPU was)"""
        before = sum(cpu_s(server.process.pid) for server in side)
        words = (port or side[0].port, method, call_file, CONNECTIONS, STREAMS, seconds or self.options.seconds, 0, keys, answer)
        found = json.loads(client(self.program("bench/h2_load"), *words, *(word for pair in HEADERS for word in pair)))
        used_s = sum(cpu_s(server.process.pid) for server in side) - before
        each_s = used_s / found["answered"]
        return found["rate"], each_s * 1e6, each_s * found["rate"]

    def measure(self, folder, sides, keys):
        """{name of a side: [(decisions a second, CPU of each, how busy), …]}"""
        result = {name: [] for name in sides}
        for side in sides.values():
            self.ask(side, f"{folder}/call", keys)
        for values in self.rounds(*(lambda s=side: self.ask(s, f"{folder}/call", keys) for side in sides.values())):
            texts = []
            for name, (rate, cpu_us, busy) in zip(sides, values):
                result[name].append((rate, cpu_us, busy))
                texts.append(f"{name} {rate:,.0f}/s {cpu_us:.2f} µs ({busy:.0%})")
            self.say(f"  {keys:,} users: {'; '.join(texts)}")
        return result

    def write_call(self, folder):
        with open(os.path.join(folder, "call"), "wb") as out:
            out.write(call())

    def floor(self):
        with tempfile.TemporaryDirectory() as folder:
            self.write_call(folder)
            weir = self.weir(folder)
            floor = self.floor_server(folder, weir)
            for what, keys, wanted in (("the same call", 1, 0.8), ("1M users", KEYS, None)):
                result = self.measure(folder, {"weir": weir, "nghttp2": floor}, keys)
                self.compare(f"100 streams, {what}", result, "nghttp2", wanted, wanted and 1 / wanted, unit="decisions")
            self.stop(weir, floor)

    def reference(self):
        if not self.options.reference:
            self.say("envoyproxy/ratelimit: left out; --reference PATH names its program")
            return
        with tempfile.TemporaryDirectory() as folder:
            self.write_call(folder)
            sides = {"weir": self.weir(folder), "ratelimit with Redis": self.reference_server(folder)}
            result = self.measure(folder, sides, KEYS)
            self.compare("100 streams, 1M users", result, "ratelimit with Redis", 4, 1 / 8, unit="decisions")
            self.stop(*sides.values())

    # ---- through Envoy ----

    def listener(self, name, port, service):
        """A listener of Envoy, with the rate limit filter if there is a service."""
        from support.envoy_proxy import address, by_header

        kinds = "type.googleapis.com/envoy.extensions.filters"
        filters = [{"name": "envoy.filters.http.router", "typed_config": {"@type": f"{kinds}.http.router.v3.Router"}}]
        host = {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "backend"}}]}
        if service:
            grpc = {"transport_api_version": "V3", "grpc_service": {"envoy_grpc": {"cluster_name": service}}}
            settings = {"domain": "shop", "timeout": "5s", "failure_mode_deny": True, "rate_limit_service": grpc}
            kind = f"{kinds}.http.ratelimit.v3.RateLimit"
            filters.insert(0, {"name": "envoy.filters.http.ratelimit", "typed_config": {"@type": kind, **settings}})
            path = {"generic_key": {"descriptor_key": "path", "descriptor_value": "/orders"}}
            host["rate_limits"] = [{"actions": [path, by_header("x-user", "user")]}]
        manager = {
            "@type": f"{kinds}.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": name,
            "http_filters": filters,
            "route_config": {"virtual_hosts": [host]},
        }
        chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        return {"name": name, "address": address(("127.0.0.1", port)), "filter_chains": [chain]}

    def envoy(self, folder, backend, services):
        """Envoy with a listener that asks nobody, and one for each service: {name: port}"""
        from support.envoy_proxy import cluster, program

        home, ports = made(folder, "envoy"), {name: free_port() for name in ("none", *services)}
        clusters = [cluster("backend", ("127.0.0.1", backend.port))]
        clusters += [cluster(name, ("127.0.0.1", side[0].port), h2=True) for name, side in services.items()]
        listeners = [self.listener(name, port, name if name in services else None) for name, port in ports.items()]
        path = os.path.join(home, "config.json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"static_resources": {"listeners": listeners, "clusters": clusters}}, out)
        words = ("-c", path, "--concurrency", 1, "--log-level", "error", "--disable-hot-restart")
        return Server(home, ports["none"], program(), *words, pin=False), ports

    def backend(self, folder):
        home, port = made(folder, "nginx"), free_port()
        path = os.path.join(home, "conf")
        with open(path, "w", encoding="utf-8") as out:
            out.write(NGINX.format(folder=home, port=port))
        return Server(home, port, "nginx", "-e", os.path.join(home, "error.log"), "-c", path, pin=False)

    def paced(self, port):
        words = (port, "/orders", "-", CONNECTIONS, STREAMS * 10, self.options.seconds, RATE, 1, "", "x-user", "ann")
        return json.loads(client(self.program("bench/h2_load"), *words, pin=False))

    def proxy(self):
        with tempfile.TemporaryDirectory() as folder:
            services = {"weir": self.weir(folder, pin=False)}
            if self.options.reference:
                services["ratelimit"] = self.reference_server(folder, pin=False)
            backend = self.backend(folder)
            envoy, ports = self.envoy(folder, backend, services)
            for port in ports.values():
                with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"x-user": "ann"}), timeout=30):
                    pass
                self.paced(port)
            rounds = list(self.rounds(*(lambda p=port: self.paced(p) for port in ports.values())))
            for values in rounds:
                texts = (f"{name} {v['p50_us']} and {v['p99_us']} µs" for name, v in zip(ports, values))
                self.say(f"  {RATE:,} requests/s through Envoy, p50 and p99 by who is asked: {'; '.join(texts)}")
            for i, name in enumerate(ports):
                for part in ("p50", "p99") if i else ():
                    what = f"{RATE:,} requests/s through Envoy: {part}"
                    pairs = [(values[i][f"{part}_us"], values[0][f"{part}_us"]) for values in rounds]
                    self.ratio(f"{what}, with a filter that asks {name} / without it", [w / o for w, o in pairs], None)
                    self.ratio(f"{what}, microseconds that asking {name} adds", [w - o for w, o in pairs], None)
            envoy.stop()
            backend.stop()
            self.stop(*services.values())


if __name__ == "__main__":
    REFERENCE = "the program of envoyproxy/ratelimit (go build ./src/service_cmd)"
    options_ = arguments(__doc__, ("build",), EnvoyBench.parts, rounds=5, seconds=3, reference=REFERENCE)
    os.environ["WEIR_BUILD"] = options_.build
    EnvoyBench(options_).run()
