"""GET /v1/refusals: the newest refused requests, and asking why. GET /v1/top?last=…: who was refused most. Both survive restarts."""

import os
import sqlite3
import urllib.parse

from support import expect, until
from support.contract import Checked
from support.counts import stored
from support.store import Store
from support.wire import Wire

RULES = """
settings: { trusted_proxies: [127.0.0.0/8] }
rules:
  - { id: login, match: { path: /login }, by: [ip], limits: [ { name: m, algorithm: fixed_window, max: 0, per: 24h } ], reject: { status: 403 } }
  - { id: ocr, match: { event: ocr }, by: [key], limits: [ { name: a, max: 5, per: 24h, unit: pages }, { name: b, algorithm: fixed_window, max: 1, per: 24h } ] }
  - { id: tenant, match: { event: tenant }, by: ["header:X-Key"], limits: [ "0 per 1h" ] }
  - id: tried
    match: { event: tried }
    by: [user]
    mode: shadow
    limits: [ { name: many, max: 100, per: 24h }, { name: few, max: 0, per: 24h } ]
  - { id: pen, match: { event: pen }, by: [key], limits: [ { name: m, algorithm: fixed_window, max: 0, per: 24h } ], penalty: { after: 2, within: 1m, for: 1h } }
"""


def recent(s, query=""):
    answer = s.steer("GET", "/v1/refusals" + query)
    expect(answer.status, 200, answer.body)
    return answer.json()


def refuse(s, status=429, **request):
    verdict = s.check(**request).json()
    expect((verdict["allowed"], verdict["status"]), (False, status), str(request))


def explain(s, refusal):
    query = [(name, one) for name, value in refusal["request"].items() for one in (value if isinstance(value, list) else [value])]
    answer = s.steer("GET", "/v1/explain?" + urllib.parse.urlencode(query))
    expect(answer.status, 200, answer.body)
    return answer.json()


def test_listed_and_explained():
    with Checked(rules=RULES) as s:
        expect(recent(s), {"refusals": [], "newest": 0, "left_out": 0})
        expect(s.check(event="ocr", key="u,%1").status, 200)
        expect(recent(s)["refusals"], [], "it passed")
        refuse(s, event="ocr", key="u,%1", method="POST", host="A.Example", user="ann", costs={"requests": 1, "pages": 2})
        refuse(s, 403, path="/login?token=secret", peer="127.0.0.1", headers={"X-Forwarded-For": "2001:db8::7"})
        s.check(event="ocr", key="u,%1", peek=True)
        found = recent(s)
        first, second = found["refusals"]
        expect((first["rule"], first["limit"], first["status"], first["reason"], first["shadow"]), ("login", "m", 403, "limit", False))
        expect(first["by"], [{"name": "ip", "value": "2001:db8::/64"}])
        expect(first["request"], {"path": "/login", "ip": "2001:db8::7", "cost": ["1"]}, "no query, no header")
        expect((first["retry_after_ms"], first["cut"], first["request_cut"]), (None, False, False))
        expect(second["request"], {"method": "POST", "host": "A.Example", "user": "ann", "event": "ocr", "key": "u,%1",
                                   "cost": ["1", "pages:2"]})
        expect((second["rule"], second["limit"], second["by"]), ("ocr", "b", [{"name": "key", "value": "u,%1"}]))
        expect(0 < second["retry_after_ms"] <= 24 * 3600_000, True)
        expect(first["number"] > second["number"] and found["newest"] == first["number"], True, "the newest first")
        for refusal in found["refusals"]:
            verdict = explain(s, refusal)["verdict"]
            expect((verdict["allowed"], verdict["rule"], verdict["limit"]), (False, refusal["rule"], refusal["limit"]))

        expect([one["rule"] for one in recent(s, "?rule=ocr")["refusals"]], ["ocr"])
        expect([one["rule"] for one in recent(s, "?most=1")["refusals"]], ["login"])
        newest = found["newest"]
        expect(recent(s, f"?after={newest}")["refusals"], [])
        refuse(s, 403, path="/login", ip="192.0.2.1")
        later = recent(s, f"?after={newest}")["refusals"]
        expect([one["by"][0]["value"] for one in later], ["192.0.2.1"])
        for query in ("?most=0", "?most=1001", "?most=x", "?after=-1", "?after=9007199254740992", "?x=1"):
            expect(s.steer("GET", "/v1/refusals" + query).status, 400, query)
        expect(s.ask(s.admin, "GET", "/v1/refusals").status, 401)


