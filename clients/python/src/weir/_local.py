"""The form in this process: libweir, its rules and its table."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import weakref
from logging import getLogger
from typing import Any, Dict, Optional, Tuple, Union

from ._base import Weir
from ._library import CError, CRefusal, CRequest, CVerdict, Header, Options, Receipt, StoreStatus, Str, library
from ._request import Request
from ._verdict import Refusal, Verdict, WeirError, plain_refusal

POLL_S = 0.5
log = getLogger("weir")

# Held whenever rules are read. A fork waits for it, so that no child is born in the midst of that.
_polling = threading.Lock()
_all: weakref.WeakSet[LocalWeir] = weakref.WeakSet()


def _path(value: Union[str, os.PathLike[str], None]) -> Optional[bytes]:
    return None if value is None else os.fsencode(value)


class LocalWeir(Weir):
    def __init__(
        self,
        rules: Union[str, os.PathLike[str], None],
        rules_text: Optional[str],
        cells: Union[str, os.PathLike[str], None],
        cells_keys: int,
        counters: Optional[str],
        deadline: float,
        trusted_proxies: Optional[str],
    ) -> None:
        if (rules is None) == (rules_text is None):
            raise ValueError("give either rules, the path of a file, or rules_text")
        text = None if rules_text is None else rules_text.encode()
        self._options = Options(
            size=ctypes.sizeof(Options),
            rules_file=_path(rules),
            rules_text=text,
            rules_text_len=len(text or b""),
            cells_file=_path(cells),
            cells_keys=cells_keys,
            trusted_proxies=None if trusted_proxies is None else trusted_proxies.encode(),
            counters=None if counters is None else counters.encode(),
            store_deadline_ms=max(1, round(deadline * 1000)),
        )
        self._waits = counters is not None
        self._follows = rules is not None or self._waits
        self._slow = library(holds_gil=False)
        self._library = self._slow if self._waits else library(holds_gil=True)
        self._closed = False
        self._store_up = True
        self._handle: Optional[int] = None
        self._open()
        _all.add(self)

    def _open(self) -> int:
        """Also for the child of a fork, which cannot use the parent's connections to the store."""
        with _polling:
            if self._closed:
                raise WeirError("this Weir is closed")
            if not self._handle:
                handle, error = ctypes.c_void_p(), CError()
                if self._slow.weir_open(handle, self._options, error) < 0:
                    raise WeirError(str(error))
                self._handle = handle.value
                self._follow()
            assert self._handle
            return self._handle

    def close(self) -> None:
        with _polling:
            handle, self._handle, self._closed = self._handle, None, True
            self._stop.set()
            if handle:
                self._slow.weir_close(handle)

    # ---- rules that change ----

    def _follow(self) -> None:
        self._stop = threading.Event()
        if self._follows:
            threading.Thread(target=_poll_until, args=(self, self._stop), name="weir", daemon=True).start()

    def _poll(self) -> None:
        error = CError()
        with _polling:
            if not self._handle:
                return
            result = self._slow.weir_poll(self._handle, error)
            status = StoreStatus()
            self._slow.weir_store_status(self._handle, status)
        if result < 0:
            log.error("the rules have errors, and what is bad stays as it was: %s", error)
        elif result > 0:
            log.info("new rules are in force")
        self._tell_store(status)

    def _tell_store(self, status: StoreStatus) -> None:
        if not status.configured or bool(status.up) == self._store_up:
            return
        self._store_up = bool(status.up)
        if self._store_up:
            log.warning("the store %s answers", status.address.decode("utf-8", "replace"))
        else:
            where, why = (text.decode("utf-8", "replace") for text in (status.address, status.problem))
            log.warning("the store %s does not answer, and rules go by their on_store_failure: %s", where, why)

    def _after_fork(self) -> None:
        """The child has the table, but no thread, and must leave the parent's connections to the store alone."""
        if self._closed:
            return
        if self._waits:
            self._handle, self._stop = None, threading.Event()
        else:
            self._follow()

    # ---- decide ----

    def _decide(self, request: Request) -> Tuple[CRequest, CVerdict]:
        asked, found = _c_request(request), CVerdict()
        handle = self._handle or self._open()
        code = self._library.weir_check(handle, asked, self._library.weir_now_us(), found)
        if code < 0:
            log.error("a request could not be judged, and is refused (error %d)", code)
        return asked, found

    def _verdict(self, found: CVerdict, request: Optional[Request] = None) -> Verdict:
        receipt = self._receipt_text(found.receipt) if request and found.receipt.count else None
        applied: Dict[str, Any] = {}
        if found.applied:
            applied = {name: getattr(found, name) for name in ("max", "remaining", "reset_ms", "window_ms")}
            applied["rule"] = found.rule.decode("utf-8", "replace")
            applied["limit"] = found.limit.decode("ascii", "replace")
        return Verdict(
            found.allowed,
            retry_after_ms=found.retry_after_ms,
            status=found.status,
            unavailable=found.unavailable,
            receipt=receipt,
            _request=request if receipt else None,
            **applied,
        )

    def _receipt_text(self, receipt: Receipt) -> str:
        room = ctypes.create_string_buffer(Receipt.TEXT_MAX)
        self._library.weir_receipt_text(receipt, room, len(room))
        return room.value.decode("ascii")

    def _ask(self, request: Request) -> Verdict:
        _, found = self._decide(request)
        return self._verdict(found, request)

    async def _ask_async(self, request: Request) -> Verdict:
        return await asyncio.to_thread(self._ask, request) if self._waits else self._ask(request)

    def _detect(self, event: bytes, key: bytes) -> Optional[Verdict]:
        """The quick path: one call, whose strings end at a NUL."""
        if b"\0" in key:
            return super()._detect(event, key)
        code = self._library.weir_detect(self._handle or self._open(), event, key, None)
        if code > 0:
            return None
        if code < 0:
            log.error("a call could not be judged, and is refused (error %d)", code)
        return self._verdict(self._library.weir_last(None).contents)

    # ---- refuse ----

    def _answer(self, request: Request) -> Tuple[Verdict, Optional[Refusal]]:
        asked, found = self._decide(request)
        verdict = self._verdict(found, request)
        return verdict, None if verdict.allowed else self._refusal(asked, found, verdict)

    async def _answer_async(self, request: Request) -> Tuple[Verdict, Optional[Refusal]]:
        return await asyncio.to_thread(self._answer, request) if self._waits else self._answer(request)

    def _refusal(self, asked: CRequest, found: CVerdict, verdict: Verdict) -> Refusal:
        refusal = CRefusal()
        if self._library.weir_refuse(self._handle, asked, found, refusal) < 0:
            return plain_refusal(verdict)
        headers = [("Content-Type", refusal.content_type.octets().decode("latin-1"))]
        for header in refusal.headers[: refusal.header_count]:
            headers.append((header.name.octets().decode("latin-1"), header.value.octets().decode("latin-1")))
        return Refusal(refusal.status, headers, refusal.body.octets())

    # ---- give back ----

    def _refund(self, receipt: str, request: Request) -> int:
        text, found = receipt.encode("ascii", "replace"), Receipt()
        if self._library.weir_receipt_read(Str(text, len(text)), found) < 0:
            raise ValueError(f"{receipt!r} is no receipt")
        handle = self._handle or self._open()
        limits: int = self._library.weir_refund(handle, _c_request(request), found, self._library.weir_now_us())
        return max(0, limits)

    async def _refund_async(self, receipt: str, request: Request) -> int:
        return self._refund(receipt, request)


def _c_request(request: Request) -> CRequest:
    asked = CRequest(cost=request.cost, peek=request.peek, refundable=request.refundable)
    for name, value in request.attributes:
        setattr(asked, name, Str(value, len(value)))
    if request.headers:
        found = [Header(Str(name, len(name)), Str(value, len(value))) for name, value in request.headers]
        asked.headers = (Header * len(found))(*found)
        asked.header_count = len(found)
    return asked


def _poll_until(weir: LocalWeir, stop: threading.Event) -> None:
    while not stop.wait(POLL_S):
        weir._poll()


def _in_child() -> None:
    _polling.release()
    for weir in list(_all):
        weir._after_fork()


os.register_at_fork(before=_polling.acquire, after_in_parent=_polling.release, after_in_child=_in_child)
