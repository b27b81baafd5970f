"""Descriptors at the service: entries that look like others, empty values, repeated keys, large ones; overrides, plans, resets,
the sample, stores; and calendar windows of any length."""

import json
import time
import urllib.parse

import pytest

from support import expect, has, simulate, weir
from support.contract import Checked
from support.service import Service
from support.store import Store
from support.wire import Error, Wire

LIMIT = {"name": "w", "algorithm": "fixed_window", "max": 1, "per": "100d"}
RULES = [
    {"id": "one", "match": {"domain": "one"}, "by": ["descriptor:a"], "limits": LIMIT},
    {"id": "all", "match": {"domain": "all"}, "by": "descriptor", "limits": LIMIT},
    {"id": "second", "match": {"domain": "second"}, "by": ["descriptor:a#2"], "limits": LIMIT},
    {"id": "hash", "match": {"domain": "second"}, "by": ["descriptor:a%232"], "limits": LIMIT},
    {"id": "pair", "match": {"domain": "pair", "descriptor_keys": "a,b"}, "by": ["descriptor:a", "descriptor:b"], "limits": LIMIT},
    {"id": "keys", "match": {"domain": "keys"}, "by": "descriptor_keys", "limits": LIMIT},
    {"id": "none", "match": {"domain": "none", "descriptor": {"a": {"absent": True}}}, "limits": LIMIT},
    {"id": "empty", "match": {"domain": "none", "descriptor": {"a": ""}}, "limits": LIMIT},
    {"id": "plans", "match": {"domain": "plans"}, "by": ["descriptor:a"], "plan": "descriptor:plan",
     "plans": {"free": {**LIMIT, "max": 2}, " free": {**LIMIT, "max": 3}}, "limits": LIMIT},
]
OVERRIDES = [
    {"rule": "one", "by": {"descriptor:a": " vip"}, "limits": {**LIMIT, "max": 2}},
    {"rule": "one", "by": {"descriptor:a": ""}, "limits": {**LIMIT, "max": 3}},
    {"rule": "all", "by": {"descriptor": "a=x%2cb%3Dy"}, "deny": True},
    {"rule": "pair", "by": {"descriptor:a": "", "descriptor:b": ","}, "deny": True},
]
DOCUMENT = json.dumps({"rules": RULES, "overrides": OVERRIDES})

# Each is a subject of its own for a rule by all entries.
DESCRIPTORS = [
    [("a", "x")], [("a", "")], [("a", " ")], [("a", " x")], [("a", "x ")], [("a", "X")], [("A", "x")],
    [("a", "x"), ("b", "y")], [("b", "y"), ("a", "x")], [("a", "x,b=z")], [("a", "x%2Cb%3Dz")], [("a=x,b", "z")], [("a", "x"), ("a", "x")],
    [("a", "x"), ("a", "")], [("a#2", "x")], [("a", "x"), ("a#2", "x")], [("%", "%")], [("%25", "%25")], [("a", "é")],
    [("a", "v" * 8192)], [("a", "v" * 8191 + "w")], [("a", "w" + "v" * 8191)], [("k" * 301, "x")],
    [(f"k{i}", "v") for i in range(256)], [(f"k{i}", "v") for i in range(255)], [(f"k{i}", "v" * 100) for i in range(255)] + [("last", "w" * 100)],
]  # fmt: skip


def listed(entries):
    return [{"key": key, "value": value} for key, value in entries]


def over_http(s, domain, entries):
    verdict = s.check(domain=domain, descriptor=listed(entries)).json()
    return verdict["allowed"], verdict["rule"]


def over_resp(wire, domain, entries):
    found = wire.ask("WEIR.CHECK", "domain", domain, *(word for key, value in entries for word in (b"descriptor:" + octets(key), value)))
    expect(isinstance(found, list), True, str(found))
    return bool(found[0]), found[1]


def octets(text):
    return text if isinstance(text, bytes) else text.encode()


