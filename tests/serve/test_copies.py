"""Cells files that were copied: each copy is a host of its own, with the counts that it was copied with."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time

import pytest

from support import WEIR, expect, until
from support.crowd import Node, ask, charged, spend
from support.service import Service
from support.store import Store
from support.wire import Wire

MAX = 40
HELD = MAX // 4 - 1  # of the slice that the first request has fetched
BEAT_S = 1.2  # each service says every second that it is there
RULES = f"""
rules:
  - {{ id: here, match: {{ event: here }}, by: [key], counters: local,
      limits: [ {{ name: n, algorithm: fixed_window, max: {MAX}, per: 365d }} ] }}
  - {{ id: exact, match: {{ event: exact }}, by: [key], limits: [ {{ name: n, algorithm: fixed_window, max: {MAX}, per: 365d }} ] }}
  - {{ id: lent, match: {{ event: lent }}, by: [key], on_store_failure: deny, lease: {{ slice: 25%, ttl: 10m }},
      limits: [ {{ name: n, algorithm: fixed_window, max: {MAX}, per: 365d }} ] }}
"""
FLAGS = ("--store-deadline", "2s")
LOCAL = RULES.split("  - { id: exact")[0]


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory() as path:
        yield path


def cells_of(node):
    return node.flags[node.flags.index("--cells") + 1] if "--cells" in node.flags else os.path.join(node.data, "cells")


def node(store, cells, *flags):
    return Node(store, RULES, *FLAGS, *flags, "--cells", cells)


def told(service):
    """How often the log says that the file is a copy."""
    found = service.events("cells")
    expect([(entry["level"], cells_of(service) in entry["message"]) for entry in found], [("warning", True)] * len(found))
    return len(found)


def receipt_of(service, event, key):
    with Wire(service) as wire:
        return wire.ask("WEIR.CHECK", "event", event, "key", key, "reply", "receipt")[10]


def two_receipts(service):
    """Of this host's own count, and of a count in the store, which has one more charge."""
    expect(ask(service, ("exact", "r"))[0], "allowed")
    return receipt_of(service, "here", "r"), receipt_of(service, "exact", "r")


def given_back(store, receipts, nodes):
    """What each host gives back of its own. What counts in the store, every host may give back, and all of them do so once."""
    here, exact = receipts
    found = [give_back(n, here, "here", "r") for n in nodes]
    for n in nodes:
        give_back(n, exact, "exact", "r")
    until(lambda: charged(store, ("exact", "r"), "n.f") == 1, "it is given back")
    time.sleep(0.1)
    expect(charged(store, ("exact", "r"), "n.f"), 1, "once")
    return found


def give_back(service, receipt, event, key):
    with Wire(service) as wire:
        return wire.ask("WEIR.REFUND", receipt, "event", event, "key", key)


def allowed(service, event, key, most=MAX + 5):
    """How many of so many pass."""
    return [ask(service, (event, key))[0] for _ in range(most)].count("allowed")


def count_each_other(store, nodes):
    until(lambda: all(n.status()["hosts"] == len(nodes) for n in nodes), f"{len(nodes)} hosts are counted")
    expect(store.ask("ZCARD", "weir:1:hosts"), len(nodes))


# ---- one machine, no store ----


def test_counts_stay_and_receipts_do_not():
    with folder() as path, Service(rules=LOCAL) as a:
        receipts = [receipt_of(a, "here", "k") for _ in range(3)]
        copy = os.path.join(path, "copy")
        shutil.copyfile(cells_of(a), copy)
        with Service("--cells", copy, rules=LOCAL) as b:
            expect((told(a), told(b)), (0, 1))
            expect((ask(a, ("here", "k"), "WEIR.PEEK")[1], ask(b, ("here", "k"), "WEIR.PEEK")[1]), (MAX - 3, MAX - 3), "left")
            expect([give_back(b, receipt, "here", "k") for receipt in receipts], [0, 0, 0], "on the copy")
            expect(give_back(a, receipts[0], "here", "k"), 1, "on the original")
            own = receipt_of(b, "here", "k")
            expect((give_back(a, own, "here", "k"), give_back(b, own, "here", "k")), (0, 1), "of the copy")
            b.restart()
            expect((give_back(b, own, "here", "k"), told(b)), (0, 1), "it is said once, and used is used")
            own = receipt_of(b, "here", "k")
            b.restart()
            expect((give_back(b, own, "here", "k"), told(b)), (1, 1), "receipts outlive a restart")
        a.restart()
        expect((give_back(a, receipts[1], "here", "k"), told(a)), (1, 0), "on the original, later")


