"""Runs `script/bench peers` with --quick and looks at what it prints and draws, not at how fast it was."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from support import BUILD
from support import ROOT as SOURCE

sys.path.append(os.path.join(SOURCE, "bench"))

from charts import LARGER, SMALLER, Bar, Chart, losses, write_page  # noqa: E402  (needs the path above)
from common import by_key  # noqa: E402  (needs the path above)

sys.path.pop()  # other files there have names of folders of tests

PAGE = os.path.join(SOURCE, "docs", "benchmarks.md")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(name="place")
def fixture_place(folder):
    return pathlib.Path(folder)


def bench(*args):
    words = [sys.executable, os.path.join(SOURCE, "bench", "peers.py"), BUILD, *args]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)


def program(folder, text):
    """A library's program: what it does with KEYS THREADS SECONDS is `text` in sh."""
    path = os.path.join(folder, "library")
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"#!/bin/sh\n{text}\n")
    os.chmod(path, 0o755)
    return path


def drawn(path):
    """(title, description, names of bars, texts) of a chart"""
    root = xml.etree.ElementTree.parse(path).getroot()
    assert root.tag == f"{SVG}svg" and root.get("role") == "img", root.attrib
    ids = {child.get("id"): child.text for child in root}
    assert root.get("aria-labelledby") == "title desc" and ids["title"] and ids["desc"]
    kinds = [rect.get("class") for rect in root.iter(f"{SVG}rect") if rect.get("class") != "page"]
    return ids["title"], ids["desc"], kinds, [text.text for text in root.iter(f"{SVG}text")]


@pytest.mark.skipif(not all(map(shutil.which, ("redis-server", "redis-benchmark", "wrk"))), reason="no redis-server or wrk")
def test_all_parts(place):
    """with no peer but a library: all parts, all charts, and a page in which only the figures change"""
    page = place / "page.md"
    shutil.copy(PAGE, page)
    run = bench("--quick", "--json", "--governor", program(place, 'echo "$3"'), "--svg", str(place / "svg"), "--page", str(page))
    assert run.returncode == 0, run
    results = json.loads(run.stdout)
    assert {r["chart"] for r in results} >= {"process", "cpu", "memory"}, results
    for r in results:
        assert r["is"] > 0 or r["chart"] == "memory", r
        if r["name"] == "weir" and r["chart"] != "memory":
            assert r["is"] == 1, r
    assert {r["name"] for r in results} == {"weir", "weir, with what is left", "weir, any request", "governor", "a script in Redis"}
    for what in ("throttlecrab, the library", "throttlecrab", "gubernator", "ratelimit with Redis", "redis-cell"):
        assert f"{what}: left out; --" in run.stderr, run.stderr
    for chart in {r["chart"] for r in results if r["name"] != "weir"}:
        title, desc, kinds, texts = drawn(place / "svg" / f"peers-{chart}.svg")
        assert title in texts and "weir" in kinds and "weir" in texts, (chart, kinds, texts)
        groups = [r["group"] for r in results if r["chart"] == chart]
        for r in results:
            if r["chart"] == chart:
                assert (r["group"] in texts) == (groups.count(r["group"]) > 1), (r, texts)
                assert r["name"] in desc, (r, desc)
    before, after = (re.split(r"<!-- figures: \w+ -->\n.*?<!-- end of figures -->", p.read_text(), flags=re.S) for p in (page, pathlib.Path(PAGE)))
    assert before == after
    assert re.search(r"\| 1,000 keys, one thread \| 1.00 × \|", page.read_text()), page.read_text()


def test_missing(place):
    """peers that are not there are left out by name"""
    run = bench("--quick", "--only", "process", "--governor", "/no/such/program", "--redis-cell", str(place))
    assert run.returncode == 0, run
    assert "governor: left out; there is no program /no/such/program\n" in run.stdout, run.stdout
    assert f"redis-cell: left out; there is no module {place}\n" in run.stdout, run.stdout
    assert re.search(r"1,000 keys, one thread: weir, .* 1\.00\n", run.stdout), run.stdout
    assert "governor," not in run.stdout


