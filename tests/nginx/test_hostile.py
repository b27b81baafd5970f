"""Requests that nobody sends by mistake: every spelling of a path, endless and broken ones, forged and countless headers, bodies that
never end, shapes for smuggling, raw frames of HTTP/2. None may crash or stall a worker, and none may dodge a rule."""

import random
import re
import socket
import struct

import pytest

from support import DEADLINE_S, expect, number
from support.gateway import Gateway

SEED = number("TEST_SEED", 1)
COUNT = number("TEST_COUNT", 1000)

# Small pools: most of what is asked of them becomes memory of its own, whose ends the sanitizer watches.
HTTP = """
request_pool_size 128;
weir_zone main 1m rules=@FOLDER@/rules.yaml;
weir_trusted_proxies 127.0.0.0/8;
large_client_header_buffers 8 64k;
underscores_in_headers on;
client_max_body_size 64k;
lingering_timeout 300ms;
lingering_time 1s;
"""

# Each place that nginx routes to has a rule of the same name.
PLACES = """
location / { add_header X-Place none always; add_header X-Rule $weir_rule always; proxy_pass http://@BACKEND@; }
location = / { add_header X-Place root always; add_header X-Rule $weir_rule always; proxy_pass http://@BACKEND@; }
location = /exact { add_header X-Place exact always; add_header X-Rule $weir_rule always; empty_gif; }
location = /deep/er/one { add_header X-Place deeper always; add_header X-Rule $weir_rule always; empty_gif; }
location /tree/ { add_header X-Place tree always; add_header X-Rule $weir_rule always; empty_gif; }
location ~ ^/number/[0-9]+$ { add_header X-Place number always; add_header X-Rule $weir_rule always; empty_gif; }
location ~ ^/letters/[a-z]+$ { add_header X-Place letters always; add_header X-Rule $weir_rule always; empty_gif; }
location ~ ^/any/.+$ { add_header X-Place any always; add_header X-Rule $weir_rule always; empty_gif; }
"""

SERVER = PLACES + """
weir main header:X-Said=nginx;
location ~ ^/(address|cookie|forge|host|last|tenant)(/|$) { empty_gif; }
location /units/ { weir main cost:tokens=$arg_tokens; add_header X-Left $weir_remaining always; proxy_pass http://@BACKEND@; }
location /cost/ { weir main cost=$arg_cost; add_header X-Left $weir_remaining always; proxy_pass http://@BACKEND@; }
location /sent/ { weir main path=$request_uri; proxy_pass http://@BACKEND@; }
"""

RULES = """
rules:
  - { id: root, match: { path: /, host: root.example }, limits: [ 0 per 1h ] }
  - { id: exact, match: { path: /exact }, limits: [ 0 per 1h ] }
  - { id: deeper, match: { path: /deep/er/one }, limits: [ 0 per 1h ] }
  - { id: tree, match: { path: "/tree/*" }, limits: [ 0 per 1h ] }
  - { id: number, match: { path: "/number/#" }, limits: [ 0 per 1h ] }
  - { id: letters, match: { path: { regex: "/letters/[a-z]+" } }, limits: [ 0 per 1h ] }
  - { id: any, match: { path: { regex: "/any/.+" } }, limits: [ 0 per 1h ] }
  - { id: slow, match: { path: { regex: "/slow/(a|aa)+c" } }, limits: [ 0 per 1h ] }
  - { id: forged, match: { path: "/forge/*", header: { X-Said: client } }, limits: [ 0 per 1h ] }
  - { id: sent, match: { path: [ "/sent/{name}/end", "/named/{name}/end" ] }, limits: [ 0 per 1h ] }
  - { id: tenant, match: { path: /tenant }, by: "header:X-Tenant", limits: [ LIMIT ] }
  - { id: last, match: { path: /last, header: { X-Last: "yes" } }, limits: [ 0 per 1h ] }
  - { id: cookie, match: { path: /cookie }, by: "header:Cookie", limits: [ LIMIT ] }
  - { id: hosts, match: { path: /host }, by: host, limits: [ LIMIT ] }
  - { id: address, match: { path: /address }, by: ip, limits: [ LIMIT ] }
  - { id: upload, match: { path: /upload }, limits: [ 0 per 1h ] }
  - { id: few, match: { path: /few }, limits: [ LIMIT ] }
  - { id: units, match: { path: "/units/{name}" }, by: path, limits: [ { algorithm: fixed_window, max: 3, per: 1h }, { unit: tokens, name: t, algorithm: fixed_window, max: 10000000000, per: 1h } ] }
  - { id: cost, match: { path: "/cost/{name}" }, by: path, limits: [ { algorithm: fixed_window, max: 10, per: 1h } ] }
""".replace("LIMIT", "{ algorithm: fixed_window, max: 2, per: 1h }")

