"""The page, in a real browser against a real service: what people do there, end to end."""

import json
import os
import time

import pytest

import support
from support import BUILD, expect, has, until
from support.browser import Browser, By
from support.service import Service

SHOTS = os.path.join(BUILD, "page")
RULES = {
    "ocr": {"match": {"event": "ocr"}, "by": ["key"], "limits": [{"name": "hour", "algorithm": "fixed_window", "max": 3, "per": "1h"},
                                                                {"name": "day", "max": 100, "per": "day", "tz": "Asia/Shanghai"}]},
    "login": {"match": {"method": "POST", "path": "/login"}, "by": ["ip"], "limits": ["2 per 1h"], "penalty": {"after": 3, "within": "1m", "for": "5m"}},
    "careful": {"match": {"event": "ocr"}, "by": ["key"], "limits": ["1 per 1h"], "mode": "shadow"},
    "plans": {"match": {"event": "chat"}, "by": ["user"], "plan": "header:X-Plan", "plans": {"free": "10 per day", "pro": "1000 per day"}, "limits": "5 per day"},
    "budget": {"match": {"event": "ocr"}, "limits": [{"name": "month", "max": 5000, "per": "month", "tz": "Asia/Shanghai"}]},
}
HOSTILE = '<img src=x onerror="document.title=\'run\'">'


@pytest.fixture(scope="module")
def served():
    """One service for the cases of this file; each has rules and subjects of its own."""
    with Service("--sample", "10000", "--sample-values", "plain", rules=None) as s:
        for name in ("entity-bundle", "per-address", "upload"):
            s.steer("DELETE", f"/v1/rules/{name}")
        for name, rule in RULES.items():
            answer = s.steer("PUT", f"/v1/rules/{name}", rule)
            expect(answer.status in (200, 201), True, answer.body)
        for i in range(40):
            s.check(event="ocr", key=f"u{i % 5}")
        yield s


@pytest.fixture(scope="module")
def window():
    with Browser() as b:
        yield b


@pytest.fixture
def page(served, window):
    """Signed in as an administrator; nothing is left on the console at the end."""
    window.driver.delete_all_cookies()
    window.errors()
    window.sign_in(served)
    yield window
    expect([one for one in window.errors() if "status of 4" not in one], [], "the console")


def token(s, role):
    with open(os.path.join(s.data, f"{role}-token"), encoding="ascii") as file:
        return file.read().strip()


def shot(page, name):
    os.makedirs(SHOTS, exist_ok=True)
    page.screenshot(os.path.join(SHOTS, f"{name}.png"))


def view(page, hash_part, *texts):
    page.go(hash_part)
    page.see(*texts)


# ---- signing in ----


def test_signing_in_and_out(served, window):
    window.driver.delete_all_cookies()
    window.open(served)
    window.fill("Token", "wrong-token-wrong-token")
    window.click("Sign in")
    window.see("This token is not valid.")
    window.fill("Token", served.token)
    window.fill("Your name", "Zoë")
    window.click("Sign in")
    window.see("Busiest rules", "Zoë (admin)")
    has(json.dumps(served.events("session"), ensure_ascii=False), "signed in with the admin token by Zoë")
    cookie = window.driver.get_cookies()[0]
    expect((cookie["httpOnly"], cookie["sameSite"]), (True, "Strict"))
    expect(served.token in cookie["value"], False, "the cookie is not the token")
    expect(window.driver.execute_script("return document.cookie"), "")
    window.driver.refresh()
    window.see("Busiest rules")
    window.click("Sign out")
    window.see("You are signed out.")
    window.driver.add_cookie({"name": cookie["name"], "value": cookie["value"]})
    window.driver.refresh()
    window.see("Sign in to weir")


def test_headers_of_the_page(served):
    for path, kind in (("/", "text/html"), ("/ui/main.js", "text/javascript"), ("/ui/style.css", "text/css")):
        answer = served.ask(served.admin, "GET", path)
        expect(answer.status, 200)
        has(answer.headers["Content-Type"], kind)
        has(answer.headers["Content-Security-Policy"], "default-src 'none'", "script-src 'self'", "frame-ancestors 'none'")
        expect("unsafe" in answer.headers["Content-Security-Policy"], False)
        expect(answer.headers["X-Frame-Options"], "DENY")
        again = served.ask(served.admin, "GET", path, None, {"If-None-Match": answer.headers["ETag"]})
        expect((again.status, again.body), (304, b""))
    expect(served.ask(served.admin, "GET", "/ui/none.js").status, 404)
    expect(served.ask(served.admin, "GET", "/ui/..%2fmain.js").status, 404)
    expect(served.steer("POST", "/ui/main.js").status, 405)


# ---- now ----


def test_now_is_live(served, page):
    page.see("Busiest rules", "Passed", "Refused", "Table")

    def passed():
        return page.find(".tile.passed strong")[0].text

    until(lambda: passed() == "0", "nothing is asked")
    stop = time.monotonic() + 20
    while time.monotonic() < stop and passed() in ("0", "–"):
        for i in range(50):
            served.check(event="chat", user=f"n{i}")
        time.sleep(0.1)
    expect(passed() in ("0", "–"), False, "the tile shows what was asked, without reloading")
    page.see("plans")
    shot(page, "now")
    page.click("Day")
    page.see("The last day")
    page.click("Month")
    page.see("The last month")
    page.click("Figures")
    expect(len(page.find(".figures tbody tr")) > 5, True)


# ---- who ----


