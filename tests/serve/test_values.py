"""Headers that a client spells in many ways, and headers that are there twice: HTTP, RESP, the admin API, logs and metrics.
A user, key or event that a program names counts as it is given."""

import http.client
import itertools
import json
import urllib.parse

from support import expect, until
from support.service import Service
from support.wire import Error, Wire

RULES = """
settings: { trusted_proxies: [127.0.0.1, 198.51.100.0/24], repeated_headers: REPEATED }
rules:
  - { id: header, match: { path: /header }, by: "header:X-Api-Key", limits: [ FIVE ] }
  - { id: key, match: { event: key }, by: key, limits: [ FIVE ] }
  - { id: user, match: { path: /user }, by: user, limits: [ FIVE ] }
  - { id: ip, match: { path: /ip }, by: ip, limits: [ FIVE ] }
  - { id: watch, match: { path: /watch }, by: "header:X-Watch", mode: shadow, limits: [ FIVE ] }
""".replace("FIVE", "{ algorithm: fixed_window, max: 5, per: 1h }")
REFUSE, FIRST, LAST = (RULES.replace("REPEATED", word) for word in ("refuse", "first", "last"))

BLANKS = ["", " ", "\t", "\t\t", " \t", "\t ", "  ", "\t\t\t", " \t ", "\t \t"]
AROUND = list(itertools.product(BLANKS, BLANKS))
GIVEN = ["k", " k", "k ", "\tk", "k\t", " k ", " \t"]  # each a subject of its own, if a program names it
TOO_MANY = [True] * 5 + [False] * 95
TWICE = {"allowed": False, "status": 400, "rule": None, "limit": None, "max": None, "remaining": None, "reset_ms": None, "retry_after_ms": -1,
         "repeated_header": "x-api-key", "shadow": []}
TEXT = "Bad request: the header x-api-key is repeated with different values\n"


def spelled(value):
    return [before + value + after for before, after in AROUND]


def auth(s, path, *headers, query=""):
    """As a gateway asks, with these headers of its client as they are."""
    own = [f"X-Forwarded-Uri: {path}", "X-Forwarded-Method: GET"]
    if not any(header.lower().startswith("x-forwarded-for:") for header in headers):
        own.append("X-Forwarded-For: 192.0.2.1")
    lines = [f"GET /v1/auth{query} HTTP/1.1", "Host: h", "Connection: close", *own, *headers, "", ""]
    with s.socket(s.http) as line:
        line.sendall("\r\n".join(lines).encode())
        response = http.client.HTTPResponse(line)
        response.begin()
        return response.status, response.read().decode()


# ---- blanks ----


def test_blanks_over_http():
    with Service("--user-header", "X-User", rules=REFUSE) as s:
        for path, name in (("/header", "X-Api-Key"), ("/user", "X-User")):
            found = [auth(s, path, f"{name}:{value}")[0] == 200 for value in spelled("REAL")]
            expect(found, TOO_MANY, f"/v1/auth{path}")
        found = [s.check(path="/header", headers={"x-api-key": value}).json()["allowed"] for value in spelled("CHECK")]
        expect(found, TOO_MANY, "/v1/check, a header")
        requests = [{"path": "/header", "headers": {"x-api-key": value}} for value in spelled("LIST")]
        answer = s.ask(s.http, "POST", "/v1/check", json.dumps(requests), {"Content-Type": "application/json"})
        expect([verdict["allowed"] for verdict in answer.json()], TOO_MANY, "/v1/check, a list")
        expect(s.check(path="/header", headers={"x-api-key": " \t"}).json()["rule"], None, "blanks are no value")
        expect(auth(s, "/user", "X-User: \t "), (200, ""), "nor a user, in a header")


def test_as_given_over_http():
    """Values that a program passes over HTTP count as given."""
    with Service(rules=REFUSE) as s:
        for value in GIVEN:
            left = [s.check(event="key", key=value).json()["remaining"] for _ in range(2)]
            expect(left, [4, 3], f"/v1/check, the key {value!r}")
        requests = [{"path": "/user", "user": value} for value in GIVEN for _ in range(2)]
        answer = s.ask(s.http, "POST", "/v1/check", json.dumps(requests), {"Content-Type": "application/json"})
        expect([verdict["remaining"] for verdict in answer.json()], [4, 3] * len(GIVEN), "/v1/check, a list")
        expect(s.check(event=" key", key="k").json()["rule"], None, "another event")


