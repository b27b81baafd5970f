"""`weir rules` against real databases."""

import getpass
import json
import os
import re
import tempfile
import time

import pytest

import support
from support import databases, expect, has
from support.databases import THROTTLED_CALLS, done, rules

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "rules.yaml")
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "databases.md")
OCR = '{ "id": "ocr", "match": { "event": "ocr" }, "by": ["key"], "limits": [{ "name": "day", "max": 100, "per": "day" }] }'


def listed(db):
    """The rules by their ids, and the problems; the status is 1 exactly if there are problems."""
    status, out, errors = rules(db, "list", "--json")
    expect(errors, "")
    found = json.loads(out)
    expect(status, 1 if found["problems"] else 0, out)
    return {rule["id"]: rule for rule in found["rules"]}, found["problems"]


def states(db):
    return {name: rule["state"] for name, rule in listed(db)[0].items()}


def init(db):
    return done(db, "init")


# ---- tables ----


def test_tables_that_are_missing(db):
    if db.kind == "sqlite":
        db.sql("CREATE TABLE OTHER (A int)")  # a database that is there
    status, out, errors = rules(db, "list")
    expect((status, out), (2, ""), errors)
    has(errors, "THROTTLED_CALLS", "WEIR_RULES", "weir rules init")
    has(init(db), *databases.TABLES)
    status, out, errors = rules(db, "list")
    expect((status, errors), (0, ""))
    has(out, "0 rules in ")
    expect(rules(db, "init")[0], 0, "again")
    expect(listed(db), ({}, []))


def test_a_table_as_it_always_was(db):
    db.sql(THROTTLED_CALLS)
    db.sql("INSERT INTO THROTTLED_CALLS VALUES (7, 'GET /entity/#', 10, 60, NULL)")
    db.sql("INSERT INTO THROTTLED_CALLS VALUES (8, '/search', 5, 3600, 1000)")
    db.sql(f"INSERT INTO THROTTLED_CALLS VALUES (9, '/late', 5, 1, {(int(time.time()) + 3600) * 1000})")
    status, out, errors = rules(db, "list")
    expect((status, errors), (0, ""), out)
    lines = out.splitlines()
    expect(lines[0].split(), ["ID", "LIMITS", "MATCH", "BY", "STATE", "ROW"])
    expect(lines[1].split(), "throttled-call-7 10 per 1m fixed_window GET /entity/# user enforce THROTTLED_CALLS 7".split())
    has(out, "3 rules in ")
    expect(states(db), {"throttled-call-7": "enforce", "throttled-call-8": "expired", "throttled-call-9": "enforce"})


def test_names_in_any_case(db):
    db.sql(THROTTLED_CALLS.replace("THROTTLED_CALLS", "throttled_calls").replace("MAX_LOCKS", "Max_Locks"))
    db.sql("INSERT INTO throttled_calls VALUES (1, '/a', 10, 60, NULL)")
    expect(states(db), {"throttled-call-1": "enforce"})


def test_a_column_that_is_missing(db):
    db.sql("CREATE TABLE THROTTLED_CALLS (THROTTLE_ID int PRIMARY KEY, NORMALIZED_CALL varchar(256))")
    status, out, errors = rules(db, "list")
    expect((status, out), (2, ""), errors)
    has(errors.upper(), "THROTTLED_CALLS", "MAX_LOCKS", "CREATE TABLE")


def test_tables_as_the_page_has_them(db):
    """The statements of docs/databases.md make what `init` makes."""
    with open(PAGE, encoding="utf-8") as file:
        heading = {"sqlite": "SQLite", "mysql": "MariaDB and MySQL", "postgres": "PostgreSQL"}[db.kind]
        block = re.search(rf"\*\*{heading}\*\*\n\n```sql\n(.*?)```", file.read(), re.DOTALL).group(1)
    init(db)
    made = columns(db)
    db.clear()
    for statement in block.split(";\n")[:-1]:
        db.sql(statement)
    expect(columns(db), made)
    done(db, "throttle", "/a", "1 per 1s", "--row")
    done(db, "add", OCR)
    done(db, "undo")
    expect(states(db), {"throttled-call-1": "enforce"})


