"""The admin API: rules, settings, explanations, subjects; who may ask."""

import contextlib
import json
import os
import sqlite3
import threading
import urllib.parse

import pytest

import support
from support import expect, has, until
from support.contract import Checked

LIMITED = {"match": {"event": "e"}, "by": ["key"], "limits": [{"name": "hour", "algorithm": "fixed_window", "max": 2, "per": "1h"}]}
JSON = {"Content-Type": "application/json"}


def refused(answer, status, *parts):
    """An error that says these."""
    expect(answer.status, status, answer.body)
    document = answer.json()
    has(document["error"] + "\n" + document.get("hint", ""), *parts)


def limited(most):
    return {**LIMITED, "limits": [{**LIMITED["limits"][0], "max": most}]}


def put(s, name, rule, status=200, **headers):
    answer = s.steer("PUT", f"/v1/rules/{name}", rule, {name.replace("_", "-"): value for name, value in headers.items()})
    expect(answer.status, status, answer.body)
    return answer


def cli(s, *words):
    done = support.weir("rules", *words, "--from", f"sqlite:{s.data}/rules.db")
    expect(done.returncode, 0, done.stderr)
    return done.stdout.decode()


# ---- who may ask ----


def test_health_is_open_and_the_rest_is_not():
    with Checked(rules=None) as s:
        expect(s.ask(s.admin, "GET", "/healthz").status, 200)
        expect(s.ask(s.admin, "GET", "/readyz").status, 200)
        for path in ("/v1/rules", "/metrics", "/v1/status", "/v1/openapi.json", "/nowhere"):
            for headers in ({}, {"Authorization": "Bearer " + "0" * 48}, {"Authorization": s.token}, {"Authorization": "Bearer"}):
                answer = s.ask(s.admin, "GET", path, None, headers)
                refused(answer, 401, "token", "Authorization: Bearer")
                expect(answer.headers["WWW-Authenticate"], "Bearer")
        expect(s.ask(s.admin, "GET", "/metrics", None, {"Authorization": f"bearer {s.token}"}).status, 200)
        expect([each["message"].split(" (")[0] for each in s.events("mistake")],
               ["the admin listener, request from 127.0.0.1: the token is missing or wrong"], "one line")
        expect(any(s.token in line for line in s.lines()), False, "the token is in the log")


def test_hosts_and_origins_of_others_are_refused():
    with Checked("--admin-hosts", "weir.example", rules=None) as s:
        port = s.admin[1]
        for host in ("localhost", f"127.0.0.1:{port}", "[::1]:80", "weir.example:443"):
            expect(s.steer("GET", "/v1/status", None, {"Host": host}).status, 200, host)
            expect(s.steer("GET", "/v1/status", None, {"Origin": f"http://{host}"}).status, 200, host)
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", f"127.0.0.1:{port}@evil.example",
                     "[::1]evil.example", ""):
            refused(s.steer("GET", "/v1/status", None, {"Host": host}), 403, "Host", "admin-hosts")
            refused(s.ask(s.admin, "GET", "/healthz", None, {"Host": host}), 403, "Host")
        for origin in ("http://evil.example", "null", "https://localhost.evil.example", "x"):
            refused(s.steer("GET", "/v1/status", None, {"Origin": origin}), 403, "Origin", origin)


def test_a_unix_socket_takes_any_host():
    with Checked(rules=None) as outer:
        path = os.path.join(outer.folder.name, "admin.sock")
        with Checked("--admin", f"unix:{path}", rules=None) as s:
            expect(s.steer("GET", "/v1/status", None, {"Host": "whatever"}).status, 200)
            refused(s.steer("GET", "/v1/status", None, {"Origin": "http://evil.example"}), 403, "Origin")
            refused(s.ask(s.admin, "GET", "/v1/status"), 401, "token")


def test_paths_and_methods():
    with Checked(rules=None) as s:
        for path in ("/v1", "/v1/rules/", "/v1/rules/ocr/", "/v1/rules/ocr/x", "/v1/rule", "/v1/rules/ocr/history/x"):
            refused(s.steer("GET", path), 404, "nothing at", "/v1/openapi.json")
        for method, path, allow in (("POST", "/v1/rules", "GET, HEAD"), ("POST", "/v1/rules/ocr", "GET, HEAD, PUT, PATCH, DELETE"),
                                    ("GET", "/v1/rules/ocr/undo", "POST"), ("GET", "/v1/rules/ocr/enable", "POST"), ("DELETE", "/v1/settings", "GET, HEAD, PUT")):
            answer = s.steer(method, path)
            refused(answer, 405, allow)
            expect(answer.headers["Allow"], allow)
        head = s.steer("HEAD", "/v1/rules/ocr")
        expect((head.status, head.body), (200, b""))
        expect(head.headers["ETag"], s.steer("GET", "/v1/rules/ocr").headers["ETag"])
        refused(s.steer("GET", "/v1/rules/ocr?x=1"), 400, "`x`", "no parameters are allowed")
        refused(s.steer("GET", "/v1/top?most=0"), 400, "most", "1 to 1000")


# ---- rules ----


def test_a_rule_is_in_force_when_the_answer_comes():
    with Checked("--poll", "1h", rules=None) as s:
        for most in (1, 5, 2, 4):
            put(s, "e", limited(most), 200 if most != 1 else 201)
            expect(s.check(event="e", key=f"k{most}").json()["max"], most)
        document = s.steer("GET", "/v1/rules/e").json()
        expect(document["rule"], {"id": "e", **limited(4)})
        expect((document["state"], document["enabled"], document["problems"]), ("enforce", True, []))
        expect(s.steer("DELETE", "/v1/rules/e").status, 204)
        expect(s.check(event="e", key="k").json()["rule"], None)
        refused(s.steer("GET", "/v1/rules/e"), 404, "`e`")
        refused(s.steer("DELETE", "/v1/rules/e"), 404, "`e`")
        s.restart()
        expect(s.steer("GET", "/v1/rules/e").status, 404)


def test_all_rules_are_listed():
    with Checked(rules=None) as s:
        document = s.steer("GET", "/v1/rules").json()
        expect([row["id"] for row in document["rules"]], ["entity-bundle", "login", "ocr", "per-address", "upload"])
        expect((document["read_only"], document["problem_count"]), (False, 0))
        has(document["source"], "sqlite:", "rules.db")
        for row in document["rules"]:
            Checked.document.fits({"$ref": "#/components/schemas/Rule"}, row["rule"])
            one = s.steer("GET", f"/v1/rules/{row['id']}")
            expect(one.json(), row)
            tag = f'"{row["version"]}"'
            expect(one.headers["ETag"], tag)
            known = s.steer("GET", f"/v1/rules/{row['id']}", None, {"If-None-Match": tag})
            expect((known.status, known.body, known.headers["ETag"]), (304, b"", tag))