FEW = [200, 200, 429]
g = Gateway(http=HTTP, server=SERVER, rules=RULES)
# Where rules are in shadow, X-Rule has all that would refuse and not only one.
IN_SHADOW = {"server": "weir main;\n" + PLACES.replace("$weir_rule", "$weir_shadow"), "rules": RULES.replace("{ id:", "{ mode: shadow, id:")}
merging = Gateway(http=HTTP, **IN_SHADOW)
not_merging = Gateway(http=HTTP + "merge_slashes off;", **IN_SHADOW)


# ---- asking ----


def statuses(data):
    return [int(found) for found in re.findall(rb"HTTP/1\.[01] (\d{3}) ", data)]


def request(line, *headers, body=b""):
    """As bytes: each header as it is to be sent."""
    return b"\r\n".join([line, *headers, b"", b""]) + body


def ask(line, *headers, body=b""):
    """The status of the one answer; the connection ends with it."""
    found = statuses(g.raw(request(line, *headers, b"Connection: close", body=body)))
    expect(len(found), 1, f"answers to {line[:100]}")
    return found[0]


def get(path, *headers):
    return ask(b"GET " + path + b" HTTP/1.1", b"Host: h", *headers)


def seen():
    return g.backend.paths()


class Line:
    """A connection over which paths are asked for, one after the other."""

    def __init__(self, gateway=g):
        self.gateway = gateway

    def __enter__(self):
        self.connect()
        return self

    def __exit__(self, *_):
        self.socket.close()

    def connect(self):
        self.socket = socket.create_connection(("127.0.0.1", self.gateway.port), DEADLINE_S)
        self.file = self.socket.makefile("rb")

    def ask(self, path):
        """(status, where nginx routed it to, the rule that refused it)"""
        self.socket.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: h\r\n\r\n")
        status = int(self.file.readline().split()[1])
        headers = {}
        while line := self.file.readline().strip():
            name, _, value = line.partition(b": ")
            headers[name.lower()] = value.decode()
        self.file.read(int(headers.get(b"content-length", 0)))
        if headers.get(b"connection") == "close":
            self.__exit__()
            self.connect()
        return status, headers.get(b"x-place"), headers.get(b"x-rule")


# ---- paths ----

