"""nginx under stress: two workers of an unprivileged user, reloads every 200 ms, other rules every 100 ms, workers killed with -9,
while several clients want more than there is. Windows are an hour long, so that time plays no part.

Every request is charged to three limits at once: its key's hour, its key's day, its group's. For each of their cells, with

    admitted   the costs of requests that were answered with 200
    lost       the costs of requests that were not answered, since their connection went away

and what the cell says that was used of it:

    used <= max                        never more than the limit allows
    used >= admitted                   nothing that was admitted is forgotten, by a reload, a change, a crash, in a file or in memory
    used == admitted                   as long as nobody is killed: a refusal by one limit charges none of the others
    used <= admitted + lost            when workers are killed: a request may be charged by one that dies before it answers, and may be
                                       charged to some of its limits by one that dies between them; but it was not answered then"""

import collections
import contextlib
import json
import multiprocessing
import os
import random
import re
import signal
import socket
import time

from support import DEADLINE_S, SANITIZED, expect, number, until
from support.gateway import FAULTS, Gateway

SECONDS = number("TEST_SECONDS", 4.0)
SEED = number("TEST_SEED", 1)
CLIENTS, KEYS, GROUP_S, RELOAD_S, CHANGE_S = 3, 8, 0.3, 0.2, 0.1
ZONES = ("file", "memory")
ENOUGH = 100
MAX = {"hour": 150, "day": 170, "group": 1000}

HTTP = """
weir_zone file 1m rules=@FOLDER@/rules.yaml cells=@FOLDER@/table.cells;
weir_zone memory 1m rules=@FOLDER@/rules.yaml;
keepalive_requests 1000000;
"""

SERVER = """
add_header X-Left $weir_remaining always;
location /file/ { weir file cost=$arg_cost; empty_gif; }
location /memory/ { weir memory cost=$arg_cost; empty_gif; }
location = /file/status { weir_status file; }
location = /memory/status { weir_status memory; }
"""

# The rules that are checked stand in every version, somewhere.
CHECKED = [
    f'  - {{ id: {name}, match: {{ path: ["/{{zone}}/go", "/{{zone}}/left/{name}"] }}, by: "header:{by}", '
    f"limits: [ {{ name: {name}, algorithm: fixed_window, max: {MAX[name]}, per: 1h }} ] }}"
    for name, by in (("hour", "X-Key"), ("day", "X-Key"), ("group", "X-Group"))
]
OTHERS = [
    '  - { id: trial, match: { path: "/{zone}/go" }, by: "header:X-Key", limits: [ 3 per 1h ], mode: shadow }',
    "  - { id: elsewhere, match: { path: /elsewhere }, limits: [ 0 per 1h ] }",
    '  - { id: off, match: { path: "/{zone}/go" }, limits: [ 0 per 1h ], mode: off }',
    '  - { id: pattern, match: { path: { regex: "/nowhere/(a|b)+" } }, by: ip, limits: [ 1 per 1s ] }',
    '  - { id: stranger, match: { path: "/{zone}/go", header: { X-Group: nobody } }, limits: [ 0 per 1h ] }',
]
# A rule that makes no sense, and a text that does not.
BAD = ["  - { id: broken, limits: [ 1 per 1x ] }", "  - { id: broken, limits: ["]


def rules(rng, number):
    lines = CHECKED + rng.sample(OTHERS, rng.randrange(len(OTHERS) + 1))
    rng.shuffle(lines)
    if number % 8 == 7:
        lines.append(rng.choice(BAD))
    return f"# version {number}\nrules:\n" + "\n".join(lines) + "\n"


# ---- clients ----

Cell = collections.namedtuple("Cell", "zone group key")


class Tally:
    """What one client saw."""

    def __init__(self):
        self.admitted = collections.Counter()  # cost by cell
        self.lost = collections.Counter()  # cost by cell
        self.answers = collections.Counter()  # by status
        self.lost_when_new = 0  # connections that brought no answer at all
        self.torn = 0  # answers that were cut off
        self.strange = []

    def add(self, other):
        for name in ("admitted", "lost", "answers"):
            getattr(self, name).update(getattr(other, name))
        self.lost_when_new += other.lost_when_new
        self.torn += other.torn
        self.strange += other.strange


def receive(sock):
    """(status, head) of an answer; ("", what there was of it) if it does not come whole."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := sock.recv(65536):
            data += part
            head, end, body = data.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\nContent-Length: (\d+)", head)
            if end and length and len(body) >= int(length[1]):
                return head[9:12].decode(), head
    return "", data


def ask(sock, cell, cost):
    text = f"GET /{cell.zone}/go?cost={cost} HTTP/1.1\r\nHost: h\r\nX-Group: {cell.group}\r\nX-Key: {cell.key}\r\n\r\n"
    try:
        sock.sendall(text.encode())
    except (BrokenPipeError, ConnectionResetError):
        return "", b""
    return receive(sock)


def converse(port, rng, group, refused, tally):
    """One connection, for one request or many."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as sock:
        for number in range(rng.choice((1, 1, 3, 30))):
            now = group.value
            if now < 0:
                return
            cell = Cell(rng.choice(ZONES), f"g{now}", f"g{now}-{rng.randrange(KEYS)}")
            cost = rng.choice((1, 1, 1, 2, 3))
            status, head = ask(sock, cell, cost)
            tally.answers[status] += 1
            if status == "200":
                tally.admitted[cell] += cost
            elif status == "":
                tally.lost[cell] += cost
                tally.lost_when_new += number == 0
                tally.torn += head != b""
            elif status == "429":
                with refused.get_lock():
                    refused.value += 1
            else:
                tally.strange.append(head.decode(errors="replace"))
            if status == "" or b"\r\nConnection: close" in head:
                return


