"""Completion: it has the commands, verbs and options that the command has, and works in the shells that are there."""

import fcntl
import importlib.util
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import termios

import pytest

from support import ENVIRONMENT, ROOT, WEIR, expect, has

FOLDER = os.path.join(ROOT, "completion")
# Bash calls the function of a completion with these variables, and prints what it would offer.
ASK = """source {script}
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_weir
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def generator():
    spec = importlib.util.spec_from_file_location("generate", os.path.join(FOLDER, "generate.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def offered(*words, folder=None, **environment):
    """What bash offers for the last word."""
    run = subprocess.run(["bash", "-c", ASK.format(script=os.path.join(FOLDER, "weir.bash")), "bash", WEIR, *words], cwd=folder, check=False,
                         capture_output=True, text=True, env={**ENVIRONMENT, **environment})
    expect((run.returncode, run.stderr), (0, ""), words)
    return [word for word in run.stdout.splitlines() if word]


def make_rules(folder):
    with open(os.path.join(folder, "r.yaml"), "w", encoding="utf-8") as file:
        file.write("rules: [{ id: ocr, limits: [1 per 1s] }, { id: other, limits: [1 per 1s] }]\n")
    os.mkdir(os.path.join(folder, "room"))


def test_they_are_up_to_date():
    for name, text in generator().files(WEIR).items():
        with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
            expect(file.read() == text, True, f"completion/{name} is not what the commands print: run completion/generate.py build/weir")


def test_commands_verbs_and_options():
    has(" ".join(offered("")), "serve", "check", "rules", "cells", "help", "--version")
    expect(offered("ce"), ["cells"])
    expect(offered("help", "exp"), ["explain"])
    expect(offered("rules", "thr"), ["throttle"])
    expect(offered("cells", ""), ["show", "check", "resize", "copy"])
    expect(offered("rules", "--from", "sqlite:x", "und"), ["undo"])
    expect(offered("rules", "throttle", "/x", "1", "per", "1s", "--b"), ["--by"])
    expect(offered("serve", "--log"), ["--log", "--log-refusals"])
    expect(offered("check", "--cells-"), ["--cells-keys", "--cells-bytes"])


def test_values(folder):
    make_rules(folder)
    expect(offered("token", "add", "x", "--role", "a"), ["ask", "admin"])
    expect(offered("simulate", "--format", ""), ["json", "combined"])
    expect(sorted(offered("check", "--rules", "r", folder=folder)), ["r.yaml", "room"])
    expect(offered("serve", "--data", "r", folder=folder), ["room"])
    expect(offered("lint", "r.", folder=folder), ["r.yaml"])
    expect(offered("cells", "show", "r.", folder=folder), ["r.yaml"])
    expect(offered("check", "--cost", "", folder=folder), [])
    expect(offered("rules", "show", "o", folder=folder, WEIR_FROM="file:r.yaml"), ["ocr", "other"])
    expect(offered("rules", "set", "--from", "file", ":", "r.yaml", "oc", folder=folder), ["ocr"], "bash splits words at colons")
    expect(offered("rules", "show", "", folder=folder, WEIR_FROM="mysql://nobody@127.0.0.1:1/x"), [])


def test_ids_are_not_run(folder):
    """Whoever may write a rule does not get the shell of whoever completes its id."""
    with open(os.path.join(folder, "r.yaml"), "w", encoding="utf-8") as file:
        file.write("rules: [{ id: '$(touch${IFS}run)', limits: [1 per 1s] }, { id: '`touch${IFS}run`', limits: [1 per 1s] }]\n")
    expect(offered("rules", "show", "", folder=folder, WEIR_FROM="file:r.yaml"), [r"\$\(touch\$\{IFS\}run\)", r"\`touch\$\{IFS\}run\`"])
    expect(os.listdir(folder), ["r.yaml"])


def test_syntax():
    for shell, name in (("bash", "weir.bash"), ("zsh", "_weir"), ("fish", "weir.fish")):
        if not shutil.which(shell):
            pytest.skip(f"not there: {shell}")
        run = subprocess.run([shell, "-n", os.path.join(FOLDER, name)], check=False, capture_output=True, text=True)
        expect((run.returncode, run.stderr), (0, ""), name)


def fish(folder, line):
    """What fish offers at the end of a line: {word: description}."""
    environment = {**ENVIRONMENT, "HOME": folder, "PATH": f"{os.path.dirname(WEIR)}:{os.environ['PATH']}"}
    script = "set fish_complete_path; source $argv[1]; complete -C $argv[2]"
    run = subprocess.run(["fish", "--no-config", "-c", script, os.path.join(FOLDER, "weir.fish"), line], cwd=folder, check=False,
                         capture_output=True, text=True, env=environment)
    expect((run.returncode, run.stderr), (0, ""), line)
    return dict((entry + "\t").split("\t")[:2] for entry in run.stdout.splitlines())


class Zsh:
    """zsh on a terminal, with the completion."""

    READY, WAIT_S, BYTES = "ready> ", 30, 65536
    # ^L lists what could follow, and the line stays as it is.
    START = """unsetopt zle_bracketed_paste prompt_sp prompt_cr list_beep always_last_prompt
