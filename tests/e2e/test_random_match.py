"""Random rules, settings and requests: which rules a request meets, and for whom they count, against the model.

A shadow rule with `max: 0` is in the verdict whenever it applies; one with a small `max` shows who counts together."""

import json
import random

import pytest

import support
from e2e import model, model_match
from support import number

SEED = number("TEST_SEED", 20260302)
FILES = number("TEST_COUNT", 50)
RULES, REQUESTS = 40, 100
NOW_MS = 1772413200000
UUID = "123e4567-e89b-12d3-a456-426614174000"

WORDS = ["a", "b", "A", "B", "ab", "users", "Users", "files", "é"]
IDS = ["1", "42", "007", UUID, UUID.upper(), "deadbeef", "syn12", "SYN12", "4x", "-1", UUID[:-1], "٤"]
ODD = ["a%20b", "%23", "%2A", "%7Bx%7D", "%25", "a%2Fb", "%00", "~", "a+b", "a.b", "...", "%2541", "$&'()", "a=b,c"]
SPELLINGS = [
    "",
    "",
    ".",
    "..",
    "%2e",
    "%2E%2e",
    "..;x",
    ";p=1",
    "a;v=1",
    "a%3Bv",
    "%61",
    "%41",
    "%C3%A9",
    "%c3%a9",
    "%2f",
    "%2F",
    "a%2fb",
    "a%2Fb",
    "%zz",
    "%",
    "%4",
    "{x}",
    "*",
    "a%20b",
    "a b",
    "%3F",
    "%23",
    "%25",
    "%2541",
    "%00",
    "%7e",
    "%31%32",
    "user%73",
    "U%73ers",
    "..%2f",
    "a%2F..",
    "a%2f%2F..%2Fb",
    "..%3b",
    ";x%2F..",
    "b;x%2fb",
    ".;",
    "42%0a",
    "b%0A",
    "%0a",
    "#",
    "a#b",
    "#..",
    "..;/../",
]
REGEXES = [
    "/(a|b)",
    "/(a|b)/[0-9]+",
    "/a.*",
    ".*",
    "/[a-z]+",
    "(/users)?/[^/]+",
    "(?i)/USERS/.*",
    "/users/[0-9]+(/[a-b]+)*/?",
    ".*/(b|users)(/.*)?",
    "/a/.+|/b/?|.*//.*",
    r"/(a\.b|[^/]*%2F)?.*/b{1,2}",
    "/files/.+",
    "/(a|b)/.+",
    ".*/",
    ".*//.*",
    "/[^/]+/[^/]*",
    "/a/?b?",
    "/(?:a|ab)(?:/b)?",
    "/users/([0-9]+)/\\w+",
    "/",
    "/A/B",
    "/[A-Z]+",
    "/users|/files",
    "/.{2,3}",
]
ID_LISTS = [["[0-9]+"], ["[0-9a-f]+", "syn[0-9]+"], ["[a-z]"], ["a|users"], ["[0-9]+x?", "-1"]]
HOSTS = ["example.com", "api.example.com", "[::1]", "[2001:db8::1]", "localhost"]
HOST_SPELLINGS = HOSTS + [
    "Example.COM",
    "example.com:8080",
    "example.com.",
    "EXAMPLE.com.:80",
    "[::1]:80",
    "xexample.com",
    "com",
    "[2001:DB8::1]",
]
ADDRESSES = [
    "10.0.0.1",
    "10.0.0.2",
    "10.255.0.1",
    "192.0.2.7",
    "192.0.2.8",
    "203.0.113.9",
    "::ffff:192.0.2.7",
    "::ffff:10.0.0.1",
    "2001:db8::1",
    "2001:db8::2",
    "2001:db8:0:1::1",
    "2001:db8:0:0:8000::1",
    "fd00::1",
    "fd00:0:0:ff::2",
    "::1",
    "2001:0db8:0000:0000:0000:0000:0000:0001",
]
NETWORKS = [
    "10.0.0.0/8",
    "192.0.2.7",
    "192.0.2.0/24",
    "0.0.0.0/0",
    "::/0",
    "fd00::/8",
    "2001:db8::1",
    "2001:db8::/64",
    "10.0.0.1/32",
    "2001:db8:0:0:8000::/65",
    "203.0.113.8/31",
    "::1/128",
]
UNREADABLE = ["unknown", "_hidden", "1.2.3", "1.2.3.4.5", "256.1.1.1", "[::1", "::1]", "a:b", "-"]
HEADERS = ["X-Plan", "x-tenant", "User-Agent"]
VALUES = ["", "free", "pro", "Free", "a b", "1"]
EVENTS = ["ocr", "Ocr", "score"]
DOMAINS = ["edge", "Edge", " edge"]
KEYS = ["plan", "user", "Plan", "a#2", "a", "a,b", "100%", "a=b"]
ENTRY_NAMES = ["plan", "user", "Plan", "a%232", "a", "a#2", "a#3", "plan#2", "a%2cb", "a,b", "100%25", "a=b"]
ENTRY_VALUES = ["", "free", "Free", " free", "x,b=y", "%", "é", "1"]
KEY_LISTS = ["plan", "plan,user", "user,plan", "plan,plan#2", "a,a#2", "a%232", "a%2Cb", "100%25", "a=b", "a,a%232"]