def columns(db):
    if db.kind == "sqlite":
        look = 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info'
        return [db.sql(f"{look}('{table}')") for table in databases.TABLES]
    return db.sql("SELECT lower(table_name), lower(column_name), data_type, is_nullable, character_maximum_length, "
                  "column_default FROM information_schema.columns WHERE upper(table_name) LIKE 'WEIR_%' "
                  "OR upper(table_name) = 'THROTTLED_CALLS' ORDER BY 1, ordinal_position")


# ---- throttle ----


def test_throttle_now(db):
    """A whole rule, with the limit that the same words mean in a rules file."""
    init(db)
    said = done(db, "throttle", "GET /entity/#", "10", "per", "60s", "--by", "ip", "--author", "ann")
    match = re.fullmatch(r"(throttle-get-entity-\w+): 10 per 1m as a token bucket, for each ip of GET /entity/#\n", said)
    assert match, said
    name = match.group(1)
    row = listed(db)[0][name]
    expect((row["rule"]["match"], row["rule"]["by"], row["rule"]["limits"]),
           ({"method": "GET", "path": "/entity/#"}, ["ip"], ["10 per 60s"]))
    expect(json.loads(done(db, "history", "--json"))[0]["who"], "ann")
    expect(db.sql("SELECT count(*) FROM THROTTLED_CALLS"), [["0"]])
    # The same call again changes the rule, and puts it in force; another way to count is another rule.
    done(db, "set", name, "mode=shadow")
    done(db, "disable", name)
    has(done(db, "throttle", "get /entity/#", "20 per 1h", "--by", "ip", "--for", "2h"), f"{name}: 20 per 1h", "until ")
    rule = listed(db)[0][name]["rule"]
    expect((states(db), rule["limits"], "expires" in rule, "mode" in rule), ({name: "enforce"}, ["20 per 1h"], True, False))
    done(db, "throttle", "GET /entity/#", "20 per 1h", "--by", "ip")
    assert "expires" not in listed(db)[0][name]["rule"]
    for words, part in ((["5 per 1s"], "for each user of GET /entity/#"), (["5 per 1s burst 9", "--by", "all"], "for all callers of"),
                        (["100 tokens per 1m", "--by", "ip,path"], "for each ip and path of"),
                        (["5", "per", "day", "--by", "key"], "5 per day (UTC) as a calendar window, for each key")):
        has(done(db, "throttle", "GET /entity/#", *words), part)
    expect(len(states(db)), 5)
    expect(done(db, "export").count("algorithm"), 0, "the words have one meaning")


def test_throttle_a_call_of_the_table(db):
    """Two limits of one kind for one call would surprise: the command says which commands change the first."""
    init(db)
    done(db, "throttle", "GET /a", "1 per 1s", "--row")
    status, out, errors = rules(db, "throttle", "GET //a", "2 per 1s")
    expect((status, out), (2, ""), errors)
    has(errors, "throttled-call-1 limits this call already, in a fixed window", "--row", "weir rules rm throttled-call-1 --from ")
    has(done(db, "throttle", "GET /a", "2 per 1s", "--by", "ip"), "for each ip")
    done(db, "rm", "throttled-call-1")
    has(done(db, "throttle", "GET /a", "2 per 1s"), "for each user")


def test_throttle_badly(db):
    init(db)
    for words, part in (
        (["/a", "ten", "per", "60s"], "10 per 60s"),
        (["/a", "10", "per", "60"], "60"),
        (["/a"], "CALL N per LENGTH"),
        (["entity", "1 per 1s"], "rule throttle-entity-"),
        (["/a", "1 per 1s", "--by", "ann"], "--author ann"),
        (["/a", "1 per 1s", "--by", ""], "--author WHO"),
        (["/a", "1 per 1s", "--by", "ip", "--row"], "THROTTLED_CALLS counts by user"),
    ):
        status, out, errors = rules(db, "throttle", *words)
        expect((status, out), (2, ""), f"{words} {errors}")
        has(errors, part)
    expect(listed(db), ({}, []))


