"""The page, in a real browser against a real service: signing in, live figures, who was refused and why, what if, roles."""

import json
import os

from support import expect, has
from support.browser import until
from support.views import shot, token, view

HOSTILE = '<img src=x onerror="document.title=\'run\'">'


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

    def asked():
        for i in range(50):
            served.check(event="chat", user=f"n{i}")
        return passed() not in ("0", "–")

    until(lambda: passed() == "0", "nothing is asked")
    until(asked, "the tile shows what was asked, without reloading")
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


def test_many_penalties(served, page):
    served.steer("PUT", "/v1/rules/strict", {"match": {"event": "strict"}, "by": ["key"], "limits": "1 per 1h", "penalty": {"after": 3, "within": "1m", "for": "5m"}})
    for i in range(60):
        expect(served.steer("PUT", f"/v1/penalties?rule=strict&by=p{i:02}", {"for": "1h"}).status, 204)
    view(page, "#/refused?rule=strict", "10 more are not shown.")
    page.click("Show more penalties")
    until(lambda: len([row for row in page.find("tbody tr") if "key=p" in row.text]) == 60, "all of them are listed")
    expect(page.shows("are not shown"), False)
    served.steer("DELETE", "/v1/rules/strict")


def test_looking_up_a_subject(served, page):
    served.steer("PUT", "/v1/rules/pair", {"match": {"event": "pair"}, "by": ["user", "ip"], "limits": "5 per 1h"})
    served.check(event="ocr", key="sought")
    served.check(event="pair", user="a,b", ip="192.0.2.9")
    view(page, "#/refused", "Look up in all rules")
    page.first("[aria-label='Look up a subject']").send_keys("sought\n")
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
    page.click("Why?", within=lambda: page.row("user=planned"))
    page.see("It would be refused by plans", "plan free", "10 of 10 used")


# ---- why, what if, plans ----


def test_why(served, page):
    view(page, "#/why", "Explain")
    page.fill("event", "ocr")
    page.fill("key", "asked")
    page.click("Explain")
    page.see("It would pass", "0 of 3 used", "rules do not apply")
    for _ in range(5):
        served.check(event="ocr", key="refused-one")
    view(page, "#/why", "Recent refusals", "key=refused-one")
    page.click("Why?", within=lambda: page.row("refused-one"))
    page.see("It would be refused by ocr, limit hour")
    shot(page, "why")
    served.steer("PUT", "/v1/rules/never", {"match": {"event": "never"}, "limits": "0 per 1h"})
    view(page, "#/why?event=never", "It would be refused by never", "no wait will help")
    expect("retry in" in page.first(".banner[role=status]").text, False)
    served.steer("DELETE", "/v1/rules/never")


def test_what_if(served, page):
    for i in range(30):
        served.check(event="ocr", key=f"w{i % 3}")
    view(page, "#/what-if", "The sample has")
    text = page.first("textarea.code")
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
    text = page.first("textarea.code")
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
    page.click("Why?", within=lambda: page.row("acme"))
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


def test_names_that_are_no_rules(served, page):
    """Calls of CL.THROTTLE have no rule and no view of a subject: nothing leads there."""
    with served.socket(served.resp) as client:
        client.sendall(b"CL.THROTTLE bare 0 1 3600\r\n" * 4 + b"QUIT\r\n")
        while client.recv(4096):
            pass
    view(page, "#/refused?rule=(cl.throttle)", "key=bare")
    expect(until(lambda: [page.find("a, button", page.row("key=bare"))], "it is listed"), [[]])
