"""Which rules a request meets, and for whom they count: paths, templates, hosts, addresses."""

import ipaddress
import itertools
import re

UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
DEFAULT_IDS = [r"[0-9]+", UUID]
KEPT_ENCODED = "/%\0"


def lower(text):
    """A to Z only."""
    return re.sub("[A-Z]", lambda found: found[0].lower(), text)


def decode(text):
    """Percent-decodes once; bytes are kept as characters below 256."""

    def one(found):
        char = chr(int(found[1], 16))
        return found[0].upper() if char in KEPT_ENCODED else char

    return re.sub("%([0-9a-fA-F]{2})", one, text)


def as_bytes(text):
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def segments_of(path):
    return [segment for segment in path.split("/") if segment]


class Settings:
    def __init__(self, doc):
        self.ignore_case = doc.get("ignore_case", False)
        flags = re.ASCII | re.DOTALL | (re.IGNORECASE if self.ignore_case else 0)
        self.ids = [re.compile(pattern, flags) for pattern in as_list(doc.get("ids", DEFAULT_IDS))]
        self.flags = flags
        self.strip_prefixes = [
            segments_of(self.fold(as_bytes(prefix))) for prefix in as_list(doc.get("strip_prefixes", []))
        ]
        self.trusted = networks(doc.get("trusted_proxies", []))
        self.ipv6_prefix = doc.get("ipv6_prefix", 64)
        self.excepted = Except(doc.get("except", {}))

    def fold(self, text):
        return lower(text) if self.ignore_case else text

    def is_id(self, segment):
        return any(pattern.fullmatch(segment) for pattern in self.ids)

    def strip(self, segments):
        for prefix in self.strip_prefixes:
            if segments[: len(prefix)] == prefix:
                return segments[len(prefix) :]
        return segments

    def readings(self, path):
        """The segments of the path, once for each way to read it, the first reading first; each with the texts that regexes are
        tried on besides, in which empty segments are kept."""
        path = as_bytes(path)
        path = re.sub(r"^[a-zA-Z][a-zA-Z0-9+.-]*://[^/?]*", "", path)
        result = {}
        ways = itertools.product(("[?#]", "[?]"), DOTS, (False, True), PARAMS)
        for end, dots, slash, params in ways:
            rest = re.split(end, path, maxsplit=1)[0].removeprefix("/")
            readings = list(with_and_without_newline(read(rest, params, slash, dots)))
            for segments in readings:
                result.setdefault(self.prepare(segments), set())
            for gaps in GAPS:
                texts = with_and_without_newline(read(rest, params, slash, dots, gaps), keep=True)
                for segments, text in zip(readings, texts):
                    result[self.prepare(segments)].add(self.prepare(text))
        return result

    def prepare(self, segments):
        return tuple(self.strip([self.fold(segment) for segment in segments]))


DOTS = ("merged", "unmerged")
PARAMS = ("cut", "cut raw", "cut last", "kept")
GAPS = ("at end", "kept")


def read(path, params, slash, dots, gaps="dropped"):
    """One way to read a path. It says whether `;…` is cut off each segment, only if it is not encoded, after dots were
    resolved (and then they are resolved again), or kept; whether an encoded slash separates segments; whether `..` takes
    back a segment that is not empty, or any segment; and which empty segments are left: none, one for a slash at the end,
    or all. They are all kept only if dots are resolved before slashes are merged."""
    segments = path.split("/")
    if params == "cut raw":
        segments = [segment.split(";", 1)[0] for segment in segments]
    if slash:
        segments = re.split("/|%2[fF]", "/".join(segments))
    segments = [decode(segment) for segment in segments]
    if params == "cut":
        segments = [segment.split(";", 1)[0] for segment in segments]
    segments = resolve(segments, dots)
    if params == "cut last":
        segments = resolve([segment.split(";", 1)[0] for segment in segments], dots)
    if gaps == "kept" and dots == "unmerged":
        return segments
    at_end = [""] if gaps != "dropped" and segments[-1] == "" else []
    return [segment for segment in segments if segment] + at_end


def resolve(segments, dots):
    """The last segment is empty if a slash is at the end."""
    at_end = [""] if segments[-1] in ("", ".", "..") else []
    if at_end and segments[-1] == "":
        segments = segments[:-1]
    if dots == "merged":
        segments = [segment for segment in segments if segment]
    result = []
    for segment in segments:
        if segment == "..":
            del result[-1:]
        elif segment != ".":
            result.append(segment)
    return result + at_end


def with_and_without_newline(segments, keep=False):
    """A `$` matches before a newline at the end, too."""
    yield segments
    if segments and segments[-1].endswith("\n"):
        segments = segments[:-1] + [segments[-1][:-1]]
        yield segments if keep else [segment for segment in segments if segment]


