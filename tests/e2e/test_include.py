"""`include`: several rules files, read as one by the commands and the service."""

import json
import os

from support import expect, until, weir
from support.service import Service

LIMIT = {"algorithm": "fixed_window", "max": 1, "per": "1h"}


def text(*ids, **more):
    rules = [{"id": name, "match": {"event": name}, "limits": [LIMIT]} for name in ids]
    return json.dumps({**more, "rules": rules}) if ids else json.dumps(more)


def put(folder, name, content):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as out:
        out.write(content)
    os.rename(path + ".new", path)
    return path


def fill(folder):
    put(folder, "conf.d/a.yaml", text("a"))
    put(folder, "more/other.json", text("b", settings={"ipv6_prefix": 48}))
    return put(folder, "rules.yaml", text("top", include=["more/other.json", "conf.d"]))


def test_commands(folder):
    rules = fill(folder)
    expect(weir("lint", rules).stdout.decode(), f"{rules}: 3 rules, ok\n")
    for event in ("top", "a", "b"):
        verdict = json.loads(weir("check", "--rules", rules, "--event", event).stdout)
        expect(verdict["rule"], event, "weir check")
        done = weir("explain", "--rules", rules, "--event", event)
        expect(f"{event} applies" in done.stdout.decode(), True, done.stdout.decode())
    with open(os.path.join(folder, "log"), "w", encoding="utf-8") as out:
        out.write("".join(json.dumps({"t": 1000, "event": event}) + "\n" for event in ("a", "a", "b")))
    done = weir("simulate", "--rules", rules, "--json", os.path.join(folder, "log"))
    expect(json.loads(done.stdout)["refused"], 1, done.stdout.decode())
    done = weir("lint", "-", stdin=text("a", include="conf.d").encode())
    expect((done.returncode, "only a rules file can include others" in done.stdout.decode() + done.stderr.decode()), (1, True))


def test_errors(folder):
    rules = fill(folder)
    put(folder, "conf.d/a.yaml", "rules:\n  - id: a\n    limits: often\n")
    put(folder, "conf.d/b.yaml", "rules:\n  - id: b\n    limits: 1 per 1s\n")
    said = weir("lint", rules).stderr.decode()
    expect(f"{folder}/conf.d/a.yaml:3: rule a: limits: " in said, True, said)
    expect(f"{folder}/conf.d/b.yaml:2: rule b: id: the rule in line 1 of {folder}/more/other.json already has" in said, True, said)


def test_rules(folder):
    """weir rules shows the file of each rule, and changes none of several files."""
    rules = fill(folder)
    listed = json.loads(weir("rules", "list", "--from", rules, "--json").stdout)
    found = [(row["id"], os.path.relpath(row["table"], folder)) for row in listed["rules"]]
    expect(found, [("top", "rules.yaml"), ("b", "more/other.json"), ("a", "conf.d/a.yaml")])
    before = {name: open(os.path.join(folder, name), encoding="utf-8").read() for name in ("rules.yaml", "conf.d/a.yaml", "more/other.json")}
    for words in (["set", "a", "max=2"], ["set", "top", "max=2"], ["rm", "b"], ["disable", "a"], ["add", json.dumps({"id": "n", "limits": [LIMIT]})]):
        done = weir("rules", words[0], "--from", rules, *words[1:])
        expect((done.returncode, "has `include`" in done.stderr.decode()), (2, True), f"{words}: {done.stderr.decode()}")
    for name, content in before.items():
        expect(open(os.path.join(folder, name), encoding="utf-8").read(), content, name)
    done = weir("rules", "set", "--from", os.path.join(folder, "conf.d", "a.yaml"), "a", "max=2")
    expect(done.returncode, 0, done.stderr.decode())
    put(folder, "conf.d/o.yaml", json.dumps({"overrides": [{"rule": "u", "by": {"user": "x"}, "deny": True}]}))
    put(folder, "conf.d/u.yaml", json.dumps({"rules": [{"id": "u", "by": "user", "limits": [LIMIT]}]}))
    listed = json.loads(weir("rules", "override", "--from", rules, "--json").stdout)
    expect([os.path.relpath(row["table"], folder) for row in listed["overrides"]], ["conf.d/o.yaml"], "the file of an override")
    os.unlink(os.path.join(folder, "conf.d/o.yaml"))
    os.unlink(os.path.join(folder, "conf.d/u.yaml"))
    exported = weir("rules", "export", "--from", rules)
    expect(exported.stdout.decode().count("- id: "), 3, "weir rules export: one file of all")
    shown = weir("rules", "show", "--from", rules, "a").stdout.decode()
    expect("max: 2" in shown, True, shown)


def counts(s, event):
    return s.check(event=event).json()["rule"] == event


def test_service(folder):
    """The service follows every file, and a folder; what is missing leaves the last good rules in force."""
    rules = fill(folder)
    with Service("--rules", rules, "--poll", "100ms", rules=False) as s:
        expect([counts(s, event) for event in ("top", "a", "b", "c")], [True, True, True, False], "at the start")
        put(folder, "more/other.json", text("b2"))
        until(lambda: counts(s, "b2") and not counts(s, "b"), "another version of a file")
        put(folder, "conf.d/c.yaml", text("c"))
        until(lambda: counts(s, "c"), "another file in the folder")
        os.unlink(os.path.join(folder, "more", "other.json"))
        problems = until(lambda: s.steer("GET", "/v1/status").json()["rules"]["problems"], "a missing file")
        expect((problems[0]["table"], "more/other.json: cannot be read" in problems[0]["text"]), (rules, True), problems)
        expect([counts(s, event) for event in ("top", "a", "b2", "c")], [True] * 4, "the last good rules")
        put(folder, "more/other.json", text("b3"))
        until(lambda: counts(s, "b3"), "the file is back")
        os.unlink(os.path.join(folder, "conf.d", "a.yaml"))
        until(lambda: not counts(s, "a"), "a file of the folder is gone")
        put(folder, "conf.d/c.yaml", "rules:\n  - { id: c, limits: often }\n")
        problems = until(lambda: s.steer("GET", "/v1/status").json()["rules"]["problems"], "a bad rule")
        expect((problems[0]["table"], problems[0]["row"]), (os.path.join(folder, "conf.d", "c.yaml"), "line 2"))
        expect(counts(s, "c"), True, "its last good version")
        found = {row["id"]: row["table"] for row in s.steer("GET", "/v1/rules").json()["rules"]}
        expect(found["b3"], os.path.join(folder, "more", "other.json"), "the file of a rule")
