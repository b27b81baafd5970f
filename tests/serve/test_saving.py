"""The table in memory and its copy in the data folder: what comes back after a kill, a reboot, damage, and a move."""

import os
import random
import resource
import shutil
import subprocess
import tempfile
import threading
import time

import pytest

import support
from support import WEIR, expect, until
from support.service import Service
from support.wire import Gone, Wire

if "RUNTIME_DIRECTORY" not in os.environ:
    pytest.skip("/dev/shm is missing", allow_module_level=True)

MAX = 1000000
RULES = f"""
rules:
  - {{ id: e, match: {{ event: e }}, by: [key], limits: [ {{ name: n, algorithm: fixed_window, max: {MAX}, per: 365d }} ] }}
"""
RARELY = ("--save", "1h")
PLAIN = ("--cells-memory", "none")


def charge(service, key, cost=1):
    answer = service.check(event="e", key=key, cost=cost)
    expect(answer.status, 200)
    return answer.json()


def used(service, key):
    return MAX - charge(service, key, 0)["remaining"]


def live(service):
    return os.readlink(os.path.join(service.data, "cells"))


def saved(service):
    return os.path.join(service.data, "cells.saved")


def table(service):
    return service.steer("GET", "/v1/status").json()["table"]


def wait_for_save(service):
    """A save that begins later is complete."""
    begin = time.monotonic()

    def is_saved():
        asked, found = time.monotonic(), table(service)["saved"]
        return found and found["saves"] > 0 and found["age_s"] < asked - begin

    until(is_saved, "it is saved")


def reboot(service):
    """As a power cut: the process is gone, and what was in memory."""
    service.kill()
    os.unlink(live(service))
    service.start()


def said(service, part, level=None):
    return [entry for entry in service.events("saving") if part in entry["message"] and level in (None, entry["level"])]


def test_default():
    """A first start counts in memory, and says so; other processes open the same path."""
    with Service(rules=RULES) as s:
        charge(s, "k", 3)
        path = live(s)
        expect(path.startswith(os.environ["RUNTIME_DIRECTORY"] + "/weir-"), True, path)
        expect(len(said(s, f"in memory, in {path}, and are saved to {saved(s)}")), 1)
        found = table(s)
        expect((found["file"], found["memory"], found["saved"] is None), (os.path.join(s.data, "cells"), path, False))
        wait_for_save(s)
        metrics = s.steer("GET", "/metrics").body.decode()
        for name in ("weir_save_age_seconds ", "weir_saves_total ", "weir_save_failures_total 0", "weir_save_bytes_total "):
            expect("\n" + name in metrics, True, name)
        done = support.weir("check", "--rules", s.rules_file, "--cells", os.path.join(s.data, "cells"), "--event", "e", "--key", "k")
        expect(done.returncode, 0, done.stderr)
        expect(used(s, "k"), 4, "a command counts in the same table")
        s.kill()
        s.start()
        expect((used(s, "k"), live(s)), (4, path), "kill -9 loses nothing")
        expect(said(s, "read back"), [])


def test_reboot():
    with Service(rules=RULES) as s:
        for key in range(300):
            charge(s, f"k{key}", 1 + key)
        wait_for_save(s)
        reboot(s)
        expect([used(s, f"k{key}") for key in range(300)], [1 + key for key in range(300)])
        expect(len(said(s, "read back", "info")), 1)
        expect(said(s, "", "warning"), [])
        charge(s, "k0", 10)
        wait_for_save(s)
        reboot(s)
        expect(used(s, "k0"), 11)


def test_saved_at_the_end():
    with Service(*RARELY, rules=RULES) as s:
        until(lambda: table(s)["saved"] and table(s)["saved"]["saves"] == 1, "the first save")
        charge(s, "k", 7)
        s.stop()
        os.unlink(live(s))
        s.start()
        expect(used(s, "k"), 7)


