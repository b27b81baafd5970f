"""script/setup, which script/server and script/test call: what it installs is said before sudo may ask for a password."""

import os
import shutil
import subprocess

from support import ENVIRONMENT, ROOT, expect, has

TOOLS = ("bash", "env", "cat", "mktemp", "rm", "sed", "dirname")


def run_setup(folder, *words, **commands):
    """With nothing else in the path but these tools and commands, each a script."""
    for name in TOOLS:
        os.symlink(shutil.which(name), os.path.join(folder, name))
    for name, text in commands.items():
        path = os.path.join(folder, name.replace("_", "-"))
        with open(path, "w", encoding="ascii") as file:
            file.write(f"#!/bin/bash\n{text}\n")
        os.chmod(path, 0o755)
    return subprocess.run([os.path.join(ROOT, "script", "setup"), *words], check=False, capture_output=True, text=True,
                          env={**ENVIRONMENT, "PATH": folder})


def test_it_says_what_it_installs_before_it_asks(folder):
    done = run_setup(folder, "--runtime", id="echo 1000", sudo='echo "PASSWORD for $*" >&2; exit 1', apt_get="exit 1")
    expect((done.returncode, done.stdout), (2, ""), done.stderr)
    said, asked = done.stderr.splitlines()[:2]
    has(said, "Installing meson ninja-build", "libyaml-dev", "libssl-dev")
    expect("mandoc" in said, False, "what tests need")
    expect(asked, "PASSWORD for apt-get update -qq")


def test_without_apt(folder):
    done = run_setup(folder, "--runtime", id="echo 1000")
    expect(done.returncode, 2)
    has(done.stderr, "knows only apt-get", "libyaml-dev")


def test_without_sudo(folder):
    done = run_setup(folder, "--runtime", id="echo 1000", apt_get="exit 1")
    expect(done.returncode, 2)
    has(done.stderr, "needs root. Please run as root: apt-get install meson ninja-build")
