"""The cases of envoyproxy/ratelimit: what its examples, its configurations for tests and its integration tests show, in our own
words. Windows are long here, so that none ends during a test."""

import os
import textwrap

import pytest

from support import expect, until, weir
from support.envoy import OK, OVER_LIMIT, UNITS, Client, descriptor

UNLIMITED = 2**32 - 1

# Connections of a proxy: some limits replace others, one only watches, one lets everything pass.
PROXY = """
domain: proxy
descriptors:
  - key: team
    value: core
    rate_limit: { unit: year, requests_per_unit: 4, replaces: [ { name: small }, { name: guest } ] }
  - key: from
    value: gateway
    descriptors:
      - { key: to, value: small, rate_limit: { unit: year, requests_per_unit: 2, replaces: [ { name: small } ] } }
      - { key: to, value: mirror, rate_limit: { unit: year, requests_per_unit: 1 } }
      - { key: to, value: opened, rate_limit: { unit: year, requests_per_unit: 2, replaces: [ { name: closed } ] } }
      - { key: to, value: guest, rate_limit: { unit: year, requests_per_unit: 2, name: guest } }
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2 }
    descriptors:
      - { key: bucket, rate_limit: { unit: year, requests_per_unit: 3 } }
      - { key: bucket, value: small, rate_limit: { unit: year, requests_per_unit: 1, name: small } }
      - { key: bucket, value: closed, rate_limit: { unit: year, requests_per_unit: 0, name: closed } }
      - { key: page, value: plain, rate_limit: { unit: year, requests_per_unit: 3 } }
      - { key: page, value: watched, rate_limit: { unit: year, requests_per_unit: 3 }, shadow_mode: true }
      - { key: free, rate_limit: { unlimited: true } }
  - { key: anyone, rate_limit: { unit: year, requests_per_unit: 2 }, detailed_metric: true }
"""

# Levels, values beside keys, and values that have no limit.
LEVELS = """
domain: levels
descriptors:
  - key: top
    value: one
    descriptors:
      - { key: below, rate_limit: { unit: year, requests_per_unit: 5 } }
      - { key: below, value: special, rate_limit: { unit: month, requests_per_unit: 10 } }
  - { key: plain, rate_limit: { unit: year, requests_per_unit: 20 } }
  - { key: plain, value: more, rate_limit: { unit: week, requests_per_unit: 30 } }
  - { key: plain, value: trusted }
  - { key: named, rate_limit: { unit: day, requests_per_unit: 1, name: one-a-day } }
  - key: both
    value: outer
    rate_limit: { unit: year, requests_per_unit: 15 }
    descriptors:
      - { key: inner, value: deep, rate_limit: { unit: year, requests_per_unit: 25 } }
  - { key: endless, rate_limit: { unlimited: true } }
"""

WILDCARDS = """
domain: wild
descriptors:
  - { key: begins, value: "foo*", rate_limit: { unit: year, requests_per_unit: 20 } }
  - { key: exact, value: foo, rate_limit: { unit: year, requests_per_unit: 20 } }
  - { key: any, rate_limit: { unit: year, requests_per_unit: 20 } }
  - { key: middle, value: "bar*b", rate_limit: { unit: year, requests_per_unit: 20 } }
  - key: nested
    value: here
    descriptors:
      - { key: begins, value: "goo*", rate_limit: { unit: year, requests_per_unit: 20 } }
"""

SHARED = """
domain: shared
descriptors:
  - { key: files, value: "files/*", share_threshold: true, rate_limit: { unit: year, requests_per_unit: 10 } }
  - { key: apart, value: "files/*", rate_limit: { unit: year, requests_per_unit: 10 } }
  - key: files
    value: "top/*"
    share_threshold: true
    descriptors:
      - { key: files, value: "nested/*", share_threshold: true, rate_limit: { unit: year, requests_per_unit: 3 } }
  - key: path
    value: "path/*"
    share_threshold: true
    descriptors:
      - key: file
        value: "file/*"
        descriptors:
          - { key: type, rate_limit: { unit: year, requests_per_unit: 12 } }
  - { key: name, value: test1, rate_limit: { unit: year, requests_per_unit: 5 } }
  - { key: name, value: "test*", share_threshold: true, rate_limit: { unit: year, requests_per_unit: 7 } }
"""


