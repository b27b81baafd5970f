"""What the OpenAPI document says of bodies, held against what the service takes: each field of some documents is replaced by
values of all kinds, and both have to agree about what comes of it."""

import copy
import json
import os
import tempfile

import pytest

from support import ROOT, expect
from support.contract import Document
from support.service import Service

jsonschema = pytest.importorskip("jsonschema", reason="python3-jsonschema is missing")

LIMIT = {"max": 1, "per": "1s"}
RULE = {
    "id": "e",
    "match": {"event": "e", "method": ["GET"], "path": ["/a", {"regex": "/x"}], "host": "h", "header": {"X-A": "b"},
              "user": {"prefix": "a", "not": ["b", {"glob": "c*"}]}, "ip": {"is": ["10.0.0.0/8"], "not": "10.0.0.1"},
              "key": {"present": True}},
    "ignore_case": True,
    "by": ["key", "header:X-A"],
    "limits": [{"name": "n", "algorithm": "token_bucket", "max": 1, "per": "1s", "burst": 2},
               {"name": "d", "calendar": "week", "max": 3, "tz": "UTC", "week_start": "sunday"},
               {"name": "c", "concurrent": 2, "ttl": "5s"}],
    "hold_max": "50%",
    "mode": "enforce",
    "enabled": True,
    "expires": "2030-01-01T00:00:00Z",
    "except": {"ip": ["10.0.0.0/8"], "user": ["u"]},
    "reject": {"status": 429, "body": "b", "content_type": "a/b", "headers": {"X-A": "b"}},
    "counters": "local",
}
LEASED = {"limits": [{"algorithm": "fixed_window", **LIMIT}], "lease": {"slice": "5%", "ttl": "2s"}, "on_store_failure": "local",
          "counters": "shared"}
OVERRIDES = [{"limits": [{"name": "n", "max": 1, "per": "1s"}, "2 per day"], "deny": None, "expires": "2030-01-01T00:00:00Z", "why": "w"},
             {"deny": True, "unlimited": None, "rule": "e", "by": {"key": "k"}}, {"unlimited": True, "limits": None}]
PLANS = {"by": "key", "ignore_case": True, "plan": "header:X-A", "plans": {"free": [LIMIT], "pro": "1 per 1s"}, "limits": LIMIT}
SETTINGS = {"ids": ["a+"], "ignore_case": True, "strip_prefixes": ["/a"], "trusted_proxies": ["10.0.0.0/8"], "ipv6_prefix": 64,
            "except": {"ip": ["10.0.0.0/8"]}, "reject": {"status": 429}}
REQUEST = {"method": "GET", "path": "/", "host": "h", "ip": "192.0.2.1", "peer": "::1", "user": "u", "event": "none", "key": "k",
           "headers": {"X-A": ["a", "b"]}, "cost": 1, "peek": True, "refundable": False, "reject": False}