def test_by_is_not_the_author(db):
    """It was, in earlier versions."""
    init(db)
    for words in (["add", OCR], ["set", "ocr", "max=1"], ["rm", "ocr"], ["undo"], ["lift", "ocr", "u1"]):
        status, out, errors = rules(db, *words, "--by", "ann")
        expect((status, out), (2, ""), errors)
        has(errors, f"--by cannot be used with {words[0]}", "who makes the change is --author ann")
    has(rules(db, "list", "--by", "ann")[2], "--by cannot be used with list")
    expect(listed(db), ({}, []))


def test_throttle_in_a_file(folder):
    path = os.path.join(folder, "rules.yaml")
    done(path, "init")
    has(done(path, "throttle", "/export/*", "2 per 1m", "--by", "ip"), "throttle-export-", "2 per 1m as a token bucket, for each ip")
    done(path, "throttle", "/export/*", "3 per 1m", "--by", "ip")
    [rule] = [row["rule"] for row in listed(path)[0].values()]
    expect((rule["match"], rule["by"], rule["limits"]), ({"path": "/export/*"}, ["ip"], ["3 per 1m"]))


def test_throttle_with_a_row(db):
    init(db)
    said = done(db, "throttle", "GET /entity/#", "10", "per", "60s", "--row")
    expect(said, "throttled-call-1: 10 per 1m as a fixed window, for each user of GET /entity/#\n")
    expect(db.sql("SELECT * FROM THROTTLED_CALLS"), [["1", "GET /entity/#", "10", "60", ""]])
    done(db, "throttle", "GET /entity/#", "20 per 1h", "--for", "2h", "--author", "ann", "--note", "too many", "--row")
    rows = db.sql("SELECT MAX_LOCKS, LOCK_TIMEOUT_SECONDS, THROTTLE_EXPIRATION FROM THROTTLED_CALLS")
    expect((len(rows), rows[0][:2]), (1, ["20", "3600"]))
    expect(abs(int(rows[0][2]) - time.time() - 7200) < 60, True, rows)
    said = done(db, "throttle", "/other", "1 per 1s", "--expires", "2100-01-01T00:00:00Z", "--row")
    has(said, "throttled-call-2", "2100-01-01T00:00:00Z")
    expect(db.sql("SELECT THROTTLE_EXPIRATION FROM THROTTLED_CALLS WHERE THROTTLE_ID = 2"), [["4102444800"]])
    done(db, "set", "throttled-call-2", "max=5")
    expect(db.sql("SELECT MAX_LOCKS FROM THROTTLED_CALLS WHERE THROTTLE_ID = 2"), [["5"]])
    done(db, "rm", "throttled-call-2")
    expect(list(listed(db)[0]), ["throttled-call-1"])