SPELLED = {
    "exact": [b"/exact", b"/exact?x", b"/%65xact", b"/%65%78%61%63%74", b"//exact", b"/./exact", b"/x/../exact", b"/x/%2e%2e/exact",
              b"/x/%2E./exact", b"/%2e/exact", b"/exact#x", b"/exact?x#y", b"/exact#x?y", b"/x/y/../../exact", b"/x%2F../exact",
              b"/%2Fexact", b"/%2f%2Fexact", b"/.%2Fexact", b"///x/..//exact"],
    "deeper": [b"/deep%2Fer%2fone", b"/deep/er%2Fone", b"/deep//er/./one", b"/deep/x/../er/one", b"/deep/%65%72/one",
               b"/deep%2F%2Fer/one", b"/deep%2F.%2Fer/one", b"/deep/x%2F..%2Fer/one"],
    "tree": [b"/tree/", b"/tree/.", b"/tree//", b"/tree/x", b"/tree/x/y;z", b"/tree/%20", b"/tree/%25", b"/tree/%0a",
             b"/tree/x.", b"/tree/...", b"/tree/.../x", b"/tree/%7f", b"/tree/x%2Fy", b"/tree%2F", b"/tree%2fx", b"/tree/\xff\xfe",
             b"/tree/%ff", b"/tree/%c0%ae%c0%ae/x", b"/tree/;", b"/tree/;x/y", b"/tree/%3b", b"/tree/x/%2e%2e", b"/tree/a%5c..%5cb",
             b"/tree/%252e%252e/x", b"/tree/%252F", b"/TREE/../tree/x", b"/tree/x?/../../y", b"/tree/%3f/../x", b"/tree/%23"],
    "number": [b"/number/7%0a", b"/number/7%0A?x", b"/number/7", b"/number/%37", b"/number//7", b"/number/x/../7", b"/number%2F7", b"/number/7?x", b"/number/007"],
    "letters": [b"/letters/abc%0a", b"/letters/a", b"/letters/%61bc", b"//letters//abc", b"/letters%2Fabc", b"/letters/x%2F..%2Fabc"],
    "any": [b"/any/\xff", b"/any/%ff", b"/any/%e2%82", b"/any%2Fx", b"/any/%0d", b"/any/+\xf0"],
}
REFUSED = [b"/%00", b"/tree/%00", b"/tree/x%00y", b"/..", b"/../tree/x", b"/x/../../tree/x", b"/%2e%2e/tree/x", b"/tree/%", b"/tree/%4",
           b"/tree/%zz", b"/%2F..%2F..%2Ftree/x", b"/tree/\x00", b"/tree/ x", b"tree/x", b"\\tree\\x", b""]


def test_spellings():
    """A path in every spelling."""
    with Line() as line:
        for place, paths in SPELLED.items():
            for path in paths:
                expect(line.ask(path), (429, place, place), repr(path[:60]))


def test_senseless():
    """Paths that nginx refuses."""
    for path in REFUSED:
        expect(ask(b"GET " + path + b" HTTP/1.1", b"Host: h"), 400, repr(path))
    expect(seen(), [], "what the backend saw")


TARGETS = [b"/exact", b"/deep/er/one", b"/tree/x", b"/tree/", b"/tree/a/b", b"/number/42", b"/letters/abc", b"/any/thing"]


def spell(rng):
    """A path to one of the places, or near to one, as somebody would write it who does not want to be seen."""
    path = b""
    for byte in rng.choice(TARGETS):
        letter = bytes([byte])
        if letter == b"/" and rng.random() < 0.3:
            letter = rng.choice([b"//", b"/./", b"/x/../", b"/%2e/", b"/y/%2E%2e/", b"/.//", b"%2F", b"%2f", b"/a/b/../../", b"%2F.%2f",
                                 b"/z%2f../", b"/..", b"/%252e/", b"%252F", b"/x/..%2f", b"//../", b"//%2e./", b"/%2F..%2f", b"///../",
                                 b"/;/", b"/;x/../", b"/..;/", b"/.;x/", b"/..%3b/", b"/%3Bx/..%2F", b";p/", b";p%2F../", b"\\", b"/%5c../"])
        elif rng.random() < 0.15:
            letter = rng.choice([b"%%%02x" % byte, b"%%%02X" % byte, b"%%25%02x" % byte, letter.upper()])
            letter += b";p=%2F" if byte != ord("/") and rng.random() < 0.2 else b""
        path += letter
    ends = (b"", b"", b"", b"?q=/../x", b"#f/../x", b"/", b"/.", b"/..", b"/../", b";p", b"%3b", b"%23", b"%3F", b".", b"%20",
            b"%0a", b"%0A", b"/%0a", b"//..", b"/x//..", b"%2F..", b"/..;", b"/;/..", b"%0a;x", b"%0d%0a")
    return path + rng.choice(ends)


