"""Random plans and overrides, which change while counts go on: every verdict of `weir simulate` against the model.

Rules and traffic are those of test_random_limits.py; some rules have plans, some subjects overrides."""

import json

import pytest

import support
from e2e import model, model_calendar
from e2e import test_random_limits as plain
from support import number

SEED = number("TEST_SEED", 20261116)
FILES = number("TEST_COUNT", 20)
SCENARIOS, REQUESTS = 20, 40
PLANS = ["free", "Free", "pro", "a", "u2"]
SUBJECTS = {"key": ["a", "b", "c"], "user": ["a", "u2"]}


def random_plans(rng, rule, algorithms):
    rule["plan"] = rng.choice(["header:X-Plan", "header:x-plan", "user", "key"])
    fold = rng.random() < 0.3
    names = rng.sample(PLANS, rng.choice([1, 2, 3]))
    rule["ignore_case"] = fold
    rule["plans"] = {
        name: plain.random_limits(rng, algorithms) for name in dict((n.lower() if fold else n, n) for n in names).values()
    }
    if rng.random() < 0.3:
        del rule["limits"]


def limits_of(doc):
    yield from doc.get("limits", [])
    for plan in doc.get("plans", {}).values():
        yield from plan


def random_override(rng, rule, around, algorithms):
    names = model.by_names(rule["by"])
    doc = {
        "rule": rule["id"],
        "by": {name: rng.choice(SUBJECTS.get(name, [rule["match"]["event"]])) for name in rng.sample(names, len(names))},
    }
    kind = rng.choice(["limits", "limits", "limits", "deny", "unlimited"])
    doc[kind] = plain.random_limits(rng, algorithms) if kind == "limits" else True
    if rng.random() < 0.4:
        doc["expires"] = (around + rng.randrange(-(10**6), 10**10)) // 10**6
    if rng.random() < 0.3:
        doc["why"] = "a test"
    return doc


class Scenario(plain.Scenario):
    def __init__(self, rng, event):
        super().__init__(rng, event)
        for rule in self.rules:
            if rng.random() < 0.6:
                random_plans(rng, rule, self.algorithms)
        self.overrides = []
        self.change_overrides()

    def change_overrides(self):
        """If a file has two overrides for one subject, the first stands, so there is one."""
        found = {}
        for doc in self.overrides:
            if self.rng.random() < 0.7:
                found[doc["rule"], json.dumps(doc["by"], sort_keys=True)] = doc
        for rule in self.rules:
            for _ in range(self.rng.choice([0, 0, 1, 2]) if rule.get("by") else 0):
                doc = random_override(self.rng, rule, self.now, self.algorithms)
                found[doc["rule"], json.dumps(doc["by"], sort_keys=True)] = doc
        # A rule may count by something else by now.
        by = {rule["id"]: sorted(model.by_names(rule.get("by", []))) for rule in self.rules}
        self.overrides = [doc for doc in found.values() if sorted(doc["by"]) == by[doc["rule"]]]
        docs = [limit for each in self.rules + self.overrides for limit in limits_of(each)]
        self.lengths = list(plain.lengths_of([{"limits": docs}])) or [10**6]

    def change(self):
        rng = self.rng
        for place, rule in enumerate(self.rules):
            if rng.random() < 0.5:
                continue
            changed = plain.change_rule(rng, {"limits": [], **rule}, self.algorithms)
            if not changed["limits"]:
                del changed["limits"]
            if "plans" in rule:
                changed["plans"] = {
                    name: [plain.change_limit(rng, limit, self.algorithms) for limit in limits]
                    for name, limits in rule["plans"].items()
                }
            self.rules[place] = changed
        self.change_overrides()

    def request(self):
        doc, _ = super().request()
        plan = self.rng.choice(["free", "free", "pro", "Pro", "gold", None])
        if plan:
            doc["headers"] = {self.rng.choice(["X-Plan", "x-plan"]): plan}
        return doc, self.now


def document(scenarios):
    return {
        "rules": [rule for each in scenarios for rule in each.rules],
        "overrides": [override for each in scenarios for override in each.overrides],
    }


def traffic(rng, scenarios):
    for scenario in scenarios:
        for _ in range(REQUESTS):
            if rng.random() < 0.1:
                scenario.change()
                yield {"t": model_calendar.time_of(rng, scenario.now), "set_rules": document(scenarios)}, scenario.now
            yield scenario.request()


def history(doc, lines, found, event):
    """What happened to one scenario, for a person to read."""
    verdicts = iter(found)
    for line, now in [({"set_rules": doc}, 0), *lines]:
        if "set_rules" in line:
            yield "rules " + json.dumps(
                {
                    name: [each for each in line["set_rules"][name] if each.get("id", each.get("rule")).startswith(event + "-")]
                    for name in ("rules", "overrides")
                }
            )
            continue
        verdict = next(verdicts)
        if line["event"] == event:
            yield f"{json.dumps(line)} at {now}: {json.dumps(verdict)}"


@pytest.mark.parametrize("seed", range(SEED, SEED + FILES))
def test_random_plans(seed):
    rng = plain.Dice(seed)
    scenarios = [Scenario(rng, f"e{number}") for number in range(SCENARIOS)]
    doc = document(scenarios)
    text = json.dumps(doc) if rng.random() < 0.3 else support.to_yaml(doc, rng)
    doc = json.loads(json.dumps(doc))  # scenarios change their rules
    lines = [(json.loads(json.dumps(line)), now) for line, now in traffic(rng, scenarios)]
    found = support.simulate(text, [line for line, _ in lines])
    support.expect(len(found), sum("event" in line for line, _ in lines), f"seed {seed}: verdicts")
    worlds, number = [model.Model(doc)], 0
    for place, (line, now) in enumerate(lines):
        if "set_rules" in line:
            for world in worlds:
                world.set_rules(line["set_rules"])
            continue
        worlds, wanted = plain.follow(worlds, line, now, plain.bounded(found[number]))
        number += 1
        if not worlds:
            past = "\n".join(history(doc, lines[: place + 1], found, line["event"]))
            raise AssertionError(f"seed {seed}: weir and the model differ\n{past}\nmodel: {json.dumps(wanted)}")
