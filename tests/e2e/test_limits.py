"""Cases with a name, worked out by hand: limits, calendars and clocks, through `weir simulate`."""

import json

import support
from e2e import model_match
from support import expect

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000  # ms
T0 = 1_772_413_200_000  # 2026-03-02T01:00:00Z


def rule(limits, name="r", **more):
    return {"id": name, "limits": limits, **more}


def verdicts(rules, *requests, **settings):
    """One verdict for each request; (time, more) or a whole line."""
    lines = [
        {"t": each[0], **each[1]} if isinstance(each, tuple) else each if isinstance(each, dict) else {"t": each}
        for each in requests
    ]
    doc = {"settings": settings, "rules": rules if isinstance(rules, list) else [rules]}
    return support.simulate(json.dumps(doc), lines)


def allowed(found):
    return "".join("+" if verdict["allowed"] else "-" for verdict in found)


def named(verdict):
    return verdict["rule"], verdict["limit"]


def retries(found):
    return [verdict["retry_after_ms"] for verdict in found]


def resets(rules, *times):
    """How long each window lasts from these times on, each for a subject of its own."""
    rules["by"] = "key"
    return [verdict["reset_ms"] for verdict in verdicts(rules, *((time, {"key": str(n)}) for n, time in enumerate(times)))]


# ---- all or nothing ----


def test_day_and_hour():
    ocr = rule(
        [
            {"name": "day", "calendar": "day", "max": 100, "tz": "Asia/Shanghai"},
            {"name": "hour", "calendar": "hour", "max": 20, "tz": "Asia/Shanghai"},
        ]
    )
    start = "2026-03-02T{:02}:30:00+08:00"
    found = verdicts(ocr, *[start.format(hour) for hour in range(8, 14) for _ in range(25)])
    for hour in range(5):
        expect(allowed(found[hour * 25 : hour * 25 + 25]), "+" * 20 + "-" * 5, f"hour {hour}")
        if hour < 4:
            expect((named(found[hour * 25 + 24]), found[hour * 25 + 24]["retry_after_ms"]), (("r", "hour"), 30 * MINUTE))
    expect(allowed(found[125:]), "-" * 25, "the day is used up, and refusals did not count")
    expect(
        found[125],
        {
            "allowed": False,
            "status": 429,
            "rule": "r",
            "limit": "day",
            "max": 100,
            "remaining": 0,
            "reset_ms": 10 * HOUR + 30 * MINUTE,
            "retry_after_ms": 10 * HOUR + 30 * MINUTE,
            "shadow": [],
        },
    )


def test_several_rules():
    rules = [rule(["5 per 1h"], "five", by="ip"), rule(["2 per 1h"], "two", by="user"), rule(["1000 per 1h"], "all")]
    found = verdicts(rules, *[(T0, {"ip": "1.1.1.1", "user": user}) for user in ("a", "a", "a", "b", "b", "b", "c", "c")])
    expect(allowed(found), "++-++-+-")
    expect([named(verdict)[0] for verdict in found], ["two", "two", "two", "two", "two", "two", "five", "five"])
    expect(retries(found)[5:], [30 * MINUTE, 0, 12 * MINUTE])


def test_no_rule_applies():
    nothing = {
        "allowed": True,
        "status": 200,
        "rule": None,
        "limit": None,
        "max": None,
        "remaining": None,
        "reset_ms": None,
        "retry_after_ms": 0,
        "shadow": [],
    }
    expect(verdicts(rule(["1 per 1h"], by="user"), T0, T0, (T0, {"user": ""})), [nothing] * 3)
    expect(verdicts([], T0), [nothing])


def test_subjects_do_not_run_together():
    long = "x" * 100_000
    who = [("ab", "c"), ("a", "bc"), ("ab", "c"), (long + "a", "k"), (long + "b", "k"), (long, "k"), (long + "a", "k")]
    found = verdicts(rule(["1 per 1h"], by=["user", "key"]), *[(T0, {"user": user, "key": key}) for user, key in who])
    expect(allowed(found), "++-+++-")


