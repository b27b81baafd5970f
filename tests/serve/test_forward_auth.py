"""/v1/auth: forward auth, asked as gateways ask."""

import json
import os
import tempfile
import time

from support import an_hour_since, expect, until
from support.service import Service

RULES = """
settings:
  trusted_proxies: [127.0.0.1, 10.0.0.0/8]
rules:
  - id: client
    match: { path: "/api/*" }
    by: [ip]
    limits: [ { name: few, algorithm: fixed_window, max: 2, per: 1h } ]
  - id: orders
    match: { method: POST, path: "/orders/#" }
    by: [user]
    limits: [ { name: once, algorithm: fixed_window, max: 1, per: 1h } ]
    reject: { status: 503, content_type: application/json, body: '{"later": true}', headers: { X-Why: orders } }
  - id: own
    match: { path: /own }
    limits: [ { name: none, algorithm: fixed_window, max: 1, per: 1h } ]
    reject: { headers: { retry-after: "7", X-Why: own } }
  - id: host
    match: { host: slow.example }
    limits: [ { name: none, algorithm: fixed_window, max: 0, per: 1h } ]
  - id: agent
    match: { path: /agent }
    by: ["header:X-Agent"]
    limits: [ { name: one, algorithm: fixed_window, max: 1, per: 1h } ]
  - id: login
    match: { path: /login }
    by: ["header:Authorization"]
    limits: [ { name: one, algorithm: fixed_window, max: 1, per: 1h } ]
"""


