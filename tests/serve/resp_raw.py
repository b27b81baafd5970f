#!/usr/bin/python3
"""RESP from clients that mean no good, or know no better: pieces, garbage, floods, slow readers; others notice nothing.

tests/serve/resp_raw.py BUILD/weir
"""

import os
import random
import signal
import threading
import time

from resp_wire import Error, Gone, Wire, words
from service import Service, expect, harness, until

RULES = """
rules:
  - id: few
    match: { event: few }
    by: [key]
    limits: [ { name: hour, algorithm: fixed_window, max: 3, per: 1h } ]
  - id: many
    match: { event: many }
    by: [key]
    limits: [ { name: day, algorithm: fixed_window, max: 4000000000, per: 24h } ]
"""


def service(*flags):
    return Service("--http", "off", *flags, rules=RULES)


def raises_gone(wire):
    try:
        found = wire.reply()
    except Gone:
        return
    raise AssertionError(f"the connection goes on: {found!r}")


# ---- pieces ----


def any_pieces():
    data = words("WEIR.CHECK", "event", "few", "key", "a b\r\n") + b'weir.peek event few key "a b\\r\\n"\r\n\r\n'
    data += words("PING") + b"*0\r\n" + words("ECHO", "") + b"echo 'x'\n"
    rng = random.Random(4)
    with service() as s, Wire(s) as wire:
        for round_, sizes in enumerate([[1], [2], [7], [1000], range(1, 30)]):
            at = 0
            while at < len(data):
                size = rng.choice(list(sizes))
                wire.send(data[at : at + size])
                at += size
            found = [wire.reply() for _ in range(5)]
            expect(found[0][:5], [1 if round_ < 3 else 0, "few", "hour", 3, max(2 - round_, 0)], f"round {round_}")
            expect(found[1][0], 1 if round_ < 2 else 0)
            expect(found[2:], ["PONG", "", "x"])


def order_is_kept():
    with service() as s, Wire(s) as wire:
        wire.send(
            words("WEIR.CHECK", "event", "few", "key", "k")
            + words("PING")
            + words("WEIR.CHECK", "event", "few", "key", "k", "cost", "x")
            + words("WEIR.CHECK", "event", "few", "key", "k", "cost", 2)
            + words("NOPE", "a", "b c")
            + words("WEIR.CHECK", "event", "few", "key", "k")
            + words("WEIR.CHECK", "event")
            + words("WEIR.PEEK", "nothing", "here")
            + words("WEIR.CHECK", "event", "none")
        )
        expect(wire.reply()[:5], [1, "few", "hour", 3, 2])
        expect(wire.reply(), "PONG")
        expect(wire.reply(), Error("ERR cost 'x' is no whole number from 0 to 4294967295"))
        expect(wire.reply()[:5], [1, "few", "hour", 3, 0])
        expect(wire.reply(), Error("ERR unknown command 'NOPE', with args beginning with: 'a' 'b c' "))
        refused = wire.reply()
        expect(refused[:5], [0, "few", "hour", 3, 0])
        expect(refused[5] == refused[6] and 0 < refused[6] <= 3600000, True, refused)
        expect("has no value" in wire.reply(), True)
        expect("unknown attribute 'nothing'" in wire.reply(), True)
        expect(wire.reply(), [1, None, None, None, None, None, 0])


def headers_and_twice():
    with service() as s, Wire(s) as wire:
        many = [part for i in range(100) for part in (f"header:h{i}", i)]
        for _ in range(3):
            wire.send(words("WEIR.CHECK", "event", "few", "key", "h", *many) * 10)
            for _ in range(10):
                expect(len(wire.reply()), 7)
        expect("too many headers" in wire.ask("WEIR.CHECK", *many, "header:more", 1), True)
        expect(wire.ask("WEIR.CHECK", "key", "a", "key", "b"), Error("ERR attribute 'key' is there twice"))
        expect("write header:NAME" in wire.ask("WEIR.CHECK", "header:", "b"), True)
        expect(wire.ask("WEIR.CHECK"), Error("ERR wrong number of arguments for 'weir.check' command"))


# ---- garbage ----

