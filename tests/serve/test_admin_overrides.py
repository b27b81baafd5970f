"""Overrides over the admin API: set, listed, removed, undone; subjects of all kinds; on each database."""

import json
import os
import threading
import urllib.parse

import pytest

from support import databases, expect, has, until
from support.contract import Checked

RULE = {"match": {"event": "e"}, "by": ["key"], "limits": [{"name": "hour", "algorithm": "fixed_window", "max": 2, "per": "1h"}]}
PAIR = {"match": {"event": "p"}, "by": ["key", "user"], "limits": [{"algorithm": "fixed_window", "max": 2, "per": "1h"}]}


def refused(answer, status, *parts):
    expect(answer.status, status, answer.body)
    document = answer.json()
    has(document["error"] + "\n" + document.get("hint", ""), *parts)


def limits(most):
    return {"limits": [{"name": "hour", "algorithm": "fixed_window", "max": most, "per": "1h"}]}


def path(rule, subject=None):
    tail = "" if subject is None else "/" + urllib.parse.quote(subject, safe="")
    return f"/v1/rules/{urllib.parse.quote(rule, safe='')}/overrides{tail}"


def put(s, rule, subject, override, status=201, **headers):
    answer = s.steer("PUT", path(rule, subject), override, {name.replace("_", "-"): value for name, value in headers.items()})
    expect(answer.status, status, answer.body)
    return answer


def listed(s, rule, query=""):
    return [row["subject"] for row in s.steer("GET", path(rule) + query).json()["overrides"]]


def checked(s, key, **more):
    return s.check(event="e", key=key, **more).json()


@pytest.fixture(name="on")
def on_(db):
    """A service over the database, with two rules."""
    databases.done(db, "init")
    with Checked("--rules", db.address, "--poll", "1h", rules=False) as s:
        expect(s.steer("PUT", "/v1/rules/e", RULE).status, 201)
        expect(s.steer("PUT", "/v1/rules/p", PAIR).status, 201)
        yield s


def test_an_override_from_nothing_to_nothing(on):
    s = on
    expect([checked(s, "k")["allowed"] for _ in range(3)], [True, True, False])
    first = put(s, "e", "k", limits(5), X_Weir_Author="Ann", X_Weir_Note="migration")
    row = first.json()
    expect((row["rule"], row["subject"], row["by"], row["state"]), ("e", "k", [{"name": "key", "value": "k"}], "limits"))
    expect((row["override"], row["updated_by"], row["note"], row["problems"]), (limits(5), "Ann", "migration", []))
    # What was used stays used, limit by limit of the same name; others have what they had.
    verdict = checked(s, "k")
    expect((verdict["allowed"], verdict["max"], verdict["remaining"]), (True, 5, 2))
    expect(checked(s, "other")["max"], 2)
    got = s.steer("GET", path("e", "k"))
    expect((got.json(), got.headers["ETag"], first.headers["ETag"]), (row, f'"{row["version"]}"', f'"{row["version"]}"'))
    expect(s.steer("GET", path("e", "k"), None, {"If-None-Match": got.headers["ETag"]}).status, 304)
    second = put(s, "e", "k", {"deny": True, "why": "abuse"}, 200, If_Match=first.headers["ETag"])
    expect((checked(s, "k")["allowed"], second.json()["state"]), (False, "deny"))
    refused(s.steer("DELETE", path("e", "k"), None, {"If-Match": first.headers["ETag"]}), 412, "the override was changed since")
    refused(s.steer("PUT", path("e", "k"), limits(5), {"If-None-Match": "*"}), 412, "the override exists already")
    put(s, "e", "k", {"unlimited": True}, 200)
    expect(checked(s, "k")["rule"], None)
    put(s, "e", "k", {"unlimited": True}, 200)
    expect(s.steer("DELETE", path("e", "k")).status, 204)
    expect(checked(s, "k")["max"], 2)
    refused(s.steer("DELETE", path("e", "k")), 404, "has no override for `k`")
    refused(s.steer("GET", path("e", "k")), 404, "has no override for `k`")
    events = s.steer("GET", "/v1/rules/e/history").json()["events"]
    expect([(event["what"], event["table"], event["row"]) for event in events][:4],
           [(what, "WEIR_OVERRIDES", "k") for what in ("remove", "change", "change", "add")])
    expect((events[3]["after"], events[3]["before"]), ({"subject": "k", "override": limits(5)}, None))


