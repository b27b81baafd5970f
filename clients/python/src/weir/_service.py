"""The form that asks `weir serve`, through redis-py."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
import time
import urllib.parse
import weakref
from logging import getLogger
from typing import Any, AsyncGenerator, Dict, List, Optional, Tuple, Union

from ._base import Weir
from ._request import Request
from ._verdict import Verdict, WeirError

log = getLogger("weir")

FAILURES_MAX = 5
PAUSE_S = 0.5
ASYNC_CONNECTIONS = 64  # of one event loop; a call that finds none free waits for one, within its deadline

PASSING = ("try again later", "WRONGPASS")  # it is overloaded; its token is being changed

Word = Union[str, bytes]

_all: weakref.WeakSet[Reach] = weakref.WeakSet()


class Unreachable(Exception):
    pass


class Reach:
    """Is there any use in asking? After some failures in a row one call in PAUSE_S tries, and the others do not wait."""

    def __init__(self, where: str, then: str) -> None:
        self.where, self.then = where, then
        self.lock = threading.Lock()
        self.failures = self.undecided = 0
        self.next_try = 0.0
        _all.add(self)

    def may_ask(self) -> bool:
        if self.failures < FAILURES_MAX:
            return True
        with self.lock:
            now = time.monotonic()
            if now < self.next_try:
                return False
            self.next_try = now + PAUSE_S
            return True

    def worked(self) -> None:
        if self.failures:
            with self.lock:
                again, self.failures = self.failures > 0, 0
            if again:
                log.warning(
                    "weir at %s answers again; %d calls were decided without it so far", self.where, self.undecided
                )

    def failed(self, why: Exception) -> None:
        with self.lock:
            first = self.failures == 0
            self.failures += 1
            self.next_try = time.monotonic() + PAUSE_S
        if first:
            log.warning("weir at %s does not answer, and calls are %s until it does: %s", self.where, self.then, why)

    def count(self) -> None:
        with self.lock:
            self.undecided += 1


class ServiceWeir(Weir):
    def __init__(self, url: str, deadline: float, when_unreachable: str) -> None:
        if when_unreachable not in ("allow", "refuse"):
            raise ValueError(f'when_unreachable is "allow" or "refuse", not {when_unreachable!r}')
        self._redis = _import("redis")
        self._url, self._deadline = url, deadline
        self._allow, self._closed = when_unreachable == "allow", False
        self._reach = Reach(_shown(url), "let through" if self._allow else "refused")
        self._pool = self._redis.ConnectionPool.from_url(url, **self._settings(self._redis.retry))
        self._client = self._redis.Redis(connection_pool=self._pool)
        self._loops: Dict[asyncio.AbstractEventLoop, Tuple[Any, AsyncGenerator[None, None]]] = {}

    @property
    def unreachable(self) -> int:
        return self._reach.undecided

    def _settings(self, retry: Any) -> Any:
        """No retries: they multiply the deadline. redis-py 4.3 knows no time for connecting to a unix socket."""
        settings = {"socket_timeout": self._deadline, "retry": retry.Retry(self._redis.backoff.NoBackoff(), 0)}
        if not self._url.startswith("unix:"):
            settings["socket_connect_timeout"] = self._deadline
        return settings

    def close(self) -> None:
        self._closed = True
        self._pool.disconnect()

    async def aclose(self) -> None:
        found = self._loops.get(asyncio.get_running_loop())
        if found is not None:
            await found[1].aclose()
        self.close()

    # ---- ask ----

    def _begin(self) -> None:
        if self._closed:
            raise WeirError("this Weir is closed")
        if not self._reach.may_ask():
            raise Unreachable

    def _call(self, *words: Word) -> Any:
        """The answer, or Unreachable."""
        self._begin()
        try:
            try:
                answer = self._client.execute_command(*words)
            except self._redis.ConnectionError:
                # It may have closed a connection that was idle, or was started anew.
                answer = self._client.execute_command(*words)
        except (self._redis.RedisError, OSError) as error:
            raise self._failure(error) from error
        self._reach.worked()
        return answer

    async def _call_async(self, *words: Word) -> Any:
        self._begin()
        task = asyncio.ensure_future(self._exchange(words))
        # Not cancelled, even if we are: an answer that comes late must be read, lest it be taken for the next one's.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        done, _ = await asyncio.wait({task}, timeout=self._deadline)
        try:
            if not done:
                raise self._redis.TimeoutError(f"no answer within {self._deadline:g} s")
            answer = task.result()
        except (self._redis.RedisError, OSError) as error:
            raise self._failure(error) from error
        self._reach.worked()
        return answer

    async def _exchange(self, words: Any) -> Any:
        client = await self._loop_client()
        try:
            return await client.execute_command(*words)
        except self._redis.ConnectionError:
            return await client.execute_command(*words)

    async def _loop_client(self) -> Any:
        """Connections belong to the event loop that opened them."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            redis = _import("redis.asyncio")
            settings = self._settings(_import("redis.asyncio.retry"))
            pool = redis.BlockingConnectionPool.from_url(
                self._url, max_connections=ASYNC_CONNECTIONS, timeout=self._deadline, **settings
            )
            found = self._loops[loop] = redis.Redis(connection_pool=pool), self._until_the_end(loop, pool)
            await found[1].__anext__()
        return found[0]

    async def _until_the_end(self, loop: asyncio.AbstractEventLoop, pool: Any) -> AsyncGenerator[None, None]:
        """A loop that ends closes the generators that have begun in it, and this one the connections."""
        try:
            yield
        finally:
            del self._loops[loop]
            await pool.disconnect()

    def _failure(self, error: Exception) -> Exception:
        """What to raise for it. Most of what weir itself says against a call, another try would not change."""
        if isinstance(error, self._redis.ResponseError) and not any(words in str(error) for words in PASSING):
            self._reach.worked()
            return WeirError(f"weir at {self._reach.where} answers: {error}")
        self._reach.failed(error)
        return Unreachable()

    def _ask(self, request: Request) -> Verdict:
        try:
            return _verdict(self._call(*_words(request)), request)
        except Unreachable:
            return self._undecided()

    async def _ask_async(self, request: Request) -> Verdict:
        try:
            return _verdict(await self._call_async(*_words(request)), request)
        except Unreachable:
            return self._undecided()

    def _undecided(self) -> Verdict:
        self._reach.count()
        return Verdict(self._allow, status=0 if self._allow else 503, unavailable=True)

    # ---- give back ----

    def _refund(self, receipt: str, request: Request) -> int:
        try:
            return int(self._call("WEIR.REFUND", receipt, *_attributes(request)))
        except Unreachable:
            return 0

    async def _refund_async(self, receipt: str, request: Request) -> int:
        try:
            return int(await self._call_async("WEIR.REFUND", receipt, *_attributes(request)))
        except Unreachable:
            return 0


