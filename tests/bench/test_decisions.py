"""Runs the program of `script/bench` with --quick and looks at what it prints, not at how fast it was."""

import json
import os
import re
import subprocess

from support import BUILD
from support import ROOT as SOURCE

PROGRAM = os.path.join(BUILD, "bench", "decisions")


def bench(*args):
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, check=False)


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
    assert {"cas", "access", "prefetched_cas", "decide", "refuse", "mutex_map", "check", "check_override"} <= {r["what"] for r in results}
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


def options_of(text):
    return set(re.findall(r"^  --([a-z-]+)", text, re.M)) - {"help"}


def test_wrong():
    """an unknown part, a stray word, an unknown option"""
    for args, part in ((["--only", "cold"], "unknown part 'cold'"), (["fast"], "unexpected argument 'fast'"),
                       (["--frobnicate", "x"], "unknown option --frobnicate")):
        run = bench(*args)
        assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1), run
        assert part in run.stderr and run.stderr.endswith("; see 'script/bench decisions --help'\n"), run


def test_help():
    """--help fits a terminal, and each option that it lists is read"""
    run = bench("--help")
    assert (run.returncode, run.stderr) == (0, ""), run
    assert run.stdout.startswith("Usage: script/bench decisions [OPTION]...\n") and "exit status" in run.stdout, run.stdout
    assert all(len(line) <= 80 for line in run.stdout.split("\n")), run.stdout
    assert options_of(run.stdout) == {"json", "quick", "only"}, run.stdout
    for option in options_of(run.stdout):
        run = bench(f"--{option}=x", "--frobnicate")
        assert (run.returncode, run.stdout) == (2, "") and f"no option --{option}" not in run.stderr, run


def test_readme():
    """bench/README.md explains every option, part and field"""
    with open(os.path.join(SOURCE, "bench", "README.md"), encoding="utf-8") as file:
        text = file.read()
    usage = bench("--help").stdout
    for option in options_of(usage):
        assert f"`--{option}" in text, option
    parts = re.findall(r"^  ([a-z0-9-]+)  ", usage.split("\nParts:\n")[1], re.M)
    assert len(parts) == 16, usage
    for part in parts:
        assert f"`{part}`" in text, part
    page = json.loads(bench("--quick", "--json", "--only", "hot", "--only", "memory", "--only", "source", "--only", "rules", "--only", "overrides").stdout)
    for fields in (page, page["results"][0], page["ratios"][0], page["memory"], page.get("source", {}), page["rules"], page["overrides"]):
        for field in fields:
            assert f"`{field}`" in text, field


def test_full_disk():
    """output that cannot be written is an error"""
    with open("/dev/full", "w", encoding="utf-8") as full:
        run = subprocess.run([PROGRAM, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 2 and "cannot write the output" in run.stderr, run
