"""What only the form with a service has: outages, tokens, event loops."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any, Iterator, List

import pytest
from servers import Redis, Service, free_port, listening, until
from test_local import in_child

from weir import TooFrequent, Weir, WeirError, detect

AMPLE_S = 5  # for what takes 50 ms, on a machine that is busy


@pytest.fixture(scope="module")
def fragile() -> Iterator[Service]:
    """One to be hurt."""
    with Service() as running:
        yield running


def asks(weir: Weir, key: str) -> bool:
    """Whether the service is asked; others decide that one, else."""
    return not weir.check(event="ocr", key=key, peek=True).unavailable


def test_options() -> None:
    wrongs: Any = (
        ({"url": "redis://h:1", "when_unreachable": "pass"}, "allow"),
        ({"url": "redis://h:1", "deadline": 0}, "deadline"),
        ({"url": "redis://h:1", "deadline": float("nan")}, "deadline"),
        ({"url": "redis://h:1", "deadline": float("inf")}, "at most 3600"),
        ({"url": "http://127.0.0.1:6380"}, "redis://"),
    )
    for wrong, words in wrongs:
        with pytest.raises(ValueError, match=words):
            Weir.connect(**wrong)


def test_options_of_the_url_that_are_ours(service: Service, key: str) -> None:
    with Weir.connect(f"{service.url}?decode_responses=True&socket_timeout=7", deadline=AMPLE_S) as weir:
        assert weir.check(event="ocr", key=key).rule == "ocr"
        assert asyncio.run(weir.acheck(event="ocr", key=key)).rule == "ocr"
        assert weir._pool.connection_kwargs["socket_timeout"] == AMPLE_S


@pytest.mark.parametrize("policy", ["allow", "refuse"])
def test_nobody_listens(policy: Any, caplog: Any) -> None:
    with Weir.connect(f"redis://:secret@127.0.0.1:{free_port()}", when_unreachable=policy) as weir:
        begin = time.monotonic()
        verdicts = [weir.check(event="ocr", key="u") for _ in range(20)]
        assert time.monotonic() - begin < AMPLE_S
        for verdict in verdicts:
            assert verdict.allowed == (policy == "allow") and verdict.unavailable
            assert verdict.status == (0 if policy == "allow" else 503) and verdict.headers() == []
        assert weir.unreachable == 20
        assert weir.check(event="ocr", key="u", refundable=True).receipt is None
    told = [record.getMessage() for record in caplog.records if record.name == "weir"]
    assert len(told) == 1 and "does not answer" in told[0] and "secret" not in told[0]


def test_nobody_listens_to_the_decorator() -> None:
    with Weir.connect(f"redis://127.0.0.1:{free_port()}", when_unreachable="refuse") as weir:

        @detect(weir, "ocr", key="user", refund_on_exception=True)
        async def submit(user: str) -> None: ...

        with pytest.raises(TooFrequent, match="weir or the store of its counters does not answer") as caught:
            asyncio.run(submit("u"))
        assert caught.value.verdict.unavailable


def test_a_killed_service_comes_back(fragile: Service, key: str, caplog: Any) -> None:
    with Weir.connect(fragile.url, deadline=AMPLE_S) as weir:
        assert weir.check(event="ocr", key=key).remaining == 1
        fragile.end(signal.SIGKILL)
        for _ in range(10):
            assert weir.check(event="ocr", key=key).unavailable
        fragile.start()
        until(lambda: asks(weir, key), "it is asked again")
        assert weir.check(event="ocr", key=key).remaining == 0
        assert "answers again" in caplog.text


def test_a_restart_between_two_calls_goes_unnoticed(fragile: Service, key: str) -> None:
    with Weir.connect(fragile.url, deadline=AMPLE_S, when_unreachable="refuse") as weir:

        async def ask() -> None:
            assert (await weir.acheck(event="ocr", key=key)).remaining == 1
            assert weir.check(event="ocr", key=key, cost=0).remaining == 1
            fragile.end()
            fragile.start()
            assert (await weir.acheck(event="ocr", key=key)).remaining == 0
            assert not weir.check(event="ocr", key=key).unavailable

        asyncio.run(ask())
        assert weir.unreachable == 0


class Breaking:
    """Hands on what is asked; `broken` answers get lost, with their connection."""

    def __init__(self, service: Service) -> None:
        self.service, self.broken = service, 0

    def __call__(self, connection: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self.service.port)) as beyond:
            while True:
                asked = connection.recv(9999)
                if not asked:
                    return
                beyond.sendall(asked)
                answer = beyond.recv(9999)
                if self.broken:
                    self.broken -= 1
                    return
                connection.sendall(answer)


def test_a_call_whose_answer_is_lost_is_not_charged_twice(service: Service, key: str) -> None:
    breaking = Breaking(service)
    with listening(breaking) as port, Weir.connect(f"redis://127.0.0.1:{port}", deadline=AMPLE_S) as weir:

        async def ask() -> bool:
            await weir.acheck(event="ocr", key=key, cost=0)
            breaking.broken = 1
            return (await weir.acheck(event="ocr", key=key)).unavailable

        assert weir.check(event="ocr", key=key, cost=0).remaining == 2
        breaking.broken = 1
        assert weir.check(event="ocr", key=key).unavailable
        assert weir.check(event="ocr", key=key, cost=0).remaining == 1
        assert asyncio.run(ask())
        assert weir.check(event="ocr", key=key, cost=0).remaining == 0


def count_files() -> int:
    """Without what other tests have left for the garbage collector."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_a_burst_of_coroutines(service: Service, key: str) -> None:
    """They go together, over one connection."""

    async def ask() -> int:
        async with Weir.connect(service.url, deadline=30) as weir:
            open_files = count_files()
            verdicts = await asyncio.gather(*(weir.acheck(event="ocr", key=key) for _ in range(500)))
            assert weir.unreachable == 0 and count_files() == open_files + 1
            return sum(verdict.allowed for verdict in verdicts)

    assert asyncio.run(ask()) == 2