RULES = [{"limits": limits} for limits in (
    "1 per 1s", ["1 per 1s", "2 per day"], LIMIT, [], None, "", "1 per", "often", ["x"], [[]], [LIMIT] * 16, [LIMIT] * 17,
    {**LIMIT, "calendar": None}, {**LIMIT, "calendar": "day"}, {"max": 1}, {"per": "1s"}, {"max": 1, "calendar": "day", "per": None},
    {"max": 1, "per": "60 s"}, {"max": 1, "per": "060s"}, {"max": 1, "per": "1M"}, {"max": 1, "per": 60}, {"max": 1, "per": "day"},
    {"max": 1, "per": "day", "tz": "UTC"}, {"max": 1, "per": "day", "burst": 2}, {"max": 1, "per": "day", "calendar": "day"},
    {**LIMIT, "tz": "UTC"}, {**LIMIT, "week_start": "monday"}, {**LIMIT, "burst": 2}, {"max": 1, "per": "Day"},
    *({"max": 1, "per": per, "algorithm": name} for per in ("1s", "day", None)
      for name in ("token_bucket", "fixed_window", "sliding_window", "calendar", None, "")),
    *({"max": 1, "calendar": "week", "algorithm": name, **more} for name in ("token_bucket", "sliding_window", "calendar", None)
      for more in ({}, {"tz": "UTC"}, {"burst": 2}, {"week_start": "sunday"}, {"week_start": "Sunday"})),
    {**LIMIT, "algorithm": "fixed_window", "burst": 2}, {**LIMIT, "algorithm": "fixed_window", "burst": None},
    *({**LIMIT, "overdraft": value} for value in (True, False, None, "true", "yes", 1, [])),
    "2 concurrent", "0 concurrent", "two concurrent", "02 concurrent", "2 concurrent 5s", "2 tokens per 1s", {"concurrent": 0},
    {"concurrent": 2, "ttl": None, "algorithm": "concurrent"}, {"concurrent": 2, "ttl": "1h", "max": None, "per": None},
    *({"concurrent": 2, name: value} for name, value in (
        ("max", 2), ("per", "1s"), ("burst", 2), ("calendar", "day"), ("tz", "UTC"), ("week_start", "monday"), ("unit", "bytes"),
        ("algorithm", "fixed_window"))),
    {"algorithm": "concurrent", "max": 2}, {"algorithm": "concurrent", "max": 2, "per": "1s"}, {"ttl": "1s"}, {**LIMIT, "ttl": "1s"},
    {**LIMIT, "ttl": None, "concurrent": None},
)] + [{"limits": LIMIT, **more} for more in (
    *({"hold_max": share} for share in ("1%", "100 %", "0%", "101%", "50", 50, "0.5%", "")), {"by": "ip"}, {"by": []}, {"by": ["ip", "ip"]}, {"by": "colour"}, {"by": ["method", "path", "route", "host", "ip", "user", "event", "key"]},
    {"by": ["method", "path", "route", "host", "ip", "user", "event", "key", "header:X-A"]}, {"match": None}, {"match": {}},
    {"match": {"path": "/a"}}, {"match": {"path": {"regex": "a"}}}, {"match": {"method": "GET"}}, {"match": {"event": 7}},
    *({"match": {name: condition}} for name in ("user", "host", "method") for condition in (
        "a", ["a", "b"], {"is": "a"}, {"not": ["a", {"prefix": "b"}]}, {"prefix": "a"}, {"glob": "a*"}, {"glob": "*"}, {"glob": "a"},
        {"prefix": "a", "glob": "b"}, {"is": "a", "prefix": "b"}, {"prefix": "a", "not": "ab"}, {"present": True}, {"present": False},
        {"absent": True}, {"absent": True, "not": "a"}, {"present": True, "not": "a"}, {"not": {"not": "a"}}, {"prefix": ["a"]},
        [{"prefix": "a", "glob": "b"}], [{"is": "a"}], {"regex": "a"})),
    *({"match": {"ip": condition}} for condition in (
        "10.0.0.0/8", ["::1"], {"is": "::1", "not": ["::1"]}, {"prefix": "10."}, {"present": True}, {"absent": True, "is": "::1"}, [], {})),
    *({"match": {"path": condition}} for condition in (
        {"not": "/a"}, {"is": ["/a", {"regex": "b"}], "not": {"regex": "c"}}, {"regex": "a", "not": "/b"}, {"is": "/a", "regex": "b"},
        {"present": True}, {"absent": True}, {"absent": True, "regex": "a"}, {"prefix": "/a"}, {"not": []})),
    {"match": {"header": {"X-A": {"absent": True}, "X-B": [1, {"glob": "b*"}]}}, "ignore_case": True}, {"ignore_case": 1}, {"ignore_case": None},
    {"mode": "off"}, {"mode": False}, {"mode": True}, {"enabled": False}, {"expires": 1798761600}, {"expires": "1798761600"},
    {"expires": "2027-01-01"}, {"counters": None, "lease": None, "on_store_failure": None}, {"lease": False},
    {"reject": {"headers": {"Retry-After": 7}}}, {"except": {"user": 7}}, {"colour": "red"},
    {"plan": "user"}, {"plans": {"a": LIMIT}}, {"plan": "user", "plans": {"a": LIMIT}, "limits": None},
    {"plan": "user", "plans": {f"p{i}": LIMIT for i in range(64)}}, {"plan": "user", "plans": {f"p{i}": LIMIT for i in range(65)}},
)]

VALUES = (None, True, False, 0, 1, -1, 1.5, 2**53, "", "x", "10", [], [None], ["x"], [1], [[]], [""], [{}], {}, {"x": 1}, {"x": None},
          {"x": "y"}, {"X-A": ["a", "b"]}, {"X-A": []})
