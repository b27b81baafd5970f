#!/usr/bin/python3
"""Finds the cases of a build that match an expression: for `script/test -k`.

    tests/cases.py BUILD SUITE EXPRESSION     SUITE: of meson's tests; or "" for all

Prints a line for each: the name of meson's test, a tab, the name of the case, as TEST_CASES takes it. An expression is a part of
"TEST: CASE", in small letters or capitals; or several, with and, or, not and brackets between them, as in pytest.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = {"and", "or", "not", "(", ")"}


def matches(expression, text):
    """Names have such words, too: what cannot be an expression is a part of a name."""

    def is_part(token):
        return token.lower() in text.lower()

    tokens = re.findall(r"[()]|[^\s()]+", expression)
    try:
        return is_part(expression) or eval(" ".join(token if token in WORDS else str(is_part(token)) for token in tokens))
    except SyntaxError:
        return False


def cases_in_c(test, build):
    """Those of cmocka; other programs are one case."""
    if test["protocol"] != "tap":
        return [""]
    environment = {**os.environ, **test["env"], "TEST_LIST": "1"}
    return subprocess.run(test["cmd"], env=environment, cwd=build, capture_output=True, text=True, check=True).stdout.splitlines()


def cases_in_python(files, build):
    """By the path of their file; the name is pytest's."""
    words = ["/usr/bin/python3", "-m", "pytest", "--collect-only", "-q", *files]
    done = subprocess.run(words, env={**os.environ, "WEIR_BUILD": build}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    found = {}
    for line in done.stdout.splitlines():
        path, double_colon, _ = line.partition("::")
        if double_colon:
            found.setdefault(os.path.join(HERE, path), []).append(line)
    return found


def main():
    build, suite, expression = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3]
    tests = json.loads(subprocess.check_output(["meson", "introspect", "--tests", build]))
    tests = [test for test in tests if not suite or f"weir:{suite}" in test["suite"]]
    in_python = {test["name"]: test["cmd"][-1] for test in tests if test["cmd"][-1].endswith(".py")}
    in_c = [test for test in tests if test["name"] not in in_python]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(zip([test["name"] for test in in_c], pool.map(lambda test: cases_in_c(test, build), in_c)))
    by_file = cases_in_python(in_python.values(), build)
    found += [(name, by_file.get(os.path.realpath(path), [])) for name, path in in_python.items()]
    for name, cases in found:
        for case in cases:
            if matches(expression, f"{name}: {case}"):
                print(f"{name}\t{case}")


main()