def test_hostile_paths():
    """Deep, long and slow ones are counted, none slips through."""
    deep = "/a" * 3000
    for path, template in (
        (deep, "/a/*"),
        ("/.." * 2000 + "/a", "/a"),
        ("/x" * 2000 + "/.." * 2000 + "/a", "/a"),
        ("/a" * 70 + "/7", "/a" * 70 + "/#"),
        ("/" + "b" * 20_000, {"regex": "/only-this"}),
        ("/" + "a" * 5000 + "bc", {"regex": "(/(a+)+)+b"}),
        ("/a/" + "b" * 20_000 + "/c", "/a/{name}/c"),
        ("/a/" + "7" * 20_000 + "/c", "/a/#/c"),
        ("/a/" + "b/" * 20_000 + "c", "/a/b/{x}/b/*"),
        ("/a/" + "b" * 3000 + "/..;/%2F../c;/..;/", "/a/{name}/c"),
    ):
        found = verdicts(rule(["1 per 1h"], match={"path": template}), (T0, {"path": path}), (T0, {"path": path}))
        expect(allowed(found), "+-", f"{template}")
    slow = {"t": T0, "path": "/c"}
    expect(verdicts(rule(["0 per 1h"], match={"path": {"regex": "(/(a+)+)+b"}}), slow)[0]["allowed"], True)


def test_spellings_of_one_resource():
    """However a server reads the path: no spelling of a resource is a subject of its own to a rule by path or route."""
    servers = {
        ("kept", True, "merged"): ["/J{n}/..%2Fadm%2Fx%2FQ/..", "/adm%2fJ{n}%2F../x", "/adm/;J{n}/../x", "/x%2FJ{n}/../../adm/x"],
        ("kept", True, "unmerged"): ["/adm/x/J{n}//../..", "/J{n}%2F%2f..%2F../adm/x", "/adm//J{n}/../x"],
        ("kept", False, "merged"): ["/J{n}%2Fa/../adm/x", "/adm/..;J{n}/../x"],
        ("cut raw", False, "merged"): ["/adm;J{n}/x", "/J{n}%3b/..;/adm/x", "/adm/..%3b/..;J{n}/x"],
        ("cut", True, "merged"): ["/adm/x%3bJ{n}", "/J{n};a%2F..%2F../adm/x", "/a;%2F..;J{n}%2Fadm/x"],
        ("cut last", True, "merged"): ["/adm/q/..;/z;/..;J{n}/../../x"],
    }
    for by in ("path", "route"):
        limited = rule(["5 per 1h"], by=by, match={"path": ["/adm/*", {"regex": ".*/x"}]})
        for (params, slash, dots), spellings in servers.items():
            paths = [text.format(n=n) for text in spellings for n in range(20)]
            for path in paths:
                expect(model_match.read(path[1:], params, slash, dots), ["adm", "x"], f"{path} to {params} {slash} {dots}")
            found = verdicts(limited, *((T0, {"path": path}) for path in paths + ["/adm/x"]))
            expect(allowed(found), "+" * 5 + "-" * (len(paths) - 4), f"by {by}, {params} {slash} {dots}")
    shadow = rule(["1 per 1h", "2 per 1h"], by="path", mode="shadow", match={"path": "/{a}/{b}"})
    found = verdicts(shadow, *((T0, {"path": path}) for path in ("/a/b%2f..%2Fc", "/a/c", "/a/b%2F..%2Fc", "/a/d")))
    expect([verdict["shadow"] for verdict in found], [[], ["r"], ["r"], []], "a shadow rule is one for all readings, and named once")