@pytest.mark.parametrize("text", ["echo fast", "echo -1", "echo 0", "echo nan", "echo inf", "true", "echo 1 2", 'echo "50 ns"', "exit 3"])
def test_bad_number(place, text):
    """what is not a number of nanoseconds is an error that names the program"""
    path = program(place, text)
    with pytest.raises(SystemExit) as ended:
        by_key(path, 1000, 1, 1)
    wanted = "failed with status 3" if text == "exit 3" else "printed '[^']*' instead of the nanoseconds of a check"
    assert re.fullmatch(f"{path} 1000 1 1 {wanted}", ended.value.code), ended.value.code


def test_bad_program(place):
    """such an error ends the run"""
    path = program(place, "echo fast")
    run = bench("--quick", "--only", "process", "--governor", path)
    assert (run.returncode, run.stderr) == (1, f"{path} 1000 1 1 printed 'fast' instead of the nanoseconds of a check\n"), run


@pytest.mark.parametrize("args", [("--rounds", "0"), ("--rounds", "x"), ("--seconds", "-1"), ("--only", "fast"), ("--page", PAGE, "--only", "resp")])
def test_wrong(args):
    run = bench(*args)
    assert (run.returncode, run.stdout) == (2, ""), run
    assert args[0] in run.stderr, run


def test_page_describes_options():
    """docs/benchmarks.md names every option and part, and has every mark and chart"""
    usage = bench("--help").stdout
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    for option in set(re.findall(r"--([a-z-]+)", usage)) - {"help"}:
        assert f"--{option}" in page, option
    for part in re.findall(r"^([a-z]+)  +\S", usage, re.M):
        assert f"`{part}`" in page or part in ("build",), part
    assert re.findall(r"<!-- figures: (\w+) -->", page) == ["run", "process", "rate", "cpu", "memory", "losses"]
    for name in ("process", "rate", "cpu", "memory"):
        assert f"(peers-{name}.svg)" in page
        drawn(os.path.join(SOURCE, "docs", f"peers-{name}.svg"))


def test_chart(place):
    """labels, what is ahead of weir, names that XML knows"""
    chart = Chart("A & B", "checks <a second>", LARGER)
    chart.groups["<group>"] = [Bar("weir", 1), Bar('"fast" & more', 1.5), Bar("slow", 0.0123, at_most=True), Bar("same", 1.01), Bar("weir, too", 2)]
    path = place / "chart.svg"
    path.write_text(chart.svg())
    title, desc, kinds, texts = drawn(path)
    assert title == "A & B" and kinds == ["weir", "ahead", "behind", "behind", "weir"]
    assert desc == 'checks <a second>; longer is better. <group>: weir 1.00 ×, "fast" & more 1.50 ×, slow at most 0.012 ×, same 1.01 ×, weir, too 2.0 ×.'
    assert "at most 0.012 ×" in texts
    assert losses({"x": chart}) == '- A & B, <group>: "fast" & more 1.50 ×'
    memory = Chart("Memory", "bytes", SMALLER, {"all": [Bar("weir", 43, 43), Bar("small", 20, 43), Bar("large", 430, 43)]})
    path.write_text(memory.svg())
    assert drawn(path)[2] == ["weir", "ahead", "behind"]
    assert memory.table().split("\n")[2] == "| all | 43 (1.00 ×) | **20 (0.47 ×)** | 430 (10.0 ×) |"


def test_page(place):
    """figures are replaced, also twice; marks that nobody knows and parts that did not run stay"""
    path = place / "page.md"
    text = "a\n<!-- figures: run -->\nold\n<!-- end of figures -->\nb\n<!-- figures: other -->\nkept\n<!-- end of figures -->\n"
    path.write_text(text)
    for _ in range(2):
        write_page(path, {}, "today")
    assert path.read_text() == (
        "a\n<!-- figures: run -->\n\ntoday.\n\n<!-- end of figures -->\nb\n<!-- figures: other -->\n\nkept\n\n<!-- end of figures -->\n"
    )
