"""`weir rules override`, and overrides in import, export and sync: against real databases, and a file."""

import json
import os
import tempfile

import support
from support import expect, has
from support.databases import done, rules

API = '{ "id": "api", "match": { "event": "e" }, "by": ["user"], "limits": ["10 per 1m"] }'
PAIR = '{ "id": "pair", "match": { "event": "p" }, "by": ["user", "ip"], "limits": ["10 per 1m"] }'


def listed(source, *words):
    status, out, errors = rules(source, "override", *words, "--json")
    expect(errors, "", words)
    rows = json.loads(out)["overrides"]
    expect(status, 0 if rows and all(row["state"] != "bad" for row in rows) else 1, out)
    return {(row["rule"], row["subject"]): row for row in rows}


def said(source, *words):
    return {key: row["override"] for key, row in listed(source, *words).items()}


def wrong(source, status, *words):
    """The errors of a command that fails."""
    found, out, errors = rules(source, *words)
    expect((found, out), (status, ""), errors)
    return errors


def sources(db):
    """The database, and (once) files in both spellings."""
    done(db, "init")
    addresses = [db.address]
    for name, text in {"yaml": "rules: []\n", "json": '{"rules": []}\n'}.items() if db.kind == "sqlite" else ():
        addresses.append(f"file:{db.folder.name}/{name}.rules")
        with open(addresses[-1][5:], "w", encoding="utf-8") as file:
            file.write(text)
    for address in addresses:
        for rule in (API, PAIR):
            done(address, "add", rule)
    return addresses


def set_list_and_remove(source):
    expect(rules(source, "override")[0], 1)
    done(source, "override", "api", "4711", "--limit", "50000 per minute", "--limit", "{ name: d, calendar: day, max: 9 }",
         "--expires", "2037-01-01T00:00:00Z", "--why", "migration", "--author", "ann", "--note", "ticket 7")
    done(source, "override", "api", "banned", "--deny")
    has(done(source, "override", "pair", "a,b", "2001:DB8::1", "--unlimited"), "pair: the override for a%2Cb,2001:db8::/64 is in")
    rows = listed(source)
    expect([(key, row["state"]) for key, row in rows.items()],
           [(("api", "4711"), "limits"), (("api", "banned"), "deny"), (("pair", "a%2Cb,2001:db8::/64"), "unlimited")])
    first = rows["api", "4711"]
    expect({name: first["override"][name] for name in ("limits", "expires", "why")},
           {"limits": ["50000 per minute", {"name": "d", "calendar": "day", "max": 9}], "expires": "2037-01-01T00:00:00Z", "why": "migration"})
    if not source.startswith("file:"):
        expect((first["updated_by"], first["note"]), ("ann", "ticket 7"))
    lines = done(source, "override").splitlines()
    expect(len(lines), 4)
    has(lines[1], "api", "4711", "50000 per minute (UTC), 9 per day (UTC)", "2037-01-01T00:00:00Z", "migration")
    expect(len(done(source, "override", "pair").splitlines()), 2)
    has(done(source, "override", "pair", "a,b", "2001:db8::7"), "unlimited")
    has(done(source, "list"), ", 3 overrides")
    # Changed, and removed.
    done(source, "override", "api", "banned", "--limit", "1 per 1h")
    expect(listed(source, "api", "banned")["api", "banned"]["state"], "limits")
    done(source, "override", "pair", "a%2Cb,2001:db8::/64", "--remove")
    has(wrong(source, 1, "override", "pair", "a,b", "2001:db8::7", "--remove"), "rule pair has no override for a%2Cb,2001:db8::/64")
    expect(list(listed(source)), [("api", "4711"), ("api", "banned")])


def test_set_list_remove(db):
    for source in sources(db):
        set_list_and_remove(source)


