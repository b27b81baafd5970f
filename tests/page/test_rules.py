"""The page: rules, their editor, throttles and overrides."""

import os

from support import expect, has, weir
from support.browser import Browser, By, until
from support.service import Service
from support.views import shot, view


# ---- the editor ----


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
    error = page.first(".field.wrong .error")
    expect(error.find_element(By.XPATH, "..").find_element(By.TAG_NAME, "label").text, "At most", "the error is beside its field")
    shot(page, "edit")
    box.clear()
    box.send_keys("4")
    until(lambda: not page.find(".field.wrong"), "the error is gone")
    page.click("Review…")
    until(lambda: page.find(".diff .added", page.dialog()), "the review")
    has(page.first(".diff .added", page.dialog).text, "max: 4")
    has(page.first(".diff .removed", page.dialog).text, "max: 3")
    shot(page, "review")
    expect(served.steer("GET", "/v1/rules/ocr").json()["rule"]["limits"][0]["max"], 3, "a review changes nothing")
    page.fill("Why", "one more for everybody — “ünïcödé”")
    page.click("Save")
    page.see("ocr is in force", "4 per 1h", "one more for everybody — “ünïcödé”")
    row = served.steer("GET", "/v1/rules/ocr").json()
    expect((row["rule"]["limits"][0]["max"], row["updated_by"], row["note"]), (4, "Zoë", "one more for everybody — “ünïcödé”"))
    page.click("Undo", within=lambda: page.find("section.card table")[-1])
    page.see("This would change:")
    has(page.first(".diff .added", page.dialog).text, "max: 3")
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
    text = page.first("textarea.code")
    text.clear()
    text.send_keys("# of the meeting\nid: thought\nmatch: { event: thought }\nlimits: [{ max: 9, per: 1h }]\n")
    page.click("Review…")
    page.click("What would it have done?")
    page.see("Your edit of thought is not saved.")
    page.click("Back to my edit")
    page.see("Edit thought")
    has(page.first("dialog textarea.code").get_attribute("value"), "# of the meeting", "max: 9")
    for _ in range(2):
        page.escape()
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
    text = page.first("textarea.code")
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
        page.driver.execute_script(script, page.first("textarea.code") if tab == "YAML" else page.label("At most"), *values)
        page.see("What would it have done?")
        has(page.first(".diff .added", page.dialog).text, f"max: {most}")
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


def test_rules_of_a_file(blank):
    """They are not changed here, and the page says why. What is wrong with them is shown as it happens."""
    text = "rules: [{ id: filed, match: { event: f }, by: [key], limits: ['3 per 1h'] }]\noverrides: [{ rule: filed, by: { key: k }, deny: true }]\n"
    with Service(rules=text) as s:
        blank.sign_in(s)
        view(blank, "#/rule/filed", "a file that weir only reads", s.rules_file, "refuse everything")
        expect([name for name in ("Edit…", "Remove", "Throttle…", "Add an override…") if name in blank.text()], [])
        view(blank, "#/changes", "A file has no history here")
        view(blank, "#/", "1 rule")
        os.rename(s.rules_file, s.rules_file + ".away")
        blank.see("is unreachable")
        os.rename(s.rules_file + ".away", s.rules_file)
        blank.gone("is unreachable")
        s.write_rules(text.replace("deny: true", "deny: 5"))
        blank.see("1 row of the rules has a problem")
        blank.click("Show them")
        blank.see("deny: must be true")


# ---- throttling ----


def commanded(folder, call, by):
    """The id that `weir rules throttle` gives the same throttle."""
    with open(f"{folder}/t.yaml", "w", encoding="utf-8") as file:
        file.write("rules: []\n")
    said = weir("rules", "throttle", call, "10 per 1m", "--by", by, "--from", f"file:{folder}/t.yaml")
    expect((said.returncode, said.stderr), (0, b""), call)
    return said.stdout.decode().split(":")[0]


