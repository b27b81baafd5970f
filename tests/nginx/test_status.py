"""weir_status: JSON and metrics for Prometheus, with numbers of all workers together."""

import json
import re
import time
from datetime import datetime

from support import expect, weir
from support.gateway import Gateway

ODD = 'odd "id" \\ für alle'
RULES = """
rules:
  - { id: few, match: { path: /few }, by: ip, limits: [ LIMIT ] }
  - { id: dry, match: { path: /dry }, by: ip, limits: [ LIMIT ] }
  - { id: trial, match: { path: [ /few, /trial ] }, by: ip, limits: [ LIMIT ], mode: shadow }
  - { id: %s, match: { path: /odd }, limits: [ LIMIT ] }
  - { id: off, match: { path: /few }, limits: [ LIMIT ], mode: off }
  - { id: disabled, match: { path: /few }, limits: [ LIMIT ], mode: shadow, enabled: false }
  - { id: expired, match: { path: /few }, limits: [ LIMIT ], expires: 2020-01-01T00:00:00Z }
""".replace("LIMIT", "{ algorithm: fixed_window, max: 4, per: 1h }") % json.dumps(ODD)
HTTP = """
weir_zone main 1m rules=@FOLDER@/rules.yaml;
weir_zone quiet 256k rules=@FOLDER@/rules.yaml cells=@FOLDER@/cells;
weir_zone large 256m rules=@FOLDER@/rules.yaml cells=@FOLDER@/large;
"""
SERVER = """
weir main;
location / { proxy_pass http://@BACKEND@; }
location /dry { weir_dry_run on; proxy_pass http://@BACKEND@; }
location = /status { weir_status main; }
location = /status/quiet { weir off; weir_status quiet; }
location = /status/if { weir_status main; if ($arg_q) { set $x 1; } }
location = /status/large { weir_status large; }
location = /status/limited { weir quiet path=/few; weir_status quiet; }
"""
NOTHING = {"allowed": 0, "refused": 0, "would_refuse": 0, "shadow": 0}
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*"(?:,(?=[a-z])|(?=\})))+)\} (\d+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

g = Gateway(http=HTTP, server=SERVER, rules=RULES, workers=2)


def status(path="/status", **more):
    document = json.loads(g.ask(path, **more).body)
    document["rules"].pop("since")
    return document


def by_rule(document):
    return {entry.pop("rule"): entry for entry in document["by_rule"]}


def test_before_anything():
    """Before anything was decided."""
    answer = g.ask("/status/quiet")
    expect((answer.status, answer.headers["Content-Type"]), (200, "application/json"), "answer")
    document = json.loads(answer.body)
    version = weir("--version").stdout.decode().split()[-1]
    expect((document["zone"], document["version"]), ("quiet", version), "who")
    since = document["rules"].pop("since")
    expect(abs(datetime.fromisoformat(since).timestamp() - time.time()) < 3600, True, since)
    expect(document["rules"], {"file": g.path("rules.yaml"), "count": 4, "problem": None}, "rules")
    table = document["table"]
    expect(0 <= 256 * 1024 - table.pop("bytes") < 4096, True, "bytes")
    expect(table.pop("cells") > 1000, True, "cells")
    expect(table, {"file": g.path("cells"), "used": 0, "drops": 0, "drops_at_limit": 0}, "table")
    expect(document["decisions"], {"allowed": 0, "refused": 0, "would_refuse": 0, "no_rule": 0, "waited": 0}, "decisions")
    expect((document["holds"], document["by_rule"]), ([], []), "holds, and by rule")


def test_counts():
    """Counts of two workers."""
    with g.connection_to_each() as connections:
        before = status(over=connections[0])["decisions"]["no_rule"]
        for connection in connections:
            for path, count in (("/few", 5), ("/dry", 3), ("/trial", 2), ("/odd", 3), ("/none", 7)):
                for _ in range(count):
                    g.ask(path, over=connection)
        documents = [status(over=connection) for connection in connections]
    expect(documents[0], documents[1], "both workers")
    wanted = {"allowed": 4 + 4 + 4, "refused": 6 + 2, "would_refuse": 2, "no_rule": before + 14 + 4, "waited": 0}
    expect(documents[0]["decisions"], wanted, "decisions")
    rules = {
        "few": {**NOTHING, "allowed": 4, "refused": 6},
        "dry": {**NOTHING, "allowed": 4, "would_refuse": 2},
        "trial": {**NOTHING, "shadow": 6 + 4},
        ODD: {**NOTHING, "allowed": 4, "refused": 2},
    }
    expect(by_rule(documents[0]), rules, "by rule")
    expect(documents[0]["table"]["file"], None, "no file")
    expect(documents[0]["table"]["used"], 4, "cells: three rules by one address, and one of all together")


