"""An independent model of `weir`, written from the specification and not from the sources: slow, exact, one request at a
time. The random tests compare every verdict of the command with it."""

import copy
import datetime
import math
import re

from e2e import model_clock, model_limits, model_match

UNITS = {"ms": 1000, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}
REQUESTS = "requests"
SHADOW_MAX = 16  # so many are listed
CALENDAR = ("minute", "hour", "day", "week", "month", "year")
KINDS = {
    "token_bucket": model_limits.TokenBucket,
    "fixed_window": model_limits.FixedWindow,
    "sliding_window": model_limits.SlidingWindow,
}


def length(text):
    found = re.fullmatch("([0-9]+)(ms|s|m|h|d)", text)
    return int(found[1]) * UNITS[found[2]]


def short_length(micros):
    unit = next(unit for unit in reversed(UNITS) if micros % UNITS[unit] == 0)
    return f"{micros // UNITS[unit]}{unit}"


def instant(value):
    """Microseconds of an RFC 3339 string."""
    moment = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
    delta = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return (delta.days * 86400 + delta.seconds) * 10**6 + delta.microseconds


def long_form(doc):
    if isinstance(doc, dict):
        return dict(doc)
    found = re.fullmatch(r"([0-9]+)(?: ([A-Za-z_.-][\w.-]*))? per (\w+)(?: burst ([0-9]+))?", doc)
    result = {"max": int(found[1]), "per": found[3]}
    if found[2]:
        result["unit"] = found[2]
    if found[4]:
        result["burst"] = int(found[4])
    return result


def read_limit(doc, taken):
    doc = long_form(doc)
    if doc.get("per") in CALENDAR and "algorithm" not in doc:
        doc["calendar"] = doc.pop("per")
    algorithm = doc.get("algorithm", "token_bucket")
    default = doc.get("calendar", algorithm)
    if "calendar" in doc and doc["calendar"] not in CALENDAR:
        default = short_length(length(doc["calendar"]))
    name, number = doc.get("name", default), 1
    while name in taken and "name" not in doc:
        number += 1
        name = f"{default}-{number}"
    if "calendar" in doc:
        unit = doc["calendar"] if doc["calendar"] in CALENDAR else length(doc["calendar"])
        return model_limits.Calendar(
            name, doc["max"], unit, doc.get("tz", "UTC"), doc.get("week_start", "monday")
        )
    burst = {"burst": doc["burst"]} if "burst" in doc else {}
    return KINDS[algorithm](name, doc["max"], length(doc["per"]), **burst)


def read_limits(docs):
    docs = model_match.as_list(docs)
    taken = {d["name"] for d in docs if isinstance(d, dict) and "name" in d}
    limits = []
    for doc in docs:
        limits.append(read_limit(doc, taken))
        limits[-1].counts = long_form(doc).get("unit", REQUESTS)
        limits[-1].overdraft = long_form(doc).get("overdraft", False)
        taken.add(limits[-1].name)
    return limits


def expiry(doc):
    expires = doc.get("expires")
    return instant(expires) if isinstance(expires, str) else expires and expires * 10**6


def by_names(doc):
    return [model_match.lower(name) if name.startswith("header:") else name for name in model_match.as_list(doc)]


def cost_in(request, unit):
    """What a request costs in a unit. `costs` names all units."""
    if "costs" in request:
        return request["costs"].get(unit, 0)
    return request.get("cost", 1) if unit == REQUESTS else 0


class Rule:
    def __init__(self, doc, settings):
        self.doc = doc
        self.id = doc["id"]
        self.match = model_match.Match(doc.get("match", {}), settings, doc.get("ignore_case", False))
        self.by = by_names(doc.get("by", []))
        self.mode = doc.get("mode", "enforce")
        self.excepted = model_match.Except(doc.get("except", {}))
        self.expires = expiry(doc)
        self.limits = read_limits(doc.get("limits", []))
        self.fold = model_match.lower if doc.get("ignore_case") else str
        self.plan = doc.get("plan")
        self.plans = {self.fold(name): read_limits(limits) for name, limits in doc.get("plans", {}).items()}

    def limits_of(self, seen, override, now):
        """The limits of one subject: those of its override, of its plan, or the rule's own."""
        if override and not (override.expires is not None and now >= override.expires):
            return override.limits
        value = seen.attribute(self.plan, None) if self.plan else None
        return self.plans.get(self.fold(value or ""), self.limits)

    def subjects(self, seen, now):
        """The values of `by`, once for each that the readings of the path give; nothing if the rule does not apply."""
        if self.mode in ("off", False) or (self.expires is not None and now >= self.expires):
            return []
        if not self.match.holds(seen) or self.excepted.holds(seen) or seen.settings.excepted.holds(seen):
            return []
        found = [tuple(seen.attribute(name, reading) for name in self.by) for reading in self.match.readings(seen)]
        return [values for values in dict.fromkeys(found) if all(map(seen.is_there, self.by, values))]


class Override:
    def __init__(self, doc):
        self.expires = expiry(doc)
        self.limits = read_limits(doc.get("limits", []))
        if doc.get("deny"):
            self.limits = read_limits([{"name": "deny", "algorithm": "fixed_window", "max": 0, "per": "1s"}])

    @staticmethod
    def subject(doc, rule):
        values = {by_names(name)[0]: str(value) for name, value in doc["by"].items()}
        return tuple(values[name] for name in rule.by)


