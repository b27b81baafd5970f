"""docs/grafana/weir.json and docs/prometheus/alerts.yaml, with a real Prometheus that scrapes real services.

Each query of the dashboard parses and has data. Each alert has a case in which it fires and one in which it does not, for promtool; those
of the usual incidents also fire when the incident really happens. Every metric that either of them names is in /metrics."""

import contextlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
import yaml

from support import ROOT, expect, until
from support.certificates import Authority
from support.prometheus import MISSING, Prometheus
from support.service import Service
from support.store import PATIENT, Store
from support.wire import Wire, words

if MISSING:
    pytest.skip(f"{' and '.join(MISSING)} is not installed", allow_module_level=True)

ALERTS_FILE = os.path.join(ROOT, "docs", "prometheus", "alerts.yaml")
with open(ALERTS_FILE, encoding="utf-8") as file:
    ALERTS = {rule["alert"]: rule for group in yaml.safe_load(file)["groups"] for rule in group["rules"]}
with open(os.path.join(ROOT, "docs", "grafana", "weir.json"), encoding="utf-8") as file:
    DASHBOARD = json.load(file)
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
TARGETS = [(panel, target) for panel in PANELS for target in panel["targets"]]

RULES = """
rules:
  - { id: exact, match: { event: exact }, by: [key], limits: [ { algorithm: fixed_window, max: 1000000, per: 24h } ] }
  - { id: leased, match: { event: leased }, by: [key], lease: { slice: 5% }, limits: [ { algorithm: fixed_window, max: LEASED, per: 24h } ] }
  - { id: never, match: { event: never }, counters: local, limits: [ 0 per 1h ] }
  - { id: tried, match: { event: tried }, counters: local, mode: shadow, limits: [ 0 per 1h ] }
  - { id: flight, match: { event: flight }, counters: local, limits: [ { concurrent: 1000, ttl: 60s } ] }
  - { id: strict, match: { event: strict }, by: [key], counters: local, limits: [ 1 per 1h ], penalty: { after: 1, within: 1m, for: 15m } }
  - { id: debt, match: { event: debt }, counters: local, limits: [ { max: 10, per: 1s, overdraft: true } ] }
  - { id: flood, match: { event: flood }, by: [key], counters: local, limits: [ { algorithm: fixed_window, max: 1, per: 24h } ] }
"""
# The shortest rate interval that Grafana would choose is four times the interval of scrapes.
RATE_INTERVAL = "5s"


# ---- the dashboard by itself ----


def test_structure():
    """What Grafana 9 and later need to import it."""
    expect(DASHBOARD["uid"], "weir")
    expect(DASHBOARD["id"], None, "an id belongs to one Grafana")
    assert DASHBOARD["schemaVersion"] >= 36, "of Grafana 9.0"
    for key in ("title", "tags", "time", "timepicker", "refresh", "templating", "annotations", "version", "editable"):
        assert key in DASHBOARD, key
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    expect(len(set(ids)), len(ids), "each panel has an id of its own")
    for panel in DASHBOARD["panels"]:
        assert panel["type"] in ("row", "stat", "timeseries", "table"), panel["type"]
    for panel in PANELS:
        assert panel["title"] and panel["description"], panel["id"]
        expect(panel["datasource"], {"type": "prometheus", "uid": "${datasource}"}, panel["title"])
        expect([target["refId"] for target in panel["targets"]], [chr(ord("A") + i) for i in range(len(panel["targets"]))], panel["title"])
        assert {"defaults", "overrides"} <= panel["fieldConfig"].keys() and panel["options"], panel["title"]
    for panel, target in TARGETS:
        expect(target["datasource"], panel["datasource"], panel["title"])
        expect((target["instant"], target["range"]), (panel["type"] != "timeseries", panel["type"] == "timeseries"), panel["title"])


