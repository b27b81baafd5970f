"""HTTP/2, WebSockets and gRPC through nginx with weir, with clients and servers that know these for real."""

import asyncio
import re
import socket
import subprocess
from concurrent import futures

import pytest

from support import DEADLINE_S, expect
from support.gateway import ZONE, Gateway, an_hour

grpc = pytest.importorskip("grpc", reason="python3-grpcio is missing")
websockets = pytest.importorskip("websockets", reason="python3-websockets is missing")

RULES = """
rules:
  - { id: few, match: { path: [ "/h2/*", /socket, /shop.Orders/Get, /shop.Orders/Watch ] }, by: path, limits: [ LIMIT ] }
  - { id: host, match: { host: shop.example, path: /host }, limits: [ LIMIT ] }
  - { id: flood, match: { path: /flood }, limits: [ { name: ten, algorithm: fixed_window, max: 10, per: 1h } ] }
  - { id: busy, match: { path: /shop.Orders/Busy }, limits: [ { max: 0, per: 1h } ], reject: { status: 503 } }
  - { id: keyed, match: { path: /shop.Orders/Keyed }, by: "header:x-api-key", limits: [ LIMIT ] }
  - id: own
    match: { path: /shop.Orders/Own }
    limits: [ { max: 0, per: 1h } ]
    reject: { body: "100 % f\\u00fcr heute", headers: { X-Own: "1", Server: shop } }
""".replace("LIMIT", "{ name: few, algorithm: fixed_window, max: 2, per: 1h }")

SERVER = """
weir main;
location / { proxy_pass http://@BACKEND@; }
location /socket {
    proxy_http_version 1.1;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection upgrade;
    proxy_pass http://@SOCKETS@;
}
location /shop.Orders/ { grpc_pass grpc://@GRPC@; }
"""

g = Gateway(http=ZONE, server=SERVER, rules=RULES)


