"""What the tests in Python share: where the build is, running its command, writing rules, waiting, comparing.

The servers are in modules of their own: service (weir serve), gateway (nginx), store (Redis), databases; their fixtures are in
tests/conftest.py."""

import atexit
import contextlib
import json
import math
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The build that is tested: a folder, from the root of the tree.
BUILD = os.path.join(ROOT, os.environ.get("WEIR_BUILD", "build"))
WEIR = os.path.join(BUILD, "weir")


def memory_folder():
    """For the tables of services: in memory as they are for users, and gone when the tests end."""
    path, owner = tempfile.mkdtemp(prefix="weir-tests-", dir="/dev/shm"), os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(path, ignore_errors=True))
    return path


if os.access("/dev/shm", os.W_OK):
    os.environ["RUNTIME_DIRECTORY"] = memory_folder()
UNWANTED = ("COLUMNS", "TZDIR", "WEIR_FROM", "WEIR_DB_PASSWORD", "WEIR_REDIS_PASSWORD", "WEIR_SENTINEL_PASSWORD", "CREDENTIALS_DIRECTORY")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in UNWANTED},
    "LC_ALL": "C.UTF-8",
}
TIMEOUT_S = 300
DEADLINE_S = 60


def is_sanitized():
    """Then its memory says nothing: what is freed is kept for a while, to find who still uses it."""
    if not os.path.exists(WEIR):
        return False
    with open(WEIR, "rb") as program:
        return re.search(rb"__[at]san_init", program.read()) is not None


SANITIZED = is_sanitized()


def number(name, default):
    """From the environment; script/soak gives other seeds, and more rounds."""
    return type(default)(os.environ.get(name, default))


def weir(*words, stdin=b"", **more):
    """Runs the command; its output as bytes."""
    return subprocess.run(
        [WEIR, *map(str, words)], input=stdin, capture_output=True, env=ENVIRONMENT, timeout=TIMEOUT_S, check=False, **more
    )


# ---- comparing, waiting ----


def expect(found, wanted, what=""):
    __tracebackhide__ = True
    if found != wanted:
        raise AssertionError(f"{what}\n  found  {found!r}\n  wanted {wanted!r}")


def has(text, *parts):
    __tracebackhide__ = True
    for part in parts:
        if part not in text:
            raise AssertionError(f"there is no {part!r} in\n{text}")


def until(condition, what, pause=0.01):
    """Waits for something that is to come; `what` is a text, or a function that makes it if it does not come."""
    __tracebackhide__ = True
    end = time.monotonic() + DEADLINE_S
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"{what() if callable(what) else what}: not within {DEADLINE_S} s")
        time.sleep(pause)


def at_once(calls):
    """Makes all calls at the same time, each in a thread. Returns what they return; raises what one of them raised."""
    found, failed = [], []

    def work(call):
        try:
            found.append(call())
        except BaseException as why:  # raised again below, where the test sees it
            failed.append(why)

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return found


def an_hour_since(begin, text):
    """What is left of an hour that began then, as the whole hour: a slow machine asks later."""
    least = 3600 - math.floor(time.monotonic() - begin)
    return re.sub(r"\d+", lambda found: "3600" if least <= int(found[0]) < 3600 else found[0], text)


def free_port():
    """Not one that a connection may get while the server is down: those are from 32768 on."""
    while True:
        port = random.randrange(20000, 32768)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


# ---- rules and requests ----

PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
NOT_TEXT = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def scalar(value):
    if isinstance(value, str) and PLAIN.fullmatch(value) and value.lower() not in NOT_TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)


def yaml_lines(value, rng):
    """Block style, with flow style here and there."""
    if not isinstance(value, (dict, list)) or not value:
        return [scalar(value)]
    if rng.random() < 0.2:
        return [json.dumps(value, ensure_ascii=False)]
    result = []
    items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    for name, item in items:
        head = "-" if name is None else scalar(name) + ":"
        lines = yaml_lines(item, rng)
        if len(lines) == 1 and (lines[0][0] in "{[" or not isinstance(item, (dict, list))):
            result.append(f"{head} {lines[0]}")
        else:
            result += [head, *("  " + line for line in lines)]
    return result


def to_yaml(doc, rng):
    """Begins with a comment, so that it cannot be taken for JSON."""
    return "# rules\n" + "\n".join(yaml_lines(doc, rng)) + "\n"


def simulate(rules, lines, *words):
    """Verdicts on requests; `rules` is the text of a file."""
    with tempfile.TemporaryDirectory() as folder:
        rules_file, input_file = os.path.join(folder, "rules"), os.path.join(folder, "input")
        with open(rules_file, "w", encoding="utf-8") as out:
            out.write(rules)
        with open(input_file, "w", encoding="utf-8") as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)
        done = weir("simulate", "--rules", rules_file, "--verdicts", *words, input_file)
    if done.returncode != 0:
        raise AssertionError(f"simulate ended with {done.returncode}: {done.stderr.decode()}")
    return [json.loads(line) for line in done.stdout.splitlines()]
