"""Both kinds of middleware in real servers: wsgiref's and uvicorn."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import socket
import threading
import wsgiref.simple_server
from typing import Any, Dict, Iterator, List, Optional

import pytest
from servers import free_port, until

from weir import Weir, WeirASGI, WeirWSGI, detect

uvicorn = pytest.importorskip("uvicorn")

OWN = '"own";q=1;w=1'  # of an application that sets the header itself


class Guarded:
    """Applications that answer with the path, and protect a call of their own."""

    def __init__(self, weir: Weir) -> None:
        @detect(weir, "ocr", key="user")
        def submit(user: str) -> None: ...

        @detect(weir, "ocr", key="user")
        async def submit_async(user: str) -> None: ...

        self.submit, self.submit_async = submit, submit_async
        self.seen: List[str] = []

    def wsgi_late(self, environ: Any, start_response: Any) -> Any:
        """Has begun its response when it makes the call."""
        start_response("200 OK", [("Content-Type", "text/plain")])
        self.submit(environ["PATH_INFO"])
        return [b"done"]

    def wsgi_generator(self, environ: Any, start_response: Any) -> Any:
        try:
            self.submit(environ["PATH_INFO"])
            start_response("200 OK", [("Content-Type", "text/plain")])
            yield b"do"
            yield b"ne"
        finally:
            self.seen.append("closed")

    def wsgi(self, environ: Any, start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        self.seen.append(path)
        if path.startswith("/ocr/"):
            self.submit(path)
        start_response(
            "200 OK",
            [("Content-Type", "text/plain")] + ([("RateLimit", OWN)] if environ["QUERY_STRING"] == "own" else []),
        )
        return [path.encode("latin-1")]

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope.get("path", scope["type"]))
        if scope["type"] == "lifespan":
            for _ in range(2):
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
        elif scope["type"] == "websocket":
            await receive()
            if scope["path"].startswith("/ocr/"):
                await self.submit_async(scope["path"])
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": 1000})
        else:
            if scope["path"].startswith("/ocr/"):
                await self.submit_async(scope["path"])
            headers = [(b"ratelimit", OWN.encode())] if scope["query_string"] == b"own" else []
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": scope["path"].encode()})


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_: Any) -> None: ...


@contextlib.contextmanager
def serving_wsgi(app: Any) -> Iterator[int]:
    server = wsgiref.simple_server.make_server("127.0.0.1", 0, app, handler_class=Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def serving_asgi(app: Any) -> Iterator[int]:
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False, lifespan="on")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive(), "uvicorn starts")
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def user_of(scope: Any) -> Optional[str]:
    """Of an environ or a scope."""
    if "headers" in scope:
        return dict(scope["headers"]).get(b"x-user", b"").decode() or None
    found: Optional[str] = scope.get("HTTP_X_USER")
    return found


class Client:
    def __init__(self, port: int, app: Guarded) -> None:
        self.port, self.app = port, app

    def ask(self, path: str, method: str = "GET", **headers: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host="Host" in headers)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module", params=["wsgi remote", "wsgi local", "asgi remote", "asgi local"])
def client(request: Any) -> Iterator[Client]:
    kind, form = request.param.split()
    weir = request.getfixturevalue(form)
    app = Guarded(weir)
    if kind == "wsgi":
        with serving_wsgi(WeirWSGI(app.wsgi, weir, user=user_of)) as port:
            yield Client(port, app)
    else:
        with serving_asgi(WeirASGI(app.asgi, weir, user=user_of)) as port:
            yield Client(port, app)


def test_a_page(client: Client, address: str) -> None:
    answer, body = client.ask("/page", X_Forwarded_For=address)
    assert (answer.status, body) == (200, b"/page")
    assert answer.headers["RateLimit-Policy"] == '"page/hour";q=2;w=3600'
    assert answer.headers["RateLimit"] == '"page/hour";r=1;t=3600'
    assert client.ask("/%70age//?x=1", X_Forwarded_For=address)[0].status == 200  # by another spelling
    count = len(client.app.seen)
    answer, body = client.ask("/page", X_Forwarded_For=address)
    assert answer.status == 420 and len(client.app.seen) == count
    assert 0 < int(answer.headers["Retry-After"]) <= 3600
    assert answer.headers["RateLimit"].startswith('"page/hour";r=0;t=')
    assert body == b'{"error":"calm"}' and answer.headers["X-Why"] == "page"
    assert answer.headers.get_all("Content-Type") == ["application/json"]
    answer, body = client.ask("/page", method="HEAD", X_Forwarded_For=address)
    assert (answer.status, body) == (420, b"")


def test_problems(client: Client, key: str) -> None:
    statuses = [client.ask("/mine", X_User=key, Accept="application/json")[0].status for _ in range(2)]
    assert statuses == [200, 429]
    answer, body = client.ask("/mine", X_User=key, Accept="application/json")
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = json.loads(body)
    assert problem["type"] == "https://iana.org/assignments/http-problem-types#quota-exceeded"
    assert problem["violated-policies"] == [answer.headers["RateLimit"].split('"')[1]]
    assert client.ask("/mine", X_User=key, Accept="*/*")[1] == b"Too many requests\n"


def test_what_no_rule_is_for(client: Client) -> None:
    answer, body = client.ask("/free%20%C3%A9?own")
    assert answer.status == 200 and body == "/free é".encode()
    assert "RateLimit-Policy" not in answer.headers


def test_headers_of_the_application_win(client: Client, address: str) -> None:
    answer, _ = client.ask("/page?own", X_Forwarded_For=address)
    assert answer.headers.get_all("RateLimit") == [OWN] and answer.headers["RateLimit-Policy"] == '"page/hour";q=2;w=3600'


def test_the_user(client: Client, key: str) -> None:
    statuses = [client.ask("/mine", X_User=name)[0].status for name in (key, key, key + "-other")]
    assert statuses == [200, 429, 200]
    assert client.ask("/mine")[0].status == client.ask("/mine")[0].status == 200


def test_host_and_headers(client: Client, key: str) -> None:
    ask = {"Host": "api.example.com:80", "X_Tenant": key, "Content_Length": "0"}
    assert [client.ask("/any", method="POST", **ask)[0].status for _ in range(2)] == [200, 429]
    assert client.ask("/any", method="GET", **ask)[0].status == 200


def test_too_many_headers(client: Client) -> None:
    many: Dict[str, str] = {f"X-Many-{i}": "y" for i in range(101)}
    count = len(client.app.seen)
    assert client.ask("/page", **many)[0].status == 431 and len(client.app.seen) == count


def test_a_protected_call_behind_it(client: Client, key: str) -> None:
    assert [client.ask(f"/ocr/{key}")[0].status for _ in range(2)] == [200, 200]
    answer, body = client.ask(f"/ocr/{key}")
    assert answer.status == 429 and body == b"Too many requests\n" and 0 < int(answer.headers["Retry-After"]) <= 3600


@pytest.mark.parametrize("name", ["wsgi_late", "wsgi_generator"])
def test_a_protected_call_in_other_kinds_of_applications(local: Weir, key: str, name: str) -> None:
    app = Guarded(local)
    with serving_wsgi(WeirWSGI(getattr(app, name), local)) as port:
        answers = [Client(port, app).ask(f"/{key}") for _ in range(3)]
    assert [(answer.status, body) for answer, body in answers] == [
        (200, b"done"), (200, b"done"), (429, b"Too many requests\n")
    ]  # fmt: skip
    assert app.seen == ["closed"] * 3 or name == "wsgi_late"


def handshake(port: int, path: str, address: str) -> str:
    key = base64.b64encode(b"0123456789abcdef").decode()
    with socket.create_connection(("127.0.0.1", port), 60) as s:
        s.sendall(
            f"GET {path} HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {key}\r\nX-Forwarded-For: {address}\r\n\r\n".encode()
        )
        return s.makefile("rb").readline().decode()


def test_websockets(client: Client, address: str, request: Any) -> None:
    if "wsgi" in request.node.name:
        return  # it has none
    lines = [handshake(client.port, "/page", address) for _ in range(3)]
    statuses = [line.split()[1] for line in lines]
    assert statuses in (["101", "101", "403"], ["101", "101", "429"])  # by what uvicorn can do


def test_a_protected_call_in_a_handshake(client: Client, key: str, address: str, request: Any) -> None:
    """The application has taken the handshake, so that nobody may wait for that again."""
    if "wsgi" in request.node.name:
        return
    statuses = [handshake(client.port, f"/ocr/{key}", address).split()[1] for _ in range(3)]
    assert statuses in (["101", "101", "403"], ["101", "101", "429"])


def test_lifespan_passes(local: Weir) -> None:
    app = Guarded(local)
    with serving_asgi(WeirASGI(app.asgi, local)):
        assert app.seen == ["lifespan"]


def run_asgi(app: Any, scope: Any) -> List[Any]:
    """For what uvicorn of Debian 12 does not offer yet."""
    sent = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent


def test_websockets_of_servers_that_can_answer_with_a_response(local: Weir, address: str) -> None:
    scope = {
        "type": "websocket",
        "path": "/page",
        "headers": [],
        "client": (address, 1),
        "extensions": {"websocket.http.response": {}},
    }
    app = WeirASGI(Guarded(local).asgi, local)
    assert [run_asgi(app, scope)[0]["type"] for _ in range(2)] == ["websocket.accept"] * 2
    start, body = run_asgi(app, scope)
    assert start["type"] == "websocket.http.response.start" and start["status"] == 429
    assert body == {"type": "websocket.http.response.body", "body": b'{"error":"calm"}'}


def status_without_peer(app: Any, client: Any, address: str) -> int:
    headers = [(b"x-forwarded-for", address.encode())]
    scope = {"type": "http", "path": "/page", "query_string": b"", "headers": headers, "client": client}
    status: int = run_asgi(app, scope)[0]["status"]
    return status


NO_PEERS = (None, ("", 0), ("/run/app.sock", 0))


def test_a_peer_behind_a_unix_socket(local: Weir, address: str) -> None:
    app = WeirASGI(Guarded(local).asgi, local, local_peer="127.0.0.1")
    assert [status_without_peer(app, client, address) for client in NO_PEERS] == [200, 200, 420]
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/page", "REMOTE_ADDR": "", "HTTP_X_FORWARDED_FOR": address}
    told: List[str] = []
    wsgi: Any = WeirWSGI(Guarded(local).wsgi, local, local_peer="127.0.0.1")
    wsgi(environ, lambda status, *_: told.append(status))
    assert told == ["420 Refused"]
    with pytest.raises(ValueError, match="local_peer 'unix' is not one IPv4 or IPv6 address"):
        WeirASGI(app, local, local_peer="unix")


def test_without_a_peer_there_is_a_warning(local: Weir, address: str, caplog: Any) -> None:
    app = WeirASGI(Guarded(local).asgi, local)
    assert [status_without_peer(app, client, address) for client in NO_PEERS] == [200, 200, 200]
    assert caplog.text.count("rules by ip do not apply to it: give local_peer") == 1
    assert status_without_peer(app, ("fe80::1%eth0", 1), address) == 200


@pytest.mark.parametrize("policy, status", [("allow", 200), ("refuse", 503)])
def test_the_service_is_away(policy: Any, status: int) -> None:
    with Weir.connect(f"redis://127.0.0.1:{free_port()}", when_unreachable=policy) as weir:
        app = Guarded(weir)
        with serving_asgi(WeirASGI(app.asgi, weir)) as one, serving_wsgi(WeirWSGI(app.wsgi, weir)) as other:
            for port in (one, other):
                answer, body = Client(port, app).ask("/page")
                assert answer.status == status
                assert body == (b"/page" if policy == "allow" else b"Could not be judged; try again later\n")


def test_the_path_is_the_one_that_the_application_sees(client: Client, address: str) -> None:
    """A `%2F` does not hide it."""
    paths = ("/under%2Fpage?q=1", "/under/p%61ge", "/under%2Fpage")
    assert [client.ask(path, X_Forwarded_For=address)[0].status for path in paths] == [200, 200, 429]
    assert client.ask("/under%252Fpage", X_Forwarded_For=address)[0].status == 200  # decoded once, it is another


@pytest.mark.parametrize("path", ["/page/..", "/page/%2e%2E/x", "/./page", "/page%2f../x", "/page/..;x/y"])
def test_dot_segments(client: Client, path: str) -> None:
    """weir would resolve them, and the application does not."""
    count = len(client.app.seen)
    assert client.ask(path)[0].status == 400 and len(client.app.seen) == count
    assert client.ask("/..page/..x/.y?a=/../b")[0].status == 200


def test_headers_that_are_too_large(client: Client, request: Any) -> None:
    if "asgi" in request.node.name:
        return  # uvicorn itself takes no more than 64 KiB
    many = {f"X-Large-{i}": "y" * 60000 for i in range(9)}
    count = len(client.app.seen)
    assert client.ask("/page", **many)[0].status == 431 and len(client.app.seen) == count


def test_content_type() -> None:
    rules = """
rules: [ { id: a, by: ["header:Content-Type"], limits: [ { name: h, algorithm: fixed_window, max: 1, per: 1h } ] } ]
"""
    with Weir.open(rules_text=rules, cells_keys=1000) as weir:
        app = Guarded(weir)
        with serving_wsgi(WeirWSGI(app.wsgi, weir)) as port:
            asked = [Client(port, app).ask("/", Content_Type=f"text/{kind}")[0].status for kind in ("a", "a", "b")]
    assert asked == [200, 429, 200]
