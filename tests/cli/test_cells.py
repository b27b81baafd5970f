"""`weir cells`: shows, checks, resizes and copies a table of counts."""

import json
import os
import signal
import stat
import subprocess

from support import ENVIRONMENT, WEIR, expect, has, until, weir
from support.service import Service

RULES = """rules:
  - { id: bucket, match: { event: bucket }, by: [key], limits: ["10 per 1h"] }
  - { id: fixed, match: { event: fixed }, by: [key], limits: [{ algorithm: fixed_window, max: 10, per: 1h }] }
  - { id: sliding, match: { event: sliding }, by: [key], limits: [{ algorithm: sliding_window, max: 10, per: 1h }] }
  - { id: calendar, match: { event: calendar }, by: [key], limits: ["10 per month"] }
"""
EVENTS = ("bucket", "fixed", "sliding", "calendar")


def cells(*words, status=0):
    run = weir("cells", *words)
    expect(run.returncode, status, run.stderr.decode())
    return run.stdout.decode() + run.stderr.decode()


def check(folder, event, key, cost, *more):
    run = weir("check", "--rules", f"{folder}/rules.yaml", "--cells", f"{folder}/cells", "--event", event, "--key", key, "--cost", cost,
               *more)
    return run.returncode, run.stderr.decode()


def fill(folder, *more):
    with open(f"{folder}/rules.yaml", "w", encoding="utf-8") as file:
        file.write(RULES)
    for event in EVENTS:
        for key in ("a", "b"):
            expect(check(folder, event, key, 7, *more), (0, ""))


def kept(folder):
    """Three are left of each, and no more."""
    for event in EVENTS:
        for key in ("a", "b"):
            expect(check(folder, event, key, 4)[0], 1, f"{event} {key}")
            expect(check(folder, event, key, 3)[0], 0, f"{event} {key}")


def facts(path):
    return json.loads(cells("show", path, "--json"))


