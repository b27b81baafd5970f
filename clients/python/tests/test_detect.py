"""The decorator, in both forms."""

from __future__ import annotations

import asyncio
import enum
import functools
import uuid
from typing import Any, List

import pytest

from weir import TooFrequent, Weir, detect


def calls_until_refused(call: Any) -> int:
    for count in range(10):
        try:
            call()
        except TooFrequent as error:
            assert not error.verdict.allowed and error.verdict.rule == "ocr"
            return count
    raise AssertionError("never refused")


def test_a_parameter_by_name(weir: Weir, key: str) -> None:
    @detect(weir, "ocr", key="user_id")
    def submit(image: str, user_id: str, *, size: int = 1) -> str:
        """Does it."""
        return f"{user_id} {image} {size}"

    assert submit.__name__ == "submit" and submit.__doc__ == "Does it."
    assert submit("a.png", key) == f"{key} a.png 1"
    assert submit(user_id=key, image="b.png", size=2) == f"{key} b.png 2"
    with pytest.raises(TooFrequent):
        submit("c.png", key)


def test_keyword_only_default_and_missing(weir: Weir, key: str) -> None:
    @detect(weir, "ocr", key="who")
    def by_default(*, who: str = key) -> None: ...

    assert calls_until_refused(by_default) == 2

    @detect(weir, "ocr", key="who")
    def must(who: str) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'who'"):
        must()  # type: ignore[call-arg]


def test_a_function_of_the_arguments(weir: Weir, key: str) -> None:
    @detect(weir, "ocr", key=lambda user, *rest, **more: user["id"])
    def submit(user: Any, *images: str, size: int = 1) -> int:
        return len(images)

    assert submit({"id": key}, "a", "b", size=2) == 2
    assert calls_until_refused(lambda: submit({"id": key})) == 1


def test_methods(weir: Weir, key: str) -> None:
    class Ocr:
        @detect(weir, "ocr", key="user")
        def submit(self, user: str) -> Any:
            return self

        @classmethod
        @detect(weir, "ocr", key="user")
        def make(cls, user: str) -> Any:
            return cls

        @staticmethod
        @detect(weir, "ocr", key="user")
        def plain(user: str) -> str:
            return user

    ocr = Ocr()
    assert ocr.submit(key) is ocr and Ocr.make(user=key) is Ocr
    with pytest.raises(TooFrequent):
        Ocr.plain(key)


class Number(int, enum.Enum):
    ONE = 7


def test_an_enum_is_its_number(local: Weir, remote: Weir) -> None:
    assert local.check(event="ocr", key=Number.ONE, cost=2).allowed
    assert not remote.check(event="ocr", key=7).allowed


@pytest.mark.parametrize("value", [7**30, uuid.UUID(int=5), b"\xff\0a", "a\0b", "\ud800"])
def test_values_that_are_keys(weir: Weir, key: str, value: Any) -> None:
    event = "ocr"

    @detect(weir, event, key=lambda v: v if not isinstance(v, str) else key + v)
    def submit(v: Any) -> None: ...

    if isinstance(value, int):
        value += hash(key)
    elif isinstance(value, bytes):
        value += key.encode()
    elif isinstance(value, uuid.UUID):
        value = uuid.uuid4()
    assert calls_until_refused(lambda: submit(value)) == 2


def test_cost(weir: Weir, key: str) -> None:
    @detect(weir, "ocr", key="user", cost=2)
    def twice(user: str) -> None: ...

    assert calls_until_refused(lambda: twice(key)) == 1

    @detect(weir, "ocr", key="user", cost=lambda user, pages: len(pages))
    def pages(user: str, pages: List[str]) -> None: ...

    pages(key + "p", [])
    pages(key + "p", ["a", "b"])
    with pytest.raises(TooFrequent):
        pages(key + "p", ["c"])


TOKENS = 5_000_000_000  # all that the rule has for an hour


def test_costs(weir: Weir, key: str) -> None:
    costs = {"requests": 1, "tokens": TOKENS - 1}

    @detect(weir, "llm", key="user", costs=costs)
    def fixed(user: str) -> str:
        return user

    costs["tokens"] = -1  # what was decorated stays as it is
    assert fixed(key) == key
    with pytest.raises(TooFrequent) as refused:
        fixed(key)
    verdict = refused.value.verdict
    assert (verdict.limit, verdict.max, verdict.remaining, verdict.unit) == ("tokens", TOKENS, 1, "tokens")

    @detect(weir, "llm", key="user", costs=lambda user, text: {"requests": 99, "tokens": len(text)})
    def by_text(user: str, text: str) -> str:
        return text

    with pytest.raises(TooFrequent):
        by_text(key, "ab")
    assert by_text(key, text="a") == "a"  # the refused calls were charged in no unit
    assert weir.check(event="llm", key=key, cost=0, peek=True).remaining == 0
    with pytest.raises(TooFrequent) as refused:
        by_text(key, "")
    assert (refused.value.verdict.limit, refused.value.verdict.unit) == ("calls", "requests")


