"""A request is counted once, however nginx goes about it; and once where it first comes to a place with a limit."""

import os

import pytest

from support import expect, until
from support.gateway import ZONE, Gateway

RULES = """
rules:
  - { id: all, by: ip, limits: [ { name: many, algorithm: fixed_window, max: 1000000, per: 1d } ] }
  - { id: never, match: { path: [ /never-page, /never-before, /never-after ] }, limits: [ { max: 0, per: 1h } ] }
"""

SERVER = """
weir main;
add_header X-Remaining $weir_remaining always;
root @FOLDER@;
recursive_error_pages on;
location / { proxy_pass http://@BACKEND@; }

location /auth-request { auth_request /sub/auth; proxy_pass http://@BACKEND@; }
location /mirror { mirror /sub/mirror-1; mirror /sub/mirror-2; proxy_pass http://@BACKEND@; }
location /ssi { ssi on; ssi_types *; proxy_pass http://@BACKEND@; }
location /add { add_before_body /sub/before; add_after_body /sub/after; addition_types *; proxy_pass http://@BACKEND@; }
location /sub/ { proxy_pass http://@BACKEND@; }

location /error-uri { error_page 404 = /fallback; proxy_intercept_errors on; proxy_pass http://@BACKEND@; }
location /error-named { error_page 404 = @named; proxy_intercept_errors on; proxy_pass http://@BACKEND@; }
location /error-chain { error_page 404 = /error-named; proxy_intercept_errors on; proxy_pass http://@BACKEND@; }
location @named { weir main; rewrite ^ /named break; proxy_pass http://@BACKEND@; }
location /try { try_files /none.html /none-2.html /fallback; }
location /try-named { try_files /none.html @named; }
location /folder { index none.html index.html; }
location = /folder/index.html { weir main; }
location /accel { proxy_pass http://@BACKEND@; }
location /kept/ { internal; alias @FOLDER@/folder/; }
location /if { if ($arg_a) { set $b 1; } if ($arg_a) { add_header X-If 1; } proxy_pass http://@BACKEND@; }
location /rewrite { rewrite ^ /rewrite-2; }
location /rewrite-2 { rewrite ^ /fallback last; }
location /never { weir main; proxy_pass http://@BACKEND@; }
location /never-page { error_page 429 = /fallback; proxy_pass http://@BACKEND@; }

location /after { auth_request /sub/auth; weir main after_auth; try_files /none.html @named; }
location /after-error {
    weir main after_auth;
    error_page 404 = /after-error-2;
    proxy_intercept_errors on;
    proxy_pass http://@BACKEND@;
}
location /never-after { auth_request /sub/auth; weir main after_auth; mirror /sub/mirror-1; proxy_pass http://@BACKEND@; }
location /never-before { auth_request /sub/auth; mirror /sub/mirror-1; proxy_pass http://@BACKEND@; }
location /after-error-2 { weir main after_auth; proxy_pass http://@BACKEND@; }

location /free/ { weir off; proxy_pass http://@BACKEND@; }
location /free/return { weir off; return 204; }
location /free/try { weir off; try_files /none.html /limited; }
location /free/error { weir off; error_page 404 = @named; proxy_intercept_errors on; proxy_pass http://@BACKEND@; }
location /free/rewrite { weir off; rewrite ^ /limited last; }
location /free/auth { weir off; auth_request /sub/auth; proxy_pass http://@BACKEND@; }
location /free/error-never { weir off; error_page 404 /never; proxy_intercept_errors on; proxy_pass http://@BACKEND@; }
location /free/try-never { weir off; try_files /none.html /never; }
location /limited { weir main; proxy_pass http://@BACKEND@; }
"""

MISSING = ("/error-uri", "/error-named", "/error-chain", "/after-error", "/free/error", "/free/error-never")
g = Gateway(http=ZONE, server=SERVER, rules=RULES)


@pytest.fixture(scope="module", autouse=True)
def content(nginx):
    for path in MISSING:
        g.backend.answers[path] = (404, {}, b"no")
    os.mkdir(g.path("folder"))
    g.write("folder/index.html", "index")


def left():
    """A request of its own tells, and counts."""
    return int(g.ask("/plain").headers["X-Remaining"])