def test_slashes_for_regexes():
    """A regex is tried on a path with its empty segments, too; they do not make a subject."""
    for pattern, matching, others in (
        ("/any/.+", ["/any//", "/x/../any///../thing/../", "/any%2F%2f", "/any/;//", "/any/x/"], ["/any", "/any/", "/any/.", "/many//"]),
        ("/any/.*", ["/any/", "/any/.", "/any/x/..", "/any//", "/any%2F", "/any/?x"], ["/any", "/any?/"]),
        ("/login", ["/login", "/login/", "//login", "/login//", "/x//../login"], ["/login/x", "/logins"]),
        ("/files/[^/]+", ["/files/a", "/files/a/", "/files//a"], ["/files/", "/files//", "/files///", "/files/./", "/files/a//b"]),
    ):
        limited = rule(["0 per 1h"], match={"path": {"regex": pattern}})
        for path in matching + others:
            expect(verdicts(limited, (T0, {"path": path}))[0]["allowed"], path in others, f"{pattern}: {path}")
    for by in ("path", "route"):
        limited = rule(["2 per 1h"], by=by, match={"path": {"regex": "/any/.+"}})
        found = verdicts(limited, *((T0, {"path": "/any" + "/" * n}) for n in range(2, 9)))
        expect(allowed(found), "++-----", f"by {by}")
        found = verdicts(limited, *((T0, {"path": f"/J{n}%2F../any//"}) for n in range(5)))
        expect(allowed(found), "++---", f"by {by}: what a client can vary")


def test_names_with_an_encoded_slash():
    """They count apart, as they did when they were read in one way."""
    projects = rule(["2 per 1h"], by="path", match={"path": "/projects/*"})
    paths = ["/projects/a%2Fb", "/projects/a%2Fc", "/projects/a%2fb", "/projects/a%2fc", "/projects/a%2Fb", "/projects/a%2Fd"]
    expect(allowed(verdicts(projects, *((T0, {"path": path}) for path in paths))), "++++-+")


# ---- what the verdict says ----


def test_naming():
    three = [
        rule(["3 per 1h"], "a"),
        rule(["3 per 1h", {"name": "x", "max": 3, "per": "2h"}], "b"),
        rule(["9 per 1h"], "c"),
    ]
    found = verdicts(three, T0, T0, T0, T0, (T0, {"cost": 5}))
    expect([named(verdict) for verdict in found[:3]], [("a", "token_bucket")] * 3, "least remaining, ties in file order")
    expect(named(found[3]), ("b", "x"), "the longest wait")
    expect((named(found[4]), found[4]["retry_after_ms"]), (("a", "token_bucket"), -1), "never is the longest of all")


def test_microseconds_decide():
    rules = [
        rule([{"algorithm": "fixed_window", "max": 1, "per": "60s"}], name, match={"header": {"x-" + name: "1"}})
        for name in "ab"
    ]
    at = "2026-01-01T00:00:00.{:06}Z"
    found = verdicts(
        rules,
        (at.format(100), {"headers": {"X-A": "1"}}),
        (at.format(400), {"headers": {"X-B": "1"}}),
        (at.format(500), {"headers": {"X-A": "1", "X-B": "1"}}),
    )
    expect((named(found[2])[0], found[2]["retry_after_ms"]), ("b", 60_000))


def test_rounded_up():
    found = verdicts(rule([{"max": 3, "per": "1s"}]), *[T0] * 4, T0 + 333, T0 + 334)
    expect(allowed(found), "+++--+")
    expect(retries(found)[3:5], [334, 1])
    expect([verdict["reset_ms"] for verdict in found[:3]], [334, 667, 1000])
    sliding = rule([{"algorithm": "sliding_window", "max": 3, "per": "1s"}])
    # The window before had 3, and 1 + 1 more fit when at most a third of it is in view: 666.67 ms into this one.
    expect(retries(verdicts(sliding, T0, T0, T0, T0 + 1400, T0 + 1400)), [0, 0, 0, 0, 267])