def test_who_is_refused_and_what_to_do(served, page):
    for _ in range(9):
        served.check(event="ocr", key="greedy")
    view(page, "#/refused", "key=greedy", "ocr")
    shot(page, "refused")
    page.click("Hour")
    page.see("key=greedy")
    page.click("key=greedy")
    page.see("3 of 3 used", "100 per day (Asia/Shanghai)", "Asia/Shanghai)")
    shot(page, "subject")
    page.click("Set free…")
    page.fill("Why", "they called — ü")
    page.click("Set free", within=page.dialog)
    page.see("set free", "0 of 3 used")
    expect(served.check(event="ocr", key="greedy").json()["allowed"], True)
    page.click("Override…")
    page.see("replaces all limits of this rule")
    expect(page.label("Limits").get_attribute("value"), "{ name: hour, algorithm: fixed_window, max: 3, per: 1h }\n{ name: day, max: 100, per: day, tz: Asia/Shanghai }")
    page.fill("Limits", "0 per hour")
    page.see("this refuses everything")
    page.fill("Limits", "2,000 per day (Asia/Shanghai)\n{ name: hour, max: 5, per: 1h }\n7 per 1m")
    page.click("Save")
    page.see("Has an override: 2,000 per day (Asia/Shanghai)")
    row = served.steer("GET", "/v1/rules/ocr/overrides/greedy").json()
    expect(row["override"]["limits"], [{"max": 2000, "per": "day", "tz": "Asia/Shanghai"}, {"name": "hour", "max": 5, "per": "1h"}, "7 per 1m"])
    view(page, "#/rules", "overrides")
    view(page, "#/refused/ocr/greedy", "Has an override")
    page.click("Remove the override…")
    page.click("Remove", within=page.dialog)
    page.gone("Has an override")
    page.click("Override…")
    page.fill("Limits", "50 per hour")
    page.driver.execute_script("arguments[0].value = '2037-01-02T03:04'", page.label("Until"))
    page.fill("Why", "a good customer")
    page.click("Save")
    page.see("Has an override: 50 per hour", "2037-01-02 03:04", "a good customer")
    row = served.steer("GET", "/v1/rules/ocr/overrides/greedy").json()
    expect(row["override"]["expires"], "2037-01-02T02:04:00Z", "typed in Berlin")
    page.click("Change the override…")
    page.fill("Limits", "60 per hour")
    page.click("Save")
    page.see("Has an override: 60 per hour", "2037-01-02 03:04")
    page.click("Remove the override…")
    page.click("Remove", within=page.dialog)
    page.gone("Has an override")


def test_penalties(served, page):
    view(page, "#/refused/login/192.0.2.7", "2 per 1h")
    page.click("Penalise…")
    page.fill("For", "an hour")
    page.fill("Why", "abuse")
    page.click("Penalise", within=page.dialog)
    page.see("Penalised until")
    expect(served.check(method="POST", path="/login", ip="192.0.2.7").json()["allowed"], False)
    view(page, "#/refused", "ip=192.0.2.7")
    page.click("ip=192.0.2.7")
    page.click("Lift the penalty…")
    page.fill("Why", "paid")
    page.click("Lift", within=page.dialog)
    page.gone("Penalised until")
    expect(served.check(method="POST", path="/login", ip="192.0.2.7").json()["allowed"], True)
    view(page, "#/changes", "penalise 192.0.2.7 of login for 1 h", "lift the penalty of 192.0.2.7 of login", "cannot be undone")
    events = [(one["what"], one["note"]) for one in served.steer("GET", "/v1/history?most=20").json()["events"] if one["rule"] == "login"]
    expect(events[:2], [("lift", "paid"), ("penalise", "abuse")])
    view(page, "#/refused/ocr/192.0.2.7", "Penalise needs a rule with penalty")
    expect(page.button("Penalise…").is_enabled(), False)


def test_looking_up_a_subject(served, page):
    served.steer("PUT", "/v1/rules/pair", {"match": {"event": "pair"}, "by": ["user", "ip"], "limits": "5 per 1h"})
    served.check(event="ocr", key="sought")
    served.check(event="pair", user="a,b", ip="192.0.2.9")
    view(page, "#/refused", "Look up in all rules")
    page.find("[aria-label='Look up a subject']")[0].send_keys("sought\n")
    page.see("Rules that know sought", "key=sought", "has used something")
    view(page, "#/plans", "Look up a subject")
    page.fill("Rule", "pair")
    page.fill("user", "a,b")
    page.fill("ip", "192.0.2.9")
    page.click("Show what is used and left")
    page.see("user=a,b, ip=192.0.2.9", "1 of 5 used")
    served.steer("DELETE", "/v1/rules/pair")


def test_a_subject_in_its_plan(served, page):
    """The limits are those of the plan that the refusal had, and asking why has the plan again."""
    for _ in range(12):
        served.check(event="chat", user="planned", headers={"X-Plan": "free"})
    view(page, "#/why", "user=planned", "plan free")
    page.click("user=planned")
    page.see("plan free", "10 per day", "10 of 10 used")
    page.click("no plan")
    page.see("the rule's own limits", "5 per day")
    view(page, "#/why", "user=planned")
    page.click("Why?", within=lambda: next(one for one in page.find("tr") if "user=planned" in one.text))
    page.see("It would be refused by plans", "plan free", "10 of 10 used")


# ---- rules ----


def test_a_rule_is_changed_reviewed_and_undone(served, page):
    view(page, "#/rules", "ocr", "3 per 1h fixed_window", "shadow")
    shot(page, "rules")
    page.click("ocr")
    page.see("What it says", "History")
    shot(page, "rule")
    page.click("Edit…")
    page.see("Which requests")
    box = page.label("At most")
    box.clear()
    box.send_keys("-4")
    page.see("must be a whole number from 0 to 9007199254740991, not -4")
    error = page.find(".field.wrong .error")[0]
    expect(error.find_element(By.XPATH, "..").find_element(By.TAG_NAME, "label").text, "At most", "the error is beside its field")
    shot(page, "edit")
    box.clear()
    box.send_keys("4")
    until(lambda: not page.find(".field.wrong"), "the error is gone")
    page.click("Review…")
    until(lambda: page.find(".diff .added", page.dialog()), "the review")
    has(page.find(".diff .added", page.dialog())[0].text, "max: 4")
    has(page.find(".diff .removed", page.dialog())[0].text, "max: 3")
    shot(page, "review")
    expect(served.steer("GET", "/v1/rules/ocr").json()["rule"]["limits"][0]["max"], 3, "a review changes nothing")
    page.fill("Why", "one more for everybody — “ünïcödé”")
    page.click("Save")
    page.see("ocr is in force", "4 per 1h", "one more for everybody — “ünïcödé”")
    row = served.steer("GET", "/v1/rules/ocr").json()
    expect((row["rule"]["limits"][0]["max"], row["updated_by"], row["note"]), (4, "Zoë", "one more for everybody — “ünïcödé”"))
    page.click("Undo", within=lambda: page.find("section.card table")[-1])
    page.see("This would change:")
    has(page.find(".diff .added", page.dialog())[0].text, "max: 3")
    page.click("Cancel", within=page.dialog)
    expect(served.steer("GET", "/v1/rules/ocr").json()["rule"]["limits"][0]["max"], 4, "it asks first")
    page.click("Undo", within=lambda: page.find("section.card table")[-1])
    page.click("Undo", within=page.dialog)
    page.see("3 per 1h fixed_window", "changed again by #")
    expect(served.steer("GET", "/v1/rules/ocr").json()["rule"]["limits"][0]["max"], 3)


