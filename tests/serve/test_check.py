"""POST /v1/check: decisions for programs."""

import json
import os
import subprocess
import tempfile
import threading
import time

from support import ENVIRONMENT, an_hour_since, expect, weir
from support.service import Service
from support.wire import Wire

JSON = {"Content-Type": "application/json"}
RULES = """
settings: { trusted_proxies: [10.0.0.0/8] }
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits:
      - { name: day, algorithm: fixed_window, max: 5, per: 24h }
      - { name: hour, algorithm: fixed_window, max: 3, per: 1h }
  - id: slow
    match: { method: POST, path: "/orders/#" }
    by: [user]
    limits: [ { name: once, algorithm: fixed_window, max: 1, per: 1h } ]
    reject: { status: 503, body: "later" }
  - { id: client, match: { event: ip }, by: [ip], limits: [ { algorithm: fixed_window, max: 1, per: 1h } ] }
  - { id: plan, match: { event: plan, header: { X-Plan: free } }, by: [key], limits: [ { algorithm: fixed_window, max: 1, per: 1h } ] }
  - { id: tried, match: { event: tried }, by: [key], mode: shadow, limits: [ { algorithm: fixed_window, max: 0, per: 1h } ] }
  - { id: race, match: { event: race }, limits: [ { algorithm: fixed_window, max: 100, per: 1h } ] }
"""


def post(s, body, headers=None):
    text = body if isinstance(body, (str, bytes)) else json.dumps(body)
    return s.ask(s.http, "POST", "/v1/check", text, JSON if headers is None else headers)


def refused(answer, status, *parts):
    """An error of the API."""
    expect(answer.status, status, answer.body.decode())
    expect(answer.headers["Content-Type"], "application/json", "type of an error")
    for part in parts:
        if part not in answer.json()["error"]:
            raise AssertionError(f"there is no {part!r} in {answer.json()}")


def remaining(s, key):
    return s.check(event="ocr", key=key, peek=True).json()["remaining"]


def test_as_the_command_says():
    """The verdict is what weir check prints."""
    with Service(rules=RULES) as s:
        for request in ({"event": "ocr", "key": "u1"}, {"event": "none"}, {"event": "tried", "key": "u1"}):
            words = [word for name, value in request.items() for word in (f"--{name}", value)]
            done = weir("check", "--rules", s.rules_file, *words)
            answer = s.check(**request)
            expect(answer.body, done.stdout, "body")
            expect(answer.status, 200, "status")
            expect(answer.headers["Content-Type"], "application/json", "type")


def test_standard_headers():
    """The standard headers."""
    with Service(rules=RULES) as s:
        begin = time.monotonic()
        policy = '"ocr/day";q=5;w=86400, "ocr/hour";q=3;w=3600'
        answer = s.check(event="ocr", key="u1")
        expect(answer.headers["RateLimit-Policy"], policy, "policy")
        expect(answer.headers["RateLimit"], '"ocr/hour";r=2;t=3600, "ocr/day";r=4;t=86400', "limit")
        expect(answer.headers["Retry-After"], None, "no wait")
        s.check(event="ocr", key="u1", cost=2)
        answer = s.check(event="ocr", key="u1")
        expect(answer.status, 429, "status")
        expect(answer.json()["allowed"], False, "allowed")
        expect(an_hour_since(begin, answer.headers["Retry-After"]), "3600", "wait")
        expect(answer.headers["RateLimit-Policy"], policy, "the same on a refusal")
        expect(an_hour_since(begin, answer.headers["RateLimit"]), '"ocr/hour";r=0;t=3600', "the one that refuses")
        expect(s.check(event="none").headers["RateLimit"], None, "no rule")


