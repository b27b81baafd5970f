"""weir convert envoy: what is taken over, and what is an error, with its file and line."""

import os
import subprocess

import pytest

from support import WEIR, expect, has

BASIC = """domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: user
    value: ann
    rate_limit: { unit: MINUTE, requests_per_unit: 100, name: ann }
  - key: user
    value: job-*
    rate_limit: { unit: hour, requests_per_unit: 5 }
    descriptors:
      - key: path
        value: /slow
        shadow_mode: true
        rate_limit: { unit: day, requests_per_unit: 1, replaces: [{ name: ann }, { name: nobody }] }
  - key: health
    rate_limit: { unlimited: true }
"""


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


def write(name, text):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)


def convert(*words):
    return subprocess.run([WEIR, "convert", "envoy", *words], capture_output=True, text=True, timeout=60)


def rule(text, name):
    """The lines of one rule."""
    return text.split(f'- id: "{name}"\n')[1].split("\n  #")[0]


def test_each_node_with_a_limit_is_a_rule():
    write("a.yaml", BASIC)
    done = convert("a.yaml")
    expect(done.returncode, 0, done.stderr)
    has(rule(done.stdout, "shop.user"), 'descriptor: { "user": { present: true, not: [ "ann", { prefix: "job-" } ] } }')
    has(rule(done.stdout, "shop.user"), 'by: [ "descriptor:user" ]')
    has(rule(done.stdout, "shop.user_ann"), 'limits: [ { name: "ann", max: 100, calendar: 1m } ]')
    has(rule(done.stdout, "shop.user_job-*"), 'descriptor: { "user": { prefix: "job-" } }')
    nested = rule(done.stdout, "shop.user_job-*.path_/slow")
    has(nested, 'descriptor_keys: "user,path"')
    has(nested, 'replaces: [ "shop.user_ann" ]')
    has(nested, "mode: shadow")
    has(done.stdout, '# replaces "nobody": no limit of this domain has this name.')
    has(rule(done.stdout, "shop.health"), "limits: none")
    has(rule(done.stdout, "shop:given"), "limits: given")


def test_windows_of_the_calendar():
    write("a.yaml", BASIC)
    done = convert("--windows", "natural", "--tz", "Asia/Shanghai", "a.yaml")
    has(rule(done.stdout, "shop.user_job-*"), 'max: 5, calendar: hour, tz: "Asia/Shanghai"')
    expect(convert("--tz", "Asia/Shanghai", "a.yaml").returncode, 2)


def test_units():
    lengths = {"second": "1s", "Minute": "1m", "HOUR": "1h", "day": "1d", "week": "7d", "month": "30d", "year": "365d"}
    for unit, length in lengths.items():
        write("a.yaml", f"domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: {unit}, requests_per_unit: 7}}}}]\n")
        has(convert("a.yaml").stdout, f"max: 7, calendar: {length} }}")
    write("a.yaml", "domain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, unit_multiplier: 90, requests_per_unit: 7}}]\n")
    has(convert("a.yaml").stdout, "max: 7, calendar: 90m }")


def test_a_wildcard_hides_those_after_it():
    write(
        "a.yaml",
        """domain: d
descriptors:
  - { key: k, value: "a*", rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: k, value: "ab*", rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: k, value: "abc", rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: k, value: "*", rate_limit: { unit: day, requests_per_unit: 4 } }
  - { key: k, rate_limit: { unit: day, requests_per_unit: 5 } }
""",
    )
    text = convert("a.yaml").stdout
    has(rule(text, "d.k_a*"), '{ prefix: "a", not: [ "abc" ] }')
    has(rule(text, "d.k_*"), '{ present: true, not: [ { prefix: "a" }, { prefix: "ab" }, "abc" ] }')
    expect(text.count("is left out"), 2, text)
    expect("max: 2" in text or "max: 5" in text, False, text)


LIMIT = "rate_limit: { unit: day, requests_per_unit: 1 }"


def beside(values, last):
    """A node for each value, one in a line from the third on, and then another one."""
    nodes = [f'  - {{ key: k, value: "{value}", {LIMIT} }}\n' for value in values]
    write("a.yaml", "domain: d\ndescriptors:\n" + "".join(nodes) + last)
    return convert("a.yaml")


def test_wildcards_exclude_those_that_are_narrower():
    text = beside(["ab*", "b*", "abc*", "a*", "ac*"], "").stdout
    has(rule(text, "d.k_ab*"), 'descriptor: { "k": { prefix: "ab" } }')
    has(rule(text, "d.k_b*"), 'descriptor: { "k": { prefix: "b" } }')
    has(rule(text, "d.k_a*"), '{ prefix: "a", not: [ { prefix: "ab" }, { prefix: "abc" } ] }')
    expect(text.count("is left out"), 2, text)


def test_thousands_of_wildcards():
    done = beside([f"v{i}-*" for i in range(2000)], "")
    expect(done.returncode, 0, done.stderr)
    write("rules.yaml", done.stdout)
    lint = subprocess.run([WEIR, "lint", "rules.yaml"], capture_output=True, text=True, timeout=60)
    has(lint.stdout, "2001 rules, ok")


