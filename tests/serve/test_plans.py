"""Plans and overrides in a running service: exact and leased rules in a real redis-server, rules that change meanwhile, an
outage, what explain says."""

import contextlib
import json
import random
import signal
import threading

import pytest

from e2e import model
from support import expect, number, until
from support.contract import Checked
from support.service import Service
from support.store import PATIENT, Store

SEED = number("TEST_SEED", 20261116)
ROUNDS = number("TEST_COUNT", 6)
KEYS = ["a", "b", "c", "d"]
FLAGS = ["--store-deadline", "10s", "--threads", "2"]
WINDOWS = ["fixed_window", "sliding_window", "calendar"]


# ---- rules that change ----


def window(rng, name, algorithm, most):
    doc = {"name": name, "max": rng.randrange(most)}
    return doc | ({"calendar": "year"} if algorithm == "calendar" else {"algorithm": algorithm, "per": "3000d"})


def random_limits(rng, algorithms):
    return [window(rng, f"n{i}", rng.choice(algorithms), 30) for i in range(rng.choice([1, 1, 2]))]


def random_rules(rng, more, algorithms):
    rule = {"id": "api", "match": {"event": "api"}, "by": ["key"], "limits": random_limits(rng, algorithms), **more}
    if rng.random() < 0.8:
        rule |= {"plan": "header:X-Plan", "plans": {name: random_limits(rng, algorithms) for name in ("free", "pro")}}
    overrides = []
    for key in KEYS:
        kind = rng.choice([None, None, "limits", "limits", "deny", "unlimited"])
        if kind:
            what = random_limits(rng, algorithms) if kind == "limits" else True
            overrides.append({"rule": "api", "by": {"key": key}, kind: what})
    return {"rules": [rule], "overrides": overrides}


def put_in_force(services, doc, version):
    """Waits until all of them have the new rules: a rule of this host says which they have."""
    marked = {"id": "version", "match": {"event": "version"}, "counters": "local", "limits": [f"{version} per 1d"]}
    text = json.dumps({**doc, "rules": doc["rules"] + [marked]})
    for service in services:
        service.write_rules(text)
        service.process.send_signal(signal.SIGHUP)
        until(lambda s=service: s.check(event="version", peek=True).json()["max"] == version, "the new rules are in force")


@contextlib.contextmanager
def nodes(count, *flags, kind=Service):
    with Store() as store, contextlib.ExitStack() as stack:
        first = '{"rules": [{"id": "version", "match": {"event": "version"}, "counters": "local", "limits": ["1 per 1d"]}]}'
        made = [stack.enter_context(kind("--counters", store.address, *FLAGS, *flags, rules=first)) for _ in range(count)]
        for service in made:
            until(lambda s=service: s.steer("GET", "/v1/status").json()["store"]["up"], "the store is reached")
        yield store, made


def request_of(rng):
    doc = {"event": "api", "key": rng.choice(KEYS), "cost": rng.choice([0, 1, 1, 1, 2, 3])}
    plan = rng.choice(["free", "pro", "gold", None])
    return doc | ({"headers": {"X-Plan": plan}} if plan else {})


FIELDS = ("allowed", "rule", "limit", "max", "remaining")


def test_exact_verdict_by_verdict():
    """Two hosts and one model. The windows are so long that how much time passes does not matter, only that it does: of two
    limits that refuse, the verdict names the one whose window ends last."""
    rng = random.Random(SEED)
    now = model.instant("2026-06-01T00:00:00Z")
    with nodes(2) as (_, services):
        world = model.Model({"rules": []})
        for version in range(2, 2 + 3 * ROUNDS):
            doc = random_rules(rng, {}, WINDOWS)
            put_in_force(services, doc, version)
            world.set_rules(doc)
            for _ in range(60):
                service, request, now = rng.choice(services), request_of(rng), now + 10**6
                found, wanted = service.check(**request).json(), world.decide(request, now)
                expect(
                    {name: found[name] for name in FIELDS},
                    {name: wanted[name] for name in FIELDS},
                    f"seed {SEED}, rules {json.dumps(doc)}, request {json.dumps(request)}",
                )


# ---- leased ----


def day(most):
    return [{"name": "day", "algorithm": "fixed_window", "max": most, "per": "3000d"}]


