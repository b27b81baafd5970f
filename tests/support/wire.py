"""RESP by hand: what is sent is exactly what a test writes."""

import socket


def words(*args):
    """A command as clients send it."""
    parts = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


class Error(str):
    """An error as a reply."""


class Gone(Exception):
    """The other side has closed."""


class Wire:
    """A connection; `with` closes it."""

    def __init__(self, service):
        self.socket = service.socket(service.resp)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.buffer = b""
        self.at = 0

    def __enter__(self):
        return self

    def __exit__(self, *details):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def more(self):
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Gone(self.buffer[self.at :])
        self.buffer = self.buffer[self.at :] + data
        self.at = 0

    def line(self):
        while True:
            end = self.buffer.find(b"\r\n", self.at)
            if end >= 0:
                line = self.buffer[self.at : end]
                self.at = end + 2
                return line
            self.more()

    def take(self, count):
        while len(self.buffer) - self.at < count:
            self.more()
        data = self.buffer[self.at : self.at + count]
        self.at += count
        return data

    def reply(self):
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return Error(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"_":
            return None
        if kind == b"$":
            return None if rest == b"-1" else self.take(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return None if rest == b"-1" else [self.reply() for _ in range(int(rest))]
        if kind == b"%":
            return {self.reply(): self.reply() for _ in range(int(rest))}
        raise AssertionError(f"no reply: {line!r}")

    def ask(self, *args):
        self.send(words(*args))
        return self.reply()

    def rest(self):
        """Everything up to the end of the connection."""
        try:
            while True:
                self.more()
        except Gone as gone:
            self.buffer, self.at = b"", 0
            return gone.args[0]
