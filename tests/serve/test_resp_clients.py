"""RESP with real clients: redis-cli, redis-py, redis-benchmark."""

import csv
import os
import signal
import subprocess
import threading

import pytest

from support import expect, until
from support.attribute_table import FIELDS
from support.service import Service
from support.wire import Error, Wire, words

pytest.importorskip("redis.client", reason="python3-redis is missing")  # tests/redis looks like a package, too
import redis  # noqa: E402

RULES = """
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits:
      - { name: day, algorithm: fixed_window, max: 5, per: 24h }
      - { name: hour, algorithm: fixed_window, max: 3, per: 1h }
  - id: route
    match: { method: GET, path: "/a/#", host: h.example }
    by: [ip, "header:X-Team"]
    limits: [ { name: hour, algorithm: fixed_window, max: 2, per: 1h } ]
  - id: bench
    match: { event: bench }
    by: [key]
    limits: [ { name: day, algorithm: fixed_window, max: 1000000, per: 24h } ]
"""
MONTH_S = 30 * 86400
HINT = "; weir answers WEIR.CHECK, WEIR.PEEK, WEIR.RESERVE, WEIR.SETTLE, WEIR.RENEW, WEIR.REFUND, CL.THROTTLE"


def service(*flags):
    return Service("--http", "off", *flags, rules=RULES)


def cli(s, *args, stdin=b""):
    """Lines of its output."""
    host, port = s.resp
    done = subprocess.run(
        ["redis-cli", "-h", host, "-p", str(port), *map(str, args)], input=stdin, capture_output=True, timeout=60, check=False
    )
    return (done.stdout + done.stderr).decode().splitlines()


def client(s, **more):
    host, port = s.resp
    return redis.Redis(host, port, decode_responses=True, socket_timeout=60, **more)


def fails(wanted, run, *args):
    try:
        found = run(*args)
    except redis.RedisError as error:
        expect(str(error), wanted)
    else:
        raise AssertionError(f"{args} did not fail: {found!r}")


# ---- redis-cli ----


def test_redis_cli():
    with service() as s:
        found = cli(s, "WEIR.CHECK", "event", "ocr", "key", "u1")
        expect(found[:5], ["1", "ocr", "hour", "3", "2"])
        expect(found[6], "0")
        expect(cli(s, "weir.check", "event", "ocr", "key", "u1", "cost", 3)[0], "0")
        expect(cli(s, "weir.peek", "event", "ocr", "key", "u1")[4], "2")
        expect(cli(s, "--json", "-3", "weir.check", "event", "none"), ["[1,null,null,null,null,null,0]"])
        expect(cli(s, "-3", "ping"), ["PONG"])
        expect(cli(s, "echo", "a b"), ["a b"])
        expect(cli(s, "nope", "x")[0], "ERR unknown command 'nope', with args beginning with: 'x' " + HINT)
        expect(cli(s, "select", 3), ["OK"])
        expect(cli(s, "-n", 3, "ping"), ["PONG"])
        expect(cli(s, "info", "server")[:2], ["# Server", "redis_version:7.0.0"])
        expect(cli(s, "command", "count"), [str(len(cli(s, "command", "list")))])
        expect("summary" in cli(s, "command", "docs", "weir.check"), True)
        expect(cli(s, "config", "get", "save"), ["save", ""])


def test_redis_cli_pipe():
    with service() as s:
        found = cli(s, "--pipe", stdin=words("WEIR.CHECK", "event", "bench", "key", "p") * 5000)
        expect(found[-1], "errors: 0, replies: 5000")
        expect(cli(s, "weir.peek", "event", "bench", "key", "p")[4], str(1000000 - 5000))


# ---- redis-py ----


def test_redis_py():
    with service() as s, client(s, client_name="tester") as r:
        expect(r.ping(), True)
        expect(r.client_getname(), "tester")
        expect(r.client_id() > 0, True)
        expect(r.echo("x"), "x")
        expect(r.info()["redis_mode"], "standalone")
        expect(r.config_get("appendonly"), {"appendonly": "no"})
        attributes = ["method", "GET", "path", "/a/7?x", "host", "H.example:80", "ip", "10.1.2.3", "header:x-team", "blue"]
        expect(r.execute_command("WEIR.CHECK", *attributes)[:5], [1, "route", "hour", 2, 1])
        expect(r.execute_command("WEIR.CHECK", *attributes)[:5], [1, "route", "hour", 2, 0])
        expect(r.execute_command("WEIR.CHECK", *attributes)[:5], [0, "route", "hour", 2, 0])
        expect(r.execute_command("WEIR.CHECK", *attributes[:-1], "red")[:5], [1, "route", "hour", 2, 1])
        names = ", ".join(map(str, FIELDS))
        fails(f"unknown attribute 'kay'; allowed: {names}, cost, cost:UNIT, header:NAME, descriptor:KEY, reply and answer",
              r.execute_command, "WEIR.CHECK", "kay", "x")
        fails("DB index is out of range", r.execute_command, "SELECT", 16)
        fails("unknown command 'GET', with args beginning with: 'x' " + HINT, r.get, "x")


