"""Every attribute of the table in src/rules/attributes.h, at every front end: rules match it and count by it, whichever way it
came. A new attribute that a front end, a document or a client does not know fails here."""

import contextlib
import json
import os
import re
import tempfile
import urllib.parse

from support import expect, simulate, weir
from support.attribute_table import ALL_IN_MATCH, FIELDS, HEADER, IN_BY, IN_MATCH, SOURCE
from support.service import Service
from support.store import Store
from support.wire import Wire

LIMIT = {"algorithm": "fixed_window", "max": 1, "per": "1h"}


def by(attribute):
    return {"id": f"by-{attribute}", "by": [attribute.word()], "limits": [LIMIT]}


def match(attribute):
    return {"id": f"match-{attribute}", "match": attribute.condition(attribute.values()[0]), "limits": [LIMIT]}


def document(*rules):
    return json.dumps({"rules": rules})


def request(attribute, value):
    """As JSON."""
    entry = attribute.entry(value)
    if entry:
        return {"descriptor": [{"key": entry[0], "value": entry[1]}]}
    return {"headers": {HEADER: value}} if attribute.name == "header" else {attribute.set_by(): value}


def pair(attribute, value):
    """As words of a command in RESP."""
    entry = attribute.entry(value)
    if entry:
        return f"descriptor:{entry[0]}", entry[1]
    return attribute.word() if attribute.name == "header" else attribute.set_by(), value


def flags(attribute, value):
    if attribute.entry(value):
        return ["--descriptor", "=".join(attribute.entry(value))]
    return ["--header", f"{HEADER}={value}"] if attribute.name == "header" else [f"--{attribute.set_by()}", value]


# ---- front ends: functions of (attribute, value) that give (allowed, rule) ----


