"""The form that asks `weir serve`, through redis-py. No question is sent twice: it might be charged twice."""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import threading
import time
import urllib.parse
import weakref
from logging import getLogger
from typing import Any, AsyncGenerator, Dict, List, Optional, Tuple

from ._base import Weir
from ._deadline import clock, timed
from ._hold import NOTHING, Amounts, may_hold
from ._line import Line, Unreachable, Word
from ._request import REQUESTS, Request
from ._verdict import HeaderPairs, Refusal, Verdict, WeirError

log = getLogger("weir")

FAILURES_MAX = 5
PAUSE_S = 0.5
CONNECTIONS_MAX = 2**31  # one for each thread; newer ones of redis-py have 100 by default

RECEIPT = 10  # its place in a long reply
ITEMS = 11  # of a long reply; the unit follows if it is not requests

PASSING = ("try again later", "WRONGPASS")  # it is overloaded; its token is being changed

_all: weakref.WeakSet[Reach] = weakref.WeakSet()


class Reach:
    """Is there any use in asking? After some failures in a row one call in PAUSE_S tries, and the others do not wait."""

    def __init__(self, where: str, then: str) -> None:
        self.where, self.then = where, then
        self.lock = threading.RLock()  # a signal's handler may ask amid another call
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

    def failed(self, why: str) -> None:
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
        self._redis, self._redis_async = _import("redis"), _import("redis.asyncio")
        self._url, self._deadline = url, deadline
        self._allow, self._closed = when_unreachable == "allow", False
        self._reach = Reach(_shown(url), "let through" if self._allow else "refused")
        self._pool = self._new_pool(self._redis, self._redis.retry, deadline)
        self._pool.connection_class = timed(self._pool.connection_class)
        self._pool.__class__ = _reentrant(self._pool.__class__)
        self._pool._lock = None
        self._client = self._redis.Redis(connection_pool=self._pool)
        self._loops: Dict[asyncio.AbstractEventLoop, Tuple[Line, AsyncGenerator[None, None]]] = {}

    @property
    def unreachable(self) -> int:
        return self._reach.undecided

    def _new_pool(self, redis: Any, retry: Any, timeout: Optional[float]) -> Any:
        """No retries: they multiply the deadline. The URL may have options, but none that change what we count on."""
        # With protocol 3 newer versions take a closed connection for one with data to read.
        protocol = {} if self._redis.__version__.startswith("4.") else {"protocol": 2}
        try:
            pool = redis.ConnectionPool.from_url(self._url, max_connections=CONNECTIONS_MAX, **protocol)
        except ValueError:
            # What redis-py says of it may have a part of the token.
            raise ValueError(
                "the url must look like redis://HOST:PORT, redis://:TOKEN@HOST:PORT or unix:///PATH, with special characters of "
                "the token as %2F"
            ) from None
        settings: Dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "decode_responses": False}
        if self._url.startswith("unix:"):
            del settings["socket_connect_timeout"]  # redis-py 4.3 knows none there
        settings.update(_unnamed(redis.Connection))
        pool.connection_kwargs.update(settings, **protocol, retry=retry.Retry(self._redis.backoff.NoBackoff(), 0))
        try:
            pool.connection_class(**pool.connection_kwargs)
        except (TypeError, self._redis.RedisError):
            raise ValueError("the url has an option, after its `?`, that redis-py does not take") from None
        return pool

    def close(self) -> None:
        self._closed = True
        self._drop_idle()
        self._forget_closed_loops()

    async def aclose(self) -> None:
        self._closed = True
        found = self._loops.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found[0].rest()
            await found[1].aclose()
        self.close()

    def _drop_idle(self) -> None:
        """Not those in use: their calls are still decided, and drop them afterwards."""
        self._pool.disconnect(inuse_connections=False)

    # ---- ask ----

    def _begin(self) -> None:
        if self._closed:
            raise WeirError("this Weir is closed")
        if not self._reach.may_ask():
            raise Unreachable

    def _call(self, *words: Word) -> Any:
        """The answer, or Unreachable."""
        self._begin()
        before = clock.start(self._deadline)
        try:
            answer = self._client.execute_command(*words)
        except (self._redis.RedisError, OSError, ValueError) as error:
            raise self._failure(error) from error
        except BaseException:
            # By a signal's handler, say. What is on its way must not be taken for the answer to another call.
            self._drop_idle()
            raise
        finally:
            clock.resume(*before)
            if self._closed:
                self._drop_idle()
        return self._heard(answer)

    async def _call_async(self, *words: Word) -> Any:
        self._begin()
        return await (await self._line()).ask(words)

    async def _line(self) -> Line:
        """Connections belong to the event loop that opened them."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            self._forget_closed_loops()
            line = Line(loop, self._new_async_client, self._deadline, self._heard, _undoing)
            found = self._loops[loop] = line, self._until_the_end(line)
            await found[1].__anext__()
        return found[0]

    def _new_async_client(self) -> Any:
        """Without a timeout: it would not see an answer that has arrived while the loop was blocked."""
        redis = self._redis_async
        return redis.Redis(connection_pool=self._new_pool(redis, redis.retry, None))

    async def _until_the_end(self, line: Line) -> AsyncGenerator[None, None]:
        """A loop that ends closes the generators that have begun in it, and this one the connection."""
        try:
            yield
        finally:
            self._loops.pop(line.loop, None)
            line.cut()
            await asyncio.sleep(0)

    def _forget_closed_loops(self) -> None:
        """Those that nobody has told to shut their generators down."""
        for loop in list(self._loops):
            found = self._loops.pop(loop, None) if loop.is_closed() else None
            if found is not None:
                found[0].cut()

    def _heard(self, result: Any) -> Any:
        if isinstance(result, Exception):
            return self._failure(result)
        self._reach.worked()
        return result

    def _failure(self, error: Exception) -> Exception:
        """What to raise for it. Most of what weir itself says against a call, another try would not change."""
        answers = (self._redis.ResponseError, self._redis.InvalidResponse, ValueError)
        if isinstance(error, answers) and not any(words in str(error) for words in PASSING):
            self._reach.worked()
            return WeirError(f"weir at {self._reach.where} answers: {error}")
        self._reach.failed(_reason(error))
        return Unreachable()

    def _ask(self, request: Request) -> Verdict:
        try:
            return self._verdict(self._call(*_words(request)), request)
        except Unreachable:
            return self._undecided()

    async def _ask_async(self, request: Request) -> Verdict:
        try:
            return self._verdict(await self._call_async(*_words(request)), request)
        except Unreachable:
            return self._undecided()

    def _detect(self, event: bytes, key: bytes) -> Optional[Verdict]:
        """The quick path: no verdict of what is let through and holds nothing, since nobody looks at it."""
        try:
            answer = self._call("WEIR.CHECK", "reply", "long", "answer", "refused", "event", event, "key", key)
            if _is_whole(answer) and answer[0] and answer[RECEIPT] is None:
                return None
            return self._verdict(answer)
        except Unreachable:
            verdict = self._undecided()
            return None if verdict.allowed else verdict

    def _verdict(self, answer: Any, request: Optional[Request] = None) -> Verdict:
        if not _is_whole(answer):
            raise WeirError(f"what answers at {self._reach.where} is not weir, or of another time: {answer!r:.80}")
        allowed, rule, limit, most, remaining, reset_ms, retry_after_ms, window_ms, status, unavailable, receipt = answer[:ITEMS]
        refundable = request is not None and request.refundable
        text = _text(receipt)
        hold = text if text and (not refundable or may_hold(text)) else None
        unit = _text(answer[ITEMS]) if len(answer) > ITEMS else None if rule is None else REQUESTS
        penalty = len(answer) > ITEMS + 1 and bool(answer[ITEMS + 1])
        return Verdict(
            bool(allowed), _text(rule), _text(limit), most, remaining, reset_ms, retry_after_ms, window_ms, status,
            bool(unavailable), text if refundable else None, unit, hold, penalty, *_answered(bool(allowed), status, answer),
        )  # fmt: skip

    def _undecided(self) -> Verdict:
        self._reach.count()
        return Verdict(self._allow, status=0 if self._allow else 503, unavailable=True)

    # ---- settle: what cannot be sent ends after its time to live ----

    def _end(self, held: str, amounts: Amounts) -> int:
        try:
            return int(self._call(*_settling(held, amounts)))
        except Unreachable:
            return 0

    async def _end_async(self, held: str, amounts: Amounts) -> int:
        try:
            return int(await self._call_async(*_settling(held, amounts)))
        except Unreachable:
            return 0

    def _renew(self, held: str, ttl_ms: int) -> int:
        try:
            return int(self._call("WEIR.RENEW", held, "ttl", str(ttl_ms)))
        except Unreachable:
            return 0

    async def _renew_async(self, held: str, ttl_ms: int) -> int:
        try:
            return int(await self._call_async("WEIR.RENEW", held, "ttl", str(ttl_ms)))
        except Unreachable:
            return 0


@functools.lru_cache(maxsize=None)
def _reentrant(kind: Any) -> Any:
    """redis-py's class of pools, with a lock that a signal handler of the same thread can take again, whichever class is set: 4.3
    has a plain one."""

    def renew(pool: Any, _: Any) -> None:
        pool._lock_of_weir = threading.RLock()

    return type(kind.__name__, (kind,), {"_lock": property(lambda pool: pool._lock_of_weir, renew)})


@functools.lru_cache(maxsize=None)
def _unnamed(connection: Any) -> Dict[str, None]:
    """Options with which redis-py does not tell its name, CLIENT SETINFO, when it connects: each word is a round trip."""
    for options in ({"driver_info": None}, {"lib_name": None, "lib_version": None}):
        try:
            connection(**options)
            return options
        except TypeError:  # this version does not know them
            pass
    return {}


def _in_child() -> None:
    """A thread that held a lock when the process forked is not there to let it go."""
    for reach in list(_all):
        reach.lock = threading.RLock()


os.register_at_fork(after_in_child=_in_child)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise WeirError(f"Weir.connect needs redis-py 4.3 or newer ({error}): pip install 'weir[redis]'") from error


def _reason(error: Exception) -> str:
    text = str(error)
    if "WRONGPASS" in text:
        return "its token is not the one in the url"
    if "NOAUTH" in text or "uthenticat" in text:
        return "it wants a token: redis://:TOKEN@HOST:PORT"
    if "closed by server" in text:
        return f"{text.rstrip('.')}; is this its port for Redis clients, 6380?"
    return text


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
    for key, value in request.descriptor:
        words += (b"descriptor:" + key, value)
    return words


def _settling(held: str, amounts: Amounts) -> List[Word]:
    if amounts == NOTHING:
        return ["WEIR.REFUND", held]
    words: List[Word] = ["WEIR.SETTLE", held]
    cost, others = amounts
    if cost is not None:
        words += ("cost", str(cost))
    for unit, amount in others:
        words += (f"cost:{unit}", str(amount))
    return words


def _words(request: Request) -> List[Word]:
    command = "WEIR.PEEK" if request.peek else "WEIR.RESERVE" if request.ttl_ms else "WEIR.CHECK"
    words = [command, "reply", "receipt" if request.refundable else "long", "answer", "always", *_attributes(request)]
    if request.ttl_ms:
        words += ("ttl", str(request.ttl_ms), "on_expiry", "keep" if request.keep else "release")
    if request.cost != 1 or request.costs:
        words += ("cost", str(request.cost))
    for unit, amount in request.costs:
        words += (f"cost:{unit}", str(amount))
    return words


def _answered(allowed: bool, status: int, answer: Any) -> Tuple[HeaderPairs, Optional[Refusal]]:
    """What weir would tell an HTTP client: the items after unit and penalty are a content type, a body, names and values of headers."""
    found = answer[ITEMS + 2 :]
    if len(found) < 2:
        return (), None
    kind, body = found[:2]
    texts = [item.decode("latin-1") for item in found[2:]]
    headers = tuple(zip(texts[::2], texts[1::2]))
    if allowed or kind is None:
        return headers, None
    return headers, Refusal(status, [("Content-Type", kind.decode("latin-1")), *headers], body)


def _undoing(answer: Any) -> Optional[List[Word]]:
    """What gives back a charge whose caller has gone, if the answer has a receipt."""
    text = _text(answer[RECEIPT]) if _is_whole(answer) else None
    return _settling(text, NOTHING) if text else None


def _is_whole(answer: Any) -> bool:
    return isinstance(answer, list) and len(answer) >= ITEMS


def _text(value: Optional[bytes]) -> Optional[str]:
    return None if value is None else value.decode("utf-8", "replace")