def test_costs_in_coroutines(weir: Weir, key: str) -> None:
    @detect(weir, "llm", key="user", costs=lambda user, tokens: {"tokens": tokens}, refund_on_exception=True)
    async def prompt(user: str, tokens: int) -> int:
        await asyncio.sleep(0)
        return tokens

    async def run() -> None:
        assert await prompt(key, TOKENS) == TOKENS
        with pytest.raises(TooFrequent) as refused:
            await prompt(key, 1)
        assert refused.value.verdict.unit == "tokens"

    asyncio.run(run())


def test_an_exception_gives_back_all_units(weir: Weir, key: str) -> None:
    costs = {"requests": 100, "tokens": TOKENS}

    @detect(weir, "llm", key="user", costs=costs, refund_on_exception=True)
    def prompt(user: str) -> None:
        raise KeyError("no model")

    @detect(weir, "llm", key="user", costs=lambda user: costs, refund_on_exception=True)
    async def prompt_async(user: str) -> None:
        raise KeyError("no model")

    for _ in range(2):
        with pytest.raises(KeyError, match="no model"):
            prompt(key)
        with pytest.raises(KeyError, match="no model"):
            asyncio.run(prompt_async(key))
    assert weir.check(event="llm", key=key, costs=costs).allowed


def test_mistakes_in_costs_at_the_call(weir: Weir, key: str) -> None:
    ran = []

    @detect(weir, "llm", key="user", costs=lambda user, costs: costs)
    def prompt(user: str, costs: Any) -> None:
        ran.append(user)

    for costs, kind, words in (
        (None, TypeError, "costs is NoneType, and must map units to amounts, such as"),
        (3, TypeError, "costs is int, and must map units to amounts"),
        ({"tokens": 1.5}, TypeError, "the cost in tokens is float, and must be an int"),
        ({"tokens": -1}, ValueError, "the cost in tokens -1 is not between 0 and 9007199254740991"),
        ({"a b": 1}, ValueError, "the unit 'a b' is not a name of letters"),
        ({f"u{n}": 1 for n in range(17)}, ValueError, "costs in 17 units besides requests: at most 16"),
    ):
        with pytest.raises(kind, match=words):
            prompt(key, costs)
    assert not ran


def test_mistakes_at_decoration(local: Weir) -> None:
    def submit(user: str, *rest: str, **more: str) -> None: ...

    for event, arguments, function, kind, words in (
        (" \t", {"key": "user"}, submit, ValueError, "the event is blank"),
        ("", {"key": "user"}, submit, ValueError, "the event is blank"),
        ("o\0cr", {"key": "user"}, submit, ValueError, "no NUL"),
        (
            "ocr",
            {"key": "usr"},
            submit,
            ValueError,
            "has no parameter 'usr'; it has user. The key may also be a function",
        ),
        ("ocr", {"key": "rest"}, submit, ValueError, "has no parameter 'rest'"),
        ("ocr", {"key": "more"}, submit, ValueError, "has no parameter 'more'"),
        ("ocr", {"key": 5}, submit, TypeError, "key is int"),
        ("ocr", {"key": "user", "cost": -1}, submit, ValueError, "cost -1"),
        ("ocr", {"key": "user", "costs": {"tokens": -1}}, submit, ValueError, "the cost in tokens -1 is not between"),
        ("ocr", {"key": "user", "costs": {"tokens": True}}, submit, TypeError, "the cost in tokens is bool"),
        ("ocr", {"key": "user", "costs": {"": 1}}, submit, ValueError, "the unit '' is not a name of letters"),
        ("ocr", {"key": "user", "costs": ["tokens"]}, submit, TypeError, "costs is list, and must map units to amounts"),
        (
            "ocr",
            {"key": "user", "cost": 2, "costs": {"tokens": 1}},
            submit,
            ValueError,
            "cost and costs cannot be combined; name the cost in 'requests' in costs, too",
        ),
        ("ocr", {"key": "user", "cost": len, "costs": {"tokens": 1}}, submit, ValueError, "cannot be combined"),
        ("ocr", {"key": "user"}, staticmethod(submit), TypeError, "put it below @staticmethod"),
        ("ocr", {"key": "user"}, classmethod(submit), TypeError, "put it below @classmethod"),
        (None, {"key": "user"}, submit, TypeError, "the event is NoneType, and must be a str"),
        ("ocr", {"key": "user"}, passing_on(submit), ValueError, "put @detect below that decorator"),
        ("ocr", {"key": "user"}, functools.lru_cache(submit), ValueError, "put @detect below that decorator"),
    ):
        with pytest.raises(kind, match=words):
            detect(local, event, **arguments)(function)  # type: ignore[arg-type]


