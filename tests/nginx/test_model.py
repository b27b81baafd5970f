"""The rule model in nginx: conditions, subjects, shadow, except, expires, several limits, refusals of the rule's own."""

import json

from support import expect, until
from support.gateway import ZONE, Gateway

RULES = """
rules:
  - { id: ip, match: { path: /ip }, by: ip, limits: [ LIMIT ] }
  - { id: user, match: { path: /user }, by: user, limits: [ LIMIT ] }
  - { id: tenant, match: { path: /tenant }, by: "header:X-Tenant", limits: [ LIMIT ] }
  - { id: plan, match: { path: /plan, header: { X-Plan: free } }, limits: [ LIMIT ] }
  - { id: said, match: { path: "/said/*", header: { X-Said: nginx } }, limits: [ LIMIT ] }
  - { id: host, match: { path: /host, host: shop.example }, limits: [ LIMIT ] }
  - { id: hosts, match: { path: /hosts }, by: host, limits: [ LIMIT ] }
  - { id: method, match: { path: /method, method: [POST, DELETE] }, limits: [ LIMIT ] }
  - { id: methods, match: { path: /methods }, by: method, limits: [ LIMIT ] }
  - { id: bundle, match: { path: "/entity/#/bundle" }, limits: [ LIMIT ] }
  - { id: route, match: { path: "/route/*" }, by: route, limits: [ LIMIT ] }
  - { id: path, match: { path: "/path/*" }, by: path, limits: [ LIMIT ] }
  - { id: regex, match: { path: { regex: "/x(y|z)+" } }, limits: [ LIMIT ] }
  - { id: event, match: { event: ocr }, by: key, limits: [ LIMIT ] }
  - { id: events, match: { path: /events }, by: [event, user], limits: [ LIMIT ] }
  - { id: trial, match: { path: /trial }, limits: [ LIMIT ], mode: shadow }
  - { id: trial-2, match: { path: /trial }, limits: [ LIMIT ], mode: shadow }
  - { id: switched-off, match: { path: /off }, limits: [ { max: 0, per: 1h } ], mode: off }
  - { id: long-ago, match: { path: /expires }, limits: [ { max: 0, per: 1h } ], expires: 2020-01-01T00:00:00Z }
  - { id: not-yet, match: { path: /expires }, limits: [ LIMIT ], expires: 2999-01-01T00:00:00Z }
  - { id: not-these, match: { path: /except }, limits: [ LIMIT ], except: { ip: 127.0.0.64/28, user: [admin, 7] } }
  - id: two
    match: { path: /two }
    by: ip
    limits:
      - { name: day, algorithm: fixed_window, max: 5, per: 1d }
      - { name: hour, algorithm: fixed_window, max: 3, per: 1h }
  - { id: both-each, match: { path: /both }, by: ip, limits: [ { name: each, algorithm: fixed_window, max: 1, per: 1h } ] }
  - { id: both-all, match: { path: /both }, limits: [ { name: all, algorithm: fixed_window, max: 3, per: 1h } ] }
  - id: own
    match: { path: "/own/*" }
    limits: [ { max: 0, per: 1h } ]
    reject:
      status: 503
      body: '{"error":"slow down"}'
      content_type: application/json
      headers: { X-Help: "https://example.com/limits", X-Code: "7", Server: shop, date: "Sun, 06 Nov 1994 08:49:37 GMT" }
  - { id: long, match: { path: /long }, limits: [ { max: 0, per: 1h } ], reject: { body: "@LONG@" } }
  - { id: none, match: { path: /none }, limits: [ { max: 0, per: 1h } ], reject: { status: 599, body: "" } }
  - id: tiers
    match: { path: "/tiers/*" }
    by: user
    plan: "header:X-Plan"
    ignore_case: true
    plans: { free: [ LIMIT ], pro: [ { name: few, algorithm: fixed_window, max: 4, per: 1h } ] }
    limits: [ { name: few, algorithm: fixed_window, max: 1, per: 1h } ]
  - { id: costly, match: { path: "/cost/*" }, limits: [ { name: units, algorithm: fixed_window, max: 10, per: 1h } ] }
overrides:
  - { rule: tiers, by: { user: banned }, deny: true }
  - { rule: tiers, by: { user: partner }, unlimited: true }
  - { rule: tiers, by: { user: large }, limits: [ { name: few, algorithm: fixed_window, max: 3, per: 1h } ] }
""".replace("LIMIT", "{ name: few, algorithm: fixed_window, max: 2, per: 1h }")