def test_the_period_says_how_it_is_counted(served, page):
    view(page, "#/rules", "New rule…")
    page.click("New rule…")
    page.fill("Id", "periods")
    page.fill("Event", "periods")
    page.fill("in", "day")
    until(lambda: page.label("counted as").get_attribute("value") == "calendar", "a day is one of the calendar")
    page.fill("time zone", "Asia/Shanghai")
    page.click("Review…")
    page.see("100 per day (Asia/Shanghai)")
    page.click("Back")
    page.fill("counted as", "refills evenly")
    until(lambda: page.label("in").get_attribute("value") == "1d", "24 hours of any time")
    page.click("Review…")
    page.see("Save")
    page.click("Save")
    page.see("periods is in force")
    expect(served.steer("GET", "/v1/rules/periods").json()["rule"]["limits"], [{"max": 100, "per": "1d", "algorithm": "token_bucket"}])
    served.steer("DELETE", "/v1/rules/periods")


def test_a_period_typed_key_by_key(served, page):
    """What stands in the field between two periods, such as "mont", takes nothing away."""
    served.steer("PUT", "/v1/rules/zoned", {"match": {"event": "zoned"}, "limits": [{"max": 7, "per": "day", "tz": "Asia/Shanghai"}, {"max": 9, "per": "1h", "algorithm": "fixed_window"}]})
    view(page, "#/rule/zoned", "What it does")
    page.click("Edit…")
    first, second = (one for one in page.find("dialog .field input") if one.get_attribute("value") in ("day", "1h"))
    first.send_keys("\ue003" * 3 + "month")
    second.send_keys("\ue003" * 2 + "day")
    second.send_keys("\ue003" * 3 + "2h")
    page.click("Review…")
    page.see("7 per month (Asia/Shanghai)")
    page.click("Save")
    page.see("zoned is in force")
    expect(served.steer("GET", "/v1/rules/zoned").json()["rule"]["limits"],
           [{"max": 7, "per": "month", "tz": "Asia/Shanghai"}, {"max": 9, "per": "2h", "algorithm": "fixed_window"}])
    served.steer("DELETE", "/v1/rules/zoned")


def test_back_to_the_edit(served, page):
    """To see what it would have done costs nothing of what was typed; nor does Escape."""
    served.steer("PUT", "/v1/rules/thought", {"match": {"event": "thought"}, "limits": [{"max": 1, "per": "1h"}]})
    view(page, "#/rule/thought", "What it does")
    page.click("Edit…")
    page.click("YAML")
    text = page.find("textarea.code")[0]
    text.clear()
    text.send_keys("# of the meeting\nid: thought\nmatch: { event: thought }\nlimits: [{ max: 9, per: 1h }]\n")
    page.click("Review…")
    page.click("What would it have done?")
    page.see("Your edit of thought is not saved.")
    page.click("Back to my edit")
    page.see("Edit thought")
    has(page.find("dialog textarea.code")[0].get_attribute("value"), "# of the meeting", "max: 9")
    for _ in range(2):
        page.driver.switch_to.active_element.send_keys("\ue00c")
        page.see("Drop your changes?")
        page.click("Cancel")
        page.gone("Drop your changes?")
    page.click("Review…")
    page.click("Save")
    page.see("thought is in force", "What it says")
    view(page, "#/what-if", "Run")
    expect("Back to my edit" in page.text(), False)
    served.steer("DELETE", "/v1/rules/thought")


def test_back_asks_before_an_edit_is_lost(served, page):
    view(page, "#/rules", "New rule…")
    view(page, "#/rule/budget", "What it does")
    unload = "return window.dispatchEvent(new Event('beforeunload', { cancelable: true }))"
    page.click("Edit…")
    page.see("Edit budget")
    expect(page.driver.execute_script(unload), True, "nothing is typed")
    page.fill("At most", "4999")
    expect(page.driver.execute_script(unload), False, "the browser asks")
    for leave in (page.driver.back, lambda: page.go("#/rules")):
        leave()
        page.see("Drop your changes?")
        page.click("Cancel", within=page.dialog)
        page.gone("Drop your changes?")
        page.see("Edit budget")
        expect(page.label("At most").get_attribute("value"), "4999")
        has(page.driver.current_url, "#/rule/budget")
    page.go("#/rules")
    page.click("Drop them")
    page.see("New rule…")
    expect(page.find("dialog"), [])
    has(page.driver.current_url, "#/rules")
    expect(page.driver.execute_script(unload), True)
    expect(served.steer("GET", "/v1/rules/budget").json()["rule"]["limits"][0]["max"], 5000)


def test_a_rule_is_written_as_yaml(served, page):
    view(page, "#/rules", "New rule…")
    page.click("New rule…")
    page.fill("Id", "from-yaml")
    page.click("YAML")
    text = page.find("textarea.code")[0]
    text.clear()
    text.send_keys("id: from-yaml\nmatch: { event: [oops }\n")
    page.see("not YAML or JSON")
    text.clear()
    text.send_keys("id: from-yaml\nmatch: { event: y }\nby: [key]\nlimits:\n- { name: n, max: 7, per: 1m }\n- { concurrent: 3, ttl: 10s }\n")
    page.gone("not YAML or JSON")
    page.click("Review…")
    page.see("by key")
    page.click("Save")
    page.see("from-yaml is in force")
    expect(served.steer("GET", "/v1/rules/from-yaml").json()["rule"]["limits"][1], {"concurrent": 3, "ttl": "10s"})


