"""Real servers for the tests: on free ports of loopback, in folders of their own, gone at the end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator, List

DEADLINE_S = 60

RULES = """
settings: { trusted_proxies: [127.0.0.0/8] }
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits:
      - { name: day, algorithm: fixed_window, max: 5, per: 24h }
      - { name: hour, algorithm: fixed_window, max: 2, per: 1h }
  - id: strict
    match: { event: strict }
    by: [key]
    limits: [ { name: one, algorithm: fixed_window, max: 1, per: 1m } ]
    penalty: { after: 2, within: 1m, for: 1h }
  - id: llm
    match: { event: llm }
    by: [key]
    limits:
      - { name: calls, algorithm: fixed_window, max: 100, per: 1h }
      - { name: tokens, unit: tokens, algorithm: fixed_window, max: 5000000000, per: 1h }
  - id: wide
    match: { event: wide }
    by: [key]
    limits: [ { name: hour, algorithm: fixed_window, max: 1000000, per: 1h } ]
  - id: page
    match: { path: /page }
    by: [ip]
    limits: [ { name: hour, algorithm: fixed_window, max: 2, per: 1h } ]
    reject: { status: 420, body: '{"error":"calm"}', content_type: application/json, headers: { X-Why: page } }
  - id: under
    match: { path: /under/page }
    by: [ip]
    limits: [ { name: hour, algorithm: fixed_window, max: 2, per: 1h } ]
  - id: by-user
    match: { path: /mine }
    by: [user]
    limits: [ { name: hour, algorithm: fixed_window, max: 1, per: 1h } ]
  - id: by-tenant
    match: { method: POST, host: api.example.com }
    by: ["header:X-Tenant"]
    limits: [ { name: hour, algorithm: fixed_window, max: 1, per: 1h } ]
  - id: descriptors
    match: { domain: edge, descriptor_keys: "plan,user", descriptor: { plan: free } }
    by: ["descriptor:user"]
    limits: [ { name: hour, algorithm: fixed_window, max: 1, per: 1h } ]
"""


def until(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + DEADLINE_S
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {DEADLINE_S} s")
        time.sleep(0.01)


def free_port() -> int:
    """One that nobody gets by chance before it is used: systems give connections ports above these."""
    while True:
        port = random.randint(20000, 32767)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


def write(path: Path, text: str) -> None:
    """Whole: a reader never sees half of it."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


class Process:
    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.log = self.path / "log"

    def command(self) -> List[str]:
        raise NotImplementedError

    def is_ready(self) -> Any:
        raise NotImplementedError

    def start(self) -> None:
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self.is_up, f"{self.command()[0]} listens")

    def is_up(self) -> Any:
        if self.process.poll() is not None:
            raise AssertionError(f"{self.command()[0]} ended: {self.log.read_text()}")
        return self.is_ready()

    def end(self, how: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(DEADLINE_S)

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)  # a signal takes its time
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Any:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        if hasattr(self, "process"):
            self.end(signal.SIGKILL)
        self.folder.cleanup()


class Service(Process):
    """`weir serve`. It keeps its port when it is started again."""

    def __init__(self, *flags: str) -> None:
        super().__init__()
        self.flags = flags
        self.port = free_port()
        self.rules = self.path / "rules.yaml"
        self.cells = self.path / "data" / "cells"
        write(self.rules, RULES)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def command(self) -> List[str]:
        binary = os.environ["WEIR_BINARY"]
        where = ["--resp", f"127.0.0.1:{self.port}", "--http", "off", "--admin", "off"]
        return [
            binary,
            "serve",
            "--data",
            str(self.cells.parent),
            "--rules",
            str(self.rules),
            "--cells-memory",
            "none",
            "--cells-keys",
            "10000",
            *where,
            *self.flags,
        ]

    def is_ready(self) -> Any:
        return " listen: resp on " in self.log.read_text()


@contextlib.contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of something else than weir: `serve` has each connection in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=attend, args=(listener.accept()[0],), daemon=True).start()

        def attend(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


ALLOWED = b"*11\r\n:1\r\n" + b"$-1\r\n" * 5 + b":0\r\n$-1\r\n:0\r\n:0\r\n$-1\r\n"


def answering(each: Callable[[socket.socket, bytes], None]) -> Callable[[socket.socket], None]:
    """A peer that has an answer to each command, and leaves the sending of it to others."""

    def serve(connection: socket.socket) -> None:
        with connection.makefile("rb") as asked:
            while True:
                words = [read_word(asked) for _ in range(int(asked.readline()[1:] or 0))]
                if not words:
                    return
                each(connection, ALLOWED if words[0] == b"WEIR.CHECK" else b"+OK\r\n")

    return serve


def read_word(asked: Any) -> bytes:
    size = int(asked.readline()[1:])
    word: bytes = asked.read(size + 2)[:size]
    return word


class Redis(Process):
    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> List[str]:
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.path)]

    def is_ready(self) -> Any:
        return "Ready to accept connections" in self.log.read_text()