def test_redis_py_pipeline():
    """A pipeline of redis-py."""
    with service() as s, client(s) as r:
        with r.pipeline(transaction=False) as p:
            for _ in range(10000):
                p.execute_command("WEIR.CHECK", "event", "bench", "key", "q")
            found = p.execute()
        expect([reply[4] for reply in found], list(range(999999, 989999, -1)))
        with r.pipeline() as p:  # in MULTI and EXEC, unless it is told otherwise
            for _ in range(1000):
                p.execute_command("WEIR.CHECK", "event", "bench", "key", "q")
            found = p.execute()
        expect([reply[4] for reply in found], list(range(989999, 988999, -1)))


def test_many_clients_count_exactly():
    """Over two loops."""
    allowed = []

    def ask(s):
        with client(s) as r:
            mine = 0
            for _ in range(50):
                mine += r.execute_command("WEIR.CHECK", "event", "ocr", "key", "shared")[0]
                mine += 1 - r.execute_command("CL.THROTTLE", "shared", 6, 1, MONTH_S)[0]
            allowed.append(mine)

    with service("--threads", "2") as s:
        threads = [threading.Thread(target=ask, args=(s,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect(sum(allowed), 3 + 7)


# ---- tokens ----


def test_with_a_token():
    """A token for decisions."""
    with service() as plain:
        token_file = os.path.join(plain.folder.name, "token")
        with open(token_file, "w", encoding="ascii") as out:
            out.write("a-token-of-some-length\n")
        with service("--token-file", token_file) as s:
            with client(s) as r:
                fails("Authentication required.", r.ping)
            with client(s, password="wrong") as r:
                fails("WRONGPASS invalid username-password pair or user is disabled.", r.ping)
            with client(s, password="a-token-of-some-length") as r:
                expect(r.ping(), True)
                fails("'weir.reset' requires the admin token: send AUTH with it first", r.execute_command,
                      "WEIR.RESET", "ocr", "u")
            with client(s, username="default", password=s.token) as r:
                expect(r.ping(), True)
            with Wire(s) as wire:
                expect(wire.ask("WEIR.CHECK", "event", "ocr", "key", "u"), Error("NOAUTH Authentication required."))
                expect(wire.ask("HELLO", 3)[:6], "NOAUTH")
                expect(wire.ask("HELLO", 3, "AUTH", "default", "nope")[:9], "WRONGPASS")
                expect(wire.ask("HELLO", 3, "AUTH", "default", "a-token-of-some-length", "SETNAME", "me")["proto"], 3)
                expect(wire.ask("CLIENT", "GETNAME"), "me")
                expect(wire.ask("RESET"), "RESET")
                expect(wire.ask("PING"), Error("NOAUTH Authentication required."))
            found = [each["message"] for each in s.events("mistake")]
            expect(found, ["RESP, connection from 127.0.0.1: the token is missing or wrong (others like this are not logged for 60 s)"])


def write(path, text):
    with open(path, "w", encoding="ascii") as out:
        out.write(text + "\n")


def test_a_token_is_changed():
    """Whoever has shown the old one has to show the new one."""
    check = ("WEIR.CHECK", "event", "bench", "key", "t")
    with service() as plain:
        path = os.path.join(plain.folder.name, "token")
        write(path, "a-token-of-some-length")
        with service("--token-file", path) as s, Wire(s) as decide, Wire(s) as admin:
            expect(decide.ask("AUTH", "a-token-of-some-length"), "OK")
            expect(admin.ask("AUTH", s.token), "OK")
            expect([decide.ask("MULTI"), decide.ask(*check)], ["OK", "QUEUED"])
            begin = os.path.getsize(s.log)
            s.process.send_signal(signal.SIGHUP)  # nothing is changed
            until(lambda: s.events("reload", begin), "a reload")
            expect(admin.ask("PING"), "PONG")
            write(path, "another-token-of-this-length")
            write(os.path.join(s.data, "admin-token"), "an-admin-token-of-this-length")
            begin = os.path.getsize(s.log)
            s.process.send_signal(signal.SIGHUP)
            until(lambda: s.events("reload", begin), "a reload")
            until(lambda: admin.ask("WEIR.RESET", "ocr", "u") == "NOAUTH Authentication required.", "the admin is out")
            until(lambda: decide.ask(*check) == "NOAUTH Authentication required.", "the other is out")
            expect(decide.ask("EXEC"), Error("EXECABORT Transaction discarded because of previous errors."))
            expect(decide.ask("AUTH", "a-token-of-some-length")[:9], "WRONGPASS")
            expect(decide.ask("AUTH", "another-token-of-this-length"), "OK")
            expect(decide.ask(*check)[4], 999999)
            expect(admin.ask("AUTH", "an-admin-token-of-this-length"), "OK")
            expect(admin.ask("WEIR.RESET", "bench", "t"), "OK")


def test_set_free():
    """WEIR.RESET sets a subject free, with the admin token."""
    with service() as s, client(s, password=s.token) as r:
        for _ in range(3):
            expect(r.execute_command("WEIR.CHECK", "event", "ocr", "key", "u")[0], 1)
        expect(r.execute_command("WEIR.CHECK", "event", "ocr", "key", "u")[0], 0)
        expect(r.execute_command("WEIR.RESET", "ocr", "u"), "OK")
        expect(r.execute_command("WEIR.CHECK", "event", "ocr", "key", "u")[:5], [1, "ocr", "hour", 3, 2])
        fails("rule ocr has no count for this subject", r.execute_command, "WEIR.RESET", "ocr", "never")
        fails("there is no rule `nope`", r.execute_command, "WEIR.RESET", "nope", "u")
        fails("rule ocr counts by key: give 1 value, not 2", r.execute_command, "WEIR.RESET", "ocr", "u", "v")
        expect([each["message"] for each in s.events("change")], ['rule ocr: counts of key="u" reset by redis client (admin) from 127.0.0.1'])
        with Wire(s) as wire:
            expect(wire.ask("AUTH", "nope"), Error("WRONGPASS this is not the admin token, and decisions require no token"))
        with client(s) as other:
            fails("'weir.reset' requires the admin token: send AUTH with it first", other.execute_command,
                  "WEIR.RESET", "ocr", "u")


# ---- RESP3, and what clients ask when they connect ----


def test_protocol_3():
    """RESP3."""
    with service() as s, Wire(s) as wire:
        expect(wire.ask("WEIR.CHECK", "event", "none"), [1, None, None, None, None, None, 0])
        hello = wire.ask("HELLO", 3)
        expect((hello["server"], hello["proto"], hello["mode"], hello["role"]), ("weir", 3, "standalone", "master"))
        wire.send(words("WEIR.CHECK", "event", "none"))
        expect(wire.take(8 + 5 * 3 + 4), b"*7\r\n:1\r\n" + b"_\r\n" * 5 + b":0\r\n")
        expect(wire.ask("CONFIG", "GET", "save"), {"save": ""})
        expect(wire.ask("HELLO", 4), Error("NOPROTO unsupported protocol version"))
        expect(wire.ask("HELLO", "x"), Error("ERR Protocol version is not an integer or out of range"))
        expect(wire.ask("HELLO")["proto"], 3)
        expect(wire.ask("RESET"), "RESET")
        expect(wire.ask("HELLO")[4:6], ["proto", 2])


# In the words of ioredis, go-redis, Jedis, Lettuce, node-redis and redis-py.
CONNECTING = [
    [("INFO",)],
    [("HELLO", 3), ("CLIENT", "SETINFO", "LIB-NAME", "go-redis(,go1.22)"), ("CLIENT", "SETINFO", "LIB-VER", "9.7.0")],
    [("HELLO", 3, "SETNAME", "j"), ("CLIENT", "SETINFO", "lib-name", "jedis"), ("SELECT", 0), ("PING",)],
    [("CLIENT", "SETNAME", "x"), ("CLIENT", "SETINFO", "LIB-NAME", "redis-py"), ("CLIENT", "NO-EVICT", "ON"), ("ECHO", "a")],
    [("COMMAND",), ("COMMAND", "DOCS"), ("CLIENT", "ID"), ("CLIENT", "NO-TOUCH", "OFF"), ("CONFIG", "GET", "databases")],
]


def test_connecting():
    """What clients ask when they connect."""
    with service() as s:
        for commands in CONNECTING:
            with Wire(s) as wire:
                wire.send(b"".join(words(*command) for command in commands))
                for command in commands:
                    found = wire.reply()
                    expect(isinstance(found, Error), False, (command, found))
        with Wire(s) as wire:
            expect(wire.ask("CLIENT", "SETNAME", "a b")[:24], "ERR Client names cannot ")
            expect(wire.ask("CLIENT", "ID", "x"), Error("ERR wrong number of arguments for 'client|id' command"))
            expect(wire.ask("CONFIG", "SET", "save", ""), Error("ERR unknown subcommand 'SET' of 'config'; allowed: get"))
            expect(wire.ask("SELECT", "x"), Error("ERR value is not an integer or out of range"))
            expect(wire.ask("CLIENT", "TRACKING", "ON")[:33], "ERR unknown subcommand 'TRACKING'")


# ---- CL.THROTTLE ----

USAGE = "Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
MISTAKES = {
    (): USAGE,
    ("k", 1, 1): USAGE,
    ("k", 1, 1, 1, 1, 1): USAGE,
    ("k", "x", 1, 1): "Cell error: Store error: Couldn't parse as integer: x",
    ("k", 1, "", 1): "Cell error: Store error: Couldn't parse as integer: ",
    ("k", 1, 1, "1.5"): "Cell error: Store error: Couldn't parse as integer: 1.5",
    ("k", 1, 1, 1, "9223372036854775808"): "Cell error: Store error: Couldn't parse as integer: 9223372036854775808",
    ("k", 1, 0, 1): "Cell error: Store error: Zero rates are not supported",
    ("k", 1, 1, 0): "Cell error: Store error: Zero rates are not supported",
    ("k", 1, 2000000000, 1): "Cell error: Store error: Zero rates are not supported",
    ("k", 1, 1, 1, -1): "Cell error: Store error: Error while setting key expire",
    ("k", "9223372036854775807", 1, 1): "Cell error: Store error: The numbers are too large: together they come to more than "
    "292 years",
    ("k\xff".encode("latin-1"), 1, 1, 1): "Cell error: Store error: An argument is not UTF-8",
}


def test_throttle():
    """CL.THROTTLE."""
    with service() as s, client(s) as r, Wire(s) as wire:
        expect(r.execute_command("CL.THROTTLE", "a", 1, 1, MONTH_S), [0, 2, 1, -1, MONTH_S])
        expect(r.execute_command("CL.THROTTLE", "a", "+1", 1, MONTH_S, 0)[:4], [0, 2, 1, -1])
        expect(r.execute_command("cl.throttle", "a", 1, 1, MONTH_S)[:4], [0, 2, 0, -1])
        limited, limit, remaining, retry_s, reset_s = r.execute_command("CL.THROTTLE", "a", 1, 1, MONTH_S)
        expect((limited, limit, remaining), (1, 2, 0))
        expect(MONTH_S - 60 <= retry_s <= MONTH_S and 2 * MONTH_S - 60 <= reset_s <= 2 * MONTH_S, True, (retry_s, reset_s))
        expect(r.execute_command("CL.THROTTLE", "a", 1, 1, MONTH_S, 3)[3], -1)
        expect(r.execute_command("CL.THROTTLE", "b", 1, 1, MONTH_S, 3), [1, 2, 2, -1, 0])
        for args, why in MISTAKES.items():
            expect(wire.ask("CL.THROTTLE", *args), Error(why), args)
        with client(s, db=3) as other:
            expect(other.execute_command("CL.THROTTLE", "a", 1, 1, MONTH_S), [0, 2, 1, -1, MONTH_S])
            expect(other.delete("a", "none"), 1)


def test_throttled_keys_are_set_free():
    """DEL sets keys of CL.THROTTLE free."""
    with service() as s, client(s) as r:
        for key in ("a", "b"):
            expect([r.execute_command("CL.THROTTLE", key, 0, 1, MONTH_S)[0] for _ in range(2)], [0, 1])
        expect(r.delete("a", "none", "a"), 1)
        expect(r.unlink("b"), 1)
        for key in ("a", "b"):
            expect(r.execute_command("CL.THROTTLE", key, 0, 1, MONTH_S)[0], 0)
        fails("wrong number of arguments for 'del' command", r.execute_command, "DEL")


def test_throttle_survives():
    """CL.THROTTLE outlives kill -9."""
    with service() as s:
        with client(s) as r:
            for _ in range(4):
                expect(r.execute_command("CL.THROTTLE", "a", 3, 1, MONTH_S)[0], 0)
            for _ in range(2):
                expect(r.execute_command("WEIR.CHECK", "event", "ocr", "key", "a")[0], 1)
        s.kill()
        s.start()
        with client(s) as r:
            expect(r.execute_command("CL.THROTTLE", "a", 3, 1, MONTH_S)[:3], [1, 4, 0])
            expect(r.execute_command("WEIR.CHECK", "event", "ocr", "key", "a")[:5], [1, "ocr", "hour", 3, 0])


# ---- redis-benchmark ----


def test_redis_benchmark():
    with service() as s:
        host, port = s.resp
        done = subprocess.run(
            ["redis-benchmark", "-h", host, "-p", str(port), "-n", "20000", "-c", "20", "-P", "16", "--csv"]
            + ["WEIR.CHECK", "event", "bench", "key", "b"],
            capture_output=True,
            timeout=60,
            check=True,
        )
        expect(done.stderr, b"")
        rows = list(csv.reader(done.stdout.decode().splitlines()))
        expect(float(rows[1][1]) > 0, True)
        expect(cli(s, "weir.peek", "event", "bench", "key", "b")[4], str(1000000 - 20000))