class Orders(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method.endswith("/Watch"):
            return grpc.unary_stream_rpc_method_handler(lambda request, _: (request for _ in range(5)))
        return grpc.unary_unary_rpc_method_handler(lambda request, _: request[::-1])


@pytest.fixture(scope="module")
def backends():
    """A server for gRPC runs; the socket is for WebSockets."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Orders(),))
    with socket.create_server(("127.0.0.1", 0)) as sockets:
        g.names["SOCKETS"] = "{}:{}".format(*sockets.getsockname())
        g.names["GRPC"] = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        yield sockets
        server.stop(None).wait()


def command(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    expect(done.returncode, 0, f"{words}: {done.stderr}")
    return done.stdout


# ---- HTTP/2 ----


def statuses(path, *words):
    """Of many requests on one connection, in their order."""
    said = command("nghttp", "-nv", *words, f"http://127.0.0.1:{g.h2_port}{path}")
    expect(len(re.findall(r"Connected", said)), 1, "connections")
    return re.findall(r"recv \(stream_id=\d+\) :status: (\d+)", said)


def curl(path, *words):
    """Headers and body of the answer."""
    return command("curl", "-sSi", "--http2-prior-knowledge", "--noproxy", "*", *words, f"http://127.0.0.1:{g.h2_port}{path}")


def test_http2():
    expect(sorted(statuses("/h2/a", "-m", "4")), ["200"] * 2 + ["429"] * 2, "on one connection")
    said = an_hour(curl("/h2/a"))
    expect(re.findall(r"(?m)^(HTTP/2 \d+|retry-after: \d+|ratelimit: .*?|\w.*requests)\s*$", said),
           ["HTTP/2 429", 'ratelimit: "few/few";r=0;t=3600', "retry-after: 3600", "Too many requests"], "the refusal")
    said = curl("/h2/a", "-I")
    expect(("HTTP/2 429" in said, "content-length: 18" in said, "Too many" in said), (True, True, False), "HEAD")


def test_http2_bodies():
    """HTTP/2: bodies of refused requests."""
    g.write("body", "x" * 300_000)
    said = statuses("/h2/body", "-m", "6", "-d", g.path("body"))
    expect(sorted(said), ["200"] * 2 + ["429"] * 4, "bodies")


def test_http2_hosts():
    """HTTP/2: hosts."""
    hosts = ("shop.example", "SHOP.example:1", "shop.example", "other")
    expect([curl("/host", "-H", f"Host: {host}").split()[1] for host in hosts], ["200", "200", "429", "200"], ":authority")


def test_http2_streams():
    """HTTP/2: many streams."""
    said = command("h2load", "-n", "100", "-c", "2", "-m", "10", f"http://127.0.0.1:{g.h2_port}/flood")
    expect(re.search(r"status codes: .*", said)[0], "status codes: 10 2xx, 0 3xx, 90 4xx, 0 5xx", "many at once")


# ---- WebSockets ----


async def echo(connection, _path):
    async for message in connection:
        await connection.send(message)


async def talk(server):
    url = f"ws://127.0.0.1:{g.port}/socket"
    async with websockets.serve(echo, sock=server):
        async with websockets.connect(url) as one, websockets.connect(url) as two:
            for number in range(20):
                for connection in (one, two):
                    await connection.send(f"message {number}")
                    expect(await connection.recv(), f"message {number}", "echo")
            try:
                async with websockets.connect(url):
                    raise AssertionError("a third connection")
            except websockets.exceptions.InvalidStatusCode as refused:
                expect((refused.status_code, an_hour(refused.headers["Retry-After"])), (429, "3600"), "the third")
            await one.send("still there")
            expect(await one.recv(), "still there", "the first")


def test_web_sockets(backends):
    asyncio.run(asyncio.wait_for(talk(backends), DEADLINE_S))


# ---- gRPC ----


def call(method, kind="unary_unary", metadata=None):
    """What came back, or how it failed."""
    try:
        with grpc.insecure_channel(f"127.0.0.1:{g.h2_port}", options=(("grpc.enable_http_proxy", 0),)) as channel:
            answer = getattr(channel, kind)(f"/shop.Orders/{method}")(b"abc", timeout=DEADLINE_S, metadata=metadata)
            return answer if kind == "unary_unary" else list(answer)
    except grpc.RpcError as error:
        return error


def test_grpc_calls():
    """gRPC."""
    expect([call("Get"), call("Get")], [b"cba"] * 2, "two pass")
    error = call("Get")
    expect((error.code(), error.details()), (grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many requests"), "refused")
    expect(an_hour(dict(error.trailing_metadata() or ())["retry-after"]), "3600", "the wait")
    expect(call("Other"), b"cba", "another method")


def test_grpc_streams():
    expect([call("Watch", "unary_stream") for _ in range(2)], [[b"abc"] * 5] * 2, "two pass")
    expect(call("Watch", "unary_stream").code(), grpc.StatusCode.RESOURCE_EXHAUSTED, "refused")


def test_grpc_refusals():
    """gRPC: what refusals look like."""
    expect(call("Busy").code(), grpc.StatusCode.UNAVAILABLE, "where the rule says 503")
    error = call("Keyed", metadata=(("x-api-key", "junk"), ("x-api-key", "real")))
    wanted = (grpc.StatusCode.INVALID_ARGUMENT, "Bad request: the header x-api-key is repeated with different values")
    expect((error.code(), error.details()), wanted, "a header twice")
    error = call("Own")
    expect((error.code(), error.details()), (grpc.StatusCode.RESOURCE_EXHAUSTED, "100 % für heute"), "a text of the rule's own")
    for kind, wanted in (
        ("application/grpc", ["HTTP/2 200", "grpc-status: 8"]),
        ("application/grpc+proto", ["HTTP/2 200", "grpc-status: 8"]),
        ("application/grpc-web", ["HTTP/2 429"]),
        ("application/json", ["HTTP/2 429"]),
    ):
        said = curl("/shop.Orders/Own", "-H", f"Content-Type: {kind}", "-d", "")
        expect(re.findall(r"(?m)^(HTTP/2 \d+|grpc-status: \d+)", said), wanted, kind)
        expect(re.findall(r"(?m)^(?:x-own|server): (\w+)", said), ["1", "shop"], f"{kind}: the rule's headers")