def test_what_is_reviewed_is_what_is_saved(served, page):
    """Also for somebody who clicks faster than the page checks, and who types on while it checks."""
    served.steer("PUT", "/v1/rules/quick", {"match": {"event": "quick"}, "limits": [{"max": 1, "per": "1h"}]})
    at_once = """const box = arguments[0]; box.value = arguments[1]; box.dispatchEvent(new Event("input", {bubbles: true}));
        [...document.querySelectorAll("dialog button")].find((one) => one.textContent === "Review…").click();"""
    # The check of what is typed first takes until something else is typed.
    on_and_on = """const [box, first, second] = arguments, slow = window.fetch; let checks = 0;
        const type = (text) => (box.value = text, box.dispatchEvent(new Event("input", {bubbles: true})));
        window.fetch = async (...call) => {
          const answer = await slow(...call);
          if (String(call[0]).includes("lint") && checks++ === 0) type(second);
          return answer;
        };
        type(first);
        [...document.querySelectorAll("dialog button")].find((one) => one.textContent === "Review…").click();"""
    text = "id: quick\nmatch: { event: quick }\nlimits: [{ max: %d, per: 1h }]\n"
    for tab, script, values, most in (("Form", at_once, ("22",), 22), ("YAML", at_once, (text % 33,), 33),
                                      ("Form", on_and_on, ("40", "44"), 44), ("YAML", on_and_on, (text % 50, text % 55), 55)):
        view(page, "#/rule/quick", "What it does")
        page.driver.refresh()
        page.see("What it does")
        page.click("Edit…")
        page.click(tab)
        until(lambda: page.find("dialog textarea.code" if tab == "YAML" else "dialog [type=number]"), "it is there")
        page.driver.execute_script(script, page.find("textarea.code")[0] if tab == "YAML" else page.label("At most"), *values)
        page.see("What would it have done?")
        has(page.find(".diff .added", page.dialog())[0].text, f"max: {most}")
        page.click("Save")
        page.see("quick is in force")
        expect(served.steer("GET", "/v1/rules/quick").json()["rule"]["limits"][0]["max"], most, tab)


EVERYTHING = {
    "match": {"event": ["a", "b,c"], "path": ["/a", "/b"], "header": {"X-Plan": ["free"]}, "ip": "10.0.0.0/8", "host": "a.example", "user": {"not": "bob"}},
    "ignore_case": True, "by": ["user", "header:X-T"], "plan": "header:X-Plan", "plans": {"free": [{"max": 1, "per": "1h"}]},
    "limits": [{"name": "n", "max": 5, "per": "1m", "burst": 7, "unit": "tokens"}, {"concurrent": 3, "ttl": "10s"}, "7 per day",
               {"calendar": "week", "max": 9, "tz": "Europe/Berlin", "week_start": "sunday"},
               {"name": "w", "max": 3, "per": "1h", "algorithm": "sliding_window", "overdraft": True}],
    "expires": "2037-01-02T03:04:05Z", "except": {"ip": ["127.0.0.1"], "user": "root \u202e"}, "reject": {"status": 503, "body": "no", "headers": {"X-A": "b"}},
    "counters": "local", "penalty": {"after": 3, "within": "1m", "for": "5m"}, "hold_max": "50%",
}


def test_the_form_keeps_what_it_does_not_show(served, page):
    answer = served.steer("PUT", "/v1/rules/everything", EVERYTHING)
    expect(answer.status, 201, answer.body)
    view(page, "#/rule/everything", "What it says")
    page.click("Edit…")
    page.see('Event: set in YAML (["a","b,c"])', "match.header", "hold_max", "also, in YAML: burst, unit")
    page.fill("At most", "6")
    page.click("YAML")
    page.see("Edit everything")
    page.click("Form")
    page.see("Which requests")
    page.click("Review…")
    page.see("What would it have done?")
    page.click("Save")
    page.see("everything is in force")
    wanted = {**EVERYTHING, "limits": [{**EVERYTHING["limits"][0], "max": 6}, *EVERYTHING["limits"][1:]]}
    expect(served.steer("GET", "/v1/rules/everything").json()["rule"], {"id": "everything", **wanted})
    served.steer("DELETE", "/v1/rules/everything")


def test_rules_of_a_file(window):
    """They are not changed here, and the page says why. What is wrong with them is shown as it happens."""
    text = "rules: [{ id: filed, match: { event: f }, by: [key], limits: ['3 per 1h'] }]\noverrides: [{ rule: filed, by: { key: k }, deny: true }]\n"
    with Service(rules=text) as s:
        window.sign_in(s)
        view(window, "#/rule/filed", "a file that weir only reads", s.rules_file, "refuse everything")
        expect([name for name in ("Edit…", "Remove", "Throttle…", "Add an override…") if name in window.text()], [])
        view(window, "#/changes", "A file has no history here")
        view(window, "#/", "1 rule")
        os.rename(s.rules_file, s.rules_file + ".away")
        window.see("is unreachable")
        os.rename(s.rules_file + ".away", s.rules_file)
        window.gone("is unreachable")
        s.write_rules(text.replace("deny: true", "deny: 5"))
        window.see("1 row of the rules has a problem")
        window.click("Show them")
        window.see("deny: must be true")
        window.errors()


def test_throttle_in_three_clicks(served, page):
    view(page, "#/rules", "login")
    row = next(one for one in page.find("tbody tr") if "login" in one.text)
    page.click("Throttle…", within=row)  # one
    page.see("Throttle a call")
    expect(page.label("Which").get_attribute("value"), "POST /login")
    page.click("Throttle", within=page.dialog)  # two
    page.see("throttle-post-login-", "is in force")
    until(lambda: page.driver.switch_to.active_element.get_attribute("aria-label") == "Throttle… login", "one is where one was")
    [rule] = [row["rule"] for row in served.steer("GET", "/v1/rules?q=throttle-post-login").json()["rules"]]
    expect((rule["match"], rule["by"], rule["limits"]), ({"method": "POST", "path": "/login"}, ["ip"], [{"max": 10, "per": "1m"}]))


