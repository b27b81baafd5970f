"""Values that a client spells in many ways: blanks and tabs around them, headers that it sends twice. A backend reads the same
value each time, so each of them is one subject."""

import itertools
import json
import re
import shutil
import subprocess

from support import DEADLINE_S, expect, until
from support.gateway import Gateway

RULES = """
settings: { trusted_proxies: [ 127.0.0.2, 198.51.100.0/24 ], repeated_headers: REPEATED }
rules:
  - { id: header, match: { path: "/header/*" }, by: "header:X-Api-Key", limits: [ FIVE ] }
  - { id: plan, match: { path: "/plan/*", header: { X-Plan: free } }, limits: [ FIVE ] }
  - { id: key, match: { event: key }, by: key, limits: [ FIVE ] }
  - { id: user, match: { event: user }, by: user, limits: [ FIVE ], except: { user: [ root ] } }
  - { id: said, match: { event: said }, by: "header:X-Said", limits: [ FIVE ] }
  - { id: event, match: { path: "/event/*" }, by: event, limits: [ FIVE ] }
  - { id: ip, match: { path: [ "/ip/*", "/real/*" ] }, by: ip, limits: [ FIVE ] }
  - { id: watch, match: { event: watch }, by: "header:X-Watch", mode: shadow, limits: [ FIVE ] }
""".replace("FIVE", "{ algorithm: fixed_window, max: 5, per: 1h }")

# Each zone has rules of its own, which differ in what they do with a header that is repeated.
ZONES = ("refuse", "first", "last")
HTTP = "".join(f"weir_zone {zone} 1m rules=@FOLDER@/{zone}.yaml;\n" for zone in ZONES) + """
weir_zone shadow 1m rules=@FOLDER@/shadow.yaml;
log_format verdicts "$weir_verdict $weir_rule $weir_limit $http_x_api_key";
access_log @FOLDER@/access verdicts;
"""
PLACES = """
location ~ ^/(header|plan|ip)/ZONE/ { weir ZONE; proxy_pass http://@BACKEND@; }
location /event/ZONE/ { weir ZONE event=$http_x_event; proxy_pass http://@BACKEND@; }
location /key/ZONE/ { weir ZONE event=key key=$http_x_api_key; proxy_pass http://@BACKEND@; }
location /made/ZONE/ { set $made $http_x_api_key; weir ZONE "event= key" key=$made; proxy_pass http://@BACKEND@; }
location /both/ZONE/ { weir ZONE event=key key="both:$http_x_tenant/${http_x_api_key}"; proxy_pass http://@BACKEND@; }
location /user/ZONE/ { weir ZONE event=user user=$HTTP_X_User; proxy_pass http://@BACKEND@; }
location /said/ZONE/ { weir ZONE event=said header:X-Said=$http_x_api_key; proxy_pass http://@BACKEND@; }
location /watch/ZONE/ { weir ZONE event=watch header:X-Watch=$http_x_watch; proxy_pass http://@BACKEND@; }
location /real/ZONE/ { weir ZONE ip=$http_x_real_ip; proxy_pass http://@BACKEND@; }
"""
SERVER = "".join(PLACES.replace("ZONE", zone) for zone in ZONES) + """
location /dry/ { weir refuse event=key key=$http_x_api_key; weir_dry_run on; proxy_pass http://@BACKEND@; }
location /page/ { weir refuse event=key key=$http_x_api_key; error_page 400 = @twice; proxy_pass http://@BACKEND@; }
location @twice { return 418; }
location /shadow/ { weir shadow user=$http_x_user key=$http_x_api_key; proxy_pass http://@BACKEND@; }
location = /status { weir_status refuse; }
"""
SHADOW = """
rules:
  - { id: user, by: user, mode: shadow, limits: [ 5 per 1h ] }
  - { id: ip, by: ip, limits: [ 100 per 1h ] }
"""

g = Gateway(http=HTTP, server=SERVER,
            rules={**{zone: RULES.replace("REPEATED", zone) for zone in ZONES}, "shadow": SHADOW})
BLANKS = ["", " ", "\t", "\t\t", " \t", "\t ", "  ", "\t\t\t", " \t ", "\t \t"]
BAD = "Bad request: the header x-api-key is repeated with different values\n"
TOO_MANY = [200] * 5 + [429] * 194


def get(path, *headers, client="127.0.0.1"):
    """The status. Headers go out as they are: http.client would tidy them up."""
    lines = [f"GET {path} HTTP/1.1", "Host: h", "Connection: close", *headers, "", ""]
    answer = g.raw("\r\n".join(lines).encode("latin-1"), client)
    return int(re.match(rb"HTTP/1\.1 (\d{3}) ", answer)[1])


def spelled(value):
    """199 different spellings of a header's value, as far as blanks go."""
    return [f"{before}{value}{after}" for before, after in itertools.islice(itertools.product(BLANKS * 2, BLANKS), 199)]


