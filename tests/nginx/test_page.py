"""What docs/nginx.md and docs/hodor.md show: nginx takes it, and it does what they say."""

import base64
import json
import os
import re
import shlex
import subprocess
import tempfile

import pytest

from support import DEADLINE_S, ENVIRONMENT, ROOT, WEIR, expect, until, weir
from support.gateway import Gateway
from support.service import Service
from support.store import Store

PLACES = {
    "/etc/weir": "@FOLDER@",
    "/var/lib/weir/nginx.cells": "@FOLDER@/nginx.cells",
    "/var/log/nginx/access.log": "@FOLDER@/access",
    "/etc/nginx/users": "@FOLDER@/users",
    "127.0.0.1:3000": "@BACKEND@",
}
USERS = "ann:{PLAIN}secret\nbob:{PLAIN}secret\n"


def text_of(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


PAGE = text_of("docs", "nginx.md")
EXAMPLE, RULES = text_of("examples", "gateways", "nginx-module.conf"), text_of("examples", "gateways", "nginx-rules.yaml")


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def block(language, beginning):
    """The one that begins so."""
    return next(text for text in blocks(PAGE, language) if text.startswith(beginning))


def pattern_of(text, *numbers):
    """For what the page shows: "…" is for anything, and so are these numbers."""
    pattern = ".*".join(re.escape(part) for part in text.split("…"))
    for number in numbers:
        pattern = pattern.replace(number, r"\d+")
    return pattern


def placed(text):
    for shown, real in PLACES.items():
        text = text.replace(shown, real)
    return text


def example():
    """The example with its rules, but for what the Gateway says itself."""
    http, server = re.search(r"\nhttp \{\n(.*?)\n    server \{\n        listen 8000;\n(.*)\n    \}\n\}\n$", EXAMPLE, re.DOTALL).groups()
    return Gateway(placed(http), placed(server), RULES)


@pytest.fixture(scope="module", name="g")
def gateway():
    with example() as running:
        yield running


def test_shown():
    expect((EXAMPLE in blocks(PAGE, "nginx"), RULES in blocks(PAGE, "yaml")), (True, True), "docs/nginx.md shows the example")


def test_a_sixth_login(g):
    curl = {"User-Agent": "curl/7.88.1"}
    expect(g.statuses(5, "/login", "POST", headers=curl), [200] * 5, "five")
    refused = g.ask("/login", "POST", headers=curl)
    printed = block("text", "$ curl -si -X POST")
    for name in ("RateLimit-Policy", "RateLimit", "Retry-After"):
        pattern = pattern_of(re.search(rf"^{name}: (.*)$", printed, re.MULTILINE)[1], "120", "72")
        expect(bool(re.fullmatch(pattern, refused.headers[name] or "")), True, f"{name}: {refused.headers[name]}")
    expect((refused.status, refused.body.strip()), (429, b"Too many requests"), "the sixth")
    line = pattern_of(re.sub(r"\[.*?\]", "[…]", re.search(r"^127\.0\.0\.1 .*$", printed, re.MULTILINE)[0]), "72")
    until(lambda: re.search(f"^{line}$", g.read("access"), re.MULTILINE), "the sixth in the access log")
    until(lambda: re.search(pattern_of(block("text", "weir: refused").strip(), "72"), g.read("errors")), "and in the error log")
    expect(g.backend.paths(), ["/login"] * 5, "what the application saw")


def test_simulated():
    """weir simulate reads the example's access log, and finds what was decided."""
    with example() as g:
        expect(g.statuses(6, "/login", "POST"), [200] * 5 + [429], "six logins")
        until(lambda: g.read("access").count("\n") == 6, "they are in the log")
        done = weir("simulate", "--rules", g.path("rules.yaml"), "--format", "combined", "--json", g.path("access"))
    expect((done.returncode, done.stderr), (0, b""), "weir simulate")
    found = json.loads(done.stdout)
    expect([found[name] for name in ("requests", "passed", "refused")], [6, 5, 1], "the logins")


def users(g, name):
    g.write("users", USERS)
    good, bad = ({"Authorization": "Basic " + base64.b64encode(f"{name}:{word}".encode()).decode()} for word in ("secret", "wrong"))
    expect(g.statuses(3, "/private/reports/7", headers=bad, client="127.0.0.2"), [401] * 3, "a wrong password")
    # From two addresses, each of which has room for a hundred at once.
    found = [g.ask("/private/reports/7", headers=good, client=f"127.0.0.{3 + i % 2}").status for i in range(101)]
    expect(found, [200] * 100 + [429], "a hundred for her")


def test_users_once_more_if_need_be(g):
    """A natural day may have ended in the middle."""
    try:
        users(g, "ann")
    except AssertionError:
        users(g, "bob")


def test_the_status(g):
    expect(g.ask("/weir/status", client="127.0.0.9").status, 403, "for others")
    status = json.loads(g.ask("/weir/status").body)
    rows = re.findall(r"^\| (`.*?) \|", PAGE.split("## Watching")[1].split("Prometheus")[0], re.MULTILINE)
    fields = re.findall(r"`(\w+)`", " ".join(rows))
    expect([name for name in fields if name not in status], [], "fields of the table")
    expect([name for name in status if name not in fields], [], "fields of the status")
    printed = json.loads(block("text", "$ curl -s http://127.0.0.1:8000/weir/status").split("\n", 1)[1])
    for name in ("rules", "table", "decisions"):
        expect(list(printed[name]), list(status[name]), name)
    metrics = g.ask("/weir/status?format=prometheus").body.decode()
    told = set(re.findall(r"^# TYPE (\w+)", metrics, re.MULTILINE))
    listed = set(re.findall(r"`(weir_\w+)`", PAGE.split("| metric |")[1].split("\n\n")[0]))
    expect(listed, told, "metrics")


def test_every_block(g):
    """Of both pages: nginx takes it where it belongs."""
    zones = "".join(f"weir_zone {name} 1m rules=@FOLDER@/rules.yaml;\n" for name in ("api", "attempts", "failures"))
    for text in blocks(PAGE, "nginx") + blocks(text_of("docs", "hodor.md"), "nginx"):
        text = re.sub(r" *#.*", "", placed(text))
        http, server = zones, "location = /auth { return 204; }\n"
        if text.startswith("weir_zone"):
            http = text
        elif text.startswith("geo"):
            more, _, text = text.partition("server {\n")
            http, server = http + more, server + text.rstrip().removesuffix("}")
        elif text.startswith("location"):
            server += text
        elif text.startswith("weir "):
            server += "set $plan free;\n" + "".join(f"location /{i} {{ {line} }}\n" for i, line in enumerate(text.splitlines()))
        else:
            continue  # whole files, and load_module, which the Gateway has
        expect(g.test_config(http=http, server=server), (0, ""), text)


def test_a_mistake(g):
    """What nginx says of a bad rules file is what the page shows; "…" there is for anything."""
    pattern = pattern_of(block("text", "$ nginx -t").splitlines()[1])
    for old, new in (("/etc/weir", g.folder), ("/etc/nginx/nginx.conf:11", g.path("tried.conf") + r":\d+")):
        pattern = pattern.replace(re.escape(old), new)
    rules = g.read("rules.yaml")
    g.write_rules(rules.replace("20 per 1s burst 100", "20 a second"))
    code, said = g.test_config()
    g.write_rules(rules)
    expect((code, re.search(pattern, said) is not None), (1, True), f"{said}\n{pattern}")


def test_rules_of_the_page(g):
    for i, text in enumerate(text for text in blocks(PAGE, "yaml") if text.startswith("rules:")):
        g.write(f"page{i}.yaml", text)
        done = weir("lint", g.path(f"page{i}.yaml"))
        expect((done.returncode, done.stderr), (0, b""), text)


def shell(g, text):
    """What a block does in the gateway's folder; the output."""
    path = os.path.dirname(WEIR) + ":" + os.environ["PATH"]
    done = subprocess.run(["bash", "-eu"], input=g.fill(placed(text)), cwd=g.folder, env={**ENVIRONMENT, "PATH": path}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE_S, check=False)
    expect(done.returncode, 0, f"{text}\n{done.stdout}")
    return done.stdout


def test_a_changed_file(g):
    g.write("new.yaml", RULES)
    os.chmod(g.path("new.yaml"), 0o600)
    shell(g, block("sh", "weir lint new.yaml"))
    expect(os.stat(g.path("rules.yaml")).st_mode & 0o777, 0o644, "mode of the rules")


def test_throttle_one_call_now(g):
    """Asked from addresses of their own, which have room for many questions."""
    shell(g, block("sh", "cd /etc/weir"))
    until(lambda: g.ask("/export/7", client="127.0.0.5").status == 429, "/export/7 is throttled")
    told = pattern_of(block("text", "weir: zone").strip(), "4")  # of changes in quick succession nginx may tell one
    until(lambda: re.search(told, g.read("errors")), "told in the error log")
    expect(g.ask("/search", client="127.0.0.6").status, 200, "/search")
    # Line by line, each as a user sees it.
    export, *steps = block("sh", "export WEIR_FROM").splitlines()
    for step, wanted in zip(steps, (200, 429, 429, 200), strict=True):
        shell(g, f"{export}\n{step}")
        until(lambda wanted=wanted: g.ask("/search", client="127.0.0.6").status == wanted, step)


def test_free_again(g):
    g.write("users", USERS)
    until(lambda: not asked_as(g, "ann"), "she has used all")
    flags = shlex.split(g.fill(placed(block("sh", "weir serve"))).replace("\\\n", ""))[2:]
    with Service(*without("--data", without("--admin", flags)), rules=False) as service:
        call = block("sh", "curl -si -X DELETE")
        said = shell(g, call.replace("127.0.0.1:8091", "{}:{}".format(*service.admin)).replace("/run/weir-free", service.data))
        expect("204 No Content" in said, True, said)
    expect(asked_as(g, "ann"), True, "free")


def test_many_hosts():
    """The page's service and zone, with a store, on the same cells."""
    rules = next(text for text in blocks(PAGE, "yaml") if "lease: true" in text)
    server = "location / { weir api; proxy_pass http://@BACKEND@; }"
    with Store() as store, tempfile.TemporaryDirectory() as folder:
        places = {"/etc/weir": folder, "/var/lib/weir": folder, "redis://127.0.0.1:6379/0": store.address}

        def at(text):
            return re.sub("|".join(places), lambda found: places[found[0]], text)

        with open(os.path.join(folder, "rules.yaml"), "w", encoding="utf-8") as out:
            out.write(rules)
        command = at(block("sh", "# before nginx").partition("\nweir serve ")[2].replace("\\\n", ""))
        with Service(*without("--data", shlex.split(command)), rules=False), Gateway(at(block("nginx", "weir_zone")), server) as g:

            def slice_came():
                """A host that has yet to reach the store lets a request through without it."""
                expect(g.ask("/v1/a", headers={"X-Api-Key": "k"}).status, 200, "a request")
                return store.ask("KEYS", "weir:*:keys:*")

            until(slice_came, "a slice", pause=0.1)


def without(name, flags):
    at = flags.index(name)
    return flags[:at] + flags[at + 2 :]


def asked_as(g, name):
    word = {"Authorization": "Basic " + base64.b64encode(f"{name}:secret".encode()).decode()}
    return g.ask("/private/reports/7", headers=word, client="127.0.0.7").status == 200


def test_every_directive():
    """What the module knows has its place in the page, and nothing else has."""
    code = "".join(text_of("nginx", name) for name in os.listdir(os.path.join(ROOT, "nginx")) if name.endswith(".c"))
    directives = set(re.findall(r'\{ ngx_string\("(weir\w*)"\), (?:NGX_|ANYWHERE)', code))
    expect(set(re.findall(r"^### (weir\w*)$", PAGE, re.MULTILINE)), directives, "directives")
    variables = set(re.findall(r'\{ ngx_string\("(weir_\w+)"\), VAR_', code))
    expect(set(re.findall(r"^\| `\$(weir_\w+)` \|", PAGE, re.MULTILINE)), variables, "variables")


def test_nginx_ends_well(g):
    g.stop()


def test_failed_logins():
    """The sixth attempt after five failures is refused; successes do not count."""
    http, server = re.search("`(weir_zone failures .*?;)`", PAGE)[1], block("nginx", "location = /login {\n    weir failures")
    rules = block("yaml", "rules:\n  - id: failed-logins")
    with Gateway(placed(http), placed(server), {"failures": rules}) as g:
        def attempt(status):
            g.backend.answers["/login"] = (status, {}, b"")
            return g.ask("/login", "POST").status

        def counted():
            return sum(request.path == "/login" for request in g.backend.seen)

        for _ in range(10):
            expect(attempt(200), 200, "a success")
        for i in range(5):
            expect(attempt((401, 403)[i % 2]), (401, 403)[i % 2], f"failure {i + 1}")
        until(lambda: attempt(200) == 429, "five failures are enough")
        before = counted()
        expect(attempt(401), 429, "the sixth")
        expect(counted(), before, "the upstream does not see it")
        expect(g.ask("/login", "GET").status != 429, True, "another method")