@pytest.mark.parametrize("merge", [True, False], ids=["merge_slashes", "merge_slashes_off"])
def test_random_spellings(merge):
    """Whatever nginx routes to a place is found by the rule of that place."""
    rng, routed = random.Random(SEED), set()
    with Line(merging if merge else not_merging) as line:
        for _ in range(COUNT):
            path = spell(rng)
            status, place, rules = line.ask(path)
            routed.add(place)
            if place in SPELLED and place not in (rules or "").split(","):
                raise AssertionError(f"{path!r}: nginx routes it to {place}, and weir applies {rules or 'no rules'}")
            expect(status in (200, 400), True, f"{path!r}: {status}")
    expect(set(SPELLED) - routed, set(), "places that were never reached")


def test_readings():
    """Readings that differ. With merge_slashes off, `..` takes back an empty segment."""
    cases = [(b"/tree//../exact", "tree", "exact,tree"), (b"/tree/x//../../exact", "tree", "exact,tree"), (b"/tree/..;/exact", "tree", "exact,tree"),
             (b"/tree/;/../exact", "tree", "exact,tree"), (b"/number//../7", "number", "number"), (b"/number/7%0a", "number", "number"),
             (b"/tree%2f%2F..%2fexact", "tree", "exact,tree"), (b"/x//../exact", "none", "exact"), (b"/exact%0a", "none", "exact"),
             (b"/deep/er//../one", "deeper", "deeper"), (b"/any//", "any", "any"), (b"/any/", "none", None), (b"/any%2F%2f", "any", "any"),
             (b"/x/../any///../thing/../", "any", "any"), (b"//any/x", "none", "any"), (b"/letters//", "none", None)]
    with Line(not_merging) as line:
        for path, place, rules in cases:
            expect(line.ask(path), (200, place, rules), repr(path))
        for path in (b"/tree/" + b"x" * 9000 + b"//../../exact", b"/tree" + b"/y//.." * 5000 + b"/z", b"/tree/" + b"%2F/..;" * 2000):
            _, place, rules = line.ask(path)
            expect((place, "tree" in rules.split(",")), ("tree", True), repr(path[:40]))


def test_parameters():
    """Parameters where nginx sees none.
    Servers in Java drop `;x` before they look at dots and empty segments; nginx knows no parameters. The rules of both apply."""
    with Line() as line:
        expect(line.ask(b"/tree/..;x/exact"), (429, "tree", "exact"), "`..;x` is `..`")
        expect(line.ask(b"/tree/;x/../exact"), (429, "tree", "exact"), "`;x` is nothing")
        expect(line.ask(b"/tree/..;x/y"), (429, "tree", "tree"), "`..;x` is a name")


def test_slashes_as_sent():
    """An escaped slash as it was sent.
    An escaped slash is part of a name to some, and separates to others: the rules of both apply."""
    seen()
    for start in (b"/sent/", b"/named/"):
        expect([get(start + path) for path in (b"a%2Fb/end", b"a/b/end", b"a/end")], [429, 200, 429], repr(start))
        expect(get(start + b"a/x%2F..%2Fend"), 429, repr(start))
    expect(seen(), ["/sent/a/b/end", "/named/a/b/end"], "what the backend saw")


def test_endless():
    """Endless paths."""
    expect(get(b"/slow/" + b"a" * 30000 + b"c!"), 429, "30 kB for a nested quantifier")
    expect(get(b"/slow/" + b"a" * 8000 + b"c!"), 429, "8 kB")
    expect(get(b"/slow/" + b"b"), 200, "another")
    expect(get(b"/any/" + b"x" * 9000), 429, "9 kB: every regex")
    expect(get(b"/tree/" + b"x/" * 15000), 429, "15,000 segments")
    expect(get(b"/x" * 10000 + b"/.." * 10000 + b"/exact"), 429, "and back")
    expect(get(b"/x%2F" * 6000 + b"../" * 6000 + b"exact"), 429, "and back, over escaped slashes")
    expect(get(b"/tree/" + b"%2F" * 10000), 429, "10,000 escaped slashes")
    expect(get(b"/tree/" + b"%61" * 20000), 429, "60 kB of escapes")
    expect(get(b"/" + b"x" * 70000), 414, "more than nginx takes")


# ---- request lines and hosts ----