def test_renamed_files_are_the_same():
    with folder() as path:
        first, second = os.path.join(path, "first"), os.path.join(path, "second")
        with Service("--cells", first, rules=LOCAL) as a:
            receipt = receipt_of(a, "here", "k")
        os.rename(first, second)
        with Service("--cells", second, rules=LOCAL) as a:
            expect((give_back(a, receipt, "here", "k"), told(a)), (1, 0))


def test_backups_do_not_bring_receipts_back():
    """A file that takes the place of one that was removed often has its inode number, too."""
    with folder() as path, Service(rules=LOCAL) as a:
        used = receipt_of(a, "here", "k")
        backup = os.path.join(path, "backup")
        shutil.copyfile(cells_of(a), backup)
        expect(give_back(a, used, "here", "k"), 1)
        a.stop()
        os.unlink(cells_of(a))
        shutil.copyfile(backup, cells_of(a))
        a.start()
        expect((told(a), ask(a, ("here", "k"), "WEIR.PEEK")[1]), (1, MAX - 1))
        expect(give_back(a, used, "here", "k"), 0, "used before the backup came back")


def test_commands_say_it_too():
    with folder() as path, Service(rules=LOCAL) as a:
        copy = os.path.join(path, "copy")
        shutil.copyfile(cells_of(a), copy)
        words = [WEIR, "check", "--rules", a.rules_file, "--cells", copy, "--event", "here", "--key", "k"]
        first, second = (subprocess.run(words, capture_output=True, text=True, check=True).stderr for _ in range(2))
        expect((first.startswith(f"weir: {copy} is a copy"), first.count("\n"), second), (True, 1, ""), first)


# ---- with a store ----


