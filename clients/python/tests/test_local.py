"""What only the form in this process has: the library, rules that change, forks, the store of many hosts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Callable, List, Set

import pytest
from servers import RULES, Redis, Service, until, write

from weir import Weir, WeirError, detect

LESS = RULES.replace("max: 2, per: 1h", "max: 1, per: 1h")
LEASED = """
rules:
  - id: leased
    match: { event: leased }
    by: [key]
    lease: true
    limits: [ { name: hour, algorithm: fixed_window, max: 1000, per: 1h } ]
  - id: plain
    match: { event: plain }
    by: [key]
    counters: local
    limits: [ { name: hour, algorithm: fixed_window, max: 1, per: 1h } ]
"""


def in_child(work: Callable[[], Any]) -> Any:
    """What it returns in a child of a fork."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=lambda: theirs.send(work()))
    child.start()
    theirs.close()
    try:
        if not ours.poll(60):
            child.kill()
        return ours.recv()
    finally:
        child.join(60)
        assert child.exitcode == 0


def open_with(environment: Any) -> str:
    """What another Python says that opens one."""
    code = "import weir\ntry: weir.Weir.open(rules_text='rules: []').close()\nexcept weir.WeirError as e: print(e)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_the_library_is_found_by_the_linker() -> None:
    assert open_with({"LD_LIBRARY_PATH": str(Path(os.environ["WEIR_LIBRARY"]).parent), "WEIR_LIBRARY": ""}) == ""


def test_a_missing_library_says_what_to_do() -> None:
    said = open_with({"WEIR_LIBRARY": "/nowhere/libweir.so.4"})
    assert "libweir.so.4 was not found (/nowhere/libweir.so.4: " in said and "WEIR_LIBRARY" in said


def test_another_library_is_refused() -> None:
    assert "libc.so.6 has no weir_abi_version" in open_with({"WEIR_LIBRARY": "libc.so.6"})


def test_options() -> None:
    for wrong in ({}, {"rules": "a", "rules_text": "b"}):
        with pytest.raises(ValueError, match="give either rules"):
            Weir.open(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="deadline is a number of seconds above 0, and at most 3600, not 0"):
        Weir.open(rules_text=RULES, deadline=0)
    with pytest.raises(ValueError, match="cells_keys is a number of keys, not -1"):
        Weir.open(rules_text=RULES, cells_keys=-1)
    with pytest.raises(WeirError, match="nowhere.yaml"):
        Weir.open(rules="/nowhere.yaml")
    with pytest.raises(WeirError, match="limits"):
        Weir.open(rules_text="rules: [ { id: a } ]")


def test_trusted_proxies_replace_those_of_the_rules(key: str) -> None:
    with Weir.open(rules_text=RULES, trusted_proxies="", cells_keys=1000) as weir:
        for _ in range(2):
            assert weir.check(path="/page", peer="127.0.0.1", headers={"X-Forwarded-For": "10.9.9.9"}).allowed
        assert not weir.check(path="/page", peer="127.0.0.1", headers={"X-Forwarded-For": "10.9.9.8"}).allowed


def test_closed() -> None:
    weir = Weir.open(rules_text=RULES)
    guarded: Any = detect(weir, "ocr", key="user")(lambda user: None)
    guarded("u")
    weir.close()
    weir.close()
    with pytest.raises(WeirError, match="this Weir is closed"):
        guarded("u")
    with pytest.raises(WeirError, match="this Weir is closed"):
        weir.check(event="ocr", key="u")


def test_close_while_others_decide() -> None:
    """What they use is freed when the last of them is done."""

    def decide(weir: Weir, guarded: Any) -> None:
        with contextlib.suppress(WeirError):
            while True:
                guarded("u")
                weir.check(event="wide", key="u", headers={"a": "b"})

    def race() -> bool:
        sys.setswitchinterval(1e-5)
        for _ in range(60):
            weir = Weir.open(rules_text=RULES, cells_keys=1000)
            guarded: Any = detect(weir, "wide", key="user")(lambda user: None)
            threads = [threading.Thread(target=decide, args=(weir, guarded)) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.002)
            weir.close()
            for thread in threads:
                thread.join()
        return True

    assert in_child(race)


CANCELLED = """
import asyncio, os, signal, sys
from weir import Weir, WeirError

async def main(url, pid, rules):
    async with Weir.open(rules_text=rules, counters=url, deadline=0.3, cells_keys=1000) as weir:
        await weir.acheck(event="wide", key="u")
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.wait_for(asyncio.gather(*(weir.acheck(event="wide", key=f"u{i}") for i in range(4))), 0.03)
        except asyncio.TimeoutError:
            pass
    os.kill(pid, signal.SIGCONT)
    try:
        await weir.acheck(event="wide", key="u")
    except WeirError as error:
        print(error)

for _ in range(10):
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
"""


