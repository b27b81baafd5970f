"""The decorator."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any, Awaitable, Callable, List, Mapping, Optional, TypeVar, Union, cast

from ._base import Weir
from ._hold import leave, leave_async, passed
from ._request import REQUESTS, Costs, Request, Text, costs_by_unit, octets, whole_cost
from ._verdict import Verdict

Function = TypeVar("Function", bound=Callable[..., Any])
Getter = Callable[[Any, Any], Any]  # of args and kwargs
CostsGetter = Callable[[Any, Any], Costs]

ONE_REQUEST: Costs = (1, ())


def detect(
    weir: Weir,
    event: str,
    *,
    key: Union[str, Callable[..., Optional[Text]]],
    cost: Union[int, Callable[..., int]] = 1,
    costs: Union[Mapping[str, int], Callable[..., Mapping[str, int]], None] = None,
    refund_on_exception: bool = False,
) -> Callable[[Function], Function]:
    """Charges each call of a function, or raises TooFrequent instead of calling it.

    `key` says for whom it counts: the name of a parameter, or a function that is called with the same arguments. `cost` is
    a number, or such a function. `costs` names the costs of all units in place of `cost`: a mapping such as
    {"requests": 1, "tokens": 1200}, or such a function. With `refund_on_exception` a call that raises an Exception is
    given back, in all units.

    A slot of a limit with `concurrent` is held for as long as the call runs: also until a coroutine ends, and until a
    generator is exhausted or closed."""
    if not isinstance(weir, Weir):
        raise TypeError(f"detect: weir is {type(weir).__name__}; make one with Weir.connect or Weir.open")
    if not isinstance(event, str):
        raise TypeError(f"detect: the event is {type(event).__name__}, and must be a str")
    if not event.strip():
        raise ValueError("detect: the event is blank; name the one that the rules match")
    if "\0" in event:
        raise ValueError("detect: an event has no NUL")
    costs_of = _cost_getter(cost) if costs is None else _costs_getter(cost, costs)

    def protect(function: Function) -> Function:
        guard = Guard(weir, event, _key_getter(function, key), costs_of, refund_on_exception)
        return cast(Function, _wrapped(function, guard))

    return protect


class Guard:
    def __init__(
        self, weir: Weir, event: str, key_of: Getter, costs_of: Optional[CostsGetter], refundable: bool
    ) -> None:
        """Without `costs_of` a call costs one request."""
        self.weir, self.event_name, self.event = weir, event, octets(event, "event")
        self.key_of, self.costs_of, self.refundable = key_of, costs_of, refundable
        self.is_plain = costs_of is None and not refundable

    def key(self, args: Any, kwargs: Any) -> bytes:
        value = self.key_of(args, kwargs)
        if value is None:
            raise ValueError(f"detect: the key for {self.event_name} is None; it says for whom the call counts")
        key = (
            value.encode("utf-8", "surrogatepass")
            if type(value) is str
            else octets(value, f"the key for {self.event_name}")
        )
        if not key.strip():
            raise ValueError(f"detect: the key for {self.event_name} is blank; it says for whom the call counts")
        return key

    def request(self, args: Any, kwargs: Any) -> Request:
        key = self.key(args, kwargs)
        cost, others = ONE_REQUEST if self.costs_of is None else self.costs_of(args, kwargs)
        return Request([("event", self.event), ("key", key)], [], cost, False, self.refundable, others)

    def enter(self, args: Any, kwargs: Any) -> Optional[Verdict]:
        """The verdict if it has a receipt or a hold that may be needed."""
        if self.is_plain:
            found = self.weir._detect(self.event, self.key(args, kwargs))
            return None if found is None else passed(found)
        return passed(self.weir._ask(self.request(args, kwargs)))

    async def enter_async(self, args: Any, kwargs: Any) -> Optional[Verdict]:
        if not self.weir._waits:
            return self.enter(args, kwargs)
        return passed(await self.weir._ask_async(self.request(args, kwargs)))

    def leave(self, verdict: Optional[Verdict], failed: bool) -> None:
        """When the call is over: what it holds is released, or everything is given back."""
        if verdict is not None:
            leave(self.weir, verdict, self.event_name, refund=failed and self.refundable)

    async def leave_async(self, verdict: Optional[Verdict], failed: bool) -> None:
        if verdict is not None:
            await leave_async(self.weir, verdict, self.event_name, refund=failed and self.refundable)


# ---- wrappers ----


def _wrapped(function: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
    kinds = (function, type(function).__call__)
    if any(inspect.isasyncgenfunction(f) for f in kinds):
        return _guarded_async_generator(function, guard)
    if any(inspect.isgeneratorfunction(f) for f in kinds):
        return _guarded_generator(function, guard)
    if any(inspect.iscoroutinefunction(f) for f in kinds):
        return _guarded_async(function, guard)
    return _guarded(function, guard)


def _guarded(function: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
    enter = guard.enter

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        verdict = enter(args, kwargs)
        if verdict is None:
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            guard.leave(verdict, isinstance(error, Exception))
            raise
        # The result of a coroutine or generator function that another decorator wraps: the call has not begun.
        if inspect.iscoroutine(result):
            return _awaited(result, guard, verdict)
        if inspect.isgenerator(result):
            return _guarded_generator(lambda: result, Entered(guard, verdict))()
        if inspect.isasyncgen(result):
            return _guarded_async_generator(lambda: result, Entered(guard, verdict))()
        guard.leave(verdict, False)
        return result

    return guarded


def _guarded_async(function: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
    @functools.wraps(function)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        verdict = await guard.enter_async(args, kwargs)
        return await _awaited(function(*args, **kwargs), guard, verdict)

    return guarded


def _guarded_generator(function: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
    """As with any generator nothing happens before its first item is wanted: then it is charged, or too frequent."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        verdict, failed = guard.enter(args, kwargs), False
        try:
            return (yield from function(*args, **kwargs))
        except Exception:
            failed = True
            raise
        finally:
            guard.leave(verdict, failed)

    return guarded