def some(rng, pool, most):
    return [rng.choice(pool) for _ in range(rng.randint(1, most))]


def one_or_list(rng, values):
    return values[0] if len(values) == 1 and rng.random() < 0.5 else values


def odd_case(rng, text):
    return "".join(rng.choice([char.lower(), char.upper()]) for char in text)


# ---- rules ----


def template(rng):
    segments = [
        rng.choice([rng.choice(WORDS), rng.choice(WORDS), "#", "{name}", rng.choice(IDS), rng.choice(ODD)])
        for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))
    ]
    if rng.random() < 0.2:
        segments.append("*")
    return "/" + "/".join(segments)


def path_condition(rng):
    paths = [
        {"regex": rng.choice(REGEXES)} if rng.random() < 0.25 else template(rng) for _ in range(rng.choice([1, 1, 1, 2, 5]))
    ]
    return one_or_list(rng, paths)


def glob(rng, text):
    """The text with some of it as `*`."""
    start = rng.randrange(len(text) + 1)
    end = rng.randint(start, len(text))
    found = text[:start] + "*" + text[end:]
    return found if found.strip("*") else text + "*"


def value(rng, texts):
    text, form = rng.choice(texts), rng.random()
    if form < 0.15:
        return {"prefix": text[: rng.randint(1, len(text))].strip() or text}
    return {"glob": glob(rng, text)} if form < 0.3 and text == text.strip() else text


def values(rng, make):
    return one_or_list(rng, [make() for _ in range(rng.choice([1, 1, 2, 3]))])


def condition(rng, make):
    """All its forms, of values that `make` makes."""
    form = rng.random()
    if form < 0.5:
        return values(rng, make)
    if form < 0.6:
        return {rng.choice(["present", "absent"]): True}
    doc = {"not": values(rng, make)}
    if form < 0.7:
        doc["present"] = True
    elif form < 0.8:
        first = make()
        doc |= first if isinstance(first, dict) else {"is": first}
    return doc