def test_absolute():
    """Absolute URIs."""
    for line in (b"GET http://root.example/ HTTP/1.1", b"GET http://root.example HTTP/1.1", b"GET http://root.example?x=y HTTP/1.1",
                 b"GET http://root.example:99/?x HTTP/1.1", b"GET http://ROOT.example./ HTTP/1.1", b"GET HTTP://root.example/ HTTP/1.1",
                 b"GET https://root.example//x/.. HTTP/1.1", b"GET http://h/exact HTTP/1.1", b"GET http://h//exact?http://h/x HTTP/1.1",
                 b"GET http://h/%65xact#x HTTP/1.0", b"GET ws://h/tree/x HTTP/1.1"):
        expect(ask(line, b"Host: other.example"), 429, repr(line))
    expect(ask(b"GET http://other.example/ HTTP/1.1", b"Host: root.example"), 200, "the line's host counts, not the header's")
    for line in (b"GET http:///exact HTTP/1.1", b"GET http:// HTTP/1.1", b"GET ://h/exact HTTP/1.1", b"GET h:80 HTTP/1.1"):
        expect(ask(line, b"Host: h"), 400, repr(line))


def test_other_lines():
    """Other request lines."""
    expect(ask(b"OPTIONS * HTTP/1.1", b"Host: h"), 400, "OPTIONS *")
    expect(ask(b"CONNECT h:443 HTTP/1.1", b"Host: h"), 400, "CONNECT to a host")
    expect(ask(b"CONNECT /exact HTTP/1.1", b"Host: h"), 405, "CONNECT to a path")
    expect(ask(b"BREW /exact HTTP/1.1", b"Host: h"), 429, "a method that nobody knows")
    expect(ask(b"TRACE /exact HTTP/1.1", b"Host: h"), 405, "TRACE")
    expect(ask(b"get /exact HTTP/1.1", b"Host: h"), 400, "a method in small letters")
    expect(ask(b"M" * 20000 + b" /exact HTTP/1.1", b"Host: h"), 429, "20 kB of a method")
    expect(g.raw(b"GET /exact\r\n"), b"Too many requests\n", "HTTP/0.9: refused, without a head")
    expect(g.raw(b"GET /few2\r\n"), b"ok", "HTTP/0.9: let through")
    seen()


def test_hosts():
    expect([ask(b"GET /host HTTP/1.0") for _ in range(4)], [200] * 4, "none: nobody to count for")
    expect(ask(b"GET /exact HTTP/1.0"), 429, "none, and a rule that does not ask for it")
    expect(ask(b"GET /host HTTP/1.1"), 400, "none in HTTP/1.1")
    for host in (b"", b" ", b".", b"a/b", b"a\x00b", b":80", b"a\x01b"):
        expect(ask(b"GET /host HTTP/1.1", b"Host: " + host), 400, repr(host))
    expect([ask(b"GET /host HTTP/1.1", b"Host: " + host) for host in (b"b\xff", b"B\xff.", b"b\xff:80")], FEW, "no UTF-8")
    expect([ask(b"GET /host HTTP/1.1", b"Host: " + host) for host in (b"[::1]", b"[::1]:8", b"[::1]:9")], FEW, "an address")
    long = b"x" * 300
    expect([ask(b"GET /host HTTP/1.1", b"Host: " + long + tail) for tail in (b"a", b"b", b"c")], FEW, "300 bytes, of which 255 count")
    expect(ask(b"GET /host HTTP/1.1", b"Host: a", b"Host: b"), 400, "two")
    seen()


# ---- headers ----


def test_forged():
    """Forged headers."""
    forgeries = [[b"X-Said: client"], [b"x-said: client"], [b"X-SAID: client"], [b"X-Said: client", b"X-Said: client"], [b"X_Said: client"],
                 [b"X-Said:client"], [b"X-Said:  client "], [b"X-Said: a", b"x-said: client"], [b"X-Said:", b"X-Said: client"]]
    expect([get(b"/forge/", *headers) for headers in forgeries], [200] * len(forgeries), "what nginx says stands")
    expect([get(b"/forge/", *[b"X-%d: v" % n for n in range(200)], *headers) for headers in forgeries], [200] * len(forgeries), "among 200")
    seen()


