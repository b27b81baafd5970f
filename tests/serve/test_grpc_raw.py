"""What a peer can do to the gRPC listener: frames that no library would send. Others go on, and nothing is charged twice."""

import os
import signal
import time

from support import DEADLINE_S, SANITIZED, expect, has, until
from support.envoy import OK, Client, RateLimitResponse, descriptor, request
from support.h2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEADERS,
    NO_ERROR,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Http2,
    frame,
    message,
)

GRPC = ("--grpc", "127.0.0.1:0", "--threads", "1")
RULES = """
rules:
  - { id: ten, match: { domain: ten }, by: [domain], limits: [ { algorithm: fixed_window, max: 10, per: 1h } ] }
  - { id: many, match: { domain: many }, by: [domain], limits: [ { algorithm: fixed_window, max: 1000000, per: 1h } ] }
"""
TEN = request("ten", descriptor(("key", "value")))
MANY = request("many", descriptor(("key", "value")))
INVALID, DEADLINE, EXHAUSTED, UNIMPLEMENTED = 3, 4, 8, 12


def decides(s):
    """For another client."""
    with Client(s.grpc) as envoy:
        expect(envoy.code("many", descriptor(("key", "value"))), OK)


def left(s):
    with Client(s.grpc) as envoy:
        return envoy.ask("ten", descriptor(("key", "value"), hits=0)).statuses[0].limit_remaining


def decoded(answer):
    """The message of an answer."""
    body = answer["data"]
    expect(body[:5], b"\0" + (len(body) - 5).to_bytes(4, "big"))
    return RateLimitResponse.FromString(body[5:])


# ---- requests ----


def test_call(service):
    s = service(*GRPC, rules=RULES)
    with Http2(s.grpc) as c:
        hello = c.kind(SETTINGS)
        has(hello.payload, (3).to_bytes(2, "big") + (256).to_bytes(4, "big"))
        c.call(1, TEN)
        answer = c.answer(1)
        expect((answer[":status"], answer["content-type"], answer["grpc-status"]), ("200", "application/grpc", "0"))
        expect(decoded(answer).statuses[0].limit_remaining, 9)


def test_pieces(service):
    """Bytes one by one, a message in many frames, padding, trailers, an unknown frame and unknown settings."""
    s = service(*GRPC, rules=RULES)
    body = message(TEN.SerializeToString())
    with Http2(s.grpc, hello=False) as c:
        unknown_settings = frame(SETTINGS, payload=(0xFFFF).to_bytes(2, "big") + b"\0\0\0\1")
        stream = PREFACE + unknown_settings + frame(0x42, payload=b"?") + c.headers(1)
        stream += b"".join(frame(DATA, 0, 1, body[i : i + 1]) for i in range(len(body)))
        stream += frame(DATA, 8, 1, b"\x03" + b"\0\0\0")
        stream += frame(HEADERS, END_STREAM | END_HEADERS, 1, c.encoder.encode([("x-trailer", "1")]))
        for i in range(len(stream)):
            c.send(stream[i : i + 1])
        expect(decoded(c.answer(1)).statuses[0].limit_remaining, 9)


def test_interleaved(service):
    """Many streams that are open at the same time, answered in the order in which they are complete."""
    s = service(*GRPC, rules=RULES)
    body = message(MANY.SerializeToString())
    with Http2(s.grpc) as c:
        streams = range(1, 513, 2)
        c.send(b"".join(c.headers(stream) for stream in streams))
        c.send(b"".join(frame(DATA, 0, stream, body[:7]) for stream in streams))
        c.send(b"".join(frame(DATA, END_STREAM, stream, body[7:]) for stream in reversed(streams)))
        expect({c.status(stream) for stream in streams}, {0})


