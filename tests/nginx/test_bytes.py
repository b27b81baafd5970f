"""Costs in bytes: a body whose length nginx does not know yet, and a cost that is not a number."""

import re
import socket
import struct

from support import DEADLINE_S, expect, until
from support.gateway import Gateway

HTTP = """
weir_zone main 1m rules=@FOLDER@/rules.yaml;
client_max_body_size 100k;
client_body_buffer_size 8k;
lingering_timeout 300ms;
lingering_time 1s;
"""
SERVER = """
add_header X-Left $weir_remaining always;
location /body/ { weir main cost=$content_length; proxy_pass http://@BACKEND@; }
location /auth/ { weir main after_auth cost=${Content_Length}; proxy_pass http://@BACKEND@; }
location /stream/ { weir main cost=$content_length; proxy_request_buffering off; proxy_http_version 1.1; proxy_pass http://@BACKEND@; }
location /page/ { weir main cost=$content_length; error_page 429 = @later; proxy_pass http://@BACKEND@; }
location @later { return 418; }
location /both/ { weir main cost=$content_length; weir other cost=$content_length; proxy_pass http://@BACKEND@; }
location /length/ { weir main cost=$request_length; proxy_pass http://@BACKEND@; }
location /range/ { alias @FOLDER@/; error_page 416 = /thrown/away; }
location /thrown/ { weir main cost=$request_length; max_ranges 0; empty_gif; }
location /given/ { weir main cost=$arg_cost; proxy_pass http://@BACKEND@; }
"""
RULES = """
rules:
  - { id: bytes, by: path, limits: [ { algorithm: fixed_window, max: 100000, per: 1h } ] }
"""
MAX = 100_000
g = Gateway(http=HTTP + "weir_zone other 1m rules=@FOLDER@/rules.yaml;", server=SERVER, rules=RULES)