def test_throttle_from_every_row(served, page):
    """A row has the button, or the head above it; changes of settings belong to no call."""
    served.steer("PUT", "/v1/rules/rows", {"match": {"event": "rows"}, "by": ["key"], "limits": ["1 per 1h"], "penalty": {"after": 3, "within": "1m", "for": "5m"}})
    served.steer("PUT", "/v1/rules/rows/overrides/other", {"limits": ["50 per hour"], "expires": "2037-01-02T03:04:05Z"})
    for _ in range(9):
        served.check(event="rows", key="rowed")
    missing = """const has = (one) => one?.textContent.includes("Throttle…"), head = document.querySelector("main > .head");
        return [...document.querySelectorAll("main tbody tr")].filter((row) => !row.closest(".figures") && row.checkVisibility())
          .filter((row) => !has(row) && !has(row.closest(".card").querySelector(".head")) && !has(head) && !row.textContent.includes(" setting "))
          .map((row) => row.textContent)"""
    for hash_part, text in (("#/", "Busiest"), ("#/refused", "Penalised"), ("#/refused/rows/rowed", "Limits"), ("#/rules", "login"), ("#/rule/rows", "other"),
                            ("#/why?event=ocr&key=u1", "It would"), ("#/plans", "other"), ("#/changes", "Undo"), ("#/what-if", "Run")):
        view(page, hash_part, text)
        if hash_part.startswith("#/why"):
            page.click(next(one.text for one in page.find("summary") if "not apply" in one.text))
            page.see("why not")
        if hash_part == "#/what-if":
            text = page.find("textarea.code")[0]
            text.clear()
            text.send_keys("id: rows\nmatch: { event: rows }\nby: [key]\nlimits: [0 per 1h]\n")
            page.click("Run")
            page.see("The first requests that change")
        expect(page.driver.execute_script(missing), [], hash_part)
    served.steer("DELETE", "/v1/rules/rows/overrides/other")
    served.steer("DELETE", "/v1/rules/rows")


def throttles(s):
    return {row["id"]: row["rule"] for row in s.steer("GET", "/v1/rules?q=throttle-").json()["rules"]}


def test_a_throttle_is_of_its_call_alone(served, page):
    """What the form cannot show is kept, other calls have other rules, and the same call again is asked about."""
    narrow = {"match": {"path": "/数据", "host": "a.example", "method": ["GET", "PUT"]}, "by": ["header:X-Tenant"], "limits": "5 per 1h"}
    served.steer("PUT", "/v1/rules/narrow", narrow)
    before = throttles(served)
    view(page, "#/rules?q=narrow", "narrow")
    page.click("Throttle…")
    page.see("Requests that match")
    page.click("Throttle", within=page.dialog)
    page.see("is in force")
    [(first, rule)] = [(name, rule) for name, rule in throttles(served).items() if name not in before]
    expect((rule["match"], rule["by"]), (narrow["match"], narrow["by"]))
    page.click("Throttle…", within=lambda: next(one for one in page.find("tr") if "narrow" in one.text))
    page.fill("At most", "3")
    page.click("Throttle", within=page.dialog)
    page.see("limits this call already")
    page.click("Replace")
    until(lambda: throttles(served)[first]["limits"] == [{"max": 3, "per": "1m"}], "it is replaced")
    view(page, "#/rules", "Throttle a call…")
    for call in ("GET /a/b", "GET /a-b", "GET /用户"):
        page.click("Throttle a call…")
        page.fill("Which", call)
        page.click("Throttle", within=page.dialog)
        page.gone("How long")
    until(lambda: len(throttles(served)) == len(before) + 4, "each call has a rule of its own")


def test_switching_and_removing(served, page):
    served.steer("PUT", "/v1/rules/brief", {"match": {"event": "b"}, "limits": "1 per 1h"})
    view(page, "#/rule/brief", "What it does")
    page.click("Only count (shadow)…")
    page.fill("Why", "to look")
    page.click("Only count", within=page.dialog)
    page.see("Enforce")
    expect(served.steer("GET", "/v1/rules/brief").json()["state"], "shadow")
    page.click("Disable…")
    page.fill("Why", "too loud")
    page.click("Disable", within=page.dialog)
    page.see("Enable")
    expect(served.steer("GET", "/v1/rules/brief").json()["state"], "disabled")
    page.click("Remove…")
    page.fill("Why", "not needed")
    page.click("Remove", within=page.dialog)
    page.see("brief is removed")
    expect(served.steer("GET", "/v1/rules/brief").status, 404)
    view(page, "#/changes", "remove brief")
    page.click("Undo", within=lambda: page.find("tbody tr")[0])
    page.fill("Why", "needed")
    page.click("Undo", within=page.dialog)
    until(lambda: served.steer("GET", "/v1/rules/brief").status == 200, "it is back")
    notes = [one["note"] for one in served.steer("GET", "/v1/history?most=20").json()["events"] if one["rule"] == "brief"]
    expect(notes[:4], ["needed", "not needed", "too loud", "to look"])
    shot(page, "changes")


def test_two_people_and_one_rule(served, page):
    served.steer("PUT", "/v1/rules/ours", {"match": {"event": "o"}, "limits": [{"max": 1, "per": "1h"}]})
    view(page, "#/rule/ours", "What it does")
    page.click("Edit…")
    page.fill("At most", "50")
    with Browser() as other:
        other.sign_in(served, hash_part="#/rule/ours")
        other.see("What it does")
        other.click("Edit…")
        other.fill("At most", "20")
        other.click("Review…")
        other.click("Save")
        other.see("ours is in force")
    page.click("Review…")
    page.see("has changed ours since you opened it. Nothing of yours is lost.")
    has(page.text(), "max: 50", "max: 20")
    shot(page, "conflict")
    expect(served.steer("GET", "/v1/rules/ours").json()["rule"]["limits"][0]["max"], 20)
    page.click("Save mine over theirs")
    page.see("ours is in force")
    expect(served.steer("GET", "/v1/rules/ours").json()["rule"]["limits"][0]["max"], 50)
    expect(len(served.steer("GET", "/v1/rules/ours/history").json()["events"]), 3, "all of it is in the history")


