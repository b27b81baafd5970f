"""HTTP/2 by hand: frames as bytes, for clients that do what no library would do."""

import socket

import hpack

from support import DEADLINE_S
from support.envoy import RATE_LIMIT

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
NO_ERROR, PROTOCOL_ERROR, ENHANCE_YOUR_CALM, COMPRESSION_ERROR = 0, 1, 11, 9
INITIAL_WINDOW_SIZE = 4


def frame(kind, flags=0, stream=0, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def message(text):
    """With the prefix of gRPC."""
    return b"\0" + len(text).to_bytes(4, "big") + text


def settings(**values):
    return b"".join(number.to_bytes(2, "big") + value.to_bytes(4, "big") for number, value in values.items())


class Frame:
    def __init__(self, kind, flags, stream, payload):
        self.kind, self.flags, self.stream, self.payload = kind, flags, stream, payload

    def __repr__(self):
        return f"Frame({self.kind}, {self.flags:#x}, {self.stream}, {self.payload!r})"

    def number(self, at=0):
        return int.from_bytes(self.payload[at : at + 4], "big")


class Http2:
    """with Http2(s.grpc) as c: c.call(1, request); c.answer(1)["grpc-status"]"""

    def __init__(self, where, *first, hello=True, window=None, receive_bytes=None):
        self.socket = socket.socket(socket.AF_INET)
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(where)
        self.rest = b""
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.answers = {}  # by stream: its headers and trailers, with "data" and "end"
        if hello:
            pairs = b"" if window is None else INITIAL_WINDOW_SIZE.to_bytes(2, "big") + window.to_bytes(4, "big")
            self.send(PREFACE + frame(SETTINGS, payload=pairs))
        for one in first:
            self.send(one)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, bytes_):
        self.socket.sendall(bytes_)

    def headers(self, stream, more=(), flags=END_HEADERS, **changed):
        """A HEADERS frame of a call; changed: method, path, content_type."""
        fields = [
            (":method", changed.get("method", "POST")),
            (":scheme", "http"),
            (":authority", "weir"),
            (":path", changed.get("path", RATE_LIMIT)),
            ("content-type", changed.get("content_type", "application/grpc")),
            ("te", "trailers"),
            *more,
        ]
        return frame(HEADERS, flags, stream, self.encoder.encode(fields))

    def call(self, stream, request, more=(), **changed):
        body = request if isinstance(request, bytes) else message(request.SerializeToString())
        self.send(self.headers(stream, more, **changed) + frame(DATA, END_STREAM, stream, body))

    def receive(self):
        """The next frame; None: the peer has closed."""
        while True:
            if len(self.rest) >= 9:
                length = int.from_bytes(self.rest[:3], "big")
                if len(self.rest) >= 9 + length:
                    found = Frame(self.rest[3], self.rest[4], int.from_bytes(self.rest[5:9], "big"), self.rest[9 : 9 + length])
                    self.rest = self.rest[9 + length :]
                    self.note(found)
                    return found
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not more:
                return None
            self.rest += more

    def note(self, found):
        if found.kind in (HEADERS, DATA, RST_STREAM):
            to = self.answers.setdefault(found.stream, {"data": b"", "end": False})
            if found.kind == HEADERS:
                to.update(self.decoder.decode(found.payload))
            if found.kind == DATA:
                to["data"] += found.payload
            if found.kind == RST_STREAM:
                to["reset"] = found.number()
            to["end"] |= found.kind == RST_STREAM or bool(found.flags & END_STREAM)

    def until(self, wanted):
        """The first frame that it is true for."""
        while True:
            found = self.receive()
            if found is None:
                raise AssertionError("the connection is closed")
            if wanted(found):
                return found

    def kind(self, kind):
        return self.until(lambda found: found.kind == kind and not (kind in (SETTINGS, PING) and found.flags & ACK))

    def answer(self, stream):
        """Headers and trailers of a stream that has ended, and its data."""
        while not self.answers.get(stream, {}).get("end"):
            if self.receive() is None:
                raise AssertionError(f"the connection is closed: {self.answers.get(stream)}")
        return self.answers[stream]

    def status(self, stream):
        return int(self.answer(stream)["grpc-status"])

    def ended(self):
        """All frames until the peer closes."""
        found = []
        while True:
            one = self.receive()
            if one is None:
                return found
            found.append(one)

    def goaway(self):
        """The code of a GOAWAY, after which the connection is closed."""
        codes = [one.number(4) for one in self.ended() if one.kind == GOAWAY]
        return codes[-1] if codes else None
