"""Runs the built command as a user does."""

import fcntl
import gzip
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios

import pytest

from support import ROOT as SOURCE
from support import SANITIZED, WEIR, has
from support import expect as equal

COMMANDS = ["serve", "check", "explain", "lint", "simulate", "convert", "rules", "sync", "cells", "token", "top"]

RULES = """
settings:
  trusted_proxies: [10.0.0.0/8]
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits: [{ name: day, calendar: day, max: 3, tz: Asia/Shanghai }]
  - id: login
    match: { method: POST, path: /login }
    by: [ip]
    limits: [{ algorithm: fixed_window, max: 2, per: 60s }]
  - id: search
    match: { path: "/search/*" }
    by: [ip, "header:user-agent"]
    mode: shadow
    limits: ["1 per 1h"]
"""
NOW = "2026-03-02T01:00:00Z"
MS = 1772413200000


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    """Each runs in an empty folder."""
    monkeypatch.chdir(folder)


def run(*words, stdin="", env=None, binary=False):
    if isinstance(stdin, str):
        stdin = stdin.encode()
    full = dict(os.environ, LC_ALL="C.UTF-8", TERM="xterm")
    full.pop("COLUMNS", None)
    full.update(env or {})
    done = subprocess.run([WEIR, *words], input=stdin, capture_output=True, env=full, timeout=120)
    if not binary:
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    return done


def write(name, text):
    with open(name, "wb" if isinstance(text, bytes) else "w") as out:
        out.write(text)
    return name


def log_line(seconds, ip="192.0.2.1", request="POST /login HTTP/1.1", agent="-"):
    return f'{ip} - - [02/Mar/2026:09:{seconds // 60:02}:{seconds % 60:02} +0800] "{request}" 200 1 "-" "{agent}"\n'


def options_of(text):
    """Names of the options that a --help lists."""
    return re.findall(r"^  --([a-z-]+)", text, re.MULTILINE)


# ---- in common ----

def test_help_and_version():
    done = run("--help")
    equal((done.returncode, done.stderr), (0, ""))
    for command in COMMANDS:
        has(done.stdout, f"\n  {command} ")
    has(run("--version").stdout, "weir ")
    none = run()
    equal((none.returncode, none.stdout), (2, ""))
    has(none.stderr, "Usage: weir")


def test_help_of_each_command():
    for command in COMMANDS:
        done = run(command, "--help")
        equal((done.returncode, done.stderr), (0, ""), command)
        has(done.stdout, f"Usage: weir {command} ")
        has(done.stdout, "exit status")
        assert all(len(line) <= 80 for line in done.stdout.split("\n")), command
        assert options_of(done.stdout), command
        again = run("help", command)
        equal((again.returncode, again.stdout, again.stderr), (0, done.stdout, ""), command)
    equal(run("help").stdout, run("--help").stdout)
    done = run("help", "frob")
    equal((done.returncode, done.stdout, done.stderr), (2, "", "weir: unknown command 'frob'; see 'weir --help'\n"))


def test_examples_in_help_fit_a_line():
    """They are there to be copied."""
    for command in COMMANDS:
        _, found, example = run(command, "--help").stdout.partition("\nExample:\n")
        if found:
            equal(example.count("\n"), 1, command)


def test_rules_from_stdin():
    ask = write("ask.jsonl", '{"t":1,"event":"ocr","key":"a"}\n')
    for words in (["check"], ["explain"], ["simulate", "--verdicts", ask]):
        done = run(*words, "--rules", "-", stdin=RULES)
        equal((done.returncode, done.stderr), (0, ""), words)
        done = run(*words, "--rules", "-", stdin="rules:\n  - id: a\n    limits: [x]\n")
        equal((done.returncode, done.stdout), (2, ""), words)
        has(done.stderr, "stdin:3: rule a: ")


def test_every_option_is_read():
    """An option that --help lists is known, and one that it does not list is not."""
    for command in COMMANDS:
        for option in options_of(run(command, "--help").stdout):
            done = run(command, f"--{option}=x", "--frobnicate")
            equal((done.returncode, done.stdout), (2, ""), (command, option))
            assert f"no option --{option}" not in done.stderr, (command, option)
        done = run(command, "--frobnicate", "x")
        equal((done.returncode, done.stdout), (2, ""), command)
        equal(done.stderr, f"weir {command}: unknown option --frobnicate; see 'weir {command} --help'\n")


def test_manual_mentions_every_option():
    def page(name):
        # One page is made by the build.
        folder = os.path.dirname(WEIR) if name == "weir-serve.1" else SOURCE
        with open(os.path.join(folder, "man", name), encoding="utf-8") as file:
            return file.read().replace("\\-", "-")

    main = page("weir.1")
    for command in COMMANDS:
        names = ["weir-convert-envoy.1", "weir-convert-hodor.1"] if command == "convert" else [f"weir-{command}.1"]
        text = "".join(map(page, names))
        has(main, *(name[:-2] for name in names))
        for option in options_of(run(command, "--help").stdout):
            assert f"Fl -{option}" in text or f"--{option}" in text, f"{names} do not mention --{option}"


