"""Checks the pages: that links lead somewhere, and that commands do what the page shows.

In a ```console block each line that begins with "$ " is run, in the order of the page, in a scratch folder that looks
like the root of the tree; what follows must be its output. "…" stands for anything, also for any number of lines where it
is alone, and milliseconds in verdicts may differ. In other blocks a command must only exist.

A page with the comment "tests/test_docs.py: with a service" has one: `weir serve` runs in that folder, on ports that are free, and
its usual ports in commands and outputs stand for these.
"""
import contextlib
import os
import re
import shlex
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import support
from support.store import PATIENT

ROOT, BUILD = Path(support.ROOT), Path(support.BUILD)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|(?:src|href)=\"([^\"]+)\"")
FENCE = re.compile(r"^\s*```(\S*)")
MARK = "@@weir-docs@@"
COMMAND_SECONDS_MAX = 60
WITH_SERVICE = "<!-- tests/test_docs.py: with a service -->"
PORTS = {"http": "8080", "resp": "6380", "admin": "8081"}


def pages():
    found = list(ROOT.glob("*.md"))
    for folder in ("docs", "src", "nginx", "clients", "examples", "bench", "tests", "include"):
        found += (ROOT / folder).rglob("*.md")
    return sorted(found)


def blocks(text):
    """(language, first line number, lines) of each fenced block, and None for what lies outside."""
    language, start, inside = None, 0, []
    for number, line in enumerate(text.split("\n"), 1):
        fence = FENCE.match(line)
        if not fence:
            inside.append(line)
        elif language is None:
            yield None, start, inside
            language, start, inside = fence.group(1), number + 1, []
        else:
            yield language, start, inside
            language, start, inside = None, number + 1, []
    yield None, start, inside


def anchors(page):
    found = set()
    for language, _, lines in blocks(page.read_text()):
        for line in lines if language is None else []:
            heading = re.match(r"#+\s+(.*)", line)
            if heading:
                text = re.sub(r"[^\w\- ]", "", heading.group(1).lower().replace("`", ""))
                found.add(text.strip().replace(" ", "-"))
            found.update(re.findall(r'<a (?:name|id)="([^"]+)"', line))
    return found


def bad_links(page):
    for language, start, lines in blocks(page.read_text()):
        if language is not None:
            continue
        for number, line in enumerate(lines, start or 1):
            for groups in LINK.findall(re.sub(r"`[^`]*`", "", line)):
                target = groups[0] or groups[1]
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, anchor = target.partition("#")
                other = (page.parent / path).resolve() if path else page
                if not other.exists():
                    yield f"line {number}: {target} does not exist"
                elif anchor and other.suffix == ".md" and anchor not in anchors(other):
                    yield f"line {number}: {path or page.name} has no heading for #{anchor}"


def bad_names(page, build):
    """Commands of this tree that blocks in sh name, but that do not exist."""
    for language, start, lines in blocks(page.read_text()):
        if language not in ("sh", "bash", "shell", "console"):
            continue
        for number, line in enumerate(lines, start):
            if language == "console" and not line.startswith("$ "):
                continue
            for script in re.findall(r"(?<![\w/])script/[\w-]+", line):
                if not os.access(ROOT / script, os.X_OK):
                    yield f"line {number}: {script} does not exist"
            for command in re.findall(r"(?:^|[;&|(] *|^\$ )(?:build/)?weir ([a-z]+)", line):
                done = subprocess.run([build / "weir", command, "--help"], capture_output=True)
                if done.returncode != 0:
                    yield f"line {number}: there is no `weir {command}`"


def two_names(page):
    """A page calls the command `weir` or `build/weir` in its blocks, not both."""
    lines = [line for language, _, lines in blocks(page.read_text()) if language in ("sh", "console") for line in lines]
    names = {name for line in lines for name in re.findall(r"(?:^|[;&|(] *|^\$ )((?:build/)?weir) [a-z]+", line)}
    if len(names) > 1:
        yield "the commands are called both weir and build/weir"


def commands(page):
    """(line number, command, expected lines) from the console blocks."""
    for language, start, lines in blocks(page.read_text()):
        if language != "console":
            continue
        current = None
        for number, line in enumerate(lines, start):
            if line.startswith("$ "):
                if current:
                    yield current
                current = (number, line[2:], [])
            elif current and line.startswith("> ") and not current[2] and current[1].endswith("\\"):
                current = (current[0], current[1] + "\n" + line[2:], [])
            elif current:
                current[2].append(line)
        if current:
            yield current


def tidy(lines):
    text = [re.sub(r'("(?:reset|retry_after)_ms":)[1-9]\d*', r"\1N", line.rstrip()) for line in lines]
    while text and not text[-1]:
        text.pop()
    return text


def same(expected, actual):
    pattern = []
    for line in tidy(expected):
        if line.strip() in ("…", "..."):
            pattern.append(r"(?:.*\n)*?")
        else:
            pattern.append(".*".join(re.escape(part) for part in line.split("…")) + r"\n")
    return re.fullmatch("".join(pattern), "".join(line + "\n" for line in tidy(actual))) is not None


def replaced(text, words):
    """Whole numbers in it by others."""
    return re.sub(r"(?<!\d)(?:" + "|".join(words) + r")(?!\d)", lambda found: words[found.group()], text) if words else text