def test_secrets_are_cut():
    with Checked(rules=RULES) as s:
        refuse(s, event="tenant", headers={"X-Key": "swordfish-and-more", "Authorization": "Bearer hunter2hunter2"})
        text = s.steer("GET", "/v1/refusals").body.decode()
        found = recent(s)["refusals"][0]
        expect((found["by"], found["cut"]), ([{"name": "header:x-key", "value": "swor…"}], True))
        expect("swordfish" in text or "hunter2" in text, False)


def test_the_same_in_a_row_are_grouped():
    with Checked("--threads", "1", rules=RULES) as s:
        refuse(s, 403, path="/login", ip="192.0.2.9")
        for key in ("a", "a", "a", "b", "a"):
            refuse(s, event="ocr", key=key, costs={"pages": 6})
        refuse(s, 403, path="/login", ip="192.0.2.9")
        flat, grouped = recent(s), recent(s, "?group=1")
        expect([one["count"] for one in flat["refusals"]], [1] * 7)
        expect(all(one["first"] == one["time"] for one in flat["refusals"]), True)
        expect([(one["rule"], one["by"][0]["value"], one["count"]) for one in grouped["refusals"]],
               [("login", "192.0.2.9", 1), ("ocr", "a", 1), ("ocr", "b", 1), ("ocr", "a", 3), ("login", "192.0.2.9", 1)])
        run = grouped["refusals"][3]
        expect((run["number"], run["time"], run["first"]), (flat["refusals"][3]["number"], flat["refusals"][3]["time"], flat["refusals"][5]["time"]))
        expect([one["count"] for one in recent(s, "?group=1&most=4")["refusals"]], [1, 1, 1, 3], "`most` counts entries")
        expect([one["count"] for one in recent(s, "?group=1&rule=ocr")["refusals"]], [1, 1, 3])
        after = flat["refusals"][4]["number"]
        expect([one["count"] for one in recent(s, f"?group=1&after={after}")["refusals"]], [1, 1, 1, 1], "what is new of a run")
        expect([one["count"] for one in recent(s, "?group=1&rule=login")["refusals"]], [2])
        # Another limit, and another reason.
        refuse(s, event="pen", key="k")
        refuse(s, event="pen", key="k")
        refuse(s, event="pen", key="k")
        expect([(one["reason"], one["count"]) for one in recent(s, "?group=1&rule=pen")["refusals"]], [("penalty", 2), ("limit", 1)])
        for query in ("?group=2", "?group=x", "?group="):
            expect(s.steer("GET", "/v1/refusals" + query).status, 400, query)


PLANS = """
rules:
  - id: api
    match: { event: api }
    by: [user]
    limits: [ { name: n, algorithm: fixed_window, max: 9, per: 24h } ]
    plan: "header:X-Plan"
    plans:
      free: [ { name: n, algorithm: fixed_window, max: 2, per: 24h } ]
      "<b>": [ { name: n, algorithm: fixed_window, max: 0, per: 24h } ]
  - { id: more, match: { event: more }, by: [key], ignore_case: true, mode: shadow, plan: "header:X-Plan", plans: { Free: 0 per 24h } }
"""


