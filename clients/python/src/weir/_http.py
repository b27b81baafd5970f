"""What both kinds of middleware share."""

from __future__ import annotations

import http
from logging import getLogger
from typing import Callable, Generic, Iterable, List, Optional, Sequence, Set, Tuple, TypeVar
from urllib.parse import quote

from ._request import HEADERS_MAX, Request, Text, address, is_address, octets
from ._verdict import Refusal

Scope = TypeVar("Scope")

HEADER_BYTES_MAX = 512 * 1024  # the service takes requests of a MiB

log = getLogger("weir")


def _refusal(status: int, text: str) -> Refusal:
    return Refusal(status, [("Content-Type", "text/plain; charset=utf-8")], text.encode())


#: Left out of a request, a header that a rule counts by would let it pass; so one with too many of them is refused.
TOO_MANY_HEADERS = _refusal(431, f"At most {HEADERS_MAX} headers and {HEADER_BYTES_MAX} bytes are allowed\n")
#: weir resolves them, and applications do not: they would see another path than the rules.
DOT_SEGMENTS = _refusal(400, "The path has a segment . or ..\n")


class Front(Generic[Scope]):
    """What to ask weir about a request."""

    def __init__(self, user: Optional[Callable[[Scope], Optional[Text]]], local_peer: Optional[str]) -> None:
        self.user, self.local_peer = user, address(local_peer, "local_peer") if local_peer else None
        self.has_warned = False

    def objection(self, path: bytes, headers: List[Tuple[bytes, bytes]]) -> Optional[Refusal]:
        """To requests that weir is not asked about."""
        size = len(path) + sum(len(name) + len(value) for name, value in headers)
        if len(headers) > HEADERS_MAX or size > HEADER_BYTES_MAX:
            return TOO_MANY_HEADERS
        segments = path.split(b"/")
        return DOT_SEGMENTS if any(s.partition(b";")[0] in (b".", b"..") for s in segments) else None

    def request(
        self, scope: Scope, method: str, path: bytes, query: bytes, peer: Optional[str], headers: List[Tuple[bytes, bytes]]
    ) -> Request:
        """`path` is what the application goes by, decoded: as it was sent, `%2F` could hide it from the rules."""
        target = quote(path).encode("ascii") + (b"?" + query if query else b"")
        host = next((value for name, value in headers if name.lower() == b"host"), b"")
        attributes = [("method", method.encode("latin-1", "replace")), ("path", target), ("host", host)]
        attributes.append(("peer", self.peer(peer) or b""))
        user = self.user(scope) if self.user else None
        if user is not None:
            attributes.append(("user", octets(user, "the user")))
        return Request([(name, value) for name, value in attributes if value], headers, 1, False, False)

    def peer(self, peer: Optional[str]) -> Optional[bytes]:
        """A server behind a unix socket has no address of its client, or calls it something else."""
        plain = peer.partition("%")[0] if peer else ""
        if is_address(plain):
            return plain.encode("ascii")
        if not self.local_peer and not self.has_warned:
            self.has_warned = True
            log.warning("a request has no client's address, and rules by ip do not apply to it: give local_peer")
        return self.local_peer


def missing(wanted: Sequence[Tuple[str, str]], there: Iterable[str]) -> List[Tuple[str, str]]:
    """Returns the headers that the application has not set itself."""
    names: Set[str] = {name.lower() for name in there}
    return [(name, value) for name, value in wanted if name.lower() not in names]


def with_length(refusal: Refusal) -> List[Tuple[str, str]]:
    return [*refusal.headers, ("Content-Length", str(len(refusal.body)))]


def status_line(status: int) -> str:
    try:
        return f"{status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Refused"
