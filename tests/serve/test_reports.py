"""/v1/status, /v1/top and /metrics: what the service says of itself."""

import json
import re

from support import expect, until
from support.service import Service

RULES = r"""
rules:
  - { id: login, match: { path: /login }, by: [ip], limits: [ { name: m, algorithm: fixed_window, max: 2, per: 24h } ] }
  - { id: 'odd "\ id', match: { event: odd }, by: [key, "header:X-Tenant"], limits: [ "0 per 1h" ] }
  - { id: tried, match: { event: tried }, by: [key], mode: shadow, limits: [ "0 per 1h" ] }
  - { id: all, match: { event: all }, limits: [ "0 per 1h" ] }
"""
BAD = "  - { id: broken, match: { event: x }, limits: [ { max: -1, per: 1h } ] }\n"

# ---- the text format of Prometheus, strictly ----

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
HELP = re.compile(rf"# HELP ({NAME}) (.+)")
TYPE = re.compile(rf"# TYPE ({NAME}) (counter|gauge|histogram)")
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def labels_of(text):
    labels = {}
    while text:
        found = LABEL.match(text)
        if not found:
            raise AssertionError(f"labels: {text}")
        name, value, _ = found.groups()
        expect(name in labels, False, f"label {name} twice")
        labels[name] = re.sub(r"\\.", lambda escape: ESCAPES[escape[0]], value)
        text = text[found.end() :]
    return labels


def family_of(name, families):
    """The family of a sample: its own name, or that of a histogram."""
    if name in families:
        return name
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    expect(families.get(base), "histogram", f"family of {name}")
    return base


def parse(text):
    """{name: {labels as a sorted tuple: value}}; each family in one piece, each sample once."""
    expect(text.endswith("\n"), True, "the last line ends")
    families, samples, helped, current = {}, {}, None, None
    for line in text[:-1].split("\n"):
        if found := HELP.fullmatch(line):
            helped = found[1]
        elif found := TYPE.fullmatch(line):
            name, kind = found.groups()
            expect(name, helped, "HELP before TYPE")
            expect(name in families, False, f"family {name} twice")
            families[name] = kind
            current = name
            if kind == "counter":
                expect(name.endswith("_total"), True, name)
        else:
            found = SAMPLE.fullmatch(line)
            if not found:
                raise AssertionError(f"no sample: {line}")
            name, labels, value = found.groups()
            expect(family_of(name, families), current, "a family is in one piece")
            key = tuple(sorted(labels_of(labels or "").items()))
            expect(key in samples.get(name, {}), False, f"{line} twice")
            samples.setdefault(name, {})[key] = float(value)
    for name, kind in families.items():
        if kind == "histogram":
            check_histogram(name, samples)
    return samples


def check_histogram(name, samples):
    buckets = [(float(dict(key)["le"]), value) for key, value in samples[name + "_bucket"].items()]
    expect(buckets, sorted(buckets), "buckets rise")
    expect(buckets[-1][0], float("inf"), "the last bucket")
    expect([value for _, value in buckets], sorted(value for _, value in buckets), "buckets are cumulative")
    expect(samples[name + "_count"][()], buckets[-1][1], "count")
    expect(len(samples[name + "_sum"]), 1, "sum")


# ---- what the tests ask ----