def test_undo(on):
    s = on
    put(s, "e", "k", limits(5))
    put(s, "e", "k", limits(6), 200)
    s.steer("DELETE", path("e", "k"))
    undone = s.steer("POST", "/v1/undo").json()
    expect((undone["what"], undone["text"]), ("add", "the override of rule e for k is back"))
    expect(undone["change"], {"what": "remove", "rule": "e", "table": "WEIR_OVERRIDES", "row": "k"})
    expect(checked(s, "k")["max"], 6)
    expect(s.steer("POST", "/v1/rules/e/undo").json()["what"], "change")
    expect(checked(s, "k")["max"], 5)
    numbers = [event["number"] for event in s.steer("GET", "/v1/history").json()["events"] if event["what"] == "add"]
    expect(s.steer("POST", f"/v1/undo?number={numbers[0]}").json()["what"], "remove")
    expect((checked(s, "k")["max"], listed(s, "e")), (2, []))
    refused(s.steer("POST", f"/v1/undo?number={numbers[0]}"), 409, "changed after it")


def test_long_subjects_have_a_history(on):
    s, long = on, "ü" * 400 + "x"
    put(s, "e", long, limits(5))
    put(s, "e", long + "y", limits(6))
    s.steer("DELETE", path("e", long))
    events = s.steer("GET", "/v1/history?most=3").json()["events"]
    expect((len(events[0]["row"]) < 201, events[0]["row"] == events[2]["row"], events[0]["row"] == events[1]["row"]), (True, True, False))
    expect(s.steer("POST", "/v1/undo").status, 200)
    expect((checked(s, long)["max"], checked(s, long + "y")["max"]), (5, 6))


def test_bad_ones_change_nothing(on):
    s = on
    put(s, "e", "k", limits(5))
    before = s.steer("GET", path("e")).body
    for body, status, *parts in (
            ({}, 422, "override of rule e for k: needs exactly one of `limits`", "nothing was changed"),
            ({"limits": ["often"]}, 422, "override of rule e for k: limits[0]: "), ({"limits": []}, 422, "limits"),
            ({"deny": False}, 422, "deny: must be true"), ({"deny": True, "unlimited": True}, 422, "several of them"),
            ({"deny": True, "colour": 1}, 422, "colour"), ({"deny": True, "expires": "soon"}, 422, "expires"),
            ({"deny": True, "why": "x" * 1001}, 422, "why"), ({"deny": True, "rule": "p"}, 422, "rule"),
            ({"deny": True, "by": {"key": "other"}}, 422, "subject"), ([], 400, "object"), ("{", 400, "JSON"), ("", 400, "JSON"),
            ('{"deny": true, "deny": true}', 400, "duplicate"), ("[" * 500, 400, "JSON"),
            (s.steer("GET", path("e", "k")).json(), 400, "only the value of `override`")):
        refused(s.steer("PUT", path("e", "k"), body), status, *parts)
    refused(s.steer("PUT", path("none", "k"), {"deny": True}), 404, "no rule `none`")
    refused(s.steer("GET", path("none")), 404, "no rule `none`")
    refused(s.steer("DELETE", path("none", "k")), 404, "has no override")
    refused(s.steer("PUT", path("e", "x" * 1001), {"deny": True}), 400, "1001 bytes")
    refused(s.steer("PUT", path("p", "a"), {"deny": True}), 400, "key, user", "2 values")
    refused(s.steer("PUT", path("p", "a,b,c"), {"deny": True}), 400, "2 values")
    refused(s.steer("PUT", path("p", "a,b%"), {"deny": True}), 400, "%25")
    for segment in ("%FF", "a%00b", "%C0%AF"):
        for method in ("GET", "PUT", "DELETE"):
            refused(s.steer(method, f"/v1/rules/e/overrides/{segment}", {"deny": True} if method == "PUT" else None), 400, "UTF-8")
    refused(s.steer("PUT", path("e", "k"), {"deny": True}, {"Content-Type": "text/plain"}), 415, "application/json")
    refused(s.steer("GET", path("e") + "?most=1001"), 400, "most")
    refused(s.steer("GET", path("e") + "?before=1"), 400, "before", "after")
    for target in (path("e") + "/", path("e", "a") + "/b"):
        refused(s.steer("GET", target), 404, "nothing at")
    expect(s.steer("GET", path("e")).body, before)
    expect(checked(s, "k")["max"], 5)