def test_close_while_a_cancelled_coroutine_still_waits(store: Redis) -> None:
    """Memory that is freed is overwritten at once here, so that nobody can use it unnoticed."""
    command = [sys.executable, "-c", CANCELLED, store.url, str(store.process.pid), RULES]
    environment = {**os.environ, "MALLOC_PERTURB_": "165"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    finally:
        os.kill(store.process.pid, signal.SIGCONT)
    assert (done.returncode, done.stdout) == (0, "this Weir is closed\n" * 10), done.stderr


def test_one_that_is_dropped_is_closed(tmp_path: Path) -> None:
    write(tmp_path / "rules.yaml", RULES)
    weir = Weir.open(rules=tmp_path / "rules.yaml", cells_keys=1000)
    handle = weakref.ref(weir._handle)
    del weir
    until(lambda: handle() is None, "its table is freed")


def test_nothing_is_left_of_a_closed_one(tmp_path: Path) -> None:
    def threads() -> Set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "weir"}

    before = threads()  # some of which may be about to end
    rules = tmp_path / "rules.yaml"
    write(rules, RULES)
    with Weir.open(rules=rules, cells_keys=1000):
        assert len(threads() - before) == 1
    until(lambda: not threads() - before, "its thread ends")


def test_rules_change_while_it_runs(tmp_path: Path, caplog: Any) -> None:
    rules = tmp_path / "rules.yaml"
    write(rules, RULES)
    caplog.set_level(logging.INFO, "weir")
    with Weir.open(rules=rules, cells=tmp_path / "cells", cells_keys=1000) as weir:
        assert weir.check(event="ocr", key="u").max == 2
        write(rules, "rules: [ { id: half")
        until(lambda: "the rules have errors" in caplog.text, "bad rules are logged")
        assert weir.check(event="ocr", key="u", peek=True).max == 2
        write(rules, LESS)
        until(lambda: weir.check(event="ocr", key="u", peek=True).max == 1, "the new rules are in force")
        until(lambda: "new rules are in force" in caplog.text, "new rules are logged")
        assert not weir.check(event="ocr", key="u").allowed
        assert not weir._waits  # nothing here does, so that the decorator may take the quick path
        write(rules, LEASED)
        until(lambda: weir._waits, "it knows that a decision may wait for a slice")


def test_rules_are_followed_from_another_folder(tmp_path: Path, monkeypatch: Any) -> None:
    write(tmp_path / "rules.yaml", RULES)
    monkeypatch.chdir(tmp_path)
    with Weir.open(rules="rules.yaml", cells="cells", cells_keys=1000) as weir:
        monkeypatch.chdir("/")
        write(tmp_path / "rules.yaml", LESS)
        until(lambda: weir.check(event="ocr", key="u", peek=True).max == 1, "the new rules are in force")


@pytest.mark.parametrize("cells", ["file", "memory"])
def test_children_count_with_their_parent(tmp_path: Path, cells: str) -> None:
    """And follow the rules, which their parent no longer does for them."""
    rules = tmp_path / "rules.yaml"
    write(rules, RULES)
    with Weir.open(rules=rules, cells=tmp_path / "cells" if cells == "file" else None, cells_keys=1000) as weir:
        guarded: Any = detect(weir, "ocr", key="user")(lambda user: True)
        assert weir.check(event="ocr", key="u").remaining == 1
        assert in_child(lambda: guarded("u") and weir.check(event="ocr", key="u").allowed) is False
        assert not weir.check(event="ocr", key="u").allowed

        def sees_new_rules() -> bool:
            write(rules, LESS)
            until(lambda: weir.check(event="ocr", key="v", peek=True).max == 1, "the child has new rules")
            weir.close()
            return True

        assert in_child(sees_new_rules)
        until(lambda: weir.check(event="ocr", key="v", peek=True).max == 1, "the parent has new rules")


def test_forks_amid_changes_of_the_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    write(rules, RULES)
    with Weir.open(rules=rules, cells_keys=1000) as weir:
        end = threading.Event()

        def poll_all_the_time() -> None:
            number = 0
            while not end.is_set():
                number += 1
                write(rules, LESS if number % 2 else RULES)
                weir._poll()

        def polls_and_asks() -> bool:
            weir._poll()
            return weir.check(event="wide", key="u").allowed

        thread = threading.Thread(target=poll_all_the_time)
        thread.start()
        try:
            for _ in range(10):
                assert in_child(polls_and_asks)
        finally:
            end.set()
            thread.join()


def test_a_fork_while_another_thread_waits_for_its_store() -> None:
    def forked_meanwhile() -> bool:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
            opening = threading.Thread(
                target=lambda: Weir.open(rules_text=RULES, counters=url, deadline=1, cells_keys=1000).close()
            )
            opening.start()
            select.select([silent], [], [], 60)
            assert in_child(lambda: True)
            still_waits = opening.is_alive()
            opening.join()
            return still_waits

    until(forked_meanwhile, "a child that ends within a second")