def test_headers_of_language_models():
    """The setting `headers`."""
    rules = """
settings: { headers: openai }
rules:
  - id: model
    by: [key]
    limits: [ { name: calls, calendar: day, max: 9 }, { name: tokens, algorithm: fixed_window, max: 1000, per: 6m, unit: tokens } ]
"""
    with Service(rules=rules) as s:
        answer = s.check(key="k", costs={"requests": 1, "tokens": 600})
        names = [f"x-ratelimit-{what}-{unit}" for unit in ("requests", "tokens") for what in ("limit", "remaining")]
        expect([answer.headers[name] for name in names], ["9", "8", "1000", "400"])
        expect((answer.headers["x-ratelimit-reset-tokens"], answer.headers["RateLimit"]), ("6m0s", None))
        answer = s.check(key="k", costs={"requests": 1, "tokens": 600})
        expect((answer.status, [answer.headers[name] for name in names]), (429, ["9", "8", "1000", "400"]), "refused")
        expect(0 < int(answer.headers["Retry-After"]) <= 360, True, "the wait")


def test_problems():
    """A client that accepts JSON gets a problem, unless the rule has a body."""
    with Service(rules=RULES) as s:
        ocr = {"event": "ocr", "key": "u1", "cost": 4, "reject": True, "headers": {"Accept": "application/json, text/plain, */*"}}
        answer = s.check(**ocr)
        expect((answer.status, answer.headers["Content-Type"]), (429, "application/problem+json"))
        problem = answer.json()
        expect(problem.pop("type"), "https://iana.org/assignments/http-problem-types#quota-exceeded")
        expect((problem.pop("title"), problem.pop("detail")),
               ("Request cannot be satisfied as assigned quota has been exceeded", "Too many requests; no wait will help"))
        expect(problem, {"status": 429, "violated-policies": ["ocr/hour"]})
        for accept in ("*/*", "text/html", "application/json;q=0", "application/json;q=0.5, text/plain"):
            answer = s.check(**{**ocr, "headers": {"Accept": accept}})
            expect((answer.body, answer.headers["Content-Type"]), (b"Too many requests\n", "text/plain; charset=utf-8"), accept)
        order = {"method": "POST", "path": "/orders/17", "user": "u1", "reject": True, "headers": {"Accept": "application/json"}}
        s.check(**order)
        expect(s.check(**order).body, b"later", "the rule's own")


def test_refused_is_429():
    """A refusal is 429, whatever the rule tells browsers."""
    with Service(rules=RULES) as s:
        request = {"method": "POST", "path": "/orders/17?a=b", "user": "u1"}
        expect(s.check(**request).status, 200, "first")
        answer = s.check(**request)
        expect(answer.status, 429, "the rule's own status is for gateways")
        expect((answer.json()["rule"], answer.json()["status"]), ("slow", 503), "the verdict has it")


def test_status_in_the_verdict():
    """The status of the rule's refusal, or 200."""
    with Service(rules=RULES) as s:
        order = {"method": "POST", "path": "/orders/17", "user": "u1"}
        ocr = {"event": "ocr", "key": "u1", "cost": 9}
        expect([s.check(**each).json()["status"] for each in (order, order, ocr, {"event": "none"})], [200, 503, 429, 200])
        expect([verdict["status"] for verdict in post(s, [order, ocr, {"event": "none"}]).json()], [503, 429, 200], "in a list")


def test_reject_with_many_headers():
    """What does not fit into an answer is left out, and nothing else."""
    headers = ", ".join(f"X-{i}: {'v' * 900}" for i in range(20))
    rules = f"rules: [ {{ id: own, match: {{ event: own }}, limits: [ 1 per 1h ], reject: {{ headers: {{ {headers}, X-Last: z }} }} }} ]"
    with Service(rules=rules) as s:
        s.check(event="own")
        answer = s.check(event="own", reject=True)
        expect((answer.status, answer.body, answer.headers["X-0"]), (429, b"Too many requests\n", "v" * 900))
        expect((answer.headers["X-19"], answer.headers["X-Last"]), (None, "z"))
        expect(answer.headers["RateLimit-Policy"], '"own/token_bucket";q=1;w=3600')
        expect(0 < int(answer.headers["Retry-After"]) <= 3600, True, "Retry-After")