def test_throttle_in_three_clicks(served, page, folder):
    view(page, "#/rules", "login")
    page.click("Throttle…", within=lambda: page.row("login"))  # one
    page.see("Throttle a call")
    expect(page.label("Which").get_attribute("value"), "POST /login")
    page.click("Throttle", within=page.dialog)  # two
    page.see("throttle-post-login-", "is in force")
    until(lambda: page.driver.switch_to.active_element.get_attribute("aria-label") == "Throttle… login", "one is where one was")
    [(name, rule)] = throttles(served, "throttle-post-login").items()
    expect(name, commanded(folder, "post /login", "ip"))
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
            page.click(until(lambda: [one.text for one in page.find("summary") if "not apply" in one.text][0], "rules that do not apply"))
            page.see("why not")
        if hash_part == "#/what-if":
            text = page.first("textarea.code")
            text.clear()
            text.send_keys("id: rows\nmatch: { event: rows }\nby: [key]\nlimits: [0 per 1h]\n")
            page.click("Run")
            page.see("The first requests that change")
        expect(page.driver.execute_script(missing), [], hash_part)
    served.steer("DELETE", "/v1/rules/rows/overrides/other")
    served.steer("DELETE", "/v1/rules/rows")


def throttles(s, named="throttle-"):
    return {row["id"]: row["rule"] for row in s.steer("GET", f"/v1/rules?q={named}").json()["rules"]}


def test_a_throttle_is_of_its_call_alone(served, page, folder):
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
    page.click("Throttle…", within=lambda: page.row("narrow"))
    page.fill("At most", "3")
    page.click("Throttle", within=page.dialog)
    page.see("limits this call already")
    page.click("Replace")
    until(lambda: throttles(served)[first]["limits"] == [{"max": 3, "per": "1m"}], "it is replaced")
    view(page, "#/rules", "Throttle a call…")
    calls = ("GET /a/b", "GET /a-b", "GET /用户")
    for call in calls:
        page.click("Throttle a call…")
        page.fill("Which", call)
        page.click("Throttle", within=page.dialog)
        page.gone("How long")
    until(lambda: len(throttles(served)) == len(before) + 4, "each call has a rule of its own")
    expect({commanded(folder, call, "all") for call in calls} - set(throttles(served)), set(), "the command gives the same ids")


def test_dialogs_ask_before_typed_text_is_lost(served, page):
    """Escape closes a dialog at once only if nothing was typed into it."""
    served.steer("PUT", "/v1/rules/asks", {"match": {"event": "asks"}, "by": ["key"], "limits": "1 per 1h", "penalty": {"after": 3, "within": "1m", "for": "5m"}})
    for hash_part, button, label in (("#/rule/asks", "Throttle…", "Why"), ("#/rule/asks", "Add an override…", "Subject"), ("#/refused/asks/k", "Override…", "Limits"),
                                     ("#/refused/asks/k", "Penalise…", "Why"), ("#/refused/asks/k", "Set free…", "Why")):
        view(page, hash_part, button)
        page.click(button)
        until(lambda: page.label(label, page.dialog()), f"{button} opens a dialog")
        page.escape()
        until(lambda: not page.find("dialog"), f"{button} closes: nothing is typed")
        page.click(button)
        page.fill(label, "some text")
        page.escape()
        page.see("Drop your changes?")
        page.click("Cancel", within=page.dialog)
        page.gone("Drop your changes?")
        expect(page.label(label).get_attribute("value"), "some text", button)
        page.escape()
        page.click("Drop them")
        until(lambda: not page.find("dialog"), f"{button} closes")
    served.steer("DELETE", "/v1/rules/asks")


# ---- one rule, its overrides ----


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
    page.see("Drop your changes?")
    page.click("Drop them")
    page.click("Remove", within=lambda: page.row("bad,guy%", "refuse everything"))
    page.click("Remove", within=page.dialog)
    page.see("Every subject has the limits of the rule.")
    expect(served.steer("GET", "/v1/rules/ocr/overrides/bad%2Cguy%25").status, 404)


def test_an_override_of_given_limits_begins_empty(served, page):
    expect(served.steer("PUT", "/v1/rules/given", {"match": {"event": "given"}, "by": ["user"], "limits": "given"}).status, 201)
    view(page, "#/refused/given/u1", "Override…")
    page.click("Override…")
    page.see("replaces all limits of this rule")
    expect(page.label("Limits").get_attribute("value"), "")
    served.steer("DELETE", "/v1/rules/given")
    view(page, "#/refused?find=u1&after=nobody", "Rules that know u1")