def chunks(*parts):
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def head(path, *headers, method="POST"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: h", *headers, "", ""]).encode()


def chunked(path, *parts, headers=("Connection: close",)):
    return head(path, "Transfer-Encoding: chunked", *headers) + chunks(*parts)


def answers(data):
    """(status, what is left) of each."""
    found = re.findall(rb"HTTP/1\.1 (\d{3}) [^\r]*\r\n((?:[^\r]+\r\n)*)\r\n", data)
    left = [re.search(rb"X-Left: (\d+)", headers) for _, headers in found]
    return [(int(status), left[i] and int(left[i][1])) for i, (status, _) in enumerate(found)]


def ask(path, *parts):
    return answers(g.raw(chunked(path, *parts)))


def bodies():
    found = [request.body for request in g.backend.seen]
    g.backend.seen.clear()
    return found


def left(path):
    """What a request without a body finds."""
    return int(g.ask(path).headers["X-Left"])


def test_known():
    """A body with a Content-Length costs that; a request without a body costs 0."""
    expect(g.ask("/body/known", "POST", "x" * 1000).headers["X-Left"], str(MAX - 1000), "1000 bytes")
    expect(g.ask("/body/known", "POST", "").headers["X-Left"], str(MAX - 1000), "an empty body")
    expect(left("/body/known"), MAX - 1000, "none")
    expect("cost" in g.errors(), False, "there is nothing to log")


def test_chunked():
    """A chunked body costs its bytes without their framing, and reaches the backend whole."""
    bodies()
    for place in ("body", "auth", "stream", "page", "both"):
        path = f"/{place}/chunked"
        expect(ask(path, b"x" * 1000), [(200, MAX - 1000)], f"{place}: one chunk")
        expect(ask(path, b"a", b"b" * 30_000, b"c"), [(200, MAX - 31_002)], f"{place}: more than a buffer")
        expect(ask(path), [(200, MAX - 31_002)], f"{place}: an empty body")
        expect(bodies(), [b"x" * 1000, b"a" + b"b" * 30_000 + b"c", b""], f"{place}: what the backend has")


def test_refused():
    for place, status in (("body", 429), ("page", 418)):
        path = f"/{place}/refused"
        expect(ask(path, b"x" * 60_000), [(200, 40_000)], "room")
        expect(ask(path, b"x" * 40_001)[0][0], status, "a byte too many")
        expect(ask(path, b"x" * 40_000), [(200, 0)], "what was refused was not charged")
        expect(ask(path, b"x")[0][0], status, "nothing left")


def test_slow():
    """A body that comes byte by byte, with 100-continue before it."""
    with socket.create_connection(("127.0.0.1", g.port), DEADLINE_S) as s:
        s.sendall(head("/body/slow", "Transfer-Encoding: chunked", "Expect: 100-continue"))
        file = s.makefile("rb")
        expect(file.readline(), b"HTTP/1.1 100 Continue\r\n")
        expect(file.readline(), b"\r\n")
        for byte in chunks(b"hello", b"world"):
            s.sendall(bytes([byte]))
        expect(file.readline(), b"HTTP/1.1 200 OK\r\n")
    expect(left("/body/slow"), MAX - 10)


def test_one_connection():
    """Requests one after the other, sent at once."""
    keep = ("X-A: b",)
    data = b"".join(chunked("/body/line", b"x" * n, headers=keep) for n in (1, 2, 3)) + head("/body/line", "Connection: close", method="GET")
    expect(answers(g.raw(data)), [(200, MAX - 1), (200, MAX - 3), (200, MAX - 6), (200, MAX - 6)])


def test_not_charged():
    """A body that is too long, broken, or never comes."""
    expect(ask("/body/not", b"x" * 110_000)[0][0], 413, "longer than client_max_body_size")
    broken = head("/body/not", "Transfer-Encoding: chunked") + b"5\r\nhello\r\nzz\r\n"
    expect(answers(g.raw(broken))[0][0], 400, "no length of a chunk")
    g.raw(head("/body/not", "Transfer-Encoding: chunked") + b"5\r\nhel", end=True)
    expect(left("/body/not"), MAX, "none of them cost anything")


def test_request_length():
    """$request_length is right when the body was read: the line, the headers and the body."""
    for parts in ([b"x" * 20_000], [b"x"], []):
        path = f"/length/{len(parts) and len(parts[0])}"
        data = chunked(path, *parts)
        expect(answers(g.raw(data)), [(200, MAX - len(data))], f"chunked: {path}")
        data = head(path + "known", "Connection: close", f"Content-Length: {len(b''.join(parts))}") + b"".join(parts)
        expect(answers(g.raw(data)), [(200, MAX - len(data))], f"known: {path}")


def test_thrown_away():
    """A static file throws the body away, and an error page brings the request here: the body is not waited for."""
    data = head("/range/rules.yaml", "Range: bytes=99999-", "Content-Length: 100", "Connection: close", method="GET")
    expect(answers(g.raw(data + b"hello")), [(200, MAX - len(data))], "nginx does not count what it throws away")


def test_http2():
    """HTTP/2 needs no Content-Length."""

    def frame(kind, flags, payload=b""):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", 1 if kind in (0, 1) else 0) + payload

    def text(name, value):
        return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value

    for count in (0, 1, 3):
        path = b"/body/h2-%d" % count
        headers = text(b":method", b"POST") + text(b":scheme", b"http") + text(b":path", path) + text(b":authority", b"h")
        data = b"".join(frame(0, 0, b"x" * 1000) for _ in range(count))
        with socket.create_connection(("127.0.0.1", g.h2_port), DEADLINE_S) as s:
            s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0) + frame(1, 4, headers) + data + frame(0, 1))
            file = s.makefile("rb")
            while (got := file.read(9))[3] != 1:
                file.read(int.from_bytes(got[:3], "big"))
            expect(file.read(1), b"\x88", "200")
        expect(left(path.decode()), MAX - 1000 * count, f"{count} frames")


def test_not_a_number():
    """It costs 1, and the log says so, at most ten times a second."""
    for path, cost, why in (("/given/empty", "", "empty"), ("/given/text", "1e3", "not a whole number"), ("/given/none", None, "empty")):
        g.ask(path + ("" if cost is None else f"?cost={cost}"))
        expect(left(path + "?cost=0"), MAX - 1, path)
        until(lambda: f"weir: the value of `cost=` is {why}, so the request costs 1, zone \"main\"" in g.errors(), why)
    expect(left("/given/many?cost=0"), MAX, "0 is a number")
    before = g.errors().count("so the request costs 1")
    with_connection = g.connection()
    for _ in range(300):
        g.ask("/given/many", over=with_connection)
    with_connection.close()
    expect(left("/given/many?cost=0"), MAX - 300)
    lines = g.errors().count("so the request costs 1") - before
    expect(0 < lines < 300, True, f"{lines} lines")