def test_reject():
    """A caller that asks for it gets the refusal as the rule has it."""
    rules = RULES + """
  - { id: own, match: { event: own }, limits: [ 0 per 1h ], reject: { status: 403, body: '{"no":1}', content_type: application/problem+json,
      headers: { X-Why: paid, Retry-After: "7" } } }
  - { id: twice, match: { event: twice }, by: "header:X-Key", limits: [ 5 per 1h ] }
"""
    with Service(rules=rules) as s:
        order = {"method": "POST", "path": "/orders/17", "user": "u1", "reject": True}
        answer = s.check(**order)
        expect((answer.status, answer.json()["rule"]), (200, "slow"), "allowed: the verdict")
        answer = s.check(**order)
        expect((answer.status, answer.body, answer.headers["Content-Type"]), (503, b"later", "text/plain; charset=utf-8"))
        expect(answer.headers["RateLimit-Policy"], '"slow/once";q=1;w=3600')
        expect(0 < int(answer.headers["Retry-After"]) <= 3600, True, "Retry-After")
        for flag in (False, None):
            answer = s.check(**{**order, "reject": flag})
            expect((answer.status, answer.json()["status"]), (429, 503), f"reject: {flag}")
        answer = s.check(event="own", reject=True)
        expect((answer.status, answer.body, answer.headers["Content-Type"]), (403, b'{"no":1}', "application/problem+json"))
        expect((answer.headers["X-Why"], answer.headers["Retry-After"]), ("paid", "7"))
        answer = s.check(event="ocr", key="u1", cost=9, reject=True)
        expect((answer.status, answer.body, answer.headers["Retry-After"]), (429, b"Too many requests\n", None), "the standard one")
        answer = s.check(event="twice", headers={"X-Key": ["a", "b"]}, reject=True)
        expect((answer.status, answer.body), (400, b"Bad request: the header x-key is repeated with different values\n"))
        expect(s.check(event="own", reject=True, peek=True).status, 403, "without charging")
        refused(post(s, [{"event": "ocr", "key": "u2"}, {"event": "ocr", "key": "u2", "reject": True}]), 400, "request [1]: reject", "list")
        expect(remaining(s, "u2"), 3, "nothing was charged")
        expect(post(s, [{"event": "own", "reject": False}]).json()[0]["status"], 403, "false in a list")
        refused(post(s, {"event": "own", "reject": "yes"}), 400, "reject: must be true or false")
        refused(post(s, '{"event": "own", "reject": true, "reject": true}'), 400, "reject: is given twice")


def test_looking_costs_nothing():
    with Service(rules=RULES) as s:
        for _ in range(5):
            expect(remaining(s, "u1"), 3, "peek")
            expect(s.check(event="ocr", key="u1", cost=0).json()["remaining"], 3, "cost 0")
        expect(s.check(event="ocr", key="u1", cost=4, peek=True).status, 429, "would be refused")
        expect(s.check(event="ocr", key="u1", cost=3).status, 200, "and nothing was charged")


def test_lists():
    """A list is decided in order, up to 1,000."""
    with Service(rules=RULES) as s:
        answer = post(s, [{"event": "ocr", "key": key} for key in ("a", "b", "a", "a", "a")] + [{}])
        expect(answer.status, 200, answer.body)
        found = answer.json()
        expect([verdict["allowed"] for verdict in found], [True, True, True, True, False, True], "in order")
        expect([verdict["rule"] for verdict in found], ["ocr"] * 5 + [None], "rules")
        expect(post(s, []).json(), [], "an empty list")
        expect(len(post(s, [{"event": "ocr", "key": "a"}]).json()), 1, "a list of one")
        many = post(s, [{"event": "ocr", "key": f"k{i // 4}"} for i in range(1000)]).json()
        expect([verdict["allowed"] for verdict in many], [True, True, True, False] * 250, "a thousand")
        refused(post(s, [{"event": "ocr", "key": "n"}] * 1001), 413, "at most 1000")
        expect(remaining(s, "n"), 3, "nothing was charged")


