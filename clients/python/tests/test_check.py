"""The call, the same in both forms."""

from __future__ import annotations

import asyncio
import copy
import ipaddress
import pickle
import uuid
from typing import Any, Tuple

import pytest

from weir import TooFrequent, Verdict, Weir, detect

DAY_MS, HOUR_MS = 24 * 3600 * 1000, 3600 * 1000


def test_allowed_then_refused(weir: Weir, key: str) -> None:
    first = weir.check(event="ocr", key=key)
    assert first.allowed and first.status == 0 and first.retry_after_ms == 0
    assert (first.rule, first.limit, first.max, first.remaining, first.unit) == ("ocr", "hour", 2, 1, "requests")
    assert first.window_ms == HOUR_MS and first.reset_ms is not None and 0 < first.reset_ms <= HOUR_MS
    assert weir.check(event="ocr", key=key).allowed
    refused = weir.check(event="ocr", key=key)
    assert not refused.allowed and refused.status == 429 and not refused.unavailable
    assert refused.remaining == 0 and 0 < refused.retry_after_ms <= HOUR_MS


def test_penalty(weir: Weir, key: str) -> None:
    found = [weir.check(event="strict", key=key) for _ in range(4)]
    assert [verdict.allowed for verdict in found] == [True, False, False, False]
    assert [verdict.penalty for verdict in found] == [False, False, True, True]
    assert found[3].rule == "strict" and found[3].unit == "requests" and 59 * 60_000 < found[3].retry_after_ms <= HOUR_MS


def test_coroutines(weir: Weir, key: str) -> None:
    async def ask() -> Any:
        found = [await weir.acheck(event="ocr", key=key) for _ in range(3)]
        return [verdict.allowed for verdict in found]

    assert asyncio.run(ask()) == [True, True, False]
    assert asyncio.run(ask()) == [False, False, False]  # another event loop


def test_many_coroutines_at_once_get_their_own_answers(weir: Weir, key: str) -> None:
    async def ask() -> Any:
        found = await asyncio.gather(*(weir.acheck(event="ocr", key=f"{key}-{i}", cost=i % 3) for i in range(300)))
        return [verdict.remaining for verdict in found]

    assert asyncio.run(ask()) == [2 - i % 3 for i in range(300)]


def test_no_rule(weir: Weir, key: str) -> None:
    verdict = weir.check(event="nobody-limits-this", key=key)
    assert verdict == Verdict(allowed=True)
    assert verdict.headers() == []


def test_a_header_twice(weir: Weir, key: str) -> None:
    pairs = [("X-Tenant", key), ("x-tenant", "junk")]
    refused = weir.check(method="POST", host="api.example.com", headers=pairs)
    assert refused == Verdict(allowed=False, status=400, retry_after_ms=-1)
    assert "repeats a header" in str(TooFrequent(refused)) and refused.headers() == []
    same = [("X-Tenant", key), ("x-tenant", f"\t{key} ")]
    assert weir.check(method="POST", host="api.example.com", headers=same).rule == "by-tenant"


def test_standard_headers(weir: Weir, key: str) -> None:
    assert weir.check(event="ocr", key=key).headers() == [
        ("RateLimit-Policy", '"ocr/day";q=5;w=86400, "ocr/hour";q=2;w=3600'),
        ("RateLimit", '"ocr/hour";r=1;t=3600, "ocr/day";r=4;t=86400'),
    ]
    weir.check(event="ocr", key=key)
    headers = dict(weir.check(event="ocr", key=key).headers())
    assert headers["RateLimit"].startswith('"ocr/hour";r=0;t=') and 0 < int(headers["Retry-After"]) <= 3600
    never = weir.check(event="ocr", key=key, cost=3)
    assert never.retry_after_ms == -1 and "Retry-After" not in dict(never.headers())


def test_headers_are_kept_with_the_verdict(weir: Weir, key: str) -> None:
    verdict = weir.check(event="ocr", key=key, cost=3)
    assert pickle.loads(pickle.dumps(verdict)).headers() == copy.deepcopy(verdict).headers() == verdict.headers() != []
    assert dict(verdict.headers())["RateLimit-Policy"] == '"ocr/day";q=5;w=86400, "ocr/hour";q=2;w=3600'
    guarded = detect(weir, "ocr", key="user")(lambda user: True)
    with pytest.raises(TooFrequent) as refused:
        for _ in range(3):
            guarded(key)
    found = dict(refused.value.verdict.headers())
    assert found["RateLimit-Policy"].endswith('"ocr/hour";q=2;w=3600') and found["RateLimit"].startswith('"ocr/hour";r=0;t=')