# What only the service knows.
BEYOND = ("id: must equal the id in the path", "must be the rule of the row", "must be the subject of the row", "by: needs a value for each of key", "by: the rule counts by key",
          "by.key: ", "unknown time zone", "is allowed with fixed and calendar windows only",
          "needs counters that hosts share")


def places(value, at=()):
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*at, key))


def inside(document, at):
    for key in at:
        document = document[key]
    return document


def replaced(document, at, value):
    document = copy.deepcopy(document)
    inside(document, at[:-1])[at[-1]] = value
    return document


def without(document, at):
    document = copy.deepcopy(document)
    del inside(document, at[:-1])[at[-1]]
    return document


def variants(document):
    yield document
    yield {**document, "colour": "red"}
    for at in places(document):
        if at:
            yield without(document, at)
            yield from (replaced(document, at, value) for value in VALUES)
            if isinstance(inside(document, at), dict):
                yield replaced(document, at, {**inside(document, at), "colour": "red"})


def agree(s, name, bodies, send):
    document = Document(s.steer("GET", "/v1/openapi.json").json())
    schema = {"$ref": f"#/components/schemas/{name}"}
    taken = 0
    for body in bodies:
        answer = send(body)
        takes = answer.status in (200, 201, 204)
        taken += takes
        if not takes and any(part in answer.json()["error"] for part in BEYOND):
            continue
        try:
            document.fits(schema, body)
            fits = True
        except jsonschema.ValidationError:
            fits = False
        expect(fits, takes, f"{name}: {json.dumps(body)} was answered with {answer.status} {answer.body[:300]!r}; the schema")
    expect(taken > 0, True, "something is taken")


def put_rule(s):
    return lambda body: s.steer("PUT", "/v1/rules/e?dry_run=1", body)


def test_rules_field_by_field():
    with Service(rules=None) as s:
        agree(s, "Rule", variants(RULE), put_rule(s))
        agree(s, "Rule", variants(LEASED), put_rule(s))
        agree(s, "Rule", variants(PLANS), put_rule(s))


def test_rules_one_by_one():
    with Service(rules=None) as s:
        agree(s, "Rule", RULES, put_rule(s))


def test_overrides():
    with Service(rules=None) as s:
        s.steer("PUT", "/v1/rules/e", {"by": ["key"], "limits": ["1 per 1s"]})
        bodies = [body for override in OVERRIDES for body in variants(override)]
        agree(s, "Override", bodies, lambda body: s.steer("PUT", "/v1/rules/e/overrides/k?dry_run=1", body))


def test_settings():
    with Service(rules=None) as s:
        agree(s, "Settings", variants(SETTINGS), lambda body: s.steer("PUT", "/v1/settings?dry_run=1", body))


def test_penalties():
    with Service(rules=None) as s:
        s.steer("PUT", "/v1/rules/e", {"by": ["key"], "limits": ["1 per 1s"], "penalty": {"after": 1, "within": "1m", "for": "1m"}})
        bodies = [*variants({"for": "15m"}), *({"for": length} for length in ("1s", " 31 d ", "1000ms", "1h ", "1 w", "1.5h", "h", "01h"))]
        agree(s, "NewPenalty", bodies, lambda body: s.steer("PUT", "/v1/penalties?rule=e&by=k", body))


def test_requests():
    with Service(rules=None) as s:
        json_type = {"Content-Type": "application/json"}
        agree(s, "Request", variants(REQUEST), lambda body: s.ask(s.http, "POST", "/v1/check", json.dumps(body), json_type))
        once = {"method": "POST", "path": "/login", "ip": "192.0.2.1", "refundable": True}
        charged = s.ask(s.http, "POST", "/v1/check", json.dumps(once), json_type).json()
        refund = {**REQUEST, **once, "receipt": charged["receipt"]}
        bodies = (body for body in variants(refund) if isinstance(body.get("receipt"), str) and body["receipt"] == charged["receipt"])
        agree(s, "Refund", bodies, lambda body: s.ask(s.http, "POST", "/v1/refund", json.dumps(body), json_type))


