"""`weir sync`: a rules file that follows a database."""

import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time

import pytest

import support
from support import WEIR, databases, expect, has
from support.databases import done

DEADLINE_S = 30
OCR = '{ "id": "ocr", "match": { "event": "ocr" }, "by": ["key"], "limits": [{ "name": "day", "max": 3, "per": "day" }] }'


def until(condition, what):
    """Waits for something that is to come."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {DEADLINE_S} s")
        time.sleep(0.02)


class Folder(tempfile.TemporaryDirectory):
    """A folder with a rules file, and whatever follows a database into it."""

    def __enter__(self):
        super().__enter__()
        self.path = os.path.join(self.name, "rules.yaml")
        self.running = []
        return self

    def __exit__(self, *details):
        for child, _ in self.running:
            if child.poll() is None:
                child.kill()
            child.wait()
        left = [name for name in os.listdir(self.name) if name not in ("rules.yaml", "errors", "cells", "link")]
        super().__exit__(*details)
        if details[0] is None:
            expect(left, [], "files left behind")

    def text(self):
        try:
            with open(self.path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def write(self, text):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)

    def start(self, address, *words):
        with open(os.path.join(self.name, "errors"), "wb") as errors:
            child = subprocess.Popen([WEIR, "sync", "--from", address, "--to", self.path, "--poll", "100ms", *words],
                                     env=support.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=errors)
        self.running.append((child, errors))
        return child

    def errors(self):
        with open(os.path.join(self.name, "errors"), encoding="utf-8") as file:
            return file.read()

    def stop(self, child, number=signal.SIGTERM):
        child.send_signal(number)
        expect(child.wait(timeout=DEADLINE_S), 0)

    def follows(self, part):
        until(lambda: part in self.text(), f"{part!r} in the file; it has\n{self.text()}\nerrors: {self.errors()}")


def once(address, path, *words):
    result = support.weir("sync", "--once", "--from", address, "--to", path, *words)
    return result.returncode, result.stdout.decode(), result.stderr.decode()


def good(path):
    result = support.weir("lint", path)
    expect(result.returncode, 0, result.stderr)


def prepare(db):
    done(db, "init")
    done(db, "add", OCR)
    done(db, "throttle", "/a/#", "1 per 1s", "--row")


# ---- what is written ----


def test_written_once(db):
    prepare(db)
    with Folder() as folder:
        old = os.umask(0o077)
        try:
            expect(once(db.address, folder.path), (0, f"{folder.path}: 2 rules\n", ""))
        finally:
            os.umask(old)
        good(folder.path)
        has(folder.text(), "# Written by weir sync from ", "id: ocr", "id: throttled-call-1")
        expect(stat.S_IMODE(os.stat(folder.path).st_mode), 0o644)
        before = os.stat(folder.path)
        expect(once(db.address, folder.path), (0, "", ""), "nothing new")
        expect(os.stat(folder.path).st_mtime_ns, before.st_mtime_ns)


def test_mode_and_owner_are_kept(db):
    prepare(db)
    with Folder() as folder:
        folder.write("")
        os.chmod(folder.path, 0o640)
        if os.getuid() == 0:
            os.chown(folder.path, 65534, 65534)
        before = os.stat(folder.path)
        expect(once(db.address, folder.path)[0], 0)
        after = os.stat(folder.path)
        expect((after.st_mode, after.st_uid, after.st_gid), (before.st_mode, before.st_uid, before.st_gid))
        assert after.st_ino != before.st_ino, "it was replaced, not written over"


def test_a_link_stays_a_link(db):
    prepare(db)
    with Folder() as folder:
        folder.write("")
        link = os.path.join(folder.name, "link")
        os.symlink("rules.yaml", link)
        expect(once(db.address, link)[0], 0)
        expect(os.readlink(link), "rules.yaml")
        has(folder.text(), "id: ocr")


def test_a_link_to_what_is_not_there_yet(db):
    prepare(db)
    with Folder() as folder:
        link = os.path.join(folder.name, "link")
        for target in ("rules.yaml", folder.path):
            os.symlink(target, link)
            expect(once(db.address, link)[0], 0)
            expect(os.readlink(link), target)
            has(folder.text(), "id: ocr")
            os.unlink(folder.path)
            os.unlink(link)
        os.symlink("nowhere/rules.yaml", link)
        status, _, errors = once(db.address, link)
        expect(status, 2)
        has(errors, "nowhere/rules.yaml: cannot be written")
        os.unlink(link)
        os.symlink("link", link)
        expect(once(db.address, link)[0], 2, "it leads to itself")


def test_an_owner_that_cannot_be_kept(db):
    if db.kind != "sqlite" or os.getuid() != 0:
        return
    with Folder() as folder:
        os.chmod(folder.name, 0o777)
        folder.write("rules: []\n")
        source = os.path.join(folder.name, "cells")
        with open(source, "w", encoding="utf-8") as out:
            out.write(f"rules: [{OCR}]\n")

        def as_nobody(*words):
            return subprocess.run([*words], check=False, env=support.ENVIRONMENT, capture_output=True, user=65534, group=65534,
                                  extra_groups=[])

        weir = shutil.copy(WEIR, os.path.join(folder.name, "weir"))
        if as_nobody("/bin/sh", "-c", f"test -x '{weir}' -a -r '{source}'").returncode != 0:
            pytest.skip("another user cannot get at the temporary folder")
        result = as_nobody(weir, "sync", "--once", "--from", f"file:{source}", "--to", folder.path)
        expect(result.returncode, 2)
        has(result.stderr.decode(), "owner and group (0:0) cannot be kept", "run this as that user or as root", "65534:65534")
        os.remove(weir)
        expect(folder.text(), "rules: []\n")


def test_a_file_that_is_something_else(db):
    prepare(db)
    with Folder() as folder:
        folder.write("my: diary\n")
        status, out, errors = once(db.address, folder.path)
        expect((status, out), (2, ""))
        has(errors, "is not a rules file")
        expect(folder.text(), "my: diary\n")


# ---- live ----


def test_changes_arrive(db):
    prepare(db)
    with Folder() as folder:
        child = folder.start(db.address)
        folder.follows("id: ocr")
        done(db, "set", "ocr", "max=77")
        folder.follows("max: 77")
        db.sql("UPDATE THROTTLED_CALLS SET MAX_LOCKS = 55")
        folder.follows("max: 55")
        db.sql("DELETE FROM THROTTLED_CALLS")
        until(lambda: "throttled-call-1" not in folder.text(), "the row is gone")
        done(db, "disable", "ocr")
        until(lambda: "id: ocr" not in folder.text(), "it is disabled")
        done(db, "undo", "ocr")
        folder.follows("id: ocr")
        folder.stop(child, signal.SIGINT)
        expect(folder.errors(), "")


def test_counts_stay(db):
    """A new max counts from the next request, and what was used stays used."""
    prepare(db)
    with Folder() as folder:
        child = folder.start(db.address)
        folder.follows("max: 3")

        def check():
            words = ["--rules", folder.path, "--cells", os.path.join(folder.name, "cells"), "--event", "ocr", "--key", "u"]
            return support.weir("check", *words, "--now", "2026-03-02T01:00:00Z").returncode

        expect([check() for _ in range(4)], [0, 0, 0, 1])
        done(db, "set", "ocr", "max=5")
        folder.follows("max: 5")
        expect([check() for _ in range(3)], [0, 0, 1])
        done(db, "set", "ocr", "max=4")
        folder.follows("max: 4")
        expect(check(), 1)
        folder.stop(child)


def test_nobody_reads_a_half(db):
    prepare(db)
    rule = "  - { id: rN, match: { path: /pN }, by: [user], limits: [10 per 60s] }\n"
    text = "rules:\n" + "".join(rule.replace("N", str(n)) for n in range(2000))
    done(db, "import", "-", stdin=text.encode())
    with Folder() as folder:
        child = folder.start(db.address)
        folder.follows("id: ocr")
        stop, bad = threading.Event(), []

        def read():
            while not stop.is_set():
                found = folder.text()
                if not found.startswith("# Written by weir sync") or found.count("\n  - id: ") != 2002:
                    bad.append(found[:100])

        reader = threading.Thread(target=read)
        reader.start()
        for n in range(20, 24):
            done(db, "set", "ocr", f"max={n}")
            folder.follows(f"max: {n}")
        stop.set()
        reader.join()
        expect(bad, [])
        folder.stop(child)


def test_a_file_that_others_change(db):
    prepare(db)
    with Folder() as folder:
        child = folder.start(db.address)
        folder.follows("id: ocr")
        folder.write("rules: []\n")
        folder.follows("id: ocr")
        os.unlink(folder.path)
        folder.follows("id: ocr")
        has(folder.errors(), "was changed by somebody else")
        folder.stop(child)


# ---- what is bad ----


def test_bad_rows_keep_their_last_good_version(db):
    prepare(db)
    with Folder() as folder:
        child = folder.start(db.address)
        folder.follows("id: ocr")
        db.sql("UPDATE THROTTLED_CALLS SET MAX_LOCKS = -5")
        folder.follows("problems:\n  - \"THROTTLED_CALLS: row 1: ")
        good(folder.path)
        has(folder.text(), "id: throttled-call-1", "max: 1,")
        done(db, "set", "ocr", "max=9")
        folder.follows("max: 9")
        folder.stop(child)
        expect(folder.errors().count("-5"), 1, folder.errors())

        child = folder.start(db.address)  # the last good version is in the file
        until(lambda: "-5" in folder.errors(), "the problem is said again")
        has(folder.text(), "id: throttled-call-1", "max: 1,")
        db.sql("UPDATE THROTTLED_CALLS SET MAX_LOCKS = 6")
        folder.follows("max: 6,")
        assert "problems:" not in folder.text()
        until(lambda: "all rows are good again" in folder.errors(), "that it is mended is said")
        folder.stop(child)
        db.sql("UPDATE THROTTLED_CALLS SET MAX_LOCKS = -7")
        expect(once(db.address, folder.path)[0], 1)


def test_a_comment_cannot_become_a_rule(db):
    prepare(db)
    text = "{ \"id\": \"x\\u0085rules: []\\u2028rules: []\",\nrules: []\n"
    row = "x\nrules: []\n#"
    quoted = text.replace("'", "''")
    escape = quoted.replace("\\", "\\\\") if db.kind == "mysql" else quoted
    db.sql(f"INSERT INTO WEIR_RULES (ID, RULE, ENABLED) VALUES ('{row}', '{escape}', 1)")
    with Folder() as folder:
        expect(once(db.address, folder.path)[0], 1)
        good(folder.path)
        expect(folder.text().count("\nrules:"), 1, folder.text())
        has(folder.text(), "id: ocr")


def test_many_and_long_problems(db):
    """As many as a rules file can tell of, each no longer than it can be there."""
    prepare(db)
    rows = ", ".join(f"('bad{n:02}', '{{\"mode\": \"{'漢' * 900}\"}}', 1)" for n in range(60))
    db.sql(f"INSERT INTO WEIR_RULES (ID, RULE, ENABLED) VALUES {rows}")
    with Folder() as folder:
        status, _, errors = once(db.address, folder.path)
        expect(status, 1)
        has(errors, "bad00", " more; 'weir rules list' has them")
        good(folder.path)
        has(folder.text(), "problems:", "id: ocr")


# ---- out of reach ----


def test_out_of_reach_at_the_start(db):
    prepare(db)
    nowhere = "mysql://ann:geheim@127.0.0.1:1/db"
    with Folder() as folder:
        status, out, errors = once(nowhere, folder.path)
        expect((status, out), (2, ""))
        assert "geheim" not in errors, errors
        child = folder.start(nowhere)
        expect(child.wait(timeout=DEADLINE_S), 2)
        has(folder.errors(), "--start-without-rules", "mysql://ann")
        expect(os.path.exists(folder.path), False)

        child = folder.start(nowhere, "--start-without-rules")
        folder.follows("rules: []")
        has(folder.errors(), "nobody is limited")
        with open(f"/proc/{child.pid}/cmdline", encoding="utf-8") as file:
            shown = file.read()
        assert "geheim" not in shown + folder.errors() and "mysql://ann:" in shown, shown
        folder.stop(child)

        child = folder.start(nowhere)
        expect(child.wait(timeout=DEADLINE_S), 2, "a file that limits nobody holds no rules of a last run")
        has(folder.errors(), "there are no rules of an earlier run in", "--start-without-rules")
        child = folder.start(nowhere, "--start-without-rules")
        until(lambda: "nobody is limited" in folder.errors(), "it starts again without rules")
        folder.stop(child)

        expect(once(db.address, folder.path)[0], 0)
        os.utime(folder.path, (1767225600, 1767225600))
        child = folder.start(nowhere)
        until(lambda: "of the last run" in folder.errors(), "it goes on with the file")
        has(folder.errors(), "the rules of the last run (file written 2026-01-01T00:00:00Z)")
        assert " s old" not in folder.errors(), folder.errors()
        has(folder.text(), "id: ocr")
        folder.stop(child)


def test_a_server_that_is_killed_and_comes_back(db):
    if db.kind == "sqlite":
        return
    prepare(db)
    with Folder() as folder:
        child = folder.start(db.address)
        folder.follows("id: ocr")
        db.tell("kill")
        until(lambda: "rules are " in folder.errors(), "the outage is said")
        time.sleep(1)  # some attempts to reach it
        has(folder.text(), "id: ocr")
        db.tell("start")
        done(db, "set", "ocr", "max=77")
        folder.follows("max: 77")
        until(lambda: "is reachable again" in folder.errors(), "its return is said")
        assert folder.errors().count("rules are ") < 5, folder.errors()  # now and then, not at each attempt
        folder.stop(child)


def test_a_table_that_disappears(db):
    prepare(db)
    with Folder() as folder:
        child = folder.start(db.address)
        folder.follows("id: throttled-call-1")
        before = folder.text()
        db.sql("DROP TABLE THROTTLED_CALLS")
        until(lambda: "rules are " in folder.errors(), "it is missed")
        has(folder.errors().upper(), "THROTTLED_CALLS")
        expect(folder.text(), before, "the last good rules stay")
        db.sql(databases.THROTTLED_CALLS)
        until(lambda: "throttled-call-1" not in folder.text(), "it is there again, and empty")
        has(folder.text(), "id: ocr")
        folder.stop(child)


def test_either_table_may_be_absent(db):
    db.sql(databases.THROTTLED_CALLS)
    db.sql("INSERT INTO THROTTLED_CALLS VALUES (1, '/a', 10, 60, NULL)")
    with Folder() as folder:
        expect(once(db.address, folder.path), (0, f"{folder.path}: 1 rule\n", ""))
        done(db, "init")
        done(db, "add", OCR)
        db.sql("DROP TABLE THROTTLED_CALLS")
        os.unlink(folder.path)
        expect(once(db.address, folder.path), (0, f"{folder.path}: 1 rule\n", ""))
        has(folder.text(), "id: ocr")


def test_an_outage_is_said_again(db):
    """With the age and the reason of the moment, and an age only where it is known."""
    if db.kind != "sqlite":
        return
    with Folder() as folder:
        source = os.path.join(folder.name, "cells")
        with open(source, "w", encoding="utf-8") as out:
            out.write(f"rules: [{OCR}]\n")
        begun = time.monotonic()
        child = folder.start(f"file:{source}")
        folder.follows("id: ocr")
        os.unlink(source)
        said = re.compile(r"rules are (\d+) s old: ")
        until(lambda: said.search(folder.errors()), "the outage is said")
        assert int(said.search(folder.errors())[1]) <= time.monotonic() - begun, folder.errors()
        os.mkdir(source)
        until(lambda: folder.errors().count("rules are ") == 2, "and said again")
        age, reason = re.findall(r"rules are (\d+) s old: (.*);", folder.errors())[1]
        assert 5 <= int(age) <= DEADLINE_S and "directory" in reason and "No such" not in reason, folder.errors()
        has(folder.text(), "id: ocr")
        folder.stop(child)

        child = folder.start(f"file:{source}")
        until(lambda: "weir: rules of the last run (file written 20" in folder.errors(), "and said again without an age")
        has(folder.errors(), "; unreachable for ")
        assert " s old" not in folder.errors(), folder.errors()
        folder.stop(child)
        os.rmdir(source)


@pytest.mark.usefixtures("db")
def test_a_file_as_the_source():
    with Folder() as folder:
        source = os.path.join(folder.name, "cells")
        with open(source, "w", encoding="utf-8") as out:
            out.write(f"# mine\nrules: [{OCR}]\n")
        expect(once(source, source)[0], 2, "it would lose its comments")
        child = folder.start(f"file:{source}")
        folder.follows("max: 3")
        databases.done(source, "set", "ocr", "max=4", "--drop-comments")
        folder.follows("max: 4")
        folder.stop(child)
        expect(once(source, "/dev/null")[0], 2, "no regular file")


@pytest.mark.usefixtures("db")
def test_wrong_words():
    for words, part in (
        (["--to", "f"], "--from SOURCE"),
        (["--from", "sqlite:x"], "--to FILE"),
        (["--from", "sqlite:x", "--to", "f", "--poll", "99"], "100ms to 1h"),
        (["--from", "sqlite:x", "--to", "f", "--poll", "3600001"], "100ms to 1h"),
        (["--from", "sqlite:x", "--to", "f", "--poll", "2h"], "100ms to 1h"),
        (["--from", "nonsense:x", "--to", "f"], "sqlite:PATH"),
        (["--to", "f", "mysql://ann:geheim@h/db"], "unexpected argument 'mysql://ann:******@h/db'"),
        (["--to", "f", "postgres://h/db?sslpassword=geheim"], "'postgres://h/db?sslpassword=******'"),
    ):
        result = support.weir("sync", *words)
        expect((result.returncode, result.stdout), (2, b""), words)
        has(result.stderr.decode(), part)