def test_unknown_words():
    for words, part in ((["frob"], "unknown command 'frob'"), (["chek"], "unknown command 'chek' (did you mean check?)"),
                        (["--verison"], "unknown option '--verison' (did you mean --version?)"),
                        (["rules", "lst"], "unknown verb 'lst' (did you mean list?); allowed: init, list"), (["--frob"], "unknown option '--frob'"),
                        (["check", "x"], "unexpected argument 'x'"), (["check"], "--rules FILE is required"),
                        (["simulate", "--rules", "r"], "INPUT is required"), (["lint"], "FILE is required"),
                        (["simulate", "--rules", "r", "a", "b"], "unexpected argument 'b'"),
                        (["convert"], "hodor FILE"), (["convert", "nginx", "x"], "unknown format 'nginx'; allowed: hodor, envoy"),
                        (["convert", "hodr", "x"], "unknown format 'hodr' (did you mean hodor?)"),
                        (["token", "wihtdraw", "x"], "unknown verb 'wihtdraw' (did you mean withdraw?); allowed: add, list, withdraw"),
                        (["convert", "hodor"], "FILE is required"), (["convert", "hodor", "a", "b"], "unexpected argument 'b'"),
                        (["check", "--rules", "r", "--header", "x"], "NAME=VALUE"),
                        (["check", "--rules", "r", "--cells-keys", "1", "--cells-bytes", "1"], "leave out one"),
                        (["simulate", "--rules", "r", "--json", "--verdicts", "x"], "leave out one"),
                        (["simulate", "--rules", "-", "-"], "cannot both be stdin"),
                        (["check", "--rules", "a", "--rules", "b"], "--rules is given twice"),
                        (["explain", "--rules", "a", "--cost=1", "--cost=1"], "--cost: 'requests' is given twice"),
                        (["simulate", "--rules", "r", "--top", "1", "x", "--top", "2"], "--top is given twice"),
                        (["rules"], "VERB is required"), (["rules", "frob"], "unknown verb 'frob'; allowed: init, list"),
                        (["rules", "show"], "show needs ID"), (["rules", "list"], "--from ADDRESS (or $WEIR_FROM) is required"),
                        (["rules", "list", "mysql://u:geheim@h/d"], "list takes no arguments; unexpected argument 'mysql://u:******@h/d'"),
                        (["rules", "set", "x", "max", "--from", "file:none"], "FIELD=VALUE"),
                        (["rules", "list", "--note", "x"], "--note cannot be used with list"),
                        (["rules", "undo", "--most", "3"], "--most cannot be used with undo"),
                        (["sync", "--from", "file:x"], "--to FILE is required"),
                        (["sync", "--from", "file:x", "--to", "y", "--poll", "1"], "100ms to 1h"),
                        (["sync", "--from", "file:x", "--to", "y", "--poll", "1 day"], "allowed: 100ms to 1h, with ms, s, m, h or d after"),
                        (["sync", "--from", "file:x", "--to", "y", "--poll", "60S"], "allowed: 100ms to 1h"),
                        (["top", "--interval", "soon"], "allowed: 1s to 1h"), (["top", "--interval", "999ms"], "allowed: 1s to 1h"),
                        (["top", "--most", "all"], "allowed: 1 to 1000"), (["top", "--most", "0"], "allowed: 1 to 1000"),
                        (["rules", "history", "--most", "0"], "allowed: 1 to 4294967295"),
                        (["rules", "undo", "--change", "0"], "allowed: 1 to 4294967295"),
                        (["rules", "throttle", "/a", "1 per 1s", "--for", "day"], "allowed: 1ms to 3650d"),
                        (["rules", "throttle", "/a", "1 per 1s", "--for", "1h burst 5"], "allowed: 1ms to 3650d"),
                        (["rules", "throttle", "/a", "1 per 1s", "--from", "file:x", "--author", " "], "--author: empty"),
                        (["rules", "throttle", "/a", "1 per 1s", "--from", "file:r", "--expires", "2020-01-01T00:00:00Z"], "has passed"),
                        (["rules", "throttle", b"/\xff", "1 per 1s", "--from", "file:r"], "is not UTF-8"),
                        (["check", "--rules", "r", "--cells-keys", "0"], "allowed: 1 to 50g; k, m or g may follow the number"),
                        (["simulate", "--rules", "r", "--cells-keys", "51g", "x"], "allowed: 1 to 50g"),
                        (["explain", "--rules", "r", "--cells-bytes", "3000g"], "allowed: 1 to 2048g"),
                        (["simulate", "--format", "xml"], "json|combined")):
        done = run(*words)
        equal((done.returncode, done.stdout), (2, ""), words)
        has(done.stderr, part)
        has(done.stderr, "--help'\n")
        equal(done.stderr.count("\n"), 1, words)


def test_closed_pipe():
    """A reader that goes away ends the command without a word, whether SIGPIPE is ignored or not."""
    rules = write("rules.yaml", RULES)
    lines = write("pipe.jsonl", '{"t":1,"event":"ocr","key":"a"}\n' * 20000)
    for ignore in (False, True):
        def prepare():
            signal.signal(signal.SIGPIPE, signal.SIG_IGN if ignore else signal.SIG_DFL)
        with subprocess.Popen([WEIR, "simulate", "--verdicts", "--rules", rules, lines], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, preexec_fn=prepare, restore_signals=False) as child:
            child.stdout.readline()
            child.stdout.close()
            equal(child.stderr.read(), b"")
            assert child.wait(timeout=60) != 0


def test_full_disk():
    if not os.path.exists("/dev/full"):
        return
    with open("/dev/full", "w") as full:
        done = subprocess.run([WEIR, "--help"], stdout=full, stderr=subprocess.PIPE, timeout=60)
    equal(done.returncode, 2)
    has(done.stderr.decode(), "cannot write the output: No space left on device")