def metrics(s):
    answer = s.steer("GET", "/metrics")
    expect(answer.status, 200, answer.body.decode())
    expect(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8", "type")
    return parse(answer.body.decode())


def decisions(samples):
    """{rule: (allowed, refused, shadow)}, and if there are any: peeked"""
    result = {}
    for key, value in samples["weir_decisions_total"].items():
        labels = dict(key)
        result.setdefault(labels["rule"], {})[labels["outcome"]] = int(value)
    return {
        rule: (each["allowed"], each["refused"], each["shadow"]) + ((each["peeked"],) if each["peeked"] else ())
        for rule, each in result.items()
    }


def applied(samples):
    """{rule: passed, (rule, limit): (refused, would have refused)} of those that are not zero, and "": requests without a rule"""
    result = {}
    for key, value in samples["weir_rule_applied_total"].items():
        labels = dict(key)
        if value and labels["outcome"] == "passed":
            expect(labels["limit"], "", "nothing refused")
            result[labels["rule"]] = int(value)
        elif value:
            pair = result.get((labels["rule"], labels["limit"]), (0, 0))
            result[labels["rule"], labels["limit"]] = tuple(
                old + int(value) * (labels["outcome"] == name) for old, name in zip(pair, ("refused", "would_refuse"))
            )
    return result | {"": int(samples["weir_requests_without_rule_total"][()])}


def status(s):
    answer = s.steer("GET", "/v1/status")
    expect(answer.status, 200, answer.body.decode())
    return answer.json()


def top(s, query=""):
    answer = s.steer("GET", "/v1/top" + query)
    expect(answer.status, 200, answer.body.decode())
    return answer.json()


def many(s, requests):
    answer = s.ask(s.http, "POST", "/v1/check", json.dumps(requests), {"Content-Type": "application/json"})
    expect(answer.status, 200, answer.body.decode())
    return answer.json()


def login(ip):
    return {"method": "POST", "path": "/login", "ip": ip}


def odd(key):
    return {"event": "odd", "key": key, "headers": {"X-Tenant": "acme"}}


# ---- cases ----


def test_decisions_are_counted(service):
    """Decisions are counted by rule and outcome."""
    s = service("--threads", 2, rules=RULES)
    for _ in range(10):  # each on a connection of its own, so that both loops have some
        s.check(**login("203.0.113.9"))
    many(s, [odd("k"), {"event": "tried", "key": "k"}, {"event": "none"}, odd("k")])
    with s.socket(s.resp) as client:
        client.sendall(b"CL.THROTTLE k 0 1 3600\r\n" * 3 + b"QUIT\r\n")
        while client.recv(4096):
            pass
    found = metrics(s)
    wanted = {"": (2, 0, 0), "login": (2, 8, 0), 'odd "\\ id': (0, 2, 0), "tried": (0, 0, 1)}
    wanted["(cl.throttle)"] = (1, 2, 0)
    wanted["all"] = (0, 0, 0)  # in force, and not asked for yet
    expect(decisions(found), wanted, "decisions")
    expect(found["weir_decision_seconds_count"][()], 14, "latencies")
    expect(status(s)["decisions"], {"allowed": 5, "refused": 12, "shadow": 1}, "in the status")


APPLIED = """
rules:
  - id: both
    match: { event: e }
    by: [key]
    limits: [ { name: day, algorithm: fixed_window, max: 3, per: 24h }, { name: hour, algorithm: fixed_window, max: 2, per: 1h } ]
  - { id: wide, match: { event: e }, limits: [ { name: all, algorithm: fixed_window, max: 100, per: 1h } ] }
  - { id: trial, match: { event: e }, mode: shadow, limits: [ { name: one, algorithm: fixed_window, max: 1, per: 1h } ] }
  - { id: alone, match: { event: s }, mode: shadow, limits: [ { name: o ne, algorithm: fixed_window, max: 1, per: 1h } ] }
"""


def test_rules_that_applied(service):
    """Every rule that applies is counted, with the limit that had no room, on every front and whatever becomes of the rules."""
    s = service("--threads", 2, "--poll", "100ms", rules=APPLIED)
    for outcome in ("refused", "would_refuse"):
        series = [dict(key) for key in metrics(s)["weir_rule_applied_total"] if dict(key)["outcome"] == outcome]
        expect({(each["rule"], each["limit"]) for each in series},
               {("both", "day"), ("both", "hour"), ("wide", "all"), ("trial", "one"), ("alone", "o ne")}, "there from the start")
    for _ in range(5):
        s.check(event="e", key="k")
    many(s, [{"event": "s"}, {"event": "s"}, {"event": "none"}, {"event": "e", "key": "k", "peek": True}])
    wanted = {"both": 2, ("both", "hour"): (3, 0), "wide": 5, "trial": 1, ("trial", "one"): (0, 4), "alone": 1,
              ("alone", "o ne"): (0, 1), "": 1}
    expect(applied(metrics(s)), wanted)
    with s.socket(s.resp) as client:
        client.sendall(b"WEIR.CHECK event e key k2 cost 9\r\nWEIR.CHECK event x\r\nWEIR.PEEK event e\r\nQUIT\r\n")
        while client.recv(4096):
            pass
    wanted.update({("both", "day"): (1, 0), "wide": 6, ("trial", "one"): (0, 5), "": 2})
    expect(applied(metrics(s)), wanted, "over RESP")
    s.write_rules("rules:\n  - { id: new, match: { event: new }, limits: [ '1 per 1h' ] }\n" + APPLIED.strip()[7:].split("  - { id: trial")[0])
    until(lambda: status(s)["rules"]["count"] == 3, "other rules are in force")
    expect(applied(metrics(s)), wanted, "nothing is lost")
    many(s, [{"event": "new"}, {"event": "e", "key": "k"}, {"event": "s"}])
    wanted.update({"new": 1, ("both", "hour"): (4, 0), "wide": 7, "": 3})
    expect(applied(metrics(s)), wanted, "and all goes on")


def test_limits_of_plans_are_there_from_the_start(service):
    """A limit that only a plan has begins with 0, as the rule's own do."""
    s = service(rules="""
rules:
  - id: api
    match: { event: e }
    plan: user
    plans: { free: [ "1 per 1h", { name: day, calendar: day, max: 5 } ] }
    limits: [ { name: own, algorithm: fixed_window, max: 1, per: 1h } ]
""")
    found = {(dict(key)["limit"], value) for key, value in metrics(s)["weir_rule_applied_total"].items() if dict(key)["outcome"] == "refused"}
    expect(found, {("own", 0), ("token_bucket", 0), ("day", 0)})


def test_rules_that_applied_in_a_store(store, service):
    """The same for rules that count in Redis."""
    more = "  - { id: leased, match: { event: e }, lease: true, limits: [ { name: lent, algorithm: fixed_window, max: 100, per: 1h } ] }\n"
    s = service("--counters", store.address, "--store-deadline", "10s", rules=APPLIED.replace("id: wide,", "id: wide, counters: local,") + more)
    until(lambda: status(s)["store"]["up"], "the store is reached")
    for _ in range(5):
        s.check(event="e", key="k")
    wanted = {"both": 2, ("both", "hour"): (3, 0), "wide": 5, "leased": 5, "trial": 1, ("trial", "one"): (0, 4), "": 0}
    expect(applied(metrics(s)), wanted)


def test_rules_that_are_not_in_force_do_not_count():
    more = """  - { id: off, limits: [ '1 per 1h' ], mode: off }
  - { id: disabled, limits: [ '1 per 1h' ], enabled: false }
  - { id: expired, limits: [ '1 per 1h' ], expires: 2020-01-01T00:00:00Z }
"""
    with Service(rules=RULES.rstrip() + "\n" + more) as s:
        found = metrics(s)
        expect((found["weir_rules"][()], status(s)["rules"]["count"]), (4, 4), "in force")
        expect("off" in decisions(found) or "disabled" in decisions(found), False, "series of rules that cannot decide")
        expect([e["message"].split()[0] for e in s.events("rules") if "in force" in e["message"]], ["4"], "in the log")


def test_counters_outlive_a_change_of_rules(service):
    s = service("--poll", "100ms", rules=RULES)
    many(s, [login("203.0.113.9")] * 5)
    s.write_rules("rules:\n  - { id: new, match: { event: new }, limits: [ '1 per 1h' ] }\n" + RULES.strip()[7:])
    until(lambda: status(s)["rules"]["count"] == 5, "the new rules are in force")
    many(s, [login("203.0.113.9")] * 5 + [{"event": "new"}])
    wanted = {"": (0, 0, 0), "login": (2, 8, 0), "new": (1, 0, 0)}
    wanted.update({rule: (0, 0, 0) for rule in ('odd "\\ id', "tried", "all")})
    expect(decisions(metrics(s)), wanted, "decisions")


def test_peeks_are_no_decisions(service):
    s = service("--threads", 1, rules=RULES)
    many(s, [{**odd("k"), "peek": True}] * 3 + [{"event": "tried", "key": "k", "peek": True}])
    with s.socket(s.resp) as client:
        client.sendall(b"WEIR.PEEK event odd key k header:x-tenant a\r\nCL.THROTTLE k 0 1 3600 0\r\nQUIT\r\n")
        while client.recv(4096):
            pass
    found = metrics(s)
    wanted = {"": (0, 0, 0, 1), 'odd "\\ id': (0, 0, 0, 4), "(cl.throttle)": (0, 0, 0, 1)}
    wanted.update({rule: (0, 0, 0) for rule in ("login", "tried", "all")})
    expect(decisions(found), wanted, "decisions")
    expect(found["weir_decision_seconds_count"][()], 0, "latencies")
    expect(status(s)["decisions"], {"allowed": 0, "refused": 0, "shadow": 0}, "in the status")
    expect((top(s)["refused"], top(s)["subjects"]), (0, []), "in the list")


def test_throttled_keys_are_listed(service):
    """Keys of CL.THROTTLE are listed."""
    s = service("--threads", 1, rules=RULES)
    with s.socket(s.resp) as client:
        client.sendall(b"CL.THROTTLE k 0 1 3600\r\n" * 4 + b"SELECT 3\r\n" + b"CL.THROTTLE k 0 1 3600\r\n" * 2)
        client.sendall((b"CL.THROTTLE " + b"x" * 1000 + b" 0 1 3600\r\n") * 2 + b"QUIT\r\n")
        while client.recv(4096):
            pass
    found = top(s, "?rule=(cl.throttle)")["subjects"]
    expect(
        sorted(([(by["name"], by["value"][:5]) for by in one["by"]], one["refused"], one["cut"]) for one in found),
        [
            ([("key", "k")], 3, False),
            ([("key", "k"), ("database", "3")], 1, False),
            ([("key", "xxxxx"), ("database", "3")], 1, True),
        ],
        "subjects",
    )


def test_the_most_refused_come_first(service):
    """The most refused subjects come first."""
    s = service("--threads", 2, rules=RULES)
    for _ in range(9):
        s.check(**login("203.0.113.9"))
    many(s, [login("2001:db8:1:2::9")] * 5 + [odd("k\u20ac\x07")] * 5 + [{"event": "all"}])
    found = top(s)
    expect(found["refused"], 7 + 3 + 5 + 1, "in all")
    expect(found["unlisted_at_most"], 0, "all are listed")
    expect(
        [(one["rule"], [(by["name"], by["value"]) for by in one["by"]], one["refused"]) for one in found["subjects"]],
        [
            ("login", [("ip", "203.0.113.9")], 7),
            ('odd "\\ id', [("key", "k\u20ac\x07"), ("header:x-tenant", "acme")], 5),
            ("login", [("ip", "2001:db8:1:2::/64")], 3),
            ("all", [], 1),
        ],
        "subjects",
    )
    expect({(one["error"], one["cut"]) for one in found["subjects"]}, {(0, False)}, "exact and whole")
    expect(len(top(s, "?most=1")["subjects"]), 1, "most")
    expect([one["refused"] for one in top(s, "?rule=login")["subjects"]], [7, 3], "of one rule")
    expect([one["refused"] for one in top(s, "?rule=odd%20%22%5C%20id")["subjects"]], [5], "of an odd rule")
    expect(top(s, "?rule=none")["subjects"], [], "of no rule")
    expect(s.steer("GET", "/v1/top?most=0").status, 400, "most=0")


def test_more_subjects_than_places(service):
    """More subjects than places: counts have bounds."""
    s = service("--threads", 1, rules=RULES)
    for begin in range(0, 6000, 500):
        many(s, [odd(f"rare-{begin + i}") for i in range(500)] + [odd("often")] * 20)
    found = top(s, "?most=1000")
    expect(found["refused"], 6000 + 12 * 20, "in all")
    often = found["subjects"][0]
    expect(often["by"][0]["value"], "often", "the first")
    expect(often["refused"] - often["error"] <= 240 <= often["refused"], True, str(often))
    expect(found["unlisted_at_most"] > 0, True, "some are not listed")


def test_bad_rows_are_named(service):
    s = service("--poll", "100ms", rules=RULES)
    s.write_rules(RULES + BAD)
    found = until(lambda: status(s)["rules"]["problem_count"] == 1 and status(s), "the problem")
    problem = found["rules"]["problems"][0]
    expect((problem["rule"], "max" in problem["text"]), ("broken", True), str(problem))
    expect(metrics(s)["weir_rules_problems"][()], 1, "metric")
    expect(found["rules"]["count"], 4, "the others are in force")
    expect(metrics(s)["weir_source_reachable"][()], 1, "reachable")
    expect(found["source"]["read_only"], True, "a file is read-only")


def counts_of(connections):
    return [connections[kind] for kind in ("http", "resp", "admin", "open")]


def test_table_and_connections(service):
    """The table and the connections."""
    s = service("--cells-keys", "10k", rules=RULES)
    many(s, [login(f"203.0.113.{i}") for i in range(100)])
    with s.socket(s.http), s.socket(s.resp):
        # Those of before may not have been seen to go yet.
        found = until(lambda: counts_of((now := status(s))["connections"]) == [1, 1, 1, 3] and now, "one of each")
    expect(found["table"]["cells"] >= 10000, True, "size of the table")
    until(lambda: status(s)["table"]["used"] == 100, "the cells in use")
    expect(metrics(s)["weir_table_used_cells"][()], 100, "metric")
    expect(found["table"]["drops"], 0, "drops")


def test_nothing_for_strangers(service):
    s = service(rules=RULES)
    for path in ("/metrics", "/v1/status", "/v1/top"):
        expect(s.ask(s.admin, "GET", path).status, 401, path)