GARBAGE = {
    "*1\r\n$1000000000\r\n": "invalid bulk length",
    "*1\r\n$999999999999999999999999\r\n": "invalid bulk length",
    "*1000000\r\n$4\r\nPING\r\n": "invalid multibulk length",
    "*99999999999999999999\r\n": "invalid multibulk length",
    "*1\r\n$-5\r\n": "invalid bulk length",
    "*3\r\n:1\r\n": "expected '$', got ':'",
    "*1\r\n$4\r\nPINGxx": "expected a line end",
    "$4\r\nPING\r\n": "expected '*' or the name of a command",
    "\x16\x03\x01\x02\x00\x01": "expected '*' or the name of a command",
    "\0\0\0\0": "expected '*' or the name of a command",
    "ping \x07\r\n": "a control character",
    'echo "never ends\r\n': "unbalanced quotes",
    "a" * 70000: "too big inline request",
    "*2\r\n$4\r\nECHO\r\n$2000000\r\n": "invalid bulk length",
}


def garbage():
    with service() as s, Wire(s) as good:
        for text, why in GARBAGE.items():
            with Wire(s) as wire:
                wire.send(words("PING") + text.encode("latin-1"))
                found = wire.rest()
                expect(found.startswith(b"+PONG\r\n-ERR Protocol error: " + why.encode()), True, (text[:30], found))
                expect(found.count(b"\r\n"), 2)
            expect(good.ask("PING"), "PONG")


def garbage_at_random():
    rng = random.Random(7)
    with service() as s, Wire(s) as good:
        for _ in range(200):
            with Wire(s) as wire:
                try:
                    wire.send(bytes(rng.choice(b"*$:123\r\n\0a PING") for _ in range(rng.randrange(1, 300))))
                    wire.send(bytes(rng.randrange(256) for _ in range(rng.randrange(1, 3000))))
                except (BrokenPipeError, ConnectionResetError):
                    pass
        expect(good.ask("PING"), "PONG")


def http_is_cut():
    lines = ["POST / HTTP/1.1\r\n", "GET /", "get / HTTP/1.0\r\n", "Host: x\r\n", "host:", "OPTIONS * ", "Content-Type: a"]
    with service() as s, Wire(s) as good:
        for line in lines:
            with Wire(s) as wire:
                wire.send(line.encode())
                expect(wire.rest(), b"", line)
        with Wire(s) as wire:  # in the middle, too
            wire.send(words("PING") + b"POST / HTTP/1.1\r\n" + words("WEIR.CHECK", "event", "few", "key", "x"))
            expect(b"*7" in wire.rest(), False)
        expect(good.ask("WEIR.PEEK", "event", "few", "key", "x")[4], 3)


# ---- time ----


def half_commands():
    with service("--request", "300ms", "--idle", "60s") as s, Wire(s) as good:
        for part in (b"*", b"*2\r\n$4\r\nECHO\r\n$5\r\nhel", b"PIN"):
            with Wire(s) as wire:
                wire.send(part)
                expect(wire.rest(), b"")
        with Wire(s) as wire:
            wire.send(b"*2\r\n$4\r\nECHO\r\n$5\r\nhel")
        with Wire(s) as wire:  # whoever has a whole one answered has his time again
            for _ in range(10):
                wire.send(words("PING") + b"*1\r\n$4\r\nPI")
                expect(wire.reply(), "PONG")
                time.sleep(0.05)
                wire.send(b"NG\r\n")
                expect(wire.reply(), "PONG")
        expect(good.ask("PING"), "PONG")


def trickling_does_not_help():
    with service("--request", "300ms") as s, Wire(s) as wire:
        wire.send(b"*2\r\n$4\r\nECHO\r\n$100000\r\n")

        def one_more():
            try:
                wire.send(b"x")
            except (BrokenPipeError, ConnectionResetError):
                return True
            return False

        until(one_more, "a request that trickles in is cut off")


def reads_nothing():
    with service("--request", "500ms", "--pipeline-bytes", "64k") as s, Wire(s) as good, Wire(s) as wire:
        data = words("COMMAND", "DOCS") * 1000

        def is_cut():
            try:
                while True:
                    wire.send(data)
            except (BrokenPipeError, ConnectionResetError):
                return True

        writer = threading.Thread(target=is_cut)
        writer.start()
        for _ in range(20):
            expect(good.ask("PING"), "PONG")
        writer.join(60)
        expect(writer.is_alive(), False, "who reads nothing is cut off")
        expect(good.ask("PING"), "PONG")