def test_wrong_calls(service):
    s = service(*GRPC, rules=RULES)
    good = message(TEN.SerializeToString())
    with Http2(s.grpc) as c:
        stream = 1
        for body, changed, more, wanted in (
            (good, {"method": "GET"}, (), {":status": "405"}),
            (good, {"content_type": "application/json"}, (), {":status": "415"}),
            (good, {"content_type": "application/grpc-web"}, (), {":status": "415"}),
            (good, {"content_type": "application/grpc+json"}, (), {":status": "415"}),
            (good, {"path": "/"}, (), {":status": "200", "grpc-status": "12"}),
            (b"", {}, (), {"grpc-status": "3"}),
            (good[:4], {}, (), {"grpc-status": "3"}),
            (good[:-1], {}, (), {"grpc-status": "3"}),
            (good + good, {}, (), {"grpc-status": "3"}),
            (b"\1" + good[1:], {}, (), {"grpc-status": "12"}),
            (b"\2" + good[1:], {}, (), {"grpc-status": "3"}),
            (b"\0\xff\xff\xff\xff", {}, (), {"grpc-status": "3"}),
            (good, {}, [("grpc-timeout", "1")], {"grpc-status": "3"}),
            (good, {}, [("grpc-timeout", "S")], {"grpc-status": "3"}),
            (good, {}, [("grpc-timeout", "-1S")], {"grpc-status": "3"}),
            (good, {}, [("grpc-timeout", "123456789S")], {"grpc-status": "3"}),
            (good, {}, [("grpc-timeout", "0S")], {"grpc-status": "4"}),
            (good, {}, [("grpc-timeout", "1n")], {"grpc-status": "4"}),
        ):
            c.call(stream, body, more, **changed)
            answer = c.answer(stream)
            expect({name: answer.get(name) for name in wanted}, wanted, f"{body[:20]} {changed} {more}")
            stream += 2
        for ok in ("application/grpc+proto", "application/grpc;charset=utf-8", "application/grpc+proto; x=y"):
            c.call(stream, MANY, content_type=ok)
            expect(c.status(stream), 0, ok)
            stream += 2
        c.call(stream, MANY, [("grpc-timeout", "99999999H")])
        expect(c.status(stream), 0)
    expect(left(s), 10, "nothing was charged")


def test_messages_are_encoded(service):
    """grpc-message has printable ASCII only."""
    s = service(*GRPC, rules=RULES)
    with Http2(s.grpc) as c:
        c.call(1, TEN, path="/%/\u00e4/x")
        text = c.answer(1)["grpc-message"]
        has(text, "/%25/%C3%A4/x")
        assert all(" " <= letter <= "~" for letter in text), text


# ---- connections ----


def test_first_bytes(service):
    s = service(*GRPC, rules=RULES)
    with s.socket(s.grpc) as c:
        c.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n\r\n")
        answer = b""
        while more := c.recv(1000):
            answer += more
        has(answer, b"HTTP/1.1 400", b"gRPC over HTTP/2")
    for first in (b"\x16\x03\x01\x02\x00\x01", b"*1\r\n$4\r\nPING\r\n", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", b"\0" * 100):
        with s.socket(s.grpc) as c:
            c.sendall(first)
            expect(c.recv(100), b"", first)
    decides(s)


def test_half_closed(service):
    """A client that has sent its last byte is not answered: HTTP/2 has no half-closed connections."""
    s = service(*GRPC, rules=RULES)
    with Http2(s.grpc) as c:
        c.call(1, TEN)
        expect(c.status(1), 0)
        c.socket.shutdown(1)
        c.ended()
    decides(s)


def test_ping_and_settings(service):
    s = service(*GRPC, rules=RULES)
    with Http2(s.grpc) as c:
        c.send(frame(PING, payload=b"12345678"))
        found = c.until(lambda one: one.kind == PING)
        expect((found.flags, found.payload), (ACK, b"12345678"))
        c.send(frame(SETTINGS))
        c.until(lambda one: one.kind == SETTINGS and one.flags == ACK)


def test_priorities(service):
    """They are ignored, which clients are told (SETTINGS_NO_RFC7540_PRIORITIES)."""
    s = service(*GRPC, rules=RULES)
    with Http2(s.grpc) as c:
        has(c.kind(SETTINGS).payload, (9).to_bytes(2, "big") + (1).to_bytes(4, "big"))
        for stream in range(3, 103, 2):
            c.send(frame(PRIORITY, 0, stream, (stream - 2).to_bytes(4, "big") + b"\x10"))
        c.call(103, TEN)
        expect(c.status(103), 0)


def test_protocol_errors(service):
    s = service(*GRPC, rules=RULES)
    for wrong in (
        frame(DATA, END_STREAM, 1, b"x"),
        frame(HEADERS, END_HEADERS, 0, b""),
        frame(SETTINGS, 0, 1),
        frame(SETTINGS, 0, 0, b"x"),
        frame(PING, 0, 0, b"x"),
        frame(GOAWAY, 0, 1, b"\0" * 8),
        frame(CONTINUATION, END_HEADERS, 1, b""),
        frame(RST_STREAM, 0, 1, b"\0\0\0\0"),
        frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\0"),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\xff\xff\xff\xff\xff"),
        frame(HEADERS, END_HEADERS | END_STREAM, 2, b""),
        frame(5, END_HEADERS, 1, b"\0\0\0\2"),
        b"\xff\xff\xff" + bytes([DATA, 0]) + b"\0\0\0\1",
    ):
        with Http2(s.grpc, wrong) as c:
            code = c.goaway()
            assert code not in (None, NO_ERROR), f"{wrong}: {code}"
    decides(s)


