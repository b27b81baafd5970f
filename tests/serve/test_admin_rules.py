"""The admin API: rules, in a database and in a file; two writers lose nothing."""

import json
import os
import threading
import urllib.parse

from support import expect, has, until
from support.admin import JSON, LIMITED, cli, limited, put, refused
from support.contract import Checked


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
        cli(s, "throttle", "/a/#", "3 per 60s", "--row")
        refused(s.steer("POST", "/v1/rules/throttled-call-1/disable"), 400, "THROTTLED_CALLS")
        refused(s.steer("POST", "/v1/rules/e/enable?most=1"), 400, "most", "dry_run")


def test_others_change_rules_too():
    with Checked("--poll", "100ms", rules=None) as s:
        cli(s, "throttle", "/a/#", "3 per 60s", "--row")
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