def spend(service, key, plan, most):
    """How many of `most` requests pass."""
    headers = {"headers": {"X-Plan": plan}} if plan else {}
    return sum(service.check(event="api", key=key, **headers).json()["allowed"] for _ in range(most))


def test_leased_plans_share_what_was_used():
    """What was lent under one plan is not spent under another, so the smaller `max` holds from the first request on. What
    is lent and not spent returns after its ttl, and then the larger one has room for all of it."""
    rule = {
        "id": "api",
        "match": {"event": "api"},
        "by": ["key"],
        "lease": {"slice": "50%", "ttl": "200ms"},
        "plan": "header:X-Plan",
        "plans": {"free": day(10), "pro": day(40)},
        "limits": day(20),
    }
    with nodes(2) as (_, (one, two)):
        put_in_force([one, two], {"rules": [rule]}, 2)
        passed = []

        def ask(plan, most):
            passed.append(spend(one, "k", plan, most) + spend(two, "k", plan, most))
            return sum(passed)

        expect(ask("pro", 3), 6, "of pro")
        # The hosts hold tokens of pro, which are nobody's else: at most 4 more pass as free, wherever one asks.
        expect(ask("free", 20) <= 10, True, "free, at once")
        for plan, most in (("free", 10), (None, 20), ("pro", 40)):
            until(lambda p=plan, m=most: ask(p, 3) >= m, f"plan {plan} is used up")
            expect(sum(passed), most, f"plan {plan}")
        expect(ask("pro", 5) + ask("free", 5) + ask(None, 5), 3 * 40, "nothing is left")
        put_in_force([one, two], {"rules": [rule], "overrides": [{"rule": "api", "by": {"key": "k"}, "limits": day(45)}]}, 3)
        until(lambda: ask("free", 3) >= 45, "the override is used up")
        expect(sum(passed), 45, "the override")


def explained(service, key, plan=None):
    header = f"&header=X-Plan:{plan}" if plan else ""
    return service.steer("GET", f"/v1/explain?event=api&key={key}{header}").json()["rules"][0]


# ---- an outage ----


def test_a_denial_needs_no_store():
    limits = day(100)
    rules = [
        {"id": "api", "match": {"event": "api"}, "by": ["key"], "limits": limits, "on_store_failure": "allow"},
        {"id": "leased", "match": {"event": "leased"}, "by": ["key"], "limits": limits, "lease": True},
    ]
    overrides = [{"rule": rule, "by": {"key": "bad"}, "deny": True} for rule in ("api", "leased")]
    overrides += [{"rule": rule, "by": {"key": "friend"}, "unlimited": True} for rule in ("api", "leased")]
    overrides += [{"rule": rule, "by": {"key": "few"}, "limits": day(2)} for rule in ("api", "leased")]
    with nodes(1) as (store, [service]):
        put_in_force([service], {"rules": rules, "overrides": overrides}, 2)
        for up in (True, False):
            if not up:
                store.kill()
                until(lambda: not service.steer("GET", "/v1/status").json()["store"]["up"], "the store is gone")
            for event in ("api", "leased"):
                found = service.check(event=event, key="bad").json()
                expect([found[name] for name in FIELDS], [False, event, "deny", 0, 0])
                expect((found["retry_after_ms"], found["reset_ms"]), (-1, 0))
                expect(service.check(event=event, key="friend").json()["rule"], None)
        # The stand-in counts with the numbers of the override.
        expect(sum(service.check(event="leased", key="few").json()["allowed"] for _ in range(9)), 2, "the stand-in")


# ---- explain and changes ----

CUSTOMERS = {
    "rules": [
        {
            "id": "api",
            "match": {"event": "api"},
            "by": ["key"],
            "plan": "header:X-Plan",
            "plans": {"free": day(3), "pro": day(9)},
            "limits": day(5),
        }
    ],
    "overrides": [
        {"rule": "api", "by": {"key": "k"}, "limits": day(7), "expires": "2999-01-01T00:00:00Z", "why": "migration"},
        {"rule": "api", "by": {"key": "bad"}, "deny": True},
        {"rule": "api", "by": {"key": "old"}, "unlimited": True, "expires": "2020-01-01T00:00:00Z"},
    ],
}