def test_show_and_check(folder):
    fill(folder, "--cells-keys", "100000")
    path = f"{folder}/cells"
    has(cells("show", path), "100008 keys", "8 cells", "dropped     0", "layout      9", "identity ", path)
    found = facts(path)
    expect((found["keys"], found["live"], found["drops"], found["copy"], found["file"]), (100008, 8, 0, False, os.path.realpath(path)))
    has(cells("check", path), "the header and all cells are good; 8 cells in use")
    with open(path, "r+b") as file:
        table = file.read()
        torn = 0
        for at in range(4096, 4096 + 100008 // 12 * 512, 32):
            if table[at + 24] & 3 == 2 and torn < 3:  # the tag of a live state: its generation does not fit the head any more
                file.seek(at)
                file.write(bytes([table[at] ^ 4]))
                torn += 1
    has(cells("check", path, status=1), "3 cells are damaged", "5 good cells in use")
    expect(json.loads(cells("check", path, "--json", status=1))["damaged"], 3)
    with open(path, "r+b") as file:
        file.seek(20)
        file.write(b"\xff")
    has(cells("check", path, status=2), "header is damaged")


def test_resize_keeps_counts(folder):
    fill(folder, "--cells-keys", "100000")
    path = f"{folder}/cells"
    os.chmod(path, 0o640)
    before = facts(path)
    has(cells("resize", path, "--keys", "300k"), "8 counts kept, 0 lost")
    after = facts(path)
    expect((after["keys"], after["identity"], after["copy"]), (300000, before["identity"], False))
    expect(stat.S_IMODE(os.stat(path).st_mode), 0o640)
    has(cells("resize", path, "--bytes", "8m"), "counts kept, 0 lost")
    has(cells("resize", path, "--keys", "100000"), "counts kept, 0 lost")
    kept(folder)
    expect(sorted(os.listdir(folder)), ["cells", "rules.yaml"])


def test_a_table_that_is_too_small(folder):
    fill(folder, "--cells-keys", "100000")
    path = f"{folder}/cells"
    for number in range(60):
        check(folder, "bucket", f"k{number}", 10)
    has(cells("resize", path, "--keys", "2", status=1), "36 of 68 counts have no place", "28 of them at their limit", "--drop", "nothing was changed")
    expect((facts(path)["live"], sorted(os.listdir(folder))), (68, ["cells", "rules.yaml"]))
    has(cells("resize", path, "--keys", "2", "--drop"), "32 counts kept, 36 lost")
    expect((facts(path)["keys"], facts(path)["at_limit"]), (24, 32))


def test_a_copy(folder):
    fill(folder, "--cells-keys", "1000")
    path = f"{folder}/cells"
    has(cells("copy", path, f"{folder}/copy"), "a copy of", "8 counts", "another host")
    assert facts(path)["identity"] != facts(f"{folder}/copy")["identity"]
    expect(facts(f"{folder}/copy")["copy"], True)
    has(cells("copy", path, f"{folder}/copy", status=2), "already exists")
    os.rename(f"{folder}/copy", path)
    kept(folder)


def test_killed_at_any_time(folder):
    """The old file or the new one is there, whole."""
    fill(folder, "--cells-keys", "100000")
    path = f"{folder}/cells"
    for number in range(12):
        keys = 400000 + number % 2 * 100000
        run = subprocess.Popen([WEIR, "cells", "resize", path, "--keys", str(keys)], stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        try:
            run.wait(0.002 * number)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGKILL)
            run.wait()
        found = json.loads(cells("check", path, "--json"))
        expect((found["keys"] in (100008, 400008, 500004), found["live"] >= 8), (True, True), found)
    cells("resize", path, "--keys", "100000")
    expect(sorted(os.listdir(folder)), ["cells", "rules.yaml"])
    kept(folder)


def test_replaced_meanwhile(folder):
    """A table that has taken the place of the one that is being resized is not overwritten."""
    fill(folder, "--cells-keys", "1000000")
    path = f"{folder}/cells"
    cells("copy", path, f"{folder}/other")
    identity = facts(f"{folder}/other")["identity"]
    run = subprocess.Popen([WEIR, "cells", "resize", path, "--keys", "2000000"], stderr=subprocess.PIPE, env=ENVIRONMENT)
    until(lambda: any(os.path.realpath(f"/proc/{run.pid}/fd/{fd}") == path for fd in os.listdir(f"/proc/{run.pid}/fd")), "it is open", 0.001)
    run.send_signal(signal.SIGSTOP)
    os.rename(f"{folder}/other", path)
    run.send_signal(signal.SIGCONT)
    said = run.communicate()[1].decode()
    expect(run.returncode, 2, said)
    has(said, "was replaced meanwhile", "nothing was changed")
    expect((facts(path)["identity"], facts(path)["keys"]), (identity, 1000008))
    expect(sorted(os.listdir(folder)), ["cells", "rules.yaml"])


def test_with_a_service():
    """It is refused while the service runs; then the table in memory, and what was saved of it, have the new size."""
    with Service(rules="rules: [{ id: a, by: [user], limits: [10 per 1h] }]") as service:
        expect(service.check(user="ann", cost=7).json()["allowed"], True)
        path = os.path.join(service.data, "cells")
        has(cells("resize", path, "--keys", "100000", status=2), "in use by weir", "stop weir serve", "start them again")
        has(cells("copy", path, f"{service.folder.name}/copy"), "1 counts")
        service.stop()
        has(cells("resize", path, "--keys", "100000"), "1 counts kept")
        os.unlink(os.path.realpath(path))  # as a reboot does
        service.start()
        expect(facts(path)["keys"], 100008)
        expect(service.check(user="ann", cost=4).json()["allowed"], False)
        expect(service.check(user="ann", cost=3).json()["allowed"], True)


def test_another_size_than_the_option_says(folder):
    fill(folder, "--cells-keys", "1000")
    path = f"{folder}/cells"
    said = check(folder, "bucket", "c", 1, "--cells-keys", "5000")[1]
    has(said, "has room for 1008 keys", "--cells-keys is 5000", f"weir cells resize {path} --keys 5000")
    expect(check(folder, "bucket", "c", 1, "--cells-keys", "1000")[1], "")
    expect(check(folder, "bucket", "c", 1)[1], "")
    with Service("--cells", path, "--cells-keys", "9000") as service:
        has("".join(service.lines()), "has room for 1008 keys", f"weir cells resize {path} --keys 9000")


def test_badly(folder):
    for words, part in ((["show"], "show takes one FILE"), (["look", "x"], "unknown verb 'look'; allowed: show, check, resize, copy"), (["sho", "x"], "(did you mean show?)"),
                        (["resize", "x"], "--keys N or --bytes SIZE"), (["show", "x", "--keys", "1"], "--keys cannot be used with show"),
                        (["copy", "x"], "copy takes FILE and TO"), (["show", f"{folder}/none"], "No such file")):
        if words[0] == "resize":
            fill(folder)
            words[1] = f"{folder}/cells"
        has(cells(*words, status=2), part)