def test_overrides_of_a_rule(served, page):
    view(page, "#/rule/ocr", "Add an override…")
    page.click("Add an override…")
    page.fill("Subject", "bad,guy%")
    page.fill("It gets", "refuse everything")
    page.click("Save")
    page.see("bad,guy%", "refuse everything")
    view(page, "#/plans", "bad,guy%", "refuse everything", "until it is removed")
    view(page, "#/rule/ocr", "bad,guy%")
    expect(served.check(event="ocr", key="bad,guy%").json()["allowed"], False)
    page.click("Add an override…")
    page.fill("Subject", "bad,guy%")
    page.fill("It gets", "no limit")
    page.click("Save")
    page.see("exists already")
    page.click("Close")
    page.click("Remove", within=lambda: next(one for one in page.find("tr") if "bad,guy%" in one.text and "refuse everything" in one.text))
    page.click("Remove", within=page.dialog)
    page.see("Every subject has the limits of the rule.")
    expect(served.steer("GET", "/v1/rules/ocr/overrides/bad%2Cguy%25").status, 404)


# ---- why, what if, plans ----


def test_an_override_of_given_limits_begins_empty(served, page):
    expect(served.steer("PUT", "/v1/rules/given", {"match": {"event": "given"}, "by": ["user"], "limits": "given"}).status, 201)
    view(page, "#/refused/given/u1", "Override…")
    page.click("Override…")
    page.see("replaces all limits of this rule")
    expect(page.label("Limits").get_attribute("value"), "")
    served.steer("DELETE", "/v1/rules/given")
    view(page, "#/refused?find=u1&after=nobody", "Rules that know u1")


def test_why(served, page):
    view(page, "#/why", "Explain")
    page.fill("event", "ocr")
    page.fill("key", "asked")
    page.click("Explain")
    page.see("It would pass", "0 of 3 used", "rules do not apply")
    for _ in range(5):
        served.check(event="ocr", key="refused-one")
    view(page, "#/why", "Recent refusals", "key=refused-one")
    page.click("Why?", within=lambda: next(one for one in page.find("tr") if "refused-one" in one.text))
    page.see("It would be refused by ocr, limit hour")
    shot(page, "why")
    served.steer("PUT", "/v1/rules/never", {"match": {"event": "never"}, "limits": "0 per 1h"})
    view(page, "#/why?event=never", "It would be refused by never", "no wait will help")
    expect("retry in" in page.find(".banner[role=status]")[0].text, False)
    served.steer("DELETE", "/v1/rules/never")


def test_what_if(served, page):
    for i in range(30):
        served.check(event="ocr", key=f"w{i % 3}")
    view(page, "#/what-if", "The sample has")
    text = page.find("textarea.code")[0]
    text.clear()
    text.send_keys("id: ocr\nmatch: { event: ocr }\nby: [key]\nlimits: [1 per 1h]\n")
    page.click("Run")
    page.see("As it is", "As it would be", "more requests would be refused")
    shot(page, "what-if")


def test_what_if_with_a_log(served, page):
    log = os.path.join(served.data, "access.log")
    line = '192.0.2.{} - - [17/Nov/2026:10:00:{:02} +0000] "GET /a HTTP/1.1" 200 1 "-" "-"\n'
    with open(log, "w", encoding="ascii") as out:
        out.write("".join(line.format(i % 2, i) for i in range(50)))
    view(page, "#/what-if", "Access log")
    page.label("Access log or JSON Lines").send_keys(log)
    text = page.find("textarea.code")[0]
    text.clear()
    text.send_keys("id: new\nmatch: { path: /a }\nby: [ip]\nlimits: [{ algorithm: fixed_window, max: 5, per: 1h }]\n")
    page.click("Run")
    page.see("40 more requests would be refused", "50 requests")


def test_plans_and_budgets(served, page):
    view(page, "#/plans", "free", "10 per day", "pro", "budget", "of 5,000 used")
    shot(page, "plans")
    page.fill("Subject", "u1")
    page.fill("Rule", "ocr")
    page.click("Show what is used and left")
    page.see("3 of 3 used")


# ---- roles ----


def test_roles(served, window):
    window.driver.delete_all_cookies()
    window.sign_in(served, token(served, "read"), "#/rule/ocr")
    window.see("What it says")
    for name in ("Edit…", "Disable", "Remove…", "Undo", "Add an override…"):
        expect(name in window.text(), False, name)
    done = window.driver.execute_async_script(
        "const done = arguments[0]; fetch('/v1/rules/ocr', {method: 'DELETE'}).then((r) => done(r.status))")
    expect(done, 403, "the service decides, not the page")
    window.click("Sign out")
    window.sign_in(served, token(served, "operate"), "#/rule/ocr")
    window.see("What it says", "Add an override…")
    expect("Edit…" in window.text(), False)
    window.errors()


def test_a_session_that_ends_while_one_edits(served, page):
    served.steer("PUT", "/v1/rules/late", {"match": {"event": "late"}, "limits": [{"max": 1, "per": "1h"}]})
    view(page, "#/rule/late", "What it does")
    page.click("Edit…")
    page.see("Which requests")
    page.driver.delete_all_cookies()
    # At once: the page may notice at any time, and asks above the field.
    page.driver.execute_script("arguments[0].value = '77'; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))", page.label("At most"))
    page.see("Your session is over")
    page.fill("Token", served.token)
    page.click("Sign in")
    page.gone("Your session is over")
    page.click("Review…")
    page.click("Save")
    page.see("late is in force")
    expect(served.steer("GET", "/v1/rules/late").json()["rule"]["limits"][0]["max"], 77)