def test_explain():
    """Checked holds the answers against openapi.json."""
    with Checked(rules=json.dumps(CUSTOMERS)) as s:
        free, own, k, bad, old = (
            explained(s, key, plan) for key, plan in (("x", "free"), ("x", None), ("k", "free"), ("bad", None), ("old", None))
        )
        expect([free["plan"], free["override"], free["limits"][0]["max"]], ["free", None, 3])
        expect([own["plan"], own["override"], own["limits"][0]["max"]], [None, None, 5])
        expect(k["override"], {"kind": "limits", "expires": "2999-01-01T00:00:00Z", "why": "migration"})
        expect([k["plan"], k["limits"][0]["max"]], [None, 7])
        expect(bad["override"], {"kind": "deny", "expires": None, "why": None})
        expect([limit["name"] for limit in bad["limits"]], ["deny"])
        expect([old["override"], old["limits"][0]["max"]], [None, 5], "one that has expired is not there")


def test_a_bad_version_leaves_the_last_good_one():
    with Service(rules=json.dumps(CUSTOMERS)) as s:
        broken = json.loads(json.dumps(CUSTOMERS))
        broken["overrides"][0]["limits"] = ["7 per"]
        s.write_rules(json.dumps(broken))
        found = until(lambda: s.steer("GET", "/v1/status").json()["rules"]["problems"], "the problem")
        expect(found[0]["text"].startswith("override of rule api for k: limits"), True, str(found))
        expect(explained(s, "k")["limits"][0]["max"], 7, "its last good version")
        broken["rules"][0]["limits"] = ["x"]
        broken["overrides"] = []
        s.write_rules(json.dumps(broken))
        until(lambda: s.steer("GET", "/v1/status").json()["rules"]["problems"][0].get("rule") == "api", "the bad rule")
        expect(explained(s, "k")["limits"][0]["max"], 7, "of a bad rule the overrides stay")


def test_rules_change_while_threads_decide():
    """Under TSan, too. Nobody gets more than any of the versions allows."""
    versions = [
        {**CUSTOMERS, "overrides": [{"rule": "api", "by": {"key": f"k{i}"}, "limits": day(2 + i)} for i in range(n)]}
        for n in (0, 1, 3)
    ]
    with Service("--threads", "2", rules=json.dumps(versions[0])) as s:
        passed = {f"k{i}": 0 for i in range(4)}
        done = threading.Event()

        def ask(key):
            while not done.is_set():
                body = json.dumps([{"event": "api", "key": key, "headers": {"X-Plan": "free"}}] * 20)
                answers = s.ask(s.http, "POST", "/v1/check", body, {"Content-Type": "application/json"}).json()
                passed[key] += sum(answer["allowed"] for answer in answers)

        threads = [threading.Thread(target=ask, args=[key]) for key in passed]
        for thread in threads:
            thread.start()
        for version in range(2, 14):
            put_in_force([s], versions[version % 3], version)
        put_in_force([s], versions[2], 14)
        done.set()
        for thread in threads:
            thread.join()
        expect(passed, {"k0": 3, "k1": 3, "k2": 4, "k3": 3}, "what passed")


# ---- a plan that the path chooses ----

BY_PATH = """
rules:
  - id: api
    by: [key]
    plan: path
    plans: { "/a/b": [ { name: n, algorithm: fixed_window, max: 100, per: 1h } ] }
    limits: [ { name: n, algorithm: fixed_window, max: 14, per: 1h } ]
"""


@pytest.mark.parametrize("stored", [False, True])
def test_plan_of_several_readings(stored):
    """A path with two readings is charged for the plans of both, and a refund gives back no more than that."""
    with contextlib.ExitStack() as stack:
        flags = ["--counters", stack.enter_context(Store()).address, *PATIENT] if stored else []
        s = stack.enter_context(Service(*flags, rules=BY_PATH))

        def used():
            return s.steer("GET", "/v1/explain?path=/a/b&key=k&cost=0").json()["rules"][0]["limits"][0]["used"]

        request = {"path": "/a%2Fb", "key": "k"}
        for _ in range(10):
            expect(s.check(path="/a/b", key="k").json()["allowed"], True)
        receipts = [s.check(**request, refundable=True).json().get("receipt") for _ in range(3)]
        expect([receipt is not None for receipt in receipts], [True, True, False], "10, 12 and 14 of 14 are used")
        expect(used(), 14)
        for receipt in receipts[:2]:
            s.ask(s.http, "POST", "/v1/refund", json.dumps({**request, "receipt": receipt}), {"Content-Type": "application/json"})
        until(lambda: used() == 10, f"what others were charged stays: {used()}")