@pytest.fixture(params=["local", "exact", "leased"])
def served(request):
    """The service, with counters here, in a store, and in slices of a store."""
    if request.param == "local":
        with Checked(rules=DOCUMENT) as s:
            yield s
        return
    rules = [{**rule, "lease": True} for rule in RULES] if request.param == "leased" else RULES
    with Store() as store:
        with Checked("--store-deadline", "10s", "--counters", store.address, rules=json.dumps({"rules": rules, "overrides": OVERRIDES})) as s:
            yield s


def test_each_is_a_subject(served):
    for entries in DESCRIPTORS:
        expect(over_http(served, "all", entries), (True, "all"), f"the first of {entries}"[:300])
    with Wire(served) as wire:
        for entries in DESCRIPTORS:
            expect(over_resp(wire, "all", entries), (False, "all"), f"the second of {entries}"[:300])
        for entries in ([("a", b"x\0")], [("a", b"x\0y")], [("a", b"\xff")], [(b"a\0", "x")]):
            expect([over_resp(wire, "all", entries) for _ in range(2)], [(True, "all"), (False, "all")], str(entries))
    expect(over_http(served, "all", [("a", "x,b=y")]), (False, "all"), "an override, however it is spelled")
    expect(over_http(served, "all", []), (True, None), "without a descriptor")


def test_values_of_one_entry(served):
    wanted = {"x": 1, "": 3, " vip": 2, "vip": 1, "vip ": 1, "%": 1, "v" * 8192: 1, "v" * 8191: 1, ",": 1}
    for value, most in wanted.items():
        found = [over_http(served, "one", [("b", "x"), ("a", value)]) for _ in range(most + 1)]
        expect(found, [(True, "one")] * most + [(False, "one")], repr(value)[:100])
    expect(over_http(served, "one", [("b", "x")]), (True, None), "no such entry")
    expect(over_http(served, "one", [("A", "x")]), (True, None), "another key")
    expect(over_http(served, "one", [("a", "fresh"), ("a", "x")]), (True, "one"), "the first of two")


def test_repeated_keys(served):
    expect(over_http(served, "second", [("a", "1")]), (True, None))
    expect(over_http(served, "second", [("a", "1"), ("a", "2")]), (True, "second"))
    expect(over_http(served, "second", [("a", "9"), ("a", "2")]), (False, "second"), "the second counts")
    expect(over_http(served, "second", [("a#2", "2")]), (True, "hash"), "a key that looks like it")
    expect(over_http(served, "second", [("a#2", "2")]), (False, "hash"))
    verdict = served.check(domain="second", descriptor=listed([("a", "1"), ("a#2", "3"), ("a", "3")])).json()
    expect(verdict["allowed"], True, "both")


def test_keys_and_order(served):
    expect(over_http(served, "pair", [("a", "1"), ("b", "2")]), (True, "pair"))
    expect(over_http(served, "pair", [("a", "1"), ("b", "2")]), (False, "pair"))
    for other in ([("b", "2"), ("a", "1")], [("a", "1")], [("a", "1"), ("b", "2"), ("c", "3")], [("a", "1"), ("b", "2"), ("b", "2")]):
        expect(over_http(served, "pair", other), (True, None), str(other))
    expect(over_http(served, "pair", [("a", "1,2"), ("b", "")]), (True, "pair"))
    expect(over_http(served, "pair", [("a", "1"), ("b", "2,")]), (True, "pair"))
    expect(over_http(served, "pair", [("a", ""), ("b", ",")]), (False, "pair"), "an override of two values")
    for entries in ([("a", "1")], [("a", "1"), ("a", "1")], [("a,a", "1")], [("a#2", "1")]):
        expect([over_http(served, "keys", entries) for _ in range(2)], [(True, "keys"), (False, "keys")], str(entries))


def test_absent_and_empty(served):
    expect([over_http(served, "none", [("b", "")]) for _ in range(2)], [(True, "none"), (False, "none")])
    expect([over_http(served, "none", [("a", "")]) for _ in range(2)], [(True, "empty"), (False, "empty")])
    expect(over_http(served, "none", [("a", " ")]), (True, None))


