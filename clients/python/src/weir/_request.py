"""What weir is asked about: checked and turned into bytes here, once for both forms, so that both take the same."""

from __future__ import annotations

import functools
import ipaddress
import re
import uuid
from typing import Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

Text = Union[str, bytes, int, uuid.UUID]
Entries = Union[Mapping[str, Text], Iterable[Tuple[Union[str, bytes], Text]]]
Headers = Union[Mapping[str, str], Mapping[bytes, bytes], Iterable[Tuple[Union[str, bytes], Union[str, bytes]]]]

HEADERS_MAX = 100
ENTRIES_MAX = 256
COST_MAX = 2**53 - 1
TTL_MAX_MS = 24 * 3600 * 1000
COSTS_MAX = 16  # in other units than requests
REQUESTS = "requests"
UNIT = re.compile(r"[A-Za-z0-9_.-]{1,50}")


class Request(NamedTuple):
    attributes: List[Tuple[str, bytes]]
    headers: List[Tuple[bytes, bytes]]
    cost: int
    peek: bool
    refundable: bool
    costs: Tuple[Tuple[str, int], ...] = ()  # in other units than requests
    ttl_ms: int = 0  # of a hold
    keep: bool = False  # a hold that ends by itself stays as a charge
    descriptor: Tuple[Tuple[bytes, bytes], ...] = ()


def octets(value: Text, what: str) -> bytes:
    """Any text has bytes of its own, also one with lone surrogates. Other objects are no subjects: each of them would be
    printed differently, and count for itself."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return value
    if isinstance(value, uuid.UUID):
        return str(value).encode("ascii")
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__repr__(value).encode("ascii")  # also of an Enum
    raise TypeError(f"{what} is {type(value).__name__}, and must be a str, bytes, int or UUID")


@functools.lru_cache(maxsize=4096)
def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def address(value: str, what: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{what} is {type(value).__name__}, and must be a str")
    if not is_address(value):
        raise ValueError(
            f"{what} {value!r} is not one IPv4 or IPv6 address; put a whole X-Forwarded-For into headers, and into "
            "peer the address that sent it"
        )
    return value.encode("ascii")


def whole_cost(cost: int, what: str = "cost") -> int:
    if not isinstance(cost, int) or isinstance(cost, bool):
        raise TypeError(f"{what} is {type(cost).__name__}, and must be an int")
    if not 0 <= cost <= COST_MAX:
        raise ValueError(f"{what} {cost} is not between 0 and {COST_MAX}")
    return cost


def ttl_in_ms(ttl: float) -> int:
    if not isinstance(ttl, (int, float)) or isinstance(ttl, bool):
        raise TypeError(f"ttl is {type(ttl).__name__}, and must be a number of seconds")
    if not 0.001 <= ttl <= TTL_MAX_MS / 1000:
        raise ValueError(f"ttl {ttl} is not a number of seconds from 0.001 to {TTL_MAX_MS // 1000}")
    return round(ttl * 1000)


def is_keep(on_expiry: str) -> bool:
    if on_expiry not in ("release", "keep"):
        raise ValueError(f'on_expiry is "release" or "keep", not {on_expiry!r}')
    return on_expiry == "keep"


#: The cost in requests, and those in other units.
Costs = Tuple[int, Tuple[Tuple[str, int], ...]]


def split_costs(cost: int, costs: Optional[Mapping[str, int]]) -> Costs:
    if costs is None:
        return whole_cost(cost), ()
    if cost != 1:
        raise ValueError(f"cost and costs cannot be combined; write costs={{'{REQUESTS}': {cost}, ...}}")
    return costs_by_unit(costs)


def costs_by_unit(costs: Mapping[str, int]) -> Costs:
    """`costs` names all units: one that is not there costs 0, also requests."""
    if not isinstance(costs, Mapping):
        raise TypeError(f"costs is {type(costs).__name__}, and must map units to amounts, such as {{'tokens': 1200}}")
    for unit, amount in costs.items():
        if not isinstance(unit, str) or not UNIT.fullmatch(unit):
            raise ValueError(f"the unit {unit!r} is not a name of letters, digits, _, - and ., 1 to 50 bytes")
        whole_cost(amount, f"the cost in {unit}")
    others = tuple((unit, amount) for unit, amount in costs.items() if unit != REQUESTS)
    if len(others) > COSTS_MAX:
        raise ValueError(f"costs in {len(others)} units besides {REQUESTS}: at most {COSTS_MAX} are allowed")
    return costs.get(REQUESTS, 0), others


def header_pairs(headers: Optional[Headers]) -> List[Tuple[bytes, bytes]]:
    if not headers:
        return []
    pairs: Iterable[Tuple[Text, Text]] = headers.items() if isinstance(headers, Mapping) else headers
    found = [(octets(name, "a header's name"), octets(value, "a header's value")) for name, value in pairs]
    if len(found) > HEADERS_MAX:
        raise ValueError(f"{len(found)} headers are too many: {HEADERS_MAX} at most for a request")
    if any(not name for name, _ in found):
        raise ValueError("a header without a name")
    return found


def entry_pairs(descriptor: Optional[Entries]) -> Tuple[Tuple[bytes, bytes], ...]:
    if not descriptor:
        return ()
    pairs: Iterable[Tuple[Text, Text]] = descriptor.items() if isinstance(descriptor, Mapping) else descriptor
    found = tuple((octets(key, "the key of an entry"), octets(value, "the value of an entry")) for key, value in pairs)
    if len(found) > ENTRIES_MAX:
        raise ValueError(f"{len(found)} entries are too many: {ENTRIES_MAX} at most for a descriptor")
    if any(not key for key, _ in found):
        raise ValueError("an entry without a key")
    return found


def make_request(
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
    on_expiry: str = "release",
) -> Request:
    texts = (
        ("event", event), ("key", key), ("user", user), ("method", method), ("path", path), ("host", host), ("domain", domain)
    )  # fmt: skip
    attributes = [(name, octets(value, name)) for name, value in texts if value is not None]
    attributes += [(name, address(value, name)) for name, value in (("ip", ip), ("peer", peer)) if value]
    requests, others = split_costs(cost, costs)
    ttl_ms, keep = 0 if ttl is None else ttl_in_ms(ttl), is_keep(on_expiry)
    if ttl_ms and peek:
        raise ValueError("peek charges nothing, so that there is nothing to hold: leave ttl out")
    return Request(
        attributes, header_pairs(headers), requests, peek, refundable, others, ttl_ms, keep, entry_pairs(descriptor)
    )
