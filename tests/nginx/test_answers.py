"""What clients and logs see of weir in nginx: headers, variables, refusals built by nginx, dry runs, connections that go on."""

import contextlib
import json
import re
import socket

from support import DEADLINE_S, expect, until
from support.gateway import Gateway, an_hour

RULES = """
rules:
  - id: few
    match: { path: [ "/headers/*", "/logged/*", "/page/*", "/dry/*", "/head", "/bodies", "/inherit/*", "/shared/*" ] }
    by: [ ip, path ]
    limits: [ { name: hour, algorithm: fixed_window, max: 2, per: 1h } ]
    reject: { headers: { X-Own: "1" } }
  - id: own
    match: { path: [ "/headers/own", "/headers/legacy/own", "/headers/off/own" ] }
    limits: [ { name: nothing, max: 0, per: 1h } ]
    reject: { headers: { ratelimit: mine, X-RateLimit-Limit: ours, X-Own: "2" } }
  - { id: busy, match: { path: /page/busy }, limits: [ { max: 0, per: 1h } ], reject: { status: 503 } }
  - { id: trial, match: { path: /logged/shadow }, limits: [ { max: 0, per: 1h } ], mode: shadow }
  - { id: never, match: { path: "/never/*" }, limits: [ { name: nothing, max: 0, per: 1h } ] }
  - { id: keyed, match: { path: /keyed }, by: "header:X-Api-Key", limits: [ { max: 0, per: 1h } ] }
"""
OTHER = """
rules:
  - id: one
    match: { path: [ /shared/plain, /shared/legacy, /shared/page, /shared/twice ] }
    by: [ ip, path ]
    limits: [ { name: only, algorithm: fixed_window, max: 1, per: 1h } ]
  - { id: much, match: { path: /dry/both }, limits: [ { max: 1000, per: 1h } ] }
"""

HTTP = """
weir_zone main 1m rules=@FOLDER@/main.yaml;
weir_zone other 1m rules=@FOLDER@/other.yaml;
log_format weir escape=json '{"uri":"$request_uri","status":$status,"verdict":"$weir_verdict","rule":"$weir_rule",'
    '"limit":"$weir_limit","remaining":"$weir_remaining","retry":"$weir_retry_after","shadow":"$weir_shadow"}';
map $weir_verdict $interesting { refused 1; would_refuse 1; default 0; }
"""

SERVER = """
weir main;
access_log @FOLDER@/access weir;
access_log @FOLDER@/refusals weir if=$interesting;
location / { proxy_pass http://@BACKEND@; }
location /headers/off { weir_headers off; proxy_pass http://@BACKEND@; }
location /headers/refused { weir_headers refused; proxy_pass http://@BACKEND@; }
location /headers/always { weir_headers always; proxy_pass http://@BACKEND@; }
location /headers/legacy { weir_headers legacy; proxy_pass http://@BACKEND@; }
location /headers/openai { weir_headers openai; proxy_pass http://@BACKEND@; }
location /always/ { weir_headers always; proxy_pass http://@BACKEND@; }
location /logged/ {
    set $early "before: $weir_verdict";
    add_header X-Early $early;
    add_header X-Weir "$weir_verdict|$weir_rule|$weir_limit|$weir_remaining|$weir_retry_after|$weir_shadow" always;
    proxy_pass http://@BACKEND@;
}
location /page/named { error_page 429 = @slow; proxy_pass http://@BACKEND@; }
location /page/as { error_page 429 =420 @slow; proxy_pass http://@BACKEND@; }
location /page/uri { error_page 429 /slow.html; proxy_pass http://@BACKEND@; }
location /page/away { error_page 429 https://example.com/slow; proxy_pass http://@BACKEND@; }
location /page/busy { error_page 429 = @slow; proxy_pass http://@BACKEND@; }
location /page/upstream { error_page 429 = @slow; proxy_pass http://@BACKEND@; }
location /page/outer { weir off; error_page 404 /page/inner; proxy_intercept_errors on; proxy_pass http://@BACKEND@; }
location /page/inner { weir main path=/never/x; error_page 429 = @slow; proxy_pass http://@BACKEND@; }
location = /slow.html { internal; root @FOLDER@; }
location /page/twice { error_page 429 = @twice; proxy_pass http://@BACKEND@; }
location @twice { weir other path=/shared/twice; weir_headers always; proxy_pass http://@BACKEND@; }
location @slow { default_type text/plain; return 200 "wait $weir_retry_after for $weir_rule\\n"; }
location /dry/ {
    weir_dry_run on;
    proxy_pass http://@BACKEND@;
    location /dry/always { weir_headers legacy; proxy_pass http://@BACKEND@; }
    location /dry/both { weir main; weir other; proxy_pass http://@BACKEND@; }
    location /dry/silent { weir main; weir other; proxy_pass http://@BACKEND@; }
    location /dry/not { weir_dry_run off; proxy_pass http://@BACKEND@; }
}
location /inherit/ {
    weir off;
    proxy_pass http://@BACKEND@;
    location /inherit/still/off { proxy_pass http://@BACKEND@; }
    location /inherit/on { weir main; proxy_pass http://@BACKEND@; }
}
location /shared/ {
    weir main;
    weir other;
    proxy_pass http://@BACKEND@;
    location /shared/legacy { weir_headers legacy; proxy_pass http://@BACKEND@; }
    location /shared/silent { weir_headers legacy; proxy_pass http://@BACKEND@; }
    location /shared/page { weir_headers legacy; error_page 429 = @slow; proxy_pass http://@BACKEND@; }
}
location /never/off { weir off; proxy_pass http://@BACKEND@; }
"""

