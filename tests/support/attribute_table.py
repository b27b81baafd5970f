"""The attributes of a request, as the table in src/rules/attributes.h has them: for tests that walk all of them."""

import os
import re
from typing import NamedTuple

from support import ROOT as SOURCE

LINE = re.compile(r"^ {4}X\([A-Z_]+, +([a-z_]+), +([A-Z_ |]+?)(,|\))", re.MULTILINE)
HEADER = "X-Table"
ENTRY = "Table"  # the key of an entry of the descriptor
VALUES = {"method": ("GET", "PUT"), "path": ("/a", "/b"), "route": ("/a", "/b"), "host": ("a.example", "b.example")}


class Attribute(NamedTuple):
    name: str
    uses: frozenset
    is_field: bool  # callers set it: it is a field of struct weir_request

    def __str__(self):
        return self.name

    def word(self):
        """As `by` and the fields of RESP have it."""
        return {"header": f"header:{HEADER.lower()}", "descriptor": f"descriptor:{ENTRY}"}.get(self.name, self.name)

    def values(self):
        """Two that are two subjects."""
        plain = (f"{self.name}-1", f"{self.name}-2")
        return VALUES.get(self.name, ("192.0.2.1", "192.0.2.2") if "IS_ADDRESS" in self.uses else plain)

    def condition(self, value):
        """What `match` has, as JSON."""
        part = {"header": HEADER, "descriptor": ENTRY}.get(self.name)
        return {self.name: {part: value} if part else value}

    def entry(self, value):
        """Key and value of the entry of a descriptor that gives it this value; None: it is not made of entries."""
        return {"descriptor": (ENTRY, value), "descriptor_keys": (value, "x")}.get(self.name)

    def set_by(self):
        """The attribute of a request that gives it this value."""
        return "path" if self.name == "route" else self.name


def read_table():
    with open(os.path.join(SOURCE, "src", "rules", "attributes.h"), encoding="utf-8") as file:
        lines = LINE.findall(file.read())
    found = [Attribute(name, frozenset(re.split(r" *\| *", uses)), end == ",") for name, uses, end in lines]
    names = [str(attribute) for attribute in found]
    assert names[:2] == ["method", "path"] and names[-2:] == ["header", "descriptor"], names
    return found


ATTRIBUTES = read_table()
FIELDS = [attribute for attribute in ATTRIBUTES if attribute.is_field]
IN_BY = [attribute for attribute in ATTRIBUTES if "IN_BY" in attribute.uses]
ALL_IN_MATCH = [attribute for attribute in ATTRIBUTES if "IN_MATCH" in attribute.uses]
# A limit that a request brings is not a text: only callers of the library and of the rate limit service have one.
IN_MATCH = [attribute for attribute in ALL_IN_MATCH if attribute.name != "descriptor_limit"]
