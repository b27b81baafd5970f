"""What docs/production.md names exists: metrics, in a service that has a store and a certificate; tests, in this tree."""

import glob
import os
import re

from support import ROOT, expect
from support.certificates import Authority
from support.service import Service
from support.store import Store

with open(os.path.join(ROOT, "docs", "production.md"), encoding="utf-8") as file:
    PAGE = file.read()


def test_metrics():
    named = set(re.findall(r"weir_[a-z_]+[a-z]", re.search(r"```yaml\ngroups:.*?```", PAGE, re.S)[0]))
    expect(len(named) > 15, True, named)
    with Store() as store, Authority() as own:
        certificate, key = own.issue("server")
        flags = ("--counters", store.address, "--certificate", certificate, "--certificate-key", key, "--admin-tls", "no")
        with Service(*flags) as s:
            found = s.steer("GET", "/metrics").body.decode()
            expect(sorted(named - set(re.findall(r"^(weir_[a-z_]+)", found, re.M))), [], "not in /metrics")


def test_alerts():
    """Those of the tables of failures are among the rules."""
    rules = set(re.findall(r"alert: (Weir\w+)", PAGE))
    expect(sorted(set(re.findall(r"`(Weir\w+)`", PAGE)) - rules), [], "no such alert")


def test_tests():
    """A cell of the last column has files, each of them before its cases."""
    missing = []
    for row in PAGE[PAGE.index("## What happens when something fails"):].splitlines():
        text = ""
        for file, word in re.findall(r"`([a-z0-9]+/[a-z_0-9]+\.(?:py|c))`|\b([a-z]+(?:_[a-z0-9]+)+)\b", row if row.startswith("|") else ""):
            if file:
                paths = glob.glob(os.path.join(ROOT, "tests", file))
                missing += [] if paths else [file]
                text = "".join(open(path, encoding="utf-8").read() for path in paths)
            elif text and not re.search(rf"\b{word}\(", text):
                missing.append(f"{word}: {row[:60]}")
    expect(missing, [], "not there")
