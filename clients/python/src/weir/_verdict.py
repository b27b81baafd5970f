"""What weir answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, NamedTuple, Optional, Tuple

from ._request import REQUESTS


#: Names and values.
HeaderPairs = Tuple[Tuple[str, str], ...]


class WeirError(Exception):
    """weir cannot be used: its library is missing, its rules are wrong, what answers is not weir."""


@dataclass(frozen=True)
class Verdict:
    """The fields from `rule` to `reset_ms`, `window_ms` and `unit` are None where no rule applied."""

    allowed: bool
    rule: Optional[str] = None
    limit: Optional[str] = None
    max: Optional[int] = None
    remaining: Optional[int] = None
    reset_ms: Optional[int] = None  # until the limit is as if unused
    retry_after_ms: int = 0  # 0 when allowed; -1: no wait will help
    window_ms: Optional[int] = None
    status: int = 0  # HTTP status of the refusal, 0 when allowed
    unavailable: bool = False  # nobody could decide: weir or the store of its counters does not answer
    receipt: Optional[str] = None  # of a `refundable` request that was charged
    unit: Optional[str] = None  # which `max` and `remaining` count: "requests" unless the limit has another
    hold: Optional[str] = None  # what the request holds until it is settled or released, or its time to live is over
    penalty: bool = False  # refused because the rule has refused too often before: see `penalty` of rules
    _headers: HeaderPairs = field(default=(), repr=False, compare=False)
    _refusal: Optional[Refusal] = field(default=None, repr=False, compare=False)

    def headers(self) -> List[Tuple[str, str]]:
        """The headers for the answer as weir wrote them: RateLimit-Policy, RateLimit and, when refused, Retry-After and those
        of the rule, unless the setting `headers` of the rules says otherwise."""
        return list(self._headers)


def seconds_up(ms: Optional[int]) -> int:
    return -(-ms // 1000) if ms is not None and ms > 0 else 0


class TooFrequent(Exception):
    """A protected call was refused; `verdict` says by which rule, and when to come back."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict

    def __str__(self) -> str:
        if self.verdict.unavailable:
            return "refused, since weir or the store of its counters does not answer"
        if self.verdict.rule is None and self.verdict.status == 400:
            return "refused, since the request repeats a header with different values"
        if self.verdict.rule is None:
            return "refused, since it could not be judged"
        unit = "" if self.verdict.unit in (None, REQUESTS) else f" {self.verdict.unit}"
        text = f"too frequent: rule {self.verdict.rule}, limit {self.verdict.limit} (at most {self.verdict.max}{unit})"
        wait_s = seconds_up(self.verdict.retry_after_ms)
        return f"{text}; try again in {wait_s} s" if wait_s else text


class Refusal(NamedTuple):
    """A refusal as HTTP."""

    status: int
    headers: List[Tuple[str, str]]
    body: bytes


def refusal_of(verdict: Verdict) -> Refusal:
    """The one that weir wrote; else plain words, for when nobody could ask weir."""
    if verdict._refusal is not None:
        return verdict._refusal
    judged = verdict.rule is not None and not verdict.unavailable
    body = b"Too many requests\n" if judged else b"Could not be judged; try again later\n"
    if verdict.rule is None and verdict.status == 400:
        body = b"Bad request: a header is repeated with different values\n"
    headers = [("Content-Type", "text/plain; charset=utf-8"), *verdict.headers()]
    return Refusal(verdict.status or 429, headers, body)