class Pattern:
    """A template, or {"regex": …}."""

    def __init__(self, doc, settings):
        self.settings = settings
        if isinstance(doc, dict):
            self.regex = re.compile(doc["regex"], settings.flags)
        else:
            self.regex = None
            self.segments = segments_of(as_bytes(doc))

    def matches(self, segments, text):
        if self.regex:
            return bool(self.regex.fullmatch("/" + "/".join(text)))
        wanted = self.segments
        if wanted and wanted[-1] == "*":
            wanted = wanted[:-1]
            if len(segments) < len(wanted):
                return False
        elif len(segments) != len(wanted):
            return False
        return all(self.fits(template, segment) for template, segment in zip(wanted, segments))

    def fits(self, template, segment):
        if template == "#":
            return self.settings.is_id(segment)
        if re.fullmatch(r"\{[A-Za-z0-9_.-]+\}", template):
            return True
        return self.settings.fold(decode(template)) == segment


def host_name(text):
    text = lower(text)
    if text.startswith("["):
        return text[: text.index("]") + 1]
    return text.split(":", 1)[0].removesuffix(".")


# ---- addresses ----


def address(text):
    """An address, IPv4 where it is IPv4 in disguise; None if it cannot be read."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def networks(texts):
    return [ipaddress.ip_network(text) for text in as_list(texts)]


def lies_in(ip, nets):
    return any(ip.version == net.version and ip in net for net in nets)


def hop(text):
    """An entry of X-Forwarded-For."""
    text = text.strip(" \t")
    bracketed = re.fullmatch(r"\[([^\]]*)\](:[0-9]+)?", text)
    if bracketed:
        found = bracketed[1] if ":" in bracketed[1] else ""
        return address(found)
    with_port = re.fullmatch(r"([0-9.]+):[0-9]+", text)
    return address(with_port[1] if with_port else text)


def client(request, settings):
    if request.get("ip"):
        return address(request["ip"])
    peer = address(request["peer"]) if request.get("peer") else None
    if peer is None or not lies_in(peer, settings.trusted):
        return peer
    last = peer
    forwarded = [value for name, value in request.get("headers", {}).items() if lower(name) == "x-forwarded-for"]
    for entry in reversed(",".join(forwarded).split(",")):
        if not entry.strip(" \t"):  # as in every list of HTTP, an empty entry is none
            continue
        found = hop(entry)
        if found is None:
            return last
        last = found
        if not lies_in(found, settings.trusted):
            return found
    return last


def as_list(value):
    return value if isinstance(value, list) else [value]


class Except:
    def __init__(self, doc):
        self.networks = networks(doc.get("ip", []))
        self.users = [str(user) for user in as_list(doc.get("user", []))]

    def holds(self, seen):
        if seen.ip is not None and lies_in(seen.ip, self.networks):
            return True
        return bool(seen.user) and seen.user in self.users


# ---- descriptors ----


def escaped(text, marks):
    return "".join(f"%{ord(char):02X}" if char in marks else char for char in text)


def entry_of(name):
    """The key and the number that `KEY#2` means."""
    key, _, number = name.partition("#")
    return re.sub("%(25|2C|23)", lambda found: chr(int(found[1], 16)), key, flags=re.IGNORECASE), int(number or 1)


class Descriptor:
    def __init__(self, entries):
        self.values, names, texts = {}, [], []
        for entry in entries:
            key, value = entry["key"], entry.get("value") or ""
            number = 1 + sum(1 for found, _ in self.values if found == key)
            self.values[key, number] = value
            names.append(escaped(key, "%,#") + (f"#{number}" if number > 1 else ""))
            texts.append(escaped(key, "%,=") + "=" + escaped(value, "%,="))
        self.keys, self.text = ",".join(names), ",".join(texts)


class Seen:
    """A request as rules see it."""

    def __init__(self, request, settings):
        self.request = request
        self.settings = settings
        self.ip = client(request, settings)
        self.user = request.get("user")
        self.host = host_name(request["host"]) if request.get("host") else None
        self.readings = settings.readings(request["path"]) if request.get("path") else {}
        self.headers = {lower(name): value for name, value in request.get("headers", {}).items()}
        self.descriptor = Descriptor(request.get("descriptor") or [])
        self.attributes = {**request, "host": self.host, "ip": self.ip, "descriptor_keys": self.descriptor.keys}

    def attribute(self, name, segments):
        """The value of an entry of `by`, given one reading of the path or None; None or "" where it is missing."""
        if name == "ip":
            return self.subject_ip()
        if name == "host":
            return self.host
        if name in ("path", "route"):
            if segments is None:
                return None
            mark = name == "route"
            return "/" + "/".join("#" if mark and self.settings.is_id(s) else s for s in segments)
        if name.startswith("header:"):
            return self.headers.get(lower(name[len("header:") :]))
        if name.startswith("descriptor:"):
            return self.descriptor.values.get(entry_of(name[len("descriptor:") :]))
        if name == "descriptor":
            return self.descriptor.text
        if name == "descriptor_keys":
            return self.descriptor.keys
        return self.request.get(name)

    @staticmethod
    def is_there(name, value):
        return value is not None if name.startswith("descriptor:") else bool(value)

    def subject_ip(self):
        if self.ip is None:
            return None
        if self.ip.version == 4:
            return str(self.ip)
        return str(ipaddress.IPv6Network((int(self.ip), self.settings.ipv6_prefix), strict=False))


# ---- conditions ----


def parts(doc, plain):
    """What a condition says: its values, those in `not`, and whether the attribute is `present` or `absent`. `plain` are the
    fields of a mapping that is a value itself."""
    if not isinstance(doc, dict):
        return as_list(doc), [], None
    values = as_list(doc.get("is", []))
    values += [{field: doc[field]} for field in plain if field in doc]
    presence = next((word for word in ("present", "absent") if word in doc), None)
    return values, as_list(doc.get("not", [])), presence


def text_value(doc, tidy):
    """A function that tells whether a text has this value."""
    if not isinstance(doc, dict):
        value = tidy(str(doc))
        return lambda text: text == value
    if "prefix" in doc:
        prefix = tidy(str(doc["prefix"]))
        return lambda text: text.startswith(prefix)
    pieces = [re.escape(tidy(piece)) for piece in str(doc["glob"]).split("*")]
    return lambda text: re.fullmatch(".*".join(pieces), text, re.DOTALL) is not None


def host_value(doc):
    if isinstance(doc, str):
        doc = {"glob": host_name(doc)} if doc.startswith("*.") else host_name(doc)
    return text_value(doc, lower)


def network_value(doc):
    return lambda ip: lies_in(ip, networks(doc))


class Condition:
    def __init__(self, doc, value):
        values, others, self.presence = parts(doc, ("prefix", "glob"))
        self.values = [value(each) for each in values]
        self.others = [value(each) for each in others]

    def holds(self, found):
        if self.is_missing(found):
            return not self.values and self.presence != "present"
        if self.presence == "absent":
            return False
        return (not self.values or any(fits(found) for fits in self.values)) and not any(fits(found) for fits in self.others)


    @staticmethod
    def is_missing(found):
        return not found


class EntryCondition(Condition):
    """An entry may be there and have an empty value."""

    @staticmethod
    def is_missing(found):
        return found is None


class Match:
    def __init__(self, doc, settings, ignore_case=False):
        kinds = {"event": str, "user": str, "key": str, "domain": str, "descriptor_keys": str, "method": str.upper}
        self.conditions = {
            name: Condition(doc[name], lambda value, tidy=tidy: text_value(value, tidy)) for name, tidy in kinds.items() if name in doc
        }
        if "host" in doc:
            self.conditions["host"] = Condition(doc["host"], host_value)
        if "ip" in doc:
            self.conditions["ip"] = Condition(doc["ip"], network_value)
        self.fold = lower if ignore_case else str
        self.headers = {
            lower(name): Condition(each, lambda value: text_value(value, self.fold)) for name, each in doc.get("header", {}).items()
        }
        self.entries = {
            entry_of(name): EntryCondition(each, lambda value: text_value(value, str)) for name, each in doc.get("descriptor", {}).items()
        }
        values, others, self.presence = parts(doc.get("path", []), ("regex",))
        self.patterns = [Pattern(path, settings) for path in values]
        self.others = [Pattern(path, settings) for path in others]

    def holds(self, seen):
        """All but the path."""
        for name, condition in self.conditions.items():  # by far the most calls of the model: quicker than all()
            if not condition.holds(seen.attributes.get(name)):
                return False
        if not all(condition.holds(seen.descriptor.values.get(entry)) for entry, condition in self.entries.items()):
            return False
        return all(condition.holds(self.fold(seen.headers.get(name, ""))) for name, condition in self.headers.items())

    def fits(self, reading, text):
        return (not self.patterns or any(pattern.matches(reading, text) for pattern in self.patterns)) and not any(
            pattern.matches(reading, text) for pattern in self.others
        )

    def readings(self, seen):
        """The readings of the path that fit; None in place of a path where there is none and the rule does not want one."""
        if not seen.readings:
            return [] if self.patterns or self.presence == "present" else [None]
        if self.presence == "absent":
            return []
        return [
            reading for reading, texts in seen.readings.items()
            if any(self.fits(reading, text) for text in {reading, *texts})
        ]
