"""Windows of the calendar in many zones, at random instants and at the edges, against zoneinfo.

Each request has a key of its own, so `reset_ms` is the time to the end of the window; times are in milliseconds."""

import json
import random
import zoneinfo

import pytest

import support
from e2e import model, model_calendar
from support import number

SEED = number("TEST_SEED", 20260302)
ZONES = number("TEST_COUNT", 60)
PARTS = 6
FROM, UNTIL = 0, 4_102_444_800 * 10**6  # 1970 to 2100
MS = 1000
# Midnight that is skipped or comes twice, dates that were skipped, odd offsets and changes.
HARD = [
    "America/Havana",
    "America/St_Johns",
    "Atlantic/Azores",
    "America/Sao_Paulo",
    "Asia/Beirut",
    "Africa/Cairo",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "Asia/Gaza",
    "Asia/Tehran",
    "Asia/Amman",
    "America/Asuncion",
    "America/Santiago",
    "Africa/Monrovia",
    "Antarctica/Troll",
    "Africa/Casablanca",
    "Europe/Berlin",
    "America/Caracas",
    "Asia/Pyongyang",
    "Pacific/Chatham",
    "Antarctica/Casey",
    "Asia/Manila",
]


def zone_names():
    names = zoneinfo.available_timezones() - {"localtime", "Factory", "posixrules"}
    return sorted(name for name in names if not name.startswith(("posix/", "right/")))


def near_change(rng, zone):
    """An instant close to a change of the zone's offset, if one is found."""
    instant = rng.randrange(FROM, UNTIL - 200 * 86400 * 10**6)
    later = instant + rng.randrange(1, 200) * 86400 * 10**6
    if model_calendar.offset(zone, instant) == model_calendar.offset(zone, later):
        return instant
    changed = model_calendar.change(zone, instant, later)
    return max(
        0, changed + rng.choice([-1, 0, 1, rng.randrange(-7200, 7200) * 1000, rng.randrange(-100_000, 100_000) * 1000]) * MS
    )


def random_length(rng):
    """In microseconds."""
    usual = [model.length(text) for text in ("1s", "10m", "1d", "7d", "30d", "365d", "3650d")]
    return rng.choice(usual + [rng.randrange(1000, 10 ** rng.randrange(4, 12)) * MS])


def requests_of(rng, zone, number):
    for _ in range(24 if zone in HARD else 8):
        unit, day = rng.choice(("day", random_length(rng)) + model.CALENDAR), rng.choice(model_calendar.DAYS)
        now = near_change(rng, zone) if rng.random() < 0.6 else rng.randrange(FROM, UNTIL)
        start, end = model_calendar.window(unit, zone, day, now // MS * MS)
        for instant in (now // MS * MS, max(0, start), end, end - MS):
            yield number, unit, zone, day, instant


def rule_of(number, unit, zone, day):
    limit = {"name": "n", "calendar": unit, "max": 1, "tz": zone}
    if isinstance(unit, int):
        limit = {"name": "n", "calendar": model.short_length(unit), "max": 1}
    if unit == "week":
        limit["week_start"] = day
    return {"id": f"{number}-{unit}-{day}", "match": {"event": f"{number}-{unit}-{day}"}, "by": ["key"], "limits": [limit]}


@pytest.mark.parametrize("part", range(PARTS))
def test_random_calendar(part):
    rng = random.Random(SEED + part)
    names = zone_names()
    zones = rng.sample(names, min(len(names), ZONES // PARTS)) + [zone for zone in HARD if zone in names]
    asked = [each for number, zone in enumerate(zones) for each in requests_of(rng, zone, number)]
    rules = {rule["id"]: rule for rule in (rule_of(*each[:4]) for each in asked)}
    lines = [
        {"t": now // MS, "event": f"{number}-{unit}-{day}", "key": str(place)}
        for place, (number, unit, zone, day, now) in enumerate(asked)
    ]
    found = support.simulate(json.dumps({"rules": list(rules.values())}), lines)
    support.expect(len(found), len(asked), "verdicts")
    for (_, unit, zone, day, now), verdict in zip(asked, found):
        wanted = -(-(model_calendar.window(unit, zone, day, now)[1] - now) // MS)
        support.expect(
            verdict["reset_ms"], wanted, f"seed {SEED + part}: {unit} (week from {day}) in {zone} at {now // MS} ms"
        )