def test_goaway_of_a_client(service):
    """Streams that it began before are answered."""
    s = service(*GRPC, rules=RULES)
    body = message(TEN.SerializeToString())
    with Http2(s.grpc) as c:
        c.send(c.headers(1) + frame(GOAWAY, payload=(0).to_bytes(4, "big") + (0).to_bytes(4, "big")))
        c.send(frame(DATA, END_STREAM, 1, body))
        expect(c.status(1), 0)


# ---- floods ----


def flood(s, bytes_, rounds, wanted):
    """Sends until the peer has had enough. Returns the code of its GOAWAY."""
    with Http2(s.grpc) as c:
        c.kind(SETTINGS)
        code = None
        try:
            for _ in range(rounds):
                c.send(bytes_)
        except (ConnectionError, TimeoutError):
            pass
        code = c.goaway()
        assert code in (wanted, None), code  # a connection that is reset may lose it
    decides(s)


def test_floods(service):
    s = service(*GRPC, rules=RULES)
    for bytes_ in (
        frame(PING, payload=b"12345678") * 100,
        frame(SETTINGS) * 100,
        frame(PRIORITY, 0, 1, b"\0\0\0\0\x10") * 100,
        frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1") * 100,
    ):
        flood(s, bytes_, 1000, ENHANCE_YOUR_CALM)


def test_flood_of_empty_frames(service):
    s = service(*GRPC, rules=RULES)
    with Http2(s.grpc) as c:
        c.send(c.headers(1))
        try:
            for _ in range(1000):
                c.send(frame(DATA, 0, 1) * 100)
        except ConnectionError:
            pass
        assert c.goaway() in (ENHANCE_YOUR_CALM, None)
    decides(s)


def test_rapid_reset(service):
    """Streams that are reset as soon as they are opened."""
    s = service(*GRPC, rules=RULES)
    with Http2(s.grpc) as c:
        stream = 1
        try:
            for _ in range(300):
                batch = b""
                for _ in range(200):
                    batch += c.headers(stream) + frame(RST_STREAM, 0, stream, (8).to_bytes(4, "big"))
                    stream += 2
                c.send(batch)
            code = c.goaway()
        except ConnectionError:
            code = None
        assert code is not NO_ERROR, code
    decides(s)
    expect(left(s), 10)


def test_continuations(service):
    """A header block without an end."""
    s = service(*GRPC, rules=RULES)
    with Http2(s.grpc) as c:
        try:
            c.send(c.headers(1, flags=0))
            for _ in range(1000):
                c.send(frame(CONTINUATION, 0, 1, b"\x00\x01x\x01y" * 100))
        except ConnectionError:
            pass
        c.ended()
    decides(s)


def test_large_headers(service):
    s = service(*GRPC, rules=RULES)
    with Http2(s.grpc) as c:
        c.call(1, TEN, [("x-large", "x" * 4000), ("y-large", "y" * 4000)])
        answer = c.answer(1)
        expect(answer["grpc-status"], "8")
        has(answer["grpc-message"], "header-bytes")
        c.call(3, TEN, [(f"x-{i}", "1") for i in range(120)])
        expect(c.status(3), EXHAUSTED)
        c.call(5, MANY, [("x", "x" * 7000)])
        expect(c.status(5), 0)
        # One entry of the table, named many times: some bytes on the wire that mean megabytes.
        block = c.encoder.encode([(":method", "POST"), (":scheme", "http"), (":path", "/"), ("bomb", "b" * 3900)])
        c.send(frame(HEADERS, END_HEADERS | END_STREAM, 7, block + b"\xbe" * 10000))
        assert "reset" in c.answer(7)
        c.call(9, MANY)
        expect(c.status(9), 0, "the connection goes on")
    expect(left(s), 10)


def memory(s):
    """Without what the counters of rules take, which the first report touches."""
    s.steer("GET", "/metrics")
    return s.allocated()