def test_layout():
    """No panel covers another, and none is wider than the grid of 24 columns."""
    covered = {}
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] >= 0 and at["w"] > 0 and at["x"] + at["w"] <= 24, panel["title"]
        for cell in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            expect(covered.setdefault(cell, panel["id"]), panel["id"], f"{panel['title']} covers another panel")


def test_variables():
    """Those that are used are there; those that are there are used."""
    text = json.dumps([DASHBOARD["panels"], DASHBOARD["annotations"], [v["query"] for v in VARIABLES.values()]])
    used = set(re.findall(r"\$\{?([a-z_]+)", text.replace("$__rate_interval", "")))
    expect(used, set(VARIABLES), "variables")
    expect(VARIABLES["datasource"]["type"], "datasource")
    expect(VARIABLES["datasource"]["query"], "prometheus")


def test_alerts_are_named():
    """What a panel says about alerts is true."""
    named = {name for panel in PANELS for name in re.findall(r"Weir[A-Z]\w+", panel["description"])}
    expect(sorted(named - set(ALERTS)), [], "no such alert")
    expect(sorted(set(ALERTS) - named - {"WeirRestarts"}), [], "no panel shows what this is about (restarts are annotations)")


# ---- the alerts by themselves ----

RATE = "0+{}x40"  # every 15 seconds
A = 'instance="a",job="weir"'
# For each alert: when to look; series with which it fires; series with which it does not, although they are close.
CASES = {
    "WeirDown": ("2m", {f"up{{{A}}}": "0x20"}, {f"up{{{A}}}": "1x4 0x2 1x20"}),
    "WeirRestarts": ("10m", {f"weir_start_time_seconds{{{A}}}": "1x8 2x8 3x8 4x20"}, {f"weir_start_time_seconds{{{A}}}": "1x8 2x8 3x40"}),
    "WeirSlow": ("10m", {f'weir_decision_seconds_bucket{{{A},le="{le}"}}': RATE.format(n) for le, n in (("0.01", 90), ("0.1", 100), ("+Inf", 100))},
                 {f'weir_decision_seconds_bucket{{{A},le="{le}"}}': RATE.format(n) for le, n in (("0.01", 100), ("0.1", 100), ("+Inf", 100))}),
    "WeirConnections": ("5m", {f"weir_connections_turned_away_total{{{A}}}": "0x40", f"weir_connections_gave_way_total{{{A}}}": RATE.format(1)},
                        {f"weir_connections_turned_away_total{{{A}}}": "7x40", f"weir_connections_gave_way_total{{{A}}}": "9x40"}),
    "WeirCertificate": ("1m", {f"weir_certificate_expiry_seconds{{{A}}}": f"{13 * 86400}x40"}, {f"weir_certificate_expiry_seconds{{{A}}}": f"{15 * 86400}x40"}),
    "WeirRefusals": ("10m", {f'weir_decisions_total{{{A},rule="r",outcome="refused"}}': RATE.format(1600)},
                     {f'weir_decisions_total{{{A},rule="r",outcome="{outcome}"}}': RATE.format(n) for outcome, n in (("refused", 1400), ("allowed", 9999))}),
    "WeirTableTooSmall": ("5m", {f"weir_table_drops_at_limit_total{{{A}}}": "5x10 6x20"}, {f"weir_table_drops_at_limit_total{{{A}}}": "5x40"}),
    "WeirTableFull": ("30m", {f"weir_table_used_cells{{{A}}}": "80x200", f"weir_table_cells{{{A}}}": "100x200", f"weir_table_drops_total{{{A}}}": "0+30x200"},
                      {f"weir_table_used_cells{{{A}}}": "80x200", f"weir_table_cells{{{A}}}": "100x200", f"weir_table_drops_total{{{A}}}": "0+10x200"}),
    "WeirNotSaved": ("5m", {f"weir_save_age_seconds{{{A}}}": "1x4 61x40", f"weir_save_failures_total{{{A}}}": "0x40"},
                     {f"weir_save_age_seconds{{{A}}}": "59x40", f"weir_save_failures_total{{{A}}}": "3x40"}),
    "WeirRulesSource": ("6m", {f"weir_source_reachable{{{A}}}": "0x40"}, {f"weir_source_reachable{{{A}}}": "0x15 1x1 0x40"}),
    "WeirRulesOld": ("1m", {f"weir_rules_age_seconds{{{A}}}": "301x40"}, {f"weir_rules_age_seconds{{{A}}}": "300x40"}),
    "WeirRulesBad": ("2m", {f"weir_rules_problems{{{A}}}": "1x40"}, {f"weir_rules_problems{{{A}}}": "0x40"}),
    "WeirStoreDown": ("1m", {f"weir_store_up{{{A}}}": "0x40"}, {f"weir_store_up{{{A}}}": "1x40"}),
    "WeirStoreNode": ("1m", {f"weir_store_nodes_up{{{A}}}": "2x40", f"weir_store_nodes{{{A}}}": "3x40"},
                      {f"weir_store_nodes_up{{{A}}}": "3x40", f"weir_store_nodes{{{A}}}": "3x40"}),
    "WeirWithoutStore": ("5m", {f"weir_store_unsent_total{{{A}}}": "4x10 5x40"}, {f"weir_store_unsent_total{{{A}}}": "4x40"}),
    "WeirStoreLate": ("6m", {f"weir_store_late_total{{{A}}}": RATE.format(2)}, {f"weir_store_late_total{{{A}}}": RATE.format(1)}),
    "WeirStoreErrors": ("5m", {f"weir_store_failed_total{{{A}}}": "0x10 1x40"}, {f"weir_store_failed_total{{{A}}}": "1x40"}),
    "WeirStoreEmptied": ("5m", {f"weir_store_emptied_total{{{A}}}": "0x10 1x40"}, {f"weir_store_emptied_total{{{A}}}": "1x40"}),
    "WeirStoreReplaced": ("5m", {f"weir_store_replaced_total{{{A}}}": "0x10 1x40"}, {f"weir_store_replaced_total{{{A}}}": "1x40"}),
    "WeirHosts": ("6m", {f"weir_store_hosts{{{A}}}": "3x40", f"up{{{A}}}": "1x40", 'up{instance="b",job="weir"}': "1x40"},
                  {f"weir_store_hosts{{{A}}}": "2x40", f"up{{{A}}}": "1x40", 'up{instance="b",job="weir"}': "1x40"}),
    "WeirClock": ("6m", {f"weir_store_clock_offset_seconds{{{A}}}": "-1.5x40"}, {f"weir_store_clock_offset_seconds{{{A}}}": "0.9x40"}),
    "WeirLeasesHeld": ("20m", {f"weir_lease_tokens_held{{{A}}}": "600000x100", 'weir_lease_tokens_held{instance="b",job="weir"}': "600000x100"},
                       {f"weir_lease_tokens_held{{{A}}}": "600000x100", 'weir_lease_tokens_held{instance="b",job="weir"}': "300000x100"}),
}


