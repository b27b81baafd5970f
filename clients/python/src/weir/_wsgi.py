"""Middleware for WSGI: Flask, Django and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, List, Optional, Tuple
from urllib.parse import quote

from ._base import Weir
from ._http import TOO_MANY_HEADERS, http_request, missing, status_line, with_length
from ._request import HEADERS_MAX, Text
from ._verdict import Refusal, TooFrequent, Verdict, plain_refusal

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class WeirWSGI:
    """Asks weir about each request before `app` sees it. `user` finds the user's id in the environ, if there is one."""

    def __init__(
        self,
        app: WSGIApplication,
        weir: Weir,
        *,
        user: Optional[Callable[[WSGIEnvironment], Optional[Text]]] = None,
    ) -> None:
        self.app, self.weir, self.user = app, weir, user

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        headers = _headers(environ)
        if len(headers) > HEADERS_MAX:
            return _refuse(TOO_MANY_HEADERS, environ, start_response)
        request = http_request(
            environ["REQUEST_METHOD"],
            _path(environ),
            environ.get("HTTP_HOST", "").encode("latin-1"),
            environ.get("REMOTE_ADDR"),
            self.user(environ) if self.user else None,
            headers,
        )
        verdict, refusal = self.weir._answer(request)
        if refusal is not None:
            return _refuse(refusal, environ, start_response)
        try:
            return self.app(environ, _adding(start_response, verdict))
        except TooFrequent as error:
            return _refuse(plain_refusal(error.verdict), environ, start_response)


def _adding(start_response: StartResponse, verdict: Verdict) -> Any:
    ours = verdict.headers()
    if not ours:
        return start_response

    def start(status: str, headers: List[Tuple[str, str]], *error: Any) -> Any:
        return start_response(status, [*headers, *missing(ours, (name for name, _ in headers))], *error)

    return start


def _refuse(refusal: Refusal, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response(status_line(refusal.status), with_length(refusal))
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [refusal.body]


def _headers(environ: WSGIEnvironment) -> List[Tuple[bytes, bytes]]:
    return [
        (name[5:].replace("_", "-").encode("latin-1"), value.encode("latin-1"))
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]


def _path(environ: WSGIEnvironment) -> bytes:
    """As the client sent it, where the server tells: gunicorn and werkzeug say RAW_URI or REQUEST_URI."""
    raw = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    if raw:
        return str(raw).encode("latin-1", "replace")
    path = quote((environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1"))
    query = environ.get("QUERY_STRING")
    return (f"{path}?{query}" if query else path).encode("latin-1", "replace")
