"""Middleware for ASGI: FastAPI, Starlette, Django and others."""

from __future__ import annotations

import http
from typing import Any, Awaitable, Callable, List, MutableMapping, Optional, Tuple

from ._base import Weir
from ._hold import leave_async
from ._http import Front, missing, with_length
from ._request import Text
from ._verdict import Refusal, TooFrequent, Verdict, refusal_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY_VIOLATION = 1008


class WeirASGI:
    """Asks weir about each request, and each handshake of a websocket, before `app` sees it. `user` finds the user's id in
    the scope, if there is one. `local_peer` is the address of a client that has none, being behind a unix socket. A request
    holds its slots until its response is sent, or until `app` ends on any path, as when the client is gone."""

    def __init__(
        self,
        app: App,
        weir: Weir,
        *,
        user: Optional[Callable[[Scope], Optional[Text]]] = None,
        local_peer: Optional[str] = None,
    ) -> None:
        self.app, self.weir, self.front = app, weir, Front(user, local_peer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        verdict, refusal = await self._answer(scope)
        exchange = Exchange(receive, send, verdict, self.weir)
        if refusal is not None:
            return await _refuse(refusal, scope, exchange)
        try:
            await self.app(scope, exchange.receive, exchange.send)
        except TooFrequent as error:
            if exchange.started:
                raise
            await _refuse(refusal_of(error.verdict), scope, exchange)
        finally:
            await exchange.release()

    async def _answer(self, scope: Scope) -> Tuple[Verdict, Optional[Refusal]]:
        headers = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
        path = scope["path"].encode("utf-8", "surrogatepass")
        objection = self.front.objection(path, headers)
        if objection:
            return Verdict(False), objection
        client = scope.get("client")
        request = self.front.request(
            scope,
            scope.get("method", "GET"),
            path,
            bytes(scope.get("query_string") or b""),
            client[0] if client else None,
            headers,
        )
        return await self.weir._answer_async(request)


class Exchange:
    """Adds the headers to the application's response, and knows what has happened already."""

    def __init__(self, receive: Receive, send: Send, verdict: Verdict, weir: Weir) -> None:
        self.inner_receive, self.inner_send, self.headers = receive, send, verdict.headers()
        self.weir, self.held = weir, verdict if verdict.hold else None
        self.received = self.started = False

    async def receive(self) -> Message:
        self.received = True
        return await self.inner_receive()

    async def send(self, message: Message) -> None:
        self.started = True
        if message["type"] == "http.response.start" and self.headers:
            there = list(message.get("headers", ()))
            added = missing(self.headers, (bytes(name).decode("latin-1") for name, _ in there))
            message = {**message, "headers": there + _encoded(added)}
        await self.inner_send(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            await self.release()  # the application may have work to do that is not for this client

    async def release(self) -> None:
        held, self.held = self.held, None
        await leave_async(self.weir, held, "a request")


async def _refuse(refusal: Refusal, scope: Scope, exchange: Exchange) -> None:
    """Where the server cannot answer a handshake with a response, closing makes it a 403. Where it can, it may know only
    the usual statuses."""
    kind, status, send = "http", refusal.status, exchange.inner_send
    if scope["type"] == "websocket":
        if not exchange.received:
            await exchange.receive()  # the handshake itself
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            return await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        kind = "websocket.http"
        status = status if status in list(http.HTTPStatus) else http.HTTPStatus.TOO_MANY_REQUESTS.value
    headers = _encoded(with_length(refusal))
    await send({"type": f"{kind}.response.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": b"" if scope.get("method") == "HEAD" else refusal.body})


def _encoded(headers: List[Tuple[str, str]]) -> List[Tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