def test_blanks_over_resp():
    with Service(rules=REFUSE) as s, Wire(s) as wire:
        found = [bool(wire.ask("WEIR.CHECK", "path", "/header", "header:X-Api-Key", value)[0]) for value in spelled("RESP")]
        expect(found, TOO_MANY, "a header")
        expect([wire.ask("AUTH", s.token), wire.ask("WEIR.RESET", "header", "\tRESP ")], ["OK", "OK"])
        expect(wire.ask("WEIR.CHECK", "path", "/header", "header:X-Api-Key", "RESP")[0], 1, "set free")
        expect("is not a valid value" in wire.ask("WEIR.RESET", "header", " "), True, "nobody")
        for attributes in (("path", "/user", "user"), ("event", "key", "key")):
            for value in GIVEN:
                left = [wire.ask("WEIR.CHECK", *attributes, value)[4] for _ in range(2)]
                expect(left, [4, 3], f"as it is given: {attributes}, {value!r}")
        expect(wire.ask("WEIR.RESET", "user", " k"), "OK")
        found = {value: wire.ask("WEIR.PEEK", "path", "/user", "user", value)[4] for value in GIVEN}
        expect(found, {value: 5 if value == " k" else 3 for value in GIVEN}, "one of them is set free")


def test_what_is_shown():
    with Service("--user-header", "X-User", rules=REFUSE) as s:
        for value in spelled("SHOWN")[:20]:
            auth(s, "/user", f"X-User:{value}")
        expect({entry["by"]["user"] for entry in s.events("refused")}, {"SHOWN"}, "the log")
        top = s.steer("GET", "/v1/top").json()
        expect([(row["by"], row["refused"]) for row in top["subjects"]], [([{"name": "user", "value": "SHOWN"}], 15)], top)
        for user, used in (("SHOWN", 5), ("\tSHOWN ", 0)):
            shown = s.steer("GET", "/v1/explain?" + urllib.parse.urlencode({"path": "/user", "user": user})).json()
            expect(shown["request"]["user"], user, "explain")
            rule = next(rule for rule in shown["rules"] if rule["id"] == "user")
            expect((rule["by"], rule["limits"][0]["used"]), ([{"name": "user", "value": user}], used), rule)
        s.check(path="/header", headers={"X-Api-Key": "SHOWN"})
        query = urllib.parse.urlencode({"path": "/header", "header": "X-Api-Key:\tSHOWN "})
        rule = next(rule for rule in s.steer("GET", "/v1/explain?" + query).json()["rules"] if rule["id"] == "header")
        expect((rule["by"][0]["value"], rule["limits"][0]["used"]), ("SHOWN", 1), rule)
        for rule, by, status in (("user", " SHOWN\t", 404), ("user", "SHOWN", 204), ("header", " SHOWN\t", 204)):
            path = "/v1/subjects?" + urllib.parse.urlencode({"rule": rule, "by": by})
            expect(s.steer("DELETE", path).status, status, f"set free: {rule}, {by!r}")
        expect(s.check(path="/user", user="SHOWN").json()["remaining"], 4, "the user is")
        expect(s.check(path="/header", headers={"X-Api-Key": "SHOWN"}).json()["remaining"], 4, "the header is")


# ---- twice ----