def passing_on(function: Any) -> Any:
    """Another decorator, which hands arguments of its own to the function."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function("someone", *args, **kwargs)

    return call


def test_a_weir_that_is_none() -> None:
    with pytest.raises(TypeError, match="weir is str; make one with Weir.connect or Weir.open"):
        detect("redis://127.0.0.1:6380", "ocr", key="user")  # type: ignore[arg-type]


def test_below_another_decorator(local: Weir, key: str) -> None:
    """And our own are no others."""

    @passing_on
    @detect(local, "wide", key="user")
    @detect(local, "ocr", key="user")
    def submit(who: str, user: str) -> None: ...

    assert calls_until_refused(lambda: submit(key)) == 2


def test_positional_only(local: Weir, key: str) -> None:
    @detect(local, "ocr", key="user")
    def submit(user: str = key, /, **more: str) -> str:
        return user

    assert submit(user="another") == key
    assert calls_until_refused(lambda: submit(user="yet another")) == 1


def test_a_call_without_the_argument_is_not_made(local: Weir) -> None:
    ran = []

    @detect(local, "ocr", key="user")
    def submit(*images: str, user: str) -> None:
        ran.append(user)

    with pytest.raises(TypeError, match="missing a required (keyword-only )?argument: 'user'"):
        submit("a.png")  # type: ignore[call-arg]
    assert not ran


def test_a_coroutine_behind_another_decorator_is_given_back(weir: Weir, key: str) -> None:
    def plain(function: Any) -> Any:
        return lambda user: function(user)

    @detect(weir, "ocr", key="user", refund_on_exception=True)
    @plain
    async def submit(user: str) -> None:
        raise KeyError

    for _ in range(3):
        with pytest.raises(KeyError):
            asyncio.run(submit(key))


def test_the_verdict_is_this_calls(local: Any, key: str, monkeypatch: Any) -> None:
    """Even if another call comes between, as by a signal's handler."""
    submit, wide = (detect(local, event, key="user")(lambda user: None) for event in ("ocr", "wide"))
    read = local._verdict
    monkeypatch.setattr(local, "_verdict", lambda *found: [wide(key), read(*found)][1])  # type: ignore[no-untyped-call]
    assert calls_until_refused(lambda: submit(key)) == 2  # type: ignore[no-untyped-call]


def test_mistakes_at_the_call(weir: Weir) -> None:
    ran = []

    @detect(weir, "ocr", key="user")
    def submit(user: Any) -> None:
        ran.append(user)

    for value, kind, words in (
        (None, ValueError, "the key for ocr is None"),
        ("", ValueError, "the key for ocr is blank"),
        (" \n", ValueError, "the key for ocr is blank"),
        (b"", ValueError, "the key for ocr is blank"),
        (object(), TypeError, "the key for ocr is object"),
        (True, TypeError, "the key for ocr is bool"),
    ):
        with pytest.raises(kind, match=words):
            submit(value)
    assert not ran


def test_coroutine_functions(weir: Weir, key: str) -> None:
    @detect(weir, "ocr", key="user")
    async def submit(user: str) -> str:
        await asyncio.sleep(0)
        return user

    async def run() -> None:
        assert asyncio.iscoroutinefunction(submit)
        assert await submit(key) == key
        assert await submit(user=key) == key
        with pytest.raises(TooFrequent):
            await submit(key)
        with pytest.raises(TypeError, match="missing a required argument"):
            await submit()  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="blank"):
            await submit(" ")

    asyncio.run(run())


def test_refund_on_exception(weir: Weir, key: str) -> None:
    @detect(weir, "ocr", key="user", cost=2, refund_on_exception=True)
    def submit(user: str, fails: bool) -> str:
        if fails:
            raise KeyError("the image is broken")
        return user

    for _ in range(3):
        with pytest.raises(KeyError, match="the image is broken"):
            submit(key, True)
    assert submit(key, False) == key
    with pytest.raises(TooFrequent):
        submit(key, False)


def test_refund_on_exception_in_coroutines(weir: Weir, key: str) -> None:
    @detect(weir, "ocr", key="user", cost=2, refund_on_exception=True)
    async def submit(user: str, fails: bool) -> str:
        await asyncio.sleep(0)
        if fails:
            raise KeyError("the image is broken")
        return user

    async def run() -> None:
        for _ in range(3):
            with pytest.raises(KeyError, match="the image is broken"):
                await submit(key, True)
        assert await submit(key, False) == key
        with pytest.raises(TooFrequent):
            await submit(key, False)

    asyncio.run(run())


def test_without_refund_an_exception_stays_charged(weir: Weir, key: str) -> None:
    @detect(weir, "ocr", key="user")
    def submit(user: str) -> None:
        raise KeyError

    for kind in (KeyError, KeyError, TooFrequent):
        with pytest.raises(kind):
            submit(key)


def test_an_inner_refusal_gives_the_outer_charge_back(weir: Weir, key: str) -> None:
    @detect(weir, "wide", key="user", refund_on_exception=True)
    @detect(weir, "ocr", key="user")
    def submit(user: str) -> None: ...

    assert calls_until_refused(lambda: submit(key)) == 2
    assert weir.check(event="wide", key=key, peek=True).remaining == 1000000 - 2


def test_threads_are_never_let_through_too_often(weir: Weir, key: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    @detect(weir, "ocr", key="user")
    def submit(user: str) -> int:
        return 1

    def ask(_: int) -> int:
        try:
            return submit(key)
        except TooFrequent as error:
            assert error.verdict.rule == "ocr"
            return 0

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(200))) == 2
