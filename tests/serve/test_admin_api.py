"""The admin API: history, settings, explanations, subjects; who may ask."""

import contextlib
import json
import os
import sqlite3

from support import DEADLINE_S, expect, has, until
from support.admin import JSON, LIMITED, cli, limited, put, refused
from support.contract import Checked


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
        with contextlib.closing(sqlite3.connect(os.path.join(s.data, "rules.db"), timeout=DEADLINE_S)) as db:
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
        refused(s.steer("PUT", "/v1/settings", {}, {"If-Match": first.headers["ETag"]}), 412, "the settings were changed since")
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


# One call of each operation that changes or reports something, in this order: method, path, body, status.
STEERED = (
    ("GET", "/healthz", None, 200),
    ("GET", "/readyz", None, 200),
    ("PUT", "/v1/rules/d", {**LIMITED, "penalty": {"after": 9, "within": "1m", "for": "1h"}}, 201),
    ("PATCH", "/v1/rules/d", {"mode": "enforce"}, 200),
    ("GET", "/v1/rules", None, 200),
    ("GET", "/v1/rules/d", None, 200),
    ("PUT", "/v1/rules/d/overrides/k", {"limits": ["5 per 1h"]}, 201),
    ("GET", "/v1/rules/d/overrides/k", None, 200),
    ("GET", "/v1/rules/d/overrides", None, 200),
    ("DELETE", "/v1/rules/d/overrides/k", None, 204),
    ("PUT", "/v1/penalties?rule=d&by=k", {"for": "1h"}, 204),
    ("GET", "/v1/penalties", None, 200),
    ("GET", "/v1/subjects?rule=d&by=k", None, 200),
    ("DELETE", "/v1/penalties?rule=d&by=k", None, 204),
    ("DELETE", "/v1/subjects?rule=d&by=k", None, 204),
    ("POST", "/v1/lint", {"id": "d", **LIMITED}, 200),
    ("GET", "/v1/explain?event=e&key=k", None, 200),
    ("GET", "/v1/sample", None, 200),
    ("POST", "/v1/simulate", {"rules": [{"id": "d", **LIMITED}]}, 200),
    ("GET", "/v1/status", None, 200),
    ("GET", "/v1/top", None, 200),
    ("GET", "/metrics", None, 200),
    ("POST", "/v1/rules/d/disable", None, 200),
    ("POST", "/v1/rules/d/enable", None, 200),
    ("GET", "/v1/rules/d/history", None, 200),
    ("POST", "/v1/rules/d/undo", None, 200),
    ("DELETE", "/v1/rules/d", None, 204),
    ("POST", "/v1/undo", None, 200),
    ("GET", "/v1/history", None, 200),
    ("PUT", "/v1/settings", {"trusted_proxies": ["192.0.2.0/24"]}, 200),
    ("GET", "/v1/settings", None, 200),
    ("GET", "/v1/settings/history", None, 200),
    ("POST", "/v1/settings/undo", None, 200),
)


def test_the_document_was_kept_to():
    """Nothing in it is left that no answer was held against."""
    with Checked("--sample", "10", rules=None) as s:
        for method, path, body, status in STEERED:
            s.check(event="e", key="k")  # for what there is to say about it
            answer = s.steer(method, path, body)
            expect(answer.status, status, f"{method} {path} {answer.body}")
        call = json.dumps({"domain": "d", "descriptors": [{"entries": [{"key": "k"}]}]})
        expect(s.ask(s.http, "POST", "/json", call, JSON).status, 200)
        expect(s.ask(s.http, "GET", "/healthcheck").status, 200)
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
        expect(s.steer("GET", "/v1/session").json(), {"role": "admin", "token": "admin", "expires": None})
        expect(s.steer("DELETE", "/v1/session").status, 204)
        expect(s.steer("GET", "/v1/refusals").json()["refusals"][0]["rule"], "ocr")
        expect(Checked.document.operations() - Checked.document.seen, set())