def test_duplicates():
    """Headers that are there twice."""
    a, b, none = b"X-Tenant: a", b"X-Tenant: b", b"X-Tenant:"
    for pair in ((a, b), (b, a), (none, a), (a, none), (a, a, b), (a, b, a), (a, b"x-TENANT:\tb")):
        expect(get(b"/tenant", *pair), 400, f"two values: {pair}")
    expect([get(b"/tenant", a, a), get(b"/tenant", a, b"x-tenant:\ta "), get(b"/tenant", a)], FEW, "one value, and nothing charged before")
    expect([get(b"/tenant", none, none), get(b"/tenant", none)], [200] * 2, "no value")
    odd = b"X-Tenant: \xff\xfe\x80"
    expect([get(b"/tenant", odd) for _ in range(3)], FEW, "no UTF-8")
    expect(get(b"/tenant", b"X-Tenant: " + b"t" * 60000), 200, "60 kB")
    seen()


def test_many():
    """More headers than anybody needs."""
    for count in (62, 63, 64, 65, 66, 300, 900):
        headers = [b"X-%d: %s" % (n, b"v" * (n % 30)) for n in range(count)]
        expect(get(b"/last", *headers, b"X-Last: yes"), 429, f"the last of {count}")
        expect(get(b"/last", *headers), 200, f"none of {count}")
    huge = b"Cookie: a=" + b"c" * 60000
    expect([get(b"/cookie", huge) for _ in range(3)], FEW, "a cookie of 60 kB")
    expect(get(b"/cookie", b"Cookie: " + b"c" * 70000), 400, "more than nginx takes")
    seen()