def _guarded_async_generator(function: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
    @functools.wraps(function)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        verdict, failed = await guard.enter_async(args, kwargs), False
        items = function(*args, **kwargs)
        step = items.asend(None)
        try:
            while True:
                item = await step  # what it raises is not for itself
                try:
                    sent = yield item
                except GeneratorExit:
                    await items.aclose()
                    raise
                except BaseException as error:  # thrown in by the caller
                    step = items.athrow(error)
                else:
                    step = items.asend(sent)
        except StopAsyncIteration:
            return
        except Exception:
            failed = True
            raise
        finally:
            await guard.leave_async(verdict, failed)

    return guarded


async def _awaited(work: Awaitable[Any], guard: Guard, verdict: Optional[Verdict]) -> Any:
    try:
        result = await work
    except BaseException as error:
        await guard.leave_async(verdict, isinstance(error, Exception))
        raise
    await guard.leave_async(verdict, False)
    return result


class Entered(Guard):
    """Of a call that was charged already."""

    def __init__(self, guard: Guard, verdict: Verdict) -> None:
        self.__dict__.update(guard.__dict__)
        self.verdict = verdict

    def enter(self, args: Any, kwargs: Any) -> Optional[Verdict]:
        return self.verdict

    async def enter_async(self, args: Any, kwargs: Any) -> Optional[Verdict]:
        return self.verdict


# ---- arguments ----


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _calling(function: Callable[..., Any]) -> Getter:
    return lambda args, kwargs: function(*args, **kwargs)


def _cost_getter(cost: Union[int, Callable[..., int]]) -> Optional[CostsGetter]:
    if callable(cost):
        find = cost  # mypy does not narrow `cost` inside a lambda
        return lambda args, kwargs: (whole_cost(find(*args, **kwargs)), ())
    return _constant((whole_cost(cost), ()))


def _costs_getter(
    cost: Union[int, Callable[..., int]], costs: Union[Mapping[str, int], Callable[..., Mapping[str, int]]]
) -> Optional[CostsGetter]:
    if callable(cost) or cost != 1:
        raise ValueError(f"detect: cost and costs cannot be combined; name the cost in '{REQUESTS}' in costs, too")
    if callable(costs):
        find = costs
        return lambda args, kwargs: costs_by_unit(find(*args, **kwargs))
    return _constant(costs_by_unit(costs))


def _constant(costs: Costs) -> Optional[CostsGetter]:
    """None for one request, which has a quicker path."""
    return None if costs == ONE_REQUEST else lambda args, kwargs: costs


def _key_getter(function: Callable[..., Any], key: Union[str, Callable[..., Any]]) -> Getter:
    if isinstance(function, (classmethod, staticmethod)):
        raise TypeError(f"detect: put it below @{type(function).__name__}, next to the function")
    if not callable(function):
        raise TypeError(f"detect: {function!r} is not a function")
    if callable(key):
        return _calling(key)
    if not isinstance(key, str):
        raise TypeError(f"detect: key is {type(key).__name__}, and must be the name of a parameter, or a function")
    return _parameter_getter(function, key)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Of what is called, not of what another decorator has wrapped: it may pass on other arguments than it gets."""
    try:
        return inspect.signature(function, follow_wrapped=False)
    except ValueError:
        return inspect.Signature()  # of something in C that does not tell


def _parameter_getter(function: Callable[..., Any], name: str) -> Getter:
    while getattr(function, "__globals__", None) is globals():  # a wrapper of ours, which changes nothing
        function = function.__wrapped__  # type: ignore[attr-defined]
    signature = _signature(function)
    named = [p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    found = next((p for p in named if p.name == name), None)
    if found is None:
        raise ValueError(_no_parameter(function, name, [p.name for p in named]))
    default, is_required = found.default, found.default is found.empty
    place = sys.maxsize if found.kind is found.KEYWORD_ONLY else named.index(found)
    by_name = found.kind is not found.POSITIONAL_ONLY

    def get(args: Any, kwargs: Any) -> Any:
        if len(args) > place:
            return args[place]
        if by_name and name in kwargs:
            return kwargs[name]
        if is_required:
            return signature.bind(*args, **kwargs).arguments[name]  # says what is missing
        return default

    return get


def _no_parameter(function: Callable[..., Any], name: str, named: List[str]) -> str:
    if hasattr(function, "__wrapped__"):
        return (
            f"detect: what another decorator made of {_name(function)} has no parameter {name!r} of its own; put @detect "
            "below that decorator, next to the function, or give a function of the arguments as key"
        )
    return (
        f"detect: {_name(function)} has no parameter {name!r}; it has {', '.join(named) or 'none'}. The key may also "
        "be a function of the arguments"
    )
