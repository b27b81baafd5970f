"""What both kinds of middleware share."""

from __future__ import annotations

import http
from typing import Iterable, List, Optional, Sequence, Set, Tuple

from ._request import HEADERS_MAX, Request, Text, is_address, octets
from ._verdict import Refusal

#: Left out of a request, a header that a rule counts by would let it pass; so one with too many of them is refused.
TOO_MANY_HEADERS = Refusal(
    431, [("Content-Type", "text/plain; charset=utf-8")], f"At most {HEADERS_MAX} headers are allowed\n".encode()
)


def http_request(
    method: str, path: bytes, host: bytes, peer: Optional[str], user: Optional[Text], headers: List[Tuple[bytes, bytes]]
) -> Request:
    attributes = [("method", method.encode("latin-1", "replace")), ("path", path), ("host", host)]
    # A server behind a unix socket has no address, or calls it something else.
    plain = peer.partition("%")[0] if peer else ""
    if is_address(plain):
        attributes.append(("peer", plain.encode("ascii")))
    if user is not None:
        attributes.append(("user", octets(user, "the user")))
    return Request([(name, value) for name, value in attributes if value], headers, 1, False, False)


def missing(wanted: Sequence[Tuple[str, str]], there: Iterable[str]) -> List[Tuple[str, str]]:
    """Of the headers those that the application has not set itself."""
    names: Set[str] = {name.lower() for name in there}
    return [(name, value) for name, value in wanted if name.lower() not in names]


def with_length(refusal: Refusal) -> List[Tuple[str, str]]:
    return [*refusal.headers, ("Content-Length", str(len(refusal.body)))]


def status_line(status: int) -> str:
    try:
        return f"{status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Refused"
