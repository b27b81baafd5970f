"""The four algorithms in exact fractions, as the specification tells them.

A state is None (unused) or a tuple. Times are microseconds since 1970. Every kind has the same seven
verbs: settle(state, now) is the state as it counts now; load(state, now) what is used of the capacity; fits, charge;
idle(state, now) how long until the state is None; wait(state, now, cost) how long until cost fits; own_time(state) and
period(state), which tell clocks that were set back.
"""

import math
from fractions import Fraction

from e2e import model_calendar

NEVER = float("inf")
LENGTH_BITS = 26


def rounded(length):
    """A window's length has 26 bits, and is rounded up: beyond 67 seconds it may be too long by one part in 2^25."""
    unit = 2 ** max(0, length.bit_length() - LENGTH_BITS)
    return -(-length // unit) * unit


def coarse(length):
    """A window with a count of more than 32 bits has a length of three binary digits, rounded up."""
    length = max(length, 4)
    unit = 2 ** (length.bit_length() - 3)
    return -(-length // unit) * unit


def length_of(state, own):
    """The length of a window as its state has it. `own` is what the limit would give it now: if that rounds to the same, it counts."""
    length = rounded(state[1] - state[0])
    if not is_wide(state):
        return length
    return own if coarse(own) == coarse(length) else coarse(length)


def is_wide(state):
    return state[2] >= 2**32


class Limit:
    def __init__(self, name, algorithm, maximum, capacity):
        self.name = name
        self.algorithm = algorithm
        self.max = maximum
        self.capacity = capacity
        self.overdraft = False

    def bounded(self, cost):
        """With overdraft a cost counts as no more than what can be owed beside what is used."""
        most = 2**32 - 1 if self.algorithm == "sliding_window" else 2**53 - 1
        return min(cost, most - self.capacity) if self.overdraft else cost

    def needs(self, cost):
        """What has to fit."""
        return min(cost, 1) if self.overdraft else cost

    def debt(self, state, now):
        return max(0, math.ceil(self.load(state, now) - self.capacity))

    def fits(self, state, now, cost):
        if self.max == 0 or cost > self.capacity:
            return False
        return self.load(state, now) + cost <= self.capacity

    def remaining(self, state, now):
        return max(0, int(self.capacity - self.load(state, now)))

    def retry_after(self, state, now, cost):
        """Microseconds, exact; 0 if it fits now."""
        if self.fits(state, now, cost):
            return 0
        return NEVER if self.max == 0 or cost > self.capacity else self.wait(state, now, cost)

    def rebased(self, state, now):
        """Whether the state is more than a period ahead of the clock."""
        return state is not None and self.own_time(state) > now + self.period(state)


class Window(Limit):
    """State: start of the window, its end, count."""

    def rebased(self, state, now):
        return state is not None and state[1] - now > 2 * length_of(state, self.length(now) if is_wide(state) else 0)

    def own_time(self, state):
        return state[1] - self.period(state)

    def load(self, state, now):
        return state[2] if state else 0

    def idle(self, state, now):
        return state[1] - now if state else 0

    def wait(self, state, now, cost):
        return state[1] - now


class TokenBucket(Limit):
    """State: tokens used, when."""

    def __init__(self, name, maximum, per, burst=None):
        super().__init__(name, "token_bucket", maximum, maximum if burst is None else burst)
        self.per = per

    def settle(self, state, now):
        if state is None:
            return None
        used, at = state
        if self.rebased(state, now):
            return used, now
        if at < now:
            used -= Fraction((now - at) * self.max, self.per)
            at = now
        return (used, at) if used > 0 else None

    def own_time(self, state):
        return state[1]

    def period(self, state):
        return self.per

    def load(self, state, now):
        return state[0] if state else 0

    def charge(self, state, now, cost):
        return (state[0] + cost, state[1]) if state else (Fraction(cost), now)

    def refill(self, state, now, tokens):
        if self.max == 0:
            return NEVER
        return state[1] - now + Fraction(tokens * self.per, self.max)

    def idle(self, state, now):
        return self.refill(state, now, state[0]) if state else 0

    def wait(self, state, now, cost):
        return self.refill(state, now, state[0] + cost - self.capacity)


class FixedWindow(Window):
    def __init__(self, name, maximum, per):
        super().__init__(name, "fixed_window", maximum, maximum)
        self.per = per

    def length(self, now):
        return rounded(self.per)

    def settle(self, state, now):
        if state is None or now >= state[1]:
            return None
        return (now, now + self.per, state[2]) if self.rebased(state, now) else state

    def period(self, state):
        """A window keeps its length until it is over, whatever `per` is by now."""
        return length_of(state, rounded(self.per))

    def charge(self, state, now, cost):
        return (state[0], state[1], state[2] + cost) if state else (now, now + self.per, cost)


class SlidingWindow(Limit):
    """State: start of the window, count of the one before, count."""

    def __init__(self, name, maximum, per):
        super().__init__(name, "sliding_window", maximum, maximum)
        self.per = per

    def settle(self, state, now):
        if state is None:
            return None
        start, previous, count = state
        if self.rebased(state, now):
            start = now
        passed = max(0, now - start) // self.per
        if passed == 1:
            start, previous, count = start + self.per, count, 0
        if passed > 1 or previous + count == 0:
            return None
        return start, previous, count

    def own_time(self, state):
        return state[0]

    def period(self, state):
        return self.per

    def load(self, state, now):
        if state is None:
            return 0
        start, previous, count = state
        in_view = self.per - max(0, now - start)
        return Fraction(previous * in_view, self.per) + count

    def charge(self, state, now, cost):
        return (state[0], state[1], state[2] + cost) if state else (now, 0, cost)

    def idle(self, state, now):
        return state[0] + (2 if state[2] else 1) * self.per - now if state else 0

    def wait(self, state, now, cost):
        start, previous, count = state
        room = self.max - cost - count
        if room < 0:  # not before the count itself is the previous one
            start, previous, room = start + self.per, count, self.max - cost
        return start + self.per - Fraction(room * self.per, previous) - now


class Calendar(Window):
    def __init__(self, name, maximum, unit, zone="UTC", week_start="monday"):
        super().__init__(name, "calendar", maximum, maximum)
        self.unit = unit
        self.zone = zone
        self.week_start = week_start

    def window(self, now):
        return model_calendar.window(self.unit, self.zone, self.week_start, now)

    def length(self, now):
        start, end = self.window(now)
        return rounded(end - start)

    def settle(self, state, now):
        if state is None or now >= state[1]:
            return None
        return (*self.window(now), state[2]) if self.rebased(state, now) else state

    def period(self, state):
        """The length of the window that the cell is in; without the clock, nobody knows the limit's own."""
        return length_of(state, 0)

    def charge(self, state, now, cost):
        return (state[0], state[1], state[2] + cost) if state else (*self.window(now), cost)
