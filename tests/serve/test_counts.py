"""/v1/counts: what the service keeps of its counts over time. What becomes of a file that fails is in
test_counts_file.py and test_counts_disk.py; the file itself is tested by tests/serve/counts_db.c."""

import datetime
import json

import pytest

from support import expect, has, until
from support.contract import Checked
from support.counts import RULES, WANTED, WANTED_RULES, by_rule, counts, decide, stored, total, totals
from support.store import PATIENT
from support.wire import Wire


@pytest.fixture
def s():
    with Checked(rules=RULES) as running:
        yield running


@pytest.fixture(scope="module")
def calm():
    """Nobody decides, so that tests may share it."""
    with Checked(rules=RULES) as running:
        yield running


def test_current(s):
    """The step that has begun is in every answer, before it is in the file and after."""
    expect(totals(s), {}, "before")
    decide(s)
    for step in ("10s", "30s", "5m", "1h"):
        expect(totals(s, step=step), WANTED, f"step {step}")
        expect(by_rule(s, *WANTED_RULES, step=step), WANTED_RULES, f"step {step}")
    expect(by_rule(s, "unknown", "login", "login"), {"unknown": (0, 0, 0), "login": (2, 3, 0)})
    until(lambda: stored(s, "SELECT sum(allowed) FROM all_10") == WANTED["allowed"], "the step is in the file")
    expect(totals(s), WANTED, "in the file")
    expect(by_rule(s, *WANTED_RULES), WANTED_RULES, "in the file")
    decide(s)
    expect(by_rule(s, "login")["login"], (2, 8, 0), "in the file, and not yet")


def test_throttle(s):
    with Wire(s) as wire:
        for _ in range(4):
            wire.ask("CL.THROTTLE", "key", "1", "2", "3600")
    expect(by_rule(s, "(cl.throttle)"), {"(cl.throttle)": (2, 2, 0)})
    expect(totals(s), {"allowed": 2, "refused": 2})


def test_restart(s):
    """A clean stop writes what it has; what a kill loses is the step that had begun."""
    decide(s)
    s.restart()
    expect(totals(s), WANTED, "after a stop")
    expect(by_rule(s, *WANTED_RULES), WANTED_RULES, "after a stop")
    decide(s)
    begun = totals(s)["allowed"]
    until(lambda: stored(s, "SELECT sum(allowed) FROM all_10") == begun, "the step is in the file")
    s.kill()
    s.start()
    expect(totals(s)["allowed"], begun, "after a kill")
    s.kill()
    s.start()
    expect(totals(s)["allowed"], begun, "after another one")


def test_null_where_it_did_not_run(s):
    found = counts(s, last="10m", step="10s")
    expect(found["all"]["allowed"][0], None, "before the start")
    expect(found["all"]["allowed"][-1], 0, "now")
    expect(found["all"]["store_up"][-1], None, "there is no store")
    since = datetime.datetime.fromisoformat(found["since"].replace("Z", "+00:00"))
    start = datetime.datetime.fromisoformat(found["start"].replace("Z", "+00:00"))
    first = next(i for i, value in enumerate(found["all"]["allowed"]) if value is not None)
    expect(start + datetime.timedelta(seconds=10 * first), since, "since")


@pytest.mark.parametrize(
    "last, step, most", [("10s", 10, 3), ("1h", 10, 362), ("1d", 300, 290), ("7d", 1800, 338), ("31d", 7200, 374)]
)
def test_default_step(calm, last, step, most):
    found = counts(calm, last=last)
    expect((found["step_s"], found["points"] <= most), (step, True), f"{found['points']} points")


def instant(seconds_ago):
    now = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=seconds_ago)
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_from_to(s):
    decide(s)
    expect(totals(s, **{"from": instant(60)}), WANTED, "until now")
    expect(totals(s, **{"from": instant(600), "to": instant(300)}), {}, "before")
    expect(totals(s, **{"from": instant(60), "to": instant(-600)}), WANTED, "beyond now")
    found = counts(s, **{"from": "2001-01-01T01:00:00+01:00", "to": "2001-01-01T00:09:59Z"})
    expect((found["start"], found["step_s"], found["points"]), ("2001-01-01T00:00:00Z", 300, 2))
    found = counts(s, **{"from": "1970-01-01T00:00:00Z", "to": "1970-01-01T00:00:00Z", "step": "10s"})
    expect((found["start"], found["points"]), ("1970-01-01T00:00:00Z", 1))


@pytest.mark.parametrize(
    "query, said",
    [
        ("last=9s", "`last` must be a length of time, 10s to 31d"),
        ("last=2678401s", "`last`"),
        ("last=-1", "`last`"),
        ("last=3600", "`last`"),
        ("last=60s&from=2027-01-01T00:00:00Z", "cannot be combined"),
        ("last=60s&to=2027-01-01T00:00:00Z", "cannot be combined"),
        ("to=2027-01-01T00:00:00Z", "needs `from`"),
        ("from=yesterday", "`from` must be an instant"),
        ("from=2027-02-30T00:00:00Z", "`from` must be an instant"),
        ("from=2000-01-01T00:00:00%2B01:00&to=1999-12-31T22:59:59Z", "later than"),
        ("from=9999-12-31T23:59:59Z", "must be an instant"),
        ("from=2100-01-01T00:00:00Z", "later than"),
        ("from=1970-01-01T00:00:00Z&step=5m", "at most 9000"),
        ("from=1970-01-01T00:00:00Z&to=2110-01-01T00:00:00Z&step=10s", "at most 9000"),
        ("step=15s", "multiple of 10s"),
        ("step=5s", "`step`"),
        ("step=0s", "`step`"),
        ("step=99999999999999999999s", "`step`"),
        ("last=1d&step=10s&rule=" + "&rule=".join(f"r{i}" for i in range(40)), "at most 5000"),
        ("&".join(f"rule=r{i}" for i in range(91)), "more than 90"),
        ("rule=", "id of a rule"),
        ("rule=a%00b", "id of a rule"),
        ("rule=" + "x" * 101, "id of a rule"),
        ("rules=x", "unknown parameter"),
    ],
)
def test_mistakes(calm, query, said):
    answer = calm.steer("GET", "/v1/counts?" + query)
    expect(answer.status, 400, answer.body.decode())
    has(answer.json()["error"], said)


