"""The connection of one event loop to `weir serve`."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Union

from ._deadline import CONNECTING

BATCH_MAX = 256
TURNS = 5  # of an event loop, in which what has arrived is read and handed on

Word = Union[str, bytes]


class Unreachable(Exception):
    pass


class Waiting:
    """For something that comes, or is Unreachable when the time is over. A loop that was blocked may not have read an answer
    that is there: it gets the time for that, and if it was blocked for long, all of the time once more. (With asyncio.wait
    a thousand questions at once would take a third longer.)"""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        self.loop, self.deadline = loop, deadline
        self.came: asyncio.Future[Any] = loop.create_future()
        self.was_blocked = False  # the loop, by something else
        self.start()

    def start(self) -> None:
        self.begin = time.monotonic()
        self.timer = self.loop.call_later(self.deadline, self.late, TURNS)

    def late(self, turns: int) -> None:
        if self.came.done():
            return
        if turns:
            self.loop.call_soon(self.late, turns - 1)
        elif not self.was_blocked and time.monotonic() - self.begin >= 1.2 * self.deadline:
            self.was_blocked = True
            self.start()
        else:
            self.came.set_result(Unreachable())

    def settle(self, result: Any) -> None:
        if not self.came.done():
            self.came.set_result(result)

    def end(self) -> None:
        self.timer.cancel()
        self.came.cancel()


class Asked(NamedTuple):
    words: Sequence[Word]
    waiting: Waiting


class Line:
    """What is asked while it is in use goes together in the next exchange, so that many at once take a few round trips."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        new_client: Callable[[], Any],
        deadline: float,
        heard: Callable[[Any], Any],
        undo: Callable[[Any], Optional[Sequence[Word]]],
    ) -> None:
        """`heard` is told of each answer or failure, and says what to answer, or to raise, for it; `undo` says what to ask
        when nobody waits for an answer any more."""
        self.loop, self.new_client, self.deadline, self.heard = loop, new_client, deadline, heard
        self.undo = undo
        self.client: Any = None
        self.asked: List[Asked] = []
        self.task: Optional[asyncio.Task[None]] = None

    async def ask(self, words: Sequence[Word]) -> Any:
        """Whether the service is to blame if nothing comes, the exchange tells."""
        waiting = Waiting(self.loop, self.deadline)
        self.asked.append(Asked(words, waiting))
        if self.task is None:
            self.start()
        try:
            result = await waiting.came
        except asyncio.CancelledError:
            if waiting.came.done() and not waiting.came.cancelled():
                self.leave(waiting.came.result())  # it came in the same turn of the loop
            raise
        finally:
            waiting.end()  # what has not been sent yet need not be
        if isinstance(result, Exception):
            raise result
        return result

    def leave(self, result: Any) -> None:
        """Nobody waits for it any more: what it holds would be in use until its time to live is over."""
        words = self.undo(result)
        if words:
            self.asked.append(Asked(words, Waiting(self.loop, self.deadline)))
            if self.task is None:
                self.start()

    def start(self) -> None:
        self.task = self.loop.create_task(self.run())
        self.task.add_done_callback(self.ended)

    def ended(self, _: asyncio.Task[None]) -> None:
        """Somebody may have cancelled it, even before its first step, in which it has no `finally` yet."""
        self.task = None
        if self.still_asked():
            self.start()

    def still_asked(self) -> List[Asked]:
        self.asked = [asked for asked in self.asked if not asked.waiting.came.done()]
        return self.asked

    async def run(self) -> None:
        await asyncio.sleep(0)  # in which the loop sees whether the service has closed the connection
        while self.still_asked():
            batch, self.asked = self.asked[:BATCH_MAX], self.asked[BATCH_MAX:]
            await self.exchange(batch)

    async def rest(self) -> None:
        """Until all that was asked is answered."""
        while self.task is not None:
            await asyncio.wait({self.task})

    async def exchange(self, batch: List[Asked]) -> None:
        if any(connection._reader.at_eof() for connection in self.connections()):
            self.cut()  # by the service, which redis-py 4.4 to 4.6 do not see
        # The caller does not wait longer. But a connection that takes longer to be made is there for the next one.
        patience = self.deadline if self.connections() else CONNECTING * self.deadline
        waiting = Waiting(self.loop, patience)
        self.client = self.client or self.new_client()
        pipeline = self.client.pipeline(transaction=False)
        for asked in batch:
            pipeline.execute_command(*asked.words)
        task = self.loop.create_task(pipeline.execute(raise_on_error=False))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        task.add_done_callback(waiting.settle)
        results: List[Any] = [Unreachable()] * len(batch)
        try:
            await waiting.came
            if task.done():
                results = [self.heard(result) for result in task.result()]
            elif not waiting.was_blocked:
                self.heard(TimeoutError(f"no answer within {patience:g} s"))
        except Exception as error:
            results = [self.heard(error)] * len(batch)
        finally:
            waiting.end()
            if not task.done() or task.cancelled():
                task.cancel()
                self.cut()
            for asked, result in zip(batch, results):
                if asked.waiting.came.done():
                    self.leave(result)
                asked.waiting.settle(result)

    def connections(self) -> List[Any]:
        """Those that are open. A redis-py with other names for these fields has none, and closes what is dropped itself."""
        pool = self.client.connection_pool if self.client else None
        known = (*getattr(pool, "_available_connections", ()), *getattr(pool, "_in_use_connections", ()))
        return [c for c in known if getattr(c, "_reader", None) and getattr(c, "_writer", None)]

    def cut(self) -> None:
        """At once, whatever is on its way: late answers are nobody's. A loop that is closed can close nothing itself. For
        neither redis-py has a public way."""
        connections, self.client = self.connections(), None
        for connection in connections:
            writer, connection._reader, connection._writer = connection._writer, None, None
            self.abort(writer)

    def abort(self, writer: asyncio.StreamWriter) -> None:
        if not self.loop.is_closed():
            writer.transport.abort()
            return
        plain = getattr(writer.get_extra_info("socket"), "_sock", None)
        if plain is not None:  # else uvloop has closed it
            plain.close()