def test_plans_are_kept():
    """Not the header, which may be anything: the name of a plan that the rule has."""
    def subject(s, by, more=""):
        answer = s.steer("GET", f"/v1/subjects?rule=api&by={by}{more}")
        expect(answer.status, 200, answer.body)
        found = answer.json()
        return found["plan"], found["last_plan"], found["limits"][0]["max"]

    with Checked(rules=PLANS) as s:
        for _ in range(2):
            expect(s.check(event="api", user="fred", headers={"X-Plan": "free", "X-Other": "hunter2"}).status, 200)
        expect(subject(s, "fred"), (None, None, 9), "never refused")
        refuse(s, event="api", user="fred", headers={"X-Plan": "free", "X-Other": "hunter2"})
        found = recent(s)["refusals"][0]
        expect((found["plan"], found["request"]["header"]), ("free", ["x-plan:free"]))
        expect("hunter2" in str(found), False)
        why = explain(s, found)
        expect((why["verdict"]["allowed"], why["verdict"]["max"], why["rules"][0]["plan"]), (False, 2, "free"))
        expect(subject(s, "fred"), ("free", "free", 2))
        expect(subject(s, "fred", "&plan="), (None, "free", 9), "the rule's own")
        expect(subject(s, "fred", "&plan=%3Cb%3E"), ("<b>", "free", 0))
        expect(subject(s, "ann"), (None, None, 9), "somebody else")
        refuse(s, event="api", user="fred", headers={"X-Plan": "<b>"})
        expect(subject(s, "fred"), ("<b>", "<b>", 0), "the newest")
        for _ in range(9):
            s.check(event="api", user="bob", headers={"X-Plan": "gold"})
        refuse(s, event="api", user="bob", headers={"X-Plan": "gold"})
        found = recent(s)["refusals"][0]
        expect((found["plan"], "header" in found["request"]), (None, False), "a value that is no plan is not kept")
        expect(s.check(event="more", key="k", headers={"X-Plan": "FREE"}).status, 200)
        found = recent(s)["refusals"][0]
        expect((found["shadow"], found["plan"], found["request"]["header"]), (True, "Free", ["x-plan:Free"]), "as the rule spells it")
        # The rule loses the plan: its own limits are shown.
        s.write_rules(PLANS.replace("free:", "other:"))
        until(lambda: "other" in s.steer("GET", "/v1/subjects?rule=api&by=fred").json()["plans"], "the new rules")
        refuse(s, event="api", user="eve", headers={"X-Plan": "<b>"})
        s.write_rules(PLANS.replace('"<b>":', "new:"))
        until(lambda: "new" in s.steer("GET", "/v1/subjects?rule=api&by=fred").json()["plans"], "the new rules")
        expect(subject(s, "eve"), (None, "<b>", 9))
        s.restart()
        until(lambda: recent(s)["refusals"], "they are read")
        expect(subject(s, "eve"), (None, "<b>", 9), "also after a restart")


def test_shadow_rules_are_marked():
    with Checked(rules=RULES) as s:
        expect(s.check(event="tried", user="<img src=x onerror=alert(1)>").status, 200)
        found = recent(s)["refusals"]
        expect([(one["rule"], one["limit"], one["shadow"], one["status"], one["retry_after_ms"]) for one in found],
               [("tried", "few", True, None, None)])
        expect(found[0]["by"][0]["value"], "<img src=x onerror=alert(1)>")
        batch = [{"event": "tried", "user": "b"}, {"event": "ocr", "key": "k", "costs": {"pages": 6}}, {"event": "tried", "user": "c"}]
        s.ask(s.http, "POST", "/v1/check", str(batch).replace("'", '"'), {"Content-Type": "application/json"})
        found = recent(s, "?most=3")["refusals"]
        expect(sorted((one["rule"], one["limit"], one["by"][0]["value"]) for one in found),
               [("ocr", "a", "k"), ("tried", "few", "b"), ("tried", "few", "c")])


def test_penalties_and_others():
    with Checked(rules=RULES) as s:
        for _ in range(3):
            refuse(s, event="pen", key="k")
        expect([one["reason"] for one in recent(s)["refusals"]], ["penalty", "penalty", "limit"])
        refuse(s, 400, event="tenant", headers={"X-Key": ["a", "b"]})
        found = recent(s)["refusals"][0]
        expect((found["rule"], found["by"], found["limit"].lower(), found["reason"], found["status"]),
               (None, [], "x-key", "repeated_header", 400))
        with Wire(s) as wire:
            for _ in range(2):
                wire.ask("CL.THROTTLE", "k", "0", "1", "3600")
        found = recent(s)["refusals"][0]
        expect((found["rule"], found["by"], found["request"], found["status"]),
               ("(cl.throttle)", [{"name": "key", "value": "k"}], None, None))


