"""Random rules and traffic on a virtual clock: every verdict of `weir simulate` against the model.

A file holds many scenarios, one after the other, each with rules, an event and a clock of its own."""

import json
import random

import pytest

import support
from e2e import model, model_calendar
from support import number

SEED = number("TEST_SEED", 20260302)
FILES = number("TEST_COUNT", 30)
SCENARIOS = 40

# Lengths that divide a week, for which a bucket is exact at whole milliseconds.
EXACT = [
    "1ms",
    "2ms",
    "5ms",
    "40ms",
    "250ms",
    "500ms",
    "1s",
    "2s",
    "3s",
    "7s",
    "10s",
    "12s",
    "30s",
    "60s",
    "1m",
    "5m",
    "84m",
    "15m",
    "1h",
    "90m",
    "6h",
    "1d",
    "24h",
    "7d",
    "56h",
]
ANY = EXACT + ["3ms", "11s", "13m", "1001ms", "36h", "30d", "365d", "3650d", "4294967ms"]
ZONES = [
    "UTC",
    "Asia/Shanghai",
    "Europe/Berlin",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "America/St_Johns",
    "America/New_York",
    "Africa/Cairo",
    "Asia/Gaza",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Antarctica/Troll",
    "Asia/Tehran",
    "America/Havana",
    "Pacific/Chatham",
    "Africa/Monrovia",
]
MAXIMA = [0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 10, 33, 1000, 4294967295]
# Fixed and calendar windows count further. (So do buckets, which round then: test_random_buckets.py.)
UNITS = ["tokens", "bytes.in", "requests"]
LARGE = [2**31, 2**32, 2**32 + 1, 10**13, 2**53 - 1]
WINDOWS = ["fixed_window", "sliding_window", "calendar"]
ALGORITHMS = ["token_bucket", "token_bucket"] + WINDOWS
NOMINAL = {"minute": 60, "hour": 3600, "day": 86400, "week": 604800, "month": 2629800, "year": 31557600}


# ---- rules ----


def most_overdrawn(limit):
    """The largest `max` of a limit with overdraft."""
    return 2**31 - 1 if limit.get("algorithm") == "sliding_window" else 2**52 - 1


class Dice(random.Random):
    """Large amounts and units come from dice of their own: all else is the same with and without them."""

    def __init__(self, seed):
        super().__init__(seed)
        self.large = random.Random(f"large {seed}")
        self.over = random.Random(f"over {seed}")

    def maximum(self, doc):
        usual = self.choice(MAXIMA if "burst" not in doc else MAXIMA[1:])
        counts = "calendar" in doc or doc.get("algorithm") == "fixed_window" or doc.get("per") in NOMINAL
        return self.large.choice(LARGE) if counts and self.large.random() < 0.25 else usual

    def overdrawn(self, limit):
        """The limit, with overdraft now and then. (Buckets round if they owe as much as these requests cost: tests/limit has them.)"""
        window = isinstance(limit, dict) and ("calendar" in limit or limit.get("algorithm") in WINDOWS or limit.get("per") in NOMINAL)
        fits = window and limit["max"] <= most_overdrawn(limit)
        return {**limit, "overdraft": True} if fits and self.over.random() < 0.3 else limit

    def in_unit(self, limit):
        """The limit, in some unit."""
        unit = self.large.choice(UNITS)
        if self.large.random() < 0.5:
            return limit
        return limit.replace(" per ", f" {unit} per ", 1) if isinstance(limit, str) else {**limit, "unit": unit}

    def costs(self):
        """The costs of a request, in several units."""
        units = [unit for unit in UNITS if self.large.random() < 0.6]
        return {unit: self.large.choice([0, 1, 1, 2, 3, 20, 2**32]) for unit in units}

    def cost(self):
        usual = self.choice([0, 1, 1, 2, 3, 5, 20, 4294967295])
        return self.large.choice(LARGE) // self.large.choice([1, 3]) if self.large.random() < 0.2 else usual


def limit_numbers(rng, algorithm):
    if algorithm == "calendar":
        doc = {"calendar": rng.choice(model.CALENDAR)}
        if rng.large.random() < 0.3:
            doc["calendar"] = rng.large.choice(["1s", "90s", "10m", "1d", "7d", "30d", "365d"])
            return {**doc, "max": rng.maximum(doc)}
        doc["max"] = rng.maximum(doc)
        if rng.random() < 0.8:
            doc["tz"] = rng.choice(ZONES)
        if doc["calendar"] == "week" and rng.random() < 0.7:
            doc["week_start"] = rng.choice(model_calendar.DAYS)
        return doc
    doc = {"max": rng.maximum({"algorithm": algorithm}), "per": rng.choice(EXACT if algorithm == "token_bucket" else ANY)}
    if algorithm != "token_bucket" or rng.random() < 0.3:
        doc["algorithm"] = algorithm
    if algorithm == "token_bucket" and doc["max"] and rng.random() < 0.4:
        doc["burst"] = rng.choice(MAXIMA[1:])
    return doc


