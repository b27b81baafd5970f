"""`weir lint`: every class of error with its line, all at once; bounds; hostile files."""

import json
import os
import re
import tempfile

import support
from support import expect

BIGGEST = 9007199254740991

# What is wrong with a rule, and what the message must speak of. A `~` stands for a line of its own.
BAD_RULES = [
    ("limits: 1 per 1s~    mdoe: shadow", "mdoe"),
    ("limits: 1 per 1s~    limits: 2 per 1s", "limits"),
    ("match: { event: x }", "limits"),
    ("limits: []", "limits"),
    ("limits: 5", "limits"),
    ("limits: 10/60s", "10/60s"),
    ("limits: 10 per 60", "10 per 60"),
    ("limits: 10 per fortnight", "fortnight"),
    ("limits: 10 per day burst 20", "burst"),
    ("limits: -1 per 1s", "-1"),
    ("limits: 1.5 per 1s", "1.5"),
    (f"limits: {BIGGEST + 1} per 1s", str(BIGGEST + 1)),
    ("limits: 99999999999999999999999 per 1s", "99999999999999999999999"),
    ("limits: 1 per 3651d", "3651d"),
    ("limits: 1 per 99999999999999999999d", "99999999999999999999d"),
    ("limits: 1 per 0s", "0s"),
    ("limits: 1 per 0ms", "0ms"),
    ("limits: 1 per 1s burst 0", "burst"),
    (f"limits: 1 per 1s burst {BIGGEST + 1}", "burst"),
    (f"limits: [{{ max: {BIGGEST + 1}, per: 1s }}]", "max"),
    ("limits: [{ max: -1, per: 1s }]", "max"),
    ("limits: [{ max: 1.5, per: 1s }]", "max"),
    ("limits: [{ max: ten, per: 1s }]", "max"),
    ('limits: [{ max: "10", per: 1s }]', "max"),
    ("limits: [{ per: 1s }]", "max"),
    ("limits: [{ max: 1 }]", "per"),
    ("limits: [{ max: 1, per: 87601h }]", "per"),
    ("limits: [{ max: 1, per: 0ms }]", "per"),
    ("limits: [{ max: 1, per: 60 }]", "per"),
    ("limits: [{ max: 1, per: 1s, algorithm: leaky }]", "leaky"),
    ("limits: [{ max: 1, per: 1s, algorithm: fixed_window, burst: 5 }]", "burst"),
    ("limits: [{ max: 1, calendar: day, burst: 5 }]", "burst"),
    ("limits: [{ max: 1, calendar: decade }]", "decade"),
    ("limits: [{ max: 1, calendar: day, per: 1h }]", "per"),
    ("limits: [{ max: 1, calendar: day, tz: Mars/Olympus }]", "Mars/Olympus"),
    ("limits: [{ max: 1, calendar: day, tz: ../../../etc/passwd }]", "tz"),
    ("limits: [{ max: 1, per: 1h, tz: Asia/Shanghai }]", "tz"),
    ("limits: [{ max: 1, calendar: day, week_start: sunday }]", "week_start"),
    ("limits: [{ max: 1, calendar: week, week_start: sun }]", "week_start"),
    ("limits: [{ name: a, max: 1, per: 1s }, { name: a, max: 2, per: 1m }]", "name"),
    ("limits: [{ name: '', max: 1, per: 1s }]", "name"),
    ("limits: [{ name: 'a\"b', max: 1, per: 1s }]", "name"),
    ("limits: [{ max: 1, per: 1s, wieght: 2 }]", "wieght"),
    ("limits: 1 per 1s~    mode: on", "mode"),
    ("limits: 1 per 1s~    mode: dry-run", "mode"),
    ("limits: 1 per 1s~    by: [colour]", "colour"),
    ("limits: 1 per 1s~    by: [user, user]", "user"),
    ("limits: 1 per 1s~    by: ['header:']", "header"),
    ("limits: 1 per 1s~    expires: 2027-01-01", "expires"),
    ("limits: 1 per 1s~    expires: tomorrow", "expires"),
    ("limits: 1 per 1s~    expires: 2027-02-30T00:00:00Z", "expires"),
    ("limits: 1 per 1s~    match: { colour: red }", "colour"),
    ("limits: 1 per 1s~    match: []", "match"),
    ("limits: 1 per 1s~    match:", "leave out `match`"),
    ("limits: 1 per 1s~    match: {}", "leave out `match`"),
    ("limits: 1 per 1s~    match: { user: { not: } }", "user.not"),
    ("limits: 1 per 1s~    match: { ip: [10.0.0.0/8, 300.0.0.1] }", "ip[1]"),
    ("limits: 1 per 1s~    match: { key: { glob: '*' } }", "present"),
    ("limits: 1 per 1s~    match: { header: { X-A: { absent: false } } }", "absent"),
    ("limits: 1 per 1s~    match: { path: }", "path"),
    ("limits: 1 per 1s~    match: { event: '' }", "event"),
    ("limits: 1 per 1s~    match: { method: 'G T' }", "method"),
    ("limits: 1 per 1s~    match: { path: [] }", "path"),
    ("limits: 1 per 1s~    match: { path: users }", "users"),
    ("limits: 1 per 1s~    match: { path: '/a*b' }", "/a*b"),
    ("limits: 1 per 1s~    match: { path: '/*/b' }", "/*/b"),
    ("limits: 1 per 1s~    match: { path: '/v#' }", "/v#"),
    ("limits: 1 per 1s~    match: { path: '/a?b' }", "/a?b"),
    ("limits: 1 per 1s~    match: { path: '/a;b' }", "/a;b"),
    ("limits: 1 per 1s~    match: { path: '/a/../b' }", "/a/../b"),
    ("limits: 1 per 1s~    match: { path: { regex: '(' } }", "regular"),
    ("limits: 1 per 1s~    match: { path: { regexp: '/a' } }", "regexp"),
    ("limits: 1 per 1s~    match: { host: 'a b' }", "host"),
    ("limits: 1 per 1s~    match: { host: 'a.*.example.com' }", "host"),
    ("limits: 1 per 1s~    match: { header: { 'X Y': a } }", "header"),
    ("limits: 1 per 1s~    match: { header: { X: } }", "header"),
    ("limits: 1 per 1s~    except: { ip: [10.0.0.0/33] }", "10.0.0.0/33"),
    ("limits: 1 per 1s~    except: { ip: [10.0.0] }", "10.0.0"),
    ("limits: 1 per 1s~    except: { ip: ['fd00::/129'] }", "fd00::/129"),
    ("limits: 1 per 1s~    except: { group: [a] }", "group"),
    ("limits: 1 per 1s~    reject: { status: 200 }", "status"),
    ("limits: 1 per 1s~    reject: { status: 600 }", "status"),
    ("limits: 1 per 1s~    reject: { status: many }", "status"),
    ('limits: 1 per 1s~    reject: { headers: { X-A: "a\\r\\nB: c" } }', "headers"),
    ('limits: 1 per 1s~    reject: { headers: { "X:A": a } }', "headers"),
    ("limits: 1 per 1s~    reject: { headers: { Content-Length: 5 } }", "headers"),
    ('limits: 1 per 1s~    reject: { content_type: "text/plain\\nX: y" }', "content_type"),
    ("limits: 1 per 1s~    reject: teapot", "reject"),
    ("limits: 1 per 1s~    counters: redis", "counters"),
    ("limits: 1 per day~    lease: sometimes", "lease"),
    ("limits: 1 per day~    lease: { slice: 5 }", "percent sign"),
    ("limits: 1 per day~    lease: { slice: 101% }", "slice"),
    ("limits: 1 per day~    lease: { ttl: 99ms }", "100ms"),
    ("limits: 1 per day~    lease: { tll: 1s }", "tll"),
    ("limits: 1 per day~    counters: local~    lease: true", "counters: local"),
    ("limits: [{ name: rate, max: 1, per: 1s }]~    lease: true", "`rate` is a token_bucket"),
    ("limits: 1 per 1s~    on_store_failure: refuse", "on_store_failure"),
]