def test_a_dry_run(on):
    s = on
    tried = s.steer("PUT", path("e", "k") + "?dry_run=1", limits(5))
    expect((tried.status, tried.headers["ETag"], tried.json()["dry_run"], tried.json()["override"]), (200, None, True, limits(5)))
    expect(listed(s, "e"), [])
    put(s, "e", "k", limits(5))
    expect(s.steer("PUT", path("e", "k") + "?dry_run=1", limits(5)).json()["dry_run"], True)
    expect(s.steer("DELETE", path("e", "k") + "?dry_run=1").status, 204)
    expect((listed(s, "e"), checked(s, "k")["max"]), (["k"], 5))


SUBJECTS = ("a,b", "100%", "%2C", "a/b", "a?b#c", 'say "no"', "O'Brien'); DROP TABLE WEIR_OVERRIDES; --", "Größe 漢字", "a b", "..", "\\",
            "bob", "Bob", "bob ", "a\nb", "\x7f", "x" * 1000, "*", "null", "4711", "😀")


def test_subjects_may_be_anything(on):
    s = on
    for number, subject in enumerate(SUBJECTS):
        put(s, "e", subject, limits(100 + number))
    for number, subject in enumerate(SUBJECTS):
        expect(s.steer("GET", path("e", subject)).json()["subject"], subject)
        expect(checked(s, subject, cost=0)["max"], 100 + number, subject)
    ordered = sorted(SUBJECTS, key=lambda subject: subject.encode())
    expect(listed(s, "e"), ordered)
    # Page by page, each once.
    found, after = [], ""
    while page := listed(s, "e", f"?most=4{after}"):
        found += page
        after = "&after=" + urllib.parse.quote(page[-1], safe="")
    expect(found, ordered)
    for subject in SUBJECTS:
        expect(s.steer("DELETE", path("e", subject)).status, 204, subject)
    expect(listed(s, "e"), [])


def pages(s, most):
    """All overrides, page by page: each as its rule and subject."""
    found, after = [], ""
    while page := s.steer("GET", f"/v1/overrides?most={most}{after}").json()["overrides"]:
        found += [(row["rule"], row["subject"]) for row in page]
        after = "&" + urllib.parse.urlencode({"after_rule": found[-1][0], "after": found[-1][1]})
    return found


def test_overrides_of_all_rules(on):
    s = on
    expect(pages(s, 10), [])
    expect(s.steer("PUT", "/v1/rules/E", {**RULE, "match": {"event": "E"}}).status, 201)
    wanted = [("E", "k"), ("e", "B"), ("e", "a"), ("e", "ü"), ("p", "a,b"), ("p", "a,c")]
    for rule, subject in reversed(wanted):
        put(s, rule, subject, {"deny": True})
    for most in (1, 2, 3, 1000):
        expect(pages(s, most), wanted, str(most))
    expect(s.steer("DELETE", "/v1/rules/E").status, 204)
    row = s.steer("GET", "/v1/overrides?most=1").json()["overrides"][0]
    expect((row["rule"], row["state"]), ("E", "unused"))
    # A rule that is gone, or a subject, is a place in the order as any other.
    expect(s.steer("GET", "/v1/overrides?after_rule=d&after=x&most=1").json()["overrides"][0]["subject"], "B")
    expect(s.steer("GET", "/v1/overrides?after_rule=p&after=z").json()["overrides"], [])
    refused(s.steer("GET", "/v1/overrides?after=k"), 400, "`after_rule` and `after` belong together")
    refused(s.steer("GET", "/v1/overrides?after_rule=e"), 400, "`after_rule` and `after` belong together")
    refused(s.steer("GET", "/v1/overrides?most=0"), 400, "most")