def test_signing_in_again_keeps_what_was_typed(served, page):
    view(page, "#/what-if", "Run")
    page.fill("The rule as it would be", "id: typed\nmatch: { event: ocr }\nlimits: [1 per 1h]\n")
    page.driver.delete_all_cookies()
    page.click("Run")
    page.see("Your session is over")
    page.fill("Token", token(served, "operate"))
    page.click("Sign in")
    page.gone("Your session is over")
    page.see("(operate)")
    has(page.label("The rule as it would be").get_attribute("value"), "id: typed")
    page.click("Run")
    page.see("As it would be", "more requests would be refused")


def test_a_late_answer_leaves_another_view_alone(served, page):
    served.steer("PUT", "/v1/rules/slow", {"match": {"event": "slow"}, "limits": "1 per 1h"})
    view(page, "#/rule/slow", "What it does")
    page.driver.execute_script("""const real = window.fetch, held = new Promise((go) => (window.release = go));
        window.fetch = async (where, options) => (options?.method === "PATCH" && (await held), real(where, options))""")
    page.click("Only count (shadow)…")
    page.click("Only count", within=page.dialog)
    view(page, "#/what-if", "Run")
    page.fill("The rule as it would be", "id: typed")
    page.driver.execute_script("window.release()")
    page.see("in force")
    view_of = page.driver.execute_async_script("const done = arguments[0]; setTimeout(() => done(document.querySelector('h1').textContent), 300)")
    expect((view_of, page.label("The rule as it would be").get_attribute("value")), ("What if", "id: typed"))
    served.steer("DELETE", "/v1/rules/slow")


def test_what_is_cut_is_shown_and_not_acted_upon(served, page):
    served.steer("PUT", "/v1/rules/tenants", {"match": {"event": "t"}, "by": ["header:X-Tenant"], "limits": "1 per 1h"})
    for _ in range(5):
        served.check(event="t", headers={"X-Tenant": "acme-corporation"})
    view(page, "#/refused?rule=tenants", "acme…", "(only the beginning is kept)")
    expect([one.text for one in page.find("td a") if "acme" in one.text], [])
    view(page, "#/why", "Recent refusals", "acme…")
    page.click("Why?", within=lambda: next(one for one in page.find("tr") if "acme" in one.text))
    page.see("weir keeps no headers")


# ---- hostile names ----


def test_hostile_names_are_texts(served, page):
    for _ in range(9):
        served.check(event="ocr", key=HOSTILE)
    name = "x%3Cscript%3Ealert(1)%3C%2Fscript%3E"
    answer = served.steer("PUT", f"/v1/rules/{name}", {"match": {"event": HOSTILE}, "limits": "1 per 1h"}, {"X-Weir-Note": HOSTILE})
    expect(answer.status in (200, 201), True, answer.body)
    for hash_part, text in (("#/refused", f"key={HOSTILE}"), ("#/rules", "<script>alert(1)</script>"), (f"#/rule/{name}", HOSTILE),
                            ("#/changes", HOSTILE), ("#/why", HOSTILE)):
        view(page, hash_part, text)
        expect(page.driver.title.startswith("run"), False)
        expect(page.find("main img"), [])
    view(page, "#/refused", f"key={HOSTILE}")
    page.click(f"key={HOSTILE}")
    page.see("3 of 3 used", HOSTILE)
    # What nobody sees, and what turns others around, is seen; what is long stays short.
    for key in ("\u202eadmin", "ad\u200bmin", "L" * 8000):
        for _ in range(5):
            served.check(event="ocr", key=key)
    view(page, "#/refused?most=1000", "key=⟨U+202E⟩admin", "key=ad⟨U+200B⟩min", "(only the beginning is kept)")
    expect("L" * 200 in page.text(), False)
    page.click("key=⟨U+202E⟩admin")
    page.see("3 of 3 used")
    page.click("Override…")
    page.fill("It gets", "refuse everything")
    page.click("Save")
    page.see("Has an override")
    expect(served.check(event="ocr", key="\u202eadmin").json()["allowed"], False)
    served.steer("DELETE", "/v1/rules/ocr/overrides/%E2%80%AEadmin")
    served.steer("DELETE", f"/v1/rules/{name}")


# ---- restarts ----


def test_the_service_restarts_under_the_page():
    with Service(rules=None) as s:
        s.flags += ["--admin", f"127.0.0.1:{s.admin[1]}"]
        with Browser() as b:
            b.sign_in(s)
            b.see("Busiest rules")
            b.see("curl -i http://127.0.0.1:")
            s.stop()
            b.see("weir does not answer")
            s.start()
            b.gone("weir does not answer")
            b.see("Busiest rules", "admin")
            until(lambda: b.find(".tile.passed strong")[0].text == "0", "it is live again")
            b.go("#/rules")
            b.see("per-address")
            s.stop()
            b.see("weir does not answer: it may be restarting.")
            b.go("#/rule/per-address")
            b.see("This cannot be shown")
            s.start()
            b.see("What it says")
            b.gone("weir does not answer")
            b.click("Edit…")
            s.stop()
            b.click("YAML")
            b.find("dialog textarea.code")[0].send_keys("# typed while it was down")
            b.click("Review…")
            b.see("nothing was changed")
            expect("look whether" in b.text(), False)
            b.find("dialog textarea.code")[0].send_keys("\ue00c")
            b.see("Drop your changes?")


def test_names_that_a_restart_forgets():
    """Who was refused is not known any more, that somebody was is."""
    with Service("--keep-subjects", "no") as s, Browser() as b:
        for _ in range(30):
            s.check(event="ocr", key="forgotten")
        s.restart()
        until(lambda: sum(one or 0 for one in s.steer("GET", "/v1/counts?last=1h&step=5m").json()["all"]["refused"]) > 0, "they are counted")
        b.sign_in(s, hash_part="#/refused?last=1h")
        b.see("No names are known", "were counted in the last hour", "Names are known since")
        view(b, "#/refused", "Nobody was refused in the last minute", "were counted in the last hour")


def test_names_that_are_no_rules(served, page):
    """Calls of CL.THROTTLE have no rule and no view of a subject: nothing leads there."""
    with served.socket(served.resp) as client:
        client.sendall(b"CL.THROTTLE bare 0 1 3600\r\n" * 4 + b"QUIT\r\n")
        while client.recv(4096):
            pass
    view(page, "#/refused?rule=(cl.throttle)", "key=bare")
    row = next(one for one in page.find("tbody tr") if "key=bare" in one.text)
    expect(page.find("a, button", row), [])