def match(rng):
    doc = {}
    if rng.random() < 0.75:
        doc["path"] = path_condition(rng)
        if rng.random() < 0.3:
            doc["path"] = condition(rng, lambda: {"regex": rng.choice(REGEXES)} if rng.random() < 0.25 else template(rng))
    if rng.random() < 0.2:
        doc["method"] = condition(rng, lambda: value(rng, ["GET", "post", "PUT"]))
        if rng.random() < 0.5:
            doc["method"] = one_or_list(rng, sorted(set(some(rng, ["GET", "post", "PUT"], 2))))
    if rng.random() < 0.2:
        doc["host"] = rng.choice(HOST_SPELLINGS)
        if rng.random() < 0.5:
            names = [name for name in HOSTS if name[0] != "["]
            doc["host"] = condition(rng, lambda: value(rng, names) if rng.random() < 0.7 else "*." + rng.choice(HOST_SPELLINGS[5:8] + ["com"]))
    if rng.random() < 0.25:
        each = rng.choice(VALUES[1:]) if rng.random() < 0.4 else condition(rng, lambda: value(rng, VALUES[1:]))
        doc["header"] = {odd_case(rng, rng.choice(HEADERS)): each}
        if rng.random() < 0.2:
            doc["header"] |= {name: rng.choice(VALUES[1:]) for name in some(rng, HEADERS, 2) if name.lower() != next(iter(doc["header"])).lower()}
    if rng.random() < 0.15:
        doc["event"] = rng.choice(EVENTS) if rng.random() < 0.5 else condition(rng, lambda: value(rng, EVENTS))
    if rng.random() < 0.15:
        doc["user"] = condition(rng, lambda: value(rng, ["u1", "u2", "1001", "u"]))
    if rng.random() < 0.1:
        doc["key"] = condition(rng, lambda: value(rng, ["k1", "k2"]))
    if rng.random() < 0.15:
        doc["ip"] = condition(rng, lambda: rng.choice(NETWORKS))
    if rng.random() < 0.3:
        match_descriptor(rng, doc)
    return doc


def match_descriptor(rng, doc):
    if rng.random() < 0.7:
        doc.pop("path", None)
    if rng.random() < 0.4:
        doc["domain"] = condition(rng, lambda: value(rng, DOMAINS))
    if rng.random() < 0.4:
        doc["descriptor_keys"] = condition(rng, lambda: value(rng, KEY_LISTS))
    names = {model_match.entry_of(name): name for name in rng.sample(ENTRY_NAMES, rng.choice([0, 1, 1, 2]))}
    if names:
        doc["descriptor"] = {name: condition(rng, lambda: value(rng, ENTRY_VALUES[1:]) if rng.random() < 0.8 else "") for name in names.values()}


def exception(rng):
    doc = {}
    if rng.random() < 0.7:
        doc["ip"] = one_or_list(rng, some(rng, NETWORKS, 3))
    if rng.random() < 0.5:
        doc["user"] = one_or_list(rng, some(rng, ["u1", "u2", 1001], 2))
    return doc


def rule(rng, number):
    doc = {"id": f"r{number}", "mode": "shadow"}
    conditions = match(rng)
    if conditions:
        doc["match"] = conditions
    if rng.random() < 0.3:
        doc["ignore_case"] = True
    if rng.random() < 0.4:
        names = ["ip", "user", "key", "event", "method", "host", "path", "route"] + [
            "header:" + odd_case(rng, h) for h in HEADERS
        ]
        if rng.random() < 0.3:
            entries = {model_match.entry_of(name): f"descriptor:{name}" for name in ENTRY_NAMES}
            names = ["user", "domain", "descriptor", "descriptor_keys", *entries.values()]
        doc["by"] = one_or_list(rng, rng.sample(names, rng.choice([1, 1, 1, 2, 3])))
    maximum = rng.choice([0, 1, 2, 3]) if "by" in doc else 0
    doc["limits"] = [{"algorithm": "fixed_window", "max": maximum, "per": "3650d"}]
    if rng.random() < 0.2:
        doc["except"] = exception(rng)
    if rng.random() < 0.05:
        doc["mode"] = "off"
    return doc


def settings(rng):
    doc = {}
    if rng.random() < 0.5:
        doc["ignore_case"] = rng.choice([True, False])
    if rng.random() < 0.4:
        doc["ids"] = rng.choice(ID_LISTS)
    if rng.random() < 0.4:
        doc["strip_prefixes"] = rng.choice([["/a"], ["/a/b", "/a"], ["/a", "/a/b"], ["/users", "/A"], "/b"])
    if rng.random() < 0.8:
        doc["trusted_proxies"] = one_or_list(rng, some(rng, NETWORKS, 3))
    if rng.random() < 0.3:
        doc["ipv6_prefix"] = rng.choice([1, 32, 48, 56, 63, 64, 65, 128])
    if rng.random() < 0.15:
        doc["except"] = exception(rng)
    return doc


