"""A slow, obvious model of a rate limit service: which limit counts for a descriptor, and what a call is answered.

together: all descriptors of a call pass, or none is charged. Else every descriptor is charged, as envoyproxy/ratelimit does
it. Other than there, a limit of 0 refuses everything, also what costs nothing."""

from support.envoy import OK, OVER_LIMIT
from support.envoy_random import UNITS_S

UNLIMITED = 2**32 - 1


class Limit:
    """What counts for one descriptor: its numbers, and the name of its count."""

    def __init__(self, max_, unit, multiplier, name, count, shadow=False, replaces=()):
        self.max, self.unit, self.multiplier, self.name = max_, unit, multiplier, name
        self.count, self.shadow, self.replaces = count, shadow, replaces
        self.unlimited = False

    def window_s(self):
        return UNITS_S[self.unit] * self.multiplier


def find_child(nodes, key, value):
    """The exact value, then values with a `*` in the order of the file, then the key alone."""
    of_key = [node for node in nodes if node["key"] == key]
    for node in of_key:
        if value != "" and node.get("value") == value and not node["value"].endswith("*"):
            return node
    for node in of_key:
        if node.get("value", "").endswith("*") and value.startswith(node["value"][:-1]):
            return node
    for node in of_key:
        if not node.get("value"):
            return node
    return None


class Model:
    def __init__(self, domains, together):
        self.domains = {domain["domain"]: domain for domain in domains}
        self.together = together
        self.used = {}

    # ---- which limit ----

    def limit_of(self, domain, entries, given):
        root = self.domains.get(domain)
        if not root:
            return None
        if given:
            multiplier = given[2] if len(given) > 2 else 1
            return Limit(given[0], given[1], multiplier, "", ("given", domain, entries))
        node, count = root, []
        for key, value in entries:
            node = find_child(node.get("descriptors", ()), key, value)
            if not node:
                return None
            count.append((key, node["value"] if node.get("share_threshold") else value))
        return self.limit_at(domain, node, tuple(count)) if entries else None

    def limit_at(self, domain, node, count):
        spec = node.get("rate_limit")
        if not spec:
            return None
        shadow = node.get("shadow_mode", False) or node.get("quota_mode", False)
        replaces = [other["name"] for other in spec.get("replaces", ())]
        if spec.get("unlimited"):
            limit = Limit(0, None, 1, "", None, shadow, replaces)
            limit.unlimited = True
            return limit
        unit, multiplier = spec["unit"].upper(), spec.get("unit_multiplier", 1)
        return Limit(spec["requests_per_unit"], unit, multiplier, spec.get("name", ""), (domain, count), shadow, replaces)

    def limits_of(self, domain, descriptors):
        limits = [self.limit_of(domain, entries, given) for entries, given, _, _ in descriptors]
        replaced = {name for limit in limits if limit for name in limit.replaces}
        return [None if limit and limit.name in replaced and not limit.unlimited else limit for limit in limits]

    # ---- answers ----

    def answer(self, domain, descriptors, hits, now_s):
        """(code, statuses); a status is (code, remaining, limit, seconds until reset), limit is None if there is none."""
        limits = self.limits_of(domain, descriptors)
        costs = [hits or 1 if own is None else own for _, _, own, _ in descriptors]
        negative = [one[3] for one in descriptors]
        keys = [limit and limit.count and (limit.count, now_s // limit.window_s()) for limit in limits]
        before = dict(self.used)
        over = self.charge_all(limits, keys, costs, negative)
        refused = any(over[i] and not limits[i].shadow for i in range(len(limits)))
        after = self.lefts
        if self.together and refused:
            self.used = before
            after = [self.left(limit, key) if limit else 0 for limit, key in zip(limits, keys)]
        statuses = [self.status(limits[i], over[i], after[i], now_s) for i in range(len(limits))]
        return OVER_LIMIT if refused else OK, statuses

    def refused_shadows(self, limits, keys, costs):
        """Counts of shadow rules that have no room for the whole call: together, its descriptors are charged all or not at all."""
        sums = {}
        for limit, key, cost in zip(limits, keys, costs):
            if key and limit.shadow:
                sums[key] = sums.get(key, self.used.get(key, 0)) + cost
        return {key for limit, key in zip(limits, keys) if key in sums and sums[key] > limit.max} if self.together else ()

    def charge_all(self, limits, keys, costs, negative):
        """In their order. Returns which of them find no room; what each leaves is in self.lefts."""
        full, so_far = self.refused_shadows(limits, keys, costs), {}
        over, self.lefts = [], []
        for limit, key, cost, back in zip(limits, keys, costs, negative):
            over.append(False)
            if key and back:
                self.used[key] = max(0, self.used.get(key, 0) - cost)
            elif key:
                so_far[key] = so_far.get(key, self.used.get(key, 0)) + cost
                over[-1] = so_far[key] > limit.max or limit.max == 0
                if key not in full:
                    self.used[key] = so_far[key]
            self.lefts.append(self.left(limit, key) if limit else 0)
        return over

    def left(self, limit, key):
        return max(0, limit.max - self.used.get(key, 0)) if key else 0

    def status(self, limit, over, left, now_s):
        if limit is None:
            return OK, 0, None, None
        if limit.unlimited:
            return OK, UNLIMITED, None, None
        code = OVER_LIMIT if over and not limit.shadow else OK
        return code, left, limit, limit.window_s() - now_s % limit.window_s()
