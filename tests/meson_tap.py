#!/usr/bin/env python3
"""Prints what `meson test` ran as one TAP stream, a line for each case.

    tests/meson_tap.py BUILD/meson-logs/testlog.json

Meson counts executables; a test of cmocka holds many cases, and we want to know about each.
"""
import json
import os
import re
import shlex
import sys

TAP_LINE = re.compile(r"^(not )?ok\b[ \d]*-?\s*(.*?)\s*(?:#\s*(skip)\b\s*(.*))?$", re.IGNORECASE)
OUTPUT_LINES = 100  # at the beginning, and as many at the end


def comment(text):
    """Without what passed. The assertion that failed comes first, and the leaks that its jump left are many lines after it."""
    lines = [line for line in text.rstrip().split("\n") if not line.startswith("ok ")]
    left_out = len(lines) - 2 * OUTPUT_LINES
    if left_out > 0:
        lines[OUTPUT_LINES:-OUTPUT_LINES] = [f"({left_out} lines left out)"]
    for line in lines:
        print("# " + line)


def cases(test):
    """(name, "ok", "not ok" or "skip", why) of each case that the test reported."""
    said = ""
    for line in test.get("stdout", "").split("\n"):
        found = TAP_LINE.match(line)
        if found:
            state = "skip" if found.group(3) else "not ok" if found.group(1) else "ok"
            # cmocka has the name in place of a reason, and the test says it before that.
            name, why = (found.group(2), found.group(4)) if found.group(2) else (found.group(4) or "", said)
            yield name, state, why
        said = line.removeprefix("# ") if line.startswith("# ") else ""


def report(test):
    name, result = test["name"], test["result"]
    name = name.split(" / ")[-1]
    found = list(cases(test))
    if not found and result in ("OK", "EXPECTEDFAIL"):
        found = [("", "ok", "")]
    elif not found and result == "SKIP":
        found = [("", "skip", "")]
    elif result not in ("OK", "EXPECTEDFAIL", "SKIP") and not any(state == "not ok" for _, state, _ in found):
        found.append((f"ended with {result}, return code {test.get('returncode')}", "not ok", name))
    explained = False
    for case, state, why in found:
        title = f"{name}: {case}" if case else name
        print(f"ok - {title} # SKIP {why}" if state == "skip" else f"{state} - {title}")
        if state == "not ok" and not explained:
            comment("command: " + " ".join(test.get("command", [])))
            comment(test.get("stdout", "") + test.get("stderr", ""))
            explained = True
        if state == "not ok" and "repeat: " not in test.get("stdout", ""):
            # All of a test that ended before it could say more.
            again = name if why == name else title
            comment(f"repeat: script/test {os.environ.get('TEST_STEP', 'unit')} -k {shlex.quote(again)}")


def main():
    tests = 0
    try:
        with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
            for line in log:
                report(json.loads(line))
                tests += 1
    except FileNotFoundError:
        pass
    if tests == 0:
        print("not ok - no test was run")


main()