def test_plans(served):
    for plan, most in (("free", 2), (" free", 3), ("free ", 1), ("", 1), ("Free", 1), (None, 1)):
        entries = [("a", f"plan {plan!r}")] + ([] if plan is None else [("plan", plan)])
        expect([over_http(served, "plans", entries)[0] for _ in range(most + 1)], [True] * most + [False], repr(plan))


def test_what_is_refused():
    entry = {"key": "a", "value": "b"}
    wrong = [
        ("a", "must be a list"), ({"a": "b"}, "must be a list"), (["a"], "must be a list"), ([{}], "needs a key"), ([{"value": "b"}], "needs a key"),
        ([{"key": "", "value": "b"}], "needs a key"), ([{"key": None}], "needs a key"), ([{"key": 1}], "key must be a string"),
        ([{"key": "a", "value": 1}], "value must be a string"), ([{"key": "a", "val": "b"}], "unknown field"), ([entry] * 257, "at most 256"),
    ]  # fmt: skip
    with Service(rules=DOCUMENT) as s, Wire(s) as wire:
        for descriptor, why in wrong:
            answer = s.check(descriptor=descriptor)
            expect(answer.status, 400, str(descriptor)[:100])
            has(answer.json()["error"], "descriptor", why)
        expect(s.ask(s.http, "POST", "/v1/check", b'{"descriptor": [{"key": "a", "key": "b"}]}', {"Content-Type": "application/json"}).status, 400, "twice")
        expect(s.check(descriptor=None, domain=None).status, 200)
        expect(s.check(descriptor=[]).status, 200)
        expect(s.check(descriptor=[{"key": "a"}, {"key": "a", "value": None}], domain="second").json()["rule"], "second", "no value: empty")
        found = wire.ask("WEIR.CHECK", "descriptor:", "x")
        expect(isinstance(found, Error), True)
        has(str(found), "descriptor:KEY")
        found = wire.ask("WEIR.CHECK", *("descriptor:a", "x") * 257)
        expect(isinstance(found, Error), True)
        has(str(found), "at most 256")
        for _ in range(10):  # more than a batch holds
            wire.send(b"".join(request_of("all", [(f"{i}", f"{_}") for i in range(200)]) for _ in range(8)))
        expect({bool(wire.reply()[0]) for _ in range(80)}, {True, False})
    for words, why in ((["=x"], "KEY=VALUE"), (["x"], "KEY=VALUE")):
        done = weir("check", "--rules", "-", "--descriptor", *words, stdin=DOCUMENT.encode())
        expect(done.returncode, 2)
        has(done.stderr.decode(), why)
    for descriptor, _ in wrong:
        with pytest.raises(AssertionError):
            simulate(DOCUMENT, [{"t": 0, "descriptor": descriptor}])


def request_of(domain, entries):
    args = [b"WEIR.CHECK", b"domain", domain.encode()] + [octets(word) for key, value in entries for word in ("descriptor:" + key, value)]
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(arg), arg) for arg in args)


# ---- subjects that people name ----


def subject(rule, *by):
    return "/v1/subjects?" + urllib.parse.urlencode([("rule", rule), *(("by", value) for value in by)])