# ---- requests ----


def path(rng):
    pool = WORDS + IDS + ODD
    segments = [
        rng.choice(SPELLINGS) if rng.random() < 0.25 else rng.choice(pool) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4]))
    ]
    start = ["/", "/", "/", "/", "/", "//", "http://example.com/", "HTTPS://h:80/"]
    if segments and "*" not in segments[0]:  # OPTIONS * has no path
        start.append("")
    text = rng.choice(start) + "/".join(segments)
    return text + rng.choice(["", "", "", "", "/", "?q=/a", "#f", "?a#b", ";x", "?"])


def hop(rng):
    address = rng.choice(ADDRESSES)
    form = rng.random()
    if form < 0.1:
        return rng.choice(UNREADABLE + [""])
    if ":" in address:
        return address if form < 0.5 else f"[{address}]" if form < 0.7 else f"[{address}]:{rng.randrange(65536)}"
    return address if form < 0.7 else f"{address}:{rng.randrange(65536)}"


def forwarded(rng):
    return rng.choice([",", ", ", " ,\t"]).join(hop(rng) for _ in range(rng.randint(1, 4)))


def request(rng):
    doc = {"t": NOW_MS, "method": rng.choice(["GET", "POST", "PUT", "get"])}
    if rng.random() < 0.95:
        doc["path"] = path(rng)
    if rng.random() < 0.5:
        doc["host"] = rng.choice(HOST_SPELLINGS)
    if rng.random() < 0.6:
        doc["user"] = rng.choice(["u1", "u2", "1001", ""])
    if rng.random() < 0.3:
        doc["ip"] = rng.choice(ADDRESSES)
    if rng.random() < 0.8:
        doc["peer"] = rng.choice(ADDRESSES)
    if rng.random() < 0.3:
        doc["event"] = rng.choice(EVENTS)
    if rng.random() < 0.3:
        doc["key"] = rng.choice(["k1", "k2", ""])
    if rng.random() < 0.3:
        doc["domain"] = rng.choice(DOMAINS + [""])
    if rng.random() < 0.6:
        keys = KEYS[: rng.choice([2, len(KEYS)])]
        doc["descriptor"] = [
            {"key": rng.choice(keys), **({} if rng.random() < 0.1 else {"value": rng.choice(ENTRY_VALUES)})} for _ in range(rng.choice([0, 1, 1, 2, 3]))
        ]
    headers = {odd_case(rng, name): rng.choice(VALUES) for name in HEADERS if rng.random() < 0.5}
    for name in rng.sample(["X-Forwarded-For", "x-forwarded-for"], rng.choice([0, 1, 1, 2])):
        headers[name] = forwarded(rng)
    if headers:
        doc["headers"] = headers
    return doc


@pytest.mark.parametrize("seed", range(SEED, SEED + FILES))
def test_random_match(seed):
    rng = random.Random(seed)
    doc = {"settings": settings(rng), "rules": [rule(rng, number) for number in range(RULES)]}
    text = json.dumps(doc) if rng.random() < 0.3 else support.to_yaml(doc, rng)
    requests = [request(rng) for _ in range(REQUESTS)]
    truth = model.Model(doc)
    found = support.simulate(text, requests)
    support.expect(len(found), REQUESTS, f"seed {seed}: verdicts")
    for number, (line, verdict) in enumerate(zip(requests, found)):
        wanted = truth.decide(line, NOW_MS * 1000)
        if verdict != wanted:
            differ = set(verdict["shadow"]) ^ set(wanted["shadow"])
            rules = "\n".join(json.dumps(each) for each in doc["rules"] if each["id"] in differ)
            raise AssertionError(
                f"seed {seed}, request {number}: weir and the model differ\n{json.dumps(line)}\n"
                f"settings {json.dumps(doc['settings'])}\n{rules}\n"
                f"weir:  {json.dumps(verdict)}\nmodel: {json.dumps(wanted)}"
            )