def test_ends_in_every_form(db):
    """Of `throttle`, of `set` and in the column: the same times."""
    init(db)
    done(db, "add", OCR)
    row = "SELECT THROTTLE_EXPIRATION FROM THROTTLED_CALLS"
    for text in ("2100-01-01T08:00:00+08:00", "4102444800", "4102444800000"):
        has(done(db, "throttle", "/a", "1 per 1s", "--expires", text, "--row"), "until 2100-01-01T00:00:00Z")
        expect(db.sql(row), [["4102444800"]], text)
        has(done(db, "show", "throttled-call-1"), "expires: 2100-01-01T00:00:00Z")
        done(db, "throttle", "/a", "1 per 1s", "--row")
        expect(db.sql(row), [[""]], "for ever")
        for name in ("throttled-call-1", "ocr"):
            done(db, "set", name, f"expires={text}")
            has(done(db, "show", name), "expires: 2100-01-01T00:00:00Z")
            done(db, "set", name, "expires=")
            assert "expires" not in done(db, "show", name), name
    for number in ("4102444800", "4102444800000"):
        db.sql(f"UPDATE THROTTLED_CALLS SET THROTTLE_EXPIRATION = {number}")
        has(done(db, "show", "throttled-call-1"), "expires: 2100-01-01T00:00:00Z")
    for text in ("tomorrow", "-1", "2100-01-01", "999999999999999999"):
        expect(rules(db, "throttle", "/a", "1 per 1s", "--expires", text, "--row")[0], 2, text)
        expect(rules(db, "set", "ocr", f"expires={text}")[0], 2, text)


def test_throttle_with_a_row_badly(db):
    init(db)
    for words, part in (
        (["/a", "ten", "per", "60s"], "10 per 60s"),
        (["/a", "10", "per", "60"], "60"),
        (["/a", "10", "per", "day"], "whole seconds"),
        (["/a", "10", "per", "500ms"], "whole seconds"),
        (["/a", "10 per 60s burst 20"], "whole seconds"),
        (["/a"], "CALL N per LENGTH"),
        (["/a", "1 per 1s", "--for", "soon"], "1ms to 3650d, with ms, s, m, h or d"),
        (["/a", "1 per 1s", "--for", "1h", "--expires", "0"], "leave out one"),
        (["/a", "1 per 1s", "--json"], "--json cannot be used with throttle"),
        (["entity", "1 per 1s"], "entity"),
    ):
        status, out, errors = rules(db, "throttle", *words, "--row")
        expect((status, out), (2, ""), f"{words} {errors}")
        has(errors, part)
    expect(listed(db), ({}, []))


# ---- whole rules ----


def refused(source, verb, part):
    status, out, errors = rules(source, verb, "ocr")
    expect((status, out), (1, ""), errors)
    has(errors, part)


@pytest.mark.usefixtures("db")
def test_switches_of_a_file():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rules.yaml")
        done(path, "init")
        done(path, "add", OCR)
        refused(path, "enable", "ocr is already enabled")
        done(path, "disable", "ocr")
        refused(path, "disable", "ocr is already disabled")
        done(path, "enable", "ocr")
        expect(states(path), {"ocr": "enforce"})
        done(path, "set", "ocr", "mode=shadow")
        done(path, "disable", "ocr")
        expect(states(path), {"ocr": "disabled"})
        text = done(path, "export")
        has(text, "mode: shadow", "enabled: false")
        done(path, "import", "-", stdin=text.encode())
        done(path, "enable", "ocr")
        expect(states(path), {"ocr": "shadow"})
        done(path, "set", "ocr", "enabled=false")
        expect(states(path), {"ocr": "disabled"})
        done(path, "set", "ocr", "mode=off")
        done(path, "enable", "ocr")
        expect(states(path), {"ocr": "enforce"})


def test_an_export_keeps_the_mode_of_what_is_disabled(db):
    init(db)
    done(db, "add", OCR)
    done(db, "set", "ocr", "mode=shadow")
    done(db, "disable", "ocr")
    for flags in ([], ["--json"]):
        text = done(db, "export", *flags)
        done(db, "rm", "ocr")
        done(db, "import", "-", stdin=text.encode())
        expect(states(db), {"ocr": "disabled"}, text)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rules.yaml")
            done(path, "init")
            done(path, "import", "-", stdin=text.encode())
            expect(states(path), {"ocr": "disabled"})
            done(path, "enable", "ocr")
            expect(states(path), {"ocr": "shadow"})
    done(db, "enable", "ocr")
    expect(states(db), {"ocr": "shadow"})
    done(db, "set", "ocr", "mode=off")
    expect(states(db), {"ocr": "off"})
    done(db, "enable", "ocr")
    expect(states(db), {"ocr": "enforce"})