def test_subjects_are_looked_at_and_reset(served):
    for rule, entries, by in (
        ("one", [("a", "x")], ["x"]), ("one", [("a", " y ")], [" y "]), ("one", [("a", ",")], [","]),
        ("all", [("a", "1,2"), ("b", "")], ["a=1%2C2,b="]), ("all", [("a", "1"), ("b", "=")], ["a=1,b=%3d"]),
        ("pair", [("a", "1"), ("b", "")], ["1", ""]), ("keys", [("a", "1"), ("a", "2")], ["a,a#2"]),
    ):  # fmt: skip
        expect([over_http(served, rule, entries)[0] for _ in range(2)], [True, False], f"{rule} {by}")
        found = served.steer("GET", subject(rule, *by))
        expect((found.status, found.json()["limits"][0]["used"] if found.status == 200 else found.body), (200, 1), f"{rule} {by}")
        expect(served.steer("DELETE", subject(rule, *by)).status, 204, f"{rule} {by}")
        expect(over_http(served, rule, entries)[0], True, f"{rule} {by}: after the reset")
    expect([over_http(served, "one", [("a", "")])[0] for _ in range(4)], [True] * 3 + [False], "the empty value")
    expect(served.steer("DELETE", subject("one", "")).status, 204, "the empty value")
    expect(over_http(served, "one", [("a", "")])[0], True, "the empty value, after the reset")
    expect(served.steer("DELETE", subject("all", "a")).status, 400, "not a descriptor")


def test_explained(served):
    query = urllib.parse.urlencode([("domain", "pair"), ("descriptor", "a="), ("descriptor", "b=x=y")])
    found = served.steer("GET", f"/v1/explain?{query}").json()
    expect(found["request"]["descriptor"], listed([("a", ""), ("b", "x=y")]))
    rules = {rule["id"]: rule for rule in found["rules"]}
    expect(rules["pair"]["by"], [{"name": "descriptor:a", "value": ""}, {"name": "descriptor:b", "value": "x=y"}])
    expect((rules["none"]["applies"], rules["none"]["reason"]), (False, "domain"))
    query = urllib.parse.urlencode([("domain", "none"), ("descriptor", "a=z")])
    rules = {rule["id"]: rule for rule in served.steer("GET", f"/v1/explain?{query}").json()["rules"]}
    expect([(rules[name]["reason"], rules[name]["detail"]) for name in ("none", "empty")], [("descriptor", "a")] * 2)
    has(rules["empty"]["text"], "the descriptor entry a is not (empty)")
    query = urllib.parse.urlencode([("domain", "pair"), ("descriptor", "a=z")])
    rules = {rule["id"]: rule for rule in served.steer("GET", f"/v1/explain?{query}").json()["rules"]}
    has(rules["pair"]["text"], "descriptor_keys must be a,b, and is a")
    for wrong in ("a", "=a"):
        expect(served.steer("GET", "/v1/explain?" + urllib.parse.urlencode({"descriptor": wrong})).status, 400, wrong)


def test_strange_keys():
    """Nothing that shows the name of an entry is confused by it."""
    keys = ['a"b', "a\\b", "a\nb", "a b", "é", "{", "a:b", "\u202e", "k" * 300]
    rules = [{"id": f"r{i}", "match": {"domain": f"d{i}", "descriptor": {key: {"not": "x"}}}, "by": [f"descriptor:{key}"], "limits": LIMIT} for i, key in enumerate(keys)]
    with Checked(rules=json.dumps({"rules": rules})) as s:
        for i, key in enumerate(keys):
            expect([over_http(s, f"d{i}", [(key, value)]) for value in ("", "", "x")], [(True, f"r{i}"), (False, f"r{i}"), (True, None)], repr(key))
            found = s.steer("GET", "/v1/explain?applies=1&" + urllib.parse.urlencode({"domain": f"d{i}", "descriptor": f"{key}="})).json()
            expect(found["rules"][0]["by"], [{"name": f"descriptor:{key}", "value": ""}])
            one = s.steer("GET", "/v1/refusals").json()["refusals"][0]["by"][0]
            expect(f"descriptor:{key}".startswith(one["name"][:100]) and one["value"], "", one["name"])
            expect(s.steer("GET", subject(f"r{i}", "")).json()["by"], [{"name": f"descriptor:{key}", "value": ""}])
        expect(len(s.steer("GET", "/v1/top").json()["subjects"]), len(keys))
        expect(s.steer("GET", "/v1/rules?with=count").status in (200, 400), True)
        text = weir("rules", "list", "--from", f"{s.folder.name}/rules.yaml")
        expect(text.returncode, 0, text.stderr.decode())
        shown = weir("lint", f"{s.folder.name}/rules.yaml")
        expect(shown.returncode, 0, shown.stdout.decode())


