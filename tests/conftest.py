"""Fixtures that all tests share, and how their results are printed. See CONTRIBUTING.md.

With --tap, as `meson test` calls it, one line for each case; tests/meson_tap.py reads them."""

import contextlib
import os
import shlex
import signal
import tempfile

import pytest

from support import BUILD, ROOT, WEIR, databases
from support.service import Service
from support.store import Store

LINES_MAX = 100
# What changes the cases themselves.
VARIABLES = ("TEST_SEED", "TEST_COUNT", "TEST_SECONDS", "TEST_LONGER")

# ---- servers ----

running = []  # what fixtures have started; its logs are shown with a failure


@contextlib.contextmanager
def kept(server):
    """Runs for a test."""
    with server:
        running.append(server)
        try:
            yield server
        finally:
            running.remove(server)


@pytest.fixture
def service():
    """service(*flags, rules=TEXT) starts a `weir serve`, see support.service; it has to end well."""
    with contextlib.ExitStack() as stack:
        yield lambda *flags, **more: stack.enter_context(kept(Service(*flags, **more)))


@pytest.fixture
def store():
    """A Redis."""
    with kept(Store()) as redis:
        yield redis


@pytest.fixture(scope="session")
def all_databases():
    """By their kind; each is started when it is asked for."""

    class Databases(dict):
        def __missing__(self, kind):
            self[kind] = stack.enter_context(databases.Sqlite() if kind == "sqlite" else databases.Server(kind))
            return self[kind]

    with contextlib.ExitStack() as stack:
        yield Databases()


@pytest.fixture(params=databases.KINDS)
def db(request, all_databases):
    """An empty database of each kind: SQLite, MariaDB, PostgreSQL."""
    database = all_databases[request.param]
    if database.missing:
        pytest.skip(f"{database.missing} is not installed")
    database.clear()
    return database


@pytest.fixture
def folder():
    """The path of an empty folder. (tmp_path leaves its folders behind.)"""
    with tempfile.TemporaryDirectory(prefix="weir-") as path:
        yield path


# ---- results ----


class Tap:
    """Prints TAP, and nothing else."""

    def __init__(self):
        self.count = 0

    def say(self, state, name, more="", details=()):
        self.count += 1
        print(f"{state} {self.count} - {name}{more}", flush=True)
        for line in details:
            print("#", line, flush=True)

    def pytest_collectreport(self, report):
        if report.failed:
            self.say("not ok", report.nodeid, details=str(report.longrepr).splitlines())
        elif report.skipped:
            self.say("ok", report.nodeid, f" # SKIP {report.longrepr[2].removeprefix('Skipped: ')}")

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.rpartition("::")[2]
        if report.failed:
            details = str(report.longrepr).splitlines()
            for title, text in report.sections:
                details += [f"---- {title} ----", *text.splitlines()]
            when = "" if report.when == "call" else f" ({report.when})"
            self.say("not ok", name, when, [*details, repeat(report.nodeid)])
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.say("ok", name, f" # SKIP {reason.removeprefix('Skipped: ')}")
        elif report.when == "call":
            self.say("ok", name)

    def pytest_internalerror(self, excrepr):
        self.say("not ok", "pytest", details=str(excrepr).splitlines())

    def pytest_sessionfinish(self):
        print(f"1..{self.count}", flush=True)


def repeat(node):
    """The command that runs a case again."""
    given = [f"{variable}={shlex.quote(value)} " for variable, value in os.environ.items() if variable in VARIABLES]
    return f"repeat: {''.join(given)}script/test {os.environ.get('TEST_STEP', 'unit')} -k {shlex.quote(node)}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for server in running:
            with open(server.log, encoding="utf-8", errors="replace") as log:
                report.sections.append((type(server).__name__, "".join(log.readlines()[-LINES_MAX:])))
    if report.failed and not item.config.option.tap:
        report.sections.append(("again", repeat(item.nodeid)))


def pytest_addoption(parser):
    parser.addoption("--tap", action="store_true", help="print TAP, for meson test")


def pytest_collection_modifyitems(config, items):
    """TEST_CASES is a file that lists what is to be run, see tests/cases.py; TEST_PART a part of the names."""
    wanted = [item.nodeid for item in items if os.environ.get("TEST_PART", "").lower() in item.nodeid.lower()]
    if "TEST_CASES" in os.environ:
        with open(os.environ["TEST_CASES"], encoding="utf-8") as file:
            wanted = set(file.read().splitlines())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
    items[:] = [item for item in items if item.nodeid in wanted]


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if config.option.tap:
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(Tap())


def pytest_sessionstart():
    if not os.path.exists(WEIR):
        build = os.path.relpath(BUILD, ROOT)
        pytest.exit(f"{build}/weir does not exist: run `ninja -C {build}`, or set WEIR_BUILD to a folder that has one", 2)
    # Meson ends a test that takes too long so: leave nothing behind then, either.
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("ended by SIGTERM", 143))
