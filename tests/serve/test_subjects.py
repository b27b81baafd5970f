"""GET /v1/subjects and PUT /v1/penalties: what one subject has used, and penalising it."""

import contextlib
import urllib.parse

from support import expect, has, until, weir
from support.contract import Checked
from support.store import Store

RULES = """
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits:
      - { name: day, algorithm: fixed_window, max: 10, per: 24h }
      - { name: tokens, calendar: month, max: 1000, unit: tokens }
      - { name: burst, max: 100, per: 1h }
      - { name: slots, concurrent: 5, ttl: 1h }
  - id: login
    match: { path: /login }
    by: [ip]
    limits: [ { name: m, algorithm: fixed_window, max: 1000, per: 24h } ]
    penalty: { after: 3, within: 1m, for: 10s, grow: 2, most: 1h }
  - { id: tried, match: { event: tried }, by: [key], mode: shadow, limits: [ "5 per 1h" ], penalty: { after: 3, within: 1m, for: 10s } }
  - id: planned
    match: { event: planned }
    by: [user]
    plan: key
    plans: { free: "2 per day", pro: "20 per day" }
    limits: [ "1 per day" ]
  - { id: pair, match: { event: pair }, by: [user, "header:X-Tenant"], limits: [ { name: d, algorithm: sliding_window, max: 9, per: 24h } ] }
  - { id: all, match: { event: all }, limits: [ { name: d, algorithm: fixed_window, max: 7, per: 24h } ] }
overrides:
  - { rule: ocr, by: { key: partner }, limits: { name: day, algorithm: fixed_window, max: 50, per: 24h }, why: "contract 7", expires: 2040-01-01T00:00:00Z }
  - { rule: ocr, by: { key: gone }, deny: true, expires: 2020-01-01T00:00:00Z }
  - { rule: ocr, by: { key: bad }, deny: true }
  - { rule: login, by: { ip: 198.51.100.1 }, unlimited: true }
"""


def query(rule, *by, **more):
    return urllib.parse.urlencode([("rule", rule), *(("by", value) for value in by), *more.items()])


def look(s, rule, *by, **more):
    answer = s.steer("GET", "/v1/subjects?" + query(rule, *by, **more))
    expect(answer.status, 200, answer.body)
    return answer.json()


def limit(document, name):
    return next(one for one in document["limits"] if one["name"] == name)


def refused(s, status, query_text, *parts):
    answer = s.steer("GET", "/v1/subjects" + query_text)
    expect(answer.status, status, answer.body)
    has(answer.json()["error"], *parts)


def penalise(s, rule, *by, length="15m", **more):
    return s.steer("PUT", "/v1/penalties?" + query(rule, *by), {"for": length}, **more)


@contextlib.contextmanager
def running(*flags, rules=RULES):
    with Checked(*flags, rules=rules) as s:
        yield s


# ---- looking ----


def test_local_subject():
    with running() as s:
        unused = look(s, "ocr", "u1")
        expect(unused["by"], [{"name": "key", "value": "u1"}])
        expect((unused["subject"], unused["plans"], unused["plan"], unused["override"], unused["counters"]),
               ("u1", [], None, None, "local"))
        for one in unused["limits"]:
            expect((one["used"], one["lasts_ms"], one["reset_ms"], one["on_hold"], one["known"], one["fits"]),
                   (0, None, 0, 0, True, True), one["name"])
        for _ in range(4):
            expect(s.check(event="ocr", key="u1", costs={"requests": 1, "tokens": 100}).status, 200)
        held = s.ask(s.http, "POST", "/v1/reserve", '{"event":"ocr","key":"u1","ttl_ms":3600000,"costs":{"requests":2,"tokens":500}}',
                     {"Content-Type": "application/json"})
        expect(held.status, 200, held.body)
        for _ in range(2):
            found = look(s, "ocr", "u1")
            day, tokens, burst, slots = (limit(found, name) for name in ("day", "tokens", "burst", "slots"))
            expect((day["used"], day["remaining"], day["on_hold"]), (6, 4, 2), "charges nothing")
            expect((tokens["used"], tokens["remaining"], tokens["on_hold"], tokens["unit"]), (900, 100, 500, "tokens"))
            expect(tokens["window_ends"] is not None, True)
            expect((slots["used"], slots["on_hold"], slots["lasts_ms"], burst["lasts_ms"]), (5, 5, None, None))
            # Six in the time since the first of them, which counts as a second at least: what is left lasts as long.
            expect(0 < day["lasts_ms"] < day["reset_ms"], True, str(day))
        while s.check(event="ocr", key="u1").status == 200:
            pass
        s.ask(s.http, "POST", "/v1/settle", '{"hold":"%s"}' % held.json()["hold"], {"Content-Type": "application/json"})


