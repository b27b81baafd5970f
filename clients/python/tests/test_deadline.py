"""The deadline of a call through the service is one for the whole call, whatever the peer does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import threading
import time
from typing import Any, Callable, List

import pytest
from servers import ALLOWED, Service, answering, listening

from weir import Weir
from weir._deadline import TimedSocket

AMPLE_S = 30  # for what takes some ms, on a machine that is busy
SHORT_S = 0.2


def plain(weir: Weir) -> bool:
    return weir.check(event="ocr", key="u").unavailable


def coroutine(weir: Weir) -> bool:
    return asyncio.run(weir.acheck(event="ocr", key="u")).unavailable


def drip(connection: socket.socket, answer: bytes) -> None:
    for byte in answer:
        connection.sendall(bytes([byte]))
        time.sleep(SHORT_S / 10)


def dawdle(connection: socket.socket, answer: bytes) -> None:
    time.sleep(SHORT_S * 0.7)
    connection.sendall(answer)


@pytest.mark.parametrize("ask", [plain, coroutine])
def test_the_peer_answers(ask: Callable[[Weir], bool]) -> None:
    """As below, but in time."""
    serve = answering(lambda connection, answer: connection.sendall(answer))
    with listening(serve) as port, Weir.connect(f"redis://:token@127.0.0.1:{port}/1", deadline=AMPLE_S) as weir:
        assert not ask(weir)


@pytest.mark.parametrize("ask", [plain, coroutine])
def test_no_step_is_late_but_all_together_are(ask: Callable[[Weir], bool]) -> None:
    with listening(answering(drip)) as port, Weir.connect(f"redis://:token@127.0.0.1:{port}", deadline=SHORT_S) as weir:
        begin = time.monotonic()
        assert ask(weir)
        assert time.monotonic() - begin < AMPLE_S


def test_far_away() -> None:
    """Connecting and asking together take longer than a deadline; asking alone does not."""
    with listening(answering(dawdle)) as port:
        url = f"redis://:token@127.0.0.1:{port}"
        with Weir.connect(url, deadline=SHORT_S) as weir:
            assert not plain(weir)

        async def until_answered() -> None:
            async with Weir.connect(url, deadline=SHORT_S) as weir:
                end = time.monotonic() + AMPLE_S
                while (await weir.acheck(event="ocr", key="u")).unavailable:
                    assert time.monotonic() < end

        asyncio.run(until_answered())


def test_a_host_with_many_addresses_none_of_which_answers(monkeypatch: Any) -> None:
    with contextlib.ExitStack() as stack, socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # more than it has room for, so that it hears no others
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        addresses = socket.getaddrinfo(*full.getsockname(), type=socket.SOCK_STREAM) * 100
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: addresses)
        with Weir.connect(f"redis://127.0.0.1:{full.getsockname()[1]}", deadline=SHORT_S) as weir:
            begin = time.monotonic()
            assert plain(weir)
            assert time.monotonic() - begin < SHORT_S * 50


def test_a_connection_that_drips_later(monkeypatch: Any) -> None:
    """Each call has a deadline of its own, not that of the one that connected."""
    ways = [lambda connection, answer: connection.sendall(answer), drip]
    serve = answering(lambda connection, answer: ways[0](connection, answer))
    with listening(serve) as port, Weir.connect(f"redis://127.0.0.1:{port}", deadline=AMPLE_S) as weir:
        assert not plain(weir)
        del ways[0]
        monkeypatch.setattr(weir, "_deadline", SHORT_S)
        assert plain(weir)


def test_an_answer_that_has_come_while_the_thread_did_not_run(service: Service, monkeypatch: Any, key: str) -> None:
    send = TimedSocket.sendall

    def send_and_stand_still(sock: Any, *what: Any) -> None:
        send(sock, *what)
        time.sleep(SHORT_S)
        assert select.select([sock], [], [], AMPLE_S)[0]

    with Weir.connect(service.url, deadline=SHORT_S) as weir:
        monkeypatch.setattr(TimedSocket, "sendall", send_and_stand_still)
        assert weir.check(event="ocr", key=key).remaining == 1


def test_a_call_amid_another(service: Service, key: str) -> None:
    """By a signal's handler, with a deadline of its own."""
    found: List[Any] = []
    asked = threading.Event()

    def each(connection: socket.socket, answer: bytes) -> None:
        if answer == ALLOWED:
            os.kill(os.getpid(), signal.SIGUSR1)
            asked.wait(AMPLE_S)
        connection.sendall(answer[:1])
        time.sleep(0.05)
        connection.sendall(answer[1:])

    with listening(answering(each)) as port, Weir.connect(service.url, deadline=SHORT_S) as other:
        with Weir.connect(f"redis://127.0.0.1:{port}", deadline=AMPLE_S) as weir:

            def handle(*_: Any) -> None:
                found.append(other.check(event="ocr", key=key).unavailable)
                time.sleep(SHORT_S * 1.2)
                asked.set()

            before = signal.signal(signal.SIGUSR1, handle)
            try:
                assert not plain(weir) and len(found) == 1
            finally:
                signal.signal(signal.SIGUSR1, before)


def test_a_call_amid_any_step_of_another(service: Service, key: str) -> None:
    """By a signal's handler, of the same Weir, while it holds whatever lock it has."""
    with Weir.connect(service.url, deadline=AMPLE_S) as weir:
        for lock in (weir._reach.lock, weir._pool._lock):
            with lock:
                assert not plain(weir)
                weir._reach.count()


@pytest.mark.parametrize("ask", [plain, coroutine])
def test_connecting_takes_no_word_that_is_not_needed(ask: Callable[[Weir], bool]) -> None:
    """Each is a round trip, within the deadline."""
    answers: List[bytes] = []

    def each(connection: socket.socket, answer: bytes) -> None:
        answers.append(answer)
        connection.sendall(answer)

    with listening(answering(each)) as port, Weir.connect(f"redis://:t@127.0.0.1:{port}", deadline=AMPLE_S) as weir:
        assert not ask(weir)
    assert answers == [b"+OK\r\n", ALLOWED]  # the token, and the question


def test_as_many_threads_as_there_are() -> None:
    """Each has a connection of its own; newer ones of redis-py have 100 at most, unless they are told."""
    together = threading.Barrier(120)

    def each(connection: socket.socket, answer: bytes) -> None:
        if answer == ALLOWED:
            together.wait(AMPLE_S)
        connection.sendall(answer)

    with listening(answering(each)) as port, Weir.connect(f"redis://127.0.0.1:{port}", deadline=AMPLE_S) as weir:
        threads = [threading.Thread(target=plain, args=(weir,)) for _ in range(together.parties)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert weir.unreachable == 0
