"""The form in this process: libweir, its rules and its table."""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from logging import getLogger
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar, Union

from ._base import Weir
from ._hold import Amounts
from ._library import (
    AS_HELD, CError, CHeaders, Cost, CRefusal, CRequest, CVerdict, Header, Options, OutHeader, Receipt, StoreStatus, Str, Usage,
    library,
)  # fmt: skip
from ._request import REQUESTS, Request
from ._verdict import HeaderPairs, Refusal, Verdict, WeirError, refusal_of

POLL_S = 0.5
SLICES_S = 0.001  # after which slices of a leased rule are looked for again
THREADS = 8  # in which coroutines wait for `counters`
PROBE_BYTES = 1 << 20
CELLS_KEYS = 786432  # of a table whose size nobody has given
KEY_BYTES = 48  # with its part of the room for holds
TABLE_BYTES = 8192  # and those of its keys
log = getLogger("weir")

Found = TypeVar("Found")

# Held whenever rules are read anew. A fork waits for it, so that no child is born in the midst of that.
_polling = threading.Lock()
_all: weakref.WeakSet[LocalWeir] = weakref.WeakSet()


def _path(value: Union[str, os.PathLike[str], None]) -> Optional[bytes]:
    """Whole, since the program may change its folder before a child opens it again."""
    return None if value is None else os.path.abspath(os.fsencode(value))


def _shared_memory(keys: int) -> Any:
    """For a table that is opened anew by each child of a fork, and is in no file."""
    try:
        memory = mmap.mmap(-1, TABLE_BYTES + (keys or CELLS_KEYS) * KEY_BYTES)
    except (OSError, OverflowError) as error:
        raise WeirError(f"no memory for a table of {keys} keys: {error}") from None
    return (ctypes.c_char * len(memory)).from_buffer(memory)


