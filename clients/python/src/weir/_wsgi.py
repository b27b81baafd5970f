"""Middleware for WSGI: Flask, Django and others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, Generator, Iterable, Iterator, List, Optional, Tuple

from ._base import Weir
from ._hold import leave
from ._http import Front, missing, status_line, with_length
from ._request import Text
from ._verdict import Refusal, TooFrequent, Verdict, refusal_of

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class WeirWSGI:
    """Asks weir about each request before `app` sees it. `user` finds the user's id in the environ, if there is one.
    `local_peer` is the address of a client that has none, being behind a unix socket. A request holds its slots until the
    server closes the response, which it does on every path, also when the client is gone."""

    def __init__(
        self,
        app: WSGIApplication,
        weir: Weir,
        *,
        user: Optional[Callable[[WSGIEnvironment], Optional[Text]]] = None,
        local_peer: Optional[str] = None,
    ) -> None:
        self.app, self.weir, self.front = app, weir, Front(user, local_peer)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        headers = _headers(environ)
        path = (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1")
        objection = self.front.objection(path, headers)
        if objection:
            return _refuse(objection, environ, start_response)
        query = environ.get("QUERY_STRING", "").encode("latin-1", "replace")
        request = self.front.request(
            environ, environ["REQUEST_METHOD"], path, query, environ.get("REMOTE_ADDR"), headers
        )
        verdict, refusal = self.weir._answer(request)
        if refusal is not None:
            return _refuse(refusal, environ, start_response)
        if not verdict.hold:
            return self.respond(environ, start_response, verdict)
        try:
            return Held(self.respond(environ, start_response, verdict), self.weir, verdict)
        except BaseException:
            leave(self.weir, verdict, "a request")
            raise

    def respond(self, environ: WSGIEnvironment, start_response: StartResponse, verdict: Verdict) -> Iterable[bytes]:
        try:
            return _begun(self.app(environ, _adding(start_response, verdict)))
        except TooFrequent as error:
            return _refuse(refusal_of(error.verdict), environ, start_response, sys.exc_info())


class Held:
    """A response that holds slots until it is closed, or until the last of it was sent."""

    def __init__(self, body: Iterable[bytes], weir: Weir, verdict: Verdict) -> None:
        self.body, self.weir, self.held = body, weir, [verdict]

    def __iter__(self) -> Iterator[bytes]:
        yield from self.body
        self.release()

    def close(self) -> None:
        try:
            close = getattr(self.body, "close", None)
            if close:
                close()
        finally:
            self.release()

    def release(self) -> None:
        if self.held:
            leave(self.weir, self.held.pop(), "a request")


def _begun(body: Iterable[bytes]) -> Iterable[bytes]:
    """A generator has not done anything before its first item, which is when it may turn out to be too frequent."""
    if isinstance(body, Generator):
        for first in body:
            return _resumed(first, body)
    return body


def _resumed(first: bytes, rest: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
    try:
        yield first
        yield from rest
    finally:
        rest.close()


def _adding(start_response: StartResponse, verdict: Verdict) -> Any:
    ours = verdict.headers()
    if not ours:
        return start_response

    def start(status: str, headers: List[Tuple[str, str]], *error: Any) -> Any:
        return start_response(status, [*headers, *missing(ours, (name for name, _ in headers))], *error)

    return start


def _refuse(
    refusal: Refusal, environ: WSGIEnvironment, start_response: StartResponse, *error: Any
) -> Iterable[bytes]:
    """With an error it takes the place of a response that was begun, as long as nothing of that was sent."""
    start_response(status_line(refusal.status), with_length(refusal), *error)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [refusal.body]


def _headers(environ: WSGIEnvironment) -> List[Tuple[bytes, bytes]]:
    return [
        (name.replace("HTTP_", "", 1).replace("_", "-").encode("latin-1"), value.encode("latin-1"))
        for name, value in environ.items()
        if name.startswith("HTTP_") or (name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value)
    ]