def test_twice_over_http():
    """A header twice, over HTTP."""
    with Service("--user-header", "X-User", rules=REFUSE) as s:
        for n in range(50):
            lines = [f"X-Api-Key: junk{n}", "X-Api-Key: REAL"][:: 1 if n % 2 else -1]
            expect(auth(s, "/header", *lines), (400, TEXT), "/v1/auth")
            expect(auth(s, "/header", *lines, query="?deny=403"), (403, TEXT), "for a gateway that knows no 400")
            # A program that looks for a 429 must not take this for a pass.
            answer = s.check(path="/header", headers={"X-Api-Key": [f"junk{n}", "REAL"]})
            expect((answer.status, answer.json()), (429, TWICE), "/v1/check, a list of values")
            answer = s.check(path="/header", headers={"X-Api-Key": f"junk{n}", "x-api-key": "REAL"})
            expect((answer.status, answer.json()), (429, TWICE), "/v1/check, by two names")
        for lines in (["X-Api-Key:", "X-Api-Key: REAL"], ["X-Api-Key: REAL", "X-Api-Key:\t"]):
            expect(auth(s, "/header", *lines)[0], 400, "an empty one is another value")
        found = [auth(s, "/header", "X-Api-Key: REAL", "x-api-key:\tREAL ")[0] for _ in range(6)]
        expect(found, [200] * 5 + [429], "equal ones are one, and nothing was charged before")
        expect(auth(s, "/watch", "X-Watch: a", "X-Watch: b")[0], 200, "a shadow rule refuses nothing")
        expect(auth(s, "/watch", "Accept: a", "Accept: b", "X-Api-Key: a", "X-Api-Key: b")[0], 200, "nobody looks at it")
        requests = [{"path": "/header", "headers": {"X-Api-Key": key}} for key in ("list", ["list", "x"], ["list", " list"])]
        answer = s.ask(s.http, "POST", "/v1/check", json.dumps(requests), {"Content-Type": "application/json"})
        expect([verdict["allowed"] for verdict in answer.json()], [True, False, True], "in a list of requests")
        expect((answer.json()[1], answer.json()[2]["remaining"]), (TWICE, 3), "it alone")


def test_the_gateways_headers_twice():
    """A header of the gateway twice."""
    with Service("--user-header", "X-User", rules=REFUSE) as s:
        for lines in (["X-User: a", "X-User: b"], ["X-User:", "X-User: b"], ["X-User: b", "X-User: \t"],
                      ["X-User: a", "X-Forwarded-Uri: /free"], ["X-User: a", "X-Original-Method: PUT"], ["X-User: a", "Host: other"],
                      ["X-User: a", "X-Forwarded-Host: a", "X-Forwarded-Host: b"]):
            expect(auth(s, "/user", *lines)[0], 400, f"two values: {lines}")
        same = ["X-User: a", "X-User:\ta ", "X-Forwarded-Uri:/user\t", "X-Original-Method: GET \t", "Host:\th"]
        expect([auth(s, "/user", *same)[0] for _ in range(6)], [200] * 5 + [429], "one value, and nothing charged before")


def test_twice_over_resp():
    """A header twice, over RESP."""
    with Service(rules=REFUSE) as s, Wire(s) as wire:
        twice = ("path", "/header", "header:X-Api-Key", "junk", "header:x-api-key", "REAL")
        for _ in range(20):
            expect(wire.ask("WEIR.CHECK", *twice), [0, None, None, None, None, None, -1])
            expect(wire.ask("WEIR.PEEK", *twice), [0, None, None, None, None, None, -1])
            expect(wire.ask("WEIR.CHECK", *twice, "reply", "long"), [0, None, None, None, None, None, -1, None, 400, 0, None])
        expect(wire.ask("WEIR.CHECK", *twice[:4], "header:x-api-key", "junk\t")[:5], [1, "header", "fixed_window", 5, 4])
        expect(wire.ask("WEIR.CHECK", "user", "a", "user", "a"), Error("ERR attribute 'user' is given twice"))


def test_what_is_said():
    """What is said of it."""
    with Service(rules=REFUSE) as s:
        s.check(path="/header", headers={"X-Api-Key": ["secret1", "secret2"]})
        found = s.events("refused")
        expect([(entry.get("rule"), entry["repeated_header"], entry["status"], entry["path"]) for entry in found],
               [(None, "x-api-key", 400, "/header")], json.dumps(found))
        expect("secret" in json.dumps(s.lines()), False, "values are no log's business")
        metrics = s.steer("GET", "/metrics").body.decode()
        expect('weir_decisions_total{rule="",outcome="refused"} 1' in metrics, True, metrics)
        expect(s.steer("GET", "/v1/top").json()["subjects"], [], "nobody")
        query = urllib.parse.urlencode([("path", "/header"), ("header", "X-Api-Key:a"), ("header", "X-Api-Key: b")])
        shown = s.steer("GET", "/v1/explain?" + query).json()
        rule = shown["rules"][0]
        expect((rule["applies"], rule["reason"], rule["detail"]), (False, "repeated_header", "x-api-key"), rule)
        expect(rule["text"], "the request repeats the header x-api-key with different values, and is refused for that", rule)
        expect(shown["verdict"], TWICE, "explained")