def test_parameters():
    """Texts that no receipt, version or number can be are in no schema, as the service refuses them."""
    json_type = {"Content-Type": "application/json"}
    with Service(rules=None) as s:
        document = Document(s.steer("GET", "/v1/openapi.json").json())

        def says(where, values, refused, send):
            answers = []
            for value in values:
                answers.append(send(value).status == refused)
                try:
                    document.fits({"$ref": f"#/components/{where}"}, value)
                    expect(answers[-1], False, f"{where}: {value!r} fits")
                except jsonschema.ValidationError:
                    expect(answers[-1], True, f"{where}: {value!r} does not fit")
            expect(len(set(answers)), 2, f"{where}: some are taken, some are not")

        says("schemas/Tags", ["*", '"0"', 'W/"0"', '"0", "1"', ' "0" ,*', "", "0", '"0', '"0", 1', "*,,*", "**"], 400,
             lambda tags: s.steer("PATCH", "/v1/rules/e", {"mode": "off"}, {"If-Match": tags}))
        for name in ("before", "number"):
            path = {"before": "/v1/history?before={}", "number": "/v1/settings/undo?number={}"}[name]
            says(f"parameters/{name}/schema", [1, 2**63 - 1, 2**63, 0, -1], 400,
                 lambda number, path=path: s.steer("GET" if "history" in path else "POST", path.format(number)))
        for name, more in (("Refund", {}), ("Settlement", {}), ("Renewal", {"ttl_ms": 1000})):
            path = {"Refund": "refund", "Settlement": "settle", "Renewal": "renew"}[name]
            for field in ("hold", "receipt"):
                body = {field: "", **more}
                expect(s.ask(s.http, "POST", f"/v1/{path}", json.dumps(body), json_type).status, 400, body)
                with pytest.raises(jsonschema.ValidationError):
                    document.fits({"$ref": f"#/components/schemas/{name}"}, body)


def test_costs():
    """A cost and costs are combined in no schema, as the service refuses them."""
    json_type = {"Content-Type": "application/json"}
    with Service(rules=None) as s:
        document = Document(s.steer("GET", "/v1/openapi.json").json())
        for name, path, more in (("Request", "check", {}), ("Reservation", "reserve", {"ttl_ms": 1000})):
            for costs, status in (({"cost": 1, "costs": {}}, 400), ({"cost": 1, "costs": None}, 200), ({"cost": None, "costs": {}}, 200)):
                body = {**costs, **more}
                expect(s.ask(s.http, "POST", f"/v1/{path}", json.dumps(body), json_type).status, status, body)
                if status == 200:
                    document.fits({"$ref": f"#/components/schemas/{name}"}, body)
                else:
                    with pytest.raises(jsonschema.ValidationError):
                        document.fits({"$ref": f"#/components/schemas/{name}"}, body)


def test_servers():
    """The document names the listeners of this very service."""
    def named(s):
        document = s.steer("GET", "/v1/openapi.json").json()
        expect([server["url"] for server in document["servers"]], ["/"], "the admin listener, wherever it is")
        found = [item["servers"] for path, item in sorted(document["paths"].items()) if "servers" in item]
        expect((len(found), found[1:]), (8, found[:-1]), "of check, reserve, settle, renew, refund, auth, json and healthcheck")
        return found[0][0]
    with Service() as s:
        expect(named(s)["url"], f"http://{s.steer('GET', '/v1/status').json()['listeners']['http']}", "a port that was free")
    with Service("--http", "*:0") as s:
        port = s.steer("GET", "/v1/status").json()["listeners"]["http"].rsplit(":", 1)[1]
        server = named(s)
        expect((server["url"], server["variables"]["host"]["default"]), (f"http://{{host}}:{port}", "localhost"), "every address")
    with Service("--http", "off") as s:
        expect(named(s), {"url": "http://localhost", "description": "The decision listener is off."}, "off")
    with tempfile.TemporaryDirectory() as folder:
        place = "unix:" + os.path.join(folder, 'a "socket"')
        with Service("--http", place) as s:
            expect(named(s), {"url": "http://localhost", "description": f"The decision listener, on {place}."}, "a socket")


def test_headers_that_are_too_large():
    """Every operation may be answered so, and its document says it."""
    with open(os.path.join(ROOT, "src", "serve", "openapi.json"), encoding="utf-8") as file:
        document = json.load(file)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method in ("get", "put", "post", "delete", "patch", "options", "head", "trace"):
                expect({"431", "default"} & set(operation["responses"]) != set(), True, f"{method} {path}")
    with Service() as service:
        for where, path in ((service.admin, "/v1/counts"), (service.http, "/v1/auth"), (service.http, "/healthz")):
            answer = service.ask(where, "GET", path, headers={"X-Long": "x" * 9000})
            expect((answer.status, list(answer.json())), (431, ["error", "hint"]), path)
