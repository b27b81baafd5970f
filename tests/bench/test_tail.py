"""Runs the program of `script/bench tail` for some seconds and looks at what it prints, not at how fast it was."""

import json
import os
import subprocess
import tempfile

import pytest

from support import BUILD, expect

PROGRAM = os.path.join(BUILD, "bench", "tail")
if "RUNTIME_DIRECTORY" not in os.environ:
    pytest.skip("/dev/shm is missing", allow_module_level=True)


def tail(folder, *words):
    words = ["--seconds", "2", "--rounds", "2", "--rate", "1000", "--keys", "20000", "--disk", folder, "--memory", os.environ["RUNTIME_DIRECTORY"], *words]
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
    expect((done.returncode, done.stderr, os.listdir(folder)), (0, "", []))
    return done.stdout


def test_json():
    with tempfile.TemporaryDirectory() as folder:
        page = json.loads(tail(folder, "--json"))
    for kind in ("never_saved", "saved", "file"):
        found = page[kind]
        assert 0 < found["p50_us"] <= found["p99_us"] <= found["p999_us"] <= found["p9999_us"] <= found["max_us"], page
    assert page["saved"]["written"] > 20000 * 32 and page["never_saved"]["written"] == 0, page


def test_text():
    with tempfile.TemporaryDirectory() as folder:
        text = tail(folder)
    for part in ("in memory, never saved", "in memory, saved every second: p99.99 / never saved", "(≤ 1.2)"):
        assert part in text, text