def ask(s, uri="/", method="GET", query="", via="GET", body=None, **more):
    """As Traefik does. `more` has further headers, with _ for -; None leaves one out."""
    headers = {"X-Forwarded-Method": method, "X-Forwarded-Uri": uri, "X-Forwarded-Host": "shop.example"}
    headers |= {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.1"}
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    headers = {name: value for name, value in headers.items() if value is not None}
    return s.ask(s.http, via, "/v1/auth" + query, body, headers)


def wrong(answer, *parts):
    expect(answer.status, 400, answer.body)
    for part in parts:
        if part not in answer.json()["error"]:
            raise AssertionError(f"there is no {part!r} in {answer.json()}")


def test_passes_and_refuses():
    """Passes with the standard headers, refuses with a wait."""
    with Service(rules=RULES) as s:
        begin = time.monotonic()
        answer = ask(s, "/api/items")
        expect((answer.status, answer.body), (200, b""), "first")
        expect(answer.headers["RateLimit"], '"client/few";r=1;t=3600', "what is left")
        expect(answer.headers["RateLimit-Policy"], '"client/few";q=2;w=3600', "of what")
        ask(s, "/api/items")
        answer = ask(s, "/api/items")
        expect((answer.status, answer.body), (429, b"Too many requests\n"), "third")
        expect(answer.headers["Content-Type"], "text/plain; charset=utf-8", "type")
        expect(an_hour_since(begin, answer.headers["Retry-After"]), "3600", "wait")
        expect(an_hour_since(begin, answer.headers["RateLimit"]), '"client/few";r=0;t=3600', "nothing left")
        answer = ask(s, "/other")
        expect((answer.status, answer.headers["RateLimit"]), (200, None), "no rule")


def test_the_rules_own_refusal():
    """The rule's own refusal."""
    with Service("--user-header", "X-User", rules=RULES) as s:
        begin = time.monotonic()
        expect(ask(s, "/orders/1", "POST", X_User="u1").status, 200, "first")
        answer = ask(s, "/orders/2", "POST", X_User="u1")
        expect((answer.status, answer.json()), (503, {"later": True}), "second")
        expect((answer.headers["Content-Type"], answer.headers["X-Why"]), ("application/json", "orders"), "headers")
        expect(an_hour_since(begin, answer.headers["Retry-After"]), "3600", "wait")
        expect(ask(s, "/own").status, 200, "first")
        headers = ask(s, "/own").headers
        expect((headers.get_all("Retry-After"), headers["X-Why"]), (["7"], "own"), "in place of the standard one")
        expect((headers["RateLimit-Policy"], len(headers.get_all("RateLimit"))), ('"own/none";q=1;w=3600', 1), "the others")


def test_another_status():
    """?deny= replaces the status of a refusal."""
    with Service("--user-header", "X-User", rules=RULES) as s:
        begin = time.monotonic()
        expect(ask(s, "/orders/1", "POST", "?deny=403", X_User="u1").status, 200, "not for those that pass")
        for status in (400, 401, 403, 599):
            answer = ask(s, "/orders/1", "POST", f"?deny={status}", X_User="u1")
            expect((answer.status, answer.json()), (status, {"later": True}), "the rest is as it was")
            expect(an_hour_since(begin, answer.headers["Retry-After"]), "3600", "wait")
        for query in ("?deny=200", "?deny=399", "?deny=600", "?deny=", "?deny=x", "?deny", "?denny=403", "?deny=403&a=b"):
            wrong(ask(s, "/orders/1", "POST", query), "deny", "400 to 599")


def test_only_from_gateways():
    """Only trusted proxies are believed."""
    with Service(rules=RULES.replace("127.0.0.1, ", "")) as s:
        answer = ask(s, "/api/items")
        wrong(answer, "127.0.0.1 is not a trusted proxy")
        expect("trusted_proxies" in answer.json()["hint"], True, "what to do")
        s.write_rules(RULES)
        until(lambda: ask(s, "/other").status == 200, "the new settings count")


def test_what_is_missing():
    """What is missing is named."""
    with Service(rules=RULES) as s:
        wrong(ask(s, None), "X-Forwarded-Uri nor X-Original-URI")
        wrong(ask(s, ""), "X-Forwarded-Uri nor X-Original-URI")
        wrong(ask(s, "/", None), "X-Forwarded-Method nor X-Original-Method")
        expect(ask(s, None, None, X_Original_URI="/", X_Original_Method="GET").status, 200, "the other names")


def test_contradictions():
    """Headers that contradict each other."""
    with Service("--user-header", "X-User", rules=RULES) as s:
        wrong(ask(s, "/api/a", X_Original_URI="/free"), "X-Forwarded-Uri and X-Original-URI contradict")
        wrong(ask(s, "/api/a", X_Original_Method="POST"), "X-Forwarded-Method and X-Original-Method contradict")
        expect(ask(s, "/api/a", X_Original_URI="/api/a").status, 200, "the same twice")
        with s.socket(s.http) as connection:
            connection.sendall(
                b"GET /v1/auth HTTP/1.1\r\nHost: a\r\nX-Forwarded-Uri: /\r\nX-Forwarded-Method: GET\r\n"
                b"X-User: a\r\nx-user: b\r\n\r\n"
            )
            answer = connection.recv(65536)
        expect(answer.split(b" ")[1], b"400", answer)


def test_who_the_client_is():
    with Service(rules=RULES) as s:
        def pair(first, second, same):
            """Two addresses with two requests each: is it one client?"""
            found = [ask(s, "/api/a", X_Forwarded_For=value).status for value in (first, first, second)]
            expect(found, [200, 200, 429 if same else 200], (first, second))

        pair("192.0.2.10", "192.0.2.10:4711", True)
        pair("192.0.2.20", "192.0.2.21", False)
        pair("192.0.2.30", "1.1.1.1, 192.0.2.30, 10.1.1.1", True)
        pair("2001:db8:0:1::1", "[2001:db8:0:1::2]:443", True)
        pair("2001:db8:0:2::1", "2001:db8:0:3::1", False)
        pair("::ffff:192.0.2.40", "192.0.2.40", True)
        pair(None, "192.0.2.50, unknown", True)


def test_spellings():
    """Other spellings of a path."""
    with Service(rules=RULES) as s:
        for i, uri in enumerate(("/api/a", "//api//b", "/x/../api/c?d#e", "/%61pi/", "http://shop.example/api/f", "/api",
                                  "/api//../g", "/api/..;/h", "/x%2F..%2fapi", "/api%0a")):
            found = [ask(s, uri, X_Forwarded_For=f"192.0.2.{100 + i}").status for _ in range(3)]
            expect(found, [200, 200, 429], uri)


def test_hosts():
    with Service(rules=RULES) as s:
        expect(ask(s, X_Forwarded_Host="SLOW.example.:443").status, 429, "X-Forwarded-Host")
        expect(ask(s, X_Forwarded_Host=None, Host="slow.example").status, 429, "Host, if there is nothing else")
        expect(ask(s, Host="slow.example").status, 200, "but not if there is")


def test_headers():
    """Headers of the client."""
    with Service(rules=RULES) as s:
        expect([ask(s, "/agent", X_Agent="a").status for _ in range(2)], [200, 429], "counted by a header")
        expect([ask(s, "/agent").status for _ in range(2)], [200, 200], "which is not there")
        expect([ask(s, "/login", Authorization="Basic YTpi").status for _ in range(2)], [200, 429], "the client's own")


def test_any_method():
    with Service(rules=RULES) as s:
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND"):
            expect(ask(s, "/other", via=method).status, 200, method)
        expect(ask(s, "/other", via="POST", body="x" * 5000, Content_Type="text/plain").status, 200, "with a body")


def test_the_token():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "token")
        with open(path, "w", encoding="ascii") as file:
            file.write("s3cret-of-the-gateway-0123456789\n")
        os.chmod(path, 0o600)
        with Service("--token-file", path, rules=RULES) as s:
            expect(ask(s).status, 401, "none")
            bearer = "Bearer s3cret-of-the-gateway-0123456789"
            expect([ask(s, "/login", Authorization=bearer).status for _ in range(3)], [200] * 3, "is nobody's attribute")


