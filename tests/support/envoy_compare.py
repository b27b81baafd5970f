"""Asks weir and somebody else the same, and counts what differs. Counts are of windows. If a second ends between the two calls,
they may be in different ones: limits whose window began just then are not compared until it is over."""

import collections
import math
import time

from support.envoy import OK, OVER_LIMIT, UNITS
from support.envoy_model import Model
from support.envoy_random import UNITS_S

UNIT_NAMES = {number: name for name, number in UNITS.items()}
GUARD_S = 0.03  # no call begins so shortly before the end of a second


class Modelled:
    """The model, with answers as plain() makes them."""

    def __init__(self, configuration, together):
        self.model = Model(configuration.domains, together)
        self.before = {}

    def ask(self, call, now_s):
        self.before = dict(self.model.used)
        return self.answer(call, now_s)

    def redo(self, call, now_s):
        """The last call, at another time."""
        self.model.used = dict(self.before)
        return self.answer(call, now_s)

    def answer(self, call, now_s):
        domain, descriptors, hits = call
        code, statuses = self.model.answer(domain, descriptors, hits, now_s)
        return code, [self.plain(*status) for status in statuses]

    @staticmethod
    def plain(code, remaining, limit, reset_s):
        shown = limit and (limit.max, *in_unit(limit.window_s()), limit.name)
        return {"code": code, "remaining": remaining, "limit": shown, "reset_s": reset_s}


def in_unit(window_s):
    """The longest unit that divides a window, and how many of it."""
    for name, length in sorted(UNITS_S.items(), key=lambda item: -item[1]):
        if window_s % length == 0:
            return name, window_s // length
    raise ValueError(window_s)


def plain(answer):
    """What is compared: (code, statuses)."""
    statuses = []
    for status in answer.statuses:
        limit = reset_s = None
        if status.HasField("current_limit"):
            current = status.current_limit
            multiplier = current.unit_multiplier.value if current.HasField("unit_multiplier") else 1
            limit = (current.requests_per_unit, UNIT_NAMES[current.unit], multiplier, current.name)
        if status.HasField("duration_until_reset"):
            duration = status.duration_until_reset
            reset_s = math.ceil(duration.seconds + duration.nanos / 1e9)
        statuses.append({"code": status.code, "remaining": status.limit_remaining, "limit": limit, "reset_s": reset_s})
    return answer.overall_code, statuses


class Comparison:
    def __init__(self, other, weir, show):
        self.other, self.weir, self.show = other, weir, show
        self.counts = collections.Counter()
        self.skipped = collections.Counter()
        self.documented = collections.Counter()
        self.kinds = collections.Counter()
        self.spoiled = []  # (window in seconds, its beginning): counted differently by both

    def run(self, call):
        self.wait_for_room()
        before_s = int(time.time())
        others = self.other.ask(call, before_s)
        domain, descriptors, hits = call
        ours = plain(self.weir.ask(domain, *descriptors, hits=hits))
        after_s = int(time.time())
        if after_s == before_s:
            self.compare(call, others, ours, before_s)
        elif isinstance(self.other, Modelled):
            self.skipped["call: a second ended meanwhile"] += 1
            if others != ours:
                self.other.redo(call, after_s)
            self.spoil(before_s, after_s)
            # A wrong count of one descriptor would decide whether the others are charged.
            time.sleep(max(0, min(20, max(begin + length for length, begin in self.spoiled) - time.time())))
        else:
            self.skipped["call: a second ended between the two"] += 1
            self.spoil(before_s, after_s)

    def spoil(self, before_s, after_s):
        lengths = {length * n for length in UNITS_S.values() for n in range(1, 8)}
        for second in (before_s, after_s):
            self.spoiled += [(n, second - second % n) for n in lengths if before_s // n != after_s // n]

    @staticmethod
    def wait_for_room():
        """The end of a second is far enough."""
        rest_s = 1 - time.time() % 1
        if rest_s < GUARD_S:
            time.sleep(rest_s + 0.001)

    def is_spoiled(self, status, now_s):
        if not self.spoiled or not status["limit"]:
            return False
        window_s = UNITS_S[status["limit"][1]] * status["limit"][2]
        return (window_s, now_s - now_s % window_s) in self.spoiled

    def compare(self, call, others, ours, now_s):
        self.counts["calls"] += 1
        all_compared = True
        differences = []
        if len(others[1]) != len(ours[1]):
            differences.append(("number of statuses", None, len(others[1]), len(ours[1])))
        for i, (other, own) in enumerate(zip(others[1], ours[1])):
            if self.is_spoiled(other, now_s) or self.is_spoiled(own, now_s):
                self.skipped["status: its window began while a call was made"] += 1
                all_compared = False
                continue
            found = self.compare_status(i, other, own, call[1][i][2] == 0)
            self.counts["statuses"] += 1
            self.counts["statuses OVER_LIMIT" if own["code"] == OVER_LIMIT else "statuses OK"] += 1
            self.counts["statuses with a limit"] += own["limit"] is not None
            self.counts["statuses the same"] += not found
            differences += found
        if all_compared and others[0] != ours[0] and others[0] != self.code_without_looks(call, ours):
            differences.append(("overall_code", None, others[0], ours[0]))
        self.counts["calls the same" if not differences else "calls different"] += 1
        self.report(call, differences)

    @staticmethod
    def is_refused_look(looks, status):
        return looks and status["limit"] and status["limit"][0] == 0 and status["code"] == OVER_LIMIT

    def code_without_looks(self, call, ours):
        refused = [one["code"] == OVER_LIMIT and not self.is_refused_look(call[1][i][2] == 0, one) for i, one in enumerate(ours[1])]
        return OVER_LIMIT if any(refused) else OK

    def compare_status(self, i, other, own, looks):
        found = [(name, i, other[name], own[name]) for name in ("code", "remaining") if other[name] != own[name]]
        if found and found[0][0] == "code" and self.is_refused_look(looks, own):
            self.documented["code: max is 0, and hits_addend, too"] += 1
            del found[0]
        if (other["limit"] is None) != (own["limit"] is None):
            found.append(("current_limit", i, other["limit"], own["limit"]))
        elif other["limit"]:
            for k, name in enumerate(("requests_per_unit", "unit", "unit_multiplier", "name")):
                if other["limit"][k] != own["limit"][k]:
                    found.append(("current_limit." + name, i, other["limit"][k], own["limit"][k]))
        if (other["reset_s"] is None) != (own["reset_s"] is None):
            self.documented["duration_until_reset: only weir has it" if own["reset_s"] else "duration_until_reset: only there"] += 1
        elif other["reset_s"] != own["reset_s"]:
            found.append(("duration_until_reset", i, other["reset_s"], own["reset_s"]))
        return found

    def report(self, call, differences):
        for field, i, other, own in differences:
            self.kinds[field] += 1
            if self.kinds[field] <= self.show:
                what = f"call {self.counts['calls']}, {field}" + (f" of descriptor {i}" if i is not None else "")
                print(f"{what}: there {other!r}, weir {own!r}\n  {call!r}", flush=True)

    def summary(self):
        parts = (("compared", self.counts), ("skipped", self.skipped), ("different as documented", self.documented))
        for title, counter in (*parts, ("different", self.kinds)):
            print(title + ":", *(f"\n  {count:8} {name}" for name, count in counter.items()), sep="" if counter else " nothing")