def test_a_loop_that_is_blocked_sees_answers_that_have_come(service: Service, remote: Weir, key: str) -> None:
    async def ask() -> Any:
        """The verdict, and how long the service took at most."""
        took = []
        async with Weir.connect(service.url, deadline=0.3) as weir:
            task = asyncio.ensure_future(weir.acheck(event="wide", key=key))
            for _ in range(3):  # each time something else takes longer than the deadline
                await asyncio.sleep(0)
                time.sleep(0.4)
                begin = time.monotonic()
                remote.check(event="wide", key=key)
                took.append(time.monotonic() - begin)
            begin = time.monotonic()
            return await task, max(*took, time.monotonic() - begin)

    def is_seen() -> bool:
        verdict, slowest = asyncio.run(ask())
        assert verdict.rule == "wide" or verdict.unavailable and slowest > 0.2
        return not verdict.unavailable

    until(is_seen, "a service that does not stand still")


def test_a_service_that_stands_still(fragile: Service, key: str) -> None:
    with Weir.connect(fragile.url, deadline=0.05) as weir:
        until(lambda: asks(weir, key), "it is asked")
        with fragile.standing_still():
            begin = time.monotonic()
            for _ in range(1000):  # if each waited for its deadline, it would take 50 s
                verdict = weir.check(event="ocr", key=key)
                assert verdict.allowed and verdict.unavailable
            assert time.monotonic() - begin < 20
        until(lambda: asks(weir, key), "it is asked again")
        # Late answers are nobody's.
        assert weir.check(event="nobody-limits-this", key=key).rule is None