LIMITS = ("RateLimit-Policy", "RateLimit")
OLD = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
g = Gateway(http=HTTP, server=SERVER, rules={"main": RULES, "other": OTHER})


def sent(answer):
    """Which of the headers about limits are there."""
    return [name for name in (*LIMITS, "Retry-After", *OLD) if name in answer.headers]


def test_header_styles():
    """Weir_headers."""
    wanted = {
        "off": ([], []),
        "refused": ([], [*LIMITS, "Retry-After"]),
        "always": ([*LIMITS], [*LIMITS, "Retry-After"]),
        "legacy": ([*LIMITS, *OLD], [*LIMITS, "Retry-After", *OLD]),
    }
    for style, (passed, refused) in wanted.items():
        answers = [g.ask(f"/headers/{style}") for _ in range(3)]
        expect([answer.status for answer in answers], [200, 200, 429], style)
        expect([sent(answer) for answer in answers], [passed, passed, refused], style)
        expect([answer.headers.get("X-Own") for answer in answers], [None, None, "1"], f"{style}: the rule's own")
    answer = g.ask("/headers/legacy")
    expect([an_hour(answer.headers[name]) for name in LIMITS], ['"few/hour";q=2;w=3600', '"few/hour";r=0;t=3600'], "values")
    expect(an_hour(answer.headers["Retry-After"]), "3600", "the wait")
    expect([answer.headers[name] for name in OLD[:2]], ["2", "0"], "old values")


def test_headers_of_language_models():
    """Weir_headers openai: on every answer, and instead of the standard ones."""
    names = [f"x-ratelimit-{name}-requests" for name in ("limit", "remaining", "reset")]
    answers = [g.ask("/headers/openai") for _ in range(3)]
    expect([answer.status for answer in answers], [200, 200, 429])
    expect([[answer.headers[name] for name in names[:2]] for answer in answers], [["2", "1"], ["2", "0"], ["2", "0"]])
    expect([bool(re.fullmatch(r"1h0m0s|59m5\d(\.\d+)?s", answer.headers[names[2]])) for answer in answers], [True] * 3)
    expect([sent(answer) for answer in answers], [[], [], ["Retry-After"]], "no others")


def test_problems():
    """A client that accepts JSON gets a problem."""
    refused = g.ask("/never/json", headers={"Accept": "text/html, application/problem+json"})
    expect((refused.status, refused.headers.get_all("Content-Type")), (429, ["application/problem+json"]))
    expect(json.loads(refused.body)["violated-policies"], ["never/nothing"])
    for accept in ("*/*", "text/html", "application/problem+json;q=0, */*"):
        expect(g.ask("/never/json", headers={"Accept": accept}).body, b"Too many requests\n", accept)


def test_headers_in_place_of_standard_ones():
    """A rule's own header replaces the standard one of its name, and no other."""
    own = {"RateLimit": ["mine"], "X-RateLimit-Limit": ["ours"], "X-Own": ["2"]}
    policy = {"RateLimit-Policy": ['"few/hour";q=2;w=3600, "own/nothing";q=0;w=3600']}
    wanted = {"/headers/own": {**own, **policy}, "/headers/off/own": own,
              "/headers/legacy/own": {**own, **policy, "X-RateLimit-Remaining": ["0"], "X-RateLimit-Reset": ["0"]}}
    for path, headers in wanted.items():
        answer = g.ask(path)
        expect(answer.status, 429, path)
        found = {name: answer.headers.get_all(name) for name in (*LIMITS, *OLD, "X-Own", "Retry-After")}
        expect({name: values for name, values in found.items() if values}, headers, path)