def test_the_first_or_the_last():
    for rules, order in ((FIRST, 1), (LAST, -1)):
        with Service(rules=rules) as s, Wire(s) as wire:
            for n in range(10):
                values = ["", "REAL", f"junk{n}", f"more{n}"][::order]
                lines = [f"X-Api-Key:\t{value} " for value in values]
                attributes = [part for value in values for part in ("header:X-Api-Key", value)]
                asked = [auth(s, "/header", *lines)[0] == 200,
                         s.check(path="/header", headers={"x-api-key": values}).json()["allowed"],
                         bool(wire.ask("WEIR.CHECK", "path", "/header", *attributes)[0])]
                wanted = [3 * n + i < 5 for i in range(3)]
                expect(asked, wanted, f"{n}: {values}")


def test_in_a_store(store):
    """Names in the store are those of the trimmed headers and of the keys as they are given, and a header twice never gets there."""
    with Service("--counters", store.address, "--store-deadline", "10s", "--user-header", "X-User", rules=REFUSE) as s:
        until(lambda: s.steer("GET", "/v1/status").json()["store"]["up"], "the store is reached")
        with Wire(s) as wire:
            found = [wire.ask("WEIR.CHECK", "event", "key", "key", value)[4] for value in ("STORED", "STORED", " STORED")]
            expect(found, [4, 3, 4], "by key, as it is given")
            found = [auth(s, "/header", f"X-Api-Key:{value}")[0] == 200 for value in spelled("STORED")]
            expect(found, TOO_MANY, "by header")
            names = sorted(name for name in store.ask("KEYS", "*") if ":key:" in name or ":header:" in name)
            expect((len(names), "weir:1:{STORED}:key:key" in names), (3, True), names)
            twice = ("path", "/header", "header:X-Api-Key", "a", "header:X-Api-Key", "b")
            for _ in range(7):
                expect(wire.ask("WEIR.CHECK", *twice, "reply", "long"), [0, None, None, None, None, None, -1, None, 400, 0, None])
                expect(s.check(path="/header", headers={"x-api-key": ["a", "b"]}).json(), TWICE)
                expect(auth(s, "/header", "X-Api-Key: a", "X-Api-Key: b"), (400, TEXT))
            query = [("path", "/header"), ("event", "key"), ("key", "STORED"), ("header", "X-Api-Key:a"), ("header", "X-Api-Key:b")]
            shown = s.steer("GET", "/v1/explain?" + urllib.parse.urlencode(query)).json()
            limit = next(rule for rule in shown["rules"] if rule["id"] == "key")["limits"][0]
            expect((limit["known"], limit["max"], limit["used"], shown["verdict"]), (False, 5, 0, TWICE), shown)
            expect([auth(s, "/header", "X-Api-Key: a")[0] for _ in range(6)], [200] * 5 + [429], "nothing was charged")
            expect(s.steer("DELETE", "/v1/subjects?" + urllib.parse.urlencode({"rule": "key", "by": "STORED"})).status, 204)
            expect(wire.ask("WEIR.CHECK", "event", "key", "key", "STORED")[4], 4, "set free in the store, too")


# ---- X-Forwarded-For ----


def test_hops():
    """X-Forwarded-For in several lines. In several lines it is one list."""
    with Service(rules=REFUSE) as s, Wire(s) as wire:
        left = 15
        for n in range(10):
            junk, own = f"203.0.113.{n}", f"\t192.0.2.9{BLANKS[n]}"
            for lines in ([junk, own], [junk, f"{junk},{own}", "198.51.100.1"], [f"{junk}, {own}", "", "198.51.100.2 , 198.51.100.3\t"]):
                values = [f"X-Forwarded-For:{line}" for line in lines]
                attributes = [part for line in lines for part in ("header:X-Forwarded-For", line)]
                asked = [auth(s, "/ip", *values)[0] == 200,
                         s.check(path="/ip", peer="127.0.0.1", headers={"X-Forwarded-For": lines}).json()["allowed"],
                         bool(wire.ask("WEIR.CHECK", "path", "/ip", "peer", "127.0.0.1", *attributes)[0])]
                left -= sum(asked)
        expect(left, 10, "five of ninety passed")
        expect(auth(s, "/ip", "X-Forwarded-For: 192.0.2.9", "X-Forwarded-For: 192.0.2.8")[0], 200, "another client")