def test_copied_while_it_runs():
    with folder() as path, Store() as store, Node(store, RULES, *FLAGS) as a:
        expect(ask(a, ("lent", "k"))[0], "allowed")
        receipts = two_receipts(a)
        until(lambda: a.status()["lease_tokens_held"] == HELD, "a slice less one")
        copy = os.path.join(path, "copy")
        shutil.copyfile(cells_of(a), copy)
        with node(store, copy) as b:
            expect((told(a), told(b)), (0, 1))
            count_each_other(store, [a, b])
            expect(given_back(store, receipts, [b, a]), [0, 1])
            store.kill()
            until(lambda: not a.is_up() and not b.is_up(), "the store is away")
            expect((allowed(b, "lent", "k"), allowed(a, "lent", "k")), (0, HELD), "the slice is spent once")
            expect([allowed(n, "exact", "away") for n in (a, b)], [MAX // 2] * 2, "max / hosts")


def test_copied_after_a_kill():
    """Slices stay in a file whose service was killed: they are for whoever goes on with that very file."""
    with folder() as path, Store(persistent=True) as store:
        first, copy = os.path.join(path, "first"), os.path.join(path, "copy")
        with node(store, first) as a:
            expect(ask(a, ("lent", "k"))[0], "allowed")
            until(lambda: a.status()["lease_tokens_held"] == HELD, "a slice less one")
            receipts = two_receipts(a)
            a.kill()
            shutil.copyfile(first, copy)
            a.start()
            with node(store, copy) as b:
                count_each_other(store, [a, b])
                expect((told(a), told(b)), (0, 1))
                expect(given_back(store, receipts, [b, a]), [0, 1])
                passed = 1 + spend(b, ("lent", "k")) + spend(a, ("lent", "k"))
                expect(passed <= MAX, True, f"{passed} have passed")
                expect(passed >= MAX - HELD, True, f"{passed} have passed")
                expect(charged(store, ("lent", "k"), "n.f"), MAX)


def test_many_copies_of_one_image():
    with folder() as path, Store() as store:
        image = os.path.join(path, "image")
        with node(store, image) as a:
            receipts = two_receipts(a)
        with contextlib.ExitStack() as stack:
            nodes = []
            for number in range(4):
                copy = os.path.join(path, f"copy{number}")
                shutil.copyfile(image, copy)
                nodes.append(stack.enter_context(node(store, copy)))
            count_each_other(store, nodes)
            expect([told(n) for n in nodes], [1] * 4)
            expect(given_back(store, receipts, nodes), [0] * 4)
            store.kill()
            until(lambda: not any(n.is_up() for n in nodes), "the store is away")
            expect([allowed(n, "exact", "away") for n in nodes], [MAX // 4] * 4)


def copied_and_looked_at(image, copy):
    """The command is the first that opens the copy."""
    shutil.copyfile(image, copy)
    subprocess.run([WEIR, "cells", "check", copy], capture_output=True, check=True)


def copied_by_weir(image, copy):
    subprocess.run([WEIR, "cells", "copy", image, copy], capture_output=True, check=True)


def test_started_while_the_store_is_away():
    """The file says how many hosts there were last. A copy is one more."""
    with folder() as path, Store() as store:
        image = os.path.join(path, "image")
        with node(store, image) as a:
            count_each_other(store, [a])
            a.kill()
            store.kill()
            for number, make in enumerate((shutil.copyfile, copied_and_looked_at, copied_by_weir)):
                copy = os.path.join(path, f"copy{number}")
                make(image, copy)
                with Service("--counters", store.address, *FLAGS, "--cells", copy, rules=RULES) as b:
                    expect(allowed(b, "exact", "k1"), MAX // 2)
                    b.restart()
                    expect(allowed(b, "exact", "k2"), MAX // 2)


def test_debts_are_not_forgotten():
    """What the original let through in place of the store is charged by the copy as well: twice at worst, and not never."""
    with folder() as path, Store(persistent=True) as store, Node(store, RULES, *FLAGS) as a:
        store.kill()
        until(lambda: not a.is_up(), "the store is away")
        expect(allowed(a, "exact", "d", 7), 7)
        copy = os.path.join(path, "copy")
        shutil.copyfile(cells_of(a), copy)
        a.kill()
        store.start()
        with node(store, copy) as b:
            expect(ask(b, ("exact", "d"))[0], "allowed")
            until(lambda: charged(store, ("exact", "d"), "n.f") == 8, "the copy has charged it")
            a.start()
            until(a.is_up, "the store is reached")
            expect(ask(a, ("exact", "d"))[0], "allowed")
            until(lambda: 8 < charged(store, ("exact", "d"), "n.f") <= 16, "and so may the original")


class Contained(Node):
    """A service that sees another host name and machine id, as in a container. hidden: and neither boot id nor machine id."""

    hidden = False

    def command(self):
        other = os.path.join(self.folder.name, "machine-id")
        with open(other, "w", encoding="ascii") as file:
            file.write("" if self.hidden else f"{os.urandom(16).hex()}\n")
        script = 'hostname "contained-$$"; for id in /etc/machine-id /var/lib/dbus/machine-id; do '
        script += 'if [ -e $id ]; then mount --bind "$0" $id; fi; done; '
        if self.hidden:
            script += "mount -t tmpfs none /proc/sys; "
        return ["unshare", "--uts", "--mount", "sh", "-ec", script + 'exec "$@"', other, *super().command()]


class Hidden(Contained):
    hidden = True


def all_see_one_host(store, a, b):
    """For two beats on end. The first to see more of the machine gives the table another name; the other one learns it with a beat of
    its own, which comes later on a busy machine."""
    end = time.monotonic() + 2 * BEAT_S
    while time.monotonic() < end:
        if {store.ask("ZCARD", "weir:1:hosts"), a.status()["hosts"], b.status()["hosts"]} != {1}:
            return False
        time.sleep(0.05)
    return True


def one_host(store, a, b):
    """So they are counted, and each takes back what the other gave."""
    receipts = [receipt_of(n, "exact", "r") for n in (a, b)]
    until(lambda: all_see_one_host(store, a, b), "for two beats everybody knows one host")
    expect((told(a), told(b)), (0, 0))
    expect([give_back(n, receipt, "exact", "r") for n, receipt in zip((b, a), receipts)], [1, 1])


@pytest.mark.skipif(os.geteuid() != 0, reason="root is missing, who makes containers")
def test_containers_on_one_file_are_one_host():
    for kind in (Contained, Hidden):
        with folder() as path, Store() as store:
            cells = os.path.join(path, "cells")
            with node(store, cells) as a, kind(store, RULES, *FLAGS, "--cells", cells) as b:
                for n in (b, a, b):
                    n.restart()
                    until(n.is_up, "the store is reached")
                one_host(store, a, b)
            # Whoever makes it.
            os.unlink(cells)
            with kind(store, RULES, *FLAGS, "--cells", cells) as b, node(store, cells) as a:
                one_host(store, a, b)