# ---- depth ----


def deep_pipeline():
    count = 100000
    with service() as s, Wire(s) as good, Wire(s) as wire:
        data = b"".join(
            words("WEIR.CHECK", "event", "many", "key", "deep") if i % 2 else words("ECHO", i) for i in range(count)
        )
        writer = threading.Thread(target=wire.send, args=(data,))
        writer.start()
        for i in range(count):
            found = wire.reply()
            if i % 2:
                expect(found[:5], [1, "many", "day", 4000000000, 4000000000 - i // 2 - 1])
            else:
                expect(found, str(i))
        writer.join()
        expect(good.ask("PING"), "PONG")


def memory_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) * 1024


def replies_are_bounded():
    """Replies that are a hundred times as long as their commands, to a client that is in no hurry to read them."""
    count = 12000
    with service("--pipeline-bytes", "256k", "--request", "60s") as s, Wire(s) as good, Wire(s) as wire:
        size = len(wire.ask("COMMAND"))
        before = memory_of(s.process.pid)
        writer = threading.Thread(target=wire.send, args=(words("COMMAND") * count,))
        writer.start()
        for _ in range(100):
            expect(good.ask("PING"), "PONG")
        most = before
        for i in range(count):
            expect(len(wire.reply()), size)
            if i % 100 == 0:
                most = max(most, memory_of(s.process.pid))
        writer.join()
        sanitized = any(name in os.environ for name in ("ASAN_OPTIONS", "TSAN_OPTIONS"))
        expect(sanitized or most - before < 8 << 20, True, f"{most - before} more bytes of memory")


def large_commands():
    with service("--request-bytes", "256k") as s, Wire(s) as wire:
        text = "x" * 200000
        for _ in range(3):
            expect(wire.ask("ECHO", text), text)
        wire.send(words("ECHO", text) * 5 + words("PING"))
        for _ in range(5):
            expect(wire.reply(), text)
        expect(wire.reply(), "PONG")


# ---- the end ----


def last_words_are_answered():
    with service() as s, Wire(s) as wire:
        wire.send(words("WEIR.CHECK", "event", "many", "key", "a") * 1000)
        wire.socket.shutdown(1)
        for i in range(1000):
            expect(wire.reply()[4], 4000000000 - i - 1)
        raises_gone(wire)
        with Wire(s) as other:
            other.send(words("PING") + words("QUIT") + words("PING"))
            expect(other.rest(), b"+PONG\r\n+OK\r\n")


def drains():
    count = 20000
    with service() as s, Wire(s) as idle, Wire(s) as wire:
        expect(idle.ask("PING"), "PONG")
        wire.send(words("WEIR.CHECK", "event", "many", "key", "a") * count)
        wire.reply()
        s.process.send_signal(signal.SIGTERM)
        answered = 1
        try:
            while True:
                expect(wire.reply()[0], 1)
                answered += 1
        except Gone as gone:
            expect(gone.args[0], b"", "half a reply")
        expect(idle.rest(), b"")
        expect(s.process.wait(60), 0)
        s.start()
        with Wire(s) as again:
            used = 4000000000 - again.ask("WEIR.PEEK", "event", "many", "key", "a")[4]
        expect(used, answered, "what was charged was answered")


if __name__ == "__main__":
    harness.main(
        [
            ("commands come in any pieces", any_pieces),
            ("replies come in the order of the commands", order_is_kept),
            ("headers, and attributes that are there twice", headers_and_twice),
            ("garbage gets an error and loses its connection", garbage),
            ("garbage at random harms nobody else", garbage_at_random),
            ("what begins like HTTP is cut off without a word", http_is_cut),
            ("half a command has its time, and no more", half_commands),
            ("bytes that trickle in do not extend it", trickling_does_not_help),
            ("nor does a client that reads nothing", reads_nothing),
            ("a pipeline of 100,000", deep_pipeline),
            ("replies that wait are bounded", replies_are_bounded),
            ("commands larger than a read", large_commands),
            ("what was said before the end is answered", last_words_are_answered),
            ("SIGTERM: what was taken is answered", drains),
        ]
    )