class Handle(ctypes.c_void_p):
    """weir's own. Who decides holds it, also by being in a call with it, and the last one to let go closes it."""

    def __init__(self, options: Options, memory: Any = None) -> None:
        super().__init__()
        self.library, self.memory, error = library(holds_gil=False), memory, CError()
        if self.library.weir_open(self, options, error) < 0:
            raise WeirError(str(error))

    def __del__(self) -> None:
        if self.value:
            self.library.weir_close(self)


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
        if cells_keys < 0:
            raise ValueError(f"cells_keys is a number of keys, not {cells_keys}")
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
        self._has_store, self._memory = counters is not None, None
        if self._has_store and cells is None:
            self._memory = _shared_memory(cells_keys)
            self._options.cells_keys, self._options.cells_memory_bytes = 0, len(self._memory)
            self._options.cells_memory = ctypes.addressof(self._memory)
        self._library = library(holds_gil=not self._has_store)
        self._closed = False
        self._store_up = True
        self._start_fresh()
        self._handle: Optional[Handle] = None
        self._open()
        _all.add(self)

    def _start_fresh(self) -> None:
        """What no child can have of its parent."""
        self._opening, self._stop = threading.RLock(), threading.Event()
        self._threads = ThreadPoolExecutor(THREADS, "weir-ask") if self._has_store else None
        self._rooms: List[Tuple[CVerdict, Receipt]] = []

    def _open(self) -> Handle:
        """Also for the child of a fork, which cannot use the parent's connections to the store."""
        with self._opening:
            if self._closed:
                raise WeirError("this Weir is closed")
            if not self._handle:
                self._handle = Handle(self._options, self._memory)
                self._waits = self._may_wait()
                self._follow()
            return self._handle

    def close(self) -> None:
        with self._opening:
            self._closed, self._handle, self._memory = True, None, None
        self._stop.set()
        if self._threads:
            self._threads.shutdown(wait=False)

    def _may_wait(self) -> bool:
        """Whether a decision may have to wait: for the store, or for slices of it that others put into the cells file. Where
        neither can be had, weir takes no rules that want them: that tells."""
        if self._has_store or not self._options.cells_file:
            return self._has_store
        probe = Options.from_buffer_copy(self._options)
        probe.cells_file, probe.cells_keys, probe.cells_bytes, probe.never_wait = None, 0, PROBE_BYTES, True
        try:
            Handle(probe)
        except WeirError:
            return True
        return False

    # ---- rules that change ----

    def _follow(self) -> None:
        if self._options.rules_file or self._has_store:
            threading.Thread(target=_poll_until, args=(weakref.ref(self), self._stop), name="weir", daemon=True).start()

    def _poll(self) -> None:
        error, status = CError(), StoreStatus()
        with _polling:
            handle = self._handle
            if not handle:
                return
            result = handle.library.weir_poll(handle, error)
            handle.library.weir_store_status(handle, status)
            if result:
                self._waits = self._may_wait()
        if result < 0:
            log.error("the rules have errors; bad rules keep their last good version: %s", error)
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
        self._start_fresh()
        handle = self._handle
        if handle and self._has_store:
            handle.value = self._handle = None
        elif handle:
            self._follow()

    # ---- decide ----

    def _ask(self, request: Request) -> Verdict:
        return self._verdict(self._decided(request), request)

    async def _ask_async(self, request: Request) -> Verdict:
        if self._has_store:
            return await self._aside(self._ask, request)
        return self._verdict(await self._decided_async(request), request)

    def _decided(self, request: Request) -> Decision:
        decision = Decision(self, request)
        while not decision.is_made():
            time.sleep(SLICES_S)
        return decision

    async def _decided_async(self, request: Request) -> Decision:
        decision = Decision(self, request)
        while not decision.is_made():
            await asyncio.sleep(SLICES_S)
        return decision

    async def _aside(self, work: Callable[[Request], Found], request: Request) -> Found:
        """In threads of our own: the loop's may be busy with the application's work."""
        try:
            found = asyncio.get_running_loop().run_in_executor(self._threads, work, request)
        except RuntimeError:  # it takes no more work
            raise WeirError("this Weir is closed") from None
        return await found

    def _detect(self, event: bytes, key: bytes) -> Optional[Verdict]:
        """The quick path: one call, whose strings end at a NUL. It has a verdict and a receipt of its own, since a signal's
        handler may make such a call amid this one."""
        if self._waits or b"\0" in key:
            return super()._detect(event, key)
        try:
            room = self._rooms.pop()
        except IndexError:  # not asked for first: another thread may take the last one in between
            room = CVerdict(), Receipt()
        found, held = room
        code = self._library.weir_detect_held(self._handle or self._open(), event, key, held, found)
        if code > 0 and not held.count:
            self._rooms.append(room)
            return None
        if code < 0:
            _tell_unjudged(code)
        asked = _c_request(Request([("event", event), ("key", key)], [], 1, False, False))
        answer = _answer(self._library, self._handle, found, asked)
        return _verdict(found, answer, hold=self._receipt_text(held) if held.count else None)

    def _verdict(self, decision: Decision, request: Request) -> Verdict:
        charged = decision.receipt
        answer = _answer(self._library, decision.handle, decision.found, decision.asked)
        if not charged.count:
            return _verdict(decision.found, answer)
        text = self._receipt_text(charged)
        return _verdict(decision.found, answer, text if request.refundable else None, text if charged.until_us > 0 else None)

    def _receipt_text(self, receipt: Receipt) -> str:
        room = ctypes.create_string_buffer(Receipt.TEXT_MAX)
        self._library.weir_receipt_text(receipt, room, len(room))
        return room.value.decode("ascii")

    # ---- refuse ----

    def _answer(self, request: Request) -> Tuple[Verdict, Optional[Refusal]]:
        return self._refused(self._decided(request), request)

    async def _answer_async(self, request: Request) -> Tuple[Verdict, Optional[Refusal]]:
        if self._has_store:
            return await self._aside(self._answer, request)
        return self._refused(await self._decided_async(request), request)

    def _refused(self, decision: Decision, request: Request) -> Tuple[Verdict, Optional[Refusal]]:
        verdict = self._verdict(decision, request)
        return verdict, None if verdict.allowed else refusal_of(verdict)

    # ---- settle: the store's answer is not waited for ----

    def _read_receipt(self, held: str) -> Receipt:
        text, found = held.encode("ascii", "replace"), Receipt()
        if self._library.weir_receipt_read(Str(text, len(text)), found) < 0:
            raise ValueError(f"{held!r} is not a hold or a receipt")
        return found

    def _end(self, held: str, amounts: Amounts) -> int:
        found, (cost, others) = self._read_receipt(held), amounts
        handle, now_us = self._handle or self._open(), self._library.weir_now_us()
        cost = AS_HELD if cost is None else cost
        limits: int = self._library.weir_settle(handle, found, cost, _c_costs(others), len(others), now_us)
        return max(0, limits)

    async def _end_async(self, held: str, amounts: Amounts) -> int:
        return self._end(held, amounts)

    def _renew(self, held: str, ttl_ms: int) -> int:
        found, handle = self._read_receipt(held), self._handle or self._open()
        limits: int = self._library.weir_renew(handle, found, ttl_ms, self._library.weir_now_us())
        return max(0, limits)

    async def _renew_async(self, held: str, ttl_ms: int) -> int:
        return self._renew(held, ttl_ms)