def test_hops():
    many = b", ".join(b"10.%d.%d.1" % (n // 250, n % 250) for n in range(4000))
    trusted = b", ".join([b"127.0.0.9"] * 90)
    at = [b"X-Forwarded-For: " + chain for chain in (many + b", 192.0.2.1", b"192.0.2.1", b", , " + many + b",192.0.2.1 , " + trusted)]
    expect([get(b"/address", header) for header in at], FEW, "4,000 hops before the client's, and trusted ones behind it")
    split = [b"X-Forwarded-For: 192.0.2.2"] + [b"X-Forwarded-For: 127.0.0.8"] * 90
    expect([get(b"/address", *split), get(b"/address", split[0]), get(b"/address", split[0])], FEW, "in 91 headers")
    junk = [b"X-Forwarded-For: " + chain for chain in (b"\xff\xfe", b"," * 60000, b"999.1.1.1", b"unknown", b"1" * 60000, b":" * 60000)]
    expect([get(b"/address", header) for header in junk], [200] * 2 + [429] * 4, "junk: the address of who is connected")
    seen()


# ---- bodies ----


def test_bodies():
    post = b"POST /upload HTTP/1.1"
    expect(ask(post, b"Host: h", b"Transfer-Encoding: chunked", body=b"5\r\nhello\r\n0\r\n\r\n"), 429, "in chunks")
    expect(ask(post, b"Host: h", b"Content-Length: 60000", body=b"x" * 60000), 429, "60 kB")
    expect(ask(post, b"Host: h", b"Content-Length: 9999999"), 413, "more than nginx takes")
    expect(ask(post, b"Host: h", b"Transfer-Encoding: chunked", body=b"fffff\r\n" + b"x" * 70000), 429, "in chunks, and not all of it")
    for body in (b"zz\r\n", b"-1\r\nx\r\n", b"ffffffffffffffffff\r\nx\r\n"):
        found = statuses(g.raw(request(post, b"Host: h", b"Transfer-Encoding: chunked", body=body), end=True))
        expect(found in ([400], [429], [413]), True, f"{body!r}: {found}")
    expect(seen(), [], "what the backend saw")


def test_trickles():
    """Bodies that trickle.
    Refused before its body is there: the answer comes at once, and nginx does not wait for the rest for ever."""
    for head in (b"Content-Length: 50000", b"Transfer-Encoding: chunked"):
        with socket.create_connection(("127.0.0.1", g.port), DEADLINE_S) as s:
            s.sendall(request(b"POST /upload HTTP/1.1", b"Host: h", head, body=b"1\r\nx\r\n"))
            expect(statuses(s.recv(65536)), [429], f"the answer, {head}")
            s.sendall(b"1\r\nx\r\n")
            rest = b""
            while part := s.recv(65536):
                rest += part
            expect(statuses(rest), [], f"after the answer, {head}")
        with socket.create_connection(("127.0.0.1", g.port), DEADLINE_S) as s:
            s.sendall(request(b"POST /upload HTTP/1.1", b"Host: h", head, body=b"1\r\nx\r\n"))
    expect(seen(), [], "what the backend saw")


def test_pipelines():
    refused, passed = request(b"GET /exact HTTP/1.1", b"Host: h"), request(b"GET /pass HTTP/1.1", b"Host: h")
    upload = request(b"POST /upload HTTP/1.1", b"Host: h", b"Content-Length: 30", body=b"GET /pass HTTP/1.1\r\nHost: h\r\n\r\n"[:30])
    chunked = request(b"POST /upload HTTP/1.1", b"Host: h", b"Transfer-Encoding: chunked", body=b"5\r\nhello\r\n0\r\n\r\n")
    few = request(b"GET /few HTTP/1.1", b"Host: h")
    last = request(b"GET /exact HTTP/1.1", b"Host: h", b"Connection: close")
    found = statuses(g.raw((refused + passed + upload + chunked) * 10 + few * 3 + last))
    expect(found, [429, 200, 429, 429] * 10 + FEW + [429], "in their order, and no body taken for a request")
    expect(seen(), ["/pass"] * 10 + ["/few"] * 2, "what the backend saw")


def test_smuggling():
    """Shapes for smuggling. nginx refuses these shapes; neither weir nor the backend is to see what hides in them."""
    hidden = b"GET /exact HTTP/1.1\r\nHost: h\r\n\r\n"
    shapes = [(b"Content-Length: 4", b"Transfer-Encoding: chunked"), (b"Content-Length: 4", b"Content-Length: 5"),
              (b"Content-Length: 4, 4",), (b"Content-Length: -4",), (b"Content-Length: +4",), (b"Content-Length: 0x4",),
              (b"Content-Length: 99999999999999999999",), (b"Transfer-Encoding: chunked, chunked",), (b"Transfer-Encoding: identity",),
              (b"Transfer-Encoding: xchunked",), (b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked")]
    for shape in shapes:
        found = statuses(g.raw(request(b"POST /pass HTTP/1.1", b"Host: h", *shape, body=b"0\r\n\r\n" + hidden), end=True))
        expect(found in ([400], [501]), True, f"{shape}: {found}")
    expect(seen(), [], "what the backend saw")
    for odd in (b"Content-Length : 4", b"X-A: b\r\n folded", b": nothing", b"X\x00Y: z", b"X-A: \x00"):
        found = statuses(g.raw(request(b"GET /exact HTTP/1.1", b"Host: h", odd, b"Connection: close"), end=True))
        expect(found in ([400], [429]), True, f"{odd}: {found}")


# ---- HTTP/2, by hand ----

DATA, HEADERS, RESET, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def length(n):
    """As HPACK writes it, with seven bits in the first byte."""
    if n < 127:
        return bytes([n])
    result, n = b"\x7f", n - 127
    while n >= 128:
        result, n = result + bytes([n % 128 + 128]), n // 128
    return result + bytes([n])


def block(*headers):
    """Each as a literal that nobody keeps."""
    return b"".join(b"\x00" + length(len(name)) + name + length(len(value)) + value for name, value in headers)


def ask2(*headers, flags=5, more=b""):
    """The status of the answer, or what else came of it: "reset", "goaway"."""
    with socket.create_connection(("127.0.0.1", g.h2_port), DEADLINE_S) as s:
        s.sendall(PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, flags, 1, block(*headers)) + more)
        data = s.makefile("rb")
        while head := data.read(9):
            payload = data.read(int.from_bytes(head[:3], "big"))
            if head[3] == HEADERS:
                return {0x88: 200, 0x8c: 400, 0x8d: 404, 0x8e: 500}.get(payload[0]) or int(payload[2:5])
            if head[3] in (RESET, GOAWAY):
                return "reset" if head[3] == RESET else "goaway"
    return "closed"


def pseudo(path=b"/exact", method=b"GET", scheme=b"http", authority=b"h"):
    named = ((b":method", method), (b":scheme", scheme), (b":path", path), (b":authority", authority))
    return [(name, value) for name, value in named if value is not None]


def test_frames():
    """Frames of HTTP/2."""
    expect(ask2(*pseudo()), 429, "a plain one")
    expect(ask2(*pseudo(authority=None), (b"host", b"h")), 429, "a host instead of an authority")
    expect(ask2(*pseudo(b"/", authority=b"root.example"), (b"host", b"h")) in (429, 400), True, "an authority beside another host")
    for path in SPELLED["exact"] + SPELLED["deeper"] + SPELLED["any"]:
        expect(ask2(*pseudo(path)), 429, repr(path[:60]))
    expect(ask2(*pseudo(b"/slow/" + b"a" * 8000 + b"c!")), 429, "a path of 8 kB")
    for headers in (pseudo(path=None), pseudo(b""), pseudo(b"exact"), pseudo(b"*"), pseudo(b"http://h/exact"), pseudo(b"/tree/%00"),
                    pseudo(b"/exact\x00"), pseudo(method=None), pseudo(method=b""), pseudo(method=b"get"), pseudo(scheme=None),
                    pseudo(authority=None), pseudo(authority=b"a/b"), [(b"x", b"y")] + pseudo(), pseudo() + [(b":path", b"/exact")],
                    pseudo() + [(b":foo", b"x")], pseudo() + [(b"X-Up", b"y")], pseudo() + [(b"x", b"a\r\nb")]):
        found = ask2(*headers)
        expect(found in (400, 429, "reset", "goaway", "closed"), True, f"{headers}: {found}")
    expect(ask2(*pseudo(b"/last"), *[(b"x-%d" % n, b"v") for n in range(300)], (b"x-last", b"yes")), 429, "300 headers")
    expect(ask2(*pseudo(b"/upload", b"POST"), flags=4, more=frame(DATA, 0, 1, b"x" * 1000)), 429, "a body that never ends")
    expect(ask2(*pseudo(b"/forge/"), (b"x-said", b"client")), 200, "a forged header")
    seen()


# ---- costs ----


def test_units():
    answers = [g.ask(f"/units/a?tokens={cost}") for cost in ("9999999999", "2", "1", "1", "0", "0", "0")]
    expect([answer.status for answer in answers], [200, 429, 200, 429, 200, 429, 429], "10000000000 tokens in three requests")
    expect(get(b"/units/b?tokens=9007199254740993"), 429, "too large")
    expect(get(b"/units/b?tokens=x"), 200, "no number counts as one")
    seen()


def test_costs():
    expect(get(b"/cost/a?cost=4294967295"), 429, "the largest")
    for text in (b"4294967296", b"4294967297", b"9007199254740991", b"9007199254740992", b"9223372036854775807", b"9223372036854775808", b"18446744073709551617", b"9" * 5000):
        expect(get(b"/cost/a?cost=" + text), 429, f"more than that: {text[:30]!r}")
    for text in (b"-1", b"1e9", b"0x10", b"+5", b"%30", b"1%00", b"a", b"", b"1.5", b"\xff", b"%2d1"):
        expect(get(b"/cost/%s?cost=%s" % (text.replace(b"%", b"") + b"x", text)), 200, f"no number counts as one: {text!r}")
    answers = [g.ask(f"/cost/b?cost={cost}").headers["X-Left"] for cost in ("007", "x", "0", "", "-9")]
    expect(answers, ["3", "2", "2", "1", "0"], "what is left of ten")
    seen()