def test_killed_while_saving():
    """No older than the last completed save, no newer than what was asked."""
    seed = support.number("TEST_SEED", 1)
    print(f"# TEST_SEED={seed}")
    rng = random.Random(seed)
    with Service("--save", "100ms", "--cells-keys", 200000, rules=RULES) as s:
        for _ in range(support.number("TEST_COUNT", 6)):
            begun = {f"k{i}": used(s, f"k{i}") for i in range(8)}
            asked, told = dict(begun), dict(begun)
            stop = threading.Event()

            def run(asked=asked, told=told, stop=stop):
                with Wire(s) as wire:
                    while not stop.is_set():
                        key = f"k{rng.randrange(8)}"
                        asked[key] += 1
                        try:
                            wire.ask("WEIR.CHECK", "event", "e", "key", key)
                        except (OSError, Gone):
                            return
                        told[key] += 1

            thread = threading.Thread(target=run)
            thread.start()
            time.sleep(rng.random() * 0.3)
            floor = dict(told)
            wait_for_save(s)
            time.sleep(rng.random() * 0.2)
            s.kill()
            stop.set()
            thread.join()
            os.unlink(live(s))
            s.start()
            for key, least in floor.items():
                expect(least <= used(s, key) <= asked[key], True, f"{key}: {least} <= {used(s, key)} <= {asked[key]}")
            expect(said(s, "damaged"), [])


def test_plain_file_is_taken_over():
    with Service(*PLAIN, rules=RULES) as s:
        charge(s, "k", 5)
        path = os.path.join(s.data, "cells")
        expect((os.path.islink(path), table(s)["memory"], table(s)["saved"]), (False, None, None))
        os.chmod(path, 0o640)
        s.stop()
        s.flags = []
        s.start()
        expect((os.path.islink(path), used(s, "k")), (True, 5))
        expect(os.stat(path).st_mode & 0o777, 0o640, "mode of the table")
        expect(s.events("cells"), [], "it is the same host")
        charge(s, "k", 1)
        memory = live(s)
        s.kill()
        s.flags = list(PLAIN)
        s.start()
        expect((os.path.islink(path), os.path.exists(memory), os.path.exists(saved(s)), used(s, "k")), (False, False, False, 6))
        expect(s.events("cells"), [])
        s.restart()
        expect(used(s, "k"), 6)


def test_back_to_a_file_after_a_reboot():
    with Service(rules=RULES) as s:
        charge(s, "k", 5)
        wait_for_save(s)
        s.flags = list(PLAIN)
        reboot(s)
        expect((os.path.islink(os.path.join(s.data, "cells")), used(s, "k")), (False, 5))


def test_damaged_copy():
    with Service(rules=RULES) as s:
        charge(s, "k", 5)
        wait_for_save(s)
        charge(s, "k", 1)
        wait_for_save(s)
        s.kill()
        os.unlink(live(s))
        with open(saved(s), "r+b") as file:
            file.seek(4096 + 60)
            file.write(b"damage")
        s.start()
        expect(len(said(s, "are damaged and were left out", "warning")), 1)
        expect(used(s, "k"), 6, "a later record is good")
        s.kill()
        os.unlink(live(s))
        with open(saved(s), "r+b") as file:
            file.seek(20)
            file.write(b"damage")
        done = support.weir("serve", "--data", s.data, "--rules", s.rules_file, "--http", "127.0.0.1:0", "--resp", "off", "--admin", "off")
        expect((done.returncode, b"cells.saved: its header is damaged" in done.stderr), (2, True), done.stderr)
        os.unlink(saved(s))
        s.start()
        expect(used(s, "k"), 0)


def test_two_services():
    """They count in one table. One of them saves, and after its death the other."""
    with Service(rules=RULES) as a, Service(rules=RULES) as b:
        b.stop()
        b.data = a.data
        b.start()
        charge(a, "k", 2)
        charge(b, "k", 2)
        expect((used(a, "k"), used(b, "k")), (4, 4))
        wait_for_save(a)
        expect(table(b)["saved"], None)
        a.kill()
        until(lambda: table(b)["saved"] is not None, "the other saves")
        charge(b, "k", 1)
        wait_for_save(b)
        b.kill()
        os.unlink(live(b))
        b.start()
        expect(used(b, "k"), 5)


def test_copied_folder():
    """Its link is that of the original: the copy gets a table of its own, as another host."""
    with Service(rules=RULES) as a, Service(rules=RULES) as b:
        charge(a, "k", 3)
        wait_for_save(a)
        b.stop()
        shutil.rmtree(b.data)
        shutil.copytree(a.data, b.data, symlinks=True, ignore=shutil.ignore_patterns("counts.db*"))
        b.start()
        expect((live(a) == live(b), used(b, "k"), [entry["level"] for entry in b.events("cells")]), (False, 3, ["warning"]))
        charge(b, "k", 1)
        expect((used(a, "k"), used(b, "k")), (3, 4))