def metrics_of(path):
    """{name: (type, {labels: value})}; each line has to be well formed."""
    answer = g.ask(path)
    expect(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8", "type")
    expect(answer.body[-1:], b"\n", "the last line ends")
    found = {}
    helped = None
    for line in answer.body.decode().splitlines():
        if line.startswith("# HELP "):
            helped = re.fullmatch(r"# HELP (\w+) \S.*", line)[1]
            expect(helped in found, False, f"{helped} is there once")
        elif line.startswith("# TYPE "):
            name, kind = re.fullmatch(r"# TYPE (\w+) (counter|gauge)", line).groups()
            expect((name, name.endswith("_total")), (helped, kind == "counter"), line)
            found[name] = (kind, {})
        else:
            name, labels, value = SAMPLE.fullmatch(line).groups()
            expect(name, helped, line)
            pairs = {label: re.sub(r"\\(.)", r"\1", text) for label, text in LABEL.findall(labels)}
            key = tuple(sorted(pairs.items()))
            expect(key in found[name][1], False, f"{line} is there once")
            found[name][1][key] = int(value)
    return found


def test_metrics():
    """Prometheus."""
    for path in ("/few", "/dry", "/trial", "/odd"):
        g.statuses(5, path)
    document, found = status(), metrics_of("/status?format=prometheus")
    names = {"weir_decisions_total", "weir_holds", "weir_rule_applied_total", "weir_requests_without_rule_total", "weir_overdrawn_total", "weir_penalties_total", "weir_penalty_refusals_total", "weir_waits_total", "weir_rules", "weir_rules_bad", "weir_rules_since_seconds", "weir_table_cells",
             "weir_table_used_cells", "weir_table_bytes",
             "weir_table_drops_total", "weir_table_drops_at_limit_total"}
    expect(set(found), names, "names")
    zone = (("zone", "main"),)
    for name, value in (("weir_rules", 4), ("weir_rules_bad", 0), ("weir_table_cells", document["table"]["cells"]),
                        ("weir_table_bytes", document["table"]["bytes"]), ("weir_table_drops_total", 0)):
        expect(found[name][1], {zone: value}, name)
    decisions = found["weir_decisions_total"][1]
    for rule, entry in by_rule(document).items():
        for outcome, value in entry.items():
            expect(decisions[("outcome", outcome), ("rule", rule), *zone], value, f"{rule}: {outcome}")
    expect(decisions[("outcome", "allowed"), ("rule", ""), *zone], document["decisions"]["no_rule"], "no rule")
    expect(len(decisions), 4 * 4 + 1, "series")


def test_requests():
    """Requests for the status."""
    answer = g.ask("/status", "HEAD")
    expect((answer.status, answer.headers["Content-Length"], answer.body), (200, str(len(g.ask("/status").body)), b""), "HEAD")
    expect(g.ask("/status", "POST", "x").status, 405, "POST")
    for words in ("format=json", "format=", "format=prometheus2"):
        expect(status(f"/status?{words}")["zone"], "main", words)
    expect(status("/status/if?q=1"), status("/status"), "in an `if`, which is a place of its own")
    expect(g.statuses(5, "/status/limited"), [200] * 4 + [429], "may be limited, too, but only on purpose")


def mapped_bytes():
    """What the workers have of files in their memory."""
    found = []
    for pid in g.workers():
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            found += re.findall(r"Rss(?:File|Shmem):\s*(\d+) kB", file.read())
    return sum(map(int, found)) * 1024


def test_large_tables_stay_on_their_disk():
    before = mapped_bytes()
    for words in ("", "?format=prometheus"):
        expect(g.ask(f"/status/large{words}").status, 200, words)
    expect(status("/status/large")["table"]["used"], 0, "used")
    grown = mapped_bytes() - before
    expect(grown < 16 * 2**20, True, f"{grown} bytes more")


def test_survive():
    """After a reload and a restart."""
    before, quiet = status(), status("/status/quiet")
    g.reload()
    expect((status(), status("/status/quiet")), (before, quiet), "a reload")
    g.restart()
    after = status("/status/quiet")
    expect(after["table"], quiet["table"], "the file, after a restart")
    expect(sum(after["decisions"].values()) + sum(status()["decisions"].values()), 0, "decisions, after a restart")


def applied():
    """{(rule, limit, outcome): count}, with "" for requests without a rule"""
    found = metrics_of("/status?format=prometheus")
    result = {tuple(dict(key)[label] for label in ("rule", "limit", "outcome")): value
              for key, value in found["weir_rule_applied_total"][1].items()}
    return result | {"": found["weir_requests_without_rule_total"][1][(("zone", "main"),)]}


def test_rules_that_applied():
    """Every rule that applies, with the limit that had no room, and requests that have no rule at all; also after a reload."""
    before, limit = applied(), "fixed_window"
    for path, count in (("/few", 6), ("/dry", 6), ("/none", 3)):
        g.statuses(count, path, client="127.0.0.5")
    g.statuses(2, "/trial", client="127.0.0.6")
    after = applied()
    wanted = {("few", "", "passed"): 4, ("few", limit, "refused"): 2, ("trial", "", "passed"): 4 + 2, ("trial", limit, "would_refuse"): 2,
              ("dry", "", "passed"): 4, ("dry", limit, "would_refuse"): 2, "": 3}
    expect({key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key, 0)}, wanted)
    g.reload()
    expect(applied(), after, "after a reload")
