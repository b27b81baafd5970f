"""RESP from clients that mean no good, or know no better: pieces, garbage, floods, slow readers; others notice nothing."""

import os
import random
import select
import signal
import socket
import threading
import time

from support import SANITIZED, expect, until
from support.service import Service
from support.wire import Error, Gone, Wire, words

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
  - id: short
    match: { event: short }
    by: [key]
    limits: [ { algorithm: ALGORITHM, max: 10, per: 5ms } ]
"""


UNKNOWN = (
    "ERR unknown command 'NOPE', with args beginning with: 'a' 'b c' ; weir answers WEIR.CHECK, WEIR.PEEK, WEIR.RESERVE, WEIR.SETTLE, WEIR.RENEW, WEIR.REFUND, CL.THROTTLE"
)


def service(*flags, algorithm="token_bucket"):
    return Service("--http", "off", *flags, rules=RULES.replace("ALGORITHM", algorithm))


def raises_gone(wire):
    try:
        found = wire.reply()
    except Gone:
        return
    raise AssertionError(f"the connection goes on: {found!r}")


# ---- pieces ----


def test_any_pieces():
    """Commands come in any pieces."""
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


def test_order_is_kept():
    """Replies come in the order of the commands."""
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
        expect(wire.reply(), Error("ERR cost 'x' is not a whole number from 0 to 9007199254740991"))
        expect(wire.reply()[:5], [1, "few", "hour", 3, 0])
        expect(wire.reply(), Error(UNKNOWN))
        refused = wire.reply()
        expect(refused[:5], [0, "few", "hour", 3, 0])
        expect(refused[5] == refused[6] and 0 < refused[6] <= 3600000, True, refused)
        expect("has no value" in wire.reply(), True)
        expect("unknown attribute 'nothing'" in wire.reply(), True)
        expect(wire.reply(), [1, None, None, None, None, None, 0])


def test_headers_and_twice():
    """Headers, and attributes that are there twice."""
    with service() as s, Wire(s) as wire:
        many = [part for i in range(100) for part in (f"header:h{i}", i)]
        for _ in range(3):
            wire.send(words("WEIR.CHECK", "event", "few", "key", "h", *many) * 10)
            for _ in range(10):
                expect(len(wire.reply()), 7)
        expect("too many headers" in wire.ask("WEIR.CHECK", *many, "header:more", 1), True)
        expect(wire.ask("WEIR.CHECK", "key", "a", "key", "b"), Error("ERR attribute 'key' is given twice"))
        expect("write header:NAME" in wire.ask("WEIR.CHECK", "header:", "b"), True)
        expect(wire.ask("WEIR.CHECK"), Error("ERR wrong number of arguments for 'weir.check' command"))


def test_addresses():
    """What is no address would keep every rule by ip from applying."""
    with service() as s, Wire(s) as wire:
        for name in ("ip", "peer"):
            for bad in ("zz", "999.1.1.1", "1.2.3.4,5.6.7.8", "1.2.3.4, 5.6.7.8", "x" * 1000):
                found = wire.ask("WEIR.CHECK", "event", "few", "key", "a", name, bad)
                expect(found.startswith(f"ERR {name} '{bad[:100]}' is not one IPv4 or IPv6 address"), True, found)
            for good in ("", "1.2.3.4", "::1", "fe80::1%eth0", "[::1]:80", "1.2.3.4:80"):
                expect(wire.ask("WEIR.PEEK", "event", "few", "key", "a", name, good)[0], 1, good)
        expect(wire.ask("WEIR.PEEK", "event", "few", "key", "a")[4], 3, "nothing was charged")


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


def test_garbage():
    """Garbage gets an error and loses its connection."""
    with service() as s, Wire(s) as good:
        for text, why in GARBAGE.items():
            with Wire(s) as wire:
                wire.send(words("PING") + text.encode("latin-1"))
                found = wire.rest()
                expect(found.startswith(b"+PONG\r\n-ERR Protocol error: " + why.encode()), True, (text[:30], found))
                expect(found.count(b"\r\n"), 2)
            expect(good.ask("PING"), "PONG")


def test_garbage_at_random():
    """Garbage at random harms nobody else."""
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


def test_http_is_cut():
    """What begins like HTTP is cut off without a word."""
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


def has_his_time_again(s):
    """Whoever has a whole one answered. False: this one stood still for too long himself."""
    with Wire(s) as wire:
        for _ in range(10):
            begin = time.monotonic()
            try:
                wire.send(words("PING") + b"*1\r\n$4\r\nPI")
                expect(wire.reply(), "PONG")
                time.sleep(0.05)
                wire.send(b"NG\r\n")
                expect(wire.reply(), "PONG")
            except (Gone, OSError):
                if time.monotonic() - begin < 0.25:
                    raise
                return False
    return True


def test_half_commands():
    """Half a command has its time, and no more."""
    with service("--request", "300ms", "--idle", "60s") as s, Wire(s) as good:
        for part in (b"*", b"*2\r\n$4\r\nECHO\r\n$5\r\nhel", b"PIN"):
            with Wire(s) as wire:
                wire.send(part)
                expect(wire.rest(), b"")
        with Wire(s) as wire:
            wire.send(b"*2\r\n$4\r\nECHO\r\n$5\r\nhel")
        until(lambda: has_his_time_again(s), "a client that does not stand still")
        expect(good.ask("PING"), "PONG")


def test_trickling_does_not_help():
    """Bytes that trickle in do not extend it."""
    with service("--request", "300ms") as s, Wire(s) as wire:
        wire.send(b"*2\r\n$4\r\nECHO\r\n$100000\r\n")

        def one_more():
            try:
                wire.send(b"x")
            except (BrokenPipeError, ConnectionResetError):
                return True
            return False

        until(one_more, "a request that trickles in is cut off")


def test_reads_nothing():
    """Nor does a client that reads nothing."""
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


def test_deep_pipeline():
    """A pipeline of 100,000."""
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


def hammer_short(s, seconds):
    """How many pass, of pipelines on several connections that take the loops much longer than 5 ms each."""
    passed = []
    begin = time.monotonic()

    def pipelines():
        data = words("WEIR.CHECK", "event", "short", "key", "a") * 4000
        with Wire(s) as wire:
            while time.monotonic() - begin < seconds:
                sender = threading.Thread(target=wire.send, args=(data,))
                sender.start()
                passed.append(sum(wire.reply()[0] for _ in range(4000)))
                sender.join()

    threads = [threading.Thread(target=pipelines) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(passed), time.monotonic() - begin


def test_short_periods():
    """A short period holds, however long the loops take."""
    for algorithm in ("token_bucket", "fixed_window", "sliding_window"):
        with service("--threads", "4", algorithm=algorithm) as s:
            passed, seconds = hammer_short(s, 1)
            most = 2 * 10 * (seconds / 0.005 + 2)
            assert 10 <= passed <= most, f"{algorithm}: {passed} passed in {seconds} s, {most} at most"


def test_replies_are_bounded():
    """Replies that wait are bounded.
    Replies that are a hundred times as long as their commands, to a client that is in no hurry to read them."""
    count = 12000
    with service("--pipeline-bytes", "256k", "--request", "60s") as s, Wire(s) as good, Wire(s) as wire:
        size = len(wire.ask("COMMAND"))
        before = s.allocated()
        writer = threading.Thread(target=wire.send, args=(words("COMMAND") * count,))
        writer.start()
        for _ in range(100):
            expect(good.ask("PING"), "PONG")
        most = before
        for i in range(count):
            expect(len(wire.reply()), size)
            if i % 100 == 0:
                most = max(most, s.allocated())
        writer.join()
        expect(SANITIZED or most - before < 8 << 20, True, f"{most - before} more bytes of memory")


def test_large_commands():
    """Commands larger than a read."""
    with service("--request-bytes", "256k") as s, Wire(s) as wire:
        text = "x" * 200000
        for _ in range(3):
            expect(wire.ask("ECHO", text), text)
        wire.send(words("ECHO", text) * 5 + words("PING"))
        for _ in range(5):
            expect(wire.reply(), text)
        expect(wire.reply(), "PONG")


# ---- strangers, and all together ----


def token_file(s):
    path = os.path.join(s.folder.name, "token")
    with open(path, "w", encoding="ascii") as out:
        out.write("a-token-of-some-length\n")
    return path


def test_strangers_have_little_room():
    """A client that has not sent its token has little room."""
    with service() as plain, service("--token-file", token_file(plain)) as s:
        for start in (b"*2\r\n$4\r\nAUTH\r\n$5000\r\n", b"*1024\r\n" + b"$0\r\n\r\n" * 1000, b"AUTH " + b"x" * 5000):
            with Wire(s) as wire:
                wire.send(start)
                expect(wire.rest().startswith(b"-ERR Protocol error: "), True, start[:20])
        with Wire(s) as wire:  # a long pipeline behind AUTH is as good as any
            large = "x" * 100000
            wire.send(words("AUTH", "a-token-of-some-length") + words("PING") * 1000 + words("ECHO", large))
            expect(wire.reply(), "OK")
            for _ in range(1000):
                expect(wire.reply(), "PONG")
            expect(wire.reply(), large)
        with Wire(s) as wire:  # nor does a pipeline of what is refused pile up
            count = 20000
            writer = threading.Thread(target=wire.send, args=(words("PING") * count,))
            writer.start()
            for _ in range(count):
                expect(wire.reply(), Error("NOAUTH Authentication required."))
            writer.join()


def test_all_together_have_a_bound():
    """What waits of all together has a bound.
    Seventy commands of which almost 1 MiB is there and the last byte is not: more than all may keep."""
    part = b"*2\r\n$4\r\nECHO\r\n$1000000\r\n" + b"x" * 999999
    with service("--threads", "1", "--request", "60s") as s, Wire(s) as good:
        before = s.allocated()
        wires = [Wire(s) for _ in range(70)]
        try:
            for wire in wires:
                try:
                    wire.send(part)
                except (BrokenPipeError, ConnectionResetError):
                    pass
            until(lambda: select.select([wire.socket for wire in wires], [], [], 0)[0], "one is refused")
            for wire in wires:
                wire.socket.shutdown(socket.SHUT_WR)
            found = [wire.rest() for wire in wires]
        finally:
            for wire in wires:
                wire.socket.close()
        refused = [text for text in found if text]
        expect(set(refused), {refused[0]}, "all who were refused were told the same")
        expect(refused[0].startswith(b"-ERR the server's buffers are full"), True, refused[0])
        expect(0 < len(refused) < 70, True, len(refused))
        expect(SANITIZED or s.allocated() - before < 72 << 20, True, "memory")
        expect(good.ask("ECHO", "x" * 900000), "x" * 900000, "there is room again")


# ---- MULTI ----


def test_multi():
    """MULTI and EXEC."""
    check = ("WEIR.CHECK", "event", "few", "key", "m")
    with service() as s, Wire(s) as wire:
        commands = [("MULTI",), check, ("PING",), check, ("WEIR.CHECK", "kay", "x"), ("EXEC",)]
        wire.send(b"".join(words(*each) for each in commands))
        expect([wire.reply() for _ in range(5)], ["OK"] + 4 * ["QUEUED"])
        found = wire.reply()
        expect((found[0][:5], found[1], found[2][:5]), ([1, "few", "hour", 3, 2], "PONG", [1, "few", "hour", 3, 1]))
        expect(found[3].startswith("ERR unknown attribute 'kay'"), True, found[3])
        expect([wire.ask("MULTI"), wire.ask("EXEC")], ["OK", []])
        expect([wire.ask("MULTI"), wire.ask(*check), wire.ask("DISCARD")], ["OK", "QUEUED", "OK"])
        for wrong in (("NOPE",), ("WEIR.CHECK",), ("MULTI",), ("SELECT", 1), ("WEIR.RESET", "few", "m")):
            expect([wire.ask("MULTI"), wire.ask(*check)], ["OK", "QUEUED"])
            expect(isinstance(wire.ask(*wrong), Error), True, wrong)
            expect(wire.ask(*check), "QUEUED")
            expect(wire.ask("EXEC"), Error("EXECABORT Transaction discarded because of previous errors."))
        expect([wire.ask("MULTI"), wire.ask(*check), wire.ask("RESET")], ["OK", "QUEUED", "RESET"])
        expect(wire.ask("EXEC"), Error("ERR EXEC without MULTI"))
        expect(wire.ask("DISCARD"), Error("ERR DISCARD without MULTI"))
        expect(wire.ask("WEIR.PEEK", *check[1:])[4], 1, "only the first pipeline was charged")
        with Wire(s) as other:  # gone with something queued
            expect([other.ask("MULTI"), other.ask(*check)], ["OK", "QUEUED"])


def test_multi_is_bounded():
    """MULTI takes so much and no more."""
    check = words("WEIR.CHECK", "event", "many", "key", "m")
    with service("--request-bytes", "64k") as s, Wire(s) as wire:
        for filler, count in ((check, 10001), (words("ECHO", "x" * 40000), 2)):
            expect(wire.ask("MULTI"), "OK")
            writer = threading.Thread(target=wire.send, args=(filler * count,))
            writer.start()
            found = [wire.reply() for _ in range(count)]
            writer.join()
            expect(any("between MULTI and EXEC" in each for each in found), True, found[-1])
            expect(wire.ask("EXEC")[:9], "EXECABORT")
        expect(wire.ask("WEIR.PEEK", "event", "many", "key", "m")[4], 4000000000, "nothing was charged")


# ---- the end ----


def test_last_words_are_answered():
    """What was said before the end is answered."""
    with service() as s, Wire(s) as wire:
        wire.send(words("WEIR.CHECK", "event", "many", "key", "a") * 1000)
        wire.socket.shutdown(1)
        for i in range(1000):
            expect(wire.reply()[4], 4000000000 - i - 1)
        raises_gone(wire)
        with Wire(s) as other:
            other.send(words("PING") + words("QUIT") + words("PING"))
            expect(other.rest(), b"+PONG\r\n+OK\r\n")


def test_drains():
    """SIGTERM: what was taken is answered."""
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