def refuse_what_is_not_allowed(source):
    before = done(source, "export")
    for words, *parts in (
            (("api", "x", "--limit", "often"), "override of rule api for x: limits[0]: must look like", "nothing was changed"),
            (("api", "x", "--limit", "{"), "--limit"), (("api", "x", "--deny", "--why", "a\nb"), "why"),
            (("api", "x", "--deny", "--unlimited"), "cannot be combined"), (("api", "--deny"), "needs RULE and SUBJECT"),
            (("api", "x", "--why", "y"), "need --limit"), (("api", "x", "--remove", "--for", "1h"), "need --limit"),
            (("api", "--author", "ann"), "--author"), (("api", "x", "--deny", "--json"), "--json"),
            (("api", "x", "--deny", "--expires", "soon"), "--expires"), (("api", "x", "y", "--deny"), "give 1 value, not 2"),
            (("pair", "x", "--deny"), "2 values"), (("pair", "x", "not an address", "--deny"), "ip: must be"),
            (("api", "", "--deny"), "user"), (("api", "\udcff", "--deny"), "UTF-8"), (("pair", *"123456789", "--deny"), "at most 8")):
        has(wrong(source, 2, "override", *words), *parts)
    has(wrong(source, 1, "override", "none", "x", "--deny"), "there is no rule none")
    for words, meant in ((("list",), "list overrides: weir rules override [RULE [SUBJECT...]]"),
                         (("set", "api", "x", "--deny"), "set an override: weir rules override RULE SUBJECT... --limit LIMIT"),
                         (("show", "api", "x"), "show an override: weir rules override RULE SUBJECT...\n"),
                         (("remove", "api", "x", "--remove"), "remove an override: weir rules override RULE SUBJECT... --remove"),
                         (("rm", "api", "x"), "remove an override: weir rules override RULE SUBJECT... --remove")):
        has(wrong(source, 1, "override", *words), f"'{words[0]}' is read as the id of a rule; to {meant}")
    expect("is read as" in wrong(source, 1, "override", "none"), False)
    has(wrong(source, 2, "list", "--deny"), "--deny cannot be used with list")
    expect(done(source, "export"), before)


def test_what_is_not_allowed(db):
    for source in sources(db):
        refuse_what_is_not_allowed(source)


def export_and_import(source):
    done(source, "override", "api", "a,b%", "--limit", "7 per 1h", "--why", "yes: \"quoted\" #1")
    done(source, "override", "pair", "x,y", "10.0.0.1", "--deny")
    wanted = {key: {name: value for name, value in row.items() if name not in ("rule", "by")} for key, row in said(source).items()}
    for form in ((), ("--json",)):
        text = done(source, "export", *form)
        with tempfile.TemporaryDirectory() as folder:
            other = f"sqlite:{folder}/other.db"
            done(other, "init")
            path = os.path.join(folder, "rules")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            has(done(other, "import", path), "4 added")
            expect(said(other), wanted, form)
            has(done(other, "import", path), "0 added, 0 changed, 0 removed")
            # Only overrides, in another order of `by`: their rules are there already.
            with open(path, "w", encoding="utf-8") as file:
                file.write('overrides: [{rule: pair, by: {ip: 10.0.0.1, user: "x,y"}, unlimited: true},'
                           ' {rule: pair, by: {ip: 10.0.0.2, user: z}, deny: true}]')
            has(done(other, "import", path), "1 added, 1 changed, 0 removed")
            expect((said(other)["pair", "x%2Cy,10.0.0.1"], len(said(other))), ({"unlimited": True}, 3))
            for bad, *parts in (("[{rule: none, by: {user: x}, deny: true}]", "there is no rule", "none"),
                                ("[{rule: api, by: {ip: 10.0.0.1}, deny: true}]", "counts by user"),
                                ("[{rule: api, by: {user: q}, deny: true}, {rule: api, by: {user: q}, unlimited: true}]", "same subject"),
                                ("[{rule: api, by: {user: q}}]", "override of rule api for q", "exactly one")):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"overrides: {bad}")
                has(wrong(other, 2, "import", path), *parts)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            has(done(other, "import", path, "--replace"), "0 added, 1 changed, 1 removed")
            expect(said(other), wanted, form)


def test_export_and_import_take_them_along(db):
    for source in sources(db):
        export_and_import(source)


def test_a_file_as_people_write_it(folder):
    path = os.path.join(folder, "rules.yaml")
    text = ("# mine\nrules: [{ id: i, by: [ip, user], limits: [1 per 1s] }]\n"
            "overrides:\n  - { rule: i, by: { user: x, ip: '2001:DB8::1' }, deny: true }\n")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    address = f"file:{path}"
    expect(list(listed(address)), [("i", "2001:db8::/64,x")])
    has(wrong(address, 2, "override", "i", "2001:db8::2", "x", "--unlimited"), "rules.yaml:1: a comment", "--drop-comments")
    done(address, "override", "i", "2001:db8::2", "x", "--unlimited", "--drop-comments")
    expect([(key, row["state"]) for key, row in listed(address).items()], [(("i", "2001:db8::/64,x"), "unlimited")])
    done(address, "override", "i", "2001:db8::3", "x", "--remove")
    expect(rules(address, "override")[0], 1)


def test_rows_of_throttled_calls(db):
    done(db, "init")
    done(db, "throttle", "/a", "3 per 60s", "--row")
    done(db, "override", "throttled-call-1", "ann", "--limit", "{ max: 9, per: 60s, algorithm: fixed_window }")
    expect(listed(db)["throttled-call-1", "ann"]["state"], "limits")
    done(db, "override", "throttled-call-1", "throttled-call-77", "--deny")
    has(done(db, "throttle", "/b", "3 per 60s", "--row"), "throttled-call-2:")


