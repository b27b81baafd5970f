"""The module makes only what rules look at: so rules that come to look at something else must find it, from their first request
on. And addresses that reach weir in binary are the same subjects as their texts."""

import itertools

from support import expect, until
from support.gateway import Gateway

MAX = 3
NOBODY = "rules: []"
SERVER = """
add_header X-Weir "$weir_rule $weir_remaining" always;
location / {
    weir main user=$http_x_user key=$arg_key event=$http_x_event header:X-Tier=$http_x_plan descriptor:tenant=$http_x_tenant;
    proxy_pass http://@BACKEND@;
}
location /real {
    set_real_ip_from 127.0.0.0/8;
    real_ip_header X-Real-IP;
    weir main;
    proxy_pass http://@BACKEND@;
}
location /forwarded { weir main header:X-Forwarded-For=$http_x_hops; proxy_pass http://@BACKEND@; }
"""
HTTP = "weir_zone main 1m rules=@FOLDER@/main.yaml;"

g = Gateway(http=HTTP, server=SERVER, rules={"main": NOBODY}, workers=2)
numbers = itertools.count()


def subject(by, number):
    """Headers and path of a request that is the subject of this number, whatever else it has."""
    noise = f"n{next(numbers)}"
    values = {"user": noise, "key": noise, "event": noise, "header:X-Tier": noise, "header:X-Own": noise, "descriptor:tenant": noise}
    values[by] = f"s{number}"
    headers = {
        "X-User": values["user"], "X-Event": values["event"], "X-Plan": values["header:X-Tier"], "X-Own": values["header:X-Own"],
        "X-Tenant": values["descriptor:tenant"], "X-Forwarded-For": f"203.0.113.{number if by == 'ip' else next(numbers) % 200}",
    }
    return {"path": f"/?key={values['key']}", "headers": headers}


def use(rules):
    """Writes rules in which RULE is the id of a new one, with its limit. Returns the id."""
    rule = f"r{next(numbers)}"
    limit = f"limits: [ {{ algorithm: fixed_window, max: {MAX}, per: 1h }} ]"
    seen = f"  - {{ id: seen-{rule}, match: {{ path: /seen }}, {limit} }}\n"
    g.write_rules(rules.replace("RULE", f"id: {rule}, {limit}") + seen, "main")
    return rule


def in_force(rule):
    """Until every worker has it."""
    with g.connection_to_each() as connections:
        for connection in connections:
            until(lambda: g.ask("/seen", over=connection).headers["X-Weir"].startswith(f"seen-{rule}"), f"{rule} is in force")


def test_rules_that_look_at_something_else():
    """Each version of the rules counts by something that the one before did not look at."""
    proxies = "settings: { trusted_proxies: [ 127.0.0.0/8 ] }\n"
    order = ["user", "key", "header:X-Own", "event", "ip", "header:X-Tier", "descriptor:tenant", "user", "ip", "key"]
    for by in order:
        rule = use(f"{proxies if by == 'ip' else ''}rules:\n  - {{ RULE, match: {{ path: / }}, by: '{by}' }}\n")
        in_force(rule)
        for number in (1, 2):
            found = [g.ask(**subject(by, number)) for _ in range(MAX + 2)]
            expect([answer.status for answer in found], [200] * MAX + [429] * 2, f"by {by}")
            expect(found[0].headers["X-Weir"], f"{rule} {MAX - 1}", f"by {by}")


def test_shadow_rules_and_exceptions():
    """They look at something, too."""
    rule = use("settings: { except: { user: [ root ] } }\nrules:\n  - { RULE, match: { path: / }, by: key }\n")
    in_force(rule)
    for user, wanted in (("root", [200] * (MAX + 1)), ("ann", [200] * MAX + [429])):
        found = [g.ask("/?key=k", headers={"X-User": user}).status for _ in range(MAX + 1)]
        expect(found, wanted, user)


def test_the_configured_hops():
    """A configured X-Forwarded-For counts, and that of the client does not."""
    rule = use("settings: { trusted_proxies: [ 127.0.0.0/8 ] }\nrules:\n  - { RULE, match: { path: /forwarded }, by: ip }\n")
    in_force(rule)
    for last in (1, 2):
        found = [
            g.ask("/forwarded", headers={"X-Hops": f"198.51.100.{last}", "X-Forwarded-For": f"203.0.113.{next(numbers) % 200}"}).status
            for _ in range(MAX + 1)
        ]
        expect(found, [200] * MAX + [429], "hops")


def test_addresses():
    """An address counts once, however it is written; IPv6 by its network."""
    rule = use("rules:\n  - { RULE, match: { path: /real }, by: ip }\n")
    in_force(rule)
    for same in (
        ["192.0.2.7", "::ffff:192.0.2.7", "::ffff:c000:207"],
        ["2001:db8:1:2::7", "2001:db8:1:2:ffff::1", "2001:0db8:0001:0002::"],
        ["2001:db8:1:3::7", "2001:DB8:1:3:0:0:0:8", "2001:db8:1:3::"],
        ["0.0.0.0", "0.0.0.0", "0.0.0.0"],
        ["255.255.255.255", "::ffff:255.255.255.255", "255.255.255.255"],
    ):
        found = [g.ask("/real", headers={"X-Real-IP": address}) for address in same]
        expect([answer.headers["X-Weir"] for answer in found], [f"{rule} {MAX - 1 - i}" for i in range(MAX)], same)


def test_refusals_follow_the_client():
    """A refusal follows Accept, also if no rule looks at headers."""
    rule = use("rules:\n  - { RULE, match: { path: / }, by: user }\n")
    in_force(rule)
    for _ in range(MAX):
        g.ask("/", headers={"X-User": "json"})
    answer = g.ask("/", headers={"X-User": "json", "Accept": "application/problem+json"})
    expect((answer.status, answer.headers["Content-Type"]), (429, "application/problem+json"), "what the client accepts")
