"""The one interface of both forms."""

from __future__ import annotations

import abc
import os
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Mapping, Optional, Tuple, Type, TypeVar, Union

from ._request import Headers, Request, Text, make_request
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
        """The service at redis://HOST:PORT, unix://PATH or redis://:TOKEN@HOST:PORT. It need not run yet. A call that has
        no answer after `deadline` seconds is decided by `when_unreachable`, "allow" or "refuse"."""
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
        headers: Optional[Headers] = None,
        cost: int = 1,
        costs: Optional[Mapping[str, int]] = None,
        peek: bool = False,
        refundable: bool = False,
    ) -> Verdict:
        """Decides, and charges what passes. `costs` names the costs of all units, such as {"requests": 1, "tokens": 1200}, in
        place of `cost`. `peek` charges nothing; `refundable` gets a receipt, for `refund`."""
        return self._ask(
            make_request(
                event=event, key=key, user=user, ip=ip, peer=peer, method=method, path=path, host=host, headers=headers,
                cost=cost, costs=costs, peek=peek, refundable=refundable,
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
        headers: Optional[Headers] = None,
        cost: int = 1,
        costs: Optional[Mapping[str, int]] = None,
        peek: bool = False,
        refundable: bool = False,
    ) -> Verdict:
        """The same for coroutines: it never blocks the event loop."""
        return await self._ask_async(
            make_request(
                event=event, key=key, user=user, ip=ip, peer=peer, method=method, path=path, host=host, headers=headers,
                cost=cost, costs=costs, peek=peek, refundable=refundable,
            )
        )  # fmt: skip

    def refund(self, verdict: Verdict) -> int:
        """Gives back what a `refundable` request was charged. Returns to how many limits: 0 if there is nothing to give
        back (any more)."""
        charged = _charged(verdict)
        return self._refund(*charged) if charged else 0

    async def arefund(self, verdict: Verdict) -> int:
        charged = _charged(verdict)
        return await self._refund_async(*charged) if charged else 0

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
    def _refund(self, receipt: str, request: Request) -> int: ...

    @abc.abstractmethod
    async def _refund_async(self, receipt: str, request: Request) -> int: ...

    def _detect(self, event: bytes, key: bytes) -> Optional[Verdict]:
        """Charges 1. The verdict if it is a refusal."""
        verdict = self._ask(Request([("event", event), ("key", key)], [], 1, False, False))
        return None if verdict.allowed else verdict

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


def _charged(verdict: Verdict) -> Optional[Tuple[str, Request]]:
    if verdict.receipt is None or verdict._request is None:
        return None
    return verdict.receipt, verdict._request