def test_a_service_that_stands_still_does_not_stop_the_loop(fragile: Service, key: str) -> None:
    async def ask(weir: Weir) -> Any:
        while (await weir.acheck(event="ocr", key=key, peek=True)).unavailable:
            await asyncio.sleep(0.01)
        turns = 0
        with fragile.standing_still():
            task = asyncio.ensure_future(weir.acheck(event="ocr", key=key))
            while not task.done():
                turns += 1
                await asyncio.sleep(0.01)
        return task.result().unavailable, turns

    def has_turns() -> bool:
        unavailable, turns = asyncio.run(ask(weir))
        assert unavailable
        return bool(turns > 2)

    with Weir.connect(fragile.url, deadline=0.5) as weir:
        until(has_turns, "others have their turns meanwhile")  # again if all stood still, this process too


def test_an_answer_that_nobody_waited_for_is_not_taken_for_another(remote: Weir, key: str) -> None:
    """Whoever is cancelled leaves an answer behind."""

    async def ask() -> None:
        for number in range(30):
            task = asyncio.ensure_future(remote.acheck(event="ocr", key=f"{key}-{number}"))
            for _ in range(number):
                await asyncio.sleep(0)
            task.cancel()
            verdict = await remote.acheck(event="wide", key=f"{key}-{number}")
            assert verdict.rule == "wide"

    asyncio.run(ask())


class Renamed:
    """A client of a redis-py whose pools have no fields that we know, and else are as ever."""

    connection_pool = object()

    def __init__(self, client: Any) -> None:
        self.pipeline = client.pipeline


def test_a_redis_py_with_other_names_inside(fragile: Service, key: str, monkeypatch: Any) -> None:
    async def ask(weir: Weir) -> None:
        while (await weir.acheck(event="ocr", key=key, peek=True)).unavailable:
            await asyncio.sleep(0.01)
        with fragile.standing_still():
            assert (await weir.acheck(event="ocr", key=key)).unavailable
        while True:  # what comes late is not taken for the answer to another
            verdict = await weir.acheck(event="wide", key=key)
            if not verdict.unavailable:
                assert verdict.rule == "wide"
                return
            await asyncio.sleep(0.01)

    with Weir.connect(fragile.url, deadline=0.2) as weir:
        new_client = weir._new_async_client
        monkeypatch.setattr(weir, "_new_async_client", lambda: Renamed(new_client()))
        asyncio.run(ask(weir))
        assert not weir._loops


def test_a_token(tmp_path: Path, key: str, caplog: Any) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-some-length\n")
    with Service("--token-file", str(token)) as service:
        with Weir.connect(f"redis://:a-token-of-some-length@127.0.0.1:{service.port}", deadline=AMPLE_S) as weir:
            assert weir.check(event="ocr", key=key).remaining == 1
        for url in (service.url, f"redis://:wrong@127.0.0.1:{service.port}"):
            with Weir.connect(url, deadline=AMPLE_S, when_unreachable="refuse") as weir:
                assert weir.check(event="ocr", key=key).unavailable
    assert caplog.text.count("does not answer") == 2


class OnSocket(Service):
    @property
    def socket(self) -> Path:
        return self.path / "socket"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def command(self) -> List[str]:
        return [f"unix:{self.socket}" if word.startswith("127.0.0.1:") else word for word in super().command()]


def test_a_unix_socket(key: str) -> None:
    with OnSocket() as service, Weir.connect(service.url, deadline=AMPLE_S, when_unreachable="refuse") as weir:
        assert weir.check(event="ocr", key=key).remaining == 1
        assert asyncio.run(weir.acheck(event="ocr", key=key)).remaining == 0
        service.end()
        assert weir.check(event="ocr", key=key).unavailable
        assert asyncio.run(weir.acheck(event="ocr", key=key)).unavailable


def test_what_answers_is_not_weir(store: Redis, key: str) -> None:
    with Weir.connect(store.url, deadline=AMPLE_S) as weir:
        with pytest.raises(WeirError, match="unknown command"):
            weir.check(event="ocr", key=key)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"*1\r\n:1\r\n", b"+OK\r\n", b":x\r\n"])