SERVER = """
add_header X-Weir "$weir_verdict,$weir_rule,$weir_limit,$weir_remaining" always;
add_header X-Shadow "$weir_shadow" always;
location / {
    weir main user=$arg_user key=$arg_key event=$arg_event;
    proxy_pass http://@BACKEND@;
}
location /tiers/nginx {
    weir main user=$arg_user header:X-Plan=$arg_plan;
    proxy_pass http://@BACKEND@;
}
location /said/ {
    weir main header:X-Said=$arg_said;
    proxy_pass http://@BACKEND@;
}
location /cost/ {
    weir main cost=$arg_cost;
    proxy_pass http://@BACKEND@;
}
location /given/ {
    weir main ip=$arg_ip host=$arg_host method=$arg_method path=/$arg_path user=a$arg_user-b;
    proxy_pass http://@BACKEND@;
}
location /rewritten/ {
    weir main;
    rewrite ^/rewritten(/.*)$ $1 break;
    proxy_pass http://@BACKEND@;
}
rewrite ^/moved(/.*)$ $1 last;
"""

FEW = [200, 200, 429]
LONG = "0123456789abcdef" * 4096
g = Gateway(http=ZONE, server=SERVER, rules=RULES, names={"LONG": LONG})


def test_addresses():
    """By address."""
    expect(g.statuses(3, "/ip", client="127.0.0.2"), FEW, "one")
    expect(g.statuses(3, "/ip", client="127.0.0.3"), FEW, "another")


def test_users():
    """By user."""
    expect(g.statuses(3, "/user?user=ann"), FEW, "ann")
    expect(g.statuses(3, "/user?user=bob"), FEW, "bob")
    expect(g.statuses(4, "/user"), [200] * 4, "nobody")
    expect(g.ask("/user").headers["X-Weir"], "no_rule,,,", "the verdict on nobody")


def test_headers():
    expect(g.statuses(3, "/tenant", headers={"x-tenant": "a"}), FEW, "by a header")
    expect(g.statuses(3, "/tenant", headers={"X-TENANT": "b"}), FEW, "another value")
    expect(g.statuses(3, "/tenant"), [200] * 3, "none")
    many = {**{f"X-{number}": "x" for number in range(80)}, "X-Tenant": "c"}
    expect(g.statuses(3, "/tenant", headers=many), FEW, "among many")
    expect(g.statuses(3, "/plan", headers={"X-Plan": "paid"}), [200] * 3, "another value than the rule's")
    expect(g.statuses(3, "/plan", headers={"X-Plan": "free"}), FEW, "the rule's")


def test_plans_and_overrides():
    def get(count, user, plan=None):
        return g.statuses(count, f"/tiers/x?user={user}", headers={"X-Plan": plan} if plan else {})

    expect(get(3, "u1", "Free"), FEW, "a plan")
    expect(get(3, "u1", "pro"), [200, 200, 429], "another plan: what was used stays used")
    expect(get(2, "u2"), [200, 429], "no plan")
    expect(get(2, "u3", "gold"), [200, 429], "a plan that the rule does not have")
    expect(get(1, "banned", "pro"), [429], "denied")
    expect(g.ask("/tiers/x?user=banned").headers["X-Weir"], "refused,tiers,deny,0", "the verdict on a denial")
    expect(get(5, "partner"), [200] * 5, "unlimited")
    expect(get(4, "large", "free"), [200] * 3 + [429], "limits of its own")
    forged = {"X-Plan": "pro"}
    expect(g.statuses(3, "/tiers/nginx?user=u4&plan=free", headers=forged), FEW, "nginx says the plan, not the client")


def test_headers_of_nginx():
    """Headers that nginx says. What the configuration says about a header counts; what a client says does not."""
    forged = {"X-Said": "nginx"}
    expect(g.statuses(3, "/said/", headers=forged), [200] * 3, "by the client alone")
    expect(g.statuses(3, "/said/?said=other", headers=forged), [200] * 3, "by the client, and otherwise by nginx")
    expect(g.statuses(3, "/said/?said=nginx", headers={"X-Said": "other"}), FEW, "by nginx")