# ---- many ----


def test_what_is_not_counted_is_not_zero():
    """A rule that is not among the busiest of a step is counted together with others: nothing is known of it alone."""
    rules = [{"id": f"crowd-{i:03}", "match": {"event": "crowd"}, "limits": "9 per day"} for i in range(300)]
    with Service(rules=None) as s, Browser() as b:
        text = os.path.join(s.data, "crowd.json")
        with open(text, "w", encoding="utf-8") as out:
            json.dump({"rules": rules}, out)
        done = support.weir("rules", "import", text, "--from", f"sqlite:{s.data}/rules.db")
        expect(done.returncode, 0, done.stderr)
        until(lambda: s.steer("GET", "/v1/status").json()["rules"]["count"] >= 300, "they are in force")
        s.check(event="crowd")
        until(lambda: s.steer("GET", "/v1/counts?last=1d&step=30m&rule=crowd-299").json()["rules"][0]["passed"][-1] is None, "the step is kept")
        b.sign_in(s, hash_part="#/rules?q=crowd-29")
        b.see("crowd-299", "not counted")
        view(b, "#/rule/crowd-299?range=day", "It was not counted in this time")
        view(b, "#/refused?last=1d&rule=crowd-299", "Nobody is listed", "crowd-299 was not counted alone")
        view(b, "#/plans", "crowd-019")
        expect("crowd-020" in b.text(), False)
        b.click("More budgets")
        b.see("crowd-020", "First page of budgets")
        view(b, "#/plans?after_budget=nobody", "crowd-000")


def test_many_rules():
    rules = [{"id": f"many-{i:05}", "match": {"path": f"/many/{i}"}, "by": ["user"], "limits": "10 per 1m"} for i in range(10000)]
    with Service(rules=None) as s, Browser() as b:
        text = os.path.join(s.data, "many.json")
        with open(text, "w", encoding="utf-8") as out:
            json.dump({"rules": rules}, out)
        done = support.weir("rules", "import", text, "--from", f"sqlite:{s.data}/rules.db")
        expect(done.returncode, 0, done.stderr)
        until(lambda: s.steer("GET", "/v1/status").json()["rules"]["count"] > 10000, "they are in force")
        b.sign_in(s, hash_part="#/rules")
        b.see("many-00000", "Next page")
        b.click("Next page")
        b.see("many-00050")
        b.find("input[type=search]")[0].send_keys("many-0999\n")
        b.see("many-09990")
        expect(len(b.find("tbody tr")), 10)


# ---- for everybody ----


@pytest.mark.parametrize("dark,width", [(False, 1280), (True, 1280), (False, 390)], ids=["light", "dark", "phone"])
def test_accessibility(served, dark, width):
    with Browser(width=width, dark=dark, height=850) as b:
        b.open(served)
        b.see("Sign in to weir")
        expect(b.accessibility(), [], "sign in")
        b.sign_in(served)
        for hash_part, text in (("#/", "Busiest rules"), ("#/refused?last=1h", "Refused"), ("#/rules", "ocr"), ("#/rule/ocr", "History"), ("#/refused/ocr/u1", "Limits"),
                                ("#/refused?find=u1", "Rules that know"), ("#/why?event=ocr&key=u1", "It would"), ("#/what-if", "Run"), ("#/plans", "free"), ("#/changes", "Undo")):
            view(b, hash_part, text)
            time.sleep(0.3)
            active = b.find("nav a[aria-current]")[0].rect
            expect(active["x"] >= 0 and active["x"] + active["width"] <= width, True, f"the tab of {hash_part} is in view")
            # The colours are other ones in the dark; all else is as in the light.
            expect(b.accessibility(rules=["color-contrast", "link-in-text-block"] if dark else None), [], hash_part)
            wide = b.driver.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            expect(wide <= 0, True, f"{hash_part} is wider than the window by {wide}")
            shot(b, f"{'phone' if width < 600 else 'dark' if dark else 'light'}-{hash_part.strip('#/').split('/')[0].split('?')[0] or 'now'}")


def test_by_keyboard(served, page):
    """Everything can be reached and done with keys alone."""
    view(page, "#/rules", "ocr")
    page.driver.execute_script("document.querySelector('.skip').focus()")
    page.driver.switch_to.active_element.send_keys("\n")
    expect((page.driver.switch_to.active_element.tag_name, page.driver.current_url.split("#")[1]), ("h1", "/rules"), "skips to the content")
    page.driver.execute_script("document.querySelector('.skip').focus()")
    reached = set()
    for _ in range(60):
        page.driver.switch_to.active_element.send_keys("\ue004")
        reached.add(page.driver.switch_to.active_element.text or page.driver.switch_to.active_element.get_attribute("aria-label"))
    has("\n".join(map(str, reached)), "Throttle a call…", "New rule…", "Sign out", "Changes", "ocr")
    opener = page.button("Throttle a call…")
    page.driver.execute_script("arguments[0].focus()", opener)
    opener.send_keys("\n")
    page.see("Which")
    page.driver.switch_to.active_element.send_keys("\ue00c")
    until(lambda: not page.find("dialog[open]"), "Escape closes it")
    expect(page.driver.switch_to.active_element.text, "Throttle a call…", "and one is where one was")
    page.click("New rule…")
    page.see("Which requests")

    def focused():
        return page.driver.execute_script("const one = document.activeElement; return one.labels?.[0]?.textContent ?? one.getAttribute('aria-label') ?? one.textContent")

    page.button("Add a limit").send_keys("\n")
    expect((focused(), len(page.find("dialog [aria-label^='Remove limit']"))), ("At most", 2), "in the new row")
    page.button("Remove limit 2").send_keys("\n")
    expect(focused(), "Add a limit")
    page.fill("counted as", "fixed window")
    expect(focused(), "counted as")
    page.button("Remove limit 1").send_keys("\n")
    expect(focused(), "Add a limit")