def test_refusals_are_told_of():
    entries = [("a", "1,2"), ("b", ""), ("c", "=")]
    with Checked(rules=DOCUMENT) as s:
        expect([over_http(s, "all", entries)[0] for _ in range(2)], [True, False])
        one = s.steer("GET", "/v1/refusals").json()["refusals"][0]
        expect(one["by"], [{"name": "descriptor", "value": "a=1%2C2,b=,c=%3D"}])
        expect((one["request"]["domain"], one["request"]["descriptor"]), ("all", ["a=1,2", "b=", "c=="]))
        query = urllib.parse.urlencode([("domain", "all"), *(("descriptor", each) for each in one["request"]["descriptor"])])
        rules = {rule["id"]: rule for rule in s.steer("GET", f"/v1/explain?{query}").json()["rules"]}
        expect(rules["all"]["limits"][0]["used"], 1, "the parameters are those of the same request")
        expect([over_http(s, "all", [("a", "v" * 500)])[0] for _ in range(2)], [True, False])
        one = s.steer("GET", "/v1/refusals").json()["refusals"][0]
        expect(("descriptor" in one["request"], one["request_cut"]), (False, True), "too long: not a part of it")


# ---- overrides in tables and over the API ----


def test_overrides_in_sources(db):
    address = ["--from", db.address]
    expect(weir("rules", "init", *address).returncode, 0)
    done = weir("rules", "import", *address, "-", stdin=DOCUMENT.encode())
    expect(done.returncode, 0, done.stderr.decode())
    for words in (["one", " x"], ["one", "x "], ["pair", "", "a,b%"], ["all", "a=1,b=%2C"], ["one", ""]):
        done = weir("rules", "override", *address, *words, "--limit", "7 per 100d")
        expect(done.returncode, 0, done.stderr.decode())
    for words, why in ((["all", "a"], "all entries"), (["pair", "x"], "2 values")):
        done = weir("rules", "override", *address, *words, "--deny")
        expect(done.returncode, 2, str(words))
        has(done.stderr.decode(), why)
    done = weir("rules", "export", *address)
    expect(done.returncode, 0, done.stderr.decode())
    found = weir("lint", "-", stdin=done.stdout)
    expect(found.returncode, 0, found.stdout.decode() + found.stderr.decode())
    lines = [
        {"t": i, "domain": "one", "descriptor": listed([("a", value)])}
        for i, value in enumerate([""] * 8 + [" x"] * 8 + ["x "] * 8 + ["x"] * 2 + [" vip"] * 3)
    ]
    allowed = [verdict["allowed"] for verdict in simulate(done.stdout.decode(), lines)]
    expect(allowed, ([True] * 7 + [False]) * 3 + [True, False, True, True, False])
    done = weir("rules", "override", *address, "one", "", "--remove")
    expect(done.returncode, 0, done.stderr.decode())
    done = weir("rules", "override", *address, "one", "", "--remove")
    expect(done.returncode, 1, "it is gone")


def test_overrides_over_the_api(folder):
    address = f"sqlite:{folder}/rules.db"
    expect(weir("rules", "init", "--from", address).returncode, 0)
    expect(weir("rules", "import", "--from", address, "-", stdin=json.dumps({"rules": RULES}).encode()).returncode, 0)
    with Checked("--rules", address, rules=False) as s:
        for rule, text, entries in (
            ("one", " z", [("a", " z")]), ("one", "%", [("a", "")]), ("all", "a=1,b=%2C", [("a", "1"), ("b", ",")]),
            ("pair", "1,%2C", [("a", "1"), ("b", ",")]), ("pair", ",", [("a", ""), ("b", "")]),
        ):  # fmt: skip
            place = f"/v1/rules/{rule}/overrides/" + urllib.parse.quote(text, safe="")
            answer = s.steer("PUT", place, {"deny": True})
            expect(answer.status in (200, 201), True, f"{rule} {text}: {answer.body}")
            expect(s.steer("GET", place).json()["subject"], text)
            expect(over_http(s, rule, entries), (False, rule), f"{rule} {text}")
            expect(s.steer("DELETE", place).status, 204, f"{rule} {text}")
            expect(over_http(s, rule, entries), (True, rule), f"{rule} {text}: removed")


