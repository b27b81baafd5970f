"""Ends of all kinds: of a Weir amid calls, of a call amid its answer, of a program."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Iterator, List

import pytest
from servers import ALLOWED, Redis, Service, answering, listening, until, write
from test_local import RULES, in_child
from test_service import count_files

from weir import Weir, WeirError, detect

AMPLE_S = 30


class Slow:
    """A peer that answers when it is told."""

    def __init__(self) -> None:
        self.asked, self.tell = threading.Event(), threading.Event()

    def __call__(self, connection: socket.socket, answer: bytes) -> None:
        if answer == ALLOWED:
            self.asked.set()
            self.tell.wait(AMPLE_S)
        connection.sendall(answer)


@pytest.fixture
def slow() -> Iterator[Any]:
    peer = Slow()
    with listening(answering(peer)) as port:
        peer.url = f"redis://127.0.0.1:{port}"  # type: ignore[attr-defined]
        yield peer
        peer.tell.set()


def test_close_amid_a_call(slow: Any) -> None:
    """It is still decided, and leaves no connection behind."""
    verdicts: List[Any] = []
    weir = Weir.connect(slow.url, deadline=AMPLE_S)
    open_files = count_files()
    thread = threading.Thread(target=lambda: verdicts.append(weir.check(event="ocr", key="u")))
    thread.start()
    slow.asked.wait()
    weir.close()
    weir.close()
    with pytest.raises(WeirError, match="this Weir is closed"):
        weir.check(event="ocr", key="u")
    slow.tell.set()
    thread.join()
    assert not verdicts[0].unavailable
    until(lambda: count_files() == open_files, "the connection is closed on both sides")


def test_close_amid_a_call_of_a_coroutine(slow: Any, caplog: Any) -> None:
    async def ask() -> Any:
        weir = Weir.connect(slow.url, deadline=AMPLE_S)
        task = asyncio.ensure_future(weir.acheck(event="ocr", key="u"))
        await asyncio.to_thread(slow.asked.wait)
        closing = [asyncio.ensure_future(weir.aclose()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(WeirError, match="this Weir is closed"):
            await weir.acheck(event="ocr", key="u")
        slow.tell.set()
        await asyncio.gather(*closing)
        assert not weir._loops
        return await task

    assert not asyncio.run(ask()).unavailable
    assert not caplog.records


@pytest.mark.parametrize("turns", range(6))
def test_whoever_cancels_all_tasks_takes_only_what_is_asked(service: Service, key: str, turns: int) -> None:
    """Also before a task of ours has had its first step. The next call is answered, and the end comes."""

    async def ask() -> Any:
        weir = Weir.connect(service.url, deadline=AMPLE_S)
        assert (await weir.acheck(event="wide", key=key)).allowed
        asked = asyncio.ensure_future(weir.acheck(event="wide", key=key))
        for _ in range(turns):
            await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        assert asked.done()
        verdict = await weir.acheck(event="ocr", key=key)
        await asyncio.wait_for(weir.aclose(), AMPLE_S)
        return verdict

    verdict = asyncio.run(ask())
    assert (verdict.rule, verdict.remaining) == ("ocr", 1)


class Interrupted(BaseException):
    pass


def test_a_call_that_is_interrupted_leaves_no_answer_for_another(monkeypatch: Any) -> None:
    """As by a signal's handler that raises, between the question and the answer."""
    refused = ALLOWED.replace(b":1", b":0", 1)
    answers = [refused, ALLOWED]

    def each(connection: socket.socket, answer: bytes) -> None:
        if answer == ALLOWED:
            answer = answers.pop(0)
        if answer == refused:
            time.sleep(0.2)
        connection.sendall(answer)

    def interrupt(*_: Any, **__: Any) -> None:
        monkeypatch.undo()
        until(lambda: answers == [ALLOWED], "the question has arrived")
        raise Interrupted

    with listening(answering(each)) as port, Weir.connect(f"redis://127.0.0.1:{port}", deadline=AMPLE_S) as weir:
        monkeypatch.setattr(weir._client, "parse_response", interrupt)
        with pytest.raises(Interrupted):
            weir.check(event="ocr", key="u")
        assert weir.check(event="ocr", key="u").allowed


def test_options_of_the_url_that_nobody_takes(service: Service) -> None:
    with pytest.raises(ValueError, match="the url has an option, after its `.`, that redis-py does not take"):
        Weir.connect(f"{service.url}?colour=red")


def test_what_is_protected_keeps_its_weir(service: Service, key: str) -> None:
    def protected() -> List[Any]:
        weirs = [Weir.connect(service.url, deadline=AMPLE_S), Weir.open(rules_text=RULES, cells_keys=1000)]
        return [detect(weir, "ocr", key="user")(lambda user: weakref.ref(weir)) for weir in weirs]

    functions = protected()
    gc.collect()
    assert all(function(key)() is not None for function in functions)


def test_a_fork_while_the_thread_that_polls_goes_to_sleep(store: Redis) -> None:
    """It holds a lock for that, which a child could wait for without end."""
    with Weir.open(rules_text=RULES, counters=store.url, deadline=10, cells_keys=1000) as weir:

        def close() -> bool:
            weir.close()
            return True

        with weir._stop._cond:
            assert in_child(close)
        assert weir.check(event="wide", key="fork").allowed


def test_close_just_before_a_coroutine_asks(store: Redis, monkeypatch: Any) -> None:
    weir = Weir.open(rules_text=RULES, counters=store.url, deadline=10, cells_keys=1000)

    async def ask() -> None:
        loop = asyncio.get_running_loop()
        run = loop.run_in_executor

        def close_and_run(*what: Any) -> Any:
            weir.close()
            return run(*what)

        monkeypatch.setattr(loop, "run_in_executor", close_and_run)
        with pytest.raises(WeirError, match="this Weir is closed"):
            await weir.acheck(event="wide", key="u")

    asyncio.run(ask())


PROGRAM = """
import asyncio, sys, threading, warnings
warnings.simplefilter("ignore", ResourceWarning)  # of a loop that nobody closes
from weir import Weir, detect

rules, cells, url, store = sys.argv[1:]
weirs = [Weir.open(rules=rules, cells=cells), Weir.open(rules=rules, counters=store, cells_keys=1000)]
weirs.append(Weir.connect(url, deadline=30))
loop = asyncio.new_event_loop()
for weir in weirs:
    assert detect(weir, "wide", key="user")(lambda user: True)("u")
    assert loop.run_until_complete(weir.acheck(event="wide", key="u")).allowed

def ask_for_ever(weir):
    while True:
        weir.check(event="wide", key="u")

for weir in weirs:
    threading.Thread(target=ask_for_ever, args=(weir,), daemon=True).start()
print("ends")
"""


def test_a_program_ends_without_closing_anything(service: Service, store: Redis, tmp_path: Path) -> None:
    write(tmp_path / "rules.yaml", RULES)
    files = [str(tmp_path / name) for name in ("rules.yaml", "cells")]
    command = [sys.executable, "-c", PROGRAM, *files, service.url, store.url]
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, timeout=AMPLE_S)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")
