"""The one interface of both forms."""

from __future__ import annotations

import abc
import os
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Mapping, Optional, Tuple, Type, TypeVar, Union

from ._hold import AS_HELD, NOTHING, Amounts, Reservation, held_text, true_amounts
from ._request import Entries, Headers, Request, Text, make_request, ttl_in_ms
from ._verdict import Refusal, Verdict, refusal_of

if TYPE_CHECKING:
    from ._local import LocalWeir
    from ._service import ServiceWeir

Self = TypeVar("Self", bound="Weir")


class Weir(abc.ABC):
    """Weir.connect asks the service, Weir.open decides in this process. Any number of threads may use one."""

    @property
    def unreachable(self) -> int:
        """Calls that were let through or refused because the service did not answer."""
        return 0

    @staticmethod
    def connect(
        url: str, *, deadline: float = 0.05, when_unreachable: Literal["allow", "refuse"] = "allow"
    ) -> ServiceWeir:
        """The service at redis://HOST:PORT, unix://PATH or redis://:TOKEN@HOST:PORT; rediss:// is over TLS. It need not run
        yet. A call that has no answer after `deadline` seconds is decided by `when_unreachable`, "allow" or "refuse"."""
        from ._service import ServiceWeir

        return ServiceWeir(url, _seconds(deadline), when_unreachable)

    @staticmethod
    def open(
        rules: Union[str, os.PathLike[str], None] = None,
        *,
        rules_text: Optional[str] = None,
        cells: Union[str, os.PathLike[str], None] = None,
        cells_keys: int = 0,
        counters: Optional[str] = None,
        deadline: float = 0.02,
        trusted_proxies: Optional[str] = None,
    ) -> LocalWeir:
        """Decides in this process, by the rules of a file, which is followed while it changes, or of a text. It counts
        together with all processes that open the same `cells` file; without one, with this process's children only.
        `counters` names a Redis that many hosts count in, and `deadline` how long to wait for it, in seconds."""
        from ._local import LocalWeir

        return LocalWeir(rules, rules_text, cells, cells_keys, counters, _seconds(deadline), trusted_proxies)

    def check(
        self,
        *,
        event: Optional[Text] = None,
        key: Optional[Text] = None,
        user: Optional[Text] = None,
        ip: Optional[str] = None,
        peer: Optional[str] = None,
        method: Optional[str] = None,
        path: Union[str, bytes, None] = None,
        host: Optional[str] = None,
        domain: Optional[Text] = None,
        headers: Optional[Headers] = None,
        descriptor: Optional[Entries] = None,
        cost: int = 1,
        costs: Optional[Mapping[str, int]] = None,
        peek: bool = False,
        refundable: bool = False,
        ttl: Optional[float] = None,
        on_expiry: Literal["release", "keep"] = "release",
    ) -> Verdict:
        """Decides, and charges what passes. `costs` names the costs of all units, such as {"requests": 1, "tokens": 1200}, in
        place of `cost`. `peek` charges nothing; `refundable` gets a receipt, for `refund`. With a `ttl`, in seconds, the charge
        is held, see `reserve`: the verdict has a `hold`, for `settle`, `renew` and `refund`."""
        return self._ask(
            make_request(
                event=event, key=key, user=user, ip=ip, peer=peer, method=method, path=path, host=host, domain=domain,
                headers=headers, descriptor=descriptor,
                cost=cost, costs=costs, peek=peek, refundable=refundable, ttl=ttl, on_expiry=on_expiry,
            )
        )  # fmt: skip

    async def acheck(
        self,
        *,
        event: Optional[Text] = None,
        key: Optional[Text] = None,
        user: Optional[Text] = None,
        ip: Optional[str] = None,
        peer: Optional[str] = None,
        method: Optional[str] = None,
        path: Union[str, bytes, None] = None,
        host: Optional[str] = None,
        domain: Optional[Text] = None,
        headers: Optional[Headers] = None,
        descriptor: Optional[Entries] = None,
        cost: int = 1,
        costs: Optional[Mapping[str, int]] = None,
        peek: bool = False,
        refundable: bool = False,
        ttl: Optional[float] = None,
        on_expiry: Literal["release", "keep"] = "release",
    ) -> Verdict:
        """The same for coroutines: it never blocks the event loop."""
        return await self._ask_async(
            make_request(
                event=event, key=key, user=user, ip=ip, peer=peer, method=method, path=path, host=host, domain=domain,
                headers=headers, descriptor=descriptor,
                cost=cost, costs=costs, peek=peek, refundable=refundable, ttl=ttl, on_expiry=on_expiry,
            )
        )  # fmt: skip

    def reserve(
        self,
        *,
        ttl: float,
        event: Optional[Text] = None,
        key: Optional[Text] = None,
        user: Optional[Text] = None,
        ip: Optional[str] = None,
        peer: Optional[str] = None,
        method: Optional[str] = None,
        path: Union[str, bytes, None] = None,
        host: Optional[str] = None,
        domain: Optional[Text] = None,
        headers: Optional[Headers] = None,
        descriptor: Optional[Entries] = None,
        cost: int = 1,
        costs: Optional[Mapping[str, int]] = None,
        on_expiry: Literal["release", "keep"] = "release",
    ) -> Reservation:
        """For `with` and `async with`: holds the costs for work whose true costs are known only later, or raises TooFrequent.
        The body settles what it is given with the true amounts. If it raises an exception, everything is given back; if it
        ends without settling, what was held stays charged. Should this process die, the hold ends after `ttl` seconds: it is
        released, or stays as a charge with on_expiry="keep"."""
        return Reservation(
            self,
            make_request(
                event=event, key=key, user=user, ip=ip, peer=peer, method=method, path=path, host=host, domain=domain,
                headers=headers, descriptor=descriptor,
                cost=cost, costs=costs, ttl=ttl, on_expiry=on_expiry,
            ),
        )  # fmt: skip

    def settle(
        self, held: Union[Verdict, str], *, cost: Optional[int] = None, costs: Optional[Mapping[str, int]] = None
    ) -> int:
        """Says what a request with a hold has truly cost: `cost` in requests, or `costs` by unit. A unit that is not named
        keeps what was held, and a cost of 0 alone gives back everything. Returns the number of limits that were settled: 0
        if that was done before. `held` is a verdict, or the text of its hold."""
        return self._settle(held, true_amounts(cost, costs))

    async def asettle(
        self, held: Union[Verdict, str], *, cost: Optional[int] = None, costs: Optional[Mapping[str, int]] = None
    ) -> int:
        return await self._settle_async(held, true_amounts(cost, costs))

    def renew(self, held: Union[Verdict, str], ttl: float) -> int:
        """The hold lasts for `ttl` seconds from now on. Returns the number of limits that still hold: 0 if it is over."""
        text, ttl_ms = held_text(held), ttl_in_ms(ttl)
        return self._renew(text, ttl_ms) if text else 0

    async def arenew(self, held: Union[Verdict, str], ttl: float) -> int:
        text, ttl_ms = held_text(held), ttl_in_ms(ttl)
        return await self._renew_async(text, ttl_ms) if text else 0

    def release(self, held: Union[Verdict, str]) -> int:
        """Frees slots of limits with `concurrent`; everything else stays charged."""
        return self._settle(held, AS_HELD)

    async def arelease(self, held: Union[Verdict, str]) -> int:
        return await self._settle_async(held, AS_HELD)

    def refund(self, charged: Union[Verdict, str]) -> int:
        """Gives back what a `refundable` request was charged, or cancels a hold. Returns the number of limits: 0 if there is
        nothing to give back (any more). `charged` is a verdict, or the text of its receipt."""
        return self._settle(charged, NOTHING)

    async def arefund(self, charged: Union[Verdict, str]) -> int:
        return await self._settle_async(charged, NOTHING)

    @abc.abstractmethod
    def close(self) -> None:
        """Calls that are under way are still decided; those after it raise WeirError."""

    async def aclose(self) -> None:
        """The same from a coroutine; closes the connections of its event loop, too."""
        self.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.aclose()

    # ---- what the forms do; of use to the decorator and the middleware ----

    #: Whether a decision may take longer than an event loop should wait.
    _waits: bool = True

    @abc.abstractmethod
    def _ask(self, request: Request) -> Verdict: ...

    @abc.abstractmethod
    async def _ask_async(self, request: Request) -> Verdict: ...

    @abc.abstractmethod
    def _end(self, held: str, amounts: Amounts) -> int: ...

    @abc.abstractmethod
    async def _end_async(self, held: str, amounts: Amounts) -> int: ...

    @abc.abstractmethod
    def _renew(self, held: str, ttl_ms: int) -> int: ...

    @abc.abstractmethod
    async def _renew_async(self, held: str, ttl_ms: int) -> int: ...

    def _settle(self, held: Union[Verdict, str], amounts: Amounts) -> int:
        text = held_text(held)
        return self._end(text, amounts) if text else 0

    async def _settle_async(self, held: Union[Verdict, str], amounts: Amounts) -> int:
        text = held_text(held)
        return await self._end_async(text, amounts) if text else 0

    def _detect(self, event: bytes, key: bytes) -> Optional[Verdict]:
        """Charges 1. The verdict if it is a refusal, or if it has a hold."""
        verdict = self._ask(Request([("event", event), ("key", key)], [], 1, False, False))
        return None if verdict.allowed and not verdict.hold else verdict

    def _answer(self, request: Request) -> Tuple[Verdict, Optional[Refusal]]:
        """The verdict and, if it is a refusal, what to tell an HTTP client."""
        verdict = self._ask(request)
        return verdict, None if verdict.allowed else refusal_of(verdict)

    async def _answer_async(self, request: Request) -> Tuple[Verdict, Optional[Refusal]]:
        verdict = await self._ask_async(request)
        return verdict, None if verdict.allowed else refusal_of(verdict)


def _seconds(deadline: float) -> float:
    if not 0 < deadline <= 3600:
        raise ValueError(f"deadline is a number of seconds above 0, and at most 3600, not {deadline}")
    return deadline
