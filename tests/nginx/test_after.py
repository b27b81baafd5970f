"""weir_after: costs that are known only after the response, such as its bytes."""

import contextlib
import socket
import struct

from support import DEADLINE_S, expect, until
from support.gateway import Gateway

HTTP = """
weir_zone main 1m rules=@FOLDER@/rules.yaml;
weir_zone other 1m rules=@FOLDER@/other.yaml;
weir_after cost:bytes=$body_bytes_sent;
"""
PASS = "proxy_pass http://@BACKEND@;"
SERVER = f"""
add_header X-Left $weir_remaining always;
location / {{ weir main; {PASS} }}
location /off/ {{ weir main; weir_after off; {PASS} }}
location /auth/ {{ weir main after_auth; {PASS} }}
location /none/ {{ {PASS} }}
location /requests/ {{ weir main cost=0 cost:bytes=0; weir_after cost=3 cost:bytes=$bytes_sent; {PASS} }}
location /page/ {{ weir main; proxy_intercept_errors on; error_page 404 = @page; {PASS} }}
location @page {{ weir_after off; return 200 "0123456789"; }}
location /both/ {{ weir main; weir other; {PASS} }}
location /dry/ {{ weir main; weir_dry_run on; {PASS} }}
location /static/ {{ weir main; weir_after cost:bytes=$upstream_response_length; empty_gif; }}
location /text/ {{ weir main; weir_after cost:bytes=$arg_cost; {PASS} }}
location /large/ {{ weir main; {PASS} }}
location /bad/ {{ weir main; weir_after status=5xx,404 cost:bytes=$body_bytes_sent; {PASS} }}
"""
MAX = 100_000
RULES = {
    "rules": f"""
rules:
  - {{ id: bytes, by: path, limits: [ {{ algorithm: fixed_window, max: {MAX}, per: 1h, unit: bytes }} ] }}
""",
    "other": """
rules:
  - { id: once, by: path, limits: [ { algorithm: fixed_window, max: 1, per: 1h } ] }
""",
}
g = Gateway(http=HTTP, server=SERVER, rules=RULES)


def ask(path, size=2):
    g.backend.answers[path] = (200, {}, b"x" * size)
    answer = g.ask(path)
    return answer.status, answer.headers["X-Left"]


def charged(path, size):
    """The count is there a moment after the response."""
    g.backend.answers[path] = (200, {}, b"")
    until(lambda: g.ask(path).headers["X-Left"] == str(MAX - size), f"{path}: {size} bytes")


def test_responses():
    for place in ("", "auth/"):
        path = f"/{place}a"
        expect(ask(path, 1000), (200, str(MAX)), "the decision comes before the response")
        charged(path, 1000)
        ask(path, 70_000)
        charged(path, 71_000)
        expect(ask(path, 500_000)[0], 200, "more than what is left passes")
        until(lambda: g.ask(path).status == 429, "then it is overdrawn")
        expect(g.ask(path).headers["Retry-After"] is not None, True, "until the window is over")
        expect(ask(f"/{place}b", 10)[0], 200, "another subject")


def test_exactly_all():
    """A request that costs nothing passes while no more than max is used."""
    ask("/all", MAX)
    charged("/all", MAX)
    ask("/all", 1)
    until(lambda: g.ask("/all").status == 429, "one byte too many")


def test_where():
    for path in ("/off/x", "/static/x"):
        for _ in range(5):
            expect(ask(path, 50), (200, str(MAX)), "nothing is charged")
    expect(g.ask("/none/x").headers["X-Left"], None, "no zone")
    expect("so the request costs" in g.errors(), False, "an empty value is 0, and nothing to log")


def test_error_page():
    """The bytes of an error page belong to the request, though the page's own location charges nothing."""
    g.backend.answers["/page/x"] = (404, {}, b"x" * 5000)
    expect(g.ask("/page/x").body, b"0123456789")
    charged("/page/x", 10)


def test_requests():
    """Costs in the unit requests, and the bytes with the headers."""
    before = int(g.ask("/requests/x").headers["X-Left"])
    until(lambda: int(g.ask("/requests/x").headers["X-Left"]) < before - 2 - 100, "more than the body")


