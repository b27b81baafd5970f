"""Completion: it has the commands, verbs and options that the command has, and works in the shells that are there."""

import importlib.util
import os
import shutil
import subprocess

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
    with open(os.path.join(folder, "r.yaml"), "w", encoding="utf-8") as file:
        file.write("rules: [{ id: ocr, limits: [1 per 1s] }, { id: other, limits: [1 per 1s] }]\n")
    os.mkdir(os.path.join(folder, "room"))
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
    """zsh and fish check what they read, where they are installed."""
    for shell, name in (("bash", "weir.bash"), ("zsh", "_weir"), ("fish", "weir.fish")):
        if shutil.which(shell):
            run = subprocess.run([shell, "-n", os.path.join(FOLDER, name)], check=False, capture_output=True, text=True)
            expect((run.returncode, run.stderr), (0, ""), name)