def test_large_messages(service):
    """A message that is too large is refused before it is read; many that are not complete have a bound together."""
    s = service(*GRPC, rules=RULES)
    with Http2(s.grpc) as c:
        c.send(c.headers(1))
        sent = 0
        while not c.answers.get(1, {}).get("end"):
            c.send(frame(DATA, 0, 1, b"x" * 16000))
            sent += 16000
            if sent > 1100000:
                c.receive()
            elif sent % 48000 == 0:
                c.send(frame(PING, payload=b"12345678"))
                c.until(lambda one: one.kind == PING)
        expect(c.answer(1)["grpc-status"], "8")
    decides(s)


def test_too_many_bodies(service):
    s = service(*GRPC, "--request-bytes", "8m", rules=RULES)
    before = memory(s)
    connections = [Http2(s.grpc, window=None) for _ in range(12)]
    refused = 0
    for c in connections:
        c.send(c.headers(1))
    for _ in range(440):
        for c in connections:
            if c.answers.get(1, {}).get("end"):
                continue
            try:
                c.send(frame(DATA, 0, 1, b"x" * 16000) + frame(PING, payload=b"12345678"))
                c.until(lambda one: one.kind == PING)
            except ConnectionError:
                pass
    for c in connections:
        refused += c.answers.get(1, {}).get("grpc-status") == "8"
        c.socket.close()
    assert refused > 0, "the buffers of the loop are full"
    assert SANITIZED or memory(s) - before < 200 << 20, memory(s) - before
    decides(s)


# ---- slow peers ----


def test_too_many_streams(service):
    """A client that knows the limit is ended; otherwise streams over it are refused, and the others are answered."""
    s = service(*GRPC, rules=RULES)
    with Http2(s.grpc) as c:
        c.kind(SETTINGS)
        c.send(frame(SETTINGS, ACK))
        c.send(b"".join(c.headers(stream) for stream in range(1, 515, 2)))
        expect(c.goaway(), PROTOCOL_ERROR)
    with Http2(s.grpc) as c:  # one that may not know the limit yet
        c.send(b"".join(c.headers(stream) for stream in range(1, 515, 2)))
        expect(c.answer(513)["reset"], 7, "REFUSED_STREAM")
        c.send(frame(DATA, END_STREAM, 1, message(MANY.SerializeToString())))
        expect(c.status(1), 0)


def test_window_of_zero(service):
    """A client that takes no answers: its streams are reset, and then its place is free."""
    s = service(*GRPC, "--request", "1s", rules=RULES)
    with Http2(s.grpc, window=0) as c:
        for stream in range(1, 201, 2):
            c.call(stream, TEN if stream == 1 else MANY)
        answers = [c.answer(stream) for stream in range(1, 201, 2)]
        expect({one.get("reset") for one in answers}, {8}, "CANCEL")
        c.send(frame(SETTINGS, payload=(4).to_bytes(2, "big") + (65535).to_bytes(4, "big")))
        c.call(201, MANY)
        expect(c.status(201), 0, "the connection goes on")
    expect(left(s), 9)


def test_window_that_opens(service):
    s = service(*GRPC, rules=RULES)
    with Http2(s.grpc, window=3) as c:
        c.call(1, TEN)
        c.until(lambda one: one.kind == DATA)
        c.send(frame(WINDOW_UPDATE, 0, 1, (1000).to_bytes(4, "big")))
        expect(decoded(c.answer(1)).overall_code, OK)


def test_slow_sender(service):
    """A request that is never complete is answered when its time is over; the connection goes on."""
    s = service(*GRPC, "--request", "1s", rules=RULES)
    with Http2(s.grpc) as c:
        c.send(c.headers(1) + frame(DATA, 0, 1, b"\0\0"))
        c.call(3, TEN)
        expect(c.status(3), 0)
        answer = c.answer(1)
        expect(answer["grpc-status"], "4", str(answer))
        c.call(5, TEN)
        expect(c.status(5), 0)
    expect(left(s), 8)


def test_deadline_of_a_slow_sender(service):
    s = service(*GRPC, rules=RULES)
    with Http2(s.grpc) as c:
        c.send(c.headers(1, [("grpc-timeout", "100m")]))
        expect(c.status(1), DEADLINE)
        c.send(frame(DATA, END_STREAM, 1, message(TEN.SerializeToString())))
        c.call(3, MANY)
        expect(c.status(3), 0)
    expect(left(s), 10)