def test_history_and_undo(db):
    done(db, "init")
    done(db, "add", API)
    done(db, "override", "api", "x", "--deny", "--author", "ann", "--note", "abuse")
    done(db, "override", "api", "x", "--unlimited")
    done(db, "override", "api", "x", "--remove")
    out = done(db, "history", "api")
    has(out, "ann", "add api (WEIR_OVERRIDES)  abuse", '+ {"subject":"x","override":{"deny":true}}', "remove api (WEIR_OVERRIDES)")
    expect(done(db, "undo"), "change 4 is undone: the override of rule api for x is back\n")
    expect(done(db, "undo", "api"), "change 3 is undone: the override of rule api for x is as it was before\n")
    expect(said(db), {("api", "x"): {"deny": True}})
    has(wrong(db, 1, "undo", "--change", "3"), "changed after it")
    done(db, "undo", "api")
    expect(rules(db, "override")[0], 1)


def test_rules_that_are_gone(db):
    done(db, "init")
    done(db, "add", API)
    done(db, "override", "api", "x", "--deny")
    has(wrong(db, 2, "set", "api", "by=ip"), "this would break the override of rule api for x")
    done(db, "rm", "api")
    has(done(db, "list"), "1 more override is not used, because the rule does not exist")
    expect(listed(db)["api", "x"]["state"], "unused")
    texts = {"y": '{"limits": ["7 per minute"], "expires": "2037-01-01T00:00:00Z", "why": "move", "by": {"ip": "10.0.0.1"}}', "z": '{"limits": 7}'}
    for subject, text in texts.items():
        db.sql(f"INSERT INTO WEIR_OVERRIDES (RULE_ID, SUBJECT, OVERRIDE) VALUES ('api', '{subject}', '{text}')")
    expect([line.split() for line in done(db, "override").splitlines()[1:]],
           [["api", "x", "deny", "unused", "-"], ["api", "y", *"7 per minute (UTC) unused 2037-01-01T00:00:00Z move".split()],
            ["api", "z", "-", "unused", "-"]], "what they would do")
    for subject in texts:
        done(db, "override", "api", subject, "--remove")
    expect("overrides" in done(db, "export"), False)
    done(db, "add", API)
    expect(listed(db)["api", "x"]["state"], "deny")
    done(db, "disable", "api")
    expect(listed(db)["api", "x"]["state"], "deny")
    done(db, "rm", "api")
    done(db, "override", "api", "x", "--remove")
    expect(rules(db, "override")[0], 1)


def test_rows_that_are_bad(db):
    done(db, "init")
    done(db, "add", API)
    rows = (("a", '{"deny": true}'), ("b", "{"), ("c", '{"limits": ["x"]}'), ("", '{"deny": true}'), ("d", '{"deny": true, "by": {"user": "e"}}'))
    for subject, text in rows:
        db.sql(f"INSERT INTO WEIR_OVERRIDES (RULE_ID, SUBJECT, OVERRIDE) VALUES ('api', '{subject}', '{text}')")
    found = listed(db)
    expect({subject: found["api", subject]["state"] for subject, _ in rows}, {"a": "deny", "b": "bad", "c": "bad", "": "bad", "d": "bad"})
    status, out, _ = rules(db, "list")
    expect(status, 1)
    has(out, "WEIR_OVERRIDES: row c: override of rule api for c: limits[0]: must look like", "SUBJECT: must not be empty", "4 problems")
    has(rules(db, "override")[1], "! override of rule api for b")
    # One of them is mended, others are left alone.
    done(db, "override", "api", "c", "--deny")
    done(db, "override", "api", "b", "--remove")
    expect([subject for (_, subject), row in listed(db).items() if row["state"] == "bad"], ["", "d"])


def test_sync(db):
    done(db, "init")
    done(db, "add", API)
    done(db, "add", PAIR)
    done(db, "override", "api", "x", "--limit", "1 per 1h")
    done(db, "override", "pair", "x", "10.0.0.1", "--deny")
    done(db, "disable", "pair")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rules.yaml")
        synced = support.weir("sync", "--from", db.address, "--to", path, "--once")
        expect(synced.returncode, 0, synced.stderr)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        has(text, '{rule: api, by: {user: x}, limits: ["1 per 1h"]}')
        expect("pair" in text, False)
        linted = support.weir("lint", path)
        expect(linted.returncode, 0, linted.stderr)