BAD_SETTINGS = [
    ("ids: ['(']", "ids"),
    ("ignore_case: maybe", "ignore_case"),
    ("trusted_proxies: [10.0.0.0/33]", "10.0.0.0/33"),
    ("ipv6_prefix: 0", "ipv6_prefix"),
    ("strip_prefixes: [api]", "strip_prefixes"),
    ("except: { ip: [nonsense] }", "nonsense"),
    ("reject: { status: 42 }", "status"),
    ("colour: red", "colour"),
]


def lint(text):
    """(exit status, lines of output); the file is called `f`."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "f"), "wb") as out:
            out.write(text if isinstance(text, bytes) else text.encode())
        done = support.weir("lint", "f", cwd=folder)
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace").splitlines()


def test_every_error_at_once():
    lines, wanted = ["settings:"], {}
    for text, about in BAD_SETTINGS:
        lines.append("  " + text)
        wanted[len(lines)] = ("settings", about)
    lines.append("rules:")
    for number, (text, about) in enumerate(BAD_RULES):
        lines.append(f"  - id: r{number}")
        first = len(lines)
        lines += ("    " + text).split("~")
        wanted[len(lines) if about not in ("limits",) else (first, len(lines))] = (f"rule r{number}", about)
    status, found = lint("\n".join(lines) + "\n")
    expect(status, 1)
    for place, (who, about) in wanted.items():
        allowed = place if isinstance(place, tuple) else (place,)
        hits = [
            line for line in found if line.startswith(tuple(f"f:{n}: {who}: " for n in range(allowed[0], allowed[-1] + 1)))
        ]
        if not any(about in line for line in hits):
            said = "\n".join(line for line in found if f" {who}: " in line)
            raise AssertionError(f"line {place}: no error of {who} about {about!r}: {lines[allowed[-1] - 1]}\n{said}")
    strays = [line for line in found if not re.match(r"f:\d+: (settings|rule r\d+): ", line)]
    expect(strays, [], "lines that name no place")
    expect(len(found), len(wanted), "one line for each error\n" + "\n".join(found))


def test_ids():
    status, found = lint(
        "rules:\n  - limits: 1 per 1s\n  - { id: a, limits: 1 per 1s }\n  - { id: b, limits: 1 per 1s }\n"
        "  - { id: a, limits: 1 per 1s }\n  - { id: ' x', limits: 1 per 1s }\n"
        f"  - {{ id: {'x' * 101}, limits: 1 per 1s }}\n  - {{ id: '', limits: 1 per 1s }}\n  - just text\n"
    )
    expect(status, 1)
    expect([line.split(":")[1] for line in found], ["2", "5", "6", "7", "8", "9"], "\n".join(found))
    expect("rule #1" in found[0] and '"a"' in found[1] or "rule a" in found[1], True, found[1])


def test_good_files():
    expect(lint("rules: []\n")[0], 0)
    expect(lint('{"rules": [{"id": "a", "limits": ["1 per 1s"]}]}')[0], 0)
    edges = f"""
