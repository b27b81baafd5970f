"""What a request holds, and how that ends: settled, cancelled, released, or by itself after its time to live."""

from __future__ import annotations

import asyncio
from logging import getLogger
from types import TracebackType
from typing import TYPE_CHECKING, Any, Coroutine, Mapping, Optional, Set, Tuple, Type, Union

from ._request import REQUESTS, Request, costs_by_unit, whole_cost
from ._verdict import TooFrequent, Verdict

if TYPE_CHECKING:
    from ._base import Weir

log = getLogger("weir")

#: The true amounts: in requests, and in other units. None, and a unit that is not named: what was held.
Amounts = Tuple[Optional[int], Tuple[Tuple[str, int], ...]]
AS_HELD: Amounts = (None, ())
NOTHING: Amounts = (0, ())  # gives back all units

_ending: Set[asyncio.Task[int]] = set()  # an event loop has only weak references to its tasks


def held_text(what: Union[Verdict, str]) -> Optional[str]:
    """The hold, or the receipt, of a verdict."""
    return what if isinstance(what, str) else what.hold or what.receipt


def true_amounts(cost: Optional[int], costs: Optional[Mapping[str, int]]) -> Amounts:
    if costs is None:
        return AS_HELD if cost is None else (whole_cost(cost), ())
    if cost is not None:
        raise ValueError(f"cost and costs cannot be combined; write costs={{'{REQUESTS}': {cost}, ...}}")
    requests, others = costs_by_unit(costs)
    return requests if REQUESTS in costs else None, others


def may_hold(receipt: str) -> bool:
    """Whether a receipt that the service sent has slots to release. It is asked only of a `refundable` request, whose reply
    does not say; where the text has another form than the one that is known here, it may."""
    known = receipt.startswith("03") and len(receipt) > 64
    return not known or any(digit != "0" for digit in receipt[8:16] + receipt[48:64])


async def shielded(work: Coroutine[Any, Any, int]) -> int:
    """A hold ends although the task that had it is being cancelled, perhaps more than once."""
    task = asyncio.ensure_future(work)
    _ending.add(task)
    task.add_done_callback(_ending.discard)
    return await asyncio.shield(task)


class Hold:
    """What `with weir.reserve(...)` yields. The first of settle and cancel ends it; later ones return 0."""

    def __init__(self, weir: Weir, verdict: Verdict) -> None:
        self.weir, self.verdict = weir, verdict
        self._open = True

    def settle(self, cost: Optional[int] = None, costs: Optional[Mapping[str, int]] = None) -> int:
        """Says the true amounts: `cost` in requests, or `costs` by unit. A unit that is not named keeps what was held. More
        than was held is charged, too. Returns the number of limits that were settled."""
        amounts = true_amounts(cost, costs)
        return self.weir._settle(self.verdict, amounts) if self._first() else 0

    def cancel(self) -> int:
        """Gives back everything."""
        return self.weir._settle(self.verdict, NOTHING) if self._first() else 0

    def renew(self, ttl: float) -> int:
        """The hold lasts for `ttl` seconds from now on. Returns the number of limits that still hold: 0 if it is over."""
        return self.weir.renew(self.verdict, ttl) if self._open else 0

    def _first(self) -> bool:
        was, self._open = self._open, False
        return was


class AsyncHold(Hold):
    """The same, from `async with`: its methods are coroutines."""

    async def settle(  # type: ignore[override]
        self, cost: Optional[int] = None, costs: Optional[Mapping[str, int]] = None
    ) -> int:
        amounts = true_amounts(cost, costs)
        return await shielded(self.weir._settle_async(self.verdict, amounts)) if self._first() else 0

    async def cancel(self) -> int:  # type: ignore[override]
        return await shielded(self.weir._settle_async(self.verdict, NOTHING)) if self._first() else 0

    async def renew(self, ttl: float) -> int:  # type: ignore[override]
        return await self.weir.arenew(self.verdict, ttl) if self._open else 0


class Reservation:
    """Asks when it is entered. What the body did not settle is cancelled if it raises, and stays as it was held if not."""

    def __init__(self, weir: Weir, request: Request) -> None:
        self.weir, self.request = weir, request

    def __enter__(self) -> Hold:
        self.hold = Hold(self.weir, passed(self.weir._ask(self.request)))
        return self.hold

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.hold.cancel() if kind else self.hold.settle()
        except Exception:  # the work is done, or the caller is to see why it is not
            log.exception("a hold could not be settled; it ends after its time to live")

    async def __aenter__(self) -> AsyncHold:
        self.async_hold = AsyncHold(self.weir, passed(await self.weir._ask_async(self.request)))
        return self.async_hold

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            await (self.async_hold.cancel() if kind else self.async_hold.settle())
        except Exception:
            log.exception("a hold could not be settled; it ends after its time to live")


def passed(verdict: Verdict) -> Verdict:
    if not verdict.allowed:
        raise TooFrequent(verdict)
    return verdict


# ---- of a call or a request: what the decorator and the middleware end ----


def leave(weir: Weir, verdict: Optional[Verdict], what: str, *, refund: bool = False) -> None:
    """Frees slots, or gives back everything. The caller is to see how the call ended, so that nothing is raised."""
    if verdict is None or not (verdict.hold or (refund and verdict.receipt)):
        return
    try:
        weir._settle(verdict, NOTHING if refund else AS_HELD)
    except Exception:
        log.exception("a charge for %s could not be given back" if refund else "a hold for %s could not be released", what)


async def leave_async(weir: Weir, verdict: Optional[Verdict], what: str, *, refund: bool = False) -> None:
    if verdict is None or not (verdict.hold or (refund and verdict.receipt)):
        return
    try:
        await shielded(weir._settle_async(verdict, NOTHING if refund else AS_HELD))
    except Exception:
        log.exception("a charge for %s could not be given back" if refund else "a hold for %s could not be released", what)