def test_cost_and_peek():
    found = verdicts(
        rule(["5 per 50s"]),
        (T0, {"cost": 0}),
        (T0, {"cost": 6}),
        (T0, {"cost": 5, "peek": True}),
        (T0, {"cost": 4}),
        (T0, {"cost": 2}),
        (T0, {"cost": 2, "peek": True}),
        (T0, {"cost": 0}),
        (T0, {"cost": 1}),
        (T0, {"cost": 0}),
    )
    expect(allowed(found), "+-++--+++")
    expect([verdict["remaining"] for verdict in found], [5, 5, 5, 1, 1, 1, 1, 0, 0])
    expect(retries(found), [0, -1, 0, 0, 10_000, 10_000, 0, 0, 0])


def test_max_zero():
    for limit in ("0 per 1s", "0 per day", {"algorithm": "sliding_window", "max": 0, "per": "1s"}):
        found = verdicts(rule([limit]), T0, (T0, {"cost": 0}), (T0, {"peek": True}))
        expect((allowed(found), retries(found)), ("---", [-1, -1, -1]), str(limit))


def test_burst():
    found = verdicts(rule(["1 per 1s burst 3"]), *[T0] * 4, T0 + 999, T0 + 1000, T0 + 1000)
    expect(allowed(found), "+++--+-")
    expect(found[0]["max"], 3)
    expect(allowed(verdicts(rule(["1 per 60s"]), T0, T0 + 59_999, T0 + 60_000)), "+-+", "max 1 admits one")


def test_long_run():
    """7 in 1000 s: not one more in the long run, though 1000/7 is no whole number."""
    times = [T0 + step * 1000 for step in range(5000)]
    found = verdicts(rule([{"max": 7, "per": "1000s"}]), *times)
    expect(allowed(found).count("+"), 7 + 34, "7 at once, and 4999 s bring 34.99")


def test_largest_numbers():
    biggest = 4294967295
    for limit in (
        {"max": biggest, "per": "1ms"},
        {"max": biggest, "per": "3650d"},
        {"max": biggest, "calendar": "year"},
        {"max": biggest, "per": "3650d", "algorithm": "sliding_window"},
        {"max": biggest, "per": "3650d", "algorithm": "fixed_window"},
    ):
        found = verdicts(
            rule([limit]), (T0, {"cost": biggest - 1}), (T0, {"cost": 2}), (T0, {"cost": 1}), (T0, {"cost": 1})
        )
        expect((allowed(found), [verdict["remaining"] for verdict in found]), ("+-+-", [1, 1, 0, 0]), str(limit))


def test_many_limits_in_a_plan():
    rules = [
        rule([{"name": f"n{n}", "max": 1000 + n, "per": "1h"} for n in range(16)], f"r{number}") for number in range(100)
    ]
    rules[70]["limits"][9]["max"] = 3
    found = verdicts(rules, T0, T0, T0, T0)
    expect((allowed(found), named(found[3]), found[3]["retry_after_ms"]), ("+++-", ("r70", "n9"), 20 * MINUTE))


# ---- shadow, off, expires ----


def test_shadow():
    rules = [rule(["1 per 1h"], "trial", mode="shadow"), rule(["3 per 1h"], "real")]
    found = verdicts(rules, T0, T0, T0, T0)
    expect(allowed(found), "+++-")
    expect([verdict["shadow"] for verdict in found], [[], ["trial"], ["trial"], ["trial"]])
    expect({named(verdict)[0] for verdict in found}, {"real"})
    alone = verdicts(rules[:1], T0, T0)
    expect(
        [(verdict["allowed"], verdict["rule"], verdict["shadow"]) for verdict in alone],
        [(True, None, []), (True, None, ["trial"])],
    )
    # What the real rule refuses, the trial does not count.
    rules = [rule(["1 per 1h"], "real"), rule(["2 per 1h"], "trial", mode="shadow")]
    found = verdicts(rules, T0, T0, T0, T0 + HOUR, T0 + HOUR)
    expect([verdict["shadow"] for verdict in found], [[], [], [], [], []])