def key_as(backend_request, name):
    """What a backend makes of it."""
    return backend_request.headers.get(name).strip()


# ---- blanks ----


def test_blanks():
    """Blanks around values."""
    for zone in ZONES:
        places = {"header": "X-Api-Key", "key": "X-Api-Key", "user": "X-User", "said": "X-Api-Key", "event": "X-Event"}
        for place, name in places.items():
            g.backend.paths()
            found = [get(f"/{place}/{zone}/", f"{name}:{value}") for value in spelled("REALKEY")]
            expect(found, TOO_MANY, f"blanks around the value: {place}, {zone}")
            expect(len(g.backend.seen), 5, "what the backend was asked")
            expect({key_as(request, name) for request in g.backend.seen}, {"REALKEY"}, "by the same client")
        expect([get(f"/plan/{zone}/", f"X-Plan:{value}") for value in spelled("free")], TOO_MANY, "what a rule matches")


def test_blanks_in_other_variables():
    """Blanks at the ends of a value are trimmed, whatever the value is made from."""
    for zone in ZONES:
        found = [get(f"/made/{zone}/", f"X-Api-Key:{value}") for value in spelled("MADE")]
        expect(found, TOO_MANY, "a variable that is made of a header")


def test_blanks_in_the_middle():
    """Blanks in the middle of an expression. Of an expression: the value of each header is trimmed by itself."""
    for zone in ZONES:
        found = [get(f"/both/{zone}/", f"X-Tenant:{value}", "X-Api-Key: k") for value in spelled("t")]
        expect(found, TOO_MANY, "the end of the first is in the middle")
        expect(get(f"/both/{zone}/", "X-Tenant: t t", "X-Api-Key: k"), 200, "blanks inside are a part of it")


def test_addresses():
    """Blanks around addresses."""
    for zone in ZONES:
        found = [get(f"/real/{zone}/", f"X-Real-IP:{value}") for value in spelled("192.0.2.7")]
        expect(found, TOO_MANY, "an address that the configuration takes from a header")
        expect(get(f"/real/{zone}/", "X-Real-IP: 192.0.2.8"), 200, "another one")


def test_nothing_but_blanks():
    expect([get("/key/refuse/", f"X-Api-Key:{blank}") for blank in BLANKS], [200] * len(BLANKS), "is no value")
    expect(get("/user/refuse/", "X-User: \t "), 200, "nor a user")


# ---- twice ----


def test_twice():
    """A header twice.
    199 times a junk key before the real one, or behind it; the real one is not charged for it, and junk reaches nobody."""
    for place, name in {"header": "X-Api-Key", "key": "X-Api-Key", "said": "X-Api-Key", "user": "X-User"}.items():
        g.backend.paths()
        for n in range(199):
            lines = [f"{name}: junk{n}", f"{name}: FRESH"]
            expect(get(f"/{place}/refuse/", *(lines if n % 2 else lines[::-1])), 400, f"{place}: twice")
        expect(g.backend.paths(), [], "what the backend was asked")
        expect([get(f"/{place}/refuse/", f"{name}: FRESH") for _ in range(6)], [200] * 5 + [429], "nothing was charged")
    root = ["X-User: root", "X-User: ann"]
    expect([get("/user/refuse/", *root), get("/user/refuse/", *root[::-1])], [400] * 2, "one of them is excepted")
    expect(get("/plan/refuse/", "X-Plan: paid", "X-Plan: free"), 400, "a condition")
    expect(get("/both/refuse/", "X-Tenant: a", "X-Tenant: b", "X-Api-Key: k"), 400, "a part of an expression")
    expect(get("/real/refuse/", "X-Real-IP: 192.0.2.30", "X-Real-IP: 192.0.2.31"), 400, "an address")


def test_what_is_not_twice():
    for lines in (["X-Api-Key: same", "x-api-key:\tsame "], ["X-Api-Key: same", "X-Other: a", "X-Other: b"]):
        for place in ("header", "key", "said"):
            expect(get(f"/{place}/refuse/", *lines), 200, f"{place}: {lines}")
    expect(get("/key/refuse/", "X-Api-Key:", "X-Api-Key: full"), 400, "an empty one is another value")
    expect(get("/key/refuse/", "X-Api-Key: full", "X-Api-Key: \t"), 400, "an empty one behind it")
    expect(get("/key/refuse/", "X-Api-Key:", "X-Api-Key: \t"), 200, "two empty ones are none")
    expect(get("/header/refuse/", "X-Tenant: a", "X-Tenant: b", "X-Api-Key: z"), 200, "no rule looks at it")
    expect(get("/shadow/", "X-User: a", "X-User: b"), 200, "a shadow rule refuses nothing")
    expect(get("/shadow/", "X-Api-Key: a", "X-Api-Key: b"), 200, "no rule looks at the key")
    expect(get("/watch/refuse/", "X-Watch: a", "X-Watch: b"), 200, "nor a header that the configuration gives")