def _in_child() -> None:
    """A thread that held a lock when the process forked is not there to let it go."""
    for reach in list(_all):
        reach.lock = threading.Lock()


os.register_at_fork(after_in_child=_in_child)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise WeirError(f"Weir.connect needs redis-py 4.3 or newer ({error}): pip install 'weir[redis]'") from error


def _shown(url: str) -> str:
    """Without its password."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _attributes(request: Request) -> List[Word]:
    words: List[Word] = []
    for name, value in request.attributes:
        words += (name, value)
    for header, value in request.headers:
        words += (b"header:" + header, value)
    return words


def _words(request: Request) -> List[Word]:
    command = "WEIR.PEEK" if request.peek else "WEIR.CHECK"
    words = [command, "reply", "receipt" if request.refundable else "long", *_attributes(request)]
    if request.cost != 1:
        words += ("cost", str(request.cost))
    return words


def _text(value: Optional[bytes]) -> Optional[str]:
    return None if value is None else value.decode("utf-8", "replace")


def _verdict(answer: Any, request: Request) -> Verdict:
    allowed, rule, limit, most, remaining, reset_ms, retry_after_ms, window_ms, status, unavailable, receipt = answer
    return Verdict(
        bool(allowed), _text(rule), _text(limit), most, remaining, reset_ms, retry_after_ms, window_ms, status,
        bool(unavailable), _text(receipt), request if receipt else None,
    )  # fmt: skip