def test_one_mistake_and_nothing_is_charged():
    """One mistake in a list, and nothing is charged."""
    with Service(rules=RULES) as s:
        refused(post(s, [{"event": "ocr", "key": "a"}, {"event": "ocr", "cost": -1}]), 400, "request [1]: cost: must be")
        refused(post(s, '[{"event": "ocr", "key": "a"}, {"event": "ocr"'), 400, "request [1]: not JSON: byte")
        expect(remaining(s, "a"), 3, "nothing was charged")


def test_mistakes_are_named():
    with Service(rules=RULES) as s:
        refused(post(s, {"users": "u"}), 400, 'unknown field "users"; allowed: method, path')
        refused(post(s, {"user": 17}), 400, "user: must be a string; nothing was charged")
        expect("hint" in post(s, {"user": 17}).json(), False, "no hint")
        refused(post(s, {"cost": -1}), 400, "cost: must be a whole number from 0 to 9007199254740991")
        refused(post(s, {"cost": 1.5}), 400, "cost: must be a whole number")
        refused(post(s, {"headers": ["a"]}), 400, "headers: must be an object")
        refused(post(s, '{"key": "a", "key": "b"}'), 400, "key: is given twice")
        refused(post(s, ""), 400, "must be an object")
        refused(post(s, b'{"key": "\xff"}'), 400, "byte 10: this is not UTF-8")
        refused(post(s, '{"a\x1b": 1}'), 400, "control character")
        expect(post(s, {"\x1b[2J": 1}).json()["error"][:21], 'unknown field "\x1b[2J";', "escaped")


def test_no_address():
    """What is no address is a mistake. It would quietly switch off every limit by address."""
    with Service(rules=RULES) as s:
        for field in ("ip", "peer"):
            for text in ("zz", "999.1.1.1", "1.2.3.4,5.6.7.8", "unknown"):
                refused(post(s, {"event": "ip", field: text}), 400, f"{field}: must be one IPv4 or IPv6 address")
        refused(post(s, [{"event": "ocr", "key": "a"}, {"event": "ip", "ip": "zz"}]), 400, "request [1]: ip: must be one")
        expect(remaining(s, "a"), 3, "nothing was charged")
        expect(s.check(event="ip", ip="").json()["rule"], None, "nobody's address")
        expect(s.check(event="ocr", key="a", cost=None, peek=None, ip=None).json()["remaining"], 2, "null is left out")


def test_no_query():
    """A query is a mistake."""
    with Service(rules=RULES) as s:
        answer = s.ask(s.http, "POST", "/v1/check?event=ocr&key=a", '{"event": "ocr", "key": "a"}', JSON)
        refused(answer, 400, "belongs in the body", "nothing was charged")
        expect(remaining(s, "a"), 3, "nothing was charged")


def test_mistakes_are_logged():
    """Mistakes are logged, sampled. A line for many of them, and nothing of the request that is secret."""
    with Service(rules=RULES) as s:
        for i in range(20):
            post(s, {"users": f"secret-{i}"})
        found = s.events("mistake")
        expect([entry["level"] for entry in found], ["warning"], found)
        expect('/v1/check, request from 127.0.0.1: 400, unknown field "users"' in found[0]["message"], True, found)
        expect("secret" in found[0]["message"], False, found)