def counted(path):
    before = left()
    answer = g.ask(path)
    expect(answer.status // 100, 2, f"{path}: {answer.status} {answer.body}")
    return before - left() - 1, answer.body


def expect_count(wanted, path, seen=None, body=None):
    count, got = counted(path)
    paths = []

    def asked(how_many):
        paths.extend(asked for asked in g.backend.paths() if asked != "/plain")
        return len(paths) >= how_many

    # nginx answers without waiting for mirrors.
    until(lambda: asked(len(seen or [])), lambda: f"{path}: the backend saw {paths}, not {seen}")
    if seen is not None:
        expect(sorted(paths), sorted(seen), f"{path}: what the backend saw")
    if body is not None:
        expect(got, body, path)
    expect(count, wanted, f"{path}: counted")


def test_plain():
    """A plain request."""
    expect_count(1, "/plain-2", ["/plain-2"])


def test_subrequests():
    g.backend.answers["/ssi"] = (200, {}, b'<!--#include virtual="/sub/1" --> <!--#include virtual="/sub/2" -->.')
    expect_count(1, "/auth-request", ["/sub/auth", "/auth-request"])
    expect_count(1, "/mirror", ["/mirror", "/sub/mirror-1", "/sub/mirror-2"])
    expect_count(1, "/ssi", ["/ssi", "/sub/1", "/sub/2"], b"ok ok.")
    expect_count(1, "/add", ["/add", "/sub/before", "/sub/after"], b"okokok")


def test_error_pages():
    expect_count(1, "/error-uri", ["/error-uri", "/fallback"])
    expect_count(1, "/error-named", ["/error-named", "/named"])
    expect_count(1, "/error-chain", ["/error-chain", "/error-named", "/named"])


def test_files():
    """Try_files and index."""
    expect_count(1, "/try", ["/fallback"])
    expect_count(1, "/try-named", ["/named"])
    expect_count(1, "/folder/", [], b"index")
    expect_count(1, "/folder/index.html", [], b"index")


def test_accel_redirects():
    """X-Accel-Redirect."""
    g.backend.answers["/accel"] = (200, {"X-Accel-Redirect": "/kept/index.html"}, b"")
    g.backend.answers["/accel-2"] = (200, {"X-Accel-Redirect": "/accel"}, b"")
    expect_count(1, "/accel", ["/accel"], b"index")
    expect_count(1, "/accel-2", ["/accel-2", "/accel"], b"index")


def test_rewrites():
    expect_count(1, "/rewrite", ["/fallback"])
    expect_count(1, "/if?a=1", ["/if?a=1"])


def test_refusals():
    """A refusal with a page. The page of a refusal is not refused in its turn, and what is refused counts nowhere."""
    expect_count(0, "/never-page", ["/fallback"])


def test_refusals_bother_nobody():
    """A refusal bothers nobody. Neither who checks passwords, unless they come first, nor who gets a copy."""
    g.backend.paths()
    expect(g.ask("/never-before").status, 429, "before access control")
    expect(g.backend.paths(), [], "what the backend saw")
    expect(g.ask("/never-after").status, 429, "after it")
    expect(g.backend.paths(), ["/sub/auth"], "what the backend saw")


def test_after_access_control():
    expect_count(1, "/after", ["/sub/auth", "/named"])
    expect_count(1, "/after-error", ["/after-error", "/after-error-2"])


def test_from_places_without_limits():
    """From places without limits to places with them."""
    expect_count(0, "/free/x", ["/free/x"])
    expect_count(0, "/free/return", [])
    expect_count(0, "/free/auth", ["/free/auth", "/sub/auth"])
    expect_count(1, "/free/try", ["/limited"])
    expect_count(1, "/free/error", ["/free/error", "/named"])
    expect_count(1, "/free/rewrite", ["/limited"])


def test_refused_on_the_way():
    """Refused on the way to such a place.
    By what was asked for, not by where nginx looks for it; the refusal has its own status in any case."""
    g.write_rules(RULES.replace("/never-page", '"/free/*"'))
    g.reload()
    for path in ("/free/error-never", "/free/try-never"):
        answer = g.ask(path)
        expect((answer.status, answer.body), (429, b"Too many requests\n"), path)
