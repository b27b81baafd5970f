"""Penalties in nginx: answers, log, variables, metrics; shared by all workers, and by whoever has the cells file."""

from support import expect, has, weir
from support.gateway import Gateway

RULES = """
rules:
  - id: login
    match: { path: /login }
    by: ip
    limits: [ { name: m, algorithm: fixed_window, max: 1, per: 2s } ]
    penalty: { after: 3, within: 1m, for: 1h }
"""
FAILURES = """
rules:
  - id: failures
    match: { path: /guess }
    by: ip
    limits: [ { name: m, algorithm: fixed_window, max: 2, per: 1m } ]
    penalty: { after: 3, within: 1m, for: 1h }
"""
HTTP = "weir_zone main 1m rules=@FOLDER@/rules.yaml cells=@FOLDER@/cells;"
SERVER = """
weir main;
add_header X-Penalty "[$weir_penalty]" always;
location / { proxy_pass http://@BACKEND@; }
location = /status { weir off; weir_status main; }
"""

GUESSES = """
add_header X-Penalty "[$weir_penalty]" always;
location = /guess { weir failures status=401,403; proxy_pass http://@BACKEND@; }
"""

g = Gateway(http=HTTP, server=SERVER, rules=RULES, workers=2)
# A response is charged once it has been sent. One worker does that before it takes the next request.
guessed = Gateway(http="weir_zone failures 1m rules=@FOLDER@/rules.yaml;", server=GUESSES, rules=FAILURES)


def test_refused_for_longer():
    answers = []
    for _ in range(20):
        answers.append(g.ask("/login"))
        if answers[-1].headers["X-Penalty"] == "[1]":
            break
    expect(answers[0].status, 200)
    last = answers[-1]
    expect((last.status, last.headers["X-Penalty"]), (429, "[1]"), "penalised")
    expect(3590 <= int(last.headers["Retry-After"]) <= 3600, True, last.headers["Retry-After"])
    for _ in range(8):  # whichever worker answers
        expect((g.ask("/login").status, g.ask("/login").headers["X-Penalty"]), (429, "[1]"))
    expect(g.ask("/other").headers["X-Penalty"], "[]")
    has(g.errors(), 'refused by rule "login", limit "m" for ip="127.0.0.1", because of a penalty, retry after 3600 s')
    metrics = g.ask("/status?format=prometheus").body.decode()
    has(metrics, 'weir_penalties_total{zone="main",rule="login"} 1\n', 'weir_penalty_refusals_total{zone="main",rule="login"} 16\n')
    explained = weir("explain", "--rules", g.path("rules.yaml"), "--cells", g.path("cells"), "--path", "/login", "--ip", "127.0.0.1")
    has(explained.stdout.decode(), "penalised for another ", "1 penalty, the next one lasts 2 h", "a penalty for too many refusals; retry in ")


def test_who_goes_on_guessing():
    """A zone with status= only looks before the response. What it refuses counts all the same."""
    guessed.backend.answers["/guess"] = (401, {}, b"")
    answers = [guessed.ask("/guess") for _ in range(6)]
    expect([a.status for a in answers], [401, 401, 429, 429, 429, 429])
    expect([a.headers["X-Penalty"] for a in answers], ["[]", "[]", "[]", "[]", "[1]", "[1]"])
    expect(int(answers[-1].headers["Retry-After"]) > 3500, True, answers[-1].headers["Retry-After"])
