"""While nginx runs: rules that change, cells that others share, reloads, restarts and workers that are killed."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import tempfile

from support import DEADLINE_S, expect, until, weir
from support.gateway import Gateway
from support.service import Service

LIMIT = "limits: [ { name: hour, algorithm: fixed_window, max: %d, per: 1h } ]"
MAX = 1000000  # waiting for something uses some, on a slow machine many
RULES = f"""
rules:
  - {{ id: first, match: {{ path: /first }}, by: ip, {LIMIT % MAX} }}
  - {{ id: second, match: {{ path: /second }}, by: ip, {LIMIT % MAX} }}
"""
HTTP = """
weir_zone memory 1m rules=@FOLDER@/memory.yaml;
weir_zone file 1m rules=@FOLDER@/file.yaml cells=@FOLDER@/cells;
"""
SERVER = """
add_header X-Weir "$weir_verdict $weir_rule $weir_remaining" always;
location / { weir memory; proxy_pass http://@BACKEND@; }
location /file/ { weir file path=/first; proxy_pass http://@BACKEND@; }
location = /status/memory { weir_status memory; }
location = /status/file { weir_status file; }
"""

g = Gateway(http=HTTP, server=SERVER, rules={"memory": RULES, "file": RULES}, workers=2)


def remaining(path="/file/", **more):
    return int(g.ask(path, **more).headers["X-Weir"].split()[2])


def status(zone="memory", **more):
    return json.loads(g.ask(f"/status/{zone}", **more).body)


def in_force(path, wanted):
    """Until every worker has rules that answer so."""
    with g.connection_to_each() as connections:
        for connection in connections:
            until(lambda: g.ask(path, over=connection).headers["X-Weir"].startswith(wanted), f"{wanted} for {path}")


# ---- rules ----


def test_rules_change():
    """Rules change without a reload."""
    workers = g.workers()
    in_force("/third", "no_rule")
    g.write_rules(RULES + f"  - {{ id: third, match: {{ path: /third }}, {LIMIT % 0} }}\n", "memory")
    in_force("/third", "refused third 0")
    expect(status()["rules"]["count"], 3, "rules")
    g.write_rules(RULES.replace("/second", "/third"), "memory")
    in_force("/third", "allowed second")
    in_force("/second", "no_rule")
    g.write_rules("rules: []", "memory")
    in_force("/first", "no_rule")
    g.write_rules(RULES, "memory")
    in_force("/first", "allowed first")
    expect(g.workers(), workers, "nobody was restarted")


def test_included_rules_change():
    """So do those of a file that the rules file includes."""
    more = f"rules:\n  - {{ id: third, match: {{ path: /third }}, {LIMIT % 0} }}\n"
    g.write_rules(more, "more")
    g.write_rules("include: more.yaml" + RULES, "memory")
    in_force("/third", "refused third 0")
    in_force("/first", "allowed first")
    g.write_rules(more.replace("third", "fourth"), "more")
    in_force("/fourth", "refused fourth 0")
    in_force("/third", "no_rule")
    g.write_rules(RULES, "memory")
    in_force("/fourth", "no_rule")


def test_counts_stay():
    """What was used stays used while a rule keeps its id and its limit its name."""
    left = remaining("/second")
    g.write_rules(RULES.replace(f"max: {MAX}", f"max: {MAX // 2}"), "memory")
    in_force("/second", "allowed second 4")
    expect(remaining("/second") < left - MAX // 2, True, "what was used before")
    g.write_rules(RULES, "memory")
    in_force("/first", "allowed first 9")


def complaints(zone, text):
    return [line for line in g.errors().splitlines() if "[error]" in line and f'zone "{zone}"' in line and text in line]


def problem_everywhere(text):
    with g.connection_to_each() as connections:
        for connection in connections:
            until(lambda: text in (status(over=connection)["rules"]["problem"] or ""), text)


def test_bad_rules():
    """A bad rule among good ones.
    One of them is bad: it stays as it was, the others are taken over. Two workers see it, the log has it once."""
    bad = RULES.replace("rules:\n", "rules:\n  - { id: new, match: { path: /new }, limits: 1 per 1h }\n")
    bad = bad.replace(f"path: /first }}, by: ip, {LIMIT % MAX}", "path: /first }, by: ip, limits: [ 10/60s ]")
    g.write_rules(bad, "memory")
    in_force("/new", "refused new")
    in_force("/first", "allowed first")
    until(lambda: complaints("memory", "memory.yaml:4: rule first: limits[0]"), "in the log")
    problem = status()["rules"]["problem"]
    expect("memory.yaml:4: rule first: limits[0]" in problem, True, f"in the status: {problem}")
    expect(status()["rules"]["count"], 3, "rules in force")
    expect("weir_rules_bad{zone=\"memory\"} 1" in g.ask("/status/memory?format=prometheus").body.decode(), True, "in the metrics")

    good = RULES + f"  - {{ id: newer, match: {{ path: /newer }}, {LIMIT % 0} }}\n"
    g.write_rules(good, "memory")
    in_force("/newer", "refused newer")
    expect(status()["rules"]["problem"], None, "good again")
    expect("weir_rules_bad{zone=\"memory\"} 0" in g.ask("/status/memory?format=prometheus").body.decode(), True, "in the metrics")
    expect(len(complaints("memory", "memory.yaml:4")), 1, "in the log, once")


def test_unreadable_rules():
    """Rules that cannot be read. All of the last good ones stay."""
    g.write_rules(RULES + f"  - {{ id: newer, match: {{ path: /newer }}, {LIMIT % 0} }}\n", "memory")
    in_force("/newer", "refused newer")
    said = len(complaints("memory", "memory.yaml"))
    g.write_rules("rules: [ {", "memory")
    problem_everywhere("not YAML or JSON")
    until(lambda: len(complaints("memory", "memory.yaml")) == said + 1, "in the log: no YAML")
    in_force("/newer", "refused newer")
    os.remove(g.path("memory.yaml"))
    problem_everywhere("cannot be read")
    until(lambda: len(complaints("memory", "memory.yaml")) == said + 2, "in the log: no file")
    in_force("/newer", "refused newer")
    g.write_rules(RULES, "memory")
    in_force("/newer", "no_rule")
    expect(status()["rules"]["problem"], None, "good again")


def test_reload_with_bad_rules():
    """A reload with bad rules. nginx keeps the configuration that it has, and says why."""
    workers = g.workers()
    g.write_rules(RULES + "  - { id: a }\n", "memory")
    try:
        g.reload()
        raise AssertionError("it was reloaded")
    except AssertionError as why:
        expect("memory.yaml:5: rule a: needs `limits`" in str(why), True, str(why))
    expect(g.workers(), workers, "the workers")
    in_force("/first", "allowed first")
    g.write_rules(RULES, "memory")
    until(lambda: status()["rules"]["problem"] is None, "good again")


def test_told_again():
    """A mistake that was mended, and taken over by a reload before a worker saw that, is news when it comes back."""
    bad = RULES + "  - { id: again }\n"
    for number in (1, 2):
        try:
            g.write_rules(bad, "memory")
            until(lambda: len(complaints("memory", "rule again: needs `limits`")) >= number, f"in the log: {number}")
        finally:
            g.write_rules(RULES, "memory")
            g.reload()


# ---- cells ----


def test_both_workers_share():
    """Workers share their counts."""
    with g.connection_to_each() as connections:
        for path in ("/file/", "/second"):
            left = [remaining(path, over=connection) for connection in connections * 3]
            expect(left, list(range(left[0], left[0] - 6, -1)), path)


def test_memory_survives_a_reload():
    """Shared memory survives a reload."""
    left, decided = remaining("/second"), status()["decisions"]
    g.reload()
    expect(remaining("/second"), left - 1, "what is left")
    expect(status()["decisions"]["allowed"], decided["allowed"] + 1, "the status")


def test_old_workers_end_well():
    """Old workers after a reload. One that is still busy decides with the others, until its last client is gone."""
    allowed = status()["decisions"]["allowed"]
    with contextlib.closing(socket.create_connection(("127.0.0.1", g.port), DEADLINE_S)) as s:
        s.sendall(b"POST /second HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc")
        until(lambda: status()["decisions"]["allowed"] == allowed + 1, "it was charged")
        before = remaining("/second")
        g.reload()
        expect(remaining("/second"), before - 1, "the new ones")
        s.sendall(b"def")
        expect(s.recv(12), b"HTTP/1.1 200", "the old one")


def test_zones_come_and_go():
    """Zones that come and go. Shared memory of another size, and a zone that is no longer there, begin anew."""
    try:
        for size in ("2m", "2049k", "2053k", "2m"):
            g.configure(http=HTTP.replace("memory 1m", f"memory {size}"))
            g.reload()
            expect(remaining("/second"), MAX - 1, f"another size: {size}")
        g.configure(http=HTTP.replace("weir_zone memory", "weir_zone other"), server=SERVER.replace("memory;", "other;"))
        g.reload()
        expect(remaining("/second"), MAX - 1, "another name")
    finally:
        g.configure(http=HTTP, server=SERVER)
        g.reload()
    expect(remaining("/second"), MAX - 1, "the first again")
    expect(g.ask("/file/").status, 200, "the file was there all the time")


def test_memory_survives_a_killed_worker():
    """Shared memory survives killed workers."""
    left = remaining("/second")
    for pid in g.workers():
        os.kill(pid, signal.SIGKILL)
    until(lambda: g.is_up() and len(g.workers()) == 2, "new workers")
    expect(remaining("/second"), left - 1, "what is left")


def test_file_survives_everything():
    """A file survives reload, restart and killed workers."""
    left = remaining()
    g.reload()
    expect(remaining(), left - 1, "a reload")
    g.restart()
    expect(remaining(), left - 2, "a restart")
    for pid in g.workers():
        os.kill(pid, signal.SIGKILL)
    until(lambda: g.is_up() and len(g.workers()) == 2, "new workers")
    expect(remaining(), left - 3, "killed workers")
    expect(remaining("/second"), MAX - 1, "shared memory begins anew with nginx")


def test_shared_with_the_command():
    """Cells shared with `weir check`."""
    left = remaining(client="127.0.0.3")
    words = ["check", "--rules", g.path("file.yaml"), "--cells", g.path("cells"), "--path", "/first", "--ip", "127.0.0.3"]
    done = weir(*words, "--cost", "10")
    expect(done.returncode, 0, done.stderr)
    expect(json.loads(done.stdout)["remaining"], left - 10, "the command")
    expect(remaining(client="127.0.0.3"), left - 11, "nginx")


def test_shared_with_the_service():
    """Cells shared with `weir serve`."""
    left = remaining(client="127.0.0.4")
    with Service("--cells", g.path("cells"), rules=RULES) as s:
        answer = s.check(path="/first", ip="127.0.0.4", cost=5).json()
        expect(answer["remaining"], left - 5, "the service")
        expect(remaining(client="127.0.0.4"), left - 6, "nginx")


def test_shared_with_a_table_in_memory():
    """The table that a `weir serve` keeps in memory: nginx opens the link in the data folder, whether or not the service runs."""
    http = HTTP.replace("@FOLDER@/cells", "@CELLS@")
    with Service("--cells-keys", 24576, rules=RULES) as s:
        cells = os.path.join(s.data, "cells")
        with Gateway(http=http, server=SERVER, rules={"memory": RULES, "file": RULES}, names={"CELLS": cells}) as other:
            def left():
                return int(other.ask("/file/", client="127.0.0.7").headers["X-Weir"].split()[-1])

            first = left()
            expect(s.check(path="/first", ip="127.0.0.7", cost=5).json()["remaining"], first - 5, "the service")
            expect(left(), first - 6, "nginx")
            s.kill()
            expect(left(), first - 7, "without the service")
            other.restart()
            expect(left(), first - 8, "a new nginx")
            s.start()
            expect(s.check(path="/first", ip="127.0.0.7", cost=1).json()["remaining"], first - 9, "a new service")
            if "RUNTIME_DIRECTORY" in os.environ:
                expect(os.path.islink(cells), True)


def test_shared_with_another_nginx():
    """Cells shared with another nginx."""
    left = remaining(client="127.0.0.5")
    http = HTTP.replace("@FOLDER@/cells", "@CELLS@")
    with Gateway(http=http, server=SERVER, rules={"memory": RULES, "file": RULES}, names={"CELLS": g.path("cells")}) as other:
        answer = other.ask("/file/", client="127.0.0.5")
        expect(answer.headers["X-Weir"], f"allowed first {left - 1}", "the other")
        other.reload()
    expect(remaining(client="127.0.0.5"), left - 2, "the first")


def test_a_copied_file():
    """A copied cells file. Its counts stay; that it is a copy is said once."""
    left = remaining(client="127.0.0.6")
    http = HTTP.replace("@FOLDER@/cells", "@CELLS@")
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "copy")
        shutil.copyfile(g.path("cells"), copy)
        with Gateway(http=http, server=SERVER, rules={"memory": RULES, "file": RULES}, names={"CELLS": copy}) as other:
            def told():
                return [line for line in other.errors().splitlines() if f'zone "file": {copy} is a copy' in line and "[notice]" in line]

            expect(other.ask("/file/", client="127.0.0.6").headers["X-Weir"], f"allowed first {left - 1}", "the copy")
            expect(len(told()), 1, other.errors())
            other.reload()
            other.restart()
            expect(other.ask("/file/", client="127.0.0.6").headers["X-Weir"], f"allowed first {left - 2}", "the copy, later")
            expect(len(told()), 1, other.errors())
    expect((remaining(client="127.0.0.6"), "is a copy" in g.errors()), (left - 1, False), "the original")


def test_fewer_rights():
    """Workers with fewer rights. Workers of another user: the master has opened the cells, for whom nobody else may."""
    with Gateway(http=HTTP, server=SERVER, rules={"memory": RULES, "file": RULES}, workers=2, user="nobody") as other:
        def ask(path):
            return other.ask(path).headers["X-Weir"]
        expect([ask("/file/"), ask("/first")], [f"allowed first {MAX - 1}"] * 2, "before")
        expect(os.stat(other.path("cells")).st_uid, os.geteuid(), "whose the cells are")
        other.write_rules(RULES.replace(f"max: {MAX}", f"max: {MAX // 10}"), "file")
        until(lambda: re.fullmatch(r"allowed first \d{5}", ask("/file/")), "changed rules")
        other.reload()
        expect(ask("/first"), f"allowed first {MAX - 2}", "after a reload")
        os.chmod(other.path("memory.yaml"), 0o600)
        other.restart()
        if os.geteuid() == 0:
            expect("may not read " + other.path("memory.yaml") in other.errors(), True, "rules that only root may read")
        expect(ask("/first"), f"allowed first {MAX - 1}", "they are in force all the same")
        expect(bool(re.fullmatch(r"allowed first \d{5}", ask("/file/"))), True, "after a restart")