class Entry:
    """One limit of a plan, looked at."""

    def __init__(self, model, rule, limit, subject, now, cost):
        self.model, self.rule, self.limit, self.now, self.cost = model, rule, limit, now, limit.bounded(cost)
        self.key = (rule.id, limit.name, limit.algorithm, tuple(rule.by), subject)
        self.cell, self.mark, self.stale = model.cells.get(self.key), None, False
        if limit.rebased(self.cell, now):
            own, period = limit.own_time(self.cell), limit.period(self.cell)
            self.mark = model_clock.rebase(model.marks.get(self.key), own, period, now)
            self.stale = self.mark is None
        # There is as much room at the cell's own time, so that the verdict on a stale caller is the same.
        self.state = limit.settle(self.cell, now)
        retry = limit.retry_after(self.state, now, limit.needs(cost))
        self.retry = retry if retry == model_limits.NEVER else math.ceil(retry)

    def charge(self):
        if not self.cost:
            return
        self.state = self.limit.charge(self.state, self.now, self.cost)
        if self.stale:
            own = self.limit.own_time(self.cell)
            self.write(self.limit.charge(self.cell, own, self.cost), own)
        else:
            self.write(self.state, self.now)

    def rebase(self):
        """A refusal writes nothing, a clock rebase of what refused apart; a request that costs nothing only looks."""
        if self.retry and self.mark:
            self.write(self.state, self.now)

    def write(self, state, at):
        self.model.cells[self.key] = state
        self.model.decays_at[self.key] = at + self.limit.idle(state, at)
        self.model.written[self.key] = len(self.model.times)
        if self.mark:
            self.model.marks[self.key] = self.mark

    def verdict(self):
        debt = self.limit.overdraft and self.limit.debt(self.state, self.now)
        return {
            "rule": self.rule.id,
            "limit": self.limit.name,
            **({} if self.limit.counts == REQUESTS else {"unit": self.limit.counts}),
            "max": self.limit.capacity,
            "remaining": self.limit.remaining(self.state, self.now),
            **({"debt": debt} if debt else {}),
            "reset_ms": up(self.limit.idle(self.state, self.now)),
            "retry_after_ms": up(self.retry),
        }


def up(micros):
    """Whole milliseconds, rounded up."""
    return -1 if micros == model_limits.NEVER else -(-math.ceil(micros) // 1000)


class Model:
    def __init__(self, doc):
        self.settings = model_match.Settings(doc.get("settings", {}))
        self.rules = []
        self.cells = {}
        self.decays_at = {}
        self.written = {}  # a place in times
        self.times = []  # of all requests
        self.marks = {}  # of rebases
        self.touched = []
        self.overrides = {}
        self.set_rules(doc)

    def set_rules(self, doc):
        """A document, or a list of rules."""
        docs = doc if isinstance(doc, list) else doc.get("rules", [])
        known = {rule.id: rule for rule in self.rules}
        self.rules = [
            known[doc["id"]] if doc["id"] in known and known[doc["id"]].doc == doc else Rule(doc, self.settings)
            for doc in docs
        ]
        rules = {rule.id: rule for rule in self.rules}
        self.overrides = {
            (each["rule"], Override.subject(each, rules[each["rule"]])): Override(each)
            for each in ([] if isinstance(doc, list) else doc.get("overrides", []))
        }

    def copy(self):
        result = copy.copy(self)
        result.cells, result.decays_at, result.marks = dict(self.cells), dict(self.decays_at), dict(self.marks)
        result.written, result.times = dict(self.written), list(self.times)
        return result

    def without_decayed(self, keys):
        """Copies without one of these cells, if it has decayed: a table may have given it to another subject. It shows only
        when the clock steps back behind that."""
        for key in keys:
            if key in self.cells and self.decays_at[key] <= max(self.times[self.written[key] :], default=0):
                result = self.copy()
                del result.cells[key]
                yield result

    def decide(self, request, now):
        self.times.append(now)
        seen = model_match.Seen(request, self.settings)
        groups = []
        for rule in self.rules:
            subjects = rule.subjects(seen, now)
            if subjects:
                entries = [
                    Entry(self, rule, limit, subject, now, cost_in(request, limit.counts))
                    for subject in subjects
                    for limit in rule.limits_of(seen, self.overrides.get((rule.id, subject)), now)
                ]
                groups.append((rule, entries))
        self.touched = [entry.key for _, entries in groups for entry in entries]
        costs = [cost_in(request, REQUESTS)] + [entry.cost for _, entries in groups for entry in entries]
        charges = any(costs) and not request.get("peek", False)
        plan = [entry for rule, entries in groups if rule.mode == "enforce" for entry in entries]
        allowed = not any(entry.retry for entry in plan)
        shadow = self.shadows(groups, allowed and charges)
        self.settle(plan, allowed and charges, charges)
        if allowed:
            named = min(plan, key=lambda entry: entry.verdict()["remaining"], default=None)
        else:
            named = max(plan, key=lambda entry: entry.retry)
        nothing = dict.fromkeys(["rule", "limit", "max", "remaining", "reset_ms"], None) | {"retry_after_ms": 0}
        return {"allowed": allowed, "status": 200 if allowed else 429, **(named.verdict() if named else nothing), "shadow": shadow[:SHADOW_MAX]}

    @staticmethod
    def settle(entries, take, rebase):
        for entry in entries:
            if take:
                entry.charge()
            elif rebase:
                entry.rebase()

    def shadows(self, groups, passed):
        """The ids of shadow rules that would have refused; the others are charged if the request passed."""
        result = []
        for rule, entries in groups:
            if rule.mode != "shadow":
                continue
            refuses = any(entry.retry for entry in entries)
            if refuses:
                result.append(rule.id)
            self.settle(entries, passed and not refuses, passed)
        return result