def test_nothing_left():
    with running() as s:
        for _ in range(7):
            expect(s.check(event="all").status, 200)
        expect(s.check(event="all").status, 429)
        found = look(s, "all")
        expect((found["by"], found["subject"]), ([], None))
        one = limit(found, "d")
        expect((one["used"], one["remaining"], one["lasts_ms"], one["fits"]), (7, 0, 0, False))
        expect(0 < one["retry_after_ms"] <= 24 * 3600_000, True)
        expect(s.steer("DELETE", "/v1/subjects?rule=all").status, 204)
        expect(limit(look(s, "all"), "d")["used"], 0)


def test_values_are_counted_as_those_of_requests():
    with running() as s:
        s.check(path="/login", ip="2001:db8::7")
        found = look(s, "login", "2001:db8:0:0::1")
        expect(found["by"][0]["value"], "2001:db8::/64")
        expect((limit(found, "m")["used"], found["subject"]), (1, "2001:db8::/64"))
        expect(limit(look(s, "login", "2001:db8::/64"), "m")["used"], 1, "as it was shown")


def test_plans_and_overrides():
    with running() as s:
        s.check(event="planned", user="ann", key="pro")
        found = look(s, "planned", "ann")
        expect((found["plans"], found["plan"], found["limits"][0]["max"]), (["free", "pro"], None, 1))
        found = look(s, "planned", "ann", plan="pro")
        expect((found["plan"], found["limits"][0]["max"], found["limits"][0]["used"]), ("pro", 20, 1))
        refused(s, 400, "?rule=planned&by=ann&plan=gold", "has no plan `gold`")
        refused(s, 400, "?rule=ocr&by=ann&plan=gold", "has no plan `gold`")

        found = look(s, "ocr", "partner")
        expect(found["override"], {"kind": "limits", "expires": "2040-01-01T00:00:00Z", "why": "contract 7"})
        expect([(one["name"], one["max"]) for one in found["limits"]], [("day", 50)])
        expect(look(s, "ocr", "gone")["override"], None, "it has expired")
        bad = look(s, "ocr", "bad")
        expect((bad["override"]["kind"], bad["limits"][0]["max"], bad["limits"][0]["fits"]), ("deny", 0, False))
        free = look(s, "login", "198.51.100.1")
        expect((free["override"]["kind"], free["limits"], free["penalty"]["penalised"]), ("unlimited", [], False))


HOSTILE = ["a,b", "50%", "%2C", "<img src=x onerror=alert(1)>", "\"'\\", "日本", "a&by=b", "x" * 1024, " ", "+", "\x01\x7f"]


def test_hostile_values():
    with running() as s:
        for value in HOSTILE:
            expect(s.check(event="ocr", key=value).status, 200, value)
            found = look(s, "ocr", value)
            expect((found["by"][0]["value"], limit(found, "day")["used"]), (value, 1), value)
            expect(s.steer("DELETE", "/v1/subjects?" + query("ocr", value)).status, 204, value)
            expect(limit(look(s, "ocr", value), "day")["used"], 0, value)
        s.check(event="pair", user="a,b", headers={"X-Tenant": "50%"})
        found = look(s, "pair", "a,b", "50%")
        expect((found["subject"], limit(found, "d")["used"]), ("a%2Cb,50%25", 1))
        for method in ("GET", "DELETE"):
            expect(s.steer(method, "/v1/subjects?rule=ocr&by=a%00b").status, 400, "NUL")
        expect(s.steer("PUT", "/v1/penalties?rule=login&by=%00", {"for": "1m"}).status, 400)
        look(s, "ocr", "x" * 5000)
        s.steer("GET", "/v1/subjects?rule=ocr&by=%ff%fe")