def test_slow_reader(service):
    """A client that reads nothing: it is not read from either, and is ended when its time is over."""
    s = service(*GRPC, "--request", "1s", rules=RULES)
    with Http2(s.grpc, receive_bytes=4096) as c:
        c.socket.settimeout(0.2)
        c.send(frame(WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big")))
        stream, before = 1, memory(s)
        try:
            while stream < 400000:
                c.call(stream, MANY)
                stream += 2
        except (TimeoutError, ConnectionError):
            pass
        assert SANITIZED or memory(s) - before < 20 << 20
        until(lambda: s.steer("GET", "/v1/status").json()["connections"]["grpc"] == 0, "the connection is ended")
    decides(s)


def test_idle(service):
    """A connection that is idle is told before it is closed."""
    s = service(*GRPC, "--idle", "500ms", rules=RULES)
    with Http2(s.grpc) as c:
        c.call(1, MANY)
        expect(c.status(1), 0)
        notice = c.kind(GOAWAY)
        expect((notice.number(0), notice.number(4)), (0x7FFFFFFF, NO_ERROR))
        c.call(3, MANY)
        expect(c.status(3), 0, "what was sent meanwhile is answered")
        last = c.kind(GOAWAY)
        expect((last.number(0), last.number(4)), (3, NO_ERROR))
        c.ended()
    with s.socket(s.grpc) as silent:
        expect(silent.recv(100), b"", "one that never sent anything")


def test_busy_connection_stays(service):
    """Longer than a request may take, with a stream open all the time."""
    s = service(*GRPC, "--request", "2s", rules=RULES)
    body = message(MANY.SerializeToString())
    with Http2(s.grpc) as c:
        c.send(frame(WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big")))
        end, stream = time.monotonic() + 5, 1
        c.send(c.headers(stream))
        while time.monotonic() < end:
            c.send(c.headers(stream + 2) + frame(DATA, END_STREAM, stream, body))
            expect(c.status(stream), 0)
            stream += 2


# ---- the end ----


def test_stop_with_open_streams(service):
    """What has begun is answered; then the connection is closed."""
    s = service(*GRPC, rules=RULES)
    body = message(TEN.SerializeToString())
    with Http2(s.grpc) as c, Http2(s.grpc) as idle:
        idle.kind(SETTINGS)
        c.call(1, TEN)
        expect(c.status(1), 0)
        c.send(c.headers(3))
        c.send(frame(PING, payload=b"12345678"))
        c.until(lambda one: one.kind == PING)
        s.process.send_signal(signal.SIGTERM)
        for one in (c, idle):
            notice = one.kind(GOAWAY)
            expect((notice.number(0), notice.number(4)), (0x7FFFFFFF, NO_ERROR), "the first says that it will end")
        c.call(5, TEN)  # sent before the client saw it
        expect(c.status(5), 0)
        c.send(frame(DATA, END_STREAM, 3, body))
        expect(c.status(3), 0)
        last = c.kind(GOAWAY)
        expect((last.number(0), last.number(4)), (5, NO_ERROR))
        c.ended()
        expect([one.number(0) for one in idle.ended() if one.kind == GOAWAY], [0])
    expect(s.process.wait(DEADLINE_S), 0)


def test_stop_with_a_stream_that_never_ends(service):
    s = service(*GRPC, "--drain", "300ms", rules=RULES)
    with Http2(s.grpc) as c:
        c.send(c.headers(1))
        c.send(frame(PING, payload=b"12345678"))
        c.until(lambda one: one.kind == PING)
        s.process.send_signal(signal.SIGTERM)
        expect(s.process.wait(DEADLINE_S), 0)


def test_killed_clients(service):
    """Connections that end in the middle of anything."""
    s = service(*GRPC, rules=RULES)
    for i in range(200):
        with Http2(s.grpc) as c:
            whole = c.headers(1) + frame(DATA, END_STREAM, 1, message(MANY.SerializeToString()))
            c.send(whole[: i * len(whole) // 200])
    decides(s)
    until(lambda: s.steer("GET", "/v1/status").json()["connections"]["grpc"] == 0, "they are gone")


def test_connections_give_way(service):
    """Idle ones and slow senders are replaced by new ones; those that watch are not, and have a bound of their own."""
    s = service(*GRPC, "--connections", "8", rules=RULES)
    connections = [Http2(s.grpc) for _ in range(30)]
    for c in connections[-4:]:
        c.call(1, MANY)
        expect(c.status(1), 0)
    decides(s)
    for c in connections:
        c.socket.close()
    assert os.path.exists(f"/proc/{s.process.pid}")