def shorten(rng, doc):
    """The short form where there is one."""
    if set(doc) == {"calendar", "max"} and doc["calendar"] in model.CALENDAR:
        return rng.choice([f"{doc['max']} per {doc['calendar']}", {"max": doc["max"], "per": doc["calendar"]}, doc])
    if set(doc) == {"max", "per"}:
        return rng.choice([f"{doc['max']} per {doc['per']}", doc])
    if set(doc) == {"max", "per", "burst"}:
        return rng.choice([f"{doc['max']} per {doc['per']} burst {doc['burst']}", doc])
    return doc


def random_limits(rng, algorithms):
    result = []
    for number in range(rng.choice([1, 1, 1, 2, 2, 3])):
        doc = limit_numbers(rng, rng.choice(algorithms))
        if rng.random() < 0.6:
            result.append({"name": f"n{number}", **doc})
        else:
            result.append(shorten(rng, doc))
    return result


def random_rule(rng, event, number, around, algorithms):
    doc = {"id": f"{event}-{number}", "match": {"event": event}, "limits": random_limits(rng, algorithms)}
    by = rng.choice([None, [], ["key"], ["key"], "key", ["key", "user"], ["user", "event"]])
    if by is not None:
        doc["by"] = by
    mode = rng.choice([None, None, None, "enforce", "shadow", "shadow", "off"])
    if mode:
        doc["mode"] = mode
    if rng.random() < 0.1:
        doc["expires"] = (around + rng.randrange(-(10**6), 10**9)) // 10**6
    if rng.random() < 0.1:
        doc["except"] = {"user": rng.choice([["a"], "u2", ["x", "a"]])}
    return doc


def change_limit(rng, doc, algorithms):
    if isinstance(doc, str):
        return doc
    doc = dict(doc)
    what = rng.choice(["max", "max", "burst", "per", "algorithm", "calendar"])
    if what == "max":
        doc["max"] = rng.maximum(doc)
        if doc["max"] > most_overdrawn(doc):
            doc.pop("overdraft", None)
    elif what == "algorithm" and "name" in doc:
        doc = {"name": doc["name"], **limit_numbers(rng, rng.choice(algorithms))}
    elif what == "calendar" and "calendar" in doc and "name" in doc:
        doc = {**limit_numbers(rng, "calendar"), "name": doc["name"]}
    elif what == "per" and doc.get("per") in ANY:
        doc["per"] = rng.choice(EXACT if doc.get("algorithm", "token_bucket") == "token_bucket" else ANY)
    elif (
        what == "burst" and doc.get("per") in ANY and doc.get("algorithm", "token_bucket") == "token_bucket" and doc["max"]
    ):
        doc["burst"] = rng.choice(MAXIMA[1:])
    return doc


def change_rule(rng, doc, algorithms):
    doc = dict(doc)
    if rng.random() < 0.8:
        doc["limits"] = [change_limit(rng, limit, algorithms) for limit in doc["limits"]]
    if rng.random() < 0.15:
        doc["by"] = rng.choice([[], ["key"], ["user"]])
    if rng.random() < 0.2:
        doc["mode"] = rng.choice(["enforce", "shadow", "off"])
    return doc


# ---- traffic ----


def lengths_of(rules):
    for rule in rules:
        for limit in rule["limits"]:
            doc = model.long_form(limit)
            unit = doc.get("calendar", doc.get("per"))
            yield NOMINAL[unit] * 10**6 if unit in NOMINAL else model.length(unit)