def test_who_may_ask():
    """Only application/json, and no permission for pages of others."""
    with Service(rules=RULES) as s:
        body = json.dumps({"event": "ocr", "key": "a"})
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", "multipart/form-data", ""):
            refused(post(s, body, {"Content-Type": kind}), 415, "application/json")
        refused(post(s, body, {}), 415)
        expect(remaining(s, "a"), 3, "nothing was charged")
        expect(post(s, body, {"Content-Type": "Application/JSON ; charset=utf-8"}).status, 200, "a parameter")
        answer = s.ask(s.http, "OPTIONS", "/v1/check", None, {"Origin": "http://a", "Access-Control-Request-Method": "POST"})
        refused(answer, 405)
        expect([name for name in answer.headers if name.lower().startswith("access-control")], [], "no permission")


def test_other_paths_and_methods():
    with Service(rules=RULES) as s:
        for path in ("/", "/v1/check/", "/v1/Check", "/v2/check", "/v1%2fcheck", "/metrics"):
            answer = s.ask(s.http, "GET", path)
            refused(answer, 404, path)
            if "/v1/check" not in answer.json()["hint"]:
                raise AssertionError(answer.json())
        for method in ("GET", "PUT", "DELETE", "HEAD", "PATCH"):
            answer = s.ask(s.http, method, "/v1/check")
            expect((answer.status, answer.headers["Allow"]), (405, "POST"), method)


def test_the_token():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "token")
        with open(path, "w", encoding="ascii") as file:
            file.write("s3cret-of-the-callers-0123456789\n")
        os.chmod(path, 0o600)
        with Service("--token-file", path, rules=RULES) as s:
            body = json.dumps({"event": "ocr", "key": "a"})
            for given in (None, "Bearer wrong", "s3cret-of-the-callers-0123456789", "Basic s3cret", "Bearer ", ""):
                answer = post(s, body, {**JSON, **({"Authorization": given} if given is not None else {})})
                refused(answer, 401, "token")
                expect(answer.headers["WWW-Authenticate"], "Bearer", "what is wanted")
            good = {**JSON, "Authorization": "Bearer s3cret-of-the-callers-0123456789"}
            expect(post(s, body, good).json()["remaining"], 2, "the first that counted")


def test_attributes():
    """Addresses, headers and any text."""
    with Service(rules=RULES) as s:
        def asks(want, **request):
            expect(s.check(**request).status, want, request)

        asks(200, event="ip", ip="192.0.2.1")
        asks(429, event="ip", ip="192.0.2.1:80")
        asks(429, event="ip", peer="10.0.0.1", headers={"X-Forwarded-For": "203.0.113.9, 192.0.2.1"})
        asks(200, event="ip", peer="10.0.0.1", headers={"X-Forwarded-For": ["192.0.2.1", "192.0.2.2, 10.9.9.9"]})
        asks(429, event="ip", peer="192.0.2.2", headers={"X-Forwarded-For": "192.0.2.3"})
        asks(200, event="ip", ip="2001:db8::1")
        asks(429, event="ip", ip="2001:db8::2")
        asks(200, event="plan", key="k", headers={"x-plan": "free"})
        asks(429, event="plan", key="k", headers={"X-PLAN": "free"})
        asks(200, event="plan", key="k", headers={"x-plan": "paid"})
        asks(200, event="ocr", key="é\u0001😀", cost=3)
        asks(429, event="ocr", key="é\u0001😀")


def read(stream):
    """One answer: status and body."""
    status = int(stream.readline().split()[1])
    length = 0
    while (line := stream.readline().strip()):
        name, value = line.split(b":", 1)
        if name.lower() == b"content-length":
            length = int(value)
    return status, stream.read(length)


def test_one_connection():
    """One connection, many requests."""
    with Service(rules=RULES) as s, s.socket(s.http) as connection:
        stream = connection.makefile("rb")
        head = b"POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        body = b'{"event": "ocr", "key": "a"}'
        whole = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        connection.sendall(whole * 3)
        expect([read(stream)[0] for _ in range(3)], [200] * 3, "pipelined")
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n5\r\n" + body[:5] + b"\r\n")
        connection.sendall(b"%x\r\n" % (len(body) - 5) + body[5:] + b"\r\n0\r\n\r\n")
        expect(read(stream)[0], 429, "in chunks")
        connection.sendall(head + b"Content-Length: 1\r\n\r\n{" + whole.replace(b'"a"', b'"b"'))
        expect([read(stream)[0] for _ in range(2)], [400, 200], "after a mistake")


