"""What docs/production.md names exists: alerts and tests, in this tree. tests/test_monitoring.py tests the alerts."""

import glob
import os
import re

from support import ROOT, expect

with open(os.path.join(ROOT, "docs", "production.md"), encoding="utf-8") as file:
    PAGE = file.read()


def test_alerts():
    """Those of the tables of failures are among the rules."""
    with open(os.path.join(ROOT, "docs", "prometheus", "alerts.yaml"), encoding="utf-8") as rules:
        known = set(re.findall(r"- alert: (Weir\w+)", rules.read()))
    named = set(re.findall(r"`(Weir\w+)`", PAGE))
    expect(len(named) > 15, True, named)
    expect(sorted(named - known), [], "no such alert")


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