def test_browsers_keep_nothing():
    with Checked(rules=None) as s:
        for answer in (s.steer("GET", "/v1/rules"), s.ask(s.admin, "GET", "/v1/rules"), s.steer("GET", "/nowhere")):
            found = {name: answer.headers.get(name) for name in ("Cache-Control", "X-Content-Type-Options", "X-Frame-Options")}
            expect(found, {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"})


def test_rules_are_listed_by_pages():
    with Checked(rules=None) as s:
        def ids(query):
            document = s.steer("GET", f"/v1/rules?{query}").json()
            return [row["id"] for row in document["rules"]], document["count"]

        expect(ids("most=2"), (["entity-bundle", "login"], 5))
        expect(ids("most=2&after=login"), (["ocr", "per-address"], 5))
        expect(ids("most=2&after=upload"), ([], 5))
        expect(ids("q=LOGIN"), (["login"], 1), "the id")
        expect(ids("q=Asia/Shang"), (["ocr"], 1), "a limit")
        expect(ids("q=entity/%23/bundle"), (["entity-bundle"], 1), "the path")
        expect(ids("state=shadow"), (["login"], 1))
        expect(ids("state=shadow&q=ocr"), ([], 0))
        expect(ids("state=enforce&most=1&after=login"), (["ocr"], 4), "a rule that is not selected itself")
        refused(s.steer("GET", "/v1/rules?after=gone"), 404, "`gone`", "without `after`")
        refused(s.steer("GET", "/v1/rules?most=0"), 400, "1 to 10000")
        for state in Checked.document.document["components"]["schemas"]["Row"]["properties"]["state"]["enum"]:
            expect(s.steer("GET", f"/v1/rules?state={state}").status, 200)
        refused(s.steer("GET", "/v1/rules?state=nonsense"), 400, "`state`", "enforce, shadow, off, expired, disabled, bad", "`nonsense`")


def test_rules_with_plans_and_budgets_are_found():
    day = {"max": 5, "calendar": "day", "tz": "UTC"}
    plans = {"plan": "header:x-plan", "plans": {"pro": "5 per 24h"}}
    rules = {
        "short": {"limits": ["5 per 1h", "7 per 86399s"]},
        "hour": {"limits": {**day, "calendar": "hour"}},
        "slots": {"limits": {"algorithm": "concurrent", "max": 3, "ttl": "24h"}},
        "each": {"limits": day, "by": ["user"]},
        "each-plan": {**plans, "by": ["user"]},
        "day": {"limits": ["5 per 1h", day]},
        "day-long": {"limits": "5 per 24h", "mode": "shadow"},
        "month": {"limits": {**day, "calendar": "month"}},
        "plan": plans,
    }
    with Checked(rules=json.dumps({"rules": [{"id": name, **rule} for name, rule in rules.items()]})) as s:
        def ids(query):
            return [row["id"] for row in s.steer("GET", f"/v1/rules?{query}").json()["rules"]]

        expect(ids("with=budget"), ["day", "day-long", "month", "plan"])
        expect(ids("with=budget&state=enforce&most=1&after=day"), ["month"])
        expect(ids("with=plans"), ["each-plan", "plan"])
        expect(ids("with=by"), ["each", "each-plan"])
        expect(ids("with="), list(rules))
        refused(s.steer("GET", "/v1/rules?with=limits"), 400, "`with`", "by, plans, budget", "`limits`")


def test_rules_are_linted():
    with Checked(rules=None) as s:
        def lint(text, kind="application/yaml", status=200):
            answer = s.ask(s.admin, "POST", "/v1/lint", text, {"Authorization": f"Bearer {s.token}", "Content-Type": kind})
            expect(answer.status, status, answer.body)
            return answer.json()

        good = lint("match: { event: ocr }\nby: key\nlimits: [10 per 1m]\nid: x\n")
        expect(good, {"valid": True, "document": {"match": {"event": "ocr"}, "by": "key", "limits": ["10 per 1m"], "id": "x"}, "errors": [], "advice": []})
        expect(lint("id: x\nmode: shadow\nlimits: [10 per 1m]\n")["advice"], [])
        every = lint("# why\nid: x\nby: [user]\nlimits: [0 per 1m]\n")["advice"]
        expect([(one["line"], one["rule"]) for one in every], [(4, "x"), (2, "x")])
        has(every[0]["text"], "limits[0]: max 0 has no room", "`mode: off`")
        has(every[1]["text"], "match: is missing", "every request that has user;")
        denied = lint("rules: [{ id: a, by: key, limits: 1 per 1s }]\noverrides: [{ rule: a, by: { key: k }, limits: 0 per 1s }]\n")["advice"]
        expect(len(denied), 1)
        has(denied[0]["text"], "if you want that, write `deny: true` in place of `limits`")
        bad = lint("id: x\nlimits:\n  - { max: -1, per: 1h }\nfoo: |\n  a\n  b\n")
        expect([(one["line"], one["rule"], one["text"].split(":")[0]) for one in bad["errors"]], [(3, "x", "limits[0].max"), (4, "x", 'unknown field "foo"; allowed')])
        for before in ("\ufeff", "---\n", "# a comment\n\n", "%YAML 1.1\n---\n"):
            expect(lint(before + "id: x\nlimits: 1 per 1s\n")["errors"], [], before)
        expect(lint("# a comment\n---\nid: x\nlimits: often\n")["errors"][0]["line"], 4)
        expect(lint('{"id": "x", "limits": "ten"}', "application/json")["valid"], False)
        expect(lint("id: [")["document"], None)
        has(lint("id: [")["errors"][0]["text"], "not YAML or JSON")
        expect(lint("- { id: a, limits: 1 per 1s }\n- { id: a, limits: 1 per 1s }\n")["errors"][0]["line"], 2, "a list")
        whole = lint("settings: { ipv6_prefix: 7000 }\nrules: [{ id: a, limits: 1 per 1s }]\n")
        expect(whole["errors"][0]["line"], 1, "a whole file")
        for text in ("", "x", "[]", "null", "\0", "\udcff".encode("utf-8", "surrogateescape"), "a: &a [*a]", "[" * 100000):
            expect(lint(text)["valid"] in (True, False), True)
        lint("{}", "text/plain", 415)
        expect(len(s.steer("GET", "/v1/rules").json()["rules"]), 5, "nothing has changed")


def test_bad_rules_change_nothing():
    with Checked("--request-bytes", "64k", rules=None) as s:
        put(s, "e", limited(2), 201)
        before = s.steer("GET", "/v1/rules").body
        refused(s.steer("PUT", "/v1/rules/e", {**LIMITED, "limits": []}), 422, "rule e", "limits", "nothing was changed")
        refused(s.steer("PUT", "/v1/rules/e", {**LIMITED, "limitz": 1}), 422, "limitz")
        refused(s.steer("PUT", "/v1/rules/f", {"match": {"path": {"regex": "("}}, "limits": ["1 per 1s"]}), 422, "rule f")
        refused(s.steer("PUT", "/v1/rules/e", "{"), 400, "JSON")
        refused(s.steer("PUT", "/v1/rules/e", ""), 400, "JSON")
        refused(s.steer("PUT", "/v1/rules/e", "[]"), 400, "object")
        refused(s.steer("PUT", "/v1/rules/e", '{"limits": ["1 per 1s"], "limits": ["2 per 1s"]}'), 400, "duplicate")
        refused(s.steer("PUT", "/v1/rules/e", {"id": "other", **LIMITED}), 400, "id")
        refused(s.steer("PUT", "/v1/rules/e", s.steer("GET", "/v1/rules/e").json()), 400, "only the value of `rule`")
        for method, path in (("PUT", ""), ("GET", ""), ("DELETE", ""), ("GET", "/history"), ("POST", "/undo")):
            refused(s.steer(method, f"/v1/rules/%FF{path}", LIMITED if method == "PUT" else None), 400, "UTF-8")
        refused(s.steer("PUT", "/v1/rules/e", LIMITED, {"Content-Type": "text/plain"}), 415, "application/json")
        refused(s.steer("PUT", "/v1/rules/e", " " * 70000), 413, "request-bytes")
        refused(s.steer("PUT", "/v1/rules/" + "x" * 101, LIMITED), 422, "100")
        refused(s.steer("PUT", "/v1/rules/e?dry_run=yes", limited(3)), 400, "dry_run")
        refused(s.steer("PUT", "/v1/rules/e", limited(3), {"X-Weir-Author": "x" * 201}), 400, "200")
        refused(s.steer("PUT", "/v1/rules/e", limited(3), {"X-Weir-Note": "x" * 1001}), 400, "1000")
        expect(s.steer("GET", "/v1/rules").body, before)
        expect(s.check(event="e", key="k").json()["max"], 2)


def test_a_dry_run_changes_nothing():
    with Checked(rules=None) as s:
        before = s.steer("GET", "/v1/rules").body
        for name in ("e", "ocr"):
            tried = s.steer("PUT", f"/v1/rules/{name}?dry_run=1", LIMITED)
            expect((tried.status, tried.headers["ETag"]), (200, None))
            row = tried.json()
            expect((row["dry_run"], row["state"], row["rule"]), (True, "enforce", {"id": name, **LIMITED}))
        # Where nothing would change, too.
        row = s.steer("GET", "/v1/rules/login").json()
        expect(s.steer("PUT", "/v1/rules/login?dry_run=1", row["rule"]).json(), {**row, "dry_run": True})
        expect(s.steer("DELETE", "/v1/rules/ocr?dry_run=1").status, 204)
        expect(s.steer("PUT", "/v1/settings?dry_run=1", {}).json(), {"dry_run": True})
        expect(s.steer("PUT", "/v1/settings?dry_run=1", {"ipv6_prefix": 48}).json(), {"dry_run": True, "ipv6_prefix": 48})
        refused(s.steer("PUT", "/v1/rules/e?dry_run=1", {"limits": []}), 422, "limits")
        for more in ({"counters": "local"}, {"lease": True}, {"lease": {"slice": "2.5%", "ttl": "5s"}, "on_store_failure": "deny"}):
            expect(s.steer("PUT", "/v1/rules/e?dry_run=1", {**LIMITED, **more}).status, 200, more)
        bucket = {"limits": ["1 per 1s"], "lease": True}
        refused(s.steer("PUT", "/v1/rules/e?dry_run=1", bucket), 422, "lease", "`token_bucket` is a token_bucket")
        refused(s.steer("PUT", "/v1/settings?dry_run=true", {"ipv6_prefix": 0}), 422, "ipv6_prefix")
        refused(s.steer("DELETE", "/v1/rules/none?dry_run=1"), 404, "none")
        expect(s.steer("GET", "/v1/rules").body, before)
        expect(s.check(event="e", key="k").json()["rule"], None)


def test_ids_may_be_anything():
    with Checked(rules=None) as s:
        for name in ("a/b", "50% + more", "Größe", "a?b#c", "..", "history"):
            path = urllib.parse.quote(name, safe="") if name != ".." else "%2E%2E"
            put(s, path, limited(3), 201)
            expect(s.steer("GET", f"/v1/rules/{path}").json()["id"], name)
            expect(len(s.steer("GET", f"/v1/rules/{path}/history").json()["events"]), 1)
            expect(s.steer("DELETE", f"/v1/rules/{path}").status, 204)


def test_what_was_switched_off_is_put_back_into_force():
    with Checked(rules=None) as s:
        put(s, "e", limited(2), 201)
        cli(s, "disable", "e")
        expect(s.steer("GET", "/v1/rules/e").json()["state"], "disabled")
        put(s, "e", {**limited(2), "mode": "off"})
        expect(s.check(event="e", key="k").json()["rule"], None)
        put(s, "e", limited(2))
        expect(s.check(event="e", key="k").json()["rule"], "e")
        expect(s.steer("GET", "/v1/rules/e").json()["state"], "enforce")


def test_a_patch_changes_what_it_names():
    with Checked(rules=None) as s:
        put(s, "e", {**limited(2), "mode": "shadow", "reject": {"status": 503, "body": "no"}}, 201)
        path, merge = "/v1/rules/e", {"Content-Type": "application/merge-patch+json"}
        answer = s.steer("PATCH", path, {"mode": None, "reject": {"body": None, "content_type": "text/x"}}, {**merge, "X-Weir-Author": "Ann"})
        expect((answer.status, answer.headers["ETag"]), (200, f'"{answer.json()["version"]}"'))
        expect(answer.json()["rule"], {"id": "e", **limited(2), "reject": {"status": 503, "content_type": "text/x"}})
        expect(s.check(event="e", key="k").json()["rule"], "e")
        expect([(event["what"], event["who"]) for event in s.steer("GET", f"{path}/history").json()["events"]],
               [("change", "Ann"), ("add", "admin api")])
        # A list is replaced whole, an object that was none is made, and where nothing changes there is no history.
        expect(s.steer("PATCH", path, {"limits": ["7 per 1h"], "except": {"user": ["u"]}, "id": "e"}).json()["rule"],
               {"id": "e", "match": {"event": "e"}, "by": ["key"], "limits": ["7 per 1h"], "except": {"user": ["u"]},
                "reject": {"status": 503, "content_type": "text/x"}})
        expect(s.steer("PATCH", path, {"limits": ["7 per 1h"], "colour": None}).status, 200)
        expect(len(s.steer("GET", f"{path}/history").json()["events"]), 3)
        before = s.steer("GET", path)
        for body, status, *parts in (({"limits": []}, 422, "rule e", "limits", "nothing was changed"), ({"colour": 1}, 422, "colour"),
                                     ({"limits": None}, 422, "limits"), ({"id": "other"}, 400, "id"), ({"id": None}, 400, "id"),
                                     ([], 400, "object"), ("{", 400, "JSON"), ({"state": "off"}, 400, "only the value of `rule`"),
                                     ('{"mode": "off", "mode": null}', 400, "duplicate"), ("[" * 3000, 400, "JSON")):
            refused(s.steer("PATCH", path, body), status, *parts)
        refused(s.steer("PATCH", path, {}, {"Content-Type": "text/plain"}), 415, "application/json")
        refused(s.steer("PUT", path, LIMITED, merge), 415, "application/json")
        refused(s.steer("PATCH", "/v1/rules/none", {"mode": "off"}), 404, "none")
        refused(s.steer("PATCH", path, {"mode": "off"}, {"If-Match": '"0"'}), 412, "changed since")
        tried = s.steer("PATCH", f"{path}?dry_run=1", {"mode": "off"}).json()
        expect((tried["dry_run"], tried["rule"]["mode"]), (True, "off"))
        expect(s.steer("GET", path).body, before.body)
        # Two patches of one version: the second is told.
        tag = {"If-Match": before.headers["ETag"]}
        expect(s.steer("PATCH", path, {"mode": "shadow"}, tag).status, 200)
        refused(s.steer("PATCH", path, {"mode": "off"}, tag), 412, "changed since")


def test_a_patch_leaves_a_disabled_rule_disabled():
    with Checked(rules=None) as s:
        put(s, "e", {**limited(2), "enabled": False}, 201)
        expect(s.steer("PATCH", "/v1/rules/e", {"mode": "off"}).json()["rule"]["mode"], "off")
        expect(s.steer("PATCH", "/v1/rules/e", {"mode": "shadow"}).json()["state"], "disabled")
        expect(s.steer("PATCH", "/v1/rules/e", {"enabled": True}).json()["state"], "shadow")
        expect(s.steer("PATCH", "/v1/rules/e", {"enabled": False, "mode": None}).json()["state"], "disabled")
        expect(s.steer("GET", "/v1/rules/e").json()["rule"], {"id": "e", **limited(2)})


def test_rules_are_enabled_and_disabled():
    with Checked("--poll", "1h", rules=None) as s:
        put(s, "e", {**limited(2), "mode": "shadow"}, 201)
        for _ in range(2):
            expect(s.steer("POST", "/v1/rules/e/disable").json()["state"], "disabled")
        put(s, "f", {**LIMITED, "mode": "off"}, 201)
        expect(s.steer("POST", "/v1/rules/f/enable?dry_run=1").json()["rule"]["mode"], "enforce")
        expect(s.check(event="e", key="k").json()["rule"], None)
        expect(s.steer("POST", "/v1/rules/f/enable", None, {"X-Weir-Author": "Ann"}).json()["state"], "enforce")
        expect(s.check(event="e", key="k").json()["rule"], "f")
        tag = s.steer("GET", "/v1/rules/e").headers["ETag"]
        expect(s.steer("POST", "/v1/rules/e/enable", None, {"If-Match": tag}).json()["state"], "shadow")
        refused(s.steer("POST", "/v1/rules/e/disable", None, {"If-Match": tag}), 412, "changed since")
        expect([event["what"] for event in s.steer("GET", "/v1/rules/e/history").json()["events"]], ["enable", "disable", "add"])
        refused(s.steer("POST", "/v1/rules/none/enable"), 404, "none")
        refused(s.steer("POST", "/v1/rules/none/disable"), 404, "none")
        cli(s, "throttle", "/a/#", "3 per 60s")
        refused(s.steer("POST", "/v1/rules/throttled-call-1/disable"), 400, "THROTTLED_CALLS")
        refused(s.steer("POST", "/v1/rules/e/enable?most=1"), 400, "most", "dry_run")


def test_others_change_rules_too():
    with Checked("--poll", "100ms", rules=None) as s:
        cli(s, "throttle", "/a/#", "3 per 60s")
        row = s.steer("GET", "/v1/rules/throttled-call-1").json()
        expect((row["table"], row["row"]), ("THROTTLED_CALLS", "1"))
        put(s, "throttled-call-1", {**row["rule"], "limits": [{"algorithm": "fixed_window", "max": 4, "per": "60s"}]})
        expect(s.check(method="GET", path="/a/7", user="u").json()["max"], 4)
        refused(s.steer("PUT", "/v1/rules/throttled-call-1", limited(2)), 400, "THROTTLED_CALLS")


def test_overrides():
    """One; test_admin_overrides.py has the rest."""
    with Checked(rules=None) as s:
        put(s, "e", limited(2), 201)
        expect(s.steer("PUT", "/v1/rules/e/overrides/k", {"deny": True}).status, 201)
        expect(s.check(event="e", key="k").json()["allowed"], False)
        expect(s.steer("GET", "/v1/rules/e/overrides/k").json(), s.steer("GET", "/v1/rules/e/overrides").json()["overrides"][0])
        expect(s.steer("DELETE", "/v1/rules/e/overrides/k").status, 204)


# ---- no lost updates ----


def test_conditions():
    with Checked(rules=None) as s:
        first = put(s, "e", limited(1), 201, If_None_Match="*").headers["ETag"]
        refused(s.steer("PUT", "/v1/rules/e", limited(2), {"If-None-Match": "*"}), 412, "exists already")
        second = put(s, "e", limited(2), 200, If_Match=first).headers["ETag"]
        refused(s.steer("PUT", "/v1/rules/e", limited(3), {"If-Match": first}), 412, "changed since", "read it again")
        refused(s.steer("DELETE", "/v1/rules/e", None, {"If-Match": first}), 412, "changed since")
        refused(s.steer("POST", "/v1/rules/e/undo", None, {"If-Match": first}), 412, "changed since")
        refused(s.steer("PUT", "/v1/rules/none", limited(3), {"If-Match": "*"}), 412, "does not exist")
        refused(s.steer("PUT", "/v1/rules/e?dry_run=1", limited(3), {"If-Match": first}), 412, "changed since")
        expect(s.check(event="e", key="k").json()["max"], 2)
        put(s, "e", limited(3), 200, If_Match=f'"x", {second}')
        cli(s, "set", "e", "limits.hour.max=9")
        refused(s.steer("DELETE", "/v1/rules/e", None, {"If-Match": second}), 412, "changed since")
        for tag in (second.strip('"'), second + ", x", ""):
            refused(s.steer("DELETE", "/v1/rules/e", None, {"If-Match": tag}), 400, "If-Match", "quotes")
        refused(s.steer("PUT", "/v1/rules/e", limited(3), {"If-None-Match": "x"}), 400, "If-None-Match", "quotes")
        expect(s.steer("DELETE", "/v1/rules/e", None, {"If-Match": "*"}).status, 204)


def test_two_writers_lose_nothing():
    """Two services over one database: each adds one to what it has read, again and again."""
    turns, writers = 8, 2

    def write(s, failures):
        try:
            done = 0
            while done < turns:
                row = s.steer("GET", "/v1/rules/e")
                rule = limited(row.json()["rule"]["limits"][0]["max"] + 1)
                answer = s.steer("PUT", "/v1/rules/e", rule, {"If-Match": row.headers["ETag"]})
                if answer.status == 200:
                    done += 1
                else:
                    expect(answer.status, 412, answer.body)
        except BaseException as failure:
            failures.append(failure)
            raise

    with Checked(rules=None) as one, Checked("--rules", f"sqlite:{one.data}/rules.db", rules=False) as two:
        put(one, "e", limited(0), 201)
        failures = []
        threads = [threading.Thread(target=write, args=(s, failures)) for s in (one, two) for _ in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect(failures, [])
        expect(two.steer("GET", "/v1/rules/e").json()["rule"]["limits"][0]["max"], turns * len(threads))


# ---- history ----


def undo_of(event, what, text, **now):
    """The answer to the undoing of an event."""
    change = {name: event[name] for name in ("what", "rule", "table", "row")}
    return {"undone": event["number"], "what": what, "text": text, "change": change, **now}


def test_history_and_undo():
    with Checked(rules=None) as s:
        put(s, "e", limited(1), 201, X_Weir_Author="Ann", X_Weir_Note="ticket 7")
        put(s, "e", limited(2))
        put(s, "e", limited(2))
        events = s.steer("GET", "/v1/rules/e/history").json()["events"]
        expect([(event["what"], event["who"]) for event in events], [("change", "admin api"), ("add", "Ann")])
        expect([event["note"] for event in events], ["", "ticket 7"])
        expect(events[0]["before"]["rule"]["limits"], limited(1)["limits"])
        expect((events[1]["before"], events[1]["after"]["enabled"]), (None, True))
        expect(len(s.steer("GET", "/v1/rules/e/history?most=1").json()["events"]), 1)
        undone = s.steer("POST", "/v1/rules/e/undo").json()
        expect(undone, undo_of(events[0], "change", "rule e is as it was before", rule={"id": "e", **limited(1)}))
        expect(s.check(event="e", key="k").json()["max"], 1)
        refused(s.steer("POST", f"/v1/rules/e/undo?number={events[0]['number']}"), 409, "changed after it")
        refused(s.steer("POST", f"/v1/rules/ocr/undo?number={events[1]['number']}"), 409, "does not belong to rule ocr")
        undone = s.steer("POST", f"/v1/rules/e/undo?number={events[1]['number']}").json()
        expect(undone, undo_of(events[1], "remove", "rule e is removed", rule=None))
        expect(s.check(event="e", key="k").json()["rule"], None)
        # Undoing the undoing.
        again = s.steer("GET", "/v1/rules/e/history?most=1").json()["events"][0]
        undone = s.steer("POST", f"/v1/rules/e/undo?number={again['number']}").json()
        expect((undone["what"], undone["rule"]), ("add", {"id": "e", **limited(1)}))
        refused(s.steer("POST", "/v1/rules/nobody/undo"), 409, "no such change")
        expect(s.steer("GET", "/v1/rules/nobody/history").json(), {"events": []})


def test_what_is_done_to_subjects_is_in_the_history():
    pen = {**limited(1), "penalty": {"after": 5, "within": "1m", "for": "1m"}}
    tenant = {"match": {"event": "t"}, "by": ["header:X-Tenant", "key"], "limits": "1 per 1h"}
    with Checked(rules=None) as s:
        put(s, "e", pen, 201)
        put(s, "t", tenant, 201)
        ann = {"X-Weir-Author": "Ann", "X-Weir-Note": "ticket 8"}
        s.check(event="e", key="k")
        expect(s.steer("DELETE", "/v1/subjects?rule=e&by=k", None, ann).status, 204)
        expect(s.steer("DELETE", "/v1/subjects?rule=e&by=nobody", None, ann).status, 404, "and is not recorded")
        expect(s.steer("PUT", "/v1/penalties?rule=e&by=k", {"for": "15m"}, ann).status, 204)
        expect(s.steer("DELETE", "/v1/penalties?rule=e&by=k").status, 204)
        s.check(event="t", key="<b>,%", headers={"X-Tenant": "swordfish-and-more"})
        expect(s.steer("DELETE", "/v1/subjects?rule=t&by=swordfish-and-more&by=%3Cb%3E,%25").status, 204)
        answer = s.steer("GET", "/v1/history?most=5")
        events = answer.json()["events"]
        expect([(e["what"], e["rule"], e["table"], e["row"], e["who"], e["note"], e["undoable"]) for e in events], [
            ("reset", "t", "subject", "swor…,<b>%2C%25", "admin api", "", False), ("lift", "e", "subject", "k", "admin api", "", False),
            ("penalise", "e", "subject", "k", "Ann", "ticket 8", False), ("reset", "e", "subject", "k", "Ann", "ticket 8", False),
            ("add", "t", "WEIR_RULES", "t", "admin api", "", True)])
        expect("swordfish" in answer.body.decode(), False)
        expect([e["before"] for e in events[:4]], [None] * 4)
        expect(events[2]["after"], {"rule": "e", "by": [{"name": "key", "value": "k"}], "cut": False, "for_ms": 900_000})
        expect([e["what"] for e in s.steer("GET", "/v1/rules/e/history").json()["events"]], ["lift", "penalise", "reset", "add"])
        told = cli(s, "history", "e")
        has(told, "Ann  penalise e (cannot be undone; subject k)  ticket 8\n", "admin api  lift e (cannot be undone; subject k)\n")
        refused(s.steer("POST", f"/v1/undo?number={events[2]['number']}"), 409, "(penalise) cannot be undone")
        refused(s.steer("POST", f"/v1/rules/e/undo?number={events[1]['number']}"), 409, "(lift) cannot be undone")
        expect(s.steer("POST", "/v1/undo").json(), undo_of(events[4], "remove", "rule t is removed"), "it passes over them")
        expect(s.steer("POST", "/v1/rules/e/undo").json()["text"], "rule e is removed")
        put(s, "e", pen, 201)
        s.check(event="e", key="k")
        refused(s.steer("DELETE", "/v1/subjects?rule=e&by=k", None, {"X-Weir-Author": "a" * 201}), 400, "at most 200 bytes")
        refused(s.steer("PUT", "/v1/penalties?rule=e&by=k", {"for": "1m"}, {"X-Weir-Note": "a" * 1001}), 400, "at most 1000 bytes")
        # Not UTF-8, as keys may be, and longer than the column.
        s.check(event="e", key="x" * 1000)
        expect(s.steer("DELETE", "/v1/subjects?rule=e&by=" + "x" * 1000).status, 204)
        expect(s.steer("PUT", "/v1/penalties?rule=e&by=%FF%27", {"for": "1m"}).status, 204)
        first, second = s.steer("GET", "/v1/history?most=2").json()["events"]
        expect((first["what"], first["row"], second["what"], second["row"][:100]), ("penalise", "?'", "reset", "x" * 100))


def test_a_history_that_fails_stops_nobody():
    with Checked(rules=None) as s:
        put(s, "e", limited(1), 201)
        s.check(event="e", key="k")
        with contextlib.closing(sqlite3.connect(os.path.join(s.data, "rules.db"))) as db:
            db.execute("DROP TABLE WEIR_HISTORY")
            db.commit()
        expect(s.steer("DELETE", "/v1/subjects?rule=e&by=k", None, {"X-Weir-Author": "Ann"}).status, 204)
        expect(s.check(event="e", key="k").status, 200)
        until(lambda: any("rule e: reset is not in the history: " in one["message"] for one in s.events("change")), "a warning")


def test_the_history_of_everything():
    with Checked(rules=None) as s:
        start = s.steer("GET", "/v1/history").json()["events"][0]["number"]
        put(s, "e", limited(1), 201, X_Weir_Author="Ann")
        s.steer("PUT", "/v1/settings", {"ipv6_prefix": 48})
        put(s, "f", limited(1), 201, X_Weir_Note="why")
        s.steer("POST", "/v1/rules/e/disable")
        events = s.steer("GET", "/v1/history?most=5").json()["events"]
        expect([(event["what"], event["rule"] or event["row"]) for event in events],
               [("disable", "e"), ("add", "f"), ("remove", "trusted_proxies"), ("add", "ipv6_prefix"), ("add", "e")])
        # Page by page, each once.
        numbers, before = [], ""
        while page := s.steer("GET", f"/v1/history?most=3{before}").json()["events"]:
            numbers += [event["number"] for event in page]
            before = f"&before={numbers[-1]}"
        expect(numbers, list(range(start + 5, 0, -1)))
        of_e = s.steer("GET", f"/v1/rules/e/history?before={numbers[0]}").json()["events"]
        expect([event["what"] for event in of_e], ["add"])
        expect(len(s.steer("GET", f"/v1/settings/history?before={events[2]['number']}&most=1").json()["events"]), 1)
        # One of them, then the newest that is left.
        expect(s.steer("POST", f"/v1/undo?number={events[3]['number']}").json(),
               undo_of(events[3], "remove", "the setting ipv6_prefix is removed"))
        expect(s.steer("GET", "/v1/settings").json(), {})
        expect(s.steer("POST", "/v1/undo", None, {"X-Weir-Author": "Bob"}).json(), undo_of(events[0], "enable", "rule e is enabled"))
        expect(s.check(event="e", key="k").json()["rule"], "e")
        expect(s.steer("GET", "/v1/history?most=1").json()["events"][0]["who"], "Bob")
        put(s, "f", limited(2))
        refused(s.steer("POST", f"/v1/undo?number={events[1]['number']}"), 409, "changed after it")
        refused(s.steer("POST", "/v1/undo?number=9999"), 409, "no such change")
        for query in ("most=0", "most=1001", "before=0", "before=x", "before=9999999999999999999", "number=1"):
            refused(s.steer("GET", f"/v1/history?{query}"), 400, query.split("=", maxsplit=1)[0])
        refused(s.steer("POST", "/v1/undo?number=0"), 400, "number")


# ---- settings ----


def test_settings():
    with Checked(rules=None) as s:
        first = s.steer("GET", "/v1/settings")
        expect(first.json(), {"trusted_proxies": ["127.0.0.0/8", "::1"]})
        expect(s.steer("GET", "/v1/settings", None, {"If-None-Match": first.headers["ETag"]}).status, 304)
        wanted = {"ipv6_prefix": 56, "ignore_case": True}
        second = s.steer("PUT", "/v1/settings", wanted, {"If-Match": first.headers["ETag"]})
        expect((second.status, second.json()), (200, wanted))
        expect(s.steer("GET", "/v1/explain?ip=2001:db8::1").json()["request"]["counted_as"], "2001:db8::/56")
        refused(s.steer("PUT", "/v1/settings", {}, {"If-Match": first.headers["ETag"]}), 412, "changed since")
        refused(s.steer("PUT", "/v1/settings", {"ipv6_prefix": 500}), 422, "ipv6_prefix")
        bad = s.steer("PUT", "/v1/settings", {"colour": "red"})
        refused(bad, 422, "colour", "; nothing was changed")
        expect(b"in all" in bad.body, False)
        refused(s.steer("PUT", "/v1/settings", {"colour": "red", "size": 1}), 422, "; 2 errors in all; nothing was changed")
        expect(s.steer("GET", "/v1/settings").json(), wanted)
        expect(s.steer("PUT", "/v1/settings", {}).json(), {})


def test_settings_have_a_history():
    with Checked(rules=None) as s:
        put(s, "e", limited(1), 201)
        first = s.steer("GET", "/v1/settings").json()
        s.steer("PUT", "/v1/settings", {**first, "ipv6_prefix": 48}, {"X-Weir-Author": "Ann"})
        s.steer("PUT", "/v1/settings", {**first, "ipv6_prefix": 56})
        events = s.steer("GET", "/v1/settings/history?most=2").json()["events"]
        expect([(event["row"], event["what"], event["who"]) for event in events],
               [("ipv6_prefix", "change", "admin api"), ("ipv6_prefix", "add", "Ann")])
        tag = s.steer("GET", "/v1/settings").headers["ETag"]
        undone = s.steer("POST", "/v1/settings/undo", None, {"If-Match": tag}).json()
        expect(undone, undo_of(events[0], "change", "the setting ipv6_prefix is as it was before",
                               settings={**first, "ipv6_prefix": 48}))
        refused(s.steer("POST", "/v1/settings/undo", None, {"If-Match": tag}), 412, "changed since")
        expect(s.steer("POST", "/v1/settings/undo").json()["settings"], first)
        expect(s.steer("GET", "/v1/settings").json(), first)
        number = s.steer("GET", "/v1/rules/e/history").json()["events"][0]["number"]
        refused(s.steer("POST", f"/v1/settings/undo?number={number}"), 409, "does not belong to the settings")


def test_rules_outlive_their_database():
    with Checked(rules=None) as s:
        put(s, "mine", limited(7), 201)
        settings = s.steer("PUT", "/v1/settings", {"ipv6_prefix": 48}).json()
        put(s, "aside", {**limited(3), "mode": "shadow", "enabled": False}, 201)
        expect(s.steer("GET", "/v1/rules/aside").json()["state"], "disabled")
        before = [row["id"] for row in s.steer("GET", "/v1/rules").json()["rules"]]
        s.stop()
        os.unlink(os.path.join(s.data, "rules.db"))
        s.start()
        expect([row["id"] for row in s.steer("GET", "/v1/rules").json()["rules"]], before)
        expect(s.steer("GET", "/v1/settings").json(), settings)
        expect(s.check(event="e", key="k").json()["max"], 7)
        expect(s.steer("GET", "/v1/rules/aside").json()["state"], "disabled")
        cli(s, "enable", "aside")
        expect(s.steer("GET", "/v1/rules/aside").json()["state"], "shadow")
        warnings = [entry["message"] for entry in s.events("rules") if entry["level"] == "warning"]
        expect(len(warnings), 1)
        has(warnings[0], "rules.db was missing; weir has created it again", "rules.last.yaml")


# ---- files ----


def test_a_file_is_only_read():
    with Checked() as s:
        document = s.steer("GET", "/v1/rules").json()
        expect((document["read_only"], [row["id"] for row in document["rules"]]), (True, ["ocr"]))
        expect(s.steer("GET", "/v1/rules/ocr").json()["rule"]["match"], {"event": "ocr"})
        expect(s.steer("GET", "/v1/settings").json(), {"trusted_proxies": ["127.0.0.0/8", "::1"]})
        for method, path, body in (("PUT", "/v1/rules/ocr", LIMITED), ("DELETE", "/v1/rules/ocr", None),
                                   ("PUT", "/v1/settings", {}), ("PUT", "/v1/rules/ocr?dry_run=0", LIMITED),
                                   ("PATCH", "/v1/rules/ocr", {}), ("POST", "/v1/rules/ocr/disable", None)):
            refused(s.steer(method, path, body), 409, "rules.yaml, a file", "change the file")
        for method, path in (("POST", "/v1/rules/ocr/undo"), ("GET", "/v1/rules/ocr/history"), ("POST", "/v1/settings/undo"),
                             ("GET", "/v1/settings/history"), ("GET", "/v1/history"), ("POST", "/v1/undo")):
            refused(s.steer(method, path), 409, "rules.yaml", "a file has no history here")


def test_a_file_can_be_tried():
    with Checked() as s:
        with open(s.rules_file, encoding="utf-8") as file:
            before = file.read()
        row = s.steer("GET", "/v1/rules/ocr")
        tag = {"If-Match": row.headers["ETag"]}
        tried = s.steer("PUT", "/v1/rules/ocr?dry_run=1", LIMITED, tag).json()
        expect((tried["dry_run"], tried["table"], tried["rule"]), (True, s.rules_file, {"id": "ocr", **LIMITED}))
        refused(s.steer("PUT", "/v1/rules/ocr?dry_run=1", {"limits": ["x"]}), 422, "rule ocr", "limits")
        refused(s.steer("PUT", "/v1/rules/new?dry_run=1", LIMITED, tag), 412, "does not exist")
        expect(s.steer("PUT", "/v1/settings?dry_run=1", {"ipv6_prefix": 48}).json(), {"dry_run": True, "ipv6_prefix": 48})
        expect(s.steer("DELETE", "/v1/rules/ocr?dry_run=1").status, 204)
        refused(s.steer("DELETE", "/v1/rules/none?dry_run=1"), 404, "none")
        with open(s.rules_file, encoding="utf-8") as file:
            expect(file.read(), before)


def test_a_bad_rule_of_a_file_is_listed():
    good = "  - { id: a, match: { event: e }, by: key, limits: 3 per 1h }\n"
    with Checked(rules="rules:\n" + good + good.replace("a,", "b,")) as s:
        s.write_rules("rules:\n" + good.replace("3 per", "x per") + good.replace("a,", "b,"))
        until(lambda: s.steer("GET", "/v1/rules").json()["problem_count"] == 1, "the bad rule")
        rows = s.steer("GET", "/v1/rules").json()["rules"]
        expect([(row["id"], row["state"], len(row["problems"])) for row in rows], [("a", "bad", 1), ("b", "enforce", 0)])
        expect(rows[0]["rule"]["limits"], "x per 1h")
        expect(s.steer("GET", "/v1/rules/a").json(), rows[0])
        # Its last good version is in force, after a restart too.
        for _ in range(2):
            expect(s.check(event="e", key="k", peek=True).json()["rule"], "a")
            s.restart()
        until(lambda: s.events("rules"), "the log")
        has("\n".join(s.lines()), "bad rule: ")
        expect("bad row" in "\n".join(s.lines()), False)


def test_a_file_that_went_away_comes_back():
    with Checked("--poll", "100ms") as s:
        os.rename(s.rules_file, s.rules_file + ".away")
        until(lambda: any("cannot read the rules from" in entry["message"] for entry in s.events("source")), "it is away")
        os.rename(s.rules_file + ".away", s.rules_file)
        until(lambda: any("can read the rules from" in entry["message"] for entry in s.events("source")), "it is back")
        expect("weir rules init" in "".join(s.lines()), False)


# ---- the engine ----


def test_explanations():
    with Checked(rules=None) as s:
        put(s, "e", {**limited(2), "match": {"path": "/x/#", "header": {"X-Plan": "free"}}, "by": ["user"]}, 201)
        where = "/v1/explain?method=GET&path=//x/7%3Fq%3D1&user=u%201&header=X-Plan:%20free&ip=127.0.0.1&cost=3"
        document = s.steer("GET", where).json()
        rule = next(rule for rule in document["rules"] if rule["id"] == "e")
        expect((rule["applies"], rule["by"]), (True, [{"name": "user", "value": "u 1"}]))
        expect((rule["limits"][0]["max"], rule["limits"][0]["used"], rule["limits"][0]["fits"]), (2, 0, False))
        expect((document["request"]["path"], document["request"]["route"]), ("/x/7", "/x/#"))
        expect((document["verdict"]["allowed"], document["verdict"]["rule"]), (False, "e"))
        login = next(rule for rule in document["rules"] if rule["id"] == "login")
        expect((login["applies"], login["reason"]), (False, "method"))
        expect((login["text"], rule["text"]), ("the method must be POST, and is GET", None))
        document = s.steer("GET", "/v1/explain?path=/x//../7%252F1&user=u&header=X-Plan:free").json()
        rule = next(rule for rule in document["rules"] if rule["id"] == "e")
        expect(document["request"]["readings"], ["/7%2F1", "/7/1", "/x/7%2F1", "/x/7/1"])
        expect((rule["applies"], rule["reading"]), (False, None))
        rule = next(rule for rule in s.steer("GET", where.replace("//x", "/x//..")).json()["rules"] if rule["id"] == "e")
        expect((rule["applies"], rule["reading"]), (True, "/x/7"))
        for query in (where, where + "&cost=tokens:1", "/v1/explain?event=nobody"):
            everything, short = (s.steer("GET", f"{query}&applies={applies}").json() for applies in "01")
            expect("not_applied" in everything, False)
            applying = [rule["id"] for rule in everything["rules"] if rule["applies"]]
            expect(([rule["id"] for rule in short["rules"]], short["not_applied"]), (applying, len(everything["rules"]) - len(applying)))
            expect((short["verdict"]["rule"], short.get("uncounted")), (everything["verdict"]["rule"], everything.get("uncounted")))
        for wrong in ("2", "", "yes"):
            refused(s.steer("GET", f"/v1/explain?applies={wrong}"), 400, "`applies`", "0 to 1")
        refused(s.steer("GET", "/v1/explain?methud=GET"), 400, "methud", "method")
        refused(s.steer("GET", "/v1/explain?cost=-1"), 400, "cost")
        for header in ("X-Device", ":y", ""):
            refused(s.steer("GET", f"/v1/explain?header={header}"), 400, "Name:value")
        for name in ("ip", "peer"):
            for address in ("zz", "999.1.1.1", "192.0.2.1,%20192.0.2.2"):
                refused(s.steer("GET", f"/v1/explain?{name}={address}"), 400, f"`{name}`", "one IPv4 or IPv6 address")
        expect(s.steer("GET", "/v1/explain?ip=&peer=192.0.2.1:4711").json()["request"]["client"], "192.0.2.1")


def test_subjects_are_set_free():
    with Checked("--poll", "100ms", rules=None) as s:
        before = s.steer("GET", "/v1/status").json()["rules"]["count"]
        put(s, "e", limited(1), 201)
        for key in ("a b", "other"):
            expect(s.check(event="e", key=key).status, 200)
            expect(s.check(event="e", key=key).status, 429)
        expect(s.steer("DELETE", "/v1/subjects?rule=e&by=a%20b", None, {"X-Weir-Author": "Ann"}).status, 204)
        expect(s.events("change")[-1]["message"], 'rule e: counts of key="a b" reset by Ann from 127.0.0.1')
        expect(s.check(event="e", key="a b").status, 200)
        expect(s.check(event="e", key="other").status, 429)
        cli(s, "set", "e", "mode=shadow")
        cli(s, "disable", "e")
        until(lambda: s.steer("GET", "/v1/status").json()["rules"]["count"] == before, "it is disabled")
        # What GET /v1/rules lists has subjects, in force or not.
        expect(s.steer("GET", "/v1/rules/e").json()["state"], "disabled")
        explained = {rule["id"]: rule for rule in s.steer("GET", "/v1/explain?event=e&key=other").json()["rules"]}
        expect((explained["e"]["mode"], explained["e"]["reason"]), ("off", "off"))
        expect(s.steer("DELETE", "/v1/subjects?rule=e&by=other").status, 204)
        expect(s.check(event="e", key="other").json()["rule"], None)
        cli(s, "set", "e", "mode=enforce")
        cli(s, "enable", "e")
        until(lambda: s.check(event="e", key="other").json()["rule"] == "e", "it is enabled")
        expect(s.check(event="e", key="other").status, 429)
        # There is nothing to forget of one who was never counted, or was set free already.
        refused(s.steer("DELETE", "/v1/subjects?rule=e&by=never"), 404, "rule e has no count for this subject")
        expect(s.steer("DELETE", "/v1/subjects?rule=e&by=other").status, 204)
        refused(s.steer("DELETE", "/v1/subjects?rule=e&by=other"), 404, "rule e has no count for this subject")
        expect(len([each for each in s.events("change") if " reset by " in each["message"]]), 3)
        # A header may be a password.
        put(s, "h", {**limited(1), "match": {"event": "h"}, "by": ["header:X-Api-Key"]}, 201)
        expect(s.check(event="h", headers={"X-Api-Key": "swordfish-1"}).status, 200)
        expect(s.check(event="h", headers={"X-Api-Key": "swordfish-1"}).status, 429)
        expect(s.steer("DELETE", "/v1/subjects?rule=h&by=swordfish-1").status, 204)
        has(s.events("change")[-1]["message"], 'rule h: counts of header:x-api-key="swor…" reset by')
        expect("fish" in "".join(s.lines()), False, "a header in the log")
        expect("fish" in s.steer("GET", "/v1/top").body.decode(), False, "a header in the list of the most refused")
        refused(s.steer("DELETE", "/v1/subjects?rule=none&by=x"), 404, "none")
        refused(s.steer("DELETE", "/v1/subjects?rule=e"), 400, "rule e counts by key: give 1 value, not 0")
        refused(s.steer("DELETE", "/v1/subjects?by=x"), 400, "which rule")
        refused(s.steer("DELETE", "/v1/subjects?rule=e" + "&by=x" * 9), 400, "which rule")


# ---- the rest ----


def test_reports():
    with Checked(rules=None) as s:
        put(s, "e", limited(1), 201)
        for _ in range(3):
            s.check(event="e", key="k")
        status = s.steer("GET", "/v1/status").json()
        expect((status["rules"]["count"], status["source"]["reachable"]), (6, True))
        top = s.steer("GET", "/v1/top?most=5&rule=e").json()
        expect([(subject["rule"], subject["refused"]) for subject in top["subjects"]], [("e", 2)])
        expect(s.steer("GET", "/v1/top?rule=none").json()["subjects"], [])
        metrics = s.steer("GET", "/metrics")
        has(metrics.headers["Content-Type"], "text/plain")
        has(metrics.body.decode(), 'weir_decisions_total{rule="e",outcome="refused"} 2')


def test_penalties_are_lifted():
    """In a row of a database, like every other field; the answers are as the document says."""
    with Checked("--poll", "100ms", rules=None) as s:
        put(s, "e", {**limited(1), "penalty": {"after": 2, "within": "1m", "for": "5h"}}, 201)
        cli(s, "set", "e", "penalty.for=4h")
        until(lambda: "4h" in json.dumps(s.steer("GET", "/v1/rules/e").json()["rule"]["penalty"]), "the field is set")
        put(s, "h", {**limited(1), "match": {"event": "h"}, "by": ["header:X-Api-Key"], "penalty": {"after": 1, "within": "1m", "for": "9h"}}, 201)
        for _ in range(3):
            last = s.check(event="e", key="a b")
        expect((last.status, last.json()["penalty"]), (429, True))
        for _ in range(2):
            s.check(event="h", headers={"X-Api-Key": "swordfish-1"})
        found = s.steer("GET", "/v1/penalties?most=5").json()["penalties"]
        expect([(each["rule"], each["by"][0]["value"], each["cut"]) for each in found], [("e", "a b", False), ("h", "swor…", True)])
        expect(s.steer("GET", "/v1/explain?event=e&key=a%20b").json()["rules"][0]["penalty"]["level"], 1)
        expect(s.steer("DELETE", "/v1/penalties?rule=e&by=a%20b", None, {"X-Weir-Author": "Ann"}).status, 204)
        expect(s.events("change")[-1]["message"], 'rule e: penalty of key="a b" lifted by Ann from 127.0.0.1')
        expect(s.check(event="e", key="a b").json().get("penalty"), None, "it is limited only")
        expect(s.steer("DELETE", "/v1/penalties?rule=h&by=swordfish-1").status, 204)
        expect(s.steer("GET", "/v1/penalties").json()["penalties"], [])
        refused(s.steer("DELETE", "/v1/penalties?rule=e&by=a%20b"), 404, "rule e does not penalise this subject")
        expect(s.steer("PUT", "/v1/penalties?rule=e&by=a%20b", {"for": "1h"}).status, 204)
        expect(s.steer("GET", "/v1/subjects?rule=e&by=a%20b").json()["penalty"]["penalised"], True)
        refused(s.steer("DELETE", "/v1/penalties?rule=none&by=x"), 404, "none")
        refused(s.steer("DELETE", "/v1/penalties?rule=e"), 400, "rule e counts by key: give 1 value, not 0")
        refused(s.steer("DELETE", "/v1/penalties?by=x"), 400, "which rule")
        refused(s.steer("PUT", "/v1/rules/e", {**limited(1), "penalty": {"after": 2}}), 422, "penalty: needs `within`")


def test_simulations():
    """More of them in test_simulate_api.py."""
    with Checked("--sample", "10", rules=None) as s:
        expect(s.steer("GET", "/v1/sample").json()["size"], 10)
        expect(s.steer("POST", "/v1/simulate", {"rules": [{"id": "e", **limited(1)}]}).json()["input"]["replayed"], 0)


def test_envoy():
    """More of it in test_grpc.py."""
    rules = "rules: [ { id: e, match: { domain: d }, by: [domain], limits: [ { algorithm: fixed_window, max: 1, per: 90s } ] } ]"
    with Checked("--envoy-headers", "yes", rules=rules) as s:
        call = json.dumps({"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]})
        expect([s.ask(s.http, "POST", "/json", call, JSON).status for _ in range(2)], [200, 429])
        expect(s.ask(s.http, "POST", "/json", "{}", JSON).status, 400)
        expect(s.ask(s.http, "POST", "/json", call, {"Origin": "http://x"}).status, 415)
        expect(s.ask(s.http, "POST", "/json", " " * 70000, JSON).status, 413)
        expect(s.ask(s.http, "GET", "/healthcheck").status, 200)


def test_the_document_was_kept_to(request):
    """Runs last: nothing in it is left that no answer was held against."""
    names = {item.name for item in request.session.items if item.module is request.module}
    if names < {name for name in vars(request.module) if name.startswith("test_")}:
        pytest.skip("the other cases of this file are missing: script/test unit -k test_admin_api")
    with Checked() as s:
        expect(s.steer("GET", "/v1/openapi.json").json()["openapi"], "3.1.0")
        for path in ("/", "/ui/main.js", "/ui/style.css", "/ui/icon.svg"):
            expect(s.ask(s.admin, "GET", path).status, 200, path)
        expect(s.steer("GET", "/v1/counts").status, 200)
        expect(s.steer("GET", "/v1/subjects/find?value=nobody").status, 200)
        expect(s.steer("GET", "/v1/overrides").json(), {"overrides": []})
        expect(s.steer("HEAD", "/v1/live").status, 200)  # its events: test_live.py
        for method in ("GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH"):
            about = {"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/", "X-Forwarded-For": "192.0.2.1"}
            expect(s.ask(s.http, method, "/v1/auth", None, about).status, 200, method)
        expect(s.ask(s.http, "GET", "/v1/auth").status, 400)
        for _ in range(4):
            last = s.check(event="ocr", key="k")
        expect(last.status, 429)
        expect(s.ask(s.http, "POST", "/v1/check", json.dumps([{"event": "ocr", "key": "k"}] * 3), JSON).status, 200)
        expect(s.ask(s.http, "POST", "/v1/check", "{", JSON).status, 400)
        expect(s.ask(s.http, "POST", "/v1/check", "{}").status, 415)
        expect(s.ask(s.http, "POST", "/v1/refund", "{}", JSON).status, 400)
        held = s.ask(s.http, "POST", "/v1/reserve", json.dumps({"event": "ocr", "key": "h", "ttl_ms": 1000}), JSON).json()["hold"]
        expect(s.ask(s.http, "POST", "/v1/renew", json.dumps({"hold": held, "ttl_ms": 1000}), JSON).status, 200)
        expect(s.ask(s.http, "POST", "/v1/settle", json.dumps({"hold": held, "cost": 1}), JSON).status, 200)
        expect(s.ask(s.admin, "POST", "/v1/session", json.dumps({"token": s.token}), JSON).status, 200)
        expect(s.steer("GET", "/v1/session").json(), {"role": "admin", "expires": None})
        expect(s.steer("DELETE", "/v1/session").status, 204)
        expect(s.steer("GET", "/v1/refusals").json()["refusals"][0]["rule"], "ocr")
        expect(Checked.document.operations() - Checked.document.seen, set())