def test_seconds_are_rounded_up() -> None:
    verdict = Verdict(False, "r", "l", 5, 0, reset_ms=1, retry_after_ms=1001, window_ms=999, status=429)
    assert "try again in 2 s" in str(TooFrequent(verdict)) and verdict.headers() == []


def test_peek_and_cost(weir: Weir, key: str) -> None:
    assert weir.check(event="ocr", key=key, cost=2, peek=True).allowed
    assert weir.check(event="ocr", key=key, cost=2).remaining == 0
    assert not weir.check(event="ocr", key=key, peek=True).allowed
    assert weir.check(event="ocr", key=key, cost=0).allowed


def test_what_is_used_up_in_one_form_is_used_up_in_the_other(remote: Weir, local: Weir, key: str) -> None:
    assert remote.check(event="ocr", key=key).remaining == 1
    assert local.check(event="ocr", key=key).remaining == 0
    assert not remote.check(event="ocr", key=key).allowed
    assert not local.check(event="ocr", key=key).allowed


@pytest.mark.parametrize("other", ["{}\0b", "{}\0", "\0{}", "{}\ud800", "{}\udcff", "{}é", "{}\U0001f600", "{} "])
def test_any_text_is_a_subject_of_its_own(weir: Weir, key: str, other: str) -> None:
    assert weir.check(event="ocr", key=key, cost=2).allowed
    for _ in range(2):
        assert weir.check(event="ocr", key=other.format(key)).allowed
    assert not weir.check(event="ocr", key=other.format(key)).allowed


def test_both_forms_mean_the_same_subject(remote: Weir, local: Weir, key: str) -> None:
    number = uuid.uuid4()
    texts: Tuple[Any, ...] = (f"{key}\0\ud800é", key.encode() + b"\xff\0", number.int, number)
    for text in texts:
        assert remote.check(event="ocr", key=text, cost=2).allowed
        assert not local.check(event="ocr", key=text).allowed
    assert not local.check(event="ocr", key=str(number)).allowed


def test_attributes_of_http(weir: Weir, key: str, address: str) -> None:
    for ask in (
        {"path": "/%70age?x=1", "ip": address, "cost": 2},
        {"path": b"/mine", "user": key},
        {"method": "POST", "host": "api.example.com", "headers": {b"x-tenant": key.encode() + b"-b"}},
        {"method": "POST", "host": "API.example.com:80", "headers": {"x-tenant": key}},
        {
            "path": "/page",
            "peer": "127.0.0.1",
            "headers": [(b"X-Forwarded-For", address.replace("10.1.", "10.2."))],
            "cost": 2,
        },
    ):
        assert weir.check(**ask).allowed, ask  # type: ignore[arg-type]
        refused = weir.check(**ask)  # type: ignore[arg-type]
        assert not refused.allowed and refused.rule in ("page", "by-user", "by-tenant"), ask
    assert weir.check(path="/page", ip="2001:db8::1").rule == "page"


def test_descriptors(weir: Weir, key: str) -> None:
    def ask(*entries: Tuple[str, Any]) -> Tuple[bool, Any]:
        verdict = weir.check(domain="edge", descriptor=entries)
        return verdict.allowed, verdict.rule

    assert [ask(("plan", "free"), ("user", key)) for _ in range(2)] == [(True, "descriptors"), (False, "descriptors")]
    assert ask(("user", key), ("plan", "free")) == (True, None)  # another order
    assert ask(("plan", "free"), ("user", f" {key}")) == (True, "descriptors")
    assert ask(("plan", ""), ("user", f"{key}-2"))[1] is None
    first = weir.check(domain="edge", descriptor={"plan": "free", "user": 17 + hash(key)})
    assert first.rule == "descriptors"
    assert weir.check(domain="edge").rule is None