def test_largest_questions(calm):
    """What is allowed is answered."""
    expect(counts(calm, last="1d", step="10s")["points"] in (8641, 8642), True)
    expect(counts(calm, last="31d", step="5m")["points"] in (8928, 8929), True)
    expect(len(counts(calm, rule=[f"r{i}" for i in range(90)], last="1d")["rules"]), 90)
    expect(counts(calm, rule="(other)")["rules"][0]["rule"], "(other)")
    expect(counts(calm, rule="x" * 100)["rules"][0]["rule"], "x" * 100)
    expect(counts(calm, rule="<img onerror=x>'; DROP TABLE names")["rules"][0]["rule"], "<img onerror=x>'; DROP TABLE names")
    bad = calm.steer("GET", "/v1/counts?rule=%ff").json()["rules"][0]["rule"]
    expect(bad, "\ufffd", "bytes that are not UTF-8")


def test_access(calm):
    expect(calm.ask(calm.admin, "GET", "/v1/counts").status, 401)
    expect(calm.steer("HEAD", "/v1/counts").status, 200)
    expect(calm.steer("POST", "/v1/counts", {}).status, 405)


def test_many_at_once(calm):
    """Questions beyond the bound are told to come back; all others are answered, and so is the next."""
    sockets = []
    line = f"GET /v1/counts?last=31d&step=5m HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {calm.token}\r\n\r\n"
    for _ in range(60):
        sockets.append(calm.socket(calm.admin))
        sockets[-1].sendall(line.encode())
    found = set()
    for one in sockets:
        found.add(one.recv(12))
        one.close()
    expect(found <= {b"HTTP/1.1 200", b"HTTP/1.1 503"}, True, found)
    expect(b"HTTP/1.1 200" in found, True, found)
    expect(calm.steer("GET", "/v1/counts").status, 200)


# ---- the store ----

SHARED = """
rules:
  - id: shared
    match: { event: shared }
    by: [key]
    counters: shared
    on_store_failure: allow
    limits: [ { name: h, algorithm: fixed_window, max: 3, per: 1h } ]
"""


def test_store_outage(store):
    """Decisions that the store did not make are errors, whatever the rule made of them."""
    with Checked("--counters", store.address, *PATIENT, rules=SHARED) as s:
        until(lambda: s.steer("GET", "/v1/status").json()["store"]["up"], "the store is there")
        until(lambda: s.check(event="shared", key="k").status == 429, "it counts")
        found = counts(s)["all"]
        expect((total(found["errors"]), found["store_up"][-1], total(found["refused"])), (0, 1, 1))
        store.kill()
        until(lambda: s.check(event="shared", key="k").status == 200 and counts(s)["all"]["store_up"][-1] == 0, "it is gone")
        found = counts(s)["all"]
        asked, store_counts = total(found["errors"]), s.steer("GET", "/v1/status").json()["store"]
        expect(asked > 0, True, found["errors"])
        expect(asked, store_counts["late"] + store_counts["failed"] + store_counts["unsent"], store_counts)


# ---- many rules ----


def test_many_rules():
    """The busiest of a step have a row of their own, and nothing is lost."""
    ids = [f"rule-{i:05}" for i in range(10000)]
    rules = "rules:\n" + "".join(
        f'  - {{ id: {rule}, match: {{ event: {rule} }}, by: [key], limits: [ "1000 per 1h" ] }}\n' for rule in ids
    )
    with Checked(rules=rules) as s:
        requests = [{"event": rule, "key": "k"} for rule in ids] + [{"event": rule, "key": "k"} for rule in ids[-300:]] * 2
        for at in range(0, len(requests), 1000):
            body = json.dumps(requests[at : at + 1000])
            expect(s.ask(s.http, "POST", "/v1/check", body, {"Content-Type": "application/json"}).status, 200)
        expect(totals(s), {"allowed": len(requests)})
        until(lambda: stored(s, "SELECT sum(allowed) FROM all_10") == len(requests), "all is in the file")
        expect(stored(s, "SELECT sum(passed) FROM rules_10"), len(requests), "by rule")
        expect(stored(s, "SELECT sum(passed) FROM rules_300"), len(requests), "by rule")
        most = stored(s, "SELECT max(n) FROM (SELECT count(*) AS n FROM rules_10 WHERE rule <> 0 GROUP BY at_s)")
        expect(most <= 250, True, most)
        for step in ("10s", "5m"):
            others, unknown = (one["passed"] for one in counts(s, rule=["(other)", "unknown"], last="5m", step=step)["rules"])
            expect(total(others) > 0, True, "there are others")
            expect(unknown, [0 if other == 0 else None for other in others], f"not known just where there are others, by {step}")
        page = by_rule(s, *ids[-50:], last="1d")
        expect(len(page), 50)
