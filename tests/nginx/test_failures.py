"""weir … status=: only responses with some statuses count, such as failed logins."""

import concurrent.futures

from support import expect, until
from support.gateway import Gateway

HTTP = """
weir_zone main 1m rules=@FOLDER@/rules.yaml;
weir_zone failures 1m rules=@FOLDER@/failures.yaml;
"""
PASS = "proxy_pass http://@BACKEND@;"
SERVER = f"""
add_header X-Left $weir_remaining always;
add_header X-Rule $weir_rule always;
location / {{ weir failures status=401,403; {PASS} }}
location /both/ {{ weir main; weir failures status=4xx; weir_after cost=7; {PASS} }}
location /page/ {{ weir failures status=401; proxy_intercept_errors on; error_page 401 /sorry; {PASS} }}
location /other/ {{ weir failures status=401; proxy_intercept_errors on; error_page 401 =200 /sorry; {PASS} }}
location = /sorry {{ return 200 "sorry"; }}
location /auth/ {{ weir failures status=401; auth_request /decide; {PASS} }}
location = /decide {{ internal; proxy_pass http://@BACKEND@/decide; }}
location /dear/ {{ weir failures status=401 cost=2; {PASS} }}
location /dry/ {{ weir failures status=401; weir_dry_run on; {PASS} }}
"""
RULES = {
    "rules": """
rules:
  - { id: all, by: path, limits: [ { algorithm: fixed_window, max: 1000, per: 1h } ] }
""",
    "failures": """
rules:
  - id: failures
    by: path
    limits: [ { algorithm: fixed_window, max: 5, per: 15m } ]
    reject: { status: 403 }
""",
}
g = Gateway(http=HTTP, server=SERVER, rules=RULES)


def ask(path, status):
    g.backend.answers[path] = (status, {}, b"")
    return g.ask(path)


def left(path, number, status=200):
    """The count is there a moment after the response."""
    until(lambda: ask(path, status).headers["X-Left"] == str(number), f"{path}: {number} left")


def fail(path, times, status=401):
    """Each failure is counted before the next attempt."""
    for i in range(times):
        expect(ask(path, status).status, status, f"{path}: attempt {i + 1}")
        left(path, 4 - i)


def test_the_sixth_attempt():
    for status in (401, 403):
        path = f"/login{status}"
        for _ in range(20):
            expect(ask(path, 200).headers["X-Left"], "5", "a success costs nothing")
        for i in range(5):
            answer = ask(path, status)
            expect((answer.status, answer.headers["X-Left"]), (status, str(5 - i)), "an attempt")
            if i < 4:
                left(path, 4 - i)
        until(lambda: ask(path, 200).status == 403, "the right password does not help any more")
        g.backend.paths()
        answer = ask(path, status)
        expect((answer.status, answer.headers["X-Rule"], answer.headers["X-Left"]), (403, "failures", "0"), "the sixth is refused")
        expect(0 < int(answer.headers["Retry-After"]) <= 900, True, "until the window is over")
        expect(g.backend.paths(), [], "the upstream does not see it")
    expect(ask("/login-of-another", 200).status, 200, "another subject")


def test_refusals_are_no_failures():
    """A refusal has the status 403 itself, and is not charged: otherwise nobody would get in again."""
    fail("/refused", 4)
    ask("/refused", 401)
    until(lambda: ask("/refused", 200).status == 403, "used up")
    for _ in range(20):
        expect(ask("/refused", 200).status, 403)
    g.write_rules(RULES["failures"].replace("max: 5", "max: 6"), "failures")
    until(lambda: ask("/refused", 200).headers["X-Left"] == "1", "5 were counted, not 25")
    g.write_rules(RULES["failures"], "failures")
    until(lambda: ask("/refused", 200).status == 403, "as before")


def test_other_zones():
    """Another zone of the location charges as it always does; weir_after is not for the zone with status=."""
    left("/both/x", 5)
    fail("/both/x", 1, 404)
    left("/both/x", 4)


def test_error_pages():
    """The status is the one that the client gets."""
    fail("/page/x", 4)
    ask("/page/x", 401)
    until(lambda: ask("/page/x", 200).status == 403, "used up")
    for _ in range(20):
        expect(ask("/other/x", 401).headers["X-Left"], "5", "=200 makes a success of it")


def test_access_control():
    """401 by nginx itself, after weir has looked."""
    g.backend.answers["/auth/x"] = (200, {}, b"")
    g.backend.answers["/decide"] = (200, {}, b"")
    for _ in range(10):
        expect(g.ask("/auth/x").headers["X-Left"], "5")
    g.backend.answers["/decide"] = (401, {}, b"")
    for _ in range(5):
        g.ask("/auth/x")
    g.backend.answers["/decide"] = (200, {}, b"")
    until(lambda: g.ask("/auth/x").status == 403, "five refusals of access")


def test_costs():
    """What has to fit is what will be charged."""
    expect(ask("/dear/x", 401).status, 401)
    left("/dear/x", 3)
    expect(ask("/dear/x", 401).status, 401)
    until(lambda: ask("/dear/x", 200).status == 403, "1 is left, and 2 do not fit")


def test_dry_run():
    for _ in range(5):
        expect(ask("/dry/x", 401).status, 401)
    left("/dry/x", 0)
    for _ in range(5):
        expect(ask("/dry/x", 401).status, 401, "nothing is refused")


def test_at_once():
    """Attempts that run at the same time all pass; afterwards all of them are counted."""
    g.backend.answers["/burst"] = (401, {}, b"")
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        statuses = list(pool.map(lambda _: g.ask("/burst").status, range(30)))
    expect(statuses.count(401) >= 5, True, statuses)
    until(lambda: ask("/burst", 200).status == 403, "used up")


def test_configuration():
    for words, wanted in (
        ("status=", "weir: `status=`: `` is not a status; write numbers from 100 to 599 and classes such as 4xx"),
        ("status=401 status=403", "weir: `status=` is given twice"),
        ("status=$status", "weir: `status=$status`: `$status` is not a status"),
    ):
        status, said = g.test_config(server=f"location / {{ weir failures {words}; }}")
        expect((status, wanted in said), (1, True), said)