def test_through_a_unix_socket():
    with tempfile.TemporaryDirectory() as folder:
        with Service("--http", "unix:" + os.path.join(folder, "weir"), rules=RULES.replace("127.0.0.1, ", "")) as s:
            expect([ask(s, "/api/a").status for _ in range(3)], [200, 200, 429], "the client is the last of X-Forwarded-For")
            expect(ask(s, "/api/a", X_Forwarded_For="192.0.2.1, 10.0.0.1").status, 429, "behind a trusted proxy")
            expect(ask(s, "/api/a", X_Forwarded_For="192.0.2.1, 192.0.2.2").status, 200, "another one")
            wrong(ask(s, "/api/a", X_Forwarded_For=None), "X-Forwarded-For")
            wrong(ask(s, "/api/a", X_Forwarded_For="unix:"), "X-Forwarded-For")


def test_large_headers():
    """Headers that are too large.
    They are their client's, so they are refused as clients are: nothing here may look like weir being away."""
    with Service(rules=RULES) as s:
        for count in (1, 50, 200):
            for total in range(1024, 64 << 10, 1024):
                more = {f"X-{i}": "a" * (total // count) for i in range(count)}
                answer = ask(s, "/other", **more)
                expect(answer.status in (200, 431), True, (total, count, answer.status))
                if total > 16 << 10 or count > 100:
                    expect(answer.status, 431, (total, count))
        more = {f"X-{i}": "a" * 100 for i in range(170)}
        for status in (401, 403, 599):
            answer = ask(s, "/other", query=f"?deny={status}", **more)
            expect((answer.status, "too large" in answer.json()["error"]), (status, True), "deny")


def test_mistakes_are_logged():
    """Mistakes are logged, sampled. nginx makes a 500 of a 400, and nobody sees why."""
    with Service(rules=RULES.replace("127.0.0.1, ", "")) as s:
        for _ in range(20):
            wrong(ask(s, "/api/items"), "not a trusted proxy")
        found = s.events("mistake")
        expect(len(found), 1, found)
        expect("/v1/auth, request from 127.0.0.1: 400, 127.0.0.1 is not a trusted proxy" in found[0]["message"], True, found)


def test_refusals_are_logged():
    with Service(rules=RULES) as s:
        for _ in range(3):
            ask(s, "/api/a")
        found = s.events("refused")
        expect([(entry["rule"], entry["by"]) for entry in found], [("client", {"ip": "192.0.2.1"})], json.dumps(found))