def test_headers_on_other_answers():
    """Headers on answers of all kinds. Each header once, whoever answers what."""
    g.backend.answers.update({"/headers/always/404": (404, {}, b"no"), "/headers/always/304": (304, {}, b"")})
    for path, status in (("/headers/always/404", 404), ("/headers/always/304", 304)):
        answer = g.ask(path)
        expect((answer.status, sent(answer)), (status, [*LIMITS]), path)
    g.backend.answers["/headers/always/accel"] = (200, {"X-Accel-Redirect": "/always/kept"}, b"")
    answer = g.ask("/headers/always/accel")
    limits = [an_hour(value) for value in answer.headers.get_all("RateLimit")]
    expect((answer.status, limits), (200, ['"few/hour";r=1;t=3600']), "X-Accel-Redirect")
    expect(sent(g.ask("/always/no-rule")), [], "no rule")
    answer = until(lambda: (found := g.ask("/headers/always")).status == 429 and found, "a refusal")
    expect([len(answer.headers.get_all(name)) for name in (*LIMITS, "Retry-After")], [1] * 3, "once each")


def logged(path):
    """What the access log has about the last request for a path; written after the answer is sent."""
    def lines():
        found = [json.loads(line) for line in g.read("access").splitlines(keepends=True) if line.endswith("\n")]
        return [entry for entry in found if entry["uri"] == path]
    return until(lines, f"{path} in the access log")[-1]


def test_variables():
    wanted = {"uri": "/logged/a?1", "status": 200, "verdict": "allowed", "rule": "few", "limit": "hour", "remaining": "1",
              "retry": "0", "shadow": ""}
    for number, changes in ((1, {}), (2, {"remaining": "0"}),
                            (3, {"status": 429, "verdict": "refused", "remaining": "0", "retry": "3600"})):
        wanted = {**wanted, **changes, "uri": f"/logged/a?{number}"}
        answer = g.ask(f"/logged/a?{number}")
        entry = logged(f"/logged/a?{number}")
        expect({**entry, "retry": an_hour(entry["retry"] or "0")}, wanted, "logged")
        expect(answer.headers["X-Weir"], "|".join(list(entry.values())[2:]), "in a header")
    expect(g.ask("/logged/b").headers["X-Early"], "before: ", "asked too early, which spoils nothing")
    expect(g.ask("/logged/shadow").headers["X-Weir"].split("|")[-1], "trial", "shadow")
    expect(logged("/logged/shadow")["shadow"], "trial", "shadow, logged")


def test_variables_where_weir_says_nothing():
    for path, verdict in (("/no/rule", "no_rule"), ("/never/off", "")):
        g.ask(path)
        expect(list(logged(path).values()), [path, 200, verdict, "", "", "", "", ""], path)


def test_conditions():
    """Variables as conditions. A log of refusals only, by a variable."""
    g.ask("/never/logged")
    g.ask("/no/rule")
    until(lambda: "/never/logged" in g.read("refusals"), "a refusal in the log of refusals")
    verdicts = {json.loads(line)["verdict"] for line in g.read("refusals").splitlines()}
    expect(verdicts, {"refused"}, "only those")


def test_pages_of_nginx():
    """Refusals that nginx builds."""
    g.write("slow.html", "<p>slow down</p>")
    for path, status, body in (
        ("/page/named", 200, "wait 3600 for few\n"),
        ("/page/as", 420, "wait 3600 for few\n"),
        ("/page/uri", 429, "<p>slow down</p>"),
        ("/page/away", 302, None),
    ):
        expect(g.statuses(2, path), [200, 200], path)
        answer = g.ask(path)
        expect(answer.status, status, path)
        expect(body in (None, an_hour(answer.body.decode())), True, f"{path}: {answer.body}")
    expect(an_hour(g.ask("/page/uri").headers["Retry-After"]), "3600", "the wait is in the page's headers, too")
    answer = g.ask("/page/busy")
    expect((answer.status, answer.body), (503, b"Too many requests\n"), "a page for 429 is none for 503")
    g.backend.answers["/page/outer"] = (404, {}, b"no")
    answer = g.ask("/page/outer")
    expect((answer.status, answer.body), (429, b"Too many requests\n"), "an error page has none of its own, as nginx has it")
    g.backend.answers["/page/upstream"] = (429, {"Retry-After": "7"}, b"the backend's")
    answer = g.ask("/page/upstream")
    expect((answer.status, answer.headers["Retry-After"], answer.body), (429, "7", b"the backend's"), "a 429 of the backend's own")