def test_values_beside_a_key_are_bounded():
    last = f"  - {{ key: k, {LIMIT} }}\n"
    expect(beside([f"v{i}" for i in range(10000)], last).returncode, 0)
    done = beside([f"v{i}" for i in range(10001)], last)
    expect(done.returncode, 2, done.stdout)
    expect(done.stdout + done.stderr, """a.yaml:10004: more than 10000 values of the key 'k' have limits of their own beside this one, \
and its rule can exclude no more; give several of them one limit with a value that ends in `*`
""")
    expect(beside([f"v{i}-*" for i in range(100)], last).returncode, 0)
    done = beside([f"v{i}-*" for i in range(101)], last)
    expect(done.returncode, 2, done.stdout)
    has(done.stdout + done.stderr, "a.yaml:104: more than 100 values of the key 'k' that end in `*` come before this one")


def test_limits_that_one_replaces_are_bounded():
    nodes = [f"  - {{ key: k{i}, rate_limit: {{ unit: day, requests_per_unit: 1, name: n }} }}\n" for i in range(10001)]
    last = "  - key: k\n    rate_limit: { unit: day, requests_per_unit: 1, replaces: [{ name: n }] }\n"
    write("a.yaml", "domain: d\ndescriptors:\n" + "".join(nodes[1:]) + last)
    expect(convert("a.yaml").returncode, 0)
    write("a.yaml", "domain: d\ndescriptors:\n" + "".join(nodes) + last)
    done = convert("a.yaml")
    expect(done.returncode, 2, done.stdout)
    expect(done.stdout + done.stderr, "a.yaml:10005: a rule replaces at most 10000 others, and this has 10001\n")


def test_ids_are_short_and_different():
    long = "v" * 200
    write(
        "a.yaml",
        f"""domain: d
descriptors:
  - {{ key: a_b, value: c, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}
  - {{ key: a, value: b_c, rate_limit: {{ unit: day, requests_per_unit: 2 }} }}
  - {{ key: a, value: {long}x, rate_limit: {{ unit: day, requests_per_unit: 3 }} }}
  - {{ key: a, value: {long}y, rate_limit: {{ unit: day, requests_per_unit: 4 }} }}
""",
    )
    ids = [line.split('"')[1] for line in convert("a.yaml").stdout.splitlines() if line.startswith("  - id:")]
    expect(len(set(ids)), 5, ids)
    expect(max(map(len, ids)) <= 100, True, ids)


ERRORS = {
    "domain: ''\n": "a.yaml:1: the file needs a `domain`",
    "": "a.yaml:1: the file is empty",
    "domain: d\ndescriptors:\n  - value: x\n": "a.yaml:3: a descriptor needs a `key`",
    "domain: d\ndescriptors:\n  - key: x\n    ratelimit: {}\n": "a.yaml:4: unknown field `ratelimit` in a descriptor",
    "domain: d\nunit: day\n": "a.yaml:2: `unit` has no effect in the file",
    "domain: d\ndescriptors:\n  - key: x\n    rate_limit: { unit: fortnight }\n": "a.yaml:4: `unit` must be second",
    "domain: d\ndescriptors:\n  - key: x\n    rate_limit: { unlimited: true, unit: day }\n": "not both",
    "domain: d\ndescriptors:\n  - key: x\n    rate_limit: { unit: day, requests_per_unit: -1 }\n": "whole number up to 4294967295",
    "domain: d\ndescriptors:\n  - key: x\n    rate_limit: { unit: day, requests_per_unit: 4294967296 }\n": "whole number",
    "domain: d\ndescriptors:\n  - key: x\n    value: 1.5\n": "a.yaml:4: `value` must be a text; put the number in quotes",
    "domain: d\ndescriptors: [1]\n": "a.yaml:2: a descriptor must be a mapping",
    "domain: d\ndescriptors:\n  - key: x\n    share_threshold: true\n": "a.yaml:3: `share_threshold` needs a value",
    "domain: d\ndescriptors:\n  - key: x\n  - key: y\n  - key: x\n": "a.yaml:5: the descriptor with the key 'x'",
    "domain: d\ndescriptors:\n  - key: x*\n": "a.yaml:3: a `*` at the end of the key",
    "domain: d\ndescriptors:\n  - key: x\n    rate_limit: { unit: day, name: n, replaces: [{ name: n }] }\n": "cannot replace itself",
    "domain: d\ndescriptors:\n  - key: x\n    rate_limit: { unit: day, replaces: [{}] }\n": "needs a `name`",
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_name_file_and_line(text):
    write("a.yaml", text)
    done = convert("a.yaml")
    expect(done.returncode, 2, done.stdout)
    has(done.stdout + done.stderr, ERRORS[text])


def test_a_domain_in_two_files_needs_merge():
    write("f/a.yaml", BASIC)
    write("f/b.yaml", "domain: shop\ndescriptors: [{ key: other, rate_limit: { unit: day, requests_per_unit: 1 } }]\n")
    write("f/.c.yaml.swp", "not yaml: [")
    done = convert("f")
    has(done.stdout + done.stderr, "f/b.yaml:1: the domain 'shop' is in f/a.yaml already")
    done = convert("--merge", "f")
    expect(done.returncode, 0, done.stderr)
    has(done.stdout, '- id: "shop.other"')
    expect(done.stdout.count(":given"), 1)
    write("f/c.yaml", "domain: shop\ndescriptors: [{ key: other }]\n")
    has(convert("--merge", "f").stdout + convert("--merge", "f").stderr, "f/c.yaml:2: the descriptor with the key 'other'")