def promtool(*arguments):
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=120, check=False)
    expect(done.returncode, 0, done.stdout + done.stderr)


def unit_test(name, at, series, fires):
    firing = f'count(ALERTS{{alertname="{name}",alertstate="firing"}})'
    return {
        "name": f"{name} {'fires' if fires else 'is silent'}",
        "interval": "15s",
        "input_series": [{"series": selector, "values": values} for selector, values in series.items()],
        "promql_expr_test": [{"expr": firing, "eval_time": at, "exp_samples": [{"labels": "{}", "value": 1}] if fires else []}],
    }


def test_rules_of_prometheus(folder):
    promtool("check", "rules", ALERTS_FILE)
    for name, alert in ALERTS.items():
        assert alert["labels"]["severity"] in ("page", "ticket"), name
        assert alert["annotations"]["summary"] and alert["annotations"]["description"], name
    expect(sorted(CASES), sorted(ALERTS), "each alert has its case")
    tests = [unit_test(name, at, series, fires) for name, (at, *both) in CASES.items() for fires, series in zip((True, False), both)]
    path = os.path.join(folder, "tests.yaml")
    with open(path, "w", encoding="utf-8") as out:
        json.dump({"rule_files": [ALERTS_FILE], "evaluation_interval": "15s", "tests": tests}, out)
    promtool("test", "rules", path)