def test_several_attributes(on):
    s = on
    put(s, "p", "a%2Cb,50%25", limits(7))
    row = s.steer("GET", path("p", "a%2cb,50%25")).json()
    expect((row["subject"], [part["value"] for part in row["by"]]), ("a%2Cb,50%25", ["a,b", "50%"]))
    expect(s.check(event="p", key="a,b", user="50%").json()["max"], 7)
    expect(s.check(event="p", key="a", user="b,50%").json()["max"], 2)
    # An address is stored as it is counted.
    expect(s.steer("PUT", "/v1/rules/i", {"match": {"event": "i"}, "by": ["ip"], "limits": ["2 per 1h"]}).status, 201)
    expect(put(s, "i", "2001:DB8::7", {"deny": True}).json()["subject"], "2001:db8::/64")
    put(s, "i", "2001:db8::8", {"deny": True}, 200)
    expect(s.check(event="i", ip="2001:db8::99").json()["allowed"], False)
    expect(s.steer("DELETE", path("i", "2001:db8::/64")).status, 204)
    expect(s.steer("PUT", "/v1/rules/all", {"match": {"event": "x"}, "limits": ["2 per 1h"]}).status, 201)
    refused(s.steer("PUT", path("all", "x"), {"deny": True}), 400, "no subjects")


def test_rules_and_their_overrides(on, db):
    s = on
    put(s, "e", "k", {"deny": True})
    # What would make a good override bad is refused.
    refused(s.steer("PATCH", "/v1/rules/e", {"by": ["key", "user"]}), 422, "this would break the override of rule e for k")
    # And what would make it one for somebody else.
    refused(s.steer("PATCH", "/v1/rules/e", {"by": ["user"]}), 422, "rule e: by: the rule has overrides", "nothing was changed")
    put(s, "p", "a,b", {"deny": True})
    refused(s.steer("PATCH", "/v1/rules/p", {"by": ["user", "key"]}), 422, "rule p: by: the rule has overrides")
    expect(s.steer("PATCH", "/v1/rules/p", {"limits": ["3 per 1h"]}).status, 200)
    expect(s.steer("DELETE", path("p", "a,b")).status, 204)
    expect(s.steer("PATCH", "/v1/rules/p", {"by": ["user", "key"]}).status, 200)
    # A rule that is removed leaves its overrides: they are unused, and no problem.
    expect(s.steer("DELETE", "/v1/rules/e").status, 204)
    expect([(row["state"], row["by"]) for row in s.steer("GET", path("e")).json()["overrides"]], [("unused", [])])
    expect(s.steer("GET", path("e", "k")).json()["state"], "unused")
    expect(s.steer("GET", "/v1/status").json()["rules"]["problem_count"], 0)
    expect(s.steer("POST", "/v1/rules/e/undo").status, 200)
    expect(checked(s, "k")["allowed"], False)
    s.steer("DELETE", "/v1/rules/e")
    expect(s.steer("DELETE", path("e", "k")).status, 204)
    refused(s.steer("GET", path("e")), 404, "no rule `e`")
    databases.done(db, "list")


def test_bad_rows_keep_their_last_good_version(db):
    databases.done(db, "init")
    with Checked("--rules", db.address, "--poll", "100ms", rules=False) as s:
        expect(s.steer("PUT", "/v1/rules/e", RULE).status, 201)
        put(s, "e", "k", limits(5))
        put(s, "e", "l", limits(6))
        db.sql("UPDATE WEIR_OVERRIDES SET OVERRIDE = '{\"limits\": 7}' WHERE SUBJECT = 'k'")
        db.sql("UPDATE WEIR_OVERRIDES SET OVERRIDE = '{\"deny\": true}' WHERE SUBJECT = 'l'")
        until(lambda: not checked(s, "l")["allowed"], "the good one is in force")
        expect(checked(s, "k", cost=0)["max"], 5)
        until(lambda: s.steer("GET", "/v1/status").json()["rules"]["problem_count"] == 1, "the status names the bad one")
        problems = s.steer("GET", "/v1/status").json()["rules"]["problems"]
        expect([(problem["table"], problem["row"], problem["rule"]) for problem in problems], [("WEIR_OVERRIDES", "k", "e")])
        has(problems[0]["text"], "override of rule e for k: limits")
        row = s.steer("GET", path("e", "k")).json()
        expect((row["state"], row["override"], len(row["problems"])), ("bad", {"limits": 7}, 1))
        # Others can be changed, and the bad one is mended.
        put(s, "e", "m", limits(8))
        put(s, "e", "k", limits(9), 200)
        expect(checked(s, "k", cost=0)["max"], 9)
        expect(s.steer("GET", "/v1/status").json()["rules"]["problem_count"], 0)


