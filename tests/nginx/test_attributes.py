"""Every attribute of the table in src/rules/attributes.h, as `weir ZONE ATTRIBUTE=VALUE` gives it. A new attribute that the
module does not take fails here."""

import json

from support import expect
from support.attribute_table import ENTRY, FIELDS, HEADER, IN_BY
from support.attribute_table import IN_MATCH as ALL_IN_MATCH
from support.gateway import Gateway

# The keys of a descriptor are part of the configuration.
IN_MATCH = [attribute for attribute in ALL_IN_MATCH if attribute.name != "descriptor_keys"]
IN_BY = [attribute for attribute in IN_BY if attribute.name != "descriptor_keys"]
LIMIT = {"algorithm": "fixed_window", "max": 1, "per": "1h"}
RULES = {
    **{f"by-{attribute}": {"id": "a", "by": attribute.word(), "limits": [LIMIT]} for attribute in IN_BY},
    **{
        f"match-{attribute}": {"id": "a", "match": attribute.condition(attribute.values()[0]), "limits": [LIMIT]}
        for attribute in IN_MATCH
    },
}


def place(name):
    """A zone of its own for each rule; the value is that of a header."""
    attribute = name.split("-", 1)[1]
    word = {"header": f"header:{HEADER}", "descriptor": f"descriptor:{ENTRY}", "route": "path"}.get(attribute, attribute)
    return f"location = /{name} {{ weir {name} {word}=$http_x_value; proxy_pass http://@BACKEND@; }}\n"


g = Gateway(
    http="".join(f"weir_zone {name} 128k rules=@FOLDER@/{name}.yaml;\n" for name in RULES),
    server="".join(map(place, RULES)),
    rules={name: json.dumps({"rules": [rule]}) for name, rule in RULES.items()},
)


def get(name, value):
    return g.ask(f"/{name}", headers={"X-Value": value}).status


def test_counts_by_each():
    """Counts by each attribute."""
    for attribute in IN_BY:
        one, two = attribute.values()
        found = [get(f"by-{attribute}", value) for value in (one, one, two, two)]
        expect(found, [200, 429, 200, 429], f"by: {attribute}")


def test_matches_each():
    """Matches each attribute."""
    for attribute in IN_MATCH:
        one, two = attribute.values()
        found = [get(f"match-{attribute}", value) for value in (two, two, one, one)]
        expect(found, [200, 200, 200, 429], f"match: {attribute}")


def test_names_each():
    """What the module says it takes; the peer is the connection, which nginx knows."""
    status, text = g.test_config(server="location / { weir by-user nothing=1; }")
    names = "".join(f"{attribute}=, " for attribute in FIELDS if attribute in IN_BY)
    expect((status, f"it takes after_auth, {names}cost=, cost:UNIT=, header:NAME= and descriptor:KEY=" in text), (1, True), text)