# ---- both, with real services ----


class Fleet:
    """Two services that share a store, and a Prometheus that scrapes them. The second one has a certificate."""

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            self.authority = stack.enter_context(Authority())
            self.store = stack.enter_context(Store())
            self.certificate, key = self.authority.issue("server", days=60)
            counters = ("--counters", self.store.address, *PATIENT, "--log-refusals", "0")
            self.first = stack.enter_context(Service(*counters, "--cells-keys", "2000", rules=RULES.replace("LEASED", "1000")))
            flags = ("--certificate", self.certificate, "--certificate-key", key, "--admin-tls", "no")
            self.second = stack.enter_context(Service(*counters, *flags, rules=RULES.replace("LEASED", "1000")))
            # A test does not wait for minutes. promtool has tested `for`.
            rules = os.path.join(folder, "alerts.yaml")
            with open(rules, "w", encoding="utf-8") as out:
                json.dump({"groups": [{"name": "weir", "rules": [{**alert, "for": "0s"} for alert in ALERTS.values()]}]}, out)
            self.prometheus = stack.enter_context(Prometheus([self.first, self.second], rules))
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *details):
        return self.stack.__exit__(*details)

    def metrics(self):
        """The names that both services have."""
        text = "".join(s.steer("GET", "/metrics").body.decode() for s in (self.first, self.second))
        return set(re.findall(r"^(weir_\w+)", text, re.M))

    def ask(self):
        """Some requests of each kind."""
        for event in ("exact", "leased", "never", "tried", "flight", "strict", "strict", "debt", "other"):
            self.first.check(event=event, key="a", cost=20 if event == "debt" else 1)

    def flood(self, event, count):
        """So many requests with keys of their own, at once."""
        with Wire(self.first) as wire:
            for begin in range(0, count, 1000):
                wire.send(b"".join(words("WEIR.CHECK", "event", event, "key", f"k{begin + i}") for i in range(1000)))
                for _ in range(1000):
                    wire.reply()

    def fires(self, *names, ask=None):
        """Waits until they do. Returns what they say."""
        def found():
            if ask:
                ask()
            firing = self.prometheus.firing()
            return firing if set(names) <= set(firing) else None
        firing = until(found, lambda: f"{names} fire, and not only {sorted(self.prometheus.firing())}", pause=0.2)
        for name in names:
            for alert in firing[name]:
                for text in alert["annotations"].values():
                    assert "<error" not in text and "<no value>" not in text, text
        return firing


@pytest.fixture(scope="module")
def fleet():
    with Fleet() as both:
        yield both


def expanded(fleet, text):
    """As Grafana sends it, if all instances and rules are chosen."""
    instances = "|".join(re.escape("{}:{}".format(*s.admin)).replace("\\", "\\\\") for s in (fleet.first, fleet.second))
    for name, value in (("__rate_interval", RATE_INTERVAL), ("job", "weir"), ("instance", f"({instances})"), ("rule", ".*")):
        text = text.replace(f"${name}", value)
    assert "$" not in text, text
    return text