class Decision:
    """About one request. It may take some tries until slices of a leased rule have come."""

    def __init__(self, weir: LocalWeir, request: Request) -> None:
        self.library, self.handle = weir._library, weir._handle or weir._open()
        self.asked, self.found, self.receipt, self.usage = _c_request(request), CVerdict(), Receipt(), Usage()
        self.asked.usage = ctypes.pointer(self.usage)
        self.asked.receipt = ctypes.pointer(self.receipt)
        self.asked.if_held = not request.refundable and not request.ttl_ms
        self.until_us = self.library.weir_now_us() + weir._options.store_deadline_ms * 1000

    def is_made(self) -> bool:
        now_us = self.library.weir_now_us()
        code: int = self.library.weir_check_soon(self.handle, self.asked, now_us, self.until_us, self.found)
        if code < 0:
            _tell_unjudged(code)
        return code <= 0


def _pair(header: OutHeader) -> Tuple[str, str]:
    return header.name.octets().decode("latin-1"), header.value.octets().decode("latin-1")


#: The headers for an answer and, when refused, the whole refusal.
Answer = Tuple[HeaderPairs, Optional[Refusal]]


def _answer(library: Any, handle: Any, found: CVerdict, asked: CRequest) -> Answer:
    if not found.allowed:
        refusal = CRefusal()
        if library.weir_refuse(handle, asked, found, refusal) < 0:
            return (), None
        pairs = tuple(map(_pair, refusal.headers[: refusal.header_count]))
        kind = ("Content-Type", refusal.content_type.octets().decode("latin-1"))
        return pairs, Refusal(refusal.status, [kind, *pairs], refusal.body.octets())
    if not found.applied:
        return (), None
    headers = CHeaders()
    library.weir_headers(handle, asked, found, CHeaders.SETTING, headers)
    return tuple(map(_pair, headers.header[: headers.count])), None


def _verdict(found: CVerdict, answer: Answer, receipt: Optional[str] = None, hold: Optional[str] = None) -> Verdict:
    applied: Dict[str, Any] = {}
    if found.applied:
        applied = {name: getattr(found, name) for name in ("max", "remaining", "reset_ms", "window_ms")}
        applied["rule"] = found.rule.decode("utf-8", "replace")
        applied["limit"] = found.limit.decode("ascii", "replace")
        applied["unit"] = found.unit.decode("ascii", "replace") or REQUESTS
    return Verdict(
        found.allowed,
        retry_after_ms=found.retry_after_ms,
        status=found.status,
        unavailable=found.unavailable,
        penalty=found.penalty,
        receipt=receipt,
        hold=hold,
        _headers=answer[0],
        _refusal=answer[1],
        **applied,
    )


def _tell_unjudged(code: int) -> None:
    log.error("a request could not be judged, and is refused (error %d)", code)


def _c_request(request: Request) -> CRequest:
    asked = CRequest(cost=request.cost, peek=request.peek, ttl_ms=request.ttl_ms, keep=request.keep)
    for name, value in request.attributes:
        setattr(asked, name, Str(value, len(value)))
    if request.headers:
        asked.headers, asked.header_count = _c_pairs(request.headers), len(request.headers)
    if request.descriptor:
        asked.descriptor, asked.descriptor_count = _c_pairs(request.descriptor), len(request.descriptor)
    if request.costs:
        asked.costs, asked.cost_count = _c_costs(request.costs), len(request.costs)
    return asked


def _c_pairs(pairs: Sequence[Tuple[bytes, bytes]]) -> Any:
    return (Header * len(pairs))(*(Header(Str(name, len(name)), Str(value, len(value))) for name, value in pairs))


def _c_costs(costs: Tuple[Tuple[str, int], ...]) -> Any:
    return (Cost * len(costs))(*(Cost(Str(unit.encode(), len(unit)), amount) for unit, amount in costs))


def _poll_until(find: Callable[[], Optional[LocalWeir]], stop: threading.Event) -> None:
    """Or until nobody has it any more."""
    while not stop.wait(POLL_S):
        weir = find()
        if weir is None:
            return
        weir._poll()
        del weir


def _in_child() -> None:
    _polling.release()
    for weir in list(_all):
        weir._after_fork()


os.register_at_fork(before=_polling.acquire, after_in_parent=_polling.release, after_in_child=_in_child)