def on_terminal(words, env, descriptor):
    """Runs with stdout (1) or stderr (2) on a terminal of 100 columns; returns what the terminal got."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    ends = {1: {"stdout": theirs, "stderr": subprocess.DEVNULL}, 2: {"stdout": subprocess.DEVNULL, "stderr": theirs}}
    full = dict(os.environ, LC_ALL="C.UTF-8", TERM="xterm")
    full.pop("NO_COLOR", None)
    full.update(env)
    with subprocess.Popen([WEIR, *words], stdin=subprocess.DEVNULL, env=full, **ends[descriptor]) as child:
        os.close(theirs)
        got = b""
        try:
            while chunk := os.read(ours, 65536):
                got += chunk
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(ours)
        equal(child.wait(timeout=60), 0)
    return got.decode()


def test_colour_on_a_terminal_alone():
    rules, log = write("rules.yaml", RULES), write("a.log", "".join(log_line(i) for i in range(9)))
    for words in (["simulate", "--rules", rules, "--format", "combined", log], ["explain", "--rules", rules]):
        assert "\033" not in run(*words).stdout, words
        has(on_terminal(words, {}, 1), "\033[")
        assert "\033" not in on_terminal(words, {"NO_COLOR": "1"}, 1), words
        assert "\033" not in on_terminal(words, {"TERM": "dumb"}, 1), words


def test_progress_on_a_terminal_alone():
    # It draws a bar if it takes long; with sanitizers fewer lines take as long.
    times = 4000 if SANITIZED else 20000
    rules, log = write("rules.yaml", RULES), write("big.log", "".join(log_line(i % 60) for i in range(60)) * times)
    words = ["simulate", "--rules", rules, "--format", "combined", log]
    got = on_terminal(words, {}, 2)
    assert got == "" or got.endswith("\r\033[K"), "a fast machine needs no bar; what was drawn is wiped"
    equal(run(*words).stderr, "")


# ---- check ----

def check(*words, rules=RULES, **more):
    done = run("check", "--rules", write("rules.yaml", rules), *words, **more)
    return done.returncode, (json.loads(done.stdout) if done.stdout else None), done.stderr


def test_check_counts_in_a_file():
    cells = os.path.abspath("counts")
    ocr = ["--cells", cells, "--cells-keys", "1k", "--event", "ocr", "--now", NOW]
    words = [*ocr, "--key", "u1"]
    for remaining in (2, 1, 0):
        status, verdict, _ = check(*words)
        equal(status, 0)
        equal(verdict, {"allowed": True, "status": 200, "rule": "ocr", "limit": "day", "max": 3, "remaining": remaining,
                        "reset_ms": 15 * 3600000, "retry_after_ms": 0, "shadow": []})
    status, verdict, errors = check(*words)
    equal((status, verdict["allowed"], verdict["retry_after_ms"], errors), (1, False, 15 * 3600000, ""))
    equal(check(*ocr, "--key=u2")[0], 0, "another key")
    equal(check("--cells", cells, "--event", "ocr", "--key", "u1", "--now", "2026-03-02T16:00:00Z")[0], 0, "the next day")
    os.unlink(cells)


def test_check_without_a_file():
    for _ in range(5):
        equal(check("--event", "ocr", "--key", "u1")[0], 0)


def test_check_peek_and_cost():
    cells = os.path.abspath("costs")
    words = ["--cells", cells, "--cells-bytes", "64k", "--event", "ocr", "--key", "u", "--now", str(MS)]
    for _ in range(3):
        equal(check(*words, "--peek", "--cost", "3")[0], 0)
    equal(check(*words, "--peek", "--cost", "4")[0], 1)
    equal(check(*words, "--cost=2")[1]["remaining"], 1)
    equal(check(*words, "--cost", "0")[1]["remaining"], 1)
    status, verdict, _ = check(*words, "--cost", "2")
    equal((status, verdict["remaining"]), (1, 1))
    status, verdict, _ = check(*words, "--cost", "4")
    equal((status, verdict["retry_after_ms"]), (1, -1))
    os.unlink(cells)


def test_no_charge_makes_no_file():
    """What only looks makes no cells file. A peek goes on without it; explain says that there is none, and no numbers."""
    ocr = ["--rules", write("rules.yaml", RULES), "--cells", "none", "--cells-keys", "1k", "--event", "ocr", "--key", "u"]
    for words in [["check", "--peek"], ["check", "--cost", "0"]]:
        done = run(*words, *ocr, "--now", NOW)
        equal((done.returncode, done.stderr), (0, ""), words)
        assert not os.path.lexists("none"), words
        equal(json.loads(done.stdout)["remaining"], 3)
    os.symlink("nowhere", "link")
    for cells in ("none", "no/such/folder/cells", "link"):
        for words in [["explain"], ["explain", "--cost", "3"]]:
            done = run(*words, *ocr[:3], cells, *ocr[4:], "--now", NOW)
            equal((done.returncode, done.stdout), (2, ""), words)
            equal(done.stderr.count("\n"), 1)
            has(done.stderr, f"weir: {cells}: there is no such cells file; ")
            has(done.stderr, "leave out --cells")
            assert not os.path.lexists("none") and not os.path.lexists("nowhere"), words
    os.unlink("link")
    equal(run("check", *ocr, "--now", NOW, "--cost", "2").returncode, 0)
    assert os.path.exists("none")
    equal(json.loads(run("check", "--peek", *ocr, "--now", NOW).stdout)["remaining"], 1)
    with open("none", "rb") as file:
        before = file.read(), os.fstat(file.fileno()).st_mtime_ns
    done = run("explain", *ocr, "--now", NOW)
    has(done.stdout, "2 of 3 used")
    with open("none", "rb") as file:
        assert (file.read(), os.fstat(file.fileno()).st_mtime_ns) == before, "explain has written to the cells"


def test_addresses_that_cannot_be_read():
    rules = write("rules.yaml", RULES)
    for command in ("check", "explain"):
        for option in ("ip", "peer"):
            for address in ("999.1.1.1", "garbage", "1.2.3", "10.0.0.0/8", "1.2.3.4,5.6.7.8", "::g"):
                done = run(command, "--rules", rules, f"--{option}", address)
                equal((done.returncode, done.stdout), (2, ""), (command, option, address))
                equal(done.stderr, f"weir {command}: --{option}: '{address}' is not allowed here; allowed: an IPv4 or IPv6 "
                                   f"address; see 'weir {command} --help'\n")
            for address in ("192.0.2.1", "192.0.2.1:80", "[2001:db8::1]:443", "fe80::1%eth0", ""):
                equal(run(command, "--rules", rules, f"--{option}", address).returncode, 0, (command, option, address))


def test_check_request():
    words = ["--method", "POST", "--path", "/x/../login?y"]
    equal(check(*words, "--ip", "192.0.2.1")[1]["rule"], "login")
    equal(check(*words, "--peer", "10.0.0.1", "--header", "X-Forwarded-For=192.0.2.9")[1]["rule"], "login")
    equal(check(*words)[1], {"allowed": True, "status": 200, "rule": None, "limit": None, "max": None, "remaining": None, "reset_ms": None,
                             "retry_after_ms": 0, "shadow": []})
    equal(check("--path", "/search/a", "--ip", "192.0.2.1", "--header", "User-Agent=x", "--cost", "2")[1]["shadow"], ["search"])


def test_check_bad_rules():
    status, _, errors = check(rules="rules:\n  - id: a\n    limits: [x]\n  - id: b\n    limits: [\"-1 per day\"]\n    colour: red\n")
    equal(status, 2)
    for part in ("rules.yaml:3: rule a: ", "rules.yaml:5: rule b: ", "rules.yaml:6: rule b: "):
        has(errors, part)
    done = run("check", "--rules", "/nonexistent")
    equal((done.returncode, done.stdout, done.stderr), (2, "", "weir: /nonexistent: No such file or directory\n"))
    for address in ("sqlite:rules.db", "mysql://u:secret@host/db", "postgres://host/db"):
        done = run("explain", "--rules", address, "--event", "ocr")
        equal((done.returncode, done.stdout), (2, ""))
        has(done.stderr, "weir rules export --from ADDRESS")
        equal("secret" in done.stderr, False)


def test_check_bad_cells():
    status, verdict, errors = check("--cells", write("foreign", b"hello" * 1000))
    equal((status, verdict), (2, None))
    has(errors, "foreign")
    with open("foreign", "rb") as file:
        equal(file.read(), b"hello" * 1000, "the file is untouched")


# ---- explain ----

def test_explain_of_rules_without_limits():
    """The rule applies and limits nothing: each sentence says so."""
    rules = write("lifted.yaml", "rules: [ { id: api, by: user, plan: key, plans: { free: 1 per day } } ]\n"
                  "overrides: [ { rule: api, by: { user: partner }, unlimited: true, why: contract } ]\n")
    for words, line in (
            (("--user", "partner", "--key", "free"), "an override exempts this subject from the limits of the rule: contract"),
            (("--user", "other", "--key", "gold"), "no plan applies: key is gold; the rule has no limits for that")):
        said = run("explain", "--rules", rules, *words).stdout
        has(said, "  api applies\n")
        has(said, f"\n      {line}\n")
        has(said, "\n  allowed: no enforced rule limits this request\n")


def test_explain_lists_what_it_uses():
    done = run("explain", "--help")
    expected = [name in done.stdout for name in ("--cells FILE", "--header NAME:VALUE", "--peek", "--cells-keys", "--cells-bytes")]
    equal(expected, [True, True, False, False, False], done.stdout)


def test_headers_as_for_curl():
    """In front of a value there may be blanks, and the value may contain either sign."""
    words = ["--rules", write("rules.yaml", "rules: [ { id: a, by: ['header:X-Api-Key'], limits: [ 9 per 1m ] } ]"), "--now", NOW]
    for header, value in (("X-Api-Key: k=1:2", "k=1:2"), ("x-api-key:k", "k"), ("X-Api-Key=k:1", "k:1"), ("X-Api-Key:  k ", "k")):
        done = run("explain", *words, "--header", header)
        equal((done.returncode, done.stderr), (0, ""), header)
        has(done.stdout, f"counts for header x-api-key {value}\n")
    for header in ("X-Api-Key", ": k", "=k"):
        done = run("explain", *words, "--header", header)
        equal(done.returncode, 2, header)
        has(done.stderr, "allowed: NAME: VALUE or NAME=VALUE")


def test_explain():
    cells = os.path.abspath("explained")
    words = ["--cells", cells, "--cells-keys", "1k", "--now", NOW]
    for _ in range(3):
        check(*words, "--event", "ocr", "--key", "u1")
    for _ in range(2):  # it charges nothing: twice the same
        done = run("explain", "--rules", "rules.yaml", *words, "--event", "ocr", "--key", "u1", "--path", "/a//b/../7/", "--peer",
                   "10.0.0.1", "--header", "X-Forwarded-For=2001:db8::1")
        equal((done.returncode, done.stderr), (0, ""))
        for part in ("time     2026-03-02T01:00:00Z", "path     /a/7\n", "/a//b/../7/", "route    /a/#",
                     "2001:db8::1, counted as 2001:db8::/64, from X-Forwarded-For", "user     none", "  ocr applies\n",
                     "counts for key u1", "3 of 3 used; resets in 15 h; the day ends at ", "; retry in 15 h\n",
                     "login does not apply: the method must be POST, and is not given",
                     "refused by ocr, limit day: retry in 15 h"):
            has(done.stdout, part)
    done = run("explain", "--rules", "rules.yaml", "--path", "/search", "--ip", "192.0.2.1", "--header", "user-agent=x")
    has(done.stdout, "search applies in shadow")
    has(done.stdout, "counts for ip 192.0.2.1, header user-agent x")
    has(done.stdout, "allowed: no enforced rule limits this request")
    os.unlink(cells)
    shared = write("shared.yaml", "rules: [ { id: a, limits: 1 per day, counters: shared }, { id: b, limits: 1 per day } ]")
    equal(run("explain", "--rules", shared, "--event", "x").stdout.count("counts on this host, because no store is given (--counters ADDRESS)"), 1)


def test_explain_reasons():
    rules = write("reasons.yaml", """