def client(port, seed, group, refused, pipe):
    """Until `group` is negative."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    rng, tally = random.Random(seed), Tally()
    try:
        while group.value >= 0:
            converse(port, rng, group, refused, tally)
    except OSError as error:
        tally.strange.append(repr(error))
    pipe.send(tally)


class Crowd:
    """with Crowd(port, first) as crowd: …; then crowd.tally. It goes from group to group, `first` and what follows."""

    def __init__(self, port, first):
        self.forking = multiprocessing.get_context("fork")
        self.group = self.forking.Value("i", first)
        self.refused = self.forking.Value("i", 0)
        self.refused_before = 0  # when the group began
        self.tally = Tally()
        self.members = []
        for number in range(CLIENTS):
            here, there = self.forking.Pipe(duplex=False)
            seed = SEED * 1000 + first * CLIENTS + number
            args = (port, seed, self.group, self.refused, there)
            self.members.append((self.forking.Process(target=client, args=args, daemon=True), here))

    def __enter__(self):
        for process, _ in self.members:
            process.start()
        return self

    def next(self):
        """Once this group has used up some of its cells: a slow machine takes longer for that."""
        refused = self.refused.value
        if refused > self.refused_before:
            self.refused_before = refused
            self.group.value += 1

    def __exit__(self, kind, *_):
        self.group.value = -1
        for process, pipe in self.members:
            if kind is None:
                if not pipe.poll(DEADLINE_S):
                    raise AssertionError("a client hangs")
                self.tally.add(pipe.recv())
            else:
                process.terminate()
            process.join()


# ---- what happens meanwhile ----


class Events:
    """Changes of the rules, reloads and kills, each at its time."""

    def __init__(self, g, seed):
        self.g = g
        self.rng = random.Random(seed)
        self.versions = 0
        self.kills = 0

    def change(self, text=None):
        """Dated back, each to another moment: what was just written is looked at later."""
        text = text or rules(self.rng, self.versions)
        self.versions += 1
        with open(self.g.path("next"), "w", encoding="utf-8") as out:
            out.write(text)
        when = (1_700_000_000 + self.versions) * 10**9
        os.utime(self.g.path("next"), ns=(when, when))
        os.rename(self.g.path("next"), self.g.path("rules.yaml"))

    def reload(self):
        self.g.process.send_signal(signal.SIGHUP)

    def kill(self):
        workers = self.g.workers()
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.rng.choice(workers), signal.SIGKILL)
                self.kills += 1

    def run(self, seconds, crowd, kills):
        """With another group of keys every now and then, until enough was refused."""
        every = {self.change: lambda: CHANGE_S, self.reload: lambda: RELOAD_S, crowd.next: lambda: GROUP_S}
        if kills:
            every[self.kill] = lambda: self.rng.uniform(0.02, 0.2)
        begin = time.monotonic()
        due = {event: begin + wait() for event, wait in every.items()}
        while time.monotonic() < begin + seconds or (
            crowd.refused.value <= ENOUGH and time.monotonic() < begin + seconds + DEADLINE_S
        ):
            event = min(due, key=due.get)
            time.sleep(max(0, due[event] - time.monotonic()))
            event()
            due[event] = time.monotonic() + every[event]()


# ---- what came of it ----


def used(g, cells, limit):
    """By cell of this limit: what it says. A cost of 0 looks and charges nothing."""
    found = {}
    for cell in cells:
        answer = g.ask(f"/{cell.zone}/left/{limit}?cost=0", headers={"X-Group": cell.group, "X-Key": cell.key})
        expect(answer.status, 200, f"looking at {cell}")
        found[cell] = MAX[limit] - int(answer.headers["X-Left"])
    return found


def by_group(costs):
    sums = collections.Counter()
    for cell, cost in costs.items():
        sums[Cell(cell.zone, cell.group, "")] += cost
    return sums


def check_cells(g, tally, exact):
    wanted = {"hour": (tally.admitted, tally.lost), "day": (tally.admitted, tally.lost),
              "group": (by_group(tally.admitted), by_group(tally.lost))}
    for limit, (admitted, lost) in wanted.items():
        for cell, there in used(g, set(admitted) | set(lost), limit).items():
            least, most = admitted[cell], admitted[cell] + (0 if exact else lost[cell])
            if not least <= there <= min(most, MAX[limit]):
                raise AssertionError(f"{limit} of {cell}: {there} used of {MAX[limit]}, {least} admitted, at most {most} charged")


def decided(g):
    """(allowed, refused) of both zones, as the status has it; no cell was dropped for want of room."""
    statuses = [json.loads(g.ask(f"/{zone}/status").body) for zone in ZONES]
    expect([status["table"]["drops"] for status in statuses], [0, 0], "cells dropped")
    return [sum(status["decisions"][name] for status in statuses) for name in ("allowed", "refused")]


def settled():
    """Old workers are gone, and the new ones have read the rules: there is no thread left that does."""
    with open(f"/proc/{g.process.pid}/task/{g.process.pid}/children", encoding="ascii") as children:
        pids = [int(pid) for pid in children.read().split()]
    return pids == g.workers() and [len(os.listdir(f"/proc/{pid}/task")) for pid in pids] == [1, 1]


def footprint():
    """(mappings, open files) of the master and of a worker"""
    until(settled, "workers are as they shall be")
    pids = (g.process.pid, g.workers()[0])
    files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]
    mappings = []
    for pid in pids:
        with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as maps:
            mappings.append(len(maps.readlines()))
    return mappings + files


def memory_kb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"RssAnon:\s*(\d+)", status.read())[1])


# ---- cases ----

EXPECTED = re.compile(r"exited on signal 9|\[emerg\].* weir_zone .*/rules\.yaml:\d+: (rule broken: |not YAML)")
g = Gateway(http=HTTP, server=SERVER, rules=rules(random.Random(SEED), 0), workers=2, user="www-data", backend=False)


def stress(seconds, first, kills):
    """What the clients saw; afterwards good rules are in force."""
    events = Events(g, SEED + first)
    with Crowd(g.port, first) as crowd:
        events.run(seconds, crowd, kills)
    events.change("rules:\n" + "\n".join(CHECKED))
    # A reload that is still under way may have read a bad version.
    with contextlib.suppress(AssertionError):
        g.reload()
    g.reload()
    tally = crowd.tally
    print(f"# {events.versions} versions of the rules, {events.kills} kills, answers {dict(tally.answers)}", flush=True)
    expect(tally.strange, [], "other answers than 200 and 429")
    expect([tally.answers[status] > ENOUGH for status in ("200", "429")], [True, True], f"enough of both, {tally.answers}")
    return tally


def test_changes():
    """Reloads and changes of the rules: every cell holds exactly what was admitted."""
    tally = stress(SECONDS * 0.5, 0, kills=False)
    expect((tally.lost_when_new, tally.torn), (0, 0), "connections without an answer, answers cut off")
    expect(decided(g), [tally.answers["200"], tally.answers["429"]], "decisions, by the status")
    check_cells(g, tally, exact=True)


def test_crashes():
    """Killed workers: no cell admits too many, and none is charged more than the lost requests."""
    before = decided(g)
    tally = stress(SECONDS * 0.5, 10000, kills=True)
    for outcome, status in enumerate(("200", "429")):
        counted, seen = decided(g)[outcome] - before[outcome], tally.answers[status]
        expect(seen <= counted <= seen + tally.answers[""], True, f"{counted} decisions for {seen} answers of {status}")
    check_cells(g, tally, exact=False)


def test_log():
    """The log tells of nothing else. Nothing but what was done to it."""
    found = [line for line in g.errors().splitlines() if re.search(r"\[(alert|emerg|crit)\]", line) or FAULTS.search(line)]
    expect([line for line in found if not EXPECTED.search(line)], [], "in the log")


def refused_reload():
    """Of a configuration whose last zone is bad, when the others are open already."""
    said = len(g.read("errors"))
    g.configure(http=HTTP + "weir_zone third 1m rules=@FOLDER@/missing.yaml;")
    g.process.send_signal(signal.SIGHUP)
    until(lambda: "[emerg]" in g.read("errors")[said:], "a reload is refused")
    g.configure(http=HTTP)


def test_growth():
    """Reloads leave nothing in memory.
    A reload leaves nothing of the configuration before it: no mapping, no file, no memory. What stays after each would be there
    so many times."""
    rounds = 20
    for _ in range(3):
        refused_reload()
        g.reload()
    before, kb_before = footprint(), memory_kb(g.process.pid)
    for _ in range(rounds):
        refused_reload()
        g.reload()
    after, kb_after = footprint(), memory_kb(g.process.pid)
    print(f"# mappings and files of the master and a worker: {before}, {after}; memory {kb_before}, {kb_after} kB", flush=True)
    expect([now < then + rounds for then, now in zip(before, after)], [True] * 4, "mappings and files")
    # The sanitizer keeps for a while what is freed.
    expect(SANITIZED or kb_after < kb_before + 8 * rounds, True, "memory of the master")


def test_folder():
    """And nothing in the folder. No temporary file, no second table."""
    expect([name for name in os.listdir(g.folder) if re.search(r"\.new|next|cells.", name)], [], "left behind")