def ports_of(log):
    """The usual ports, and those that are in use instead; None while it does not listen on all."""
    found = dict(re.findall(r" listen: (\w+) on 127\.0\.0\.1:(\d+)\n", log.read_text()))
    return {PORTS[front]: found[front] for front in PORTS} if PORTS.keys() <= found.keys() else None


@contextlib.contextmanager
def service(page, build, scratch):
    """Its ports, as above; none if the page does not want one."""
    if WITH_SERVICE not in page.read_text():
        yield {}
        return
    words = [word for front in PORTS for word in (f"--{front}", "127.0.0.1:0")]
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen([build / "weir", "serve", *words], cwd=scratch, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=log)
        try:
            end = time.monotonic() + COMMAND_SECONDS_MAX
            while not (ports := ports_of(Path(log.name))):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("weir serve does not start: " + Path(log.name).read_text())
                time.sleep(0.01)
            yield ports
        finally:
            process.terminate()
            process.wait(COMMAND_SECONDS_MAX)


def shell(script, build, scratch):
    environment = dict(os.environ, PATH=f"{build}:{os.environ['PATH']}", TERM="xterm", NO_COLOR="1", LC_ALL="C.UTF-8")
    return subprocess.run(["bash"], input=script, cwd=scratch, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=COMMAND_SECONDS_MAX).stdout


def run_commands(page, build):
    wanted = list(commands(page))
    with tempfile.TemporaryDirectory() as scratch:
        for entry in ROOT.iterdir():
            if entry.name not in ("build", ".git", "weir-data"):
                os.symlink(entry, Path(scratch) / entry.name)
        os.symlink(build, Path(scratch) / "build")
        script = "".join(f"{command}\n__status=$?; echo; echo {MARK}; (exit $__status)\n" for _, command, _ in wanted)
        with service(page, build, scratch) as ports:
            output = shell(replaced(script, ports), build, scratch)
        outputs = replaced(output, {real: usual for usual, real in ports.items()}).split(f"\n{MARK}\n")
        for (number, command, expected), output in zip(wanted, outputs):
            actual = output.split("\n")
            if not same(expected, actual):
                yield f"line {number}: $ {command}"
                yield from ("  shown:  " + line for line in tidy(expected))
                yield from ("  really: " + line for line in tidy(actual))
        if len(outputs) <= len(wanted):
            yield "the shell ended early"


def section_of(page):
    return page.read_text().partition("\n## Two minutes\n")[2].partition("\n## ")[0]


def two_minutes(page, folder, ports, answered):
    """The programs that the section "Two minutes" starts, and what each later command prints beside what its comment says."""
    started, asked = ["\n".join(lines) for language, _, lines in blocks(section_of(page)) if language == "sh"]
    started, asked = replaced(started, ports).replace("\\\n", " "), replaced(asked, ports).splitlines()
    for port in ports.values():
        assert f" {port}" in started or f":{port}" in started, f"the section has no {port}"
    with tempfile.TemporaryFile() as log:
        programs = [shlex.split(command) for command in re.split(r" &(?:\n|$)", started) if command.strip()]
        running = []
        try:
            for words in programs:
                if words[0] == "weir":  # on a busy machine the store may answer late
                    words = [str(BUILD / "weir"), *words[1:], *PATIENT]
                running.append(subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            answered(running)
            for line in asked:
                command, _, comment = line.partition("#")
                yield subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX).stdout, comment.strip()
        finally:
            for process in reversed(running):
                process.terminate()
                process.wait(COMMAND_SECONDS_MAX)


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_and_names(page):
    problems = [*bad_links(page), *bad_names(page, BUILD), *two_names(page)]
    assert not problems, "\n".join(problems)


def test_two_services_and_a_redis(folder):
    """The first section of docs/redis.md works as it is written, and takes no port of script/server or of a Redis."""
    page = ROOT / "docs" / "redis.md"
    written = sorted(set(re.findall(r"(?:127\.0\.0\.1:|-p |--port )(\d+)", section_of(page))))
    assert len(written) == 7 and not {*PORTS.values(), "6379"} & set(written), written
    ports = dict(zip(written, (str(support.free_port()) for _ in written)))
    Path(folder, "examples").symlink_to(ROOT / "examples")

    def answered(running):
        end = time.monotonic() + COMMAND_SECONDS_MAX
        for port in ports.values():
            while True:
                assert all(process.poll() is None for process in running) and time.monotonic() < end, f"nothing listens on {port}"
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), 1):
                    break
                time.sleep(0.01)

    answers = list(two_minutes(page, folder, ports, answered))
    for text, comment in answers[:2]:
        assert (text.split()[0], text.split()[4]) == ("1", re.fullmatch(r"allowed, (\d) left", comment).group(1)), (text, comment)
    keys = answers[2][0].split()
    assert (len(answers), len(keys)) == (3, 3) and answers[2][1].split(",")[0] in keys, answers


@pytest.mark.parametrize("page", [page for page in pages() if any(commands(page))], ids=name_of)
def test_commands(page):
    # Once more if need be: a natural hour may have ended between two commands.
    problems = list(run_commands(page, BUILD)) and list(run_commands(page, BUILD))
    assert not problems, "\n".join(problems)