settings: { except: { user: [root] } }
rules:
  - { id: r-off, mode: off, limits: ["1 per 1s"] }
  - { id: r-expired, expires: 2020-01-01T00:00:00Z, limits: ["1 per 1s"] }
  - { id: r-event, match: { event: ocr }, limits: ["1 per 1s"] }
  - { id: r-method, match: { method: [GET, PUT] }, limits: ["1 per 1s"] }
  - { id: r-host, match: { host: example.org }, limits: ["1 per 1s"] }
  - { id: r-path, match: { path: [/a, { regex: "/b+" }] }, limits: ["1 per 1s"] }
  - { id: r-header, match: { header: { X-A: "1" } }, limits: ["1 per 1s"] }
  - { id: r-ip, except: { ip: [192.0.2.0/24] }, limits: ["1 per 1s"] }
  - { id: r-by, by: [key], limits: ["1 per 1s"] }
  - { id: r-all, limits: ["1 per 1s"] }
""")
    words = ["explain", "--rules", rules, "--method", "POST", "--path", "/c", "--host", "h", "--ip", "192.0.2.1"]
    out = run(*words, "--user", "u").stdout
    for part in ("r-off does not apply: it is off", "r-expired does not apply: it expired at 2020-01-01T00:00:00Z",
                 "r-event does not apply: the event must be ocr, and is not given",
                 "r-method does not apply: the method must be GET or PUT, and is POST",
                 "r-host does not apply: the host must be example.org, and is h",
                 "r-path does not apply: the path does not fit /a, regex /b+", "r-header does not apply: the header x-a is not 1",
                 "r-ip does not apply: the client's address is excepted\n", "r-by does not apply: it counts by key, which",
                 "r-all applies", "everybody together"):
        has(out, part)
    has(run(*words, "--user", "root").stdout, "the user is excepted from all rules, in the settings")


# ---- lint ----

def test_lint():
    good, bad = write("good.yaml", RULES), write("bad.yaml", "rules:\n  - id: a\n    limits: [x]\n  - id: b\n    limts: []\n")
    done = run("lint", good)
    equal((done.returncode, done.stdout, done.stderr), (0, "good.yaml: 3 rules, ok\n", ""))
    done = run("lint", bad, good, "/nonexistent")
    equal((done.returncode, done.stdout), (1, "good.yaml: 3 rules, ok\n"))
    for part in ("bad.yaml:3: rule a: ", "bad.yaml:5: rule b: ", "/nonexistent: No such file"):
        has(done.stderr, part)
    equal(run("lint", "-", stdin="rules: []\n").stdout, "stdin: 0 rules, ok\n")
    done = run("lint", "-", stdin='rules: [{ id: a, limits: ["1 per day", "2 per day"] }]')
    equal(done.returncode, 0, "advice is no error")
    has(done.stderr, "advice: ")


# ---- simulate ----

def simulate(text, *words, rules=RULES, **more):
    return run("simulate", "--rules", write("rules.yaml", rules), "-", *words, stdin=text, **more)


def jsonl(*lines):
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_verdicts_agree_with_check():
    """The same requests, one `weir check` for each: the same verdicts."""
    cells = os.path.abspath("agree")
    requests = [{"t": MS + i * 700, "event": "ocr", "key": "ab"[i % 2], "cost": i % 3} for i in range(12)]
    expected = []
    for r in requests:
        expected.append(check("--cells", cells, "--cells-keys", "1k", "--now", str(r["t"]), "--event", "ocr", "--key", r["key"],
                              "--cost", str(r["cost"]))[1])
    done = simulate(jsonl(*requests), "--verdicts")
    equal((done.returncode, done.stderr), (0, ""))
    equal([json.loads(line) for line in done.stdout.splitlines()], expected)
    os.unlink(cells)


def test_simulate_time_may_step_back():
    lines = [{"t": MS + t * 1000, "method": "POST", "path": "/login", "ip": "192.0.2.1"} for t in (100, 99, 98, 159, 160)]
    verdicts = [json.loads(v)["allowed"] for v in simulate(jsonl(*lines), "--verdicts").stdout.splitlines()]
    equal(verdicts, [True, True, False, False, True])


def test_simulate_set_rules():
    new = [{"id": "ocr", "match": {"event": "ocr"}, "by": ["key"],
            "limits": [{"name": "day", "calendar": "day", "max": 5, "tz": "Asia/Shanghai"}]}]
    ask = [{"t": MS, "event": "ocr", "key": "a"}]
    done = simulate(jsonl(*(ask * 4), {"t": NOW, "set_rules": new}, *(ask * 3)), "--verdicts")
    verdicts = [json.loads(v) for v in done.stdout.splitlines()]
    equal([v["allowed"] for v in verdicts], [True, True, True, False, True, True, False], "what was used stays used")
    equal(verdicts[-1]["max"], 5)
    done = simulate(jsonl(*ask, {"t": MS, "set_rules": []}, *ask), "--json")
    summary = json.loads(done.stdout)
    equal((summary["requests"], summary["no_rule"], summary["rule_changes"]), (2, 1, 1))
    # the settings stay: the client is still found behind the proxy
    login = {"id": "login", "match": {"path": "/login"}, "by": ["ip"], "limits": ["1 per 1h"]}
    ask = {"t": MS, "path": "/login", "peer": "10.0.0.1", "headers": {"X-Forwarded-For": "192.0.2.7"}}
    done = simulate(jsonl({"t": MS, "set_rules": [login]}, ask, ask), "--json")
    equal(json.loads(done.stdout)["rules"][1]["subjects"], [{"by": {"ip": "192.0.2.7"}, "refused": 1}])
    done = simulate(jsonl(ask, {"t": MS, "set_rules": [{"id": "x", "limits": ["often"]}, {"limits": 1}]}))
    equal((done.returncode, done.stdout), (2, ""))
    has(done.stderr, "stdin:2: set_rules: rule x: ")
    equal(done.stderr.count("stdin:2: set_rules: "), done.stderr.count("\n"), "each error has its line")


def test_simulate_bad_lines():
    good = '{"t":1,"event":"ocr","key":"a"}\n'
    for line, part in (("nonsense", "stdin:3: no JSON: column"), ('{"t":1,"evnt":"x"}', 'stdin:3: unknown field "evnt"; allowed: t,'),
                       ('{"event":"x"}', "stdin:3: t: must be"), ('{"t":"soon"}', "stdin:3: t: must be"),
                       ('{"t":1,"cost":-1}', "stdin:3: cost: must be")):
        text = good + "\n" + line + "\n" + good
        done = simulate(text, "--strict")
        equal((done.returncode, done.stdout), (2, ""), line)
        has(done.stderr, part)
        equal(done.stderr.count("\n"), 1)
        done = simulate(text, "--json")
        told = json.loads(done.stdout)
        equal((done.returncode, told["requests"], told["bad_lines"]), (0, 2, 1), line)
        has(done.stderr, part)
    done = simulate(good + "x\n", "--verdicts")
    equal((done.returncode, done.stdout.count("\n")), (2, 1), "verdicts before the bad line")
    done = simulate(log_line(1))
    equal(done.returncode, 2)
    has(done.stderr, "(for an access log: --format combined)", "stdin: no line is a request in JSON")
    done = simulate(log_line(1) + "nonsense\n", "--format", "combined", "--strict")
    equal((done.returncode, done.stdout), (2, ""))
    has(done.stderr, "stdin:2: not an access log line")


def test_simulate_access_log():
    text = "".join(log_line(i) for i in range(5)) + log_line(6, request="-") + log_line(7, request="\\x16\\x03")
    text += log_line(8, ip="2001:db8::1") + "\n" + log_line(70, ip="192.0.2.1").replace("\n", "\r\n")
    for data in (text.encode(), gzip.compress(text.encode())):
        done = simulate(data, "--format", "combined", "--json")
        equal((done.returncode, done.stderr), (0, ""))
        summary = json.loads(done.stdout)
        equal({k: summary[k] for k in ("requests", "passed", "refused", "no_rule", "from", "to")},
              {"requests": 9, "passed": 6, "refused": 3, "no_rule": 2, "from": "2026-03-02T01:00:00Z",
               "to": "2026-03-02T01:01:10Z"})
        login = summary["rules"][1]
        equal({k: login[k] for k in ("id", "mode", "requests", "passed", "refused", "would_refuse", "subjects", "subject_count")},
              {"id": "login", "mode": "enforce", "requests": 7, "passed": 4, "refused": 3, "would_refuse": 0,
               "subjects": [{"by": {"ip": "192.0.2.1"}, "refused": 3}], "subject_count": 1})
        equal(sum(summary["over_time"]["passed"]), 6)
        equal(sum(summary["over_time"]["refused"]), 3)
        equal(sum(login["refused_over_time"]), 3)


def test_simulate_cut_gzip():
    path = write("cut.gz", gzip.compress("".join(log_line(i % 60) for i in range(5000)).encode())[:-100])
    done = run("simulate", "--rules", write("rules.yaml", RULES), "--format", "combined", path)
    equal((done.returncode, done.stdout), (2, ""))
    has(done.stderr, "the gzip file is cut off")
    done = run("simulate", "--rules", "rules.yaml", "/nonexistent")
    equal((done.returncode, done.stderr), (2, "weir: /nonexistent: No such file or directory\n"))


def test_simulate_shadow():
    text = "".join(log_line(i, request="GET /search/x HTTP/1.1", agent="curl\x1b[2J") for i in range(4))
    done = simulate(text, "--format", "combined", "--json")
    search = json.loads(done.stdout)["rules"][2]
    equal((search["mode"], search["passed"], search["refused"], search["would_refuse"]), ("shadow", 4, 0, 3))
    equal(search["subjects"], [{"by": {"ip": "192.0.2.1", "header:user-agent": "curl\x1b[2J"}, "refused": 3}])
    text = simulate(text, "--format", "combined").stdout
    has(text, "* a shadow rule: what it would have refused")
    has(text, "ip 192.0.2.1, header:user-agent curl?[2J")


def test_simulate_shares():
    """What passed and what was refused add up to 100 %, and neither is rounded to nothing or to all."""
    for requests, most, shares in ((2000, 1997, ["99.9", "0.1"]), (2000, 3, ["0.2", "99.8"]), (6000, 5991, ["99.9", "0.1"]),
                                   (16, 1, ["6.3", "93.7"]), (3, 1, ["33.3", "66.7"]), (1000, 999, ["99.9", "0.1"]),
                                   (1001, 1000, [">99.9", "<0.1"]), (1001, 1, ["<0.1", ">99.9"]), (5, 5, ["100.0"]), (4, 0, ["100.0"])):
        rules = write("shares.yaml", f"rules: [{{ id: a, limits: [ {{ algorithm: fixed_window, max: {most}, per: 1h }} ] }}]")
        done = run("simulate", "--rules", rules, "-", stdin=jsonl(*[{"t": MS}] * requests))
        equal(re.findall(r"([<>]?[0-9.]+) %  (?:passed|refused)", done.stdout), shares, f"{most} of {requests}")


def test_simulate_picture():
    text = "".join(log_line(i // 2, ip=f"192.0.2.{i % 7}") for i in range(600))
    for locale, term, glyphs, others in (("C.UTF-8", "xterm", "█░┤└", "#"), ("xx_XX.utf8", "xterm", "█░┤└", "#"),
                                         ("C", "xterm", "#:|+", "█"), ("C.UTF-8", "dumb", "#:|+", "█")):
        done = simulate(text, "--format", "combined", env={"LC_ALL": locale, "TERM": term})
        equal((done.returncode, done.stderr), (0, ""))
        for glyph in glyphs:
            has(done.stdout, glyph)
        assert not set(others) & set(done.stdout), (locale, term)
        has(done.stdout, "600 requests in 4 min 59 s, 2.0 a second")
        has(done.stdout, "2 rules applied to no request: ocr, search")
        has(done.stdout, "most refused by login, of 7 subjects")
        assert all(len(line) <= 80 for line in done.stdout.split("\n"))
    wide = simulate(text, "--format", "combined", env={"COLUMNS": "200"}).stdout
    assert max(map(len, wide.split("\n"))) > 80
    few = simulate(text, "--format", "combined", "--top", "2").stdout
    equal(few.count("ip 192.0.2."), 2)
    equal(simulate("").stdout, "stdin: no requests\n")
    equal(json.loads(simulate("", "--json").stdout)["requests"], 0)


def test_simulate_addresses_that_cannot_be_read():
    lines = jsonl({"t": MS, "ip": "999.1.1.1"}, {"t": MS, "peer": "unknown"}, {"t": MS, "ip": "192.0.2.1", "peer": "x"}, {"t": MS})
    done = simulate(lines)
    has(done.stdout, "\n2 requests have an invalid address: rules by ip do not apply to them.\n")
    equal((done.returncode, done.stderr), (0, ""))
    equal(json.loads(simulate(lines, "--json").stdout)["unreadable_addresses"], 2)
    done = simulate(lines, "--verdicts")
    equal((done.stdout.count("\n"), done.stderr), (4, ""))
    has(simulate(log_line(1, ip="some.host"), "--format", "combined").stdout,
        "\n1 request has an invalid address: rules by ip do not apply to it.\n")
    assert "cannot be read" not in simulate(jsonl({"t": MS, "ip": "::1"}, {"t": MS})).stdout


def test_simulate_more_shadow_rules_than_a_verdict_lists():
    def rules(count):
        return "rules:\n" + "".join(f"  - {{ id: s{i}, mode: shadow, limits: [\"1 per 1h\"] }}\n" for i in range(count))

    lines = jsonl(*[{"t": MS}] * 3)
    done = simulate(lines, rules=rules(20))
    has(done.stdout, "The counts of shadow rules are incomplete: a verdict lists 16 of them, and 8 more would have\nrefused.\n")
    equal(json.loads(simulate(lines, "--json", rules=rules(20)).stdout)["shadow_left_out"], 8)
    assert "incomplete" not in simulate(lines, rules=rules(16)).stdout


def test_simulate_small_table():
    text = jsonl(*({"t": MS + i, "event": "ocr", "key": f"k{i}"} for i in range(5000)))
    done = simulate(text, "--cells-keys", "100")
    equal(done.returncode, 0)
    has(done.stdout, "The table was too small")
    assert "too small" not in simulate(text).stdout


# ---- convert, and what lies in examples/ ----

def test_convert_hodor():
    path = os.path.join(SOURCE, "examples", "drogon.json")
    done = run("convert", "hodor", path)
    equal((done.returncode, done.stderr), (0, ""))
    linted = run("lint", "-", stdin=done.stdout)
    equal((linted.returncode, linted.stderr), (0, ""))
    with open(path, encoding="utf-8") as file:
        equal(run("convert", "hodor", "-", stdin=file.read()).stdout.split("\n", 1)[1], done.stdout.split("\n", 1)[1])
    done = run("convert", "hodor", write("none.json", '{"plugins": []}'))
    equal((done.returncode, done.stdout), (2, ""))
    equal(done.stderr, 'none.json:1: there is no plugin "drogon::plugin::Hodor" in the list "plugins"\n')
    equal(run("convert", "hodor", "/nonexistent").returncode, 2)


def test_converted_rules_limit():
    """Hodor's sub_limits stand beside its own limits, and whom it trusts is not limited."""
    config = {"plugins": [{"name": "drogon::plugin::Hodor", "config": {
        "algorithm": "fixed_window", "urls": ["^/api/.*"], "ip_capacity": 5, "trust_ips": ["10.0.0.0/8"],
        "sub_limits": [{"urls": ["^/api/login$"], "ip_capacity": 2}]}}]}
    rules = run("convert", "hodor", "-", stdin=json.dumps(config)).stdout
    def ask(path, ip):
        return {"t": MS, "path": path, "ip": ip}
    lines = [ask("/api/login", "192.0.2.1")] * 3 + [ask("/api/x", "192.0.2.1")] * 4 + [ask("/other", "192.0.2.1")]
    lines += [ask("/api/login", "10.0.0.1")] * 9
    done = simulate(jsonl(*lines), "--verdicts", rules=rules)
    equal([json.loads(v)["allowed"] for v in done.stdout.splitlines()],
          [True, True, False, True, True, True, False, True] + [True] * 9, done.stderr)