rules:
  - id: {"x" * 100}
    limits: [ "{BIGGEST} per 3650d burst {BIGGEST}", "0 per 1ms", "1 per 87600h", {{ name: {"n" * 50}, max: 0, per: 1ms }} ]
"""
    expect(lint(edges)[0], 0, "the largest and the smallest that are allowed")
    status, found = lint("rules:\n  - id: a\n    limits: [ 1 per 1s, 2 per 1m ]\n")
    expect(
        (status, any("token_bucket-2" in line for line in found)), (0, True), "advice to name limits: " + "\n".join(found)
    )
    status, found = lint("rules:\n  - { id: a, limits: 1 per 1s, counters: local, on_store_failure: deny }\n")
    said = any("advice: on_store_failure: has no effect" in line for line in found)
    expect((status, said), (0, True), "advice to leave it out: " + "\n".join(found))


def test_a_file_that_says_nothing():
    """It is rather half written than a wish for no limits."""
    for text in ("", "\n", "# nothing yet\n"):
        status, found = lint(text)
        expect((status, found[0].startswith("f:1: ")), (1, True), "\n".join(found))


def test_unreadable():
    """One clear error with a line, never a crash."""
    deep = "a: " + "[" * 200 + "]" * 200
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(12)
    )
    texts = {
        "syntax": "rules:\n  - id: a\n   limits: 1\n",
        "deep": deep,
        "deeper": "[" * 100_000,
        "deep JSON": '{"rules":' + "[" * 50_000,
        "alias bomb": bomb,
        "alias of itself": "a: &a [*a]\n",
        "invalid UTF-8": b"rules:\n  - id: \xff\xfe\n    limits: 1 per 1s\n",
        "NUL": b"rules:\n  - id: a\0b\n    limits: 1 per 1s\n",
        "binary": bytes(range(256)) * 100,
        "escaped NUL": 'rules: [{ id: "a\\0", limits: 1 per 1s }]',
        "NUL in JSON": '{"rules": [{"id": "\\u0000", "limits": []}]}',
        "a list": "- id: a\n",
        "a word": "rules\n",
        "two documents": "rules: []\n---\nrules: []\n",
        "merge key": "a: &a {b: c}\n<<: *a\n",
        "tag": "rules: !!set {}\n",
        "cut JSON": '{"rules": [{"id": "a", "limits": ["1 per 1s"]',
        "after JSON": '{"rules": []} x',
        "escape in JSON": '{"rules": [{"id": "\\ud800", "limits": ["1 per 1s"]}]}',
    }
    for what, text in texts.items():
        status, found = lint(text)
        expect(status, 1, f"{what}: {found}")
        expect(bool(found) and re.match(r"f:\d+: ", found[0]) is not None, True, f"{what}: {found}")
        expect(any("Sanitizer" in line for line in found), False, what)


def test_nesting():
    """Rules are ten levels deep at most: more is an error in its place, and not of the parser."""
    status, found = lint("rules:\n  - id: a\n    limits: 1 per 1s\n    match: " + "{ path: " * 10 + "/x" + " }" * 10 + "\n")
    expect((status, found[0].startswith("f:4: rule a: match.path")), (1, True), "\n".join(found))


def test_large_strings():
    megabyte = "x" * 1_000_000
    for field in (
        f"id: {megabyte}\n    limits: 1 per 1s",
        f"id: a\n    limits: {megabyte}",
        f"id: a\n    limits: 1 per 1s\n    {megabyte}: 1",
        f"id: a\n    limits: 1 per 1s\n    match: {{ path: /{megabyte} }}",
        f"id: a\n    limits: 1 per 1s\n    match: {{ path: {{ regex: {megabyte} }} }}",
        f"id: a\n    limits: 1 per 1s\n    reject: {{ body: {megabyte} }}",
        f"id: a\n    limits: [{{ max: 1, calendar: day, tz: {megabyte} }}]",
    ):
        status, found = lint(f"rules:\n  - {field}\n")
        expect((status, len(found)), (1, 1), field[:60])
        expect(len(found[0]) < 2000, True, f"an error that can be read: {len(found[0])} bytes")


def test_twenty_thousand_rules():
    rules = [
        {
            "id": f"r{n}",
            "match": {"method": "GET", "path": f"/v1/{n % 100}/things{n}/#/{{x}}"},
            "by": ["user"],
            "limits": ["10 per 60s", {"name": "day", "calendar": "day", "max": 100, "tz": "Asia/Shanghai"}],
        }
        for n in range(20_000)
    ]
    text = "rules:\n" + "".join(f"  - {json.dumps(rule)}\n" for rule in rules)
    expect(lint(text), (0, ["f: 20000 rules, ok"]))
    request = {"t": 0, "method": "GET", "path": "/v1/77/things12377/5/y", "user": "u"}
    expect([verdict["rule"] for verdict in support.simulate(text, [request] * 3)], ["r12377"] * 3)


def test_several_files():
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("good", "rules: []\n"), ("bad", "rules: 5\n")):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
                out.write(text)
        done = support.weir("lint", "good", "bad", "missing", cwd=folder)
        expect(done.returncode, 1)
        said = (done.stdout + done.stderr).decode()
        for each in ("good: 0 rules, ok", "bad:1: ", "missing: "):
            expect(each in said, True, f"{each}: {said}")
    expect(support.weir("lint").returncode, 2, "no file")
