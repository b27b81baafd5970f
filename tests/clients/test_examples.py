"""C and C++: weir.hpp, the page docs/c.md, and the applications in examples/, compiled against an installed weir and run."""

import concurrent.futures
import contextlib
import http.client
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import support
from support import BUILD, DEADLINE_S, expect
from support.store import Store

ROOT = Path(support.ROOT)
HERE = ROOT / "tests" / "clients" / "cpp"
PAGE = ROOT / "docs" / "c.md"
STRICT = "-Wall -Wextra -Wpedantic -Wshadow -Werror"
SANITIZE = "-g -fsanitize=address,undefined -fno-sanitize-recover=all"


class Scratch:
    """A folder with an installed weir, in which everything is compiled and run."""

    def __init__(self, folder):
        self.folder = Path(folder)
        root = self.folder / "root"
        subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild"], env={**os.environ, "DESTDIR": str(root)},
                       stdout=subprocess.DEVNULL, check=True)
        configs = next(root.rglob("weir.pc")).parent
        self.environment = {**os.environ, "PKG_CONFIG_PATH": str(configs), "PKG_CONFIG_SYSROOT_DIR": str(root),
                            "LD_LIBRARY_PATH": str(configs.parent)}

    def shell(self, script, folder="."):
        """What it prints; a command that fails is a failure."""
        done = subprocess.run(["bash", "-e"], input=script, cwd=self.folder / folder, env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE_S, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{script}\nended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def compile(self, command):
        """As it is documented, but strictly."""
        self.shell(command + " " + STRICT)


@pytest.fixture(scope="module")
def scratch():
    with tempfile.TemporaryDirectory() as folder:
        yield Scratch(folder)


def documented(source):
    """The command that compiles an example: its own head says it, and so does the page."""
    command = re.search(r"^ \*     (c(?:c|\+\+) .*)$", source.read_text(), re.M).group(1)
    expect(command in PAGE.read_text(), True, f"docs/c.md has the command {command}")
    return command


# ---- weir.hpp ----


@pytest.fixture(scope="module")
def head(scratch):
    """Its example, which is a whole program."""
    head = re.search(r"^ \*     #include.*?^ \*     }$", (ROOT / "include/weir/weir.hpp").read_text(), re.M | re.S).group()
    (scratch.folder / "head.cpp").write_text(re.sub(r"^ \*(?:     )?", "", head, flags=re.M) + "\n")


def test_strict(scratch, head):
    """weir.hpp is strict C++17, C++20 and C++23."""
    commands = [f"{compiler} -std={language} -fsyntax-only -Wconversion head.cpp $(pkg-config --cflags weir)"
                for compiler in ("g++", "clang++") for language in ("c++17", "c++20", "c++2b")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(scratch.compile, commands))


def test_head_runs(scratch, head):
    """The example in weir.hpp's head runs."""
    folder = scratch.folder / "head"
    folder.mkdir()
    (folder / "rules.yaml").write_text("rules: [ { id: ocr, match: { event: ocr }, by: [key], limits: [ 3 per 1h ] } ]\n")
    scratch.compile("g++ -std=c++17 -o head/head head.cpp $(pkg-config --cflags --libs weir)")
    expect(scratch.shell("./head", "head"), "submitted, 2 left\nsubmitted again\n")


def whole_address_space():
    """The runtimes of the sanitizers cannot place their memory under some settings of address randomisation."""
    fixed = ["setarch", os.uname().machine, "-R"]
    return " ".join(fixed) if subprocess.run([*fixed, "true"], capture_output=True, check=False).returncode == 0 else ""


@pytest.mark.parametrize(("compiler", "flags"), [("g++", "-O1"), ("clang++", SANITIZE)], ids=["gcc", "clang_and_its_sanitizers"])
def test_unit(compiler, flags, scratch):
    name = f"unit-{compiler}"
    os.mkdir(scratch.folder / f"{name}.files")
    scratch.compile(f"{compiler} -std=c++17 {flags} -pthread -o {name} {HERE}/test.cpp $(pkg-config --cflags --libs weir)")
    with Store() as store:
        scratch.shell(f"{whole_address_space()} ./{name} {name}.files {store.address}")


# ---- the page ----


def blocks():
    """(language, text before it, text) of each block."""
    before = ""
    for part in re.split(r"^(```.*?^```)$", PAGE.read_text(), flags=re.M | re.S):
        block = re.fullmatch(r"```(\w*)\n(.*)```", part, re.S)
        if block:
            yield block.group(1), before, block.group(2)
        else:
            before = part


def test_two_minutes(scratch):
    """Files are those that the text before a block names; commands are run, and print what the next block shows."""
    folder = scratch.folder / "page"
    folder.mkdir()
    output = None
    for language, before, text in blocks():
        name = re.search(r"`([\w+]+\.\w+)`:\s*$", before)
        if name and name.group(1) != "Limit.h":
            (folder / name.group(1)).write_text(text)
        elif language == "sh" and "first" in text:
            output = scratch.shell(text.replace(" -o ", f" {STRICT} -o "), "page")
        elif language == "text":
            expect(re.sub(r"\d+ ms", "… ms", output), text)


C_BEFORE = """#include <weir/weir.h>
bool submit(const char *image);
uint64_t send_response(void);
void fragments(struct weir *weir, const char *method, const char *path, const char *peer, void *connection, const char *image)
{
"""
CPP_BEFORE = """#include <weir/weir.hpp>
void submit(const char *image);
void too_frequent(std::chrono::milliseconds wait);
void fragments(weir::handle &weir, const char *method, const char *path, const char *peer, void *connection, const char *image,
               const std::string &user)
{
"""


def test_fragments(scratch):
    """docs/c.md: fragments compile."""
    for language, start, end, compiler in (("c", C_BEFORE, "}\n", "cc -xc"),
                                           ("cpp", CPP_BEFORE, "(void)verdict; }\n", "c++ -std=c++17 -xc++")):
        text = start + "".join(text for kind, _, text in blocks() if kind == language and "#include" not in text) + end
        (scratch.folder / f"fragments.{language}").write_text(text)
        scratch.compile(f"{compiler} -fsyntax-only fragments.{language} $(pkg-config --cflags weir)")


def test_drogon(scratch):
    """docs/c.md: the filter for Drogon."""
    folder = scratch.folder / "drogon-filter"
    folder.mkdir()
    (folder / "Limit.cc").write_text(next(text for _, before, text in blocks() if "`Limit.cc`" in before))
    rules = next(text for _, before, text in blocks() if "for Drogon, which takes" in before)
    (folder / "rules.yaml").write_text(rules.replace("per 60s", "per 24h"))
    scratch.compile(f"c++ -std=c++17 -o drogon-filter/filter -I{HERE} {HERE}/filter.cpp drogon-filter/Limit.cc "
                    "$(pkg-config --cflags --libs weir)")
    scratch.shell("./filter", "drogon-filter")


# ---- the applications ----


class Application:
    """An example, compiled as its head says; it runs with rules whose windows do not end while it is tested."""

    def __init__(self, scratch, source, **environment):
        self.scratch, self.source = scratch, ROOT / "examples" / source
        self.environment = {**scratch.environment, **environment}
        self.name = self.source.stem
        self.folder = scratch.folder / self.source.parent.name
        self.rules = self.folder / "rules.yaml"

    def __enter__(self):
        shutil.copytree(self.source.parent, self.folder)
        expect(support.weir("lint", self.rules).returncode, 0, "the rules are good")
        text = re.sub(r"calendar: \w+", "algorithm: fixed_window, per: 24h", self.rules.read_text())
        self.change(text.replace("per: 1m", "per: 24h"))
        self.scratch.shell(documented(self.source).replace(" -o ", f" {STRICT} -o "), self.folder.name)
        self.log = open(self.folder / "log", "w+", encoding="utf-8")
        self.process = subprocess.Popen([f"./{self.name}", "--port", "0", "--rules", "rules.yaml"], cwd=self.folder,
                                        env=self.environment, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.port = int(re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", self.process.stdout.readline()).group(1))
        return self

    def __exit__(self, *details):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(DEADLINE_S)
        self.process.stdout.close()
        self.log.close()
        expect(status, 0, f"{self.name} ends well")

    def change(self, text):
        """Whole at once, so that it is taken over at the next look."""
        new = self.rules.with_suffix(".new")
        new.write_text(text)
        new.replace(self.rules)

    def connect(self, address):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, DEADLINE_S, source_address=(address, 0))
        return contextlib.closing(connection)

    def ask(self, path, user=None, address="127.0.0.1", body=None, headers=()):
        """(status, headers, body)"""
        with self.connect(address) as connection:
            connection.request("POST" if body else "GET", path, body, {**dict(headers), **({"X-User": user} if user else {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()

    def promise(self, path, user, address):
        """The status of a request whose body never comes."""
        with self.connect(address) as connection:
            connection.putrequest("POST", path)
            connection.putheader("X-User", user)
            connection.putheader("Content-Length", "900000")
            connection.endheaders()
            return connection.getresponse().status

    def statuses(self, count, *words, **more):
        """How often each status came of so many requests, eight at a time."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = [answer.result()[0] for answer in [pool.submit(self.ask, *words, **more) for _ in range(count)]]
        return {status: found.count(status) for status in set(found)}


def until(condition, what):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {DEADLINE_S} s")
        time.sleep(0.02)


def expect_refused(answer, policy):
    status, headers, body = answer
    expect((status, headers["Content-Type"], headers["RateLimit-Policy"]), (429, "application/json", policy))
    expect(re.fullmatch(r'\{"error":"slow down","wait_ms":\d+\}\n', body) is not None, True, body)
    expect(0 < int(headers["Retry-After"]) <= 86400, True, headers)


def new_rules(server):
    """While it runs: more for those who were refused, and a bad file changes nothing."""
    def ask():
        return server.ask("/ocr", "ann", "127.0.0.8", "x")[0]

    good = server.rules.read_text()
    server.change(good.replace("max: 3 }", "max: 4 }").replace("max: 20 }", "max: 21 }"))
    until(lambda: ask() == 200, "new rules")
    expect(ask(), 429, "one more, not two")
    server.change("rules: 7")
    until(lambda: "must be a list of rules" in (server.folder / "log").read_text(), "what is wrong with the rules")
    expect(ask(), 429, "the rules stand")


def test_c_server(scratch):
    """examples/c: the server."""
    with Application(scratch, "c/server.c") as server:
        status, headers, body = server.ask("/")
        expect((status, body, headers["RateLimit-Policy"]), (200, "welcome\n", '"per-address/minute";q=60;w=86400'))
        expect(headers["RateLimit"].startswith('"per-address/minute";r=59;t='), True, headers)
        expect(server.statuses(80, "/"), {200: 59, 429: 21}, "by address")
        expect_refused(server.ask("/"), '"per-address/minute";q=60;w=86400')
        expect(server.ask("/", address="127.0.0.2")[0], 200, "another address")
        junk = [(f"X-{i}", "1") for i in range(63)]  # Host and Accept-Encoding come along
        expect(server.ask("/", address="127.0.0.2", headers=junk[1:])[0], 200, "64 headers")
        expect(server.ask("/", address="127.0.0.2", headers=junk)[0], 431, "one more, behind which another could hide")

        expect(server.statuses(25, "/notes", "ann", "127.0.0.3"), {200: 10, 429: 15}, "by user")
        expect_refused(server.ask("/notes", "ann", "127.0.0.4"), '"per-address/minute";q=60;w=86400, "notes/minute";q=10;w=86400')
        expect(server.ask("/notes", "bob", "127.0.0.4")[2], "your notes\n", "another user")

        expect(server.ask("/ocr", address="127.0.0.5", body="x")[0], 401, "nobody")
        expect(server.statuses(12, "/ocr", "ann", "127.0.0.5", "x"), {200: 3, 429: 9}, "the guard")
        expect_refused(server.ask("/ocr", "ann", "127.0.0.5", "x"), '"ocr/hour";q=3;w=86400')
        expect(server.ask("/ocr", "bob", "127.0.0.5", "x")[1]["RateLimit"].startswith('"ocr/hour";r=2'), True, "another user")
        new_rules(server)


def is_cut_off(server):
    try:
        server.ask("/ocr", "bob", body="x" * 900_000)
    except OSError:
        return True
    return False


def test_cpp_ocr(scratch):
    """examples/cpp: the service."""
    scratch.compile(f"c++ -std=c++17 -shared -fPIC -o meagre.so {HERE}/meagre.cpp")
    with Application(scratch, "cpp/ocr.cpp", LD_PRELOAD=str(scratch.folder / "meagre.so")) as server:
        expect(is_cut_off(server), True, "no memory for a body: it ends the connection, not the server")
        expect(server.statuses(10, "/ocr", "ann", body="??"), {422: 10}, "what fails …")
        expect(server.ask("/left", "ann")[2], "20\n", "… is given back")
        expect(server.ask("/ocr", "ann", body="?")[1]["RateLimit-Policy"], '"ocr/day";q=100;w=86400, "ocr/hour";q=20;w=86400')
        expect(server.ask("/ocr", "ann", body="x" * 2500)[2], "pages read: 3\n")
        status, headers, body = server.ask("/left", "ann")
        expect((status, body, headers["RateLimit-Policy"]), (200, "17\n", '"ocr/day";q=100;w=86400, "ocr/hour";q=20;w=86400'))
        expect(server.statuses(40, "/ocr", "ann", body="x"), {200: 17, 429: 23}, "the guard")
        expect_refused(server.ask("/ocr", "ann", body="x"), '"ocr/hour";q=20;w=86400')
        expect((server.ask("/ocr", body="x")[0], server.ask("/ocr", "bob", body="x")[0]), (401, 200), "nobody, another user")
        expect(server.ask("/", address="127.0.0.2")[0], 404)
        expect(server.statuses(310, "/left", "bob", "127.0.0.3"), {200: 300, 429: 10}, "by address")
        expect(server.promise("/ocr", "bob", "127.0.0.3"), 429, "by address, before the body is there")
        new_rules(server)
