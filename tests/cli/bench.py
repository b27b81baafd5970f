#!/usr/bin/env python3
"""Runs `weir bench --quick` and looks at what it prints, not at how fast it was. Prints TAP.

    tests/cli/bench.py BUILD/weir
"""
import json
import os
import subprocess
import sys
import traceback

WEIR = os.path.abspath(sys.argv[1])


def bench(*args):
    return subprocess.run([WEIR, "bench", *args], capture_output=True, text=True, check=False)


def test_json():
    """--json is one document in which every number is there"""
    run = bench("--quick", "--json")
    assert (run.returncode, run.stderr) == (0, ""), run
    page = json.loads(run.stdout)
    assert page["quick"] is True
    results = page["results"]
    assert len({r["name"] for r in results}) == len(results), "names are not unique"
    for r in results:
        assert 0 < r["best_ns"] <= r["ns"], r
        assert 0 <= r["refused"] <= 1, r
        if r["what"] == "refuse":
            assert r["refused"] == 1, r
        elif r["order"] == "uniform" and r["what"] != "cas":
            assert r["refused"] < 0.01, r
    two = len(os.sched_getaffinity(0)) > 1
    assert {r["threads"] for r in results} == ({1, 2} if two else {1})
    assert {"cas", "access", "prefetched_cas", "decide", "refuse", "mutex_map", "check"} <= {r["what"] for r in results}
    assert len(page["ratios"]) >= (14 if two else 10), page["ratios"]
    for r in page["ratios"]:
        assert r["met"] == (r["value"] <= r["target"] if r["at_most"] else r["value"] >= r["target"]), r
    assert page["memory"]["bytes_per_key"] <= 43, page["memory"]


def test_text():
    """the tables for people, of the parts that were asked for"""
    run = bench("--quick", "--only", "hot", "--only", "memory")
    assert (run.returncode, run.stderr) == (0, ""), run
    assert "Refusing one subject" in run.stdout and "bytes of table" in run.stdout, run.stdout
    assert "weir_check" not in run.stdout, run.stdout


def test_wrong():
    """a part that there is not, and a stray word"""
    for args in (["--only", "cold"], ["fast"]):
        run = bench(*args)
        assert run.returncode == 2 and run.stdout == "" and "weir bench --help" in run.stderr, run


TESTS = [test_json, test_text, test_wrong]


def main():
    print(f"1..{len(TESTS)}")
    failed = 0
    for number, test in enumerate(TESTS, 1):
        try:
            test()
            print(f"ok {number} - {test.__doc__}")
        except Exception:  # pylint: disable=broad-except
            failed = 1
            print(f"not ok {number} - {test.__doc__}")
            print("# " + traceback.format_exc().replace("\n", "\n# "))
    return failed


sys.exit(main())
