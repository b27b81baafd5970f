"""The page of services that restart, that forget, and that have many rules."""

import json
import os

import support
from support import expect
from support.browser import Browser, until
from support.service import Service
from support.views import view


# ---- restarts ----


def test_the_service_restarts_under_the_page():
    with Service("--admin", f"127.0.0.1:{support.free_port()}", rules=None) as s:
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
            b.first("dialog textarea.code").send_keys("# typed while it was down")
            b.click("Review…")
            b.see("nothing was changed")
            expect("look whether" in b.text(), False)
            b.first("dialog textarea.code").send_keys("\ue00c")
            b.see("Drop your changes?")


def test_names_that_a_restart_forgets(blank):
    """Who was refused is not known any more, that somebody was is."""
    with Service("--keep-subjects", "no") as s:
        for _ in range(30):
            s.check(event="ocr", key="forgotten")
        s.restart()
        until(lambda: sum(one or 0 for one in s.steer("GET", "/v1/counts?last=1h&step=5m").json()["all"]["refused"]) > 0, "they are counted")
        blank.sign_in(s, hash_part="#/refused?last=1h")
        blank.see("No names are known", "were counted in the last hour", "Names are known since")
        view(blank, "#/refused", "Nobody was refused in the last minute", "were counted in the last hour")


# ---- many ----


def test_what_is_not_counted_is_not_zero(blank):
    """A rule that is not among the busiest of a step is counted together with others: nothing is known of it alone."""
    rules = [{"id": f"crowd-{i:03}", "match": {"event": "crowd"}, "limits": "9 per day"} for i in range(300)]
    with Service(rules=None) as s:
        text = os.path.join(s.data, "crowd.json")
        with open(text, "w", encoding="utf-8") as out:
            json.dump({"rules": rules}, out)
        done = support.weir("rules", "import", text, "--from", f"sqlite:{s.data}/rules.db")
        expect(done.returncode, 0, done.stderr)
        until(lambda: s.steer("GET", "/v1/status").json()["rules"]["count"] >= 300, "they are in force")
        s.check(event="crowd")
        until(lambda: s.steer("GET", "/v1/counts?last=1d&step=30m&rule=crowd-299").json()["rules"][0]["passed"][-1] is None, "the step is kept")
        blank.sign_in(s, hash_part="#/rules?q=crowd-29")
        blank.see("crowd-299", "not counted")
        view(blank, "#/rule/crowd-299?range=day", "It was not counted in this time")
        view(blank, "#/refused?last=1d&rule=crowd-299", "Nobody is listed", "crowd-299 was not counted alone")
        view(blank, "#/plans", "crowd-019")
        expect("crowd-020" in blank.text(), False)
        blank.click("More budgets")
        blank.see("crowd-020", "First page of budgets")
        view(blank, "#/plans?after_budget=nobody", "crowd-000")


def test_many_rules(blank):
    rules = [{"id": f"many-{i:05}", "match": {"path": f"/many/{i}"}, "by": ["user"], "limits": "10 per 1m"} for i in range(10000)]
    with Service(rules=None) as s:
        text = os.path.join(s.data, "many.json")
        with open(text, "w", encoding="utf-8") as out:
            json.dump({"rules": rules}, out)
        done = support.weir("rules", "import", text, "--from", f"sqlite:{s.data}/rules.db")
        expect(done.returncode, 0, done.stderr)
        until(lambda: s.steer("GET", "/v1/status").json()["rules"]["count"] > 10000, "they are in force")
        blank.sign_in(s, hash_part="#/rules")
        blank.see("many-00000", "Next page")
        blank.click("Next page")
        blank.see("many-00050")
        blank.first("input[type=search]").send_keys("many-0999\n")
        blank.see("many-09990")
        expect(len(blank.find("tbody tr")), 10)
