"""Random configurations of envoyproxy/ratelimit, and random calls for them.

A configuration is a list of domains as YAML has them: {"domain": …, "descriptors": [ … ]}. A call is (domain, descriptors,
hits), as request() of support.envoy takes them."""

import hashlib
import json
import os

UNITS_S = {
    "SECOND": 1,
    "MINUTE": 60,
    "HOUR": 3600,
    "DAY": 86400,
    "WEEK": 7 * 86400,
    "MONTH": 30 * 86400,
    "YEAR": 365 * 86400,
}
KEYS = ("user", "path", "remote_address", "plan")
# A `*` counts only at the end.
NODE_VALUES = ("a", "ab", "b", "/x", "1.2.3.4", "mid*dle", "a*", "ab*", "1.*", "/*", "*")
VALUES = ("a", "ab", "abc", "abd", "b", "bc", "/x", "/y", "1.2.3.4", "1.2.3.5", "mid*dle", "middle", "", "ä€", "x_y", "p,q=r%")
MAXES = (0, 1, 2, 3, 5, 10, 20, 50, 200, 1000, 100000, 2**32 - 1)
NAMES = ("first", "second one", "third")


class Configuration:
    """multipliers: with unit_multiplier, which the reference does not have."""

    def __init__(self, random, multipliers):
        self.random, self.multipliers = random, multipliers
        self.domains = [{"domain": name, "descriptors": self.level(0)} for name in ("shop", "two words", "edge.internal")]

    def level(self, depth):
        r = self.random
        nodes = {}
        for _ in range(r.choice((2, 4, 8)) if depth == 0 else r.choice((0, 1, 3, 5))):
            node = self.node(depth)
            nodes.setdefault((node["key"], node.get("value")), node)
        return list(nodes.values())

    def node(self, depth):
        r = self.random
        node = {"key": r.choice(KEYS)}
        if r.random() < 0.75:
            node["value"] = r.choice(NODE_VALUES)
            if node["value"].endswith("*") and r.random() < 0.4:
                node["share_threshold"] = True
        if r.random() < 0.85:
            node["rate_limit"] = self.limit()
        for name, part in (("shadow_mode", 0.15), ("quota_mode", 0.1), ("detailed_metric", 0.2), ("value_to_metric", 0.2)):
            if r.random() < part:
                node[name] = True
        below = self.level(depth + 1) if depth < 3 else []
        if below:
            node["descriptors"] = below
        return node

    def limit(self):
        r = self.random
        limit = {}
        if r.random() < 0.12:
            limit["unlimited"] = True
        else:
            limit["unit"] = r.choice((str.lower, str.upper, str.title))(r.choice(tuple(UNITS_S)))
            limit["requests_per_unit"] = r.choice(MAXES)
            if self.multipliers and r.random() < 0.3:
                limit["unit_multiplier"] = r.choice((1, 2, 3, 7))
        if r.random() < 0.4:
            limit["name"] = r.choice(NAMES)
        if r.random() < 0.15:
            limit["replaces"] = [{"name": name} for name in r.sample(NAMES, r.choice((1, 2))) if name != limit.get("name")]
        return limit

    def write(self, folder):
        """A file for each domain. JSON is YAML."""
        for number, domain in enumerate(self.domains):
            with open(os.path.join(folder, f"{number}.yaml"), "w", encoding="utf-8") as file:
                json.dump(domain, file, indent=1)


class Calls:
    """multipliers, negative: with what the reference does not know. The same entries always bring a limit of the same unit or none:
    the reference counts by the entries and the beginning of the window, whatever the limit is. In one call it is the same limit."""

    def __init__(self, random, configuration, multipliers, negative):
        self.random, self.configuration = random, configuration
        self.multipliers, self.negative = multipliers, negative

    def call(self):
        r = self.random
        domain = r.choice(self.configuration.domains)
        count = r.choice((1, 1, 1, 2, 3, 6))
        name = "unknown" if r.random() < 0.02 else domain["domain"]
        self.brought = {}
        descriptors = [self.descriptor(name, domain) for _ in range(count)]
        if count > 1 and r.random() < 0.15:
            descriptors.append(descriptors[0])
        if self.negative and count == len(descriptors) == 1 and r.random() < 0.1:
            entries, limit, hits, _ = descriptors[0]
            descriptors = [(entries, limit, hits, True)]
        return name, descriptors, r.choice((0, 0, 0, 1, 2, 5))

    def descriptor(self, name, domain):
        r = self.random
        entries = tuple(self.walk(domain)) if r.random() < 0.8 else tuple(self.entry() for _ in range(r.choice((0, 1, 2, 3))))
        hits = r.choice((None, None, None, None, 0, 1, 3, 100, 2**33)) if r.random() < 0.3 else None
        return entries, self.given(name, entries), hits, False

    def entry(self):
        return self.random.choice((*KEYS, "none")), self.random.choice(VALUES)

    def walk(self, node):
        """Entries that lead somewhere in the tree, or nearly."""
        r = self.random
        while node.get("descriptors") and r.random() < 0.9:
            node = r.choice(node["descriptors"])
            value = node.get("value", "")
            if "value" not in node or r.random() < 0.1:
                value = r.choice(VALUES)
            elif value.endswith("*"):
                value = value[:-1] + r.choice(("", "1", "b", "bc"))
            yield node["key"], value
        if r.random() < 0.05:
            yield self.entry()

    def given(self, name, entries):
        if entries not in self.brought:
            self.brought[entries] = self.choose_given(name, entries)
        return self.brought[entries]

    def choose_given(self, name, entries):
        digest = hashlib.sha256(repr((name, entries)).encode()).digest()
        if digest[0] > 20:
            return None
        unit = list(UNITS_S)[digest[1] % len(UNITS_S)]
        limit = (self.random.choice(MAXES), unit)
        return (*limit, 1 + digest[2] % 3) if self.multipliers and digest[3] % 2 else limit
