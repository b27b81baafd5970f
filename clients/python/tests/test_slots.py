"""Limits of what is in flight: a call or a request holds its slot for as long as it runs, and on no path for longer."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any, AsyncIterator, Iterator, List

import pytest
from servers import Service, until, write

from weir import TooFrequent, Weir, WeirASGI, WeirError, WeirWSGI, detect

RULES = """
settings: { trusted_proxies: [127.0.0.0/8] }
rules:
  - id: job
    match: { event: job }
    by: [key]
    limits:
      - { name: running, concurrent: 1, ttl: 1h }
      - { name: day, algorithm: fixed_window, max: 1000, per: 24h }
  - id: page
    match: { path: /page }
    by: [user]
    limits: [ { name: running, concurrent: 1, ttl: 1h } ]
"""


@pytest.fixture(scope="module")
def slots() -> Iterator[Service]:
    try:
        Weir.open(rules_text=RULES).close()
    except WeirError as error:
        pytest.skip(f"this weir does not read limits with `concurrent`: {error}")
    service = Service()
    write(service.rules, RULES)
    with service:
        yield service


@pytest.fixture(params=["remote", "local"])
def weir(request: Any, slots: Service) -> Iterator[Weir]:
    if request.param == "remote":
        with Weir.connect(slots.url, deadline=30, when_unreachable="refuse") as remote:
            yield remote
    else:
        with Weir.open(rules=slots.rules, cells=slots.cells) as local:
            yield local


def is_free(weir: Weir, key: str) -> bool:
    return weir.check(event="job", key=key, peek=True).allowed


def test_a_check_holds_until_it_is_released(weir: Weir, key: str) -> None:
    first = weir.check(event="job", key=key)
    assert first.allowed and first.hold and first.receipt is None
    assert not weir.check(event="job", key=key).allowed and not is_free(weir, key)
    assert weir.release(first) == 2 and weir.release(first) == 0 and is_free(weir, key)
    second = weir.check(event="job", key=key, refundable=True)
    assert second.hold and second.hold == second.receipt and weir.refund(second) == 2 and is_free(weir, key)


def test_a_call(weir: Weir, key: str) -> None:
    @detect(weir, "job", key="user")
    def work(user: str, error: Any = None) -> bool:
        assert not is_free(weir, user)
        with pytest.raises(TooFrequent, match="running"):
            work(user)
        if error:
            raise error
        return True

    for error in (None, RuntimeError(), None, KeyboardInterrupt(), None):
        if error:
            with pytest.raises(type(error)):
                work(key, error)
        else:
            assert work(key)
        assert is_free(weir, key)


def test_costs_and_refunds(weir: Weir, key: str) -> None:
    @detect(weir, "job", key="user", cost=5, refund_on_exception=True)
    def work(user: str, fail: bool) -> None:
        assert not is_free(weir, user)
        if fail:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work(key, True)
    assert is_free(weir, key) and weir.check(event="job", key=key, cost=1000, peek=True).allowed
    work(key, False)
    assert is_free(weir, key)
    assert weir.check(event="job", key=key, cost=995, peek=True).allowed
    assert not weir.check(event="job", key=key, cost=996, peek=True).allowed


def test_a_coroutine(weir: Weir, key: str) -> None:
    @detect(weir, "job", key="user")
    async def work(user: str, begun: asyncio.Event, how: str) -> str:
        begun.set()
        await asyncio.sleep(600 if how == "cancel" else 0)
        if how == "fail":
            raise RuntimeError
        return how

    async def run(how: str) -> None:
        begun = asyncio.Event()
        task = asyncio.ensure_future(work(key, begun, how))
        await begun.wait()
        assert not (await weir.acheck(event="job", key=key, peek=True)).allowed
        if how == "cancel":
            task.cancel()
        try:
            assert await task == "end"
        except (RuntimeError, asyncio.CancelledError):
            assert how != "end"
        assert (await weir.acheck(event="job", key=key, peek=True)).allowed

    for how in ("end", "fail", "cancel", "end"):
        asyncio.run(run(how))


def test_a_generator(weir: Weir, key: str) -> None:
    @detect(weir, "job", key="user")
    def work(user: str) -> Iterator[int]:
        got = yield 1
        yield got or 2
        yield 3

    assert is_free(weir, key) and list(work(key)) == [1, 2, 3] and is_free(weir, key)
    closed: Any = work(key)
    assert next(closed) == 1 and not is_free(weir, key)
    with pytest.raises(TooFrequent):
        next(work(key))
    assert closed.send(7) == 7
    closed.close()
    assert is_free(weir, key)
    thrown: Any = work(key)
    next(thrown)
    with pytest.raises(RuntimeError):
        thrown.throw(RuntimeError())
    assert is_free(weir, key)
    dropped: Any = work(key)
    next(dropped)
    del dropped
    assert is_free(weir, key)


def test_an_asynchronous_generator(weir: Weir, key: str) -> None:
    inner: List[str] = []

    @detect(weir, "job", key="user")
    async def work(user: str) -> AsyncIterator[Any]:
        try:
            got = yield 1
            yield got or 2
            yield 3
        except RuntimeError:
            inner.append("caught")
            yield 4
        finally:
            inner.append("ended")

    async def free() -> bool:
        return (await weir.acheck(event="job", key=key, peek=True)).allowed

    async def run() -> None:
        assert [item async for item in work(key)] == [1, 2, 3] and await free()
        closed: Any = work(key)
        assert await closed.__anext__() == 1 and not await free()
        assert await closed.asend(7) == 7
        await closed.aclose()
        assert await free() and inner == ["ended", "ended"]
        thrown: Any = work(key)
        await thrown.__anext__()
        assert await thrown.athrow(RuntimeError()) == 4 and not await free()
        with pytest.raises(StopAsyncIteration):
            await thrown.__anext__()
        assert await free()

        async def consume(begun: asyncio.Event) -> None:
            async for _ in work(key):
                begun.set()
                await asyncio.sleep(600)

        begun = asyncio.Event()
        task = asyncio.ensure_future(consume(begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not await free():  # the loop closes a generator that nobody has any more
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_what_another_decorator_wraps(weir: Weir, key: str) -> None:
    def passing_on(function: Any) -> Any:
        @functools.wraps(function)
        def call(user: str) -> Any:
            return function(user)

        return call

    @detect(weir, "job", key=lambda user: user)
    @passing_on
    async def work(user: str) -> bool:
        return not (await weir.acheck(event="job", key=user, peek=True)).allowed

    @detect(weir, "job", key=lambda user: user)
    @passing_on
    def items(user: str) -> Iterator[bool]:
        yield not is_free(weir, user)

    async def run() -> bool:
        return bool(await work(key))

    assert asyncio.run(run()) and is_free(weir, key)
    assert list(items(key)) == [True] and is_free(weir, key)


def test_many_threads_never_run_more_than_allowed(weir: Weir, key: str) -> None:
    running, most, passed = 0, 0, 0
    lock = threading.Lock()

    @detect(weir, "job", key="user")
    def work(user: str) -> None:
        nonlocal running, most, passed
        with lock:
            running += 1
            most, passed = max(most, running), passed + 1
        with lock:
            running -= 1

    def again() -> None:
        for _ in range(50):
            try:
                work(key)
            except TooFrequent:
                pass

    threads = [threading.Thread(target=again) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1 and passed > 0 and is_free(weir, key)


# ---- middleware ----


def page_is_free(weir: Weir, user: str) -> bool:
    return weir.check(path="/page", user=user, peek=True).allowed


def scope(user: str) -> Any:
    return {"type": "http", "method": "GET", "path": "/page", "headers": [], "client": ("10.0.0.1", 5), "user": user}


def test_asgi(weir: Weir, key: str) -> None:
    async def run(app: Any) -> List[bool]:
        """Whether the slot is free after each message."""
        found: List[bool] = []

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            found.append((await weir.acheck(path="/page", user=key, peek=True)).allowed)

        protected = WeirASGI(app, weir, user=lambda scope: scope["user"])
        try:
            await protected(scope(key), receive, send)
        except (RuntimeError, asyncio.CancelledError):
            pass
        return found

    async def whole(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"1", "more_body": True})
        await send({"type": "http.response.body", "body": b"2"})
        assert (await weir.acheck(path="/page", user=key, peek=True)).allowed  # what follows is for nobody

    async def failing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError

    async def cancelled(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise asyncio.CancelledError

    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        raise TooFrequent(weir.check(path="/page", user=key, peek=True))

    for app, messages in ((whole, 3), (failing, 1), (cancelled, 1), (refusing, 2)):
        assert asyncio.run(run(app)) == [False] * messages
        assert page_is_free(weir, key)


def test_wsgi(weir: Weir, key: str) -> None:
    def environ() -> Any:
        return {"REQUEST_METHOD": "GET", "PATH_INFO": "/page", "REMOTE_ADDR": "10.0.0.1", "user": key}

    def start_response(status: str, headers: Any, *error: Any) -> Any:
        statuses.append(status)

    def listed(environ: Any, start: Any) -> Any:
        start("200 OK", [])
        return [b"1", b"2"]

    def generated(environ: Any, start: Any) -> Any:
        start("200 OK", [])
        yield b"1"
        yield b"2"

    def failing(environ: Any, start: Any) -> Any:
        raise RuntimeError

    def refusing(environ: Any, start: Any) -> Any:
        raise TooFrequent(weir.check(path="/page", user=key, peek=True))

    for app in (listed, generated):
        for items in (2, 1, 0):  # 1 and 0: the client is gone
            statuses: List[str] = []
            body: Any = WeirWSGI(app, weir, user=lambda environ: environ["user"])(environ(), start_response)
            assert not page_is_free(weir, key)
            sent = iter(body)
            assert [next(sent) for _ in range(items)] == [b"1", b"2"][:items] and not page_is_free(weir, key)
            body.close()
            assert page_is_free(weir, key) and statuses == ["200 OK"]
    with pytest.raises(RuntimeError):
        WeirWSGI(failing, weir, user=lambda environ: environ["user"])(environ(), start_response)
    assert page_is_free(weir, key)
    refused: Any = WeirWSGI(refusing, weir, user=lambda environ: environ["user"])(environ(), start_response)
    refused.close()
    assert page_is_free(weir, key)


def test_a_service_that_is_gone_when_the_call_ends(slots: Service, key: str) -> None:
    """The call is as if nothing had happened, and the slot ends with its time to live."""
    service = Service()
    write(service.rules, RULES)
    with service, Weir.connect(service.url, deadline=10) as weir:

        @detect(weir, "job", key="user")
        def work(user: str) -> bool:
            service.end()
            return True

        assert work(key)
        service.start()
        until(lambda: not weir.check(event="job", key=key, peek=True).unavailable, "the service is there again")
        assert not is_free(weir, key)