def test_too_large():
    """A body that is too large."""
    with Service("--request-bytes", "64k", rules=RULES) as s:
        refused(post(s, [{"event": "ocr", "key": "x" * 70000}]), 413, "65536")
        expect(s.check(event="ocr", key="x" * 60000).status, 200, "below it")


def test_curl():
    with Service(rules=RULES) as s:
        url = "http://{}:{}/v1/check".format(*s.http)
        words = ["curl", "-sS", "-H", "Content-Type: application/json", "-d", '{"event": "ocr", "key": "u1", "cost": 3}']
        words += ["-w", "%{http_code}", url]
        found = [subprocess.run(words, capture_output=True, env=ENVIRONMENT, check=True).stdout.decode() for _ in range(2)]
        expect([text[-3:] for text in found], ["200", "429"], "status")
        expect([json.loads(text[:-3])["allowed"] for text in found], [True, False], "verdict")


def test_many_at_once():
    """Exactly as many as there may be, over all loops."""
    with Service("--threads", "2", rules=RULES) as s:
        passed = []

        def client():
            for _ in range(20):
                passed.append(sum(verdict["allowed"] for verdict in post(s, [{"event": "race"}] * 3).json()))
                passed.append(s.check(event="race").status == 200)

        clients = [threading.Thread(target=client) for _ in range(4)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        expect((len(passed), sum(passed)), (160, 100), "passed")


def test_killed_and_back():
    """Kill -9 loses no count."""
    with Service(rules=RULES) as s:
        expect(s.check(event="ocr", key="a", cost=3).status, 200, "before")
        s.kill()
        s.start()
        expect(s.check(event="ocr", key="a").status, 429, "after")


def test_answers_over_resp():
    """WEIR.CHECK … answer: content type, body and headers for an HTTP client."""
    with Service(rules=RULES) as s, Wire(s) as wire:
        ocr = ("WEIR.CHECK", "event", "ocr", "key", "u1")
        policy = ["RateLimit-Policy", '"ocr/day";q=5;w=86400, "ocr/hour";q=3;w=3600']
        first = wire.ask(*ocr, "answer", "always")
        expect(first[11:], ["requests", 0, None, None, *policy, "RateLimit", '"ocr/hour";r=2;t=3600, "ocr/day";r=4;t=86400'])
        expect(len(wire.ask(*ocr, "answer", "refused")), 11, "a long reply")
        expect(wire.ask(*ocr, "answer", "always", "cost", "9", "reply", "long")[11:15], ["requests", 0, "text/plain; charset=utf-8", "Too many requests\n"])
        found = wire.ask(*ocr, "answer", "refused", "cost", "9", "header:Accept", "application/json")
        expect((found[13], json.loads(found[14])["violated-policies"], found[15:17]), ("application/problem+json", ["ocr/day", "ocr/hour"], policy))
        expect(wire.ask("WEIR.CHECK", "event", "none", "answer", "always")[11:], [None, 0, None, None], "no rule")
        expect(wire.ask("WEIR.PEEK", *ocr[1:], "answer", "always")[15:17], policy, "a peek")
        expect("allowed: always, refused" in str(wire.ask(*ocr, "answer", "now")), True, "a mistake")
        expect([wire.ask("MULTI"), wire.ask(*ocr, "answer", "always")], ["OK", "QUEUED"])
        expect("not allowed between MULTI and EXEC" in str(wire.ask("EXEC")), True, "in a transaction")
        expect("given twice" in str(wire.ask(*ocr, "answer", "always", "answer", "always")), True, "twice")
