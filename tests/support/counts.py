"""Counts over time: rules that each say something, the answers of /v1/counts, and what the file has of them."""

import json
import os
import sqlite3
import urllib.parse

from support import DEADLINE_S, expect

RULES = """
rules:
  - { id: login, match: { path: /login }, by: [ip], limits: [ { name: m, algorithm: fixed_window, max: 2, per: 24h } ] }
  - { id: 'odd "\\ ü', match: { event: odd }, by: [key], limits: [ "1000 per 24h" ] }
  - { id: tried, match: { event: tried }, by: [key], mode: shadow, limits: [ "0 per 1h" ] }
  - { id: strict, match: { event: strict }, by: [key], limits: [ { max: 0, per: 1h } ], penalty: { after: 1, within: 1m, for: 1h } }
"""
SUMS = ("allowed", "refused", "shadow", "without_rule", "errors")
COLUMNS = (*SUMS, "table_fill", "store_up", "lease_tokens_held", "holds")


def counts(s, **parameters):
    answer = s.steer("GET", "/v1/counts?" + urllib.parse.urlencode(parameters, doseq=True))
    expect(answer.status, 200, answer.body.decode())
    found = answer.json()
    series = [found["all"]] if "all" in found else found["rules"]
    for one in series:
        expect({len(values) for name, values in one.items() if name != "rule"}, {found["points"]}, "points")
    return found


def total(values):
    return sum(value or 0 for value in values)


def totals(s, **parameters):
    """The sums of all decisions."""
    found = counts(s, **parameters)["all"]
    expect(tuple(found), COLUMNS, "columns")
    return {name: total(found[name]) for name in SUMS if total(found[name])}


def by_rule(s, *rules, **parameters):
    """{rule: (passed, refused, would have refused)}"""
    found = counts(s, rule=rules, **parameters)["rules"]
    expect([one["rule"] for one in found], list(rules), "rules")
    return {one["rule"]: tuple(total(one[name]) for name in ("passed", "refused", "would_refuse")) for one in found}


def decide(s):
    """Each rule says something."""
    requests = (
        [{"path": "/login", "ip": "192.0.2.1"}] * 5
        + [{"event": "odd", "key": "k"}] * 7
        + [{"event": "tried", "key": "k"}] * 3
        + [{"event": "strict", "key": "k"}] * 4
        + [{"event": "none"}] * 2
        + [{"event": "odd", "key": "k", "peek": True}] * 9
    )
    answer = s.ask(s.http, "POST", "/v1/check", json.dumps(requests), {"Content-Type": "application/json"})
    expect(answer.status, 200, answer.body.decode())


WANTED = {"allowed": 2 + 7 + 3 + 2, "refused": 3 + 4, "shadow": 3, "without_rule": 2}
WANTED_RULES = {"login": (2, 3, 0), 'odd "\\ ü': (7, 0, 0), "tried": (0, 0, 3), "strict": (0, 4, 0)}


def stored(s, sql):
    """What the file has; None: the service has not made it yet, which it does after its start."""
    path = os.path.join(s.data, "counts.db")
    if not os.path.exists(path):
        return None
    with sqlite3.connect(path, timeout=DEADLINE_S) as db:
        try:
            return db.execute(sql).fetchone()[0]
        except sqlite3.OperationalError as why:
            if "no such table" in str(why):
                return None
            raise
        finally:
            db.commit()