def test_errors():
    with running() as s:
        refused(s, 404, "?rule=nope&by=a", "no rule `nope`")
        refused(s, 400, "?rule=ocr", "counts by key: give 1 value, not 0")
        refused(s, 400, "?rule=ocr&by=a&by=b", "not 2")
        refused(s, 400, "?rule=login&by=nonsense", "not a valid value")
        refused(s, 400, "?rule=ocr&by=a&colour=red", "unknown parameter")
        refused(s, 400, "?by=a", "which rule and subject")
        refused(s, 400, "?rule=" + "r" * 300 + "&by=a", "which rule and subject")
        refused(s, 400, "?rule=ocr" + "&by=a" * 9, "which rule and subject")


# ---- in a store ----

SHARED = """
rules:
  - { id: exact, match: { event: exact }, by: [key], limits: [ { name: d, algorithm: fixed_window, max: 10, per: 24h }, { name: s, algorithm: sliding_window, max: 50, per: 24h } ] }
  - { id: leased, match: { event: leased }, by: [key], lease: true, limits: [ { name: d, algorithm: fixed_window, max: 1000, per: 24h } ] }
  - { id: here, match: { event: here }, by: [key], counters: local, limits: [ { name: d, algorithm: fixed_window, max: 10, per: 24h } ] }
overrides:
  - { rule: exact, by: { key: bad }, deny: true }
"""


def test_in_a_store():
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Store())
        nodes = [stack.enter_context(running("--counters", store.address, "--store-deadline", "10s", rules=SHARED)) for _ in range(2)]
        for s in nodes:
            until(lambda s=s: s.steer("GET", "/v1/status").json()["store"]["up"], "the store is reached")
        for s in nodes:
            for _ in range(3):
                expect(s.check(event="exact", key="a,%").status, 200)
        for s in nodes:
            for _ in range(2):
                found = look(s, "exact", "a,%")
                expect(found["counters"], "shared")
                day, slide = limit(found, "d"), limit(found, "s")
                expect((day["used"], day["known"], day["on_hold"], slide["used"]), (6, True, None, 6))
                expect(day["lasts_ms"] is not None, True, str(day))
        for s in nodes:
            expect(s.check(event="leased", key="b").status, 200)
            expect(limit(look(s, "leased", "c"), "d")["used"], 0, "nobody asked for it")
        lent = limit(look(nodes[0], "leased", "b"), "d")
        expect(lent["known"] and lent["used"] >= 2 and lent["remaining"] < 1000, True, str(lent))
        expect(look(nodes[0], "exact", "bad")["override"]["kind"], "deny")
        nodes[0].check(event="here", key="k")
        expect((limit(look(nodes[0], "here", "k"), "d")["used"], limit(look(nodes[1], "here", "k"), "d")["used"]), (1, 0))
        found = [(one["rule"], one["used"]) for one in find(nodes[0], "k")["subjects"]]
        expect(found, [("exact", None), ("leased", None), ("here", True)], "the store is not asked")

        store.kill()
        for s in nodes:
            until(lambda s=s: not s.steer("GET", "/v1/status").json()["store"]["up"], "the store is gone")
            for rule in ("exact", "leased"):
                one = look(s, rule, "a,%")["limits"][0]
                expect((one["known"], one["lasts_ms"]), (False, None), rule)
            expect(limit(look(s, "here", "k"), "d")["known"], True)