def change_where_it_counts(db):
    done(db, "set", "ocr", "counters=local")
    has(done(db, "show", "ocr"), "    counters: local\n")
    has(done(db, "list"), "local: 30 per day")
    status, _, errors = rules(db, "set", "ocr", "lease=true")
    expect(status, 2, errors)
    has(errors, "lease: needs counters that hosts share")
    done(db, "set", "ocr", "counters=")
    done(db, "set", "ocr", "lease=true")
    has(done(db, "show", "ocr"), "    lease: true\n")
    done(db, "set", "ocr", "lease.slice=2.5%")
    done(db, "set", "ocr", "lease.ttl=500ms")
    done(db, "set", "ocr", "on_store_failure=deny")
    has(done(db, "show", "ocr"), "    lease: {slice: 2.5%, ttl: 500ms}\n    on_store_failure: deny\n")
    has(done(db, "list"), "leased: 30 per day")
    row = json.loads(done(db, "show", "ocr", "--json"))
    expect((row["limits"], row["rule"]["lease"]), ("30 per day (UTC)", {"slice": "2.5%", "ttl": "500ms"}))
    done(db, "set", "ocr", "lease=")
    done(db, "set", "ocr", "on_store_failure=")


def test_add_and_change(db):
    init(db)
    done(db, "add", OCR, "--author", "ann", "--note", "first")
    shown = done(db, "show", "ocr")
    has(shown, "# WEIR_RULES: row ocr", "by ann: first", "  - id: ocr", "name: day")
    expect(support.weir("lint", "-", stdin=shown.encode()).returncode, 0, shown)
    row = json.loads(done(db, "show", "ocr", "--json"))
    expect((row["id"], row["state"], row["rule"]["by"]), ("ocr", "enforce", ["key"]))
    status, _, errors = rules(db, "add", OCR)
    expect(status, 2, errors)
    has(errors, "ocr")
    done(db, "add", OCR.replace("100", "50"), "--replace")
    has(done(db, "show", "ocr"), "max: 50")
    done(db, "set", "ocr", "max=20")
    has(done(db, "show", "ocr"), "max: 20")
    done(db, "set", "ocr", "limits.day.max=30")
    has(done(db, "show", "ocr"), "max: 30")
    change_where_it_counts(db)
    done(db, "set", "ocr", "mode=shadow")
    expect(states(db), {"ocr": "shadow"})
    refused(db, "enable", "ocr is already enabled; nothing was changed")
    done(db, "disable", "ocr")
    expect(states(db), {"ocr": "disabled"})
    refused(db, "disable", "ocr is already disabled; nothing was changed")
    has(done(db, "show", "ocr"), "disabled", "max: 30")
    has(done(db, "list"), "30 per day")
    done(db, "enable", "ocr")
    expect(states(db), {"ocr": "shadow"})
    done(db, "rm", "ocr")
    expect(states(db), {})


def test_add_from_a_file_and_from_stdin(db):
    init(db)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rule.yaml")
        with open(path, "w", encoding="utf-8") as out:
            out.write("id: a\nby: [ip]\nlimits: [5 per 1m]\n")
        done(db, "add", path)
        expect(rules(db, "add", path + "none")[0], 2)
    done(db, "add", "-", stdin=b"id: b\nlimits: [5 per 1m]\n")
    expect(states(db), {"a": "enforce", "b": "enforce"})


