"""The image: its steps run in a chroot, and what they made is run as an engine would run it. `script/test image` runs this; it takes
minutes and needs root."""

import os
import re
import shutil
import signal
import tempfile

import pytest

from support import ROOT, expect, has
from support.image import Container, build

RULES = """
rules:
  - id: example
    match: { event: example }
    by: [key]
    limits: ["2 per 1h"]
"""
QUESTION = ("curl", "-s", "http://127.0.0.1:8080/v1/check", "-H", "Content-Type: application/json", "-d", '{"event": "example", "key": "u1"}')


@pytest.fixture(scope="module")
def image():
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip("needs root and debootstrap")
    # Not in memory: the stages take more than a gigabyte.
    with tempfile.TemporaryDirectory(prefix="weir-image-", dir="/var/tmp") as folder:
        yield build(os.path.join(ROOT, "Containerfile"), folder)


@pytest.fixture
def rules(folder):
    os.chmod(folder, 0o755)
    with open(os.path.join(folder, "rules.yaml"), "w", encoding="utf-8") as out:
        out.write(RULES)
    return {"/etc/weir": folder}


def test_what_is_in_it(image):
    """All libraries, no compiler, and nothing else that the build needed."""
    expect("not found" in image.run("ldd", "/usr/bin/weir"), False, "libraries")
    for path in ("usr/bin/gcc", "usr/bin/meson", "usr/bin/curl", "src", "build"):
        expect(os.path.exists(os.path.join(image.root, path)), False, path)
    # No package for a library that weir does not use.
    used = set(re.findall(r"=> (/\S+)", image.run("ldd", "/usr/bin/weir")))
    with open(os.path.join(ROOT, "Containerfile"), encoding="utf-8") as file:
        packages = set(re.findall(r"\b(lib[a-z0-9+.-]+|zlib1g)\b", file.read().split("--no-install-recommends", 1)[1].split("&&", 1)[0]))
    for package in packages:
        files = {os.path.basename(path) for path in image.run("dpkg", "-L", package).split()}
        expect(any(os.path.basename(path) in files for path in used), True, f"weir uses {package}")


def test_its_command(image, rules):
    with Container(image, rules) as container:
        container.wait()
        expect([container.ask(*QUESTION)[:16] for _ in range(3)], ['{"allowed":true,', '{"allowed":true,', '{"allowed":false'])
        status = container.inside("cat", "/proc/1/status").stdout
        has(status, "Uid:\t10001\t10001\t10001\t10001", "CapEff:\t0000000000000000", "NoNewPrivs:\t1")
        expect(container.inside("touch", "/etc/x").returncode, 1, "the root is read-only")
        for port in (6380, 8083):
            expect(container.inside("bash", "-c", f": </dev/tcp/127.0.0.1/{port}").returncode, 0, f"port {port}")
        expect(container.stop(signal.SIGTERM), 0, "SIGTERM to process 1")


def test_a_table_in_memory(image, rules):
    """As compose.yaml and the chart run it."""
    command = ["serve", "--data=/var/lib/weir", "--cells-memory=/run/weir", "--rules=/etc/weir/rules.yaml", "--http=0.0.0.0:8080", "--admin=0.0.0.0:8081"]
    with Container(image, rules, *command, tmpfs=["/run/weir"]) as container:
        container.wait()
        has(container.output(), "the counts are in memory")
        has(container.ask(*QUESTION), '"allowed":true')


def test_without_rules(image):
    """The start fails and says which file is missing; no example rules are made up."""
    with Container(image, {}) as container:
        expect(container.process.wait(60), 2)
        has(container.output(), "/etc/weir/rules.yaml")