def test_off_and_expired():
    for mode in ("off", "false", '"off"', "Off"):
        text = f"rules:\n  - id: a\n    limits: 0 per 1s\n    mode: {mode}\n"
        expect(allowed(support.simulate(text, [{"t": T0}])), "+", f"{mode}: YAML reads it as false")
    for expires in ("2026-03-02T02:00:00Z", "2026-03-02T10:00:00+08:00", T0 // 1000 + 3600):
        found = verdicts(rule(["0 per 1s"], expires=expires), T0, T0 + HOUR - 1, T0 + HOUR, T0 + 2 * HOUR, T0)
        expect(allowed(found), "--++-", str(expires))


# ---- a change of rules ----


def new_rules(*rules):
    return {"t": T0, "set_rules": list(rules)}


def test_raised_and_lowered():
    for limit in (
        {"per": "1h"},
        {"per": "1h", "algorithm": "fixed_window"},
        {"per": "1h", "algorithm": "sliding_window"},
        {"calendar": "hour"},
    ):
        small, large = (rule([{"name": "n", "max": maximum, **limit}]) for maximum in (2, 5))
        found = verdicts(
            small, T0, T0, T0, new_rules(large), T0, T0, T0, T0, new_rules(small), T0, new_rules(large), (T0, {"cost": 0})
        )
        expect(allowed(found), "++-" + "+++-" + "-" + "+", str(limit))
        expect([verdict["remaining"] for verdict in found], [1, 0, 0, 2, 1, 0, 0, 0, 0], str(limit))


def test_other_rate():
    """What was used comes back at the new rate."""
    slow, fast = rule(["2 per 200s"]), rule(["20 per 200s burst 2"])
    found = verdicts(slow, T0, T0, T0, new_rules(fast), T0, T0 + 10_000, T0 + 10_000)
    expect((allowed(found), retries(found)[2:]), ("++--+-", [100_000, 10_000, 0, 10_000]))


def test_other_length():
    """A fixed window keeps its end; the next one has the new length."""

    def fixed(per):
        return rule([{"algorithm": "fixed_window", "max": 1, "per": per}])

    found = verdicts(
        fixed("60s"), T0, new_rules(fixed("10s")), T0 + 20_000, T0 + 59_999, T0 + 60_000, T0 + 69_999, T0 + 70_000
    )
    expect((allowed(found), retries(found)), ("+--+-+", [0, 40_000, 1, 0, 1, 0]))
    found = verdicts(fixed("10s"), T0, new_rules(fixed("60s")), T0 + 9_999, T0 + 10_000, T0 + 69_999, T0 + 70_000)
    expect(allowed(found), "+-+-+")


def test_afresh():
    first = rule([{"name": "n", "max": 1, "per": "1h"}], by="key")
    who = (T0, {"key": "k", "user": "k"})
    for other in (
        rule([{"name": "n", "max": 1, "per": "1h", "algorithm": "fixed_window"}], by="key"),
        rule([{"name": "m", "max": 1, "per": "1h"}], by="key"),
        rule([{"name": "n", "max": 1, "per": "1h"}], by="user"),
        rule([{"name": "n", "max": 1, "per": "1h"}], by=["key", "user"]),
        rule([{"name": "n", "max": 1, "per": "1h"}], "other", by="key"),
    ):
        found = verdicts(first, who, who, new_rules(other), who, who, new_rules(first), who)
        expect(allowed(found), "+-+--", f"{other}: counts for itself, and the old count is still there")


def test_settings_stay():
    """set_rules changes the rules alone."""
    first, second = (rule(["1 per 1h"], match={"path": path}, by="ip") for path in ("/A", "/B"))
    request = {"path": "/api/b", "peer": "10.0.0.1", "headers": {"X-Forwarded-For": "192.0.2.7"}}
    settings = {"ignore_case": True, "strip_prefixes": ["/api"], "trusted_proxies": ["10.0.0.0/8"]}
    found = verdicts(
        first, (T0, request), new_rules(second), (T0, request), (T0, {"path": "/B", "ip": "192.0.2.7"}), **settings
    )
    expect([(verdict["allowed"], verdict["rule"]) for verdict in found], [(True, None), (True, "r"), (False, "r")])


# ---- calendars ----


def test_skipped_midnight():
    day = rule([{"calendar": "day", "max": 1, "tz": "America/Sao_Paulo"}])
    expect(
        resets(day, "2018-11-04T02:59:59Z", "2018-11-04T03:00:00Z", "2018-11-05T01:59:59.999Z", "2018-11-05T02:00:00Z"),
        [1000, 23 * HOUR, 1, 24 * HOUR],
    )


def test_long_day_and_repeated_hour():
    day = rule([{"calendar": "day", "max": 1, "tz": "Europe/Berlin"}])
    expect(
        resets(day, "2024-10-27T00:00:00+02:00", "2024-03-31T00:00:00+01:00", "2024-10-27T23:59:59+01:00"),
        [25 * HOUR, 23 * HOUR, 1000],
    )
    hour = rule([{"calendar": "hour", "max": 1, "tz": "Europe/Berlin"}])
    found = verdicts(
        hour,
        *[
            f"2024-10-27T{time}"
            for time in ("02:30:00+02:00", "02:45:00+02:00", "02:00:00+01:00", "02:59:59+01:00", "03:00:00+01:00")
        ],
    )
    expect((allowed(found), retries(found)), ("+-+-+", [0, 15 * MINUTE, 0, 1000, 0]))


def test_half_hour_change():
    hour = rule([{"calendar": "hour", "max": 1, "tz": "Australia/Lord_Howe"}])
    expect(
        resets(
            hour,
            "2024-04-07T01:00:00+11:00",
            "2024-04-07T01:30:00+10:30",
            "2024-04-07T02:00:00+10:30",
            "2024-10-06T01:00:00+10:30",
            "2024-10-06T02:30:00+11:00",
            "2024-10-06T03:00:00+11:00",
        ),
        [60 * MINUTE, 30 * MINUTE, 60 * MINUTE, 60 * MINUTE, 30 * MINUTE, 60 * MINUTE],
    )


def test_odd_offsets():
    def left(unit, zone):
        return resets(rule([{"calendar": unit, "max": 1, "tz": zone}]), "2026-01-01T00:00:00Z")[0]

    expect(left("hour", "Asia/Kathmandu"), 15 * MINUTE)
    expect(left("hour", "Asia/Kolkata"), 30 * MINUTE)
    expect(left("day", "Asia/Kathmandu"), 18 * HOUR + 15 * MINUTE)
    expect(left("day", "Pacific/Chatham"), 10 * HOUR + 15 * MINUTE)
    expect(left("minute", "Asia/Kathmandu"), MINUTE)


def test_midnight_twice():
    """St. John's put its clock back at 00:01: the new day, once begun, goes on."""
    day = rule([{"calendar": "day", "max": 1, "tz": "America/St_Johns"}])
    expect(
        resets(
            day,
            "2005-10-29T23:59:59-02:30",
            "2005-10-30T00:00:30-02:30",
            "2005-10-29T23:30:00-03:30",
            "2005-10-30T00:00:00-03:30",
        ),
        [1000, 25 * HOUR - 30_000, 24 * HOUR + 30 * MINUTE, 24 * HOUR],
    )


def test_skipped_date():
    """Samoa had no 2011-12-30."""
    day = rule([{"calendar": "day", "max": 1, "tz": "Pacific/Apia"}])
    expect(resets(day, "2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00"), [12 * HOUR, 24 * HOUR])


def test_weeks_months_years():
    def left(limit, time):
        return resets(rule([{"max": 1, **limit}]), time)[0]

    expect(left({"calendar": "week"}, "2026-03-04T00:00:00Z"), 5 * DAY, "Wednesday to Monday")
    expect(left({"calendar": "week", "week_start": "sunday"}, "2026-03-04T00:00:00Z"), 4 * DAY)
    expect(left({"calendar": "week", "week_start": "wednesday"}, "2026-03-04T00:00:00Z"), 7 * DAY)
    expect(
        left({"calendar": "week", "tz": "America/New_York"}, "2026-03-02T00:00:00-05:00"),
        7 * DAY - HOUR,
        "summer time begins",
    )
    expect(left({"calendar": "month"}, "2024-02-01T00:00:00Z"), 29 * DAY)
    expect(left({"calendar": "month"}, "2100-02-01T00:00:00Z"), 28 * DAY)
    expect(left({"calendar": "month", "tz": "Asia/Tokyo"}, "2026-04-30T15:00:00Z"), 31 * DAY)
    expect(left({"calendar": "year"}, "2024-01-01T00:00:00Z"), 366 * DAY)
    expect(left({"calendar": "year", "tz": "Pacific/Kiritimati"}, "2025-12-31T10:00:00Z"), 365 * DAY)


# ---- clocks ----

KINDS = {
    "bucket": {"per": "1h"},
    "fixed": {"per": "1h", "algorithm": "fixed_window"},
    "sliding": {"per": "1h", "algorithm": "sliding_window"},
    "calendar": {"calendar": "hour"},
}


def test_back_a_little():
    """The cell's time does not go back: nothing is given twice, and the wait is counted from the clock that we have."""
    for kind, limit in KINDS.items():
        found = verdicts(rule([{"max": 2, **limit}]), T0, T0 - 10 * MINUTE, T0 - 10 * MINUTE, T0)
        expect(allowed(found), "++--", kind)
        expect(retries(found)[2] - retries(found)[3], 10 * MINUTE, kind)


# After which one of two passes.
WAITS = {"bucket": 30 * MINUTE, "fixed": HOUR, "sliding": 90 * MINUTE, "calendar": HOUR}


def test_back_much():
    """The clock was wrong before: what was used is kept, and nobody waits for longer than a period."""
    for kind, limit in KINDS.items():
        found = verdicts(
            rule([{"max": 2, **limit}]), T0 + 2400 * HOUR, T0 + 2400 * HOUR, T0, T0 + WAITS[kind] - 1, T0 + WAITS[kind]
        )
        expect(allowed(found), "++--+", kind)
        expect(retries(found)[2:4], [WAITS[kind], 1], kind)


def test_back_to_the_same_time():
    """The second time it looks like a stale caller, which uses up what is left at T0. A period later the clock is believed."""
    back, believed = T0 - 10 * HOUR, T0 - 9 * HOUR
    for kind, limit in KINDS.items():
        after = believed - 1, believed, believed + WAITS[kind] - 1, believed + WAITS[kind]
        found = verdicts(rule([{"max": 2, **limit}]), T0, T0, back, T0, back, back, T0, *after)
        expect(allowed(found), "++-++--" + "---+", kind)
        expect(retries(found)[8:10], [WAITS[kind], 1], kind)


def test_back_a_period():
    """Up to a period is little, more is much."""
    for kind, limit in KINDS.items():
        wait = 2 * HOUR if kind == "sliding" else HOUR
        found = verdicts(rule([{"max": 1, **limit}]), T0, T0 - HOUR, T0 - HOUR - 1)
        expect(allowed(found), "+--", kind)
        expect(retries(found)[1], wait + HOUR, kind)
        expect(retries(found)[2], 1 if kind == "calendar" else wait, kind)


def test_forward():
    for kind, limit in KINDS.items():
        found = verdicts(rule([{"max": 2, **limit}]), T0, T0, T0, T0 + 24 * HOUR, T0 + 24 * HOUR, T0 + 24 * HOUR)
        expect(allowed(found), "++-++-", kind)


def test_ends_of_time():
    for kind, limit in KINDS.items():
        found = verdicts(rule([{"max": 1, **limit}]), 0, 0, "2112-09-17T23:53:47Z", "2112-09-17T23:53:47Z")
        expect(allowed(found), "+-+-", kind)
