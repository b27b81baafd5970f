"""A gateway to a language model that never lets a user spend more than the rules say. An ASGI application without a framework:

    UPSTREAM=http://127.0.0.1:9000 WEIR=redis://127.0.0.1:6380 uvicorn gateway:app

WEIR is the address of the service, or the path of a rules file, which the process then decides by itself."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, AsyncIterator, Dict
from urllib.parse import urlsplit

from weir import AsyncHold, TooFrequent, Weir

UPSTREAM = os.environ.get("UPSTREAM", "http://127.0.0.1:9000")
WEIR = os.environ.get("WEIR", "redis://127.0.0.1:6380")
PROMPT_PRICE, ANSWER_PRICE = 3, 15  # micro-dollars for a token
MAX_TOKENS = 1000  # of an answer, if the client does not say
TTL_S = float(os.environ.get("TTL_S", 300))  # longer than an answer takes: a gateway that dies blocks the budget of its users for so long at most

DEADLINE_S = float(os.environ.get("DEADLINE_S", 1))  # without an answer of weir nobody spends money

if ":" in WEIR:
    weir: Weir = Weir.connect(WEIR, deadline=DEADLINE_S, when_unreachable="refuse")
else:
    weir = Weir.open(rules=WEIR, cells=os.environ.get("CELLS"))


class Usage:
    """Tokens that a request has cost so far, or may cost."""

    def __init__(self, prompt: int) -> None:
        self.prompt, self.answer = prompt, 0

    def is_begun(self) -> bool:
        return self.prompt + self.answer > 0

    def costs(self) -> Dict[str, int]:
        tokens, price = self.prompt + self.answer, self.prompt * PROMPT_PRICE + self.answer * ANSWER_PRICE
        return {"requests": 1, "tokens": tokens, "udollars": price}


def words(asked: Any) -> int:
    """The tokens of the prompt, as the stand-in for the model counts them."""
    return max(1, sum(len(message["content"].split()) for message in asked["messages"]))


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    user = dict(scope["headers"]).get(b"x-user", b"").decode("latin-1")
    try:
        asked = json.loads(await body(receive))
        most = Usage(words(asked))
        asked["max_tokens"] = most.answer = int(asked.get("max_tokens") or MAX_TOKENS)
        if not user or most.answer < 1:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):
        return await answer(send, 400, {"error": "send X-User and {\"messages\": [{\"content\": \"…\"}], \"max_tokens\": 100}"})
    used = Usage(0)
    try:
        # Nobody knows how long the answer will be. What it may cost at most is held, so that requests that run at the same time
        # cannot spend more than there is.
        async with weir.reserve(event="llm", key=user, costs=most.costs(), ttl=TTL_S) as hold:
            await stream(asked, used, hold, receive, send)
    except TooFrequent as refused:
        verdict = refused.verdict
        await answer(send, verdict.status, {"error": str(refused), "limit": verdict.limit}, verdict.headers())
    except (OSError, EOFError) as error:
        if used.is_begun():
            raise  # the server cuts the response off
        await answer(send, 502, {"error": f"the model does not answer: {error}"})


async def stream(asked: Any, used: Usage, hold: AsyncHold, receive: Any, send: Any) -> None:
    """Ends when the answer does, or when the client is gone. Either way the user pays for what the model has written."""
    work = asyncio.ensure_future(relay(asked, used, send))
    gone = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        work.cancel()
        gone.cancel()
        await asyncio.wait({work, gone})
        await hold.settle(costs=used.costs())


async def relay(asked: Any, used: Usage, send: Any) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    async for line in events(asked):
        if not used.is_begun():
            used.prompt = words(asked)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        data = json.loads(line[6:]) if line.startswith(b"data: {") else {}
        if data.get("choices"):
            used.answer += 1
        if "usage" in data:  # the last word on it
            used.prompt, used.answer = data["usage"]["prompt_tokens"], data["usage"]["completion_tokens"]
        await send({"type": "http.response.body", "body": line + b"\n\n", "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def events(asked: Any) -> AsyncIterator[bytes]:
    """The lines that the model streams."""
    place, content = urlsplit(UPSTREAM), json.dumps(asked).encode()
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        head = f"POST /v1/chat/completions HTTP/1.0\r\nHost: {place.netloc}\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        await reader.readuntil(b"\r\n\r\n")
        async for line in reader:
            if line.strip():
                yield line.strip()
    finally:
        writer.close()  # the model need not write for a client that is gone


async def body(receive: Any) -> bytes:
    whole, more = b"", True
    while more:
        message = await receive()
        whole, more = whole + message.get("body", b""), message.get("more_body", False)
    return whole


async def disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def answer(send: Any, status: int, content: Any, headers: Any = ()) -> None:
    pairs = [(b"content-type", b"application/json"), *((name.lower().encode(), value.encode()) for name, value in headers)]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": json.dumps(content).encode() + b"\n"})
