"""Reservations: held, settled with the true amounts, renewed, cancelled, or over."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from servers import Service, free_port, until

from weir import AsyncHold, Hold, TooFrequent, Verdict, Weir, WeirError

TOKENS = 5000000000  # the limit of the rule llm


def used(weir: Weir, key: str) -> int:
    """In millions of tokens."""
    asked = TOKENS
    step = asked
    while step:
        verdict = weir.check(event="llm", key=key, costs={"tokens": asked}, peek=True)
        step //= 2
        asked += step if verdict.allowed else -step
    return round((TOKENS - asked) / 1_000_000)


COSTS = {"requests": 1, "tokens": 60_000_000}


def test_less_is_given_back(weir: Weir, key: str) -> None:
    with weir.reserve(event="llm", key=key, costs=COSTS, ttl=600) as hold:
        assert isinstance(hold, Hold) and hold.verdict.allowed and hold.verdict.hold and hold.verdict.receipt is None
        assert used(weir, key) == 60
        assert hold.settle(costs={"tokens": 25_000_000}) == 2
        assert used(weir, key) == 25
        assert not weir.check(event="llm", key=key, cost=100, peek=True).allowed  # requests keep what was held
        assert weir.check(event="llm", key=key, cost=99, peek=True).allowed
        assert (hold.settle(costs={"tokens": 1}), hold.cancel(), hold.renew(5)) == (0, 0, 0)
    assert used(weir, key) == 25


def test_more_is_owed(weir: Weir, key: str) -> None:
    with weir.reserve(event="llm", key=key, costs=COSTS, ttl=600) as hold:
        assert hold.settle(costs={"tokens": TOKENS + 1_000_000}) == 2
    with pytest.raises(TooFrequent) as refused, weir.reserve(event="llm", key=key, ttl=600):
        raise AssertionError("the body of a refused reservation must not run")
    assert (refused.value.verdict.limit, refused.value.verdict.remaining) == ("tokens", 0)


def test_what_is_not_settled_stays(weir: Weir, key: str) -> None:
    with weir.reserve(event="llm", key=key, costs=COSTS, ttl=600):
        pass
    assert used(weir, key) == 60


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, GeneratorExit])
def test_an_exception_cancels(weir: Weir, key: str, error: Any) -> None:
    with pytest.raises(error), weir.reserve(event="llm", key=key, costs=COSTS, ttl=600):
        raise error()
    assert used(weir, key) == 0


def test_settled_before_an_exception(weir: Weir, key: str) -> None:
    with pytest.raises(RuntimeError), weir.reserve(event="llm", key=key, costs=COSTS, ttl=600) as hold:
        hold.settle(costs={"tokens": 7_000_000})
        raise RuntimeError
    assert used(weir, key) == 7


def test_it_ends_by_itself_and_charges_the_truth_later(weir: Weir, key: str) -> None:
    held = weir.check(event="llm", key=key, costs=COSTS, ttl=0.001)
    until(lambda: used(weir, key) == 0, "the hold is over")
    assert weir.renew(held, 5) == 0
    assert weir.settle(held, costs={"tokens": 9_000_000}) == 2 and used(weir, key) == 9
    kept = weir.check(event="llm", key=f"{key}-kept", costs=COSTS, ttl=0.001, on_expiry="keep")
    assert used(weir, f"{key}-kept") == 60 and weir.settle(kept, costs={"tokens": 5_000_000}) == 2
    assert used(weir, f"{key}-kept") == 5


def test_renew(weir: Weir, key: str) -> None:
    with weir.reserve(event="llm", key=key, costs=COSTS, ttl=600) as hold:
        assert hold.renew(0.001) == 2
        until(lambda: used(weir, key) == 0, "the hold is over")
        assert hold.renew(600) == 0


def test_by_its_text(weir: Weir, key: str) -> None:
    held = weir.check(event="llm", key=key, costs=COSTS, ttl=600).hold
    assert held and weir.renew(held, 60) == 2 and weir.settle(held, cost=0) == 2 and weir.refund(held) == 0
    assert used(weir, key) == 0
    charged = weir.check(event="llm", key=key, costs=COSTS, refundable=True)
    assert charged.hold is None and charged.receipt and weir.refund(charged.receipt) == 2 and used(weir, key) == 0
    for call in (weir.settle, weir.refund, weir.release):
        with pytest.raises((WeirError, ValueError), match="not a.* receipt"):
            call("rubbish")


def test_nothing_to_hold(weir: Weir, key: str) -> None:
    with weir.reserve(event="nobody counts this", key=key, ttl=5) as hold:
        assert hold.verdict.hold is None and hold.renew(5) == 0 and hold.settle(cost=5) == 0
    assert weir.settle(Verdict(True), cost=1) == weir.renew(Verdict(True), 1) == weir.release(Verdict(True)) == 0


def test_mistakes(weir: Weir, key: str) -> None:
    for arguments, kind, words in (
        ({"ttl": 0}, ValueError, "ttl 0 is not a number of seconds from 0.001 to 86400"),
        ({"ttl": 86401}, ValueError, "ttl 86401"),
        ({"ttl": float("nan")}, ValueError, "ttl nan"),
        ({"ttl": "5"}, TypeError, "ttl is str"),
        ({"ttl": True}, TypeError, "ttl is bool"),
        ({"ttl": 5, "on_expiry": "kept"}, ValueError, 'on_expiry is "release" or "keep"'),
    ):
        with pytest.raises(kind, match=words):
            weir.reserve(event="llm", key=key, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="peek charges nothing"):
        weir.check(event="llm", key=key, peek=True, ttl=5)
    with weir.reserve(event="llm", key=key, costs=COSTS, ttl=600) as hold:
        with pytest.raises(ValueError, match="cannot be combined"):
            hold.settle(cost=1, costs={"tokens": 1})
        with pytest.raises(TypeError, match="the cost in tokens is float"):
            hold.settle(costs={"tokens": 1.5})  # type: ignore[dict-item]
        with pytest.raises(ValueError, match="ttl 0"):
            hold.renew(0)
        assert hold.settle(costs={"tokens": 1_000_000}) == 2  # a mistake did not end it
    assert used(weir, key) == 1


# ---- coroutines ----


def test_in_a_coroutine(weir: Weir, key: str) -> None:
    async def work() -> None:
        async with weir.reserve(event="llm", key=key, costs=COSTS, ttl=600) as hold:
            assert isinstance(hold, AsyncHold) and await hold.renew(60) == 2
            assert await hold.settle(costs={"tokens": 25_000_000}) == 2
            assert await hold.settle() == await hold.cancel() == await hold.renew(5) == 0
        with pytest.raises(RuntimeError):
            async with weir.reserve(event="llm", key=key, costs=COSTS, ttl=600):
                raise RuntimeError
        held = await weir.acheck(event="llm", key=key, costs=COSTS, ttl=600)
        assert await weir.arenew(held, 5) == 2 and await weir.asettle(held, costs={"tokens": 2_000_000}) == 2

    asyncio.run(work())
    assert used(weir, key) == 27


def test_a_cancelled_task_gives_back(weir: Weir, key: str) -> None:
    async def work(begun: asyncio.Event) -> None:
        async with weir.reserve(event="llm", key=key, costs=COSTS, ttl=600):
            begun.set()
            await asyncio.sleep(600)

    async def run() -> None:
        begun = asyncio.Event()
        task = asyncio.ensure_future(work(begun))
        await begun.wait()
        assert used(weir, key) == 60
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # once more, while it is giving back
        with pytest.raises(asyncio.CancelledError):
            await task
        while used(weir, key):
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_task_that_is_cancelled_while_it_asks_holds_nothing(weir: Weir, key: str) -> None:
    async def work() -> None:
        async with weir.reserve(event="llm", key=key, costs=COSTS, ttl=600):
            await asyncio.sleep(600)

    async def run() -> None:
        for number in range(60):
            task = asyncio.ensure_future(work())
            for _ in range(number):
                await asyncio.sleep(0)
            await asyncio.sleep(number % 20 / 10000)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        while used(weir, key):
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_cancelled_stream_settles_with_what_was_sent(weir: Weir, key: str) -> None:
    async def stream(sent: asyncio.Event) -> None:
        tokens = 0
        async with weir.reserve(event="llm", key=key, costs=COSTS, ttl=600) as hold:
            try:
                for _ in range(3):
                    tokens += 1_000_000
                sent.set()
                await asyncio.sleep(600)
            finally:
                await hold.settle(costs={"tokens": tokens})

    async def run() -> None:
        sent = asyncio.Event()
        task = asyncio.ensure_future(stream(sent))
        await sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert used(weir, key) == 3


# ---- a service that is away, a process that dies ----


def test_unreachable() -> None:
    with Weir.connect(f"redis://127.0.0.1:{free_port()}") as weir:
        with weir.reserve(event="llm", key="u", costs=COSTS, ttl=5) as hold:
            assert hold.verdict.unavailable and hold.verdict.hold is None and hold.settle(costs={"tokens": 5}) == 0

        async def work() -> None:
            async with weir.reserve(event="llm", key="u", costs=COSTS, ttl=5) as hold:
                assert await hold.renew(5) == 0
            await weir.aclose()

        asyncio.run(work())


def test_a_service_that_dies_meanwhile_keeps_the_hold() -> None:
    with Service() as service, Weir.connect(service.url, deadline=10) as weir:
        with weir.reserve(event="llm", key="u", costs=COSTS, ttl=600) as hold:
            service.end(signal.SIGKILL)
            assert hold.renew(5) == 0
        service.start()
        until(lambda: not weir.check(event="llm", key="u", peek=True).unavailable, "the service is there again")
        assert used(weir, "u") == 60  # nobody could settle it, and its time to live is not over
        assert weir.settle(hold.verdict, costs={"tokens": 8_000_000}) == 2
        assert used(weir, "u") == 8


def test_a_process_that_dies_holds_nothing_for_long(service: Service, local: Weir, key: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import os, signal, time
            from weir import Weir
            weir = Weir.open(rules={str(service.rules)!r}, cells={str(service.cells)!r})
            with weir.reserve(event="llm", key={key!r}, costs={COSTS!r}, ttl=1):
                print("held", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            """
        )
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    died = subprocess.run([sys.executable, str(program)], env=environment, stdout=subprocess.PIPE, text=True, check=False)
    assert (died.returncode, died.stdout) == (-signal.SIGKILL, "held\n")
    until(lambda: used(local, key) == 0, "the hold is over")