def test_nothing_bad_is_written(db):
    init(db)
    done(db, "add", OCR)
    for words in (
        ["add", '{ "id": "x", "limits": ["-1 per 1s"] }'],
        ["add", '{ "id": "x", "limits": ['],
        ["add", '{ "id": "x", "match": { "path": { "regex": "(" } }, "limits": ["1 per 1s"] }'],
        ["set", "ocr", "max=-1"],
        ["set", "ocr", "limits.day.tz=Mars/Base"],
        ["set", "ocr", "nonsense=1"],
        ["set", "ocr", "max"],
        ["import", "-"],
    ):
        status, out, errors = rules(db, *words, stdin=b"rules:\n  - id: good\n    limits: [1 per 1s]\n  - id: bad\n")
        expect((status, out), (2, ""), f"{words} {errors}")
    found, problems = listed(db)
    expect((list(found), problems), (["ocr"], []))
    has(done(db, "show", "ocr"), "max: 100")


def test_ids_that_are_not_there(db):
    init(db)
    for words in (["show", "x"], ["rm", "x"], ["disable", "x"], ["enable", "x"], ["set", "x", "max=1"], ["history", "x"],
                  ["undo"], ["undo", "x"], ["rm", "throttled-call-7"]):
        status, out, errors = rules(db, *words)
        expect((status, out), (1, ""), f"{words} {errors}")
        expect(errors.count("\n"), 1, f"{words} {errors}")


# ---- history ----


def test_history_and_undo(db):
    init(db)
    done(db, "add", OCR, "--author", "ann", "--note", "first")
    done(db, "set", "ocr", "max=20", "--author", "bob")
    done(db, "throttle", "/a", "1 per 1s", "--author", "eve", "--row")
    events = json.loads(done(db, "history", "--json"))
    expect([(event["who"], event["what"], event["rule"], event["note"]) for event in events],
           [("eve", "add", "throttled-call-1", ""), ("bob", "change", "ocr", ""), ("ann", "add", "ocr", "first")])
    before, after = (events[1][name]["rule"]["limits"][0]["max"] for name in ("before", "after"))
    expect((events[2]["before"], before, after), (None, 100, 20))
    text = done(db, "history", "ocr", "--most", "1")
    has(text, "bob", "change ocr (WEIR_RULES)", "\n      - ", "\n      + ")
    assert "ann" not in text, text
    done(db, "undo", "ocr", "--author", "ann")
    has(done(db, "show", "ocr"), "max: 100")
    done(db, "undo", "ocr")
    expect(states(db), {"throttled-call-1": "enforce"}, "the newest that is not undone was to add it")
    done(db, "undo", "--change", str(events[0]["number"]))
    expect(states(db), {})
    expect(len(json.loads(done(db, "history", "--json"))), 6)


def test_undo_after_others_changed_the_row(db):
    init(db)
    done(db, "add", OCR)
    done(db, "set", "ocr", "max=20")
    number = json.loads(done(db, "history", "--json", "--most", "1"))[0]["number"]
    done(db, "set", "ocr", "max=30")
    status, _, errors = rules(db, "undo", "--change", str(number))
    expect(status, 1, errors)
    has(errors, "cannot be undone")
    has(done(db, "show", "ocr"), "max: 30")


def test_who_did_it(db):
    init(db)
    done(db, "add", OCR)
    who = json.loads(done(db, "history", "--json"))[0]["who"]
    name, at, host = who.partition("@")
    assert name and at and host, who
    try:
        login = os.getlogin()
    except OSError:
        login = getpass.getuser()
    assert name in (login, str(os.getuid())), who


# ---- import and export ----


def test_import_and_export(db):
    init(db)
    wanted = done(f"file:{EXAMPLES}", "export")
    done(db, "import", EXAMPLES)
    expect(sorted(done(db, "export").split("\n  - ")), sorted(wanted.split("\n  - ")))
    done(db, "throttle", "/a", "1 per 1s", "--row")
    text = done(db, "export")
    has(text, "throttled-call-1")
    expect(support.weir("lint", "-", stdin=text.encode()).returncode, 0)
    done(db, "rm", "throttled-call-1")
    done(db, "disable", "ocr")
    text = done(db, "export")
    has(text, "enabled: false")
    exported = json.loads(done(db, "export", "--json"))
    expect({rule["id"] for rule in exported["rules"]}, {"entity-bundle", "ocr", "login", "per-address", "upload"})
    expect(exported["settings"], {"trusted_proxies": ["10.0.0.0/8"]})
    expect(support.weir("lint", "-", stdin=json.dumps(exported).encode()).returncode, 0)
    done(db, "import", "-", "--replace", stdin=b"rules:\n  - id: one\n    limits: [1 per 1s]\n")
    expect(states(db), {"one": "enforce"})


