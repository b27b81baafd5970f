"""Manual pages: each command has one, with all its verbs and options, and no other."""

import glob
import os
import re
import subprocess

from support import BUILD, ROOT, WEIR, expect

MAN = os.path.join(ROOT, "man")
# Options that pages name although they belong to other commands or programs.
FOREIGN = {"version"}


def help_of(*words):
    return subprocess.run([WEIR, *words, "--help"], check=True, capture_output=True, text=True).stdout


def commands():
    listed = help_of().partition("Commands:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE)


def pages_of(command):
    """`convert` has one for each of its verbs; that of `serve` is made at build."""
    if command == "serve":
        return [os.path.join(BUILD, "man", "weir-serve.1")]
    return sorted(glob.glob(os.path.join(MAN, f"weir-{command}.1")) or glob.glob(os.path.join(MAN, f"weir-{command}-*.1")))


def text_of(pages):
    text = ""
    for page in pages:
        with open(page, encoding="utf-8") as file:
            text += file.read()
    return text


def listed_options(text):
    """The options that are items of the list in OPTIONS."""
    found = set()
    for section in re.findall(r"^\.Sh OPTIONS\n(.*?)(?=^\.Sh )", text, re.MULTILINE | re.DOTALL):
        for line in re.findall(r"^\.It (.*)$", section, re.MULTILINE):
            found |= set(re.findall(r"Fl -([a-z][a-z-]*)", line))
    return found


def test_every_command_has_its_page():
    with open(os.path.join(MAN, "weir.1"), encoding="utf-8") as file:
        root = file.read()
    for command in commands():
        assert pages_of(command), f"man/weir-{command}.1 is missing"
        expect(f"\n.It Cm {command}" in root, True, f"man/weir.1: {command}")
        for page in pages_of(command):
            name = os.path.basename(page)[: -len(".1")]
            expect(f"\n.Xr {name} 1" in root, True, f"man/weir.1: {name}")


def test_options_and_verbs():
    for command in commands():
        text, said = text_of(pages_of(command)), help_of(command)
        about, _, options = said.partition("\nOptions:\n")
        options = set(re.findall(r"^  --([a-z-]+)", options, re.MULTILINE))
        expect(sorted(options - listed_options(text)), [], f"weir {command}: options that its page lacks")
        expect(sorted(listed_options(text) - options - FOREIGN), [], f"weir {command}: options that only its page has")
        if command != "convert":
            for verb in re.findall(r"^  ([a-z]+) ", about, re.MULTILINE):
                assert re.search(rf"^\.It Cm {verb}\b", text, re.MULTILINE), f"weir {command}: its page lacks {verb}"


def test_fields_of_a_rules_file():
    """weir-rules(5) has each field of a rule, a limit and the settings that the reader knows."""
    with open(os.path.join(MAN, "weir-rules.5"), encoding="utf-8") as file:
        page = file.read()
    items = set(re.findall(r"^\.It (?:Li|Cm) (?:\\&)?([a-z_]+)", page, re.MULTILINE))
    known = set()
    for name in ("read.c", "limits.c", "overrides.c", "settings.c"):
        with open(os.path.join(ROOT, "src", "rules", name), encoding="utf-8") as file:
            known |= set(re.findall(r'\{ "([a-z_]+)"(?:, read_| \})', file.read()))
    assert {"id", "replaces", "include", "burst", "ttl", "deny", "status", "ids", "reject"} <= known, known
    expect(sorted(known - items), [], "fields that the page lacks")


def test_pages_are_well_formed():
    for page in glob.glob(os.path.join(MAN, "*.[15]")):
        run = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], check=False, capture_output=True, text=True)
        expect((run.returncode, run.stdout), (0, ""), page)
