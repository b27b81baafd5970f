"""counts.db when it cannot be read. A case lasts for one or two steps of the counts, ten seconds each."""

import os

import pytest

from support import expect, has, until
from support.contract import Checked
from support.counts import RULES, decide, stored, totals


@pytest.fixture
def s():
    with Checked(rules=RULES) as running:
        yield running


def test_a_damaged_file(s):
    decide(s)
    s.stop()
    path = os.path.join(s.data, "counts.db")
    with open(path, "wb") as out:
        out.write(b"not a database" * 1000)
    begin = os.path.getsize(s.log)
    s.start()
    until(lambda: s.events("counts", begin), "the log tells")
    until(lambda: stored(s, "SELECT count(*) FROM all_10"), "a new file")
    lines = [entry["message"] for entry in s.events("counts", begin)]
    expect(len(lines), 1, lines)
    has(lines[0], "counts.db.damaged", "a new file begins")
    with open(path + ".damaged", "rb") as aside:
        expect(aside.read(14), b"not a database", "put aside")
    decide(s)
    expect(totals(s)["allowed"] > 0, True, "it counts")


def test_a_file_that_cannot_be_opened(s):
    """A folder stands in its place: the log says so once, decisions go on, and it recovers."""
    s.stop()
    path = os.path.join(s.data, "counts.db")
    os.rename(path, path + ".mine")
    os.mkdir(path)
    begin = os.path.getsize(s.log)
    s.start()
    until(lambda: s.events("counts", begin), "the log tells")
    decide(s)
    answer = s.steer("GET", "/v1/counts")
    expect((answer.status, answer.headers["Retry-After"]), (503, "5"), answer.body.decode())
    has(s.events("counts", begin)[0]["message"], "not stored", "counts.db")
    os.rmdir(path)
    os.rename(path + ".mine", path)
    until(lambda: len(s.events("counts", begin)) > 1, "it is stored again")
    lines = [entry["message"] for entry in s.events("counts", begin)]
    expect((len(lines), "again" in lines[1]), (2, True), lines)
    expect(s.steer("GET", "/v1/counts").status, 200)