def test_an_export_of_disabled_rules_alone(db):
    init(db)
    done(db, "add", OCR)
    done(db, "disable", "ocr")
    text = done(db, "export")
    expect(support.weir("lint", "-", stdin=text.encode()).returncode, 0, text)
    has(text, "rules:\n  - id: ocr\n", "enabled: false")


# ---- what is bad ----


def test_rows_that_are_bad(db):
    init(db)
    done(db, "add", OCR)
    done(db, "throttle", "/good", "1 per 1s", "--row")
    db.sql("INSERT INTO THROTTLED_CALLS VALUES (70, '/neg', -1, 60, NULL)")
    db.sql("INSERT INTO WEIR_RULES (ID, RULE, ENABLED) VALUES ('broken', '{', 1)")
    found, problems = listed(db)
    expect({name for name, rule in found.items() if rule["state"] == "bad"}, {"throttled-call-70", "broken"})
    expect({(p["table"], p["row"]) for p in problems}, {("THROTTLED_CALLS", "70"), ("WEIR_RULES", "broken")})
    status, out, _ = rules(db, "list")
    expect(status, 1)
    has(out, "\n  ! ", "4 rules in ", ", 2 problems")
    status, out, errors = rules(db, "export")
    expect(status, 1)
    has(errors, "left out: ", "THROTTLED_CALLS", "70", "broken")
    expect(support.weir("lint", "-", stdin=out.encode()).returncode, 0)
    status, out, _ = rules(db, "show", "broken")
    expect(status, 1)
    has(out, "# bad: ")
    done(db, "rm", "broken")
    done(db, "throttle", "/neg", "1 per 60s", "--row")
    expect(listed(db)[1], [])


def test_values_that_are_hostile(db):
    init(db)
    names = ["x'; DROP TABLE WEIR_RULES; --", 'a"b', "%s%n", "ünï-漢字", "\x1b[2Jesc"]
    for name in names:
        rule = OCR.replace('"match"', '"except": { "user": [' + json.dumps(name) + ' ] }, "match"')
        who = name.replace("\x1b", "")
        done(db, "add", rule, "--replace", "--author", who, "--note", name)
        if who != name:
            status, _, errors = rules(db, "add", rule, "--replace", "--author", name)
            expect((status, "invisible characters" in errors, "\x1b" in errors), (2, True, False), errors)
        row = json.loads(done(db, "show", "ocr", "--json"))
        expect(row["rule"]["except"]["user"], [name])
        expect(json.loads(done(db, "history", "--json", "--most", "1"))[0]["note"], name)
        for words in (["list"], ["history"], ["show", "ocr"]):
            assert "\x1b" not in done(db, *words), words
    for words in (["rm", names[0]], ["show", "\xff"], ["set", names[0], "max=1"]):
        expect(rules(db, *words)[0], 1, words)
    long = b'{ id: x, limits: ["1 per 1s"], reject: { body: "' + b"y" * (5 << 20) + b'" } }'
    status, _, errors = rules(db, "add", "-", stdin=long)
    expect((status, len(errors) < 5000), (2, True))
    status, _, errors = rules(db, "add", "-", stdin=b"{ id: \xff\xfe, limits: [1 per 1s] }")
    expect(status, 2, errors)
    expect(states(db), {"ocr": "enforce"})


