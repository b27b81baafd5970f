"""Middleware for ASGI: FastAPI, Starlette, Django and others."""

from __future__ import annotations

import http
from typing import Any, Awaitable, Callable, List, MutableMapping, Optional, Tuple
from urllib.parse import quote

from ._base import Weir
from ._http import TOO_MANY_HEADERS, http_request, missing, with_length
from ._request import HEADERS_MAX, Text
from ._verdict import Refusal, TooFrequent, Verdict, plain_refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY_VIOLATION = 1008


class WeirASGI:
    """Asks weir about each request, and each handshake of a websocket, before `app` sees it. `user` finds the user's id in
    the scope, if there is one."""

    def __init__(self, app: App, weir: Weir, *, user: Optional[Callable[[Scope], Optional[Text]]] = None) -> None:
        self.app, self.weir, self.user = app, weir, user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        verdict, refusal = await self._answer(scope)
        if refusal is not None:
            return await _refuse(refusal, scope, receive, send)
        response = Response(send, verdict)
        try:
            await self.app(scope, receive, response.send)
        except TooFrequent as error:
            if response.started:
                raise
            await _refuse(plain_refusal(error.verdict), scope, receive, send)

    async def _answer(self, scope: Scope) -> Tuple[Verdict, Optional[Refusal]]:
        headers = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
        if len(headers) > HEADERS_MAX:
            return Verdict(False), TOO_MANY_HEADERS
        client = scope.get("client")
        request = http_request(
            scope.get("method", "GET"),
            _path(scope),
            next((value for name, value in headers if name.lower() == b"host"), b""),
            client[0] if client else None,
            self.user(scope) if self.user else None,
            headers,
        )
        return await self.weir._answer_async(request)


class Response:
    """Adds the headers to the application's response, and knows whether it has begun."""

    def __init__(self, send: Send, verdict: Verdict) -> None:
        self.inner, self.headers, self.started = send, verdict.headers(), False

    async def send(self, message: Message) -> None:
        self.started = True
        if message["type"] == "http.response.start" and self.headers:
            there = list(message.get("headers", ()))
            added = missing(self.headers, (bytes(name).decode("latin-1") for name, _ in there))
            message = {**message, "headers": there + _encoded(added)}
        await self.inner(message)


async def _refuse(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    """Where the server cannot answer a handshake with a response, closing makes it a 403. Where it can, it may know only
    the usual statuses."""
    kind, status = "http", refusal.status
    if scope["type"] == "websocket":
        await receive()  # the handshake itself
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            return await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        kind = "websocket.http"
        status = status if status in list(http.HTTPStatus) else http.HTTPStatus.TOO_MANY_REQUESTS.value
    headers = _encoded(with_length(refusal))
    await send({"type": f"{kind}.response.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": b"" if scope.get("method") == "HEAD" else refusal.body})


def _encoded(headers: List[Tuple[str, str]]) -> List[Tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def _path(scope: Scope) -> bytes:
    """As the client sent it, where the server tells. Old versions of uvicorn have a str there for websockets."""
    raw = scope.get("raw_path") or quote(scope["path"])
    path = raw.encode("latin-1", "replace") if isinstance(raw, str) else bytes(raw)
    query = bytes(scope.get("query_string") or b"")
    return path + b"?" + query if query and b"?" not in path else path
