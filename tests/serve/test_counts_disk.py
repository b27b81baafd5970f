"""counts.db when it cannot be written, or is gone. A case lasts for two or three steps of the counts, ten seconds each."""

import os
import resource

import pytest

from support import expect, has, until
from support.contract import Checked
from support.counts import RULES, WANTED, decide, stored, totals


@pytest.fixture
def s():
    with Checked(rules=RULES) as running:
        yield running


def test_a_full_disk(s):
    """No file may grow: the log says so once, decisions go on, and later it is stored again."""
    until(lambda: stored(s, "SELECT count(*) FROM all_10"), "a file")
    size = max(os.path.getsize(os.path.join(s.data, name)) for name in ("counts.db", "counts.db-wal"))
    resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    until(lambda: s.events("counts"), "the log tells")
    has(s.events("counts")[0]["message"], "not stored", "counts.db")
    until(lambda: decide(s) or totals(s), "the step that has begun is answered from memory")
    resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    until(lambda: len(s.events("counts")) > 1, "it is stored again")
    lines = [entry["message"] for entry in s.events("counts")]
    expect((len(lines), "again" in lines[1]), (2, True), lines)
    expect(stored(s, "PRAGMA integrity_check"), "ok")


def test_removed_while_it_runs(s):
    until(lambda: stored(s, "SELECT count(*) FROM all_10"), "a file")
    for end in ("", "-wal", "-shm"):
        os.unlink(os.path.join(s.data, "counts.db" + end))
    decide(s)
    until(lambda: stored(s, "SELECT sum(allowed) FROM all_10") == WANTED["allowed"], "a new file")
    expect(s.events("counts"), [], "nothing to tell")