def test_passwords(db):
    """From the address, the environment, a file, or the file of the database's own client; never on show."""
    if db.kind == "sqlite":
        return
    init(db)
    address = db.address_without_password()
    expect(db.password in address or address == db.tcp_address, False, address)
    environment = dict(support.ENVIRONMENT)
    with tempfile.TemporaryDirectory() as home:
        try:
            support.ENVIRONMENT["HOME"] = home
            expect(rules(address, "list")[0], 2, "without a password")
            support.ENVIRONMENT["WEIR_DB_PASSWORD"] = db.password
            done(address, "list")
            support.ENVIRONMENT["WEIR_DB_PASSWORD"] = "wrong-password"
            status, _, errors = rules(address, "list")
            expect((status, "wrong-password" in errors), (2, False), errors)
            path = os.path.join(home, "password")
            for text, good in ((db.password, True), (db.password + "\n", True), ("wrong-password\n", False), ("wrong-password\n\nx", False), ("", False)):
                with open(path, "w", encoding="utf-8") as out:
                    out.write(text)
                status, _, errors = rules(f"{address}?password_file={path}", "list")
                expect((status, "wrong-password" in errors, db.password in errors), (0 if good else 2, False, False), errors)
            os.remove(path)
            has(rules(f"{address}?password_file={path}", "list")[2], f"{path}, the password_file of the address", "No such file")
            del support.ENVIRONMENT["WEIR_DB_PASSWORD"]
            name, text = (".my.cnf", f'[client]\npassword="{db.password}"\n') if db.kind == "mysql" else (
                ".pgpass", "*:*:*:*:" + db.password.replace("\\", "\\\\").replace(":", "\\:") + "\n")
            with open(os.open(os.path.join(home, name), os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as out:
                out.write(text)
            done(address, "list")
        finally:
            support.ENVIRONMENT.clear()
            support.ENVIRONMENT.update(environment)


def test_ten_thousand_rules(db):
    init(db)
    rule = "  - { id: rN, match: { path: /pN/# }, by: [user], limits: [10 per 60s] }\n"
    text = "rules:\n" + "".join(rule.replace("N", str(n)) for n in range(10_000))
    done(db, "import", "-", stdin=text.encode())
    status, out, errors = rules(db, "list")
    expect((status, errors, out.count("\n")), (0, "", 10_003))
    has(out, "10000 rules in ")
    done(db, "import", "-", "--replace", stdin=b"rules: []\n")
    expect(states(db), {})


def test_no_password_in_any_message(db):
    if db.kind != "sqlite":
        return
    for address in ("postgres://127.0.0.1:1/db?sslpassword=geheim", "postgres://127.0.0.1:1/db?xPassword=geheim&sslmode=disable",
                    "postgres://ann:geheim@127.0.0.1:1/db?password=geheim", "mysql://127.0.0.1:1/db?ssl-password=geheim"):
        status, out, errors = rules(address, "list")
        expect((status, "geheim" in out + errors), (2, False), errors)


def test_conditions_in_a_file(folder):
    """A change never leaves an empty `match`: the rule would match every request."""
    path = os.path.join(folder, "rules.yaml")
    with open(path, "w", encoding="utf-8") as out:
        out.write("rules: [ { id: a, match: { path: /x }, limits: [1 per 1s] }, { id: b, limits: [1 per 1s] } ]")

    def put(*words):
        changed = support.weir("rules", "set", "--from", path, *words)
        return changed.returncode, changed.stderr.decode()

    status, said = put("a", "path=")
    expect((status, "leave out `match` to match every request" in said), (2, True), said)
    expect(put("b", "event="), (0, ""), "what is not there can be removed")
    expect(put("a", "user={not: [ann, {prefix: b}]}"), (0, ""))
    expect(put("a", "match.header.X-Plan={glob: \"fr*\"}"), (0, ""))
    expect(put("a", "ignore_case=true"), (0, ""))
    shown = support.weir("rules", "list", "--from", path).stdout.decode()
    has(shown, "/x, user not ann or b*, header x-plan=fr*", "everything")
    expect(put("a", "match="), (0, ""))