def test_a_store_that_does_not_answer():
    """The answer says so after the deadline, and what comes late does no harm."""
    with Store() as store, running("--counters", store.address, "--store-deadline", "50ms", rules=SHARED) as s:
        until(lambda: s.steer("GET", "/v1/status").json()["store"]["up"], "the store is reached")
        s.check(event="exact", key="a")
        store.pause()
        try:
            expect(limit(look(s, "exact", "a"), "d")["known"], False)
        finally:
            store.go_on()
        until(lambda: limit(look(s, "exact", "a"), "d")["known"], "it answers again")


# ---- finding ----


def find(s, value, **more):
    answer = s.steer("GET", "/v1/subjects/find?" + urllib.parse.urlencode({"value": value, **more}))
    expect(answer.status, 200, answer.body)
    return answer.json()


def test_found_without_a_rule():
    with running() as s:
        expect(find(s, "ann"), {"subjects": [], "after": None}, "nobody knows ann")
        s.check(event="ocr", key="ann")
        s.check(event="planned", user="ann", key="pro")
        s.check(event="pair", user="ann", headers={"X-Tenant": "ann"})
        found = find(s, "ann")
        expect([(one["rule"], one["by"], one["used"], one["penalised"], one["overridden"]) for one in found["subjects"]],
               [("ocr", [{"name": "key", "value": "ann"}], True, False, False), ("planned", [{"name": "user", "value": "ann"}], True, False, False)])
        page = find(s, "ann", most=1)
        expect(([one["rule"] for one in page["subjects"]], page["after"]), (["ocr"], "ocr"))
        page = find(s, "ann", most=1, after=page["after"])
        expect(([one["rule"] for one in page["subjects"]], page["after"]), (["planned"], None))
        expect(find(s, "ann", after="planned")["subjects"], [])
        expect([(one["rule"], one["used"], one["overridden"]) for one in find(s, "partner")["subjects"]], [("ocr", False, True)])
        expect(find(s, "gone")["subjects"], [], "its override has expired")
        expect(penalise(s, "login", "203.0.113.9").status, 204)
        expect([(one["rule"], one["used"], one["penalised"]) for one in find(s, "203.0.113.9")["subjects"]], [("login", False, True)])
        expect([one["by"][0]["value"] for one in find(s, "198.51.100.1")["subjects"]], ["198.51.100.1"])
        for value in ("<img>", "\"\\", "x" * 2000, "/a/b", "日", "::1/129"):
            find(s, value)
        for more, status in (("", 400), ("?value=", 400), ("?value=%00", 400), ("?value=a&x=1", 400), ("?value=a&most=0", 400),
                             ("?value=a&most=1001", 400), ("?value=a&after=nope", 404)):
            expect(s.steer("GET", "/v1/subjects/find" + more).status, status, more)


# ---- penalties ----


def test_penalised_by_hand():
    with running() as s:
        answer = penalise(s, "login", "203.0.113.9", headers={"X-Weir-Author": "ann"})
        expect(answer.status, 204, answer.body)
        found = s.steer("GET", "/v1/penalties").json()
        expect([(p["rule"], p["by"], p["level"]) for p in found["penalties"]],
               [("login", [{"name": "ip", "value": "203.0.113.9"}], 1)], "listed at once")
        expect(890_000 < found["penalties"][0]["rest_ms"] <= 900_000, True, "longer than the rule's own")
        verdict = s.check(path="/login", ip="203.0.113.9").json()
        expect((verdict["allowed"], verdict["penalty"]), (False, True))
        expect(890_000 < verdict["retry_after_ms"] <= 900_000, True, str(verdict))
        penalty = look(s, "login", "203.0.113.9")["penalty"]
        expect((penalty["penalised"], penalty["level"], penalty["until"] is not None), (True, 1, True))
        expect(s.check(path="/login", ip="203.0.113.10").status, 200, "somebody else")

        expect(penalise(s, "login", "203.0.113.9", length="31d").status, 204, "again, for longer")
        found = s.steer("GET", "/v1/penalties").json()["penalties"]
        expect((len(found), found[0]["level"]), (1, 1), "it is the same penalty")
        expect(30 * 86400_000 < found[0]["rest_ms"] <= 31 * 86400_000, True, str(found))
        expect(s.steer("DELETE", "/v1/penalties?rule=login&by=203.0.113.9").status, 204)
        expect(s.check(path="/login", ip="203.0.113.9").status, 200)
        expect(s.steer("GET", "/v1/penalties").json()["penalties"], [])
        changes = "\n".join(line["message"] for line in s.events("change"))
        has(changes, 'rule login: penalty of ip="203.0.113.9" begun for 15 min by ann from ', "lifted by admin api")


