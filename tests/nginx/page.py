#!/usr/bin/python3
"""What docs/nginx.md and docs/hodor.md show: nginx takes it, and it does what they say.

tests/nginx/page.py BUILD/weir BUILD/nginx/ngx_http_weir_module.so
"""

import base64
import contextlib
import json
import os
import re

from gateway import Gateway, expect, until
from harness import main

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PLACES = {
    "/etc/weir/rules.yaml": "@FOLDER@/rules.yaml",
    "/var/lib/weir/nginx.cells": "@FOLDER@/nginx.cells",
    "/var/log/nginx/access.log": "@FOLDER@/access",
    "/etc/nginx/users": "@FOLDER@/users",
    "127.0.0.1:3000": "@BACKEND@",
}


def text_of(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


PAGE, EXAMPLE = text_of("docs", "nginx.md"), text_of("examples", "gateways", "nginx-module.conf")


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def placed(text):
    for shown, real in PLACES.items():
        text = text.replace(shown, real)
    return text


def gateway():
    """The example with its rules, but for what the harness says itself."""
    http, server = re.search(r"\nhttp \{\n(.*?)\n    server \{\n        listen 8000;\n(.*)\n    \}\n\}\n$", EXAMPLE, re.DOTALL).groups()
    return Gateway(placed(http), placed(server), next(text for text in blocks(PAGE, "yaml") if text.startswith("rules:")))


def shown(_):
    expect(EXAMPLE in blocks(PAGE, "nginx"), True, "docs/nginx.md shows the example")


def a_sixth_login(g):
    expect(g.statuses(5, "/login", "POST"), [200] * 5, "five")
    refused = g.ask("/login", "POST")
    printed = blocks(PAGE, "text")[0]
    for name in ("RateLimit-Policy", "RateLimit", "Retry-After"):
        pattern = re.escape(re.search(rf"^{name}: (.*)$", printed, re.MULTILINE)[1]).replace("120", r"\d+").replace("72", r"\d+")
        expect(bool(re.fullmatch(pattern, refused.headers[name] or "")), True, f"{name}: {refused.headers[name]}")
    expect((refused.status, refused.body.strip()), (429, b"Too many requests"), "the sixth")
    line = re.escape(re.search(r"^127\.0\.0\.1 .*$", printed, re.MULTILINE)[0]).replace("72", r"\d+")
    until(lambda: re.search(f"^{line}$", g.read("access"), re.MULTILINE), "the sixth in the access log")
    expect(g.backend.paths(), ["/login"] * 5, "what the application saw")


def users(g, name):
    g.write("users", "ann:{PLAIN}secret\nbob:{PLAIN}secret\n")
    good, bad = ({"Authorization": "Basic " + base64.b64encode(f"{name}:{word}".encode()).decode()} for word in ("secret", "wrong"))
    expect(g.statuses(3, "/private/reports/7", headers=bad, client="127.0.0.2"), [401] * 3, "a wrong password")
    # From two addresses, each of which has room for a hundred at once.
    found = [g.ask("/private/reports/7", headers=good, client=f"127.0.0.{3 + i % 2}").status for i in range(101)]
    expect(found, [200] * 100 + [429], "a hundred for her")


def users_once_more_if_need_be(g):
    """A natural day may have ended in the middle."""
    try:
        users(g, "ann")
    except AssertionError:
        users(g, "bob")


def the_status(g):
    expect(g.ask("/weir/status", client="127.0.0.9").status, 403, "for others")
    status = json.loads(g.ask("/weir/status").body)
    rows = re.findall(r"^\| (`.*?) \|", PAGE.split("## Watching")[1].split("Prometheus")[0], re.MULTILINE)
    fields = re.findall(r"`(\w+)`", " ".join(rows))
    expect([name for name in fields if name not in status], [], "fields of the table")
    expect([name for name in status if name not in fields], [], "fields of the status")
    metrics = g.ask("/weir/status?format=prometheus").body.decode()
    told = set(re.findall(r"^# TYPE (\w+)", metrics, re.MULTILINE))
    listed = set(re.findall(r"`(weir_\w+)`", PAGE.split("| metric |")[1].split("\n\n")[0]))
    expect(listed, told, "metrics")


def every_block(g):
    """Of both pages: nginx takes it where it belongs."""
    zones = "".join(f"weir_zone {name} 1m rules=@FOLDER@/rules.yaml;\n" for name in ("api", "attempts"))
    for text in blocks(PAGE, "nginx") + blocks(text_of("docs", "hodor.md"), "nginx"):
        text = re.sub(r" *#.*", "", placed(text))
        http, server = zones, "location = /auth { return 204; }\n"
        if text.startswith("weir_zone"):
            http = text
        elif text.startswith("location"):
            server += text
        elif text.startswith("weir "):
            server += "set $plan free;\n" + "".join(f"location /{i} {{ {line} }}\n" for i, line in enumerate(text.splitlines()))
        else:
            continue  # whole files, and load_module, which the harness has
        expect(g.test_config(http=http, server=server), (0, ""), text)


def a_mistake(g):
    """What nginx says of a bad rules file is what the page shows; "…" there is for anything."""
    shown_line = next(text for text in blocks(PAGE, "text") if text.startswith("$ nginx -t")).splitlines()[1]
    pattern = ".*".join(re.escape(part) for part in shown_line.split("…"))
    for old, new in (("/etc/weir", g.folder), ("/etc/nginx/nginx.conf:10", g.path("tried.conf") + r":\d+")):
        pattern = pattern.replace(re.escape(old), new)
    rules = g.read("rules.yaml")
    g.write_rules(rules.replace("20 per 1s burst 100", "20 a second"))
    code, said = g.test_config()
    g.write_rules(rules)
    expect((code, re.search(pattern, said) is not None), (1, True), f"{said}\n{pattern}")


def every_directive(_):
    """What the module knows has its place in the page, and nothing else has."""
    code = "".join(text_of("nginx", name) for name in os.listdir(os.path.join(ROOT, "nginx")) if name.endswith(".c"))
    directives = set(re.findall(r'\{ ngx_string\("(weir\w*)"\), (?:NGX_|ANYWHERE)', code))
    expect(set(re.findall(r"^### (weir\w*)$", PAGE, re.MULTILINE)), directives, "directives")
    variables = set(re.findall(r'\{ ngx_string\("(weir_\w+)"\), VAR_', code))
    expect(set(re.findall(r"^\| `\$(weir_\w+)` \|", PAGE, re.MULTILINE)), variables, "variables")


CASES = [shown, a_sixth_login, users_once_more_if_need_be, the_status, every_block, a_mistake, every_directive]

with contextlib.ExitStack() as stack:
    running = stack.enter_context(gateway())
    named = [(case.__name__.replace("_", " "), lambda case=case: case(running)) for case in CASES]
    main([*named, ("nginx ends well", lambda: stack.pop_all().close())])