def test_saves_that_fail():
    with Service("--save", "100ms", rules=RULES) as s:
        wait_for_save(s)
        pid = s.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, before[1]))
        charge(s, "k", 9)
        until(lambda: table(s)["saved"]["failures"] > 0, "it fails")
        expect(len(said(s, "cannot be saved", "error")), 1)
        expect(used(s, "k"), 9, "decisions go on")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        wait_for_save(s)
        expect(len(said(s, "can be saved to", "info")), 1)
        reboot(s)
        expect(used(s, "k"), 9)


def test_removed_copy():
    """It is written again; and if it cannot be, that is told."""
    with Service("--save", "100ms", rules=RULES) as s:
        charge(s, "k", 5)
        wait_for_save(s)
        os.unlink(saved(s))
        wait_for_save(s)
        reboot(s)
        expect(used(s, "k"), 5)
        wait_for_save(s)
        aside = s.data + ".aside"
        os.rename(s.data, aside)
        try:
            until(lambda: said(s, "cannot be saved", "error"), "it fails")
        finally:
            os.rename(aside, s.data)
        wait_for_save(s)
        expect(len(said(s, "can be saved to", "info")), 1)


def test_copy_without_a_save():
    with Service(rules=RULES) as s:
        charge(s, "k", 5)
        s.stop()
        os.unlink(live(s))
        os.truncate(saved(s), 4096 + 50)
        s.start()
        expect(len(said(s, "no save in it is complete", "warning")), 1)
        expect(len(said(s, "read back from")), 0)
        expect(used(s, "k"), 0)


def test_removed_table():
    """This process goes on, others are told."""
    with Service("--save", "100ms", rules=RULES) as s:
        charge(s, "k", 1)
        os.unlink(live(s))
        until(lambda: said(s, "was removed", "warning"), "it is said")
        done = support.weir("check", "--rules", s.rules_file, "--cells", os.path.join(s.data, "cells"), "--event", "e", "--key", "k")
        expect((done.returncode, b"start the weir serve that saves it" in done.stderr), (2, True), done.stderr)
        charge(s, "k", 1)
        s.restart()
        expect(used(s, "k"), 2)


def test_damaged_memory():
    with Service(rules=RULES) as s:
        charge(s, "k", 4)
        wait_for_save(s)
        s.kill()
        with open(live(s), "r+b") as file:
            file.write(b"damage")
        s.start()
        expect((used(s, "k"), len(said(s, "the table in memory cannot be used", "warning"))), (4, 1))


def refused(*flags):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([WEIR, "serve", "--data", folder + "/data", "--http", "127.0.0.1:0", "--resp", "off", "--admin", "off", *flags],
                              env=support.ENVIRONMENT, capture_output=True, timeout=support.DEADLINE_S, check=False)
        expect((done.returncode, os.path.lexists(folder + "/data/cells")), (2, False), done.stderr)
        return done.stderr.decode()


def test_folders_that_cannot_be_used():
    with tempfile.TemporaryDirectory(dir=support.ROOT) as disk:
        expect("is not in memory" in refused("--cells-memory", disk), True)
        expect("cannot use the folder" in refused("--cells-memory", disk + "/none"), True)
        expect("cannot be combined" in refused("--cells-memory", "/dev/shm", "--cells", disk + "/cells"), True)
        expect("no room for" in refused("--cells-memory", os.environ["RUNTIME_DIRECTORY"], "--cells-keys", "50000000000"), True)
        with Service(rules=RULES, environment={"RUNTIME_DIRECTORY": disk}) as s:
            charge(s, "k", 1)
            expect(len(said(s, "is not in memory", "warning")), 1)
            expect(os.path.islink(os.path.join(s.data, "cells")), False)


def test_files_of_others_are_not_used():
    """A table that the link does not name, or that does not look like this folder's, is left alone."""
    with Service(rules=RULES) as s:
        charge(s, "k", 2)
        wait_for_save(s)
        s.kill()
        link, other = os.path.join(s.data, "cells"), os.path.join(os.environ["RUNTIME_DIRECTORY"], "weir-00000000-1")
        os.rename(live(s), other)
        os.unlink(link)
        os.symlink(other, link)
        s.start()
        expect((live(s) == other, os.path.exists(other), used(s, "k")), (False, True, 2))
        os.unlink(other)


def test_tables_that_are_left_behind_are_removed():
    with Service(rules=RULES) as s:
        charge(s, "k", 2)
        wait_for_save(s)
        s.kill()
        left = live(s)
        os.unlink(os.path.join(s.data, "cells"))
        s.start()
        expect((live(s) == left, os.path.exists(left), used(s, "k")), (False, False, 2))
