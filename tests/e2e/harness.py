"""What the end-to-end tests share: running the built command, writing rules, printing TAP."""

import json
import os
import re
import subprocess
import sys
import tempfile
import traceback

WEIR = os.path.abspath(sys.argv[1])
UNWANTED = ("COLUMNS", "TZDIR", "WEIR_FROM", "WEIR_DB_PASSWORD", "WEIR_REDIS_PASSWORD")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in UNWANTED},
    "LC_ALL": "C.UTF-8",
}
TIMEOUT_S = 300


def weir(*words, stdin=b"", **more):
    """Runs the command; its output as bytes."""
    return subprocess.run(
        [WEIR, *map(str, words)], input=stdin, capture_output=True, env=ENVIRONMENT, timeout=TIMEOUT_S, check=False, **more
    )


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


# ---- TAP ----


class Skip(Exception):
    """What is missing for a case."""


def expect(found, wanted, what=""):
    if found != wanted:
        raise AssertionError(f"{what}\n  found  {found!r}\n  wanted {wanted!r}")


def main(cases):
    """Runs (name, function) and prints TAP."""
    print(f"1..{len(cases)}", flush=True)
    failed = 0
    for number, (name, case) in enumerate(cases, 1):
        try:
            case()
            print(f"ok {number} - {name}", flush=True)
        except Skip as why:
            print(f"ok {number} - {name} # SKIP {why}", flush=True)
        except Exception:  # a case that breaks is a case that fails
            failed += 1
            print(f"not ok {number} - {name}")
            print("".join("# " + line + "\n" for line in traceback.format_exc().splitlines()), end="", flush=True)
    sys.exit(1 if failed else 0)