def test_dry_run():
    """Dry runs."""
    expect([g.ask(f"/dry/a?{number}").status for number in range(3)], [200] * 3, "passes")
    expect([logged("/dry/a?2")[name] for name in ("verdict", "rule", "limit")], ["would_refuse", "few", "hour"], "logged")
    expect([sent(g.ask(path)) for path in ("/dry/a", "/dry/always")], [[], []], "answers are as they would be without weir")
    expect(g.statuses(3, "/dry/not"), [200, 200, 429], "inherited, and off again")
    for path in ("/dry/both", "/dry/silent"):
        expect([g.ask(f"{path}?{number}").status for number in range(3)], [200] * 3, path)
        expect([logged(f"{path}?2")[name] for name in ("verdict", "rule")], ["would_refuse", "few"], f"{path}: two zones")


def test_error_log():
    """The error log. It has at most ten refusals of a second, so ask until one is among them."""
    end = r', zone "main", client: 127\.0\.0\.9, .*request: "GET '
    for path, line in (
        ("/never/said", r'\[error\].* weir: refused by rule "never", limit "nothing"'),
        ("/dry/said", r'\[error\].* weir: would be refused by rule "few", limit "hour" for ip="127\.0\.0\.9" path="/dry/said", '
                      r'retry after 3[56]\d\d s'),
    ):
        def found():
            g.ask(path, client="127.0.0.9")
            return re.search(line + ".*" + end + path, g.errors())
        until(found, path)


def test_traces():
    """The traceparent of a refused request is in the error log, if it is valid."""
    good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    told = r', zone "main", trace_id=4bf92f3577b34da6a3ce929d0e0e4736 span_id=00f067aa0ba902b7 trace_flags=01'
    bad = ("1", good.upper(), good + "-", good[:-1], "01" + good[2:], good.replace("4bf9", '4"f9'), good.replace("-00f0", "_00f0"),
           "00-" + "0" * 32 + good[35:], good[:36] + "0" * 16 + "-01")
    for number, value in enumerate((good, *bad)):
        def found():
            g.ask(f"/never/traced?{number}", headers={"TraceParent": value})
            return re.search(rf'.*GET /never/traced\?{number} .*', g.errors())
        line = until(found, f"{number} in the log")[0]
        expect(bool(re.search(told + r"(?: \(\d+ more since the last line\))?, client: ", line)), value == good, line)
        expect("trace_id" in line, value == good, line)


def test_secrets():
    """Secrets and control characters in the error log.
    A header may be a password: of a long one the log has the beginning. And what a terminal obeys does not get there."""
    values = (("k123-SECRET", 'k123…"'), ("k12", 'k12"'), ("a\xc2\x9b31m", "a"), ("\xc2\x9b31m-SECRET", ""),
              ("abc\xc2\x9bSECRET", "abc"), ("\xe2\x80\xae1", r"\\u202e1"), ("\xe2\x80\xa8-SECRET", r"\\u2028"))
    for number, (value, shown) in enumerate(values):
        def found():
            g.ask(f"/keyed?{number}", headers={"X-Api-Key": value})
            return re.search(rf'refused by rule "keyed".* for header:x-api-key="{shown}.*GET /keyed\?{number} ', g.errors())
        until(found, f"{number} in the log")
    expect([word for word in ("SECRET", "\x9b", "\u202e", "\u2028") if word in g.errors()], [], "in the log")


def test_heads():
    """HEAD."""
    for _ in range(2):
        answer = g.ask("/head", "HEAD")
        expect((answer.status, answer.headers["Content-Length"]), (200, "2"), "passes")
    answer = g.ask("/head", "HEAD")
    expect((answer.status, answer.headers["Content-Length"], answer.body), (429, "18", b""), "refused")


def test_keep_alive():
    """Connections go on."""
    with contextlib.closing(g.connection("127.0.0.11")) as connection:
        expect([g.ask("/logged/keep", over=connection).status for _ in range(5)], [200] * 2 + [429] * 3, "by rule")
        expect(g.ask("/no/rule", "HEAD", over=connection).status, 200, "afterwards")
        expect(g.ask("/page/busy", over=connection).status, 503, "another")
        expect(g.ask("/no/rule", over=connection).body, b"ok", "at the end")
        expect(g.ask("/no/rule", over=connection).headers["Connection"], "keep-alive", "still")