LISTMAX=0 PS1='{}'
fpath=('{}' $fpath)
autoload -Uz compinit && compinit -u -D
bindkey '^L' list-choices
"""

    def __init__(self, folder):
        with open(os.path.join(folder, ".zshrc"), "w", encoding="ascii") as file:
            file.write(self.START.format(self.READY, FOLDER))
        # zsh continues the programs that it waits for (SIGCONT), and LeakSanitizer, which stops its own process, would then
        # wait for ever.
        asan = ":".join(filter(None, [ENVIRONMENT.get("ASAN_OPTIONS"), "detect_leaks=0"]))
        environment = {**ENVIRONMENT, "HOME": folder, "ZDOTDIR": folder, "TERM": "dumb", "ASAN_OPTIONS": asan,
                       "PATH": f"{os.path.dirname(WEIR)}:{os.environ['PATH']}"}
        self.terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 200, 200, 0, 0))
        self.process = subprocess.Popen(["zsh", "-i"], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
                                        start_new_session=True)
        os.close(theirs)
        self.read()

    def type(self, text):
        os.write(self.terminal, text.encode())

    def read(self):
        """All that it writes until it asks for a line."""
        text = ""
        while self.READY not in text:
            ready, _, _ = select.select([self.terminal], [], [], self.WAIT_S)
            expect(bool(ready), True, f"zsh writes: {text!r}")
            text += os.read(self.terminal, self.BYTES).decode("utf-8", "replace")
        return text

    def offers(self, line):
        """What it lists for a line; the line is then thrown away."""
        self.type(line + "\x0c")
        listed = self.read().partition(line)[2]
        self.type("\x15\n")
        self.read()
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", listed).replace("\r", "").partition(self.READY)[0].strip()

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


def test_fish(folder):
    if not shutil.which("fish"):
        pytest.skip("not there: fish")
    make_rules(folder)
    expect(fish(folder, "weir ce"), {"cells": "show, check, resize and copy a table of counts"})
    expect(fish(folder, "weir --ver"), {"--version": "print the version"})
    expect(fish(folder, "weir help exp").keys(), {"explain"})
    expect(fish(folder, "weir cells ").keys(), {"show", "check", "resize", "copy"})
    expect(fish(folder, "weir rules --from file:r.yaml und").keys(), {"undo"})
    expect(fish(folder, "weir rules show --from file:r.yaml o").keys(), {"ocr", "other"})
    expect(fish(folder, "weir serve --user-h"), {"--user-header": "header with the user's id"})
    expect(fish(folder, "weir token add x --role a").keys(), {"ask", "admin"})
    expect(fish(folder, "weir check --rules r").keys(), {"r.yaml", "room/"})
    expect(fish(folder, "weir serve --data r").keys(), {"room/"})


def test_zsh(folder):
    if not shutil.which("zsh"):
        pytest.skip("not there: zsh")
    make_rules(folder)
    shell = Zsh(folder)
    try:
        has(shell.offers("weir c"), "cells    -- show, check, resize and copy a table of counts", "check    -- decide", "convert  --")
        expect(shell.offers("weir --").split()[::5], ["--help", "--version"])
        expect(shell.offers("weir cells ").split(), ["check", "copy", "resize", "show"])
        expect(shell.offers("weir rules show --from file:r.yaml o").split(), ["ocr", "other"])
        has(shell.offers("weir serve --user"), "--user-header  -- header with the user's id")
        expect(shell.offers("weir token add x --role a").split(), ["admin", "ask"])
        expect(shell.offers("weir check --rules r").split(), ["r.yaml", "room/"])
        expect(shell.offers("weir serve --data ").split(), ["room/"])
    finally:
        shell.close()
