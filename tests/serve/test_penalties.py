"""Penalties: over HTTP and RESP, listed and lifted, counted, in every process of a host, after a restart."""

import json

from support import expect, has, until, weir
from support.wire import Wire

RULES = """
rules:
  - id: login
    match: { path: /login }
    by: [ip]
    limits: [ { name: m, algorithm: fixed_window, max: 1, per: 2s } ]
    penalty: { after: 3, within: 1m, for: 1h, grow: 2, most: 4h }
  - { id: all, limits: [ { name: day, algorithm: fixed_window, max: 1000, per: 24h } ] }
"""
JSON = {"Content-Type": "application/json"}


def where(place):
    return f"unix:{place}" if isinstance(place, str) else f"{place[0]}:{place[1]}"


def login(s, ip, **more):
    return s.check(path="/login", ip=ip, **more)


def penalise(s, ip):
    """Until a penalty begins: the window of the limit may end between two requests."""
    for _ in range(20):
        verdict = login(s, ip).json()
        if verdict.get("penalty"):
            return verdict
    raise AssertionError("nobody was penalised")


def listed(s, query=""):
    answer = s.steer("GET", f"/v1/penalties{query}")
    expect(answer.status, 200)
    return answer.json()


def metric(s, name, rule="login"):
    text = s.steer("GET", "/metrics").body.decode()
    values = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(f'{name}{{rule="{rule}"}}')]
    expect(len(values), 1, name)
    return int(values[0])


def cli(s, verb, *words):
    return weir("rules", verb, *words, "--admin", where(s.admin), "--data", s.data)


def test_refused_listed_and_lifted(service):
    s = service(rules=RULES)
    since = s.steer("GET", "/v1/status").json()["started"]
    expect(listed(s), {"penalties": [], "running": 0, "left_out": 0, "since": since})
    expect((metric(s, "weir_penalties_total"), metric(s, "weir_penalty_refusals_total")), (0, 0), "series begin at 0")
    verdict = penalise(s, "203.0.113.9")
    expect((verdict["allowed"], verdict["status"], verdict["rule"], verdict["remaining"]), (False, 429, "login", 0))
    expect(3590_000 < verdict["retry_after_ms"] <= 3600_000, True, str(verdict))
    answer = login(s, "203.0.113.9")
    expect((answer.status, answer.json()["penalty"]), (429, True))
    expect(login(s, "203.0.113.10").json().get("penalty"), None, "somebody else")
    before = login(s, "203.0.113.10", peek=True).json()
    expect((metric(s, "weir_penalties_total"), metric(s, "weir_penalty_refusals_total")), (1, 1))

    found = listed(s)["penalties"]
    expect([(p["rule"], p["by"], p["level"], p["cut"]) for p in found],
           [("login", [{"name": "ip", "value": "203.0.113.9"}], 1, False)])
    expect(3500_000 < found[0]["rest_ms"] <= 3600_000, True, str(found))
    expect(listed(s, "?rule=login")["running"], 1)
    expect(listed(s, "?rule=other")["running"], 0)
    expect(s.steer("GET", "/v1/penalties?most=0").status, 400)
    expect(s.steer("GET", "/v1/penalties?x=1").status, 400)

    out = cli(s, "penalties")
    expect(out.returncode, 0, out.stderr.decode())
    has(out.stdout.decode(), "login", "ip=203.0.113.9", "another ")
    expect(json.loads(cli(s, "penalties", "login", "--json").stdout)["running"], 1)
    none = cli(s, "penalties", "other")
    expect(none.returncode, 1)
    has(none.stderr.decode(), f"nobody is penalised by rule other, as far as the service knows: it remembers who was refused since {since}")
    top = weir("top", "--once", "--data", s.data, "--admin", where(s.admin))
    has(top.stdout.decode(), "penalised: 1\n", "ip=203.0.113.9")

    lifted = cli(s, "lift", "login", "203.0.113.9")
    expect((lifted.returncode, lifted.stdout), (0, b"login, 203.0.113.9: the penalty is lifted\n"), lifted.stderr.decode())
    expect(listed(s)["penalties"], [])
    expect(login(s, "203.0.113.9").json().get("penalty"), None, "lifted")
    expect(cli(s, "lift", "login", "203.0.113.9").returncode, 1, "there is none any more")
    expect(cli(s, "lift", "nope", "203.0.113.9").returncode, 1)
    expect(cli(s, "lift", "login").returncode, 2, "no value")
    expect(s.steer("DELETE", "/v1/penalties?rule=login&by=203.0.113.9").status, 404)
    expect(s.steer("DELETE", "/v1/penalties?rule=login&by=nonsense").status, 400)
    expect(s.steer("DELETE", "/v1/penalties").status, 400)
    expect(before["allowed"] in (True, False), True)


def test_over_resp(service):
    s = service(rules=RULES)
    penalise(s, "203.0.113.9")
    with Wire(s) as wire:
        words = ("path", "/login", "ip", "203.0.113.9")
        short = wire.ask("WEIR.CHECK", *words)
        expect((len(short), short[:2]), (7, [0, "login"]))
        long = wire.ask("WEIR.CHECK", "reply", "long", *words)
        expect((len(long), long[0], long[1], long[11], long[12]), (13, 0, "login", "requests", 1))
        expect(wire.ask("AUTH", s.token), "OK")
        expect(wire.ask("WEIR.RESET", "login", "203.0.113.9"), "OK", "resetting lifts it")
        expect(wire.ask("WEIR.CHECK", *words)[0], 1)
    expect(listed(s)["penalties"], [])


def test_explained(service):
    s = service(rules=RULES)
    penalise(s, "203.0.113.9")
    penalties = metric(s, "weir_penalties_total")
    for _ in range(10):
        asked = s.steer("GET", "/v1/explain?path=/login&ip=203.0.113.9").json()
    rule = asked["rules"][0]
    expect((rule["penalty"]["penalised"], rule["penalty"]["level"]), (True, 1))
    expect([rule["penalty"][name] for name in ("after", "within_ms", "by_hand")], [3, 60_000, False])
    has(asked["text"], "refused by login: a penalty for too many refusals; retry in ", "; it lasts until 20", "after 3 refusals within 1 min")
    expect("penalty" in asked["rules"][1], False)
    expect(asked["verdict"]["penalty"], True)
    expect(metric(s, "weir_penalties_total"), penalties)


def test_survives_a_restart(service):
    s = service(rules=RULES)
    penalise(s, "203.0.113.9")
    s.kill()
    s.start()
    expect(listed(s)["penalties"], [], "the names are of this run")
    expect(listed(s)["since"], s.steer("GET", "/v1/status").json()["started"])
    expect(login(s, "203.0.113.9").json()["penalty"], True)
    expect(listed(s)["running"], 1)


def test_rules_that_change(service):
    s = service(rules=RULES)
    penalise(s, "203.0.113.9")
    s.write_rules(RULES.replace("for: 1h", "for: 5m"))
    until(lambda: login(s, "203.0.113.9").json()["retry_after_ms"] <= 300_000, "a shorter penalty")
    until(lambda: listed(s)["penalties"][0]["rest_ms"] <= 300_000, "in the list, too")
    s.write_rules(RULES.replace("grow: 2, most: 4h }", "grow: 2, most: 4h }\n    mode: shadow"))
    until(lambda: login(s, "203.0.113.9").json()["allowed"], "nobody is penalised in shadow mode")
    expect(listed(s)["penalties"], [])