def test_hostile_requests():
    with Checked(rules=RULES) as s:
        values = ["a,b", "%00%", "\"\\\n", "日" * 400, "x" * 1024, "\x7f\x1b[2J"]
        for value in values:
            refuse(s, event="ocr", key=value, user=value, costs={"pages": 6})
        found = recent(s)["refusals"]
        for value, one in zip(reversed(values), found):
            kept = one["request"]["user"]
            expect(value.startswith(kept) and one["request_cut"] == (kept != value), True, repr(value))
            expect(len(kept.encode()) <= 100, True)
            explain(s, one)


def test_a_flood_is_sampled():
    """One subject does not hide the others, and none of it is long."""
    with Checked("--threads", "1", rules=RULES) as s:
        with Wire(s) as wire:
            words = []
            for _ in range(2000):
                words.append(("WEIR.CHECK", "event", "pen", "key", "flood"))
            for i in range(2000):
                words.append(("WEIR.CHECK", "event", "pen", "key", str(i)))
            words.append(("WEIR.CHECK", "path", "/login", "ip", "192.0.2.9"))
            for word in words:
                wire.ask(*word)
        found = recent(s, "?most=1000")
        refusals = found["refusals"]
        expect(len(refusals) <= 500 and len(refusals) + found["left_out"] == 4001, True, f"{len(refusals)}, {found['left_out']}")
        seconds = {}
        for one in refusals:
            seconds.setdefault(one["number"] // 1000000, []).append(one["by"][0]["value"])
        for values in seconds.values():
            expect(len(values) <= 50 and values.count("flood") <= 5, True, str(values))


def test_with_a_store():
    shared = """
rules:
  - { id: exact, match: { event: exact }, by: [key], limits: [ { name: d, algorithm: fixed_window, max: 1, per: 24h } ] }
  - { id: leased, match: { event: leased }, by: [key], lease: true, limits: [ { name: d, algorithm: fixed_window, max: 1, per: 24h } ] }
  - { id: tried, match: { event: tried }, by: [key], mode: shadow, limits: [ { name: d, algorithm: fixed_window, max: 0, per: 24h } ] }
  - { id: strict, match: { event: strict }, by: [key], on_store_failure: deny, limits: [ { name: d, algorithm: fixed_window, max: 9, per: 24h } ] }
"""
    with Store() as store, Checked("--counters", store.address, "--store-deadline", "10s", rules=shared) as s:
        until(lambda: s.steer("GET", "/v1/status").json()["store"]["up"], "the store is reached")
        for event in ("exact", "leased"):
            expect(s.check(event=event, key="k").status, 200)
            refuse(s, event=event, key="k")
        s.check(event="tried", key="k")
        expect([(one["rule"], one["limit"], one["shadow"], one["reason"]) for one in recent(s)["refusals"]],
               [("tried", "d", True, "limit"), ("leased", "d", False, "limit"), ("exact", "d", False, "limit")])
        store.kill()
        until(lambda: not s.steer("GET", "/v1/status").json()["store"]["up"], "the store is gone")
        refuse(s, 503, event="strict", key="k")
        found = recent(s)["refusals"][0]
        expect((found["rule"], found["reason"], found["status"]), ("strict", "unavailable", 503))


# ---- over restarts ----


def whom(found):
    return [one["by"][0]["value"] for one in found["refusals"]]


def most_refused(s, last="1h"):
    top = s.steer("GET", f"/v1/top?last={last}").json()
    return {one["by"][0]["value"]: one["refused"] for one in top["subjects"]}


def test_a_restart_keeps_them():
    """A stop stores the window that has begun; what was refused before and after adds up."""
    with Checked(rules=RULES) as s:
        refuse(s, 403, path="/login", ip="192.0.2.1")
        refuse(s, event="ocr", key="<b>\x01", costs={"pages": 6})
        refuse(s, event="tenant", headers={"X-Key": "swordfish-1"})
        refuse(s, event="tenant", headers={"X-Key": "swordfish-2"})
        with Wire(s) as wire:
            for _ in range(2):
                wire.ask("CL.THROTTLE", "k", "0", "1", "3600")
            wire.ask("WEIR.CHECK", "event", "ocr", "key", b"\xff\0", "cost", "2")
        before = recent(s)
        expect(len(before["refusals"]), 6)
        s.restart()
        until(lambda: recent(s)["refusals"], "they are read")
        expect(recent(s)["refusals"], before["refusals"])
        expect(recent(s)["newest"], before["newest"])
        expect(recent(s, f"?after={before['newest']}")["refusals"], [], "they are not new")
        refuse(s, 403, path="/login", ip="192.0.2.1")
        refuse(s, event="tenant", headers={"X-Key": "swordfish-2"})
        later = recent(s, f"?after={before['newest']}")
        expect([one["rule"] for one in later["refusals"]], ["tenant", "login"], "those are")
        for last in ("1h", "31d"):
            top = s.steer("GET", f"/v1/top?last={last}").json()
            found = sorted((one["rule"], one["by"][0]["value"], one["refused"], one["error"]) for one in top["subjects"])
            expect(found, [("(cl.throttle)", "k", 1, 0), ("login", "192.0.2.1", 2, 0), ("ocr", "<b>\x01", 1, 0),
                           ("ocr", "\ufffd\0", 1, 0), ("tenant", "swor…", 1, 0), ("tenant", "swor…", 2, 0)], last)
            expect(top["refused"], 8, last)
        expect(explain(s, recent(s)["refusals"][-1])["verdict"]["rule"], "login")
        text = open(os.path.join(s.data, "counts.db"), "rb").read() + open(os.path.join(s.data, "counts.db-wal"), "rb").read()
        expect(b"swordfish" in text, False, "a header value is cut")
        expect(os.stat(os.path.join(s.data, "counts.db")).st_mode & 0o777, 0o600)


def test_a_kill_loses_the_last_step():
    with Checked(rules=RULES) as s:
        for _ in range(3):
            refuse(s, event="pen", key="a")
        totals = "SELECT coalesce(sum(instr(x'010203', substr(list, 1, 1))), 0) FROM top_3600"  # each list begins with its total
        until(lambda: stored(s, totals) == 3 and stored(s, "SELECT count(*) FROM refusals") == 3, "the windows are stored")
        refuse(s, event="pen", key="b")
        s.kill()
        s.start()
        until(lambda: recent(s)["refusals"], "they are read")
        expect(most_refused(s)["a"], 3)
        expect([value for value in whom(recent(s)) if value == "a"], ["a"] * 3)
        for _ in range(3):
            s.kill()
            s.start()
        until(lambda: recent(s)["refusals"], "they are read")
        expect(most_refused(s)["a"], 3, "once, however often it starts")
        expect(stored(s, "PRAGMA integrity_check"), "ok")


def test_rules_that_are_gone_and_another_table():
    """What was refused stays in the lists. Without the old table of cells, subjects are found by their text."""
    with Checked(rules=RULES) as s:
        refuse(s, event="pen", key="a")
        refuse(s, 403, path="/login", ip="192.0.2.1")
        s.stop()
        os.unlink(os.path.join(s.data, "cells"))
        s.write_rules(RULES.replace("id: login", "id: other"))
        s.start()
        until(lambda: recent(s)["refusals"], "they are read")
        refuse(s, event="pen", key="a")
        expect(most_refused(s), {"a": 2, "192.0.2.1": 1})
        expect([one["rule"] for one in recent(s)["refusals"]], ["pen", "login", "pen"])
        expect([one["rule"] for one in recent(s, "?rule=login")["refusals"]], ["login"])


def test_a_clock_that_was_ahead():
    """The clock of the earlier run was ten days ahead: numbers go on from there, and its lists wait for their time."""
    with Checked(rules=RULES) as s:
        refuse(s, event="pen", key="a")
        s.stop()
        with sqlite3.connect(os.path.join(s.data, "counts.db")) as db:
            db.execute("UPDATE refusals SET number = number + 864000000000")
            db.execute("UPDATE top_300 SET at_s = at_s + 864000")
            db.execute("UPDATE top_3600 SET at_s = at_s + 864000")
        db.close()
        s.start()
        until(lambda: recent(s)["refusals"], "they are read")
        before = recent(s)["newest"]
        refuse(s, event="pen", key="b")
        expect((whom(recent(s)), whom(recent(s, f"?after={before}"))), (["b", "a"], ["b"]))
        expect((most_refused(s), most_refused(s, "31d")), ({"b": 1}, {"b": 1}))
        s.restart()
        until(lambda: recent(s)["refusals"], "they are read")
        expect((whom(recent(s)), most_refused(s)), (["b", "a"], {"b": 1}))


def test_subjects_need_not_be_kept():
    with Checked(rules=RULES) as s:
        refuse(s, event="pen", key="kept-for-now")
        s.stop()
        expect(stored(s, "SELECT count(*) FROM refusals"), 1)
        s.flags += ["--keep-subjects", "no"]
        s.start()
        until(lambda: stored(s, "SELECT count(*) FROM refusals") == 0, "it is removed")
        expect((recent(s)["refusals"], most_refused(s)), ([], {}))
        refuse(s, event="pen", key="b")
        expect((whom(recent(s)), most_refused(s)), (["b"], {"b": 1}), "in memory")
        s.restart()
        expect((recent(s)["refusals"], most_refused(s)), ([], {}))
        for name in os.listdir(s.data):
            if name.startswith("counts.db"):
                with open(os.path.join(s.data, name), "rb") as file:
                    expect(b"kept-for-now" in file.read(), False, name)
        expect(sum(value or 0 for value in s.steer("GET", "/v1/counts").json()["all"]["refused"]), 2, "counts are kept")


def test_a_damaged_file_costs_the_lists():
    with Checked(rules=RULES) as s:
        refuse(s, event="pen", key="a")
        s.stop()
        with open(os.path.join(s.data, "counts.db"), "r+b") as file:
            file.seek(100)
            file.write(b"\xff" * 30000)
        begin = os.path.getsize(s.log)
        s.start()
        until(lambda: s.events("counts", begin), "the log tells")
        refuse(s, event="pen", key="b")
        expect(most_refused(s), {"b": 1})
        s.restart()
        until(lambda: recent(s)["refusals"], "a new file has them")
        expect(most_refused(s), {"b": 1})


def test_lists_are_read_when_the_file_is_back():
    """Nothing is added before they are read, so that nothing counts twice."""
    with Checked(rules=RULES) as s:
        refuse(s, event="pen", key="a")
        s.stop()
        path = os.path.join(s.data, "counts.db")
        os.rename(path, path + ".mine")
        os.mkdir(path)
        begin = os.path.getsize(s.log)
        s.start()
        until(lambda: s.events("counts", begin), "the log tells")
        refuse(s, event="pen", key="b")
        expect(most_refused(s), {"b": 1}, "without the file")
        os.rmdir(path)
        os.rename(path + ".mine", path)
        until(lambda: len(most_refused(s)) == 2, "they are read")
        expect((most_refused(s), sorted(whom(recent(s)))), ({"a": 1, "b": 1}, ["a", "b"]))
        s.restart()
        until(lambda: recent(s)["refusals"], "they are read")
        expect(most_refused(s)["a"], 1, "once")


# ---- the most refused ----


def test_most_refused_of_a_longer_time():
    """Windows that are over are tests/refused/top_history.c's; here is the current one."""
    with Checked(rules=RULES) as s:
        for key in ("a", "b", "a", "a"):
            refuse(s, event="pen", key=key)
        refuse(s, 403, path="/login", ip="192.0.2.1")
        for last in ("1m", "5m", "1h", "24h", "86401s", "7d", "31d"):
            top = s.steer("GET", f"/v1/top?last={last}").json()
            expect([(one["rule"], one["by"][0]["value"], one["refused"], one["error"]) for one in top["subjects"]][0],
                   ("pen", "a", 3, 0), last)
            expect((top["refused"], top["unlisted_at_most"], len(top["subjects"])), (5, 0, 3), last)
            expect(0 <= top["window_s"] < 600, True, "no longer than the service runs")
        top = s.steer("GET", "/v1/top?last=1h&rule=login&most=1").json()
        expect([one["rule"] for one in top["subjects"]], ["login"])
        for last in ("", "0s", "59s", "32d", "1w", "x", "-1h"):
            expect(s.steer("GET", f"/v1/top?last={last}").status, 400, last)