class Command:
    """weir check, with one cells file."""

    def __init__(self, rules):
        self.folder = tempfile.TemporaryDirectory()
        self.words = ["--rules", self.file("rules"), "--cells", self.file("cells")]
        with open(self.file("rules"), "w", encoding="utf-8") as out:
            out.write(rules)

    def file(self, name):
        return os.path.join(self.folder.name, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def run(self, command, attribute, value):
        done = weir(command, *self.words[: 2 if command == "explain" else None], *flags(attribute, value))
        expect(done.returncode in (0, 1), True, done.stderr.decode())
        return done.stdout.decode()

    def __call__(self, attribute, value):
        verdict = json.loads(self.run("check", attribute, value))
        return verdict["allowed"], verdict["rule"]


def asked_over_http(s, attribute, value):
    verdict = s.check(**request(attribute, value)).json()
    return verdict["allowed"], verdict["rule"]


def asked_over_resp(wire, attribute, value):
    allowed, rule = wire.ask("WEIR.CHECK", *pair(attribute, value))[:2]
    return bool(allowed), rule


@contextlib.contextmanager
def over_http(rules):
    with Service(rules=rules) as s:
        yield lambda attribute, value: asked_over_http(s, attribute, value)


@contextlib.contextmanager
def over_resp(rules):
    with Service(rules=rules) as s, Wire(s) as wire:
        yield lambda attribute, value: asked_over_resp(wire, attribute, value)


def counts(ask, attribute):
    """It counts by the attribute, and each value by itself."""
    one, two = attribute.values()
    rule = f"by-{attribute}"
    found = [ask(attribute, value) for value in (one, one, two)]
    expect(found, [(True, rule), (False, rule), (True, rule)], f"by: {attribute}")


def matches(ask, attribute):
    """It matches one value, and no other."""
    one, two = attribute.values()
    rule = f"match-{attribute}"
    found = [ask(attribute, value) for value in (two, one, one)]
    expect(found, [(True, None), (True, rule), (False, rule)], f"match: {attribute}")


def walk(make):
    """`make` gives the front end of a service with these rules."""
    for attribute in IN_BY:
        with make(document(by(attribute))) as ask:
            counts(ask, attribute)
    for attribute in IN_MATCH:
        with make(document(match(attribute))) as ask:
            matches(ask, attribute)


def test_command():
    """weir check."""
    walk(Command)


def test_http():
    walk(over_http)


def test_resp():
    walk(over_resp)


def test_in_simulate():
    for attribute in IN_BY:
        lines = [{"t": 1000 * i, **request(attribute, attribute.values()[v])} for i, v in enumerate((0, 0, 1))]
        found = [(verdict["allowed"], verdict["rule"]) for verdict in simulate(document(by(attribute)), lines)]
        expect(found, [(True, f"by-{attribute}"), (False, f"by-{attribute}"), (True, f"by-{attribute}")], f"by: {attribute}")
    for attribute in IN_MATCH:
        lines = [{"t": 1000 * i, **request(attribute, attribute.values()[v])} for i, v in enumerate((1, 0))]
        found = [verdict["rule"] for verdict in simulate(document(match(attribute)), lines)]
        expect(found, [None, f"match-{attribute}"], f"match: {attribute}")


def test_from_the_peer():
    """The one attribute that rules do not see is the address of the client, where there is no other."""
    unseen = [attribute for attribute in FIELDS if not attribute.uses & {"IN_BY", "IN_MATCH"}]
    expect([str(attribute) for attribute in unseen], ["peer"])
    rules = document({"id": "by-peer", "by": ["ip"], "limits": [LIMIT]})
    for make in (Command, over_http, over_resp):
        with make(rules) as ask:
            counts(ask, unseen[0])


# ---- what is said of it ----


def test_in_explain():
    """Weir explain."""
    for attribute in IN_BY:
        value = attribute.values()[0]
        with Command(document(by(attribute))) as command:
            text = command.run("explain", attribute, value)
        label = {"ip": "client", "header": rf"header +{HEADER}:", "route": "path"}.get(attribute.name, attribute.name)
        shown = re.escape(value)
        if attribute.entry(value):
            label, shown = "entry", re.escape("=".join(attribute.entry(value)))
        expect(bool(re.search(rf"^  {label} +{shown}$", text, re.MULTILINE)), True, f"{attribute}:\n{text}")
        expect(f"counts for {attribute.word().replace(':', ' ')} {value}\n" in text, True, f"by {attribute}:\n{text}")
    for attribute in IN_MATCH:
        with Command(document(match(attribute))) as command:
            text = command.run("explain", attribute, attribute.values()[1])
        expect(f"the {attribute} " in text, True, f"match {attribute}:\n{text}")


def test_at_the_admin_api():
    """Explained, told of, and set free."""
    for attribute in IN_BY:
        one, two = attribute.values()
        rules = [by(attribute)] + ([match(attribute)] if attribute in IN_MATCH else [])
        with Service(rules=document(*rules)) as s:
            name = "header" if attribute.name == "header" else attribute.set_by()
            query = {name: f"{HEADER}:{two}" if name == "header" else two}
            entry = attribute.entry(two)
            if entry:
                query = {"descriptor": "=".join(entry)}
            found = s.steer("GET", "/v1/explain?" + urllib.parse.urlencode(query)).json()
            if entry:
                expect(found["request"]["descriptor"], [{"key": entry[0], "value": entry[1]}], f"{attribute}: {found}")
            elif name != "header":
                expect(found["request"]["client" if name == "ip" else attribute.name], two, f"{attribute}: {found}")
            expect(found["rules"][0]["by"], [{"name": attribute.word(), "value": two}], f"by {attribute}: {found}")
            if attribute in IN_MATCH:
                expect(found["rules"][1]["reason"], attribute.name, f"match {attribute}: {found}")
            expect([asked_over_http(s, attribute, one)[0] for _ in range(2)], [True, False])
            shown = s.steer("GET", "/v1/top").json()["subjects"][0]["by"][0]["name"]
            expect(shown, attribute.word(), "the most refused")
            subject = urllib.parse.urlencode({"rule": f"by-{attribute}", "by": one})
            if attribute not in IN_MATCH:
                expect(s.steer("DELETE", f"/v1/subjects?{subject}").status, 204, f"set free: {attribute}")
                expect(asked_over_http(s, attribute, one)[0], True, f"set free: {attribute}")


def test_behind_a_store():
    """A request that waits for the store is copied: its refusal still names the subject."""
    attributes = [attribute for attribute in IN_BY if attribute.name not in ("route", "descriptor_keys")]
    words = ("--store-deadline", "10s", "--counters")
    with Store() as store, Service(*words, store.address, rules=document(*map(by, attributes))) as s, Wire(s) as wire:
        for attribute in attributes:
            counts(lambda *asked: asked_over_resp(wire, *asked), attribute)
            expect(list(s.events("refused")[-1]["by"]), [attribute.word()], f"{attribute}")


def test_in_sources():
    """weir rules: conditions are set and shown."""
    with tempfile.TemporaryDirectory() as folder:
        address = ["--from", f"sqlite:{folder}/rules.db"]
        expect(weir("rules", "init", *address).returncode, 0)
        for attribute in IN_MATCH:
            if attribute.name in ("header", "descriptor"):
                continue
            one, two = attribute.values()
            done = weir("rules", "add", *address, "-", stdin=json.dumps({**match(attribute), "by": ["ip"]}).encode())
            expect(done.returncode, 0, done.stderr.decode())
            done = weir("rules", "set", *address, f"match-{attribute}", f"{attribute}={two}")
            expect(done.returncode, 0, done.stderr.decode())
            shown = weir("rules", "list", *address).stdout.decode().split("\n\n")[0]  # below: the name of the folder
            expect(two in shown and one not in shown, True, f"{attribute}: {shown}")


# ---- documents and clients ----


def read(*names):
    with open(os.path.join(SOURCE, *names), encoding="utf-8") as file:
        return file.read()


def test_in_the_documents():
    api = json.loads(read("src", "serve", "openapi.json"))
    schemas = api["components"]["schemas"]
    parameters = [parameter["name"] for parameter in api["paths"]["/v1/explain"]["get"]["parameters"]]
    for attribute in FIELDS:
        name = attribute.name
        for schema in ("Request", "Refund"):
            expect(name in schemas[schema]["properties"], True, f"openapi.json: {schema}: {name}")
        expect(name in parameters, True, f"openapi.json: /v1/explain: {name}")
        for page in ("weir-check.1", "weir-explain.1"):
            expect(f".It Fl -{name} Ar " in read("man", page), True, f"man/{page}: --{name}")
        for page in ("service.md", "simulate.md"):
            expect(bool(re.search(rf"`[^`]*\b{name}\b[^`]*`", read("docs", page))), True, f"docs/{page}: {name}")
    for attribute in IN_BY:
        expect(bool(re.fullmatch(schemas["By"]["pattern"], attribute.word())), True, f"openapi.json: By: {attribute}")
        expect(f"`{attribute}" in read("docs", "rules.md"), True, f"docs/rules.md: {attribute}")
    for attribute in ALL_IN_MATCH:
        name = attribute.name
        expect(f"`{name}" in read("docs", "rules.md"), True, f"docs/rules.md: {name}")
        expect(name in schemas["Rule"]["properties"]["match"]["properties"], True, f"openapi.json: match: {name}")
        expect(name in schemas["ExplainedRule"]["properties"]["reason"]["enum"], True, f"openapi.json: reason: {name}")


def test_in_the_clients():
    """Clients."""
    names = [attribute.name for attribute in FIELDS]
    structure = re.search(r"\*\(\(name, Str\) for name in \(([^)]*)\)\)", read("clients", "python", "src", "weir", "_library.py"))
    expect(re.findall(r'"(\w+)"', structure[1]), names, "clients/python: the fields of struct weir_request")
    for name in names:
        expect(f'{{"{name}", r.' in read("clients", "go", "request.go"), True, f"clients/go: {name}")
        expect(f"request &{name}(std::string_view" in read("include", "weir", "weir.hpp"), True, f"weir.hpp: {name}")
        expect(f'"{name}"' in read("clients", "node", "lib", "request.js"), True, f"clients/node: {name}")
        expect(f"readonly {name}?: " in read("clients", "node", "index.d.ts"), True, f"clients/node: the type of {name}")
