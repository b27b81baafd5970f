"""The connection of one event loop to `weir serve`."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Union

BATCH_MAX = 256
TURNS = 5  # of an event loop, in which what has arrived is read and handed on

Word = Union[str, bytes]


class Unreachable(Exception):
    pass


class Wait(NamedTuple):
    is_done: bool
    was_blocked: bool  # the loop, by something else


async def patient(work: asyncio.Future[Any], deadline: float) -> Wait:
    """Waits for it. A loop that was blocked may not have read an answer that is there: it gets the time for that, and if
    it was blocked for long, all of the time once more."""
    for again in (False, True):
        begin = time.monotonic()
        await asyncio.wait({work}, timeout=deadline)
        for _ in range(TURNS):
            if work.done():
                return Wait(True, again)
            await asyncio.sleep(0)
        if time.monotonic() - begin < 1.2 * deadline:
            return Wait(work.done(), again)
    return Wait(work.done(), True)


class Asked(NamedTuple):
    words: Sequence[Word]
    answer: asyncio.Future[Any]


class Line:
    """What is asked while it is in use goes together in the next exchange, so that many at once take a few round trips."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        new_client: Callable[[], Any],
        deadline: float,
        heard: Callable[[Any], Any],
    ) -> None:
        """`heard` is told of each answer or failure, and says what to answer, or to raise, for it."""
        self.loop, self.new_client, self.deadline, self.heard = loop, new_client, deadline, heard
        self.client: Any = None
        self.asked: List[Asked] = []
        self.task: Optional[asyncio.Task[None]] = None

    async def ask(self, words: Sequence[Word]) -> Any:
        answer = self.loop.create_future()
        self.asked.append(Asked(words, answer))
        if self.task is None:
            self.task = self.loop.create_task(self.run())
        try:
            if not (await patient(answer, self.deadline)).is_done:
                raise Unreachable  # whether the service is to blame, the exchange tells
            result = answer.result()
        finally:
            answer.cancel()  # what has not been sent yet need not be
        if isinstance(result, Exception):
            raise result
        return result

    async def run(self) -> None:
        try:
            await asyncio.sleep(0)  # in which the loop sees whether the service has closed the connection
            while self.asked:
                batch, self.asked = self.asked[:BATCH_MAX], self.asked[BATCH_MAX:]
                await self.exchange([asked for asked in batch if not asked.answer.done()])
        finally:
            self.task = None

    async def exchange(self, batch: List[Asked]) -> None:
        self.client = self.client or self.new_client()
        pipeline = self.client.pipeline(transaction=False)
        for asked in batch:
            pipeline.execute_command(*asked.words)
        task = self.loop.create_task(pipeline.execute(raise_on_error=False))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        results: List[Any] = [Unreachable()] * len(batch)
        try:
            wait = await patient(task, self.deadline)
            if wait.is_done:
                results = [self.heard(result) for result in task.result()]
            elif not wait.was_blocked:
                self.heard(TimeoutError(f"no answer within {self.deadline:g} s"))
        except Exception as error:
            results = [self.heard(error)] * len(batch)
        finally:
            if not task.done():
                task.cancel()
                self.cut()
            for asked, result in zip(batch, results):
                if not asked.answer.done():
                    asked.answer.set_result(result)

    def cut(self) -> None:
        """At once, whatever is on its way: late answers are nobody's. A loop that is closed can close nothing itself."""
        if self.client is None:
            return
        pool, self.client = self.client.connection_pool, None
        for connection in (*pool._available_connections, *pool._in_use_connections):
            writer, connection._reader, connection._writer = connection._writer, None, None
            if writer is not None and not self.loop.is_closed():
                writer.transport.abort()
            elif writer is not None and hasattr(writer.get_extra_info("socket"), "_sock"):  # uvloop has closed it
                writer.get_extra_info("socket")._sock.close()