def test_hosts():
    expect(g.statuses(3, "/host", headers={"Host": "other.example"}), [200] * 3, "another")
    hosts = ["shop.example", "SHOP.example:8080", "shop.example."]
    expect([g.ask("/host", headers={"Host": host}).status for host in hosts], FEW, "the rule's")
    absolute = b"GET http://shop.example/host HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n"
    expect(g.raw(absolute)[:12], b"HTTP/1.1 429", "in the request line")
    expect(g.statuses(3, "/hosts", headers={"Host": "a"}), FEW, "each for itself: a")
    expect(g.statuses(3, "/hosts", headers={"Host": "b"}), FEW, "each for itself: b")


def test_methods():
    expect(g.statuses(3, "/method"), [200] * 3, "GET")
    expect([g.ask("/method", method).status for method in ("POST", "DELETE", "POST")], FEW, "POST and DELETE together")
    expect(g.statuses(3, "/methods", "PUT"), FEW, "each for itself: PUT")
    expect(g.statuses(3, "/methods", "BREW"), FEW, "each for itself: one that nginx does not know")


def test_paths():
    """Templates, regexes, routes."""
    uuid = "/entity/3f2b8c1a-0000-4000-8000-123456789abc/bundle"
    expect([g.ask(path).status for path in ("/entity/1/bundle", uuid, "/entity/2/bundle")], FEW, "a template")
    expect(g.ask("/entity/x/bundle").status, 200, "no id")
    expect([g.ask(path).status for path in ("/xy", "/xyz", "/xzzy")], FEW, "a regex")
    expect([g.ask(path).status for path in ("/x", "/axy", "/xya")], [200] * 3, "only the whole path")
    routes = ("/route/1", "/route/2", "/route/3", "/route/a", "/route/b")
    expect([g.ask(path).status for path in routes], FEW + [200] * 2, "routes")
    asked = ("/path/1", "/path/2", "/path/1", "/path/1?q", "/path/2")
    expect([g.ask(path).status for path in asked], [200, 200, 200, 429, 200], "paths")


def test_spellings():
    """A path spelled differently."""
    client = "127.0.0.4"
    expect(g.statuses(2, "/ip", client=client), [200] * 2, "used up")
    for path in ("/ip?a", "/%69%70", "/ip/", "//ip", "/./ip", "/ip;v=1", "/a/../ip", "/a/%2e%2e/ip", "/ip#x", "/ip/.", "/%2e/ip"):
        expect(g.ask(path, client=client).status, 429, path)


def test_before_rewrites():
    """The path is that before rewrites."""
    expect(g.statuses(3, "/moved/ip", client="127.0.0.5"), [200] * 3, "what it is rewritten to has a rule")
    expect(g.statuses(3, "/rewritten/ip", client="127.0.0.5"), [200] * 3, "in the location")
    g.backend.paths()
    expect(g.statuses(3, "/path/../moved/path/x", client="127.0.0.5"), [200] * 3, "and spelled differently")
    expect(g.backend.paths(), ["/path/x"] * 3, "what the backend saw")


def test_events():
    """Events and keys."""
    expect(g.statuses(3, "/any?event=ocr&key=u1"), FEW, "u1")
    expect(g.statuses(3, "/other?event=ocr&key=u2"), FEW, "u2")
    expect(g.statuses(3, "/any?event=ocr"), [200] * 3, "no key")
    expect(g.statuses(3, "/any?event=scan&key=u1"), [200] * 3, "another event")
    expect(g.statuses(3, "/events?event=a&user=u"), FEW, "by event and user")
    expect(g.statuses(3, "/events?event=b&user=u"), FEW, "by another event")


def test_given():
    """Attributes that the configuration gives in the place of nginx's own."""
    expect([g.ask(f"/given/?path=ip&ip=192.0.2.1&n={n}", client=f"127.0.1.{n}").status for n in (1, 2, 3)], FEW, "ip")
    expect(g.statuses(3, "/given/?path=ip&ip=2001:db8::1&n="), FEW, "an IPv6 address")
    expect(g.ask("/given/?path=ip&ip=2001:db8::2").status, 429, "its neighbour in the same /64")
    expect(g.ask("/given/?path=ip&ip=2001:db8:0:1::1").status, 200, "another network")
    none = ["", "unknown", "999.1.1.1", "192.0.2.1,192.0.2.9", "192.0.2.1%00", "1" * 100]
    found = [g.ask(f"/given/?path=ip&ip={text}", client="127.0.1.9").status for text in none]
    expect(found, [*FEW, *[429] * (len(none) - len(FEW))], "what is no address: whoever is connected")
    expect(g.statuses(3, "/given/?path=hosts&host=c"), FEW, "host")
    expect(g.statuses(3, "/given/?path=methods&method=LINK"), FEW, "method")
    expect(g.statuses(3, "/given/?path=user&user=x"), FEW, "user, of text and a variable")
    expect(g.ask("/user?user=ax-b").status, 429, "the same user elsewhere")


