"""Windows of the calendar, computed slowly from zoneinfo; times are microseconds since 1970."""

import datetime
import functools
import zoneinfo

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
LAST = 2**52 - 1
EPOCH = datetime.datetime(1970, 1, 1)
UTC = datetime.timezone.utc


def micros(delta):
    return (delta.days * 86400 + delta.seconds) * SECOND + delta.microseconds


@functools.lru_cache(maxsize=None)
def zone_of(name):
    return zoneinfo.ZoneInfo(name)


@functools.lru_cache(maxsize=100_000)
def offset(name, instant):
    """How far the zone's clock is ahead of UTC."""
    moment = (EPOCH + datetime.timedelta(microseconds=instant)).replace(tzinfo=UTC)
    return micros(moment.astimezone(zone_of(name)).utcoffset())


def change(name, before, after):
    """The first instant after `before` with the offset of `after`, if the offset changes once between them."""
    old = offset(name, before)
    while after - before > 1:
        middle = (before + after) // 2
        if offset(name, middle) == old:
            before = middle
        else:
            after = middle
    return after


def instant_of(name, local):
    moment = local.replace(tzinfo=zone_of(name), fold=0)
    return micros(local - EPOCH) - micros(moment.utcoffset())


@functools.lru_cache(maxsize=100_000)
def start_of_date(name, date):
    """The first instant whose local date is the given one, or a later one where the date was skipped."""
    midnight = datetime.datetime(date.year, date.month, date.day)
    wall = micros(midnight - EPOCH)
    # Python gives the first of two midnights; for one that is skipped, an instant after the gap.
    first = instant_of(name, midnight)
    if first + offset(name, first) == wall:
        return first
    before = wall - micros(midnight.replace(tzinfo=zone_of(name), fold=1).utcoffset()) - 1
    return change(name, before, first)


def first_date(unit, date, week_start):
    if unit == "week":
        return date - datetime.timedelta(days=(date.weekday() - DAYS.index(week_start)) % 7)
    if unit == "month":
        return date.replace(day=1)
    return date.replace(month=1, day=1) if unit == "year" else date


def next_date(unit, date):
    if unit == "month":
        return (date.replace(day=1) + datetime.timedelta(days=31)).replace(day=1)
    if unit == "year":
        return datetime.date(date.year + 1, 1, 1)
    return date + datetime.timedelta(days=7 if unit == "week" else 1)


def window_of_dates(unit, name, week_start, now):
    local = EPOCH + datetime.timedelta(microseconds=now + offset(name, now))
    date = first_date(unit, local.date(), week_start)
    while start_of_date(name, next_date(unit, date)) <= now:  # midnight came, and then the clock went back
        date = next_date(unit, date)
    end = next_date(unit, date)
    while start_of_date(name, end) == start_of_date(name, date):  # a date that was skipped
        end = next_date(unit, end)
    return start_of_date(name, date), start_of_date(name, end)


def window_of_clock(length, name, now):
    """An hour or a minute of the wall clock, cut where the clock is put forward or back."""
    ahead = offset(name, now)
    start = (now + ahead) // length * length - ahead
    end = start + length
    if offset(name, start) != ahead:
        start = change(name, start, now)
    if offset(name, end - 1) != ahead:
        end = change(name, now, end - 1)
    return start, end


@functools.lru_cache(maxsize=100_000)
def window(unit, name, week_start, now):
    """(start, end) of the natural minute, hour, day, week, month or year around `now`; or of a length in microseconds,
    counted from 1970."""
    if isinstance(unit, int):
        return now - now % unit, now - now % unit + unit
    if unit in ("minute", "hour"):
        return window_of_clock(MINUTE if unit == "minute" else HOUR, name, now)
    return window_of_dates(unit, name, week_start, now)


def time_of(rng, micros):
    """As milliseconds where that is exact, or RFC 3339 in some zone."""
    if micros % 1000 == 0 and rng.random() < 0.7:
        return micros // 1000
    minutes = rng.choice([0, 0, 480, -210, 345])
    moment = EPOCH + datetime.timedelta(microseconds=micros + minutes * 60 * 10**6)
    sign = "-" if minutes < 0 else "+"
    zone = f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}" if minutes else "Z"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f").zfill(26) + zone
