"""Buckets at microseconds, and with periods that do not divide a week: weir may be stricter by a hair, never more lenient.

The model follows the decisions of the command, and keeps bounds of what may be used: a hair for each charge."""

import json
import random
from fractions import Fraction

import pytest

import support
from e2e import model, model_calendar, model_clock, model_limits
from support import number

SEED = number("TEST_SEED", 20260302)
FILES = number("TEST_COUNT", 10)
BUCKETS, REQUESTS = 30, 50
PERIODS = [
    "1ms",
    "3ms",
    "7ms",
    "11ms",
    "999ms",
    "1s",
    "11s",
    "13m",
    "7h",
    "36h",
    "1d",
    "7d",
    "11d",
    "365d",
    "3650d",
    "4294967ms",
    "1000003ms",
    "604799999ms",
]
MAXIMA = [1, 1, 2, 3, 7, 10, 33, 1000, 65537, 10**6, 4294967295, 2**32, 10**13 + 1, 2**53 - 1]
LONGEST_MS = 4 * 10**12  # further away than this the command says less
HAIR, COARSE = Fraction(1, 3_000_000_000), Fraction(1, 256)  # of a token; the latter beyond 2^32 - 1


class Bucket:
    def __init__(self, rng, number):
        self.rng, self.event = rng, f"e{number}"
        self.per, self.max = rng.choice(PERIODS), rng.choice(MAXIMA)
        self.burst = rng.choice([self.max, rng.choice(MAXIMA)])
        self.limit = model_limits.TokenBucket("n", self.max, model.length(self.per), self.burst)
        self.hair = HAIR if max(self.max, self.burst) < 2**32 else COARSE
        self.least = self.most = self.mark = None
        self.now = rng.randrange(10**15, 2 * 10**15)

    def rule(self):
        limit = {"name": "n", "max": self.max, "per": self.per, "burst": self.burst}
        return {"id": self.event, "match": {"event": self.event}, "limits": [limit]}

    def step(self):
        """Mostly about as long as it takes a token or two to come back."""
        token = max(1, self.limit.per // self.max)
        return self.rng.choice(
            [
                0,
                0,
                1,
                token,
                token,
                token - 1,
                token + 1,
                self.rng.randrange(4 * token),
                self.rng.randrange(min(self.limit.per, 10**13)),
                -self.rng.randrange(token),
            ]
        )

    def request(self):
        self.now = min(self.now + self.step(), model_calendar.LAST)
        cost = self.rng.choice([0, 1, 1, 1, 2, max(1, self.burst // 3), self.burst, self.burst - 1])
        return {"t": model_calendar.time_of(self.rng, self.now), "event": self.event, "cost": cost}, self.now

    def views(self, now):
        """What is used at least and at most. A state may lag behind by a thousandth of the period, which shows when the
        clock steps back."""
        least, most = (self.limit.settle(state, now) for state in (self.least, self.most))
        if most and self.most[1] > now:
            most = (most[0] + Fraction(self.max, 1000), most[1])
        return least, most

    def charged(self, views, now, cost):
        if cost == 0:
            return views
        least, most = views
        return self.limit.charge(least, now, cost), self.limit.charge(most, now, cost + self.hair)

    def write(self, views, now, cost):
        """A cost of 0 is a refusal, which changes nothing but a clock that was wrong. A stale caller charges the bucket at
        the bucket's own time."""
        states = self.least, self.most
        if self.limit.rebased(self.least, now):
            mark = model_clock.rebase(self.mark, self.limit.own_time(self.least), self.limit.per, now)
            if mark:
                self.mark, states = mark, views
        elif cost:
            states = views
        self.least, self.most = self.charged(states, now, cost)

    def check(self, line, now, verdict):
        limit, cost, allowed = self.limit, line["cost"], verdict["allowed"]
        least, most = self.views(now)
        fits = {limit.fits(least, now, cost), limit.fits(most, now, cost)}
        if allowed not in fits:
            raise AssertionError(f"allowed: {allowed}, not one of {fits}")
        if cost:
            taken = cost if allowed else 0
            self.write((least, most), now, taken)
            least, most = self.charged((least, most), now, taken)
        within(verdict["remaining"], limit.remaining(most, now), limit.remaining(least, now), "remaining")
        within(verdict["reset_ms"], model.up(limit.idle(least, now)), model.up(limit.idle(most, now)), "reset_ms")
        if not allowed:
            early, late = (model.up(limit.retry_after(state, now, cost)) for state in (least, most))
            within(verdict["retry_after_ms"], early, late, "retry_after_ms")


def within(found, least, most, what):
    if not least <= found <= most and min(least, found) < LONGEST_MS:
        raise AssertionError(f"{what}: {found}, not from {least} to {most}")


@pytest.mark.parametrize("seed", range(SEED, SEED + FILES))
def test_random_buckets(seed):
    rng = random.Random(seed)
    buckets = {f"e{number}": Bucket(rng, number) for number in range(BUCKETS)}
    lines = [bucket.request() for bucket in buckets.values() for _ in range(REQUESTS)]
    text = json.dumps({"rules": [bucket.rule() for bucket in buckets.values()]})
    found = support.simulate(text, [line for line, _ in lines])
    support.expect(len(found), len(lines), f"seed {seed}: verdicts")
    for (line, now), verdict in zip(lines, found):
        bucket = buckets[line["event"]]
        before = bucket.least, bucket.most
        try:
            bucket.check(line, now, verdict)
        except AssertionError as error:
            raise AssertionError(
                f"seed {seed}: {json.dumps(bucket.rule())}\nat least, at most (used, when): {before}\n"
                f"{json.dumps(line)} at {now}\n"
                f"weir: {json.dumps(verdict)}\n{error}"
            ) from None