def test_shadow():
    """Shadow rules."""
    expect(g.statuses(2, "/trial"), [200] * 2, "room")
    answer = g.ask("/trial")
    expect((answer.status, answer.headers["X-Shadow"]), (200, "trial,trial-2"), "none left")


def test_off_and_expired():
    """Rules that are off or expired."""
    expect(g.statuses(3, "/off"), [200] * 3, "off")
    answers = [g.ask("/expires") for _ in range(3)]
    expect([answer.status for answer in answers], FEW, "one is expired, one is not")
    expect(answers[2].headers["X-Weir"], "refused,not-yet,few,0", "who refused")


def test_exceptions():
    expect(g.statuses(3, "/except", client="127.0.0.70"), [200] * 3, "an address of the network")
    expect(g.statuses(3, "/except?user=admin"), [200] * 3, "a user")
    expect(g.statuses(3, "/except?user=7"), [200] * 3, "a user that is a number")
    expect(g.statuses(3, "/except?user=ann", client="127.0.0.80"), FEW, "nobody of those")


def test_all_or_nothing():
    """Several limits, all or nothing."""
    expect(g.statuses(5, "/two"), [200] * 3 + [429] * 2, "the hour's is used up")
    expect(g.ask("/two").headers["X-Weir"], "refused,two,hour,0", "who refused")
    expect(g.ask("/both", client="127.0.0.2").headers["X-Weir"], "allowed,both-each,each,0", "the first")
    expect(g.ask("/both", client="127.0.0.2").headers["X-Weir"], "refused,both-each,each,0", "the first again")
    expect([g.ask("/both", client=f"127.0.0.{n}").status for n in (3, 4, 5)], FEW, "that refusal was charged to nobody")
    expect(g.ask("/both", client="127.0.0.5").headers["X-Weir"], "refused,both-all,all,0", "who refused")


def test_costs():
    left = [g.ask(f"/cost/?cost={cost}").headers["X-Weir"] for cost in (3, 5)]
    expect(left, ["allowed,costly,units,7", "allowed,costly,units,2"], "3 and 5 of 10")
    expect(g.ask("/cost/?cost=3").headers["X-Weir"], "refused,costly,units,2", "3 of 2")
    for cost in ("4294967295", "4294967296", "18446744073709551617", "9" * 100):
        expect(g.ask(f"/cost/?cost={cost}").headers["X-Weir"], "refused,costly,units,2", cost)
    expect(g.ask("/cost/?cost=0").headers["X-Weir"], "allowed,costly,units,2", "0 charges nothing")
    expect(g.ask("/cost/?cost=-1").headers["X-Weir"], "allowed,costly,units,1", "what is no number costs 1")
    expect(g.ask("/cost/").headers["X-Weir"], "allowed,costly,units,0", "and so does none")
    expect(g.statuses(2, "/cost/?cost=1"), [429] * 2, "no more")


def test_own_refusals():
    """Refusals of the rule's own."""
    answer = g.ask("/own/thing")
    expect((answer.status, json.loads(answer.body)), (503, {"error": "slow down"}), "status and body")
    wanted = {"Content-Type": "application/json", "X-Help": "https://example.com/limits", "X-Code": "7", "Content-Length": "21"}
    expect({name: answer.headers[name] for name in wanted}, wanted, "headers")
    once = [answer.headers.get_all(name) for name in ("Server", "Date")]
    expect(once, [["shop"], ["Sun, 06 Nov 1994 08:49:37 GMT"]], "those that nginx has itself, too")
    answer = until(lambda: (found := g.ask("/ip", client="127.0.0.4")).status == 429 and found, "a refusal")
    expect((answer.body, answer.headers["Content-Type"]), (b"Too many requests\n", "text/plain; charset=utf-8"), "no own one")
    answer = g.ask("/long")
    expect((len(answer.body), answer.body.decode() == LONG), (65536, True), "a long one")
    answer = g.ask("/none")
    expect((answer.status, answer.body), (599, b""), "none at all")


def test_backend_saw():
    """A refusal does not reach the backend."""
    g.backend.paths()
    expect(g.ask("/own/again").status, 503, "refused")
    expect(g.backend.paths(), [], "what the backend saw")