@pytest.fixture
def envoy(service, folder):
    """envoy(text) is a client of a service with this configuration."""
    clients = []

    def start(text, options=""):
        write(folder, text)
        s = service("--rules", f"envoy:{folder}{options}", "--grpc", "127.0.0.1:0", "--envoy-charge", "each", rules=False)
        clients.append(Client(s.grpc))
        return clients[-1]

    yield start
    for client in clients:
        client.channel.close()


def write(folder, text, name="config.yaml"):
    hidden = os.path.join(folder, f".{name}")
    with open(hidden, "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(hidden, os.path.join(folder, name))


def entries(**pairs):
    return descriptor(*pairs.items())


def route(to, user="u", bucket="small", **more):
    """The descriptors of a route that names both sides, and further ones."""
    asked = [descriptor(("user", user), ("bucket", bucket)), descriptor(("from", "gateway"), ("to", to))]
    return asked + [descriptor(pair) for pair in more.items()]


def codes(client, count, domain, *descriptors, **more):
    return [client.code(domain, *descriptors, **more) for _ in range(count)]


def limit_of(client, domain, one):
    """What is left, and the numbers of the limit; None if none is counted."""
    status = client.ask(domain, one).statuses[0]
    limit = status.current_limit
    shown = (limit.requests_per_unit, limit.unit, limit.name) if status.HasField("current_limit") else None
    return status.limit_remaining, shown


# ---- replaces ----


def test_a_limit_that_is_replaced_does_not_count(envoy):
    client = envoy(PROXY)
    closed = descriptor(("user", "u"), ("bucket", "closed"))
    expect(client.code("proxy", closed), OVER_LIMIT, "nothing is allowed")
    expect(client.code("proxy", *route("mirror", bucket="closed")), OVER_LIMIT, "this route replaces nothing")
    expect(codes(client, 3, "proxy", *route("opened", bucket="closed")), [OK, OK, OVER_LIMIT], "by its own limit")
    answer = client.ask("proxy", *route("opened", bucket="closed"))
    assert not answer.statuses[0].HasField("current_limit"), "the one that is replaced"
    expect([status.code for status in answer.statuses], [OK, OVER_LIMIT])


def test_a_limit_that_was_replaced_still_counts_elsewhere(envoy):
    client = envoy(PROXY)
    expect(codes(client, 3, "proxy", *route("small")), [OK, OK, OVER_LIMIT])
    expect(codes(client, 2, "proxy", *route("other")), [OK, OVER_LIMIT], "the replaced one has not counted before")
    expect(client.code("proxy", *route("small")), OVER_LIMIT)


def test_one_limit_replaces_several(envoy):
    client = envoy(PROXY)
    expect(codes(client, 5, "proxy", *route("guest", team="core")), [OK] * 4 + [OVER_LIMIT])
    expect(codes(client, 2, "proxy", descriptor(("user", "v"), ("bucket", "small"))), [OK, OVER_LIMIT])
    expect(codes(client, 3, "proxy", *route("guest", user="w", bucket="large")), [OK, OK, OVER_LIMIT])
    expect(client.code("proxy", *route("guest", team="core")), OVER_LIMIT)


# ---- limits that refuse, watch, or do nothing ----


def test_a_limit_refuses(envoy):
    client = envoy(PROXY)
    page = descriptor(("user", "u"), ("page", "plain"))
    expect(codes(client, 5, "proxy", page), [OK] * 3 + [OVER_LIMIT] * 2)
    expect(limit_of(client, "proxy", page), (0, (3, UNITS["YEAR"], "")))
    expect(client.code("proxy", descriptor(("user", "other"), ("page", "plain"))), OK, "each user has one")


def test_a_shadow_refuses_nobody(envoy):
    client = envoy(PROXY)
    page = descriptor(("user", "u"), ("page", "watched"))
    expect(limit_of(client, "proxy", page), (2, (3, UNITS["YEAR"], "")), "it shows what it counts")
    expect(codes(client, 5, "proxy", page), [OK] * 5)
    answer = client.ask("proxy", page)
    expect((answer.overall_code, answer.statuses[0].code, answer.statuses[0].limit_remaining), (OK, OK, 0))
    assert answer.statuses[0].HasField("duration_until_reset")


def test_unlimited(envoy):
    client = envoy(PROXY)
    free = descriptor(("user", "u"), ("free", "x"))
    for _ in range(3):
        expect(limit_of(client, "proxy", free), (UNLIMITED, None))
    assert not client.ask("proxy", free).statuses[0].HasField("duration_until_reset")
    expect(limit_of(client, "proxy", descriptor(("user", "u"), ("unknown", "x"))), (0, None), "no limit at all")


def test_values_of_a_key(envoy):
    client = envoy(PROXY)
    expect(codes(client, 3, "proxy", entries(anyone="a")), [OK, OK, OVER_LIMIT])
    expect(client.code("proxy", entries(anyone="b")), OK)
    expect(client.code("proxy", entries(anyone="")), OK, "the empty value is one")


# ---- which limit ----


LEVEL_CASES = (
    ("levels", (("top", "one"), ("below", "x")), (5, "YEAR", "")),
    ("levels", (("top", "one"), ("below", "special")), (10, "MONTH", "")),
    ("levels", (("top", "two"), ("below", "special")), None),
    ("levels", (("top", "one"),), None),
    ("levels", (("plain", "x"),), (20, "YEAR", "")),
    ("levels", (("plain", "more"),), (30, "WEEK", "")),
    ("levels", (("plain", "trusted"),), None),
    ("levels", (("plain", "x"), ("below", "y")), None),
    ("levels", (("named", "x"),), (1, "DAY", "one-a-day")),
    ("levels", (("both", "outer"),), (15, "YEAR", "")),
    ("levels", (("both", "outer"), ("inner", "deep")), (25, "YEAR", "")),
    ("levels", (("both", "outer"), ("inner", "other")), None),
    ("levels", (("inner", "deep"), ("both", "outer")), None),
    ("elsewhere", (("plain", "x"),), None),
)


def test_levels(envoy):
    client = envoy(LEVELS)
    for domain, pairs, limit in LEVEL_CASES:
        wanted = (limit[0] - 1, (limit[0], UNITS[limit[1]], limit[2])) if limit else (0, None)
        expect(limit_of(client, domain, descriptor(*pairs)), wanted, pairs)


def test_limits_of_the_call(envoy):
    """In place of those of the configuration, and also where it has none; but not in a domain that it does not know."""
    client = envoy(LEVELS)
    own = descriptor(("plain", "x"), limit=(10, "MONTH"))
    expect(limit_of(client, "levels", own), (9, (10, UNITS["MONTH"], "")))
    expect(limit_of(client, "levels", descriptor(("none", "x"), limit=(42, "YEAR"))), (41, (42, UNITS["YEAR"], "")))
    expect(limit_of(client, "elsewhere", own), (0, None))
    expect(limit_of(client, "levels", entries(plain="y")), (19, (20, UNITS["YEAR"], "")))


WILDCARD_CASES = (
    ((("begins", "foo1"),), True),
    ((("begins", "foo"),), True),
    ((("begins", "bar"),), False),
    ((("exact", "foo"),), True),
    ((("exact", "foo1"),), False),
    ((("any", "foo1"),), True),
    ((("middle", "barab"),), False),
    ((("middle", "bar*b"),), True),
    ((("nested", "here"), ("begins", "goo2")), True),
    ((("nested", "here"), ("begins", "foo2")), False),
)


def test_wildcards(envoy):
    client = envoy(WILDCARDS)
    for pairs, counts in WILDCARD_CASES:
        expect(limit_of(client, "wild", descriptor(*pairs)), (19, (20, UNITS["YEAR"], "")) if counts else (0, None), pairs)


def test_values_of_a_wildcard_count_apart(envoy):
    client = envoy(WILDCARDS)
    for value in ("foo1", "foo2"):
        expect([limit_of(client, "wild", entries(begins=value))[0] for _ in range(2)], [19, 18])


# ---- values that share one count ----


def test_share_threshold(envoy):
    client = envoy(SHARED)
    expect(codes(client, 10, "shared", entries(files="files/a.pdf")), [OK] * 10)
    expect(limit_of(client, "shared", entries(files="files/b.csv")), (0, (10, UNITS["YEAR"], "")))
    expect(client.code("shared", entries(files="files/c")), OVER_LIMIT)
    for i in range(10):
        expect(limit_of(client, "shared", entries(apart=f"files/{i}"))[0], 9, "each has its own")


def test_share_threshold_in_levels(envoy):
    client = envoy(SHARED)
    both = lambda first, second: descriptor(("files", f"top/{first}"), ("files", f"nested/{second}"))
    expect([limit_of(client, "shared", both(i, i + 1))[0] for i in range(3)], [2, 1, 0])
    expect(client.code("shared", both("x", "y")), OVER_LIMIT)
    deep = lambda path, file, type_: descriptor(("path", f"path/{path}"), ("file", f"file/{file}"), ("type", type_))
    expect([limit_of(client, "shared", deep(i, "a", "t"))[0] for i in range(3)], [11, 10, 9], "whatever the path is")
    expect(limit_of(client, "shared", deep(0, "b", "t"))[0], 11, "each file")
    expect(limit_of(client, "shared", deep(0, "a", "u"))[0], 11, "each type")


def test_a_value_comes_before_a_shared_wildcard(envoy):
    client = envoy(SHARED)
    expect(limit_of(client, "shared", entries(name="test1")), (4, (5, UNITS["YEAR"], "")))
    expect([limit_of(client, "shared", entries(name=f"test{i}"))[0] for i in (2, 3)], [6, 5])


# ---- counting ----


def test_every_descriptor_is_charged(envoy):
    """Also those of a call that is refused, and what does not fit."""
    client = envoy(LEVELS)
    named, plain = entries(named="x"), entries(plain="x")
    expect([client.ask("levels", named, plain).statuses[1].limit_remaining for _ in range(3)], [19, 18, 17])
    answer = client.ask("levels", named, plain, hits=5)
    expect((answer.overall_code, [status.code for status in answer.statuses]), (OVER_LIMIT, [OVER_LIMIT, OK]))
    expect(limit_of(client, "levels", plain)[0], 11)
    expect(codes(client, 2, "levels", plain, hits=20), [OVER_LIMIT] * 2)
    expect(client.code("levels", plain), OVER_LIMIT)


def test_hits_of_a_descriptor(envoy):
    client = envoy(LEVELS)
    plain = lambda hits: descriptor(("plain", "x"), hits=hits)
    expect(limit_of(client, "levels", plain(7))[0], 13)
    expect([limit_of(client, "levels", plain(0))[0] for _ in range(2)], [13, 13], "0 looks")
    answer = client.ask("levels", plain(2), entries(plain="x"), plain(0), hits=3)
    expect([status.limit_remaining for status in answer.statuses], [11, 8, 8], "in their order")


# ---- configurations ----


def test_reload(envoy, folder):
    """A changed file is in force soon, and an error in it changes nothing."""
    client = envoy("domain: one\ndescriptors: [ { key: k, rate_limit: { unit: year, requests_per_unit: 50 } } ]\n")
    expect(limit_of(client, "one", entries(k="x"))[0], 49)
    expect(limit_of(client, "two", entries(k="x")), (0, None))
    write(folder, "domain: two\ndescriptors: [ { key: k, rate_limit: { unit: year, requests_per_unit: 0 } } ]\n", "two.yaml")
    until(lambda: client.code("two", entries(k="x")) == OVER_LIMIT, "the new file is in force")
    write(folder, "domain: two\ndescriptors: [ { key: k, rate_limit: { unit: never } } ]\n", "two.yaml")
    write(folder, "domain: one\ndescriptors: [ { key: k, rate_limit: { unit: year, requests_per_unit: 99 } } ]\n")
    expect(limit_of(client, "one", entries(k="x"))[0], 48, "all of it has to be right")
    expect(client.code("two", entries(k="x")), OVER_LIMIT)
    os.unlink(os.path.join(folder, "two.yaml"))
    until(lambda: client.code("two", entries(k="x")) == OK, "the file is gone")
    expect(limit_of(client, "one", entries(k="x"))[1], (99, UNITS["YEAR"], ""))


REJECTED = {
    "an unknown unit": "domain: d\ndescriptors: [ { key: k, value: v, rate_limit: { unit: foo, requests_per_unit: 5 } } ]\n",
    "not YAML": "'''\n",
    "a pair twice": "domain: d\ndescriptors: [ { key: k, value: v }, { key: k, value: v } ]\n",
    "no domain": "descriptors:\n",
    "no key": "domain: d\ndescriptors: [ { value: v } ]\n",
    "a field of a descriptor": "domain: d\ndescriptors: [ { key: k, ratelimit: { unit: day } } ]\n",
    "a field of a limit": "domain: d\ndescriptors: [ { key: k, rate_limit: { unit: day, requestsperunit: 5 } } ]\n",
    "a list of texts": "domain: d\ndescriptors: [ a, b, c ]\n",
    "a field that is a number": "0.25: d\ndescriptors: [ { key: k } ]\n",
    "no name in replaces": "domain: d\ndescriptors: [ { key: k, rate_limit: { unit: day, name: n, replaces: [ { name: } ] } } ]\n",
    "itself in replaces": "domain: d\ndescriptors: [ { key: k, rate_limit: { unit: day, name: n, replaces: [ { name: n } ] } } ]\n",
    "a unit without a limit": "domain: d\ndescriptors: [ { key: k, rate_limit: { unlimited: true, unit: day } } ]\n",
    "a share of one value": "domain: d\ndescriptors: [ { key: k, value: v, share_threshold: true } ]\n",
}


@pytest.mark.parametrize("what", REJECTED)
def test_rejected(folder, what):
    write(folder, REJECTED[what])
    done = weir("convert", "envoy", folder)
    expect((done.returncode, done.stdout), (2, b""), what)
    assert b"config.yaml:" in done.stderr, done.stderr


def test_domains_of_several_files(envoy, folder):
    part = textwrap.dedent(
        """\
        domain: one
        descriptors: [ { key: %s, rate_limit: { unit: year, requests_per_unit: 10 } } ]
        """
    )
    write(folder, part % "first")
    write(folder, part % "second", "other.yaml")
    expect(weir("convert", "envoy", folder).returncode, 2, "a domain is in one file")
    os.rename(os.path.join(folder, "other.yaml"), os.path.join(folder, ".other"))
    client = envoy(part % "first")
    expect(limit_of(client, "one", entries(second="x")), (0, None))
    os.rename(os.path.join(folder, ".other"), os.path.join(folder, "other.yaml"))
    merged = envoy(part % "first", "?merge=true")
    for key in ("first", "second"):
        expect(limit_of(merged, "one", entries(**{key: "x"}))[0], 9)