def test_a_database_without_the_table(db):
    databases.done(db, "init")
    db.sql("DROP TABLE WEIR_OVERRIDES")
    with Checked("--rules", db.address, "--poll", "100ms", rules=False) as s:
        expect(s.steer("PUT", "/v1/rules/e", RULE).status, 201)
        expect((listed(s, "e"), checked(s, "k")["max"]), ([], 2))
        refused(s.steer("PUT", path("e", "k"), {"deny": True}), 422, "there is no table WEIR_OVERRIDES", "weir rules init")
        databases.done(db, "init")
        put(s, "e", "k", {"deny": True})
        expect(checked(s, "k")["allowed"], False)
        # A table that lacks a column that is needed to read is an error; one that is needed to write says so.
        db.sql("ALTER TABLE WEIR_OVERRIDES DROP COLUMN NOTE")
        until(lambda: s.steer("GET", path("e", "k")).json()["note"] == "", "it is read without")
        refused(s.steer("PUT", path("e", "l"), {"deny": True}), 422, "the table WEIR_OVERRIDES has no column NOTE")
        expect(checked(s, "k")["allowed"], False)


def test_writers_lose_nothing(db):
    databases.done(db, "init")

    def write(s, failures):
        try:
            done = 0
            while done < 4:
                row = s.steer("GET", path("e", "k"))
                most = row.json()["override"]["limits"][0]["max"] + 1
                answer = s.steer("PUT", path("e", "k"), limits(most), {"If-Match": row.headers["ETag"]})
                expect(answer.status in (200, 412), True, answer.body)
                done += answer.status == 200
        except BaseException as failure:
            failures.append(failure)
            raise

    with Checked("--rules", db.address, rules=False) as one, Checked("--rules", db.address, rules=False) as two:
        expect(one.steer("PUT", "/v1/rules/e", RULE).status, 201)
        put(one, "e", "k", limits(0))
        failures = []
        threads = [threading.Thread(target=write, args=(s, failures)) for s in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect((failures, two.steer("GET", path("e", "k")).json()["override"]), ([], limits(8)))


def test_a_file_is_only_read():
    text = json.dumps({"rules": [{"id": "e", **RULE}], "overrides": [{"rule": "e", "by": {"key": "k"}, **limits(5)}]})
    with Checked(rules=text) as s:
        expect((listed(s, "e"), checked(s, "k")["max"]), (["k"], 5))
        expect(s.steer("GET", path("e", "k")).json()["table"], s.rules_file)
        refused(s.steer("PUT", path("e", "k"), {"deny": True}), 409, "a file that the service only reads")
        refused(s.steer("DELETE", path("e", "k")), 409, "a file that the service only reads")
        expect(s.steer("PUT", path("e", "n") + "?dry_run=1", {"deny": True}).json()["state"], "deny")
        expect(s.steer("DELETE", path("e", "k") + "?dry_run=1").status, 204)


def test_a_file_has_pages_in_order():
    overrides = [{"rule": rule, "by": {"key": key}, "deny": True} for rule, key in (("f", "b"), ("e", "c"), ("e", "a"), ("f", "a"), ("e", "b"))]
    with Checked(rules=json.dumps({"rules": [{"id": "e", **RULE}, {"id": "f", **RULE}], "overrides": overrides})) as s:
        expect((listed(s, "e", "?most=2"), listed(s, "e", "?most=2&after=b")), (["a", "b"], ["c"]))
        expect(pages(s, 2), [("e", "a"), ("e", "b"), ("e", "c"), ("f", "a"), ("f", "b")])


def test_overrides_outlive_their_database():
    with Checked(rules=None) as s:
        expect(s.steer("PUT", "/v1/rules/e", RULE).status, 201)
        put(s, "e", "k", {**limits(5), "why": "migration"})
        s.stop()
        os.unlink(os.path.join(s.data, "rules.db"))
        s.start()
        expect(checked(s, "k")["max"], 5)
        expect(s.steer("GET", path("e", "k")).json()["override"]["why"], "migration")