def step(rng, lengths, grain):
    """Mostly a little ahead; sometimes nothing, far, or back."""
    length = rng.choice(lengths)
    kind = rng.random()
    if kind < 0.25:
        return 0
    if kind < 0.6:
        move = rng.randrange(max(1, length // 4))
    elif kind < 0.8:
        move = rng.choice([length, length // 2, length // 3, length - grain, length + grain, 2 * length])
    elif kind < 0.86:
        move = rng.randrange(3 * length)
    elif kind < 0.9:
        move = rng.randrange(100 * length)
    elif kind < 0.96:
        move = -rng.randrange(max(1, length))
    else:
        move = -rng.randrange(10 * length)
    return move // grain * grain


def jump(rng, lengths, grain):
    """Every other time by some periods, back or forth."""
    if rng.random() < 0.5:
        return step(rng, lengths, grain)
    length = rng.choice(lengths)
    move = rng.choice([-1, 1]) * rng.choice([12, 19, 20, 30, 50, 80, 200, 400, 1000]) * length // 10
    return (move + rng.choice([0, 0, rng.randrange(length)])) // grain * grain


class Scenario:
    requests, step = 25, staticmethod(step)

    def __init__(self, rng, event):
        self.rng, self.event = rng, event
        self.now = rng.randrange(10**15, 4 * 10**15)
        # A bucket is exact at whole milliseconds, windows at any microsecond.
        self.algorithms, self.grain = rng.choice([(ALGORITHMS, 1000), (ALGORITHMS, 1000), (WINDOWS, 1)])
        self.now = self.now // self.grain * self.grain
        self.rules = [
            random_rule(rng, event, number, self.now, self.algorithms) for number in range(rng.choice([1, 1, 2, 2, 3]))
        ]
        self.rules = [{**rule, "limits": [rng.overdrawn(limit) for limit in rule["limits"]]} for rule in self.rules]
        self.lengths = list(lengths_of(self.rules))
        # The clock only goes forward there: the model does not know a clock that is wrong again and again.
        self.units = rng.large.random() < 0.3
        if self.units:
            self.rules = [{**rule, "limits": [rng.in_unit(limit) for limit in rule["limits"]]} for rule in self.rules]

    def request(self):
        rng = self.rng
        self.now = min(max(0, self.now + self.step(rng, self.lengths, self.grain)), model_calendar.LAST // self.grain * self.grain)
        doc = {
            "t": model_calendar.time_of(rng, self.now),
            "event": self.event,
            "key": rng.choice("aab"),
            "user": rng.choice(["a", "u2", ""]),
        }
        if rng.random() < 0.4:
            doc["cost"] = rng.cost()
        if self.units and rng.large.random() < 0.6:
            doc.pop("cost", None)
            doc["costs"] = rng.costs()
        if rng.random() < 0.1:
            doc["peek"] = True
        return doc, self.now

    def change(self):
        rng = self.rng
        self.rules = [change_rule(rng, rule, self.algorithms) if rng.random() < 0.7 else rule for rule in self.rules]
        if rng.random() < 0.2:
            rng.shuffle(self.rules)
        self.lengths += lengths_of(self.rules)


class RestlessScenario(Scenario):
    """So long, and with so many steps of the clock, that callers are stale again and again."""

    requests, step = 60, staticmethod(jump)


def bounded(verdict):
    """The command counts to 2^52 microseconds, 142 years, and may say that for longer times."""
    return {
        name: min(value, 2**52 // 1000) if name.endswith("_ms") and value is not None else value
        for name, value in verdict.items()
    }


def follow(worlds, line, now, verdict):
    """The models that agree with the verdict, after it, and what one of those before it would have said."""
    after = [world.copy() for world in worlds]
    said = [bounded(world.decide(line, now)) for world in after]
    agree = [world for world, wanted in zip(after, said) if wanted == verdict]
    if not agree:
        others = [other for world, tried in zip(worlds, after) for other in world.without_decayed(tried.touched)]
        agree = [other for other in others if bounded(other.decide(line, now)) == verdict]
    return agree, said[0]


def traffic(rng, scenarios):
    """Lines of a file, each with its instant."""
    for scenario in scenarios:
        for _ in range(scenario.requests):
            if rng.random() < 0.04:
                scenario.change()
                rules = [rule for each in scenarios for rule in each.rules]
                yield {"t": model_calendar.time_of(rng, scenario.now), "set_rules": rules}, scenario.now
            yield scenario.request()


def history(doc, lines, found, event):
    """What happened to one scenario, for a person to read."""
    yield "rules " + json.dumps(last := [rule for rule in doc["rules"] if rule["match"]["event"] == event])
    verdicts = iter(found)
    for line, now in lines:
        if "set_rules" in line:
            rules = [rule for rule in line["set_rules"] if rule["match"]["event"] == event]
            if rules != last:
                yield "rules " + json.dumps(last := rules)
            continue
        verdict = next(verdicts)
        if line["event"] == event:
            yield f"{json.dumps(line)} at {now}: {json.dumps(verdict)}"


def compare(seed, kind):
    rng = Dice(seed)
    scenarios = [kind(rng, f"e{number}") for number in range(SCENARIOS)]
    doc = {"rules": [rule for scenario in scenarios for rule in scenario.rules]}
    text = json.dumps(doc) if rng.random() < 0.3 else support.to_yaml(doc, rng)
    lines = list(traffic(rng, scenarios))
    found = support.simulate(text, [line for line, _ in lines])
    support.expect(len(found), sum("event" in line for line, _ in lines), f"seed {seed}: verdicts")
    worlds, number = [model.Model(doc)], 0
    for place, (line, now) in enumerate(lines):
        if "set_rules" in line:
            for world in worlds:
                world.set_rules(line["set_rules"])
            continue
        worlds, wanted = follow(worlds, line, now, bounded(found[number]))
        number += 1
        if not worlds:
            past = "\n".join(history(doc, lines[: place + 1], found, line["event"]))
            raise AssertionError(f"seed {seed}: weir and the model differ\n{past}\nmodel: {json.dumps(wanted)}")


@pytest.mark.parametrize("seed", range(SEED, SEED + FILES))
def test_random_limits(seed):
    compare(seed, Scenario)


@pytest.mark.parametrize("seed", range(SEED, SEED + -(-FILES // 5)))
def test_restless_clocks(seed):
    compare(seed, RestlessScenario)