def test_what_answers_is_something_else(answer: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        while True:
            asked = connection.recv(1000)
            if not asked:
                return
            connection.sendall(answer * asked.count(b"*"))  # each command begins with one

    with listening(serve) as port, Weir.connect(f"redis://127.0.0.1:{port}", deadline=AMPLE_S) as weir:
        with pytest.raises(WeirError, match=f"127.0.0.1:{port}"):
            weir.check(event="ocr", key="u")
        with pytest.raises(WeirError, match=f"127.0.0.1:{port}"):
            asyncio.run(weir.acheck(event="ocr", key="u"))


def test_a_receipt_that_is_none(weir: Weir, key: str) -> None:
    verdict = weir.check(event="ocr", key=key, refundable=True)
    object.__setattr__(verdict, "receipt", "no receipt")
    with pytest.raises((WeirError, ValueError), match="receipt"):
        weir.refund(verdict)


def test_event_loops_in_threads(remote: Weir, key: str) -> None:
    passed = []

    async def ask() -> None:
        passed.extend([(await remote.acheck(event="ocr", key=key)).allowed for _ in range(5)])

    threads = [threading.Thread(target=lambda: asyncio.run(ask())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(passed) == 20 and sum(passed) == 2


def test_children_ask_by_connections_of_their_own(remote: Weir, key: str) -> None:
    assert remote.check(event="ocr", key=key).remaining == 1
    assert in_child(lambda: remote.check(event="ocr", key=key).remaining) == 0
    assert not remote.check(event="ocr", key=key).allowed


def test_a_fork_amid_an_outage() -> None:
    with Weir.connect(f"redis://127.0.0.1:{free_port()}", deadline=AMPLE_S) as weir:
        held, end = threading.Event(), threading.Event()

        def hold() -> None:
            with weir._reach.lock:
                held.set()
                end.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        try:
            assert in_child(lambda: weir.check(event="ocr", key="u").unavailable)
        finally:
            end.set()
            thread.join()


def test_a_loop_that_is_gone_takes_its_connections_along(remote: Weir, key: str, caplog: Any) -> None:
    caplog.set_level(logging.WARNING)

    async def ask() -> bool:
        return (await remote.acheck(event="ocr", key=key)).allowed

    assert [asyncio.run(ask()) for _ in range(3)] == [True, True, False]
    gc.collect()
    assert not caplog.records and not remote._loops  # type: ignore[attr-defined]


def test_loops_that_are_closed_leave_no_connections(service: Service, key: str) -> None:
    def ask(weir: Weir) -> None:
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(weir.acheck(event="wide", key=key)).allowed
        loop.close()  # without loop.shutdown_asyncgens

    with Weir.connect(service.url, deadline=AMPLE_S, when_unreachable="refuse") as weir:
        ask(weir)
        open_files = count_files()
        for _ in range(5):
            ask(weir)
        assert len(weir._loops) == 1 and count_files() == open_files
    assert not weir._loops and count_files() < open_files


def test_a_context_of_a_coroutine(service: Service, key: str) -> None:
    async def ask() -> None:
        async with Weir.connect(service.url, deadline=AMPLE_S) as weir:
            assert (await weir.acheck(event="ocr", key=key)).remaining == 1
            assert weir.check(event="ocr", key=key).remaining == 0
        assert not weir._loops
        with pytest.raises(WeirError, match="this Weir is closed"):
            await weir.acheck(event="ocr", key=key)
        with pytest.raises(WeirError, match="this Weir is closed"):
            weir.check(event="ocr", key=key)

    asyncio.run(ask())


@pytest.mark.parametrize("url", ["redis://:geh/eim@127.0.0.1:6380", "http://:geheim@127.0.0.1", "127.0.0.1:6380"])
def test_a_bad_url_shows_no_token(url: str) -> None:
    with pytest.raises(ValueError, match="redis://:TOKEN@HOST:PORT") as error:
        Weir.connect(url)
    assert "eim" not in str(error.value) and error.value.__cause__ is None