# ---- the sample ----


@pytest.mark.parametrize("values", ["hashed", "plain"])
def test_sample(values):
    asked = [("all", [("a", "1"), ("b", "")]), ("all", [("a", "1"), ("b", "")]), ("all", [("a", "2"), ("b", "")])]
    asked += [("one", [("a", "")])] * 4 + [("one", [("a", " vip")])] * 3 + [("pair", [("a", ""), ("b", ",")])]
    asked += [("plans", [("a", "x"), ("plan", "free")])] * 3 + [("none", [("a", "")])] * 2 + [("all", [("a", "x,b=y")])]
    with Checked("--sample", "1000", "--sample-values", values, rules=DOCUMENT) as s:
        verdicts = [over_http(s, *each)[0] for each in asked]
        expect(over_http(s, "all", [(f"k{i}", "v" * 50) for i in range(40)]), (True, "all"), "it does not fit into the sample")
        answer = s.steer("POST", "/v1/simulate", {"remove": ["all"]})
        expect(answer.status, 200, answer.body)
        done = answer.json()
        refused, by_all = verdicts.count(False), [each for each, allowed in zip(asked, verdicts) if each[0] == "all" and not allowed]
        expect((done["input"]["requests"], done["input"]["refused"]), (len(asked) + 1, refused), str(done["input"]))
        expect((done["input"]["cut"], done["input"]["not_judged"]), (1, []), str(done["input"]))
        expect((done["now"]["refused"], done["then"]["refused"]), (refused, refused - len(by_all)), "replayed as decided")
        shown = [each["descriptor"] for each in done["changed"]["requests"]]
        expect([text.startswith("a=hash:") for text in shown], [values == "hashed"] * len(by_all), str(shown))
        if values == "plain":
            expect(shown, ["a=1,b=", "a=x%2Cb%3Dy"])


# ---- calendar windows of any length ----


@pytest.mark.parametrize("counters", ["local", "exact", "leased"])
def test_calendar_lengths(counters):
    lengths = {"1s": 1, "10m": 600, "7d": 7 * 86400, "30d": 30 * 86400, "365d": 365 * 86400, "3650d": 3650 * 86400}
    rules = [
        {"id": name, "match": {"event": name}, "by": "key", "limits": [{"calendar": name, "max": 3}], **({"lease": True} if counters == "leased" else {})}
        for name in lengths
    ]

    def check(s):
        for name, seconds in lengths.items():
            begin = time.time()
            verdict = s.check(event=name, key="k", cost=3).json()
            end = time.time()
            expect((verdict["allowed"], verdict["limit"]), (True, name), name)
            left = {seconds - begin % seconds, seconds - end % seconds}
            if int(begin // seconds) == int(end // seconds):
                expect(min(left) - 0.5 <= verdict["reset_ms"] / 1000 <= max(left) + 0.5, True, f"{name}: {verdict}")
                if seconds > 1:
                    refused = s.check(event=name, key="k").json()
                    expect(refused["allowed"], int(time.time() // seconds) != int(begin // seconds), f"{name}: {refused}")

    document = json.dumps({"rules": rules})
    if counters == "local":
        with Checked(rules=document) as s:
            check(s)
            s.restart()
            expect(s.check(event="3650d", key="k").json()["allowed"], False, "after a restart")
        return
    with Store() as store, Checked("--store-deadline", "10s", "--counters", store.address, rules=document) as s:
        check(s)