def test_refused():
    """A refused request costs nothing afterwards, also in the zone that let it pass before."""
    expect(ask("/both/x", 1000)[0], 200, "once")
    for _ in range(5):
        expect(g.ask("/both/x").status, 429, "the other zone refuses")
    g.configure(server=SERVER.replace("weir other;", ""))
    g.reload()
    charged("/both/x", 1000)
    g.configure(server=SERVER)
    g.reload()


def test_dry_run():
    ask("/dry/x", MAX + 5)
    until(lambda: g.ask("/dry/x").headers["X-Left"] == "0", "overdrawn")
    expect(ask("/dry/x", 5)[0], 200, "a dry run refuses nothing")


def test_not_a_number():
    g.ask("/text/x?cost=abc")
    charged("/text/x", 1)
    until(lambda: "weir: the value of `cost:bytes=` is not a whole number, so the request costs 1" in g.errors(), "logged")
    g.ask("/text/x?cost=41")
    until(lambda: g.ask("/text/x").headers["X-Left"] == str(MAX - 42), "a number")


def test_client_goes_away():
    """It is charged what it was sent."""
    g.backend.answers["/large/x"] = (200, {}, b"x" * 20_000_000)
    with socket.create_connection(("127.0.0.1", g.port), DEADLINE_S) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(b"GET /large/x HTTP/1.1\r\nHost: h\r\n\r\n")
        expect(s.recv(100).startswith(b"HTTP/1.1 200"), True, "it begins")
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    g.backend.answers["/large/x"] = (200, {}, b"")
    until(lambda: g.ask("/large/x").headers["X-Left"] != str(MAX), "something is charged")


def test_one_connection():
    """Each request of a connection is charged by itself."""
    g.backend.answers["/line"] = (200, {}, b"x" * 10)
    with contextlib.closing(g.connection()) as connection:
        for _ in range(20):
            expect(g.ask("/line", over=connection).status, 200)
    charged("/line", 200)


def test_some_statuses():
    """Only responses with these statuses are charged."""
    for status in (200, 302, 403, 405):
        g.backend.answers["/bad/x"] = (status, {}, b"x" * 100)
        expect(g.ask("/bad/x").headers["X-Left"], str(MAX), f"{status} costs nothing")
    wanted = MAX
    for status in (404, 500, 599):
        g.backend.answers["/bad/x"] = (status, {}, b"x" * 100)
        g.ask("/bad/x")
        g.backend.answers["/bad/x"] = (200, {}, b"")
        wanted -= 100
        until(lambda: g.ask("/bad/x").headers["X-Left"] == str(wanted), f"{status} is charged")


def test_configuration():
    for words, wanted in (
        ("cost=1; weir_after cost=2", "weir_after is given twice; write all costs in one"),
        ("user=$remote_user", "weir_after: unknown parameter `user=$remote_user`; it takes cost=, cost:UNIT= and status=, or `off`"),
        ("off cost=1", "weir_after: unknown parameter `off`; it takes cost=, cost:UNIT= and status=, or `off`"),
        ("cost=1 cost=2", "weir: `cost=` is given twice"),
        ("status=401 status=403", "weir: `status=` is given twice; write all statuses in one, as in status=401,403"),
        *((f"status={text}", f"weir: `status={text}`: `{part}` is not a status; write numbers from 100 to 599 and classes such as 4xx, "
           "with commas between them")
          for text, part in (("", ""), ("401,", ""), (",401", ""), ("401,,403", ""), ("99", "99"), ("600", "600"), ("6xx", "6xx"), ("0xx", "0xx"),
                             ("4x1", "4x1"), ("4XX", "4XX"), ("401-403", "401-403"), ("+40", "+40"), ("4011", "4011"))),
        ("cost=abc", "weir: the cost must be a whole number, or an expression that results in one, not `abc`"),
    ):
        status, said = g.test_config(server=f"location / {{ weir main; weir_after {words}; }}")
        expect((status, wanted in said), (1, True), said)