def test_metrics_exist(fleet):
    """A metric that is renamed is renamed here, too."""
    fleet.ask()
    texts = [target["expr"] for _, target in TARGETS] + [alert["expr"] for alert in ALERTS.values()]
    texts += [variable["query"]["query"] for variable in VARIABLES.values() if variable["type"] == "query"]
    texts += [entry["expr"] for entry in DASHBOARD["annotations"]["list"] if "expr" in entry]
    named = set(re.findall(r"\bweir_[a-z0-9_]+", " ".join(texts)))
    assert len(named) > 30, named
    expect(sorted(named - fleet.metrics()), [], "not in /metrics")


def has_numbers(result):
    return any(not math.isnan(float(value)) for series in result for _, value in series.get("values") or [series["value"]])


def test_dashboard(fleet):
    """Each query parses and finds something, over a span of time or at an instant, as its panel asks."""
    def empty():
        now, without = time.time(), []
        for panel, target in TARGETS:
            query = expanded(fleet, target["expr"])
            if target["range"]:
                data = fleet.prometheus.ask("query_range", query=query, start=now - 10, end=now, step="1s")
            else:
                data = fleet.prometheus.ask("query", query=query)
            if not has_numbers(data["result"]):
                without.append(f"{panel['title']} {target['refId']}: {query}")
        return without

    def full():
        fleet.ask()
        return not empty()

    until(full, lambda: "these have data:\n" + "\n".join(empty()), pause=0.5)


def test_dashboard_variables(fleet):
    wanted = {"job": ["weir"], "instance": sorted("{}:{}".format(*s.admin) for s in (fleet.first, fleet.second))}
    for name, variable in VARIABLES.items():
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
            def found():
                values = fleet.prometheus.ask(f"label/{label}/values", **{"match[]": expanded(fleet, selector)})
                return "exact" in values if name == "rule" else values == wanted[name]
            until(found, f"values of {name}", pause=0.2)


def test_dashboard_annotations(fleet):
    """Nobody restarts here, so they are empty without their condition only."""
    for entry in DASHBOARD["annotations"]["list"]:
        if "expr" in entry:
            query, condition = expanded(fleet, entry["expr"]).rsplit(" > ", 1)
            expect(condition, "0")
            until(lambda: len(fleet.prometheus.query(query)) == 2, query)


def test_incidents(fleet):
    """What really happens makes the alerts fire that docs/production.md names for it; before, nothing does."""
    until(lambda: {labels["instance"] for labels, value in fleet.prometheus.query("weir_store_hosts") if value == 2}
          == {"{}:{}".format(*s.admin) for s in (fleet.first, fleet.second)}, "the hosts see each other", pause=0.2)
    # On a busy machine some decisions are slow, and the alert remembers that for five minutes.
    until(lambda: set(fleet.prometheus.firing()) <= {"WeirSlow"}, lambda: f"all is well, but {sorted(fleet.prometheus.firing())}", pause=0.2)

    fleet.flood("flood", 10000)
    fleet.fires("WeirTableTooSmall", "WeirTableFull")
    fleet.flood("never", 40000)
    fired = fleet.fires("WeirRefusals")["WeirRefusals"]
    expect([alert["labels"]["rule"] for alert in fired], ["never"])

    fleet.first.write_rules(RULES.replace("LEASED", "100000000") + "  - { id: bad, limits: [ some ] }\n")
    fleet.fires("WeirRulesBad", "WeirLeasesHeld", ask=fleet.ask)
    os.remove(fleet.first.rules_file)
    fleet.fires("WeirRulesSource")

    fresh, _ = fleet.authority.issue("soon", days=3)
    shutil.copy(fresh, fleet.certificate)
    shutil.copy(fleet.authority.at("soon.key"), fleet.authority.at("server.key"))
    fleet.second.process.send_signal(signal.SIGHUP)
    fleet.fires("WeirCertificate")

    fleet.store.kill()
    fleet.fires("WeirStoreDown", "WeirStoreNode", "WeirWithoutStore", ask=fleet.ask)
    fleet.store.start()
    fleet.fires("WeirStoreEmptied")
    fleet.second.stop()
    fleet.fires("WeirDown")