def test_who_cannot_be_penalised():
    with running() as s:
        for rule, by, part in (("ocr", "a", "rule ocr has no `penalty`"), ("tried", "a", "not in mode enforce"),
                               ("login", "198.51.100.1", "makes this subject unlimited")):
            answer = penalise(s, rule, by)
            expect(answer.status, 409, answer.body)
            has(answer.json()["error"], part)
            has(answer.json()["hint"], "deny", "expires")
        expect(penalise(s, "nope", "a").status, 404)
        expect(penalise(s, "login", "x").status, 400)
        expect(penalise(s, "login").status, 400)
        for length in ("0s", "999ms", "32d", "31d1s", "-1s", "", "1w", "15", None, 15, []):
            expect(penalise(s, "login", "203.0.113.9", length=length).status, 400, str(length))
        path = "/v1/penalties?" + query("login", "203.0.113.9")
        for body in ("", "{", "[]", '{"for":"1m","x":1}', '{"for":"1m","for":"2m"}', '"1m"', "{}"):
            expect(s.steer("PUT", path, body).status, 400, body)
        expect(s.steer("PUT", path, '{"for":"1m"}', {"Content-Type": "text/plain"}).status, 415)
        expect(s.steer("GET", "/v1/penalties").json()["penalties"], [])
        for length in ("1s", "1000ms", " 31d "):
            expect(penalise(s, "login", "203.0.113.9", length=length).status, 204, length)


def test_penalties_survive_a_restart():
    with running() as s:
        expect(penalise(s, "login", "203.0.113.9").status, 204)
        s.kill()
        s.start()
        expect(s.check(path="/login", ip="203.0.113.9").json()["penalty"], True)
        s.write_rules(RULES.replace("for: 10s, grow: 2, most: 1h", "for: 5s, grow: 3, most: 20m"))
        until(lambda: "5s" in str(s.steer("GET", "/v1/rules/login").json()), "the new rules")
        rest = look(s, "login", "203.0.113.9")["penalty"]["rest_ms"]
        expect(rest > 60_000, True, f"its own length, not the rule's: {rest}")


def where(place):
    return f"unix:{place}" if isinstance(place, str) else f"{place[0]}:{place[1]}"


def cli(s, verb, *words):
    return weir("rules", verb, *words, "--admin", where(s.admin), "--data", s.data)


def test_command():
    with running() as s:
        done = cli(s, "penalise", "login", "203.0.113.9", "--for", "15m")
        expect((done.returncode, done.stdout), (0, b"login, 203.0.113.9: penalised for 15 min\n"), done.stderr.decode())
        expect(s.check(path="/login", ip="203.0.113.9").json()["penalty"], True)
        lifted = cli(s, "lift", "login", "203.0.113.9")
        expect((lifted.returncode, lifted.stdout), (0, b"login, 203.0.113.9: the penalty is lifted\n"), lifted.stderr.decode())
        failed = cli(s, "penalise", "ocr", "a", "--for", "15m")
        expect((failed.returncode, failed.stdout), (2, b""))
        has(failed.stderr.decode(), "rule ocr has no `penalty`", "deny")
        expect(cli(s, "penalise", "nope", "a", "--for", "15m").returncode, 1)
        expect(cli(s, "penalise", "login", "203.0.113.9").returncode, 2, "how long?")
        expect(cli(s, "penalise", "login", "203.0.113.9", "--for", "often").returncode, 2)
        expect(cli(s, "lift", "login", "203.0.113.9", "--for", "1m").returncode, 2, "it takes no length")