def test_coroutines_do_not_wait_for_threads_of_others(store: Redis) -> None:
    async def ask() -> bool:
        end = threading.Event()
        others = [asyncio.ensure_future(asyncio.to_thread(end.wait)) for _ in range(40)]
        try:
            with Weir.open(rules_text=RULES, counters=store.url, deadline=10, cells_keys=1000) as weir:
                return (await asyncio.wait_for(weir.acheck(event="wide", key="u"), 30)).allowed
        finally:
            end.set()
            await asyncio.gather(*others)

    assert asyncio.run(ask())


def test_a_verdict_that_another_thread_has_taken_meanwhile() -> None:
    class Emptied(List[Any]):
        def __len__(self) -> int:
            return 1

    with Weir.open(rules_text=RULES) as weir:
        weir._rooms = Emptied()
        submit: Any = detect(weir, "ocr", key="user")(lambda user: True)
        assert submit("u")


def test_nobody_stands_still_while_a_slice_is_fetched(store: Redis) -> None:
    service = Service("--counters", store.url)
    write(service.rules, LEASED)
    with service, Weir.open(rules=service.rules, cells=service.cells, deadline=0.2) as weir:
        guarded: Any = detect(weir, "leased", key="user")(lambda user: True)
        assert guarded("here") and weir.check(event="leased", key="here").rule == "leased"

        @detect(weir, "leased", key="user")
        async def guarded_async(user: str) -> None: ...

        async def turns_of(work: Any) -> int:
            task, turns = asyncio.ensure_future(work), 0
            while not task.done():
                turns += 1
                await asyncio.sleep(0.01)
            await task
            return turns

        keys = (f"new-{number}" for number in itertools.count())

        def turns_without(service: Service, ask: Callable[[str], Any]) -> int:
            with service.standing_still():
                return asyncio.run(turns_of(ask(next(keys))))

        ways: List[Callable[[str], Any]] = [
            lambda key: weir.acheck(event="leased", key=key),
            guarded_async,
            lambda key: in_thread(lambda: guarded(key)),
        ]
        for way in ways:
            # Again if need be: who has not heard of the service for a while does not wait for it.
            until(lambda: turns_without(service, way) > 2, "others have their turns meanwhile")


async def in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work)


def test_counters_of_many_hosts(store: Redis, tmp_path: Path) -> None:
    hosts = [
        Weir.open(rules_text=RULES, cells=tmp_path / f"cells-{i}", cells_keys=1000, counters=store.url, deadline=10)
        for i in (1, 2)
    ]

    async def ask(weir: Weir) -> Any:
        return (await weir.acheck(event="ocr", key="u")).remaining

    async def detected(weir: Weir) -> Any:
        return await detect(weir, "ocr", key="user")(_coroutine)("u")

    async def _coroutine(user: str) -> bool:
        return True

    with hosts[0] as one, hosts[1] as other:
        assert asyncio.run(ask(one)) == 1
        charged = other.check(event="ocr", key="u", refundable=True)
        assert charged.remaining == 0 and not one.check(event="ocr", key="u").allowed
        assert other.refund(charged) == 2
        until(lambda: one.check(event="ocr", key="u", peek=True).allowed, "it is given back in the store")
        # The child opens connections of its own.
        assert in_child(lambda: asyncio.run(detected(one))) is True
        assert not other.check(event="ocr", key="u").allowed


@pytest.mark.parametrize("cells", ["file", "memory"])
def test_children_count_with_their_parent_and_a_store(store: Redis, tmp_path: Path, cells: str) -> None:
    """Each opens the table anew, with connections of its own to the store."""
    file = tmp_path / "cells" if cells == "file" else None
    with Weir.open(rules_text=LEASED, cells=file, counters=store.url, deadline=10, cells_keys=1000) as weir:
        assert weir.check(event="plain", key="u").allowed and weir.check(event="plain", key="v", peek=True).allowed
        assert in_child(lambda: [weir.check(event="plain", key=key).allowed for key in "uv"]) == [False, True]
        assert not weir.check(event="plain", key="v").allowed


def test_more_memory_than_there_is() -> None:
    for keys in (2**45, 2**60):
        with pytest.raises(WeirError, match=f"no memory for a table of {keys} keys"):
            Weir.open(rules_text=RULES, counters="redis://127.0.0.1:1", deadline=0.01, cells_keys=keys)


def test_memory_is_given_back(store: Redis) -> None:
    weir = Weir.open(rules_text=RULES, counters=store.url, deadline=10, cells_keys=1000)
    memory = weakref.ref(weir._memory)
    assert weir.check(event="wide", key="memory").allowed
    weir.close()
    until(lambda: memory() is None, "the table is freed")


def test_a_store_that_is_away_is_logged_once(caplog: Any) -> None:
    with Redis() as store, Weir.open(rules_text=RULES, counters=store.url, deadline=10, cells_keys=1000) as weir:
        assert weir.check(event="ocr", key="u").remaining == 1
        store.end()
        until(lambda: "does not answer, and rules go by their on_store_failure" in caplog.text, "the outage is logged")
        assert weir.check(event="ocr", key="v").allowed
        store.start()
        until(lambda: f"127.0.0.1:{store.port} answers" in caplog.text, "its end is logged")
        assert len([r for r in caplog.records if r.name == "weir"]) == 2