def test_bodies():
    """Bodies of refused requests. Of a refused request: nobody wants them, and the connection goes on behind them."""
    g.backend.paths()
    with contextlib.closing(g.connection("127.0.0.12")) as connection:
        statuses = [g.ask("/bodies", "POST", "x" * size, over=connection).status for size in (10, 70_000, 1, 30_000, 500_000, 0)]
        expect(statuses, [200] * 2 + [429] * 4, "of all sizes")
        local = connection.sock.getsockname()
        connection.request("POST", "/bodies", body=iter([b"a" * 1000, b"b" * 40_000]), encode_chunked=True,
                           headers={"Transfer-Encoding": "chunked"})
        response = connection.getresponse()
        expect((response.status, response.read()), (429, b"Too many requests\n"), "in chunks")
        expect(g.ask("/no/rule", over=connection).body, b"ok", "afterwards")
        expect(connection.sock.getsockname(), local, "one connection")
    expect(g.backend.paths(), ["/bodies"] * 2 + ["/no/rule"], "what the backend saw")


def test_expectations():
    """Expect: 100-continue. Who waits for leave to send a body gets the refusal at once, and does not send it."""
    head = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", g.port), DEADLINE_S) as s:
        s.sendall(head % b"/never/a")
        expect(s.recv(12), b"HTTP/1.1 429", "no 100")
    said = g.raw(head % b"/no/rule" + b"x" * 1000)
    expect(re.findall(rb"HTTP/1.1 (\d+)", said), [b"100", b"200"], "what passes may send it")


def test_pipelined():
    """Pipelined, and older versions of HTTP."""
    request = b"GET /never/a HTTP/1.1\r\nHost: a\r\n\r\n"
    said = g.raw(request * 3 + b"GET /no/rule HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    expect(re.findall(rb"HTTP/1.1 (\d+)", said), [b"429"] * 3 + [b"200"], "in one go")
    expect(said.endswith(b"\r\n\r\nok"), True, "the last")
    expect(g.raw(b"GET /never/a HTTP/1.0\r\n\r\n")[:12], b"HTTP/1.1 429", "HTTP/1.0")
    expect(g.raw(b"GET /never/a\r\n"), b"Too many requests\n", "HTTP/0.9")


def test_inheritance():
    """Weir off, and on again."""
    for path, wanted in (("/inherit/a", 200), ("/inherit/still/off", 200), ("/inherit/on", 429)):
        expect(g.statuses(3, path), [200, 200, wanted], path)


def test_several_zones():
    asked = [f"/shared/plain?{number}" for number in range(4)]
    expect([g.ask(path, client="127.0.0.13").status for path in asked], [200, 429, 429, 429], "both")
    expect([logged(path)["rule"] for path in asked[1:3]], ["one", "few"], "who refused")
    expect(g.statuses(2, "/shared/plain", client="127.0.0.14"), [200, 429], "another client")


def test_headers_of_several_zones():
    """Those of the zone that spoke last, each once."""
    names = (OLD[0], "RateLimit", OLD[1], "Retry-After")
    one, few = ["1", '"one/only";r=0;t=3600', "0"], ["2", '"few/hour";r=0;t=3600', "0"]
    for path, answers in (
        ("/shared/legacy", [(200, *one), (429, *one, "3600"), (429, *few, "3600")]),
        ("/shared/page", [(200, *one), (200, *one, "3600"), (200, *few, "3600")]),
        ("/shared/silent", [(200, "2", '"few/hour";r=1;t=3600', "1"), (200, *few), (429, *few, "3600")]),
    ):
        for wanted in answers:
            answer = g.ask(path)
            values = [an_hour(value) for name in names for value in answer.headers.get_all(name, [])]
            expect((answer.status, *values), wanted, path)
            expect([len(answer.headers.get_all(name)) for name in (LIMITS[0], OLD[2])], [1, 1], f"{path}: the others")
    for status, headers in ((200, []), (200, []), (200, ["3600", '"one/only";r=0;t=3600']), (429, ["3600", '"one/only";r=0;t=3600'])):
        answer = g.ask("/page/twice")
        values = [an_hour(value) for name in ("Retry-After", "RateLimit") for value in answer.headers.get_all(name, [])]
        expect((answer.status, values), (status, headers), "refused by one zone, and then by another")
