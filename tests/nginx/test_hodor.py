"""What Drogon's Hodor is configured to do, done by nginx: each row of the table in docs/hodor.md."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import re
import socket

import pytest

from support import DEADLINE_S, expect, until, weir
from support.gateway import Gateway

DAY_S = 86400  # nothing comes back while a test runs
PROXY, STRANGER = "127.0.0.1", "127.0.0.9"
EVERYTHING = {
    "algorithm": "token_bucket",
    "urls": ["^/api/.*", "^/login$"],
    "time_unit": DAY_S,
    "capacity": 5000,
    "ip_capacity": 6,
    "user_capacity": 4,
    "use_real_ip_resolver": True,
    "multi_threads": True,
    "rejection_message": "<p>Hodor!</p>",
    "limiter_expire_time": 600,
    "sub_limits": [
        {"urls": ["^/login$"], "ip_capacity": 3},
        {"urls": ["^/api/once$"], "capacity": 1},
        {"urls": ["^/api/first$"], "capacity": 1},
        {"urls": ["^/api/report/.*", "^/api/export$"], "user_capacity": 2},
    ],
    "trust_ips": ["10.0.0.0/8", "192.0.2.77", "2001:db8:77::/48"],
}
# A zone for each: Hodor has one algorithm and one time unit.
CONFIGURATIONS = {
    "everything": EVERYTHING,
    "fixed": {"algorithm": "fixed_window", "time_unit": DAY_S, "capacity": 4},
    "sliding": {"algorithm": "sliding_window", "time_unit": DAY_S, "ip_capacity": 3},
    "second": {"algorithm": "fixed_window", "time_unit": 1, "capacity": 1},
    "threads": {"time_unit": DAY_S, "user_capacity": 50, "multi_threads": False},
}
SERVER = """
listen [::1]:@SIX@;
location / { weir everything user=$http_x_user; proxy_pass http://@BACKEND@; }
location /factory/ {
    weir everything path=/api/once;
    error_page 429 = @refused;
    proxy_pass http://@BACKEND@;
}
location @refused {
    default_type application/json;
    return 429 '{"rule":"$weir_rule","wait":$weir_retry_after}';
}
location = /status { weir_status everything; }
"""


def convert(config):
    plugins = [
        {"name": "drogon::plugin::RealIpResolver", "config": {"trust_ips": [PROXY, "172.16.0.0/12"]}},
        {"name": "drogon::plugin::Hodor", "dependencies": ["drogon::plugin::RealIpResolver"], "config": config},
    ]
    done = weir("convert", "hodor", "-", stdin=json.dumps({"plugins": plugins}).encode())
    expect((done.returncode, done.stderr), (0, b""), "weir convert hodor")
    return done.stdout.decode()


def free_port_of_ipv6():
    """Not one that a connection may get before nginx does: those are from 32768 on."""
    for _ in range(100):
        port = random.randrange(20000, 32768)
        try:
            with socket.create_server(("::1", port), family=socket.AF_INET6):
                return port
        except OSError as error:
            why = error
    raise AssertionError(f"no port of ::1 is free: {why}")


@pytest.fixture(scope="module", name="g")
def gateway():
    zones = "".join(f"weir_zone {name} 1m rules=@FOLDER@/{name}.yaml;\n" for name in CONFIGURATIONS)
    locations = "".join(f"location /{name}/ {{ weir {name} user=$http_x_user; proxy_pass http://@BACKEND@; }}\n"
                        for name in CONFIGURATIONS)
    rules = {name: convert(config) for name, config in CONFIGURATIONS.items()}
    six = free_port_of_ipv6()
    with Gateway(zones, SERVER + locations, rules, workers=2, names={"SIX": str(six)}) as g:
        g.six = six
        yield g


def ask(g, path, of=None, user=None, through=PROXY):
    """One request, of a client that a proxy tells of."""
    headers = {"X-Forwarded-For": of} if of else {}
    if user is not None:
        headers["X-User"] = user
    return g.ask(path, headers=headers, client=through)


def passes(g, count, path, **who):
    """How many of so many requests, after each of which it stays refused."""
    found = [ask(g, path, **who).status for _ in range(count)]
    passed = found.count(200)
    expect(found, [200] * passed + [429] * (count - passed), f"{path} {who}")
    return passed


def test_capacity(g):
    """All clients together."""
    found = [ask(g, f"/fixed/{i}", of=f"198.51.100.{i}", user=f"u{i}", through=f"127.0.0.{i}").status for i in range(20, 40)]
    expect(found, [200] * 4 + [429] * 16, "of twenty")


def test_algorithm(g):
    for name, path in (("hodor/token_bucket", "/api/once"), ("hodor/fixed_window", "/fixed/a"), ("hodor-ip/sliding_window", "/sliding/a")):
        until(lambda p=path: ask(g, p, of="198.51.100.1").status == 429, f"{path} is used up")
        policy = ask(g, path, of="198.51.100.1").headers["RateLimit-Policy"]
        expect(policy.split(";")[0], f'"{name}"', path)


def test_urls(g):
    """Whole paths."""
    who = {"of": "198.51.100.2"}
    for path in ("/", "/api", "/api2/x", "/x/api/y", "/login/x", "/xlogin"):
        expect(passes(g, 7, path, **who), 7, path)
    expect(passes(g, 7, "/api/a/b", **who), 6, "/api/a/b")


def test_time_unit(g):
    expect(passes(g, 7, "/api/t", of="198.51.100.3"), 6, "a day")
    refused = ask(g, "/api/t", of="198.51.100.3")
    expect(refused.headers["RateLimit-Policy"], f'"hodor/token_bucket";q=5000;w={DAY_S}, "hodor-ip/token_bucket";q=6;w={DAY_S}', "its length")
    expect(0 < int(refused.headers["Retry-After"]) <= DAY_S / 6, True, refused.headers["Retry-After"])
    expect(ask(g, "/second/a").status, 200, "a second")
    until(lambda: ask(g, "/second/a").status == 200, "the next second")


def test_ip_capacity(g):
    for i in range(4, 8):
        expect(passes(g, 8, "/api/a", of=f"198.51.100.{i}"), 6, f"address {i}")


def test_user_capacity(g):
    """The id is what `weir … user=` gets, here from a header; no id, no limit by user."""
    expect(passes(g, 6, "/api/a", of="198.51.100.20", user="ann"), 4, "ann")
    expect(passes(g, 3, "/api/b", of="198.51.100.21", user="ann"), 0, "ann, elsewhere")
    expect(passes(g, 2, "/api/a", of="198.51.100.20", user="bob"), 2, "bob")
    expect(passes(g, 7, "/api/a", of="198.51.100.22"), 6, "nobody")
    expect(passes(g, 7, "/api/a", of="198.51.100.23", user=""), 6, "an empty id")


def test_use_real_ip_resolver(g):
    expect(passes(g, 7, "/api/a", of="198.51.100.30, 172.16.0.9"), 6, "through two proxies")
    forged = [ask(g, "/api/a", of=f"198.51.100.{i}", through=STRANGER).status for i in range(31, 39)]
    expect(forged, [200] * 6 + [429] * 2, "a stranger is not believed")
    expect(passes(g, 1, "/api/a", of="198.51.100.31"), 1, "and used up nothing of others")
    peer = [ask(g, "/sliding/a", of=f"198.51.100.{i}", through="127.0.0.8").status for i in range(4)]
    expect(peer, [200] * 3 + [429], "where it is false, the peer counts")


def test_multi_threads(g):
    """Safe without a setting: two workers, eight clients."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ask(g, "/threads/a", user="ann").status, range(200)))
    expect((found.count(200), found.count(429)), (50, 150), "passed, refused")


def test_rejection_message(g):
    expect(passes(g, 7, "/api/a", of="198.51.100.40"), 6, "used up")
    refused = ask(g, "/api/a", of="198.51.100.40")
    expect((refused.status, refused.body), (429, b"<p>Hodor!</p>"), "the refusal")
    expect(refused.headers["Content-Type"], "text/html; charset=utf-8", "its type")


def table(g):
    return json.loads(g.ask("/status").body)["table"]


def test_limiter_expire_time(g):
    """Nothing to set: the table has its size from the beginning."""
    before = table(g)
    with contextlib.closing(g.connection()) as connection:
        for i in range(500):
            g.ask("/login", headers={"X-Forwarded-For": f"203.0.{i // 250}.{i % 250}", "X-User": f"new{i}"}, over=connection)
    after = table(g)
    expect((after["cells"], after["bytes"]), (before["cells"], before["bytes"]), "after 500 addresses and users")


def test_sub_limits(g):
    """Beside the others, not instead of them."""
    expect(passes(g, 5, "/login", of="198.51.100.50"), 3, "by address")
    expect(passes(g, 5, "/api/a", of="198.51.100.50"), 3, "what is left of 6")
    expect(passes(g, 2, "/api/report/7", of="198.51.100.51", user="eve"), 2, "by user")
    expect(passes(g, 2, "/api/export", of="198.51.100.51", user="eve"), 0, "both urls count together")
    expect(passes(g, 4, "/api/a", of="198.51.100.51", user="eve"), 2, "what is left of 4")


def test_trust_ips(g):
    for address in ("10.1.2.3", "192.0.2.77", "2001:db8:77::1", "::ffff:10.1.2.3"):
        expect(passes(g, 8, "/login", of=address), 8, address)
    for address in ("11.1.2.3", "192.0.2.78", "2001:db8:78::1"):
        expect(passes(g, 8, "/login", of=address), 3, address)


def test_refusal_factory(g):
    until(lambda: ask(g, "/factory/a").status == 429, "used up")
    refused = ask(g, "/factory/a")
    expect((refused.status, refused.headers["Content-Type"]), (429, "application/json"), "what nginx built")
    expect(json.loads(refused.body)["rule"], "hodor-sub-2", "with what weir knows")
    expect(json.loads(refused.body)["wait"] > 0, True, "and when to come back")


def test_a_refused_request_charges_nothing(g):
    """Hodor charges what it asked before the limit that refused: ten logins would leave nothing of six."""
    expect(passes(g, 10, "/login", of="198.51.100.60"), 3, "logins")
    expect(passes(g, 10, "/api/a", of="198.51.100.60"), 3, "all that was left")


def test_capacity_one_admits_one(g):
    expect(passes(g, 3, "/api/first", of="198.51.100.61"), 1, "Hodor's bucket of 1 would admit none")


def test_ipv6(g):
    """A client that is connected over it, and others behind a proxy: each /64 is one client."""
    found = []
    for _ in range(8):
        with contextlib.closing(http.client.HTTPConnection("::1", g.six, timeout=DEADLINE_S)) as connection:
            found.append(g.ask("/api/a", over=connection).status)
    expect(found.count(200), 6, "::1")
    hosts = [ask(g, "/api/a", of=f"2001:db8:1:1::{i}").status for i in range(1, 9)]
    expect(hosts.count(200), 6, "one network")
    expect(passes(g, 8, "/api/a", of="[2001:db8:1:2::1]:4711"), 6, "another network")


def test_no_spelling_dodges(g):
    until(lambda: ask(g, "/api/once", of="198.51.100.70").status == 429, "used up")
    for path in ("//api/once", "/api/./once", "/api/x/../once", "/api/%6fnce", "/%61pi/once", "/api/once/", "/api/once;a=b", "/API/Once",
                 "/api;v=1/once", "/api/once?a=b", "http://x.example/api/once"):
        expect(ask(g, path, of="198.51.100.71").status, 429, path)

def test_the_table_is_complete():
    """Every field that Hodor reads has its row in the page."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "hodor.md"), encoding="utf-8") as file:
        rows = re.findall(r"^\| (.*?) \|", file.read(), re.MULTILINE)
    for field in EVERYTHING:
        expect(any(f"`{field}`" in row for row in rows), True, field)


def test_nginx_ends_well(g):
    g.stop()