def test_answer():
    """What is said of it. What the client, the logs and the status say."""
    said = len(g.read("errors"))

    def logged():
        """The log has only a few of many refusals in each second."""
        nonlocal refused
        refused = g.ask("/key/refuse/", headers=[("X-Api-Key", "a"), ("X-Api-Key", "b")])
        expect((refused.status, refused.body.decode()), (400, BAD), "the answer")
        return len(g.read("errors")) > said

    refused = None
    until(logged, "a line in the log")
    expect([name for name in refused.headers if "atelimit" in name.lower() or name == "Retry-After"], [], "no limit, no wait")
    found = 'weir: refused, because the client repeats the header "x-api-key" with different values, zone "refuse"'
    expect(found in g.read("errors")[said:], True, g.read("errors")[said:])
    expect(re.sub(r",? b$", "", g.read("access").splitlines()[-1]), "refused - - a", "the variables")
    expect(get("/dry/", "X-Api-Key: a", "X-Api-Key: b"), 200, "a dry run")
    expect(g.read("access").splitlines()[-1].split()[0], "would_refuse", "its verdict")
    expect(get("/page/", "X-Api-Key: a", "X-Api-Key: b"), 418, "a page of nginx's own")
    status = json.loads(g.ask("/status").body)
    expect("x-api-key" in json.dumps(status), False, "no rule is blamed")


def test_settings():
    """The first or the last. Who knows its backend takes the first or the last one, and junk does not help."""
    for zone, order in {"first": 1, "last": -1}.items():
        for place, name in {"header": "X-Api-Key", "key": "X-Api-Key", "said": "X-Api-Key", "user": "X-User", "both": "X-Api-Key"}.items():
            found = []
            for n in range(199):
                lines = [f"{name}: ", f"{name}:\tTWICE", f"{name}: junk{n}", f"{name}: more{n}"]
                found.append(get(f"/{place}/{zone}/", *lines[::order]))
            expect(found, TOO_MANY, f"{place}: the {zone} that says something")
        until(lambda: get(f"/plan/{zone}/", "X-Plan: free") == 429, "used up")
        lines = ["X-Plan: free", "X-Plan: paid"][::order]
        expect(get(f"/plan/{zone}/", *lines), 429, "what a rule matches")
        expect(get(f"/plan/{zone}/", *lines[::-1]), 200, "and what it does not")
        get(f"/key/{zone}/", "X-Api-Key: one", "X-Api-Key: two")
        expect(g.read("access").splitlines()[-1].split(" ")[3].rstrip(","), "one", "others see what nginx says of the header")


def test_equal_ones_are_one():
    """nginx from 1.23 on joins them."""
    for zone in ZONES:
        for place in ("header", "key", "said"):
            found = [get(f"/{place}/{zone}/", *["X-Api-Key: MANY"] * (1 + n % 4)) for n in range(8)]
            expect(found, [200] * 5 + [429] * 3, f"{place}, {zone}")


# ---- X-Forwarded-For ----


def forwarded(path, *values, client="127.0.0.2"):
    return get(path, *[f"X-Forwarded-For:{value}" for value in values], client=client)


def test_hops():
    """X-Forwarded-For in several lines.
    In several lines, it is one list: the rightmost address that is not trusted is the client's."""
    for zone in ZONES:
        found = []
        for n in range(199):
            junk, own = f"203.0.113.{n}", f"{BLANKS[n % 10]}192.0.2.9{BLANKS[n // 10 % 10]}"
            shapes = [[junk, own], [f"{junk}, {junk}", own, "198.51.100.1"], [f"{junk},{own}"], [junk, f"{own}, 198.51.100.2 ", "\t"],
                      ["", f"{junk} ,{own}", ",", "198.51.100.3,198.51.100.4"]]
            found.append(forwarded(f"/ip/{zone}/", *shapes[n % len(shapes)]))
        expect(found, TOO_MANY, "who is behind trusted proxies")
        expect(forwarded(f"/ip/{zone}/", "192.0.2.9", "192.0.2.10"), 200, "another client")
        expect(forwarded(f"/ip/{zone}/", "192.0.2.9", client="127.0.0.3"), 200, "a client that is no proxy")


def test_http2():
    """HTTP/2."""
    curl = shutil.which("curl")
    if not curl:
        return

    def ask(*headers):
        done = subprocess.run([curl, "-s", "-o", "/dev/null", "-w", "%{http_code}", "--http2-prior-knowledge",
                               *itertools.chain.from_iterable(("-H", header) for header in headers),
                               f"http://127.0.0.1:{g.h2_port}/key/refuse/"],
                              capture_output=True, text=True, timeout=DEADLINE_S, check=True)
        return int(done.stdout)

    expect(ask("X-Api-Key: H2", "X-Api-Key: junk"), 400, "twice")
    expect([ask(f"X-Api-Key: H2{blank}") for blank in BLANKS[:7]], [200] * 5 + [429] * 2, "blanks")