def test_mistakes(weir: Weir, key: str) -> None:
    for wrong, kind, words in (
        ({"ip": "10.0.0.1, 10.0.0.2"}, ValueError, "X-Forwarded-For"),
        ({"peer": "fe80::1%eth0"}, ValueError, "peer 'fe80::1%eth0' is not one IPv4 or IPv6 address"),
        ({"key": object()}, TypeError, "key is object, and must be a str, bytes, int or UUID"),
        ({"key": True}, TypeError, "key is bool"),
        ({"cost": -1}, ValueError, "cost -1 is not between 0 and 9007199254740991"),
        ({"cost": 2**53}, ValueError, "not between"),
        ({"cost": 1.5}, TypeError, "cost is float"),
        ({"headers": [("X", "y")] * 101}, ValueError, "101 headers are too many"),
        ({"headers": {"": "y"}}, ValueError, "a header without a name"),
        ({"descriptor": [("k", "v")] * 257}, ValueError, "257 entries are too many"),
        ({"descriptor": {"": "v"}}, ValueError, "an entry without a key"),
        ({"descriptor": {"k": None}}, TypeError, "the value of an entry is NoneType"),
        ({"ip": ipaddress.ip_address("10.0.0.1")}, TypeError, "ip is IPv4Address, and must be a str"),
    ):
        with pytest.raises(kind, match=words):
            weir.check(**wrong)  # type: ignore[arg-type]


def test_costs_by_unit(weir: Weir, key: str) -> None:
    assert weir.check(event="llm", key=key, costs={"requests": 1, "tokens": 4999999998}).remaining == 2
    refused = weir.check(event="llm", key=key, costs={"requests": 1, "tokens": 3})
    assert (refused.allowed, refused.limit, refused.max, refused.remaining) == (False, "tokens", 5000000000, 2)
    assert refused.unit == "tokens"
    assert str(TooFrequent(refused)).startswith("too frequent: rule llm, limit tokens (at most 5000000000 tokens); try")
    assert weir.check(event="llm", key=key, costs={"tokens": 2}).allowed
    assert weir.check(event="llm", key=key, cost=99).allowed
    refused = weir.check(event="llm", key=key)
    assert (refused.allowed, refused.limit, refused.unit) == (False, "calls", "requests")
    assert weir.check(event="llm", key=key, costs={}).allowed
    for wrong in ({"a b": 1}, {"tokens": -1}, {f"u{n}": 1 for n in range(17)}):
        with pytest.raises(ValueError):
            weir.check(event="llm", key=key, costs=wrong)
    with pytest.raises(ValueError, match="cannot be combined"):
        weir.check(event="llm", key=key, cost=2, costs={"tokens": 1})
    with pytest.raises(TypeError, match="the cost in tokens is float, and must be an int"):
        weir.check(event="llm", key=key, costs={"tokens": 1.5})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="costs is list, and must map units to amounts"):
        weir.check(event="llm", key=key, costs=[1])  # type: ignore[arg-type]


def test_refund(weir: Weir, key: str) -> None:
    assert weir.check(event="ocr", key=key).receipt is None
    charged = weir.check(event="ocr", key=key, refundable=True)
    assert charged.receipt and int(charged.receipt, 16) > 0
    refused = weir.check(event="ocr", key=key, refundable=True)
    assert not refused.allowed and refused.receipt is None and weir.refund(refused) == 0
    assert weir.refund(pickle.loads(pickle.dumps(charged))) == 2
    assert weir.refund(charged) == 0  # used before
    assert weir.check(event="ocr", key=key).allowed


def test_refund_of_a_cost_in_a_coroutine(weir: Weir, key: str) -> None:
    async def ask() -> int:
        given_back = await weir.arefund(await weir.acheck(event="ocr", key=f"{key}\0", cost=2, refundable=True))
        return given_back

    assert asyncio.run(ask()) == 2
    assert weir.check(event="ocr", key=f"{key}\0").remaining == 1


def test_a_receipt_of_one_form_is_good_in_the_other(remote: Weir, local: Weir, key: str) -> None:
    assert local.refund(remote.check(event="ocr", key=key, refundable=True)) == 2
    assert remote.refund(local.check(event="ocr", key=key, refundable=True)) == 2
    assert local.check(event="ocr", key=key, peek=True).remaining == 2


def test_the_exception_travels(weir: Weir, key: str) -> None:
    weir.check(event="ocr", key=key, cost=2)
    error = pickle.loads(pickle.dumps(TooFrequent(weir.check(event="ocr", key=key))))
    assert error.verdict.rule == "ocr"
    assert str(error).startswith("too frequent: rule ocr, limit hour (at most 2); try again in 3")