def test_examples():
    rules = write("rules.yaml", RULES)
    log, lines = (os.path.join(SOURCE, "examples", name) for name in ("access.log", "requests.jsonl"))
    for words in (["--format", "combined", log], [lines]):
        done = run("simulate", "--rules", rules, *words)
        equal((done.returncode, done.stderr), (0, ""), words)
        has(done.stdout, "refused")


def test_picture_in_the_docs():
    """docs/simulate.md shows what the command prints."""
    with open(os.path.join(SOURCE, "docs", "simulate.md"), encoding="utf-8") as file:
        shown = re.search(r"```text\n\$ weir (simulate [^\n]*)\n(.*?)```", file.read(), re.DOTALL)
    words = [os.path.join(SOURCE, word) if word.startswith("examples/") else word for word in shown.group(1).split()]
    equal(run(*words).stdout, shown.group(2))


# ---- the names of options ----


def test_errors_name_options_as_they_are_typed(folder):
    """Not the fields of struct weir_options, which nobody typed."""
    with open(os.path.join(SOURCE, "include", "weir", "weir.h"), encoding="utf-8") as file:
        options = re.search(r"^struct weir_options \{(.*?)^\};", file.read(), re.MULTILINE | re.DOTALL).group(1)
    fields = set(re.findall(r"\b([a-z]+_[a-z_]+)(?=;|\)\()", re.sub(r"/\*.*?\*/", "", options, flags=re.DOTALL))) - {"trusted_proxies"}
    assert {"cells_keys", "rules_file", "store_deadline_ms"} <= fields, fields
    rules = os.path.join(folder, "rules.yaml")
    with open(rules, "w", encoding="utf-8") as file:
        file.write("rules: [{ id: a, limits: [1 per 1s], counters: shared }]\n")
    check = ("check", "--rules", rules)
    serve = ("serve", "--data", os.path.join(folder, "data"), "--rules", rules, "--http", "off", "--resp", "off", "--admin", "127.0.0.1:0")
    for words, name in (
        (("check",), "--rules"),
        ((*check, "--cells-keys", "0"), "--cells-keys"),
        ((*check, "--cells-keys", "1", "--cells-bytes", "1"), "--cells-bytes"),
        ((*check, "--cells", folder), folder),
        ((*check, "--cells", rules), rules),
        ((*check, "--counters", "foo"), "--counters: not a valid address"),
        ((*check, "--hosts", "2"), "--hosts"),
        (("simulate", "--rules", rules, "--cells-keys", "x"), "--cells-keys"),
        ((*serve, "--cells-keys", "0"), "--cells-keys"),
        ((*serve, "--counters", "foo"), "--counters: not a valid address"),
        ((*serve, "--counters", "redis://127.0.0.1:99999"), "--counters: the port"),
        ((*serve, "--cells", "x", "--cells-memory", "y"), "--cells-memory"),
        ((*serve, "--store-deadline", "1"), "--store-deadline"),
        ((*serve, "--cells-memory", "/proc"), "--cells-memory"),  # not in memory, wherever the tests have their files
    ):
        done = run(*words)
        errors = done.stderr
        equal((done.returncode, done.stdout), (2, ""), f"{words} {errors}")
        has(errors, name)
        found = [field for field in fields if re.search(rf"\b{field}\b", errors)]
        equal((found, "options." in errors), ([], False), errors)
