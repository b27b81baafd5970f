"""Who a request is charged to: addresses behind proxies, users behind access control."""

import base64
import re
import socket

from support import DEADLINE_S, expect, until
from support.gateway import ZONE, Gateway

RULES = """
settings: { trusted_proxies: [ 127.0.0.2, 198.51.100.0/24 ] }
rules:
  - { id: ip, match: { path: [ "/ip", "/here/ip" ] }, by: ip, limits: [ { algorithm: fixed_window, max: 1000, per: 1h } ] }
  - { id: user, match: { path: "/user/*" }, by: user, limits: [ { name: few, algorithm: fixed_window, max: 2, per: 1h } ] }
  - { id: all, match: { path: "/all/*" }, limits: [ { name: few, algorithm: fixed_window, max: 2, per: 1h } ] }
"""

SERVER = """
listen unix:@FOLDER@/socket;
location / {
    weir main;
    add_header X-Remaining $weir_remaining always;
    proxy_pass http://@BACKEND@;
}
location /here/ {
    set_real_ip_from 127.0.0.3;
    real_ip_header X-Real-IP;
    weir main;
    add_header X-Remaining $weir_remaining always;
    proxy_pass http://@BACKEND@;
}
location /user/request {
    auth_request /auth;
    auth_request_set $uid $upstream_http_x_user;
    weir main after_auth user=$uid;
    proxy_pass http://@BACKEND@;
}
location /user/basic {
    auth_basic shop;
    auth_basic_user_file @FOLDER@/users;
    weir main after_auth user=$remote_user;
    proxy_pass http://@BACKEND@;
}
location /user/early {
    auth_basic shop;
    auth_basic_user_file @FOLDER@/users;
    weir main user=$remote_user;
    proxy_pass http://@BACKEND@;
}
location /all/deny {
    deny 127.0.0.20;
    weir main after_auth;
    proxy_pass http://@BACKEND@;
}
location /all/any {
    satisfy any;
    allow 127.0.0.21;
    deny all;
    auth_basic shop;
    auth_basic_user_file @FOLDER@/users;
    weir main after_auth;
    proxy_pass http://@BACKEND@;
}
location /local {
    set_real_ip_from unix:;
    real_ip_header X-Forwarded-For;
    weir main path=/ip;
    add_header X-Remaining $weir_remaining always;
    proxy_pass http://@BACKEND@;
}
location /twice {
    auth_basic shop;
    auth_basic_user_file @FOLDER@/users;
    weir other path=/all/before;
    weir main after_auth path=/user/twice user=$remote_user;
    proxy_pass http://@BACKEND@;
}
location = /auth {
    internal;
    proxy_pass http://@BACKEND@/auth/$http_x_token;
    proxy_pass_request_body off;
    proxy_set_header Content-Length "";
}
"""


def password(user, word="secret"):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{word}".encode()).decode()}


ZONES = ZONE + "weir_zone other 1m rules=@FOLDER@/rules.yaml;"
g = Gateway(http=ZONES, server=SERVER, rules=RULES)


def same(one, other):
    """Whether two askers are one client: (address, headers, path)."""
    def left(asker):
        client, headers, *path = asker
        return int(g.ask(path[0] if path else "/ip", headers=headers, client=client).headers["X-Remaining"])
    left(one)
    before = left(other)
    left(one)
    return before - left(other) == 2


def forwarded(*addresses):
    return [("X-Forwarded-For", address) for address in addresses]


def test_by_rules():
    """Proxies that the rules trust."""
    proxy, stranger = "127.0.0.2", "127.0.0.30"
    expect(same((proxy, forwarded("192.0.2.1")), (proxy, forwarded("192.0.2.2"))), False, "two clients of a trusted proxy")
    expect(same((proxy, forwarded("192.0.2.1")), (proxy, forwarded("203.0.113.9, 192.0.2.1"))), True, "what clients put before it")
    expect(same((proxy, forwarded("192.0.2.1")), (proxy, forwarded("192.0.2.1, 198.51.100.7"))), True, "two proxies")
    expect(same((proxy, forwarded("192.0.2.1")), (proxy, forwarded("192.0.2.1", "198.51.100.7"))), True, "two headers")
    expect(same((proxy, forwarded("2001:db8::1")), (proxy, forwarded("[2001:db8::2]:443"))), True, "two hosts of one IPv6 network")
    expect(same((proxy, forwarded("2001:db8::1")), (proxy, forwarded("2001:db8:0:1::1"))), False, "two IPv6 networks")
    expect(same((stranger, forwarded("192.0.2.1")), (stranger, forwarded("192.0.2.2"))), True, "an untrusted one forges")
    expect(same((stranger, forwarded("192.0.2.1")), (proxy, forwarded("192.0.2.1"))), False, "as somebody else")
    expect(same((stranger, []), (proxy, forwarded(stranger))), True, "directly and through the proxy")


def test_realip_here():
    """Realip in a location. Set in the location: nginx finds the address in the same phase, a moment before weir decides."""
    proxy, path = "127.0.0.3", "/here/ip"
    expect(same((proxy, {"X-Real-IP": "192.0.2.1"}, path), (proxy, {"X-Real-IP": "192.0.2.2"}, path)), False, "two clients")
    expect(same((proxy, {"X-Real-IP": "192.0.2.50"}, path), ("127.0.0.2", forwarded("192.0.2.50"))), True, "one client both ways")
    proxy = "127.0.0.4"
    expect(same((proxy, {"X-Real-IP": "192.0.2.1"}, path), (proxy, {"X-Real-IP": "192.0.2.2"}, path)), True, "untrusted")


def trust():
    g.configure(http="weir_trusted_proxies 127.0.0.5 127.0.1.0/24 2001:db8::/32;" + ZONES)
    g.reload()


def test_by_directive():
    """Proxies that weir_trusted_proxies names. It wins over the rules."""
    trust()
    for proxy in ("127.0.0.5", "127.0.1.77"):
        expect(same((proxy, forwarded("192.0.2.1")), (proxy, forwarded("192.0.2.2"))), False, f"{proxy} is trusted")
    expect(same(("127.0.0.5", forwarded("192.0.2.1")), ("127.0.0.5", forwarded("192.0.2.1, 2001:db8::1"))), True, "two proxies")
    expect(same(("127.0.0.2", forwarded("192.0.2.1")), ("127.0.0.2", forwarded("192.0.2.2"))), True, "the rules' is not")


def test_changed_rules_do_not_win():
    """Also after the rules have changed."""
    trust()
    version = int(g.ask("/ip").headers["X-Remaining"])
    g.write_rules(RULES.replace("max: 1000,", "max: 2000,"))
    until(lambda: int(g.ask("/ip").headers["X-Remaining"]) > version, "new rules")
    by_directive_holds = same(("127.0.0.2", forwarded("192.0.2.1")), ("127.0.0.2", forwarded("192.0.2.2")))
    expect(by_directive_holds, True, "the rules' trusted proxies, after a change of the rules")


def test_none():
    """weir_trusted_proxies none."""
    g.configure(http="weir_trusted_proxies none;" + ZONES)
    g.reload()
    for proxy in ("127.0.0.2", "127.0.0.5"):
        expect(same((proxy, forwarded("192.0.2.1")), (proxy, forwarded("192.0.2.2"))), True, proxy)


def test_realip_of_the_server():
    """Realip for the whole server."""
    g.configure(http="set_real_ip_from 127.0.0.6; real_ip_header X-Forwarded-For;" + ZONES)
    g.reload()
    expect(same(("127.0.0.6", forwarded("192.0.2.1")), ("127.0.0.6", forwarded("192.0.2.2"))), False, "two clients")
    expect(same(("127.0.0.6", forwarded("192.0.2.1")), ("127.0.0.2", forwarded("192.0.2.1"))), True, "and through the rules' proxy")
    expect(same(("127.0.0.7", forwarded("192.0.2.1")), ("127.0.0.7", forwarded("192.0.2.2"))), True, "untrusted")


def test_unix_sockets():
    """Whoever is behind one has no address, unless realip finds one."""
    def left(path, address):
        head = f"GET {path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\nConnection: close\r\n\r\n"
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(DEADLINE_S)
            s.connect(g.path("socket"))
            s.sendall(head.encode())
            answer = b"".join(iter(lambda: s.recv(65536), b"")).decode()
        expect(answer.split()[1], "200", path)
        return re.findall(r"X-Remaining: (\d+)", answer)

    expect(left("/ip", "192.0.2.60"), [], "no address, no rule")
    first = int(left("/local", "192.0.2.61")[0])
    expect([left("/local", "192.0.2.61"), left("/local", "192.0.2.62")], [[str(first - 1)], [str(first)]], "realip")


def test_auth_request():
    g.backend.answers["/auth/good"] = (204, {"X-User": "ann"}, b"")
    g.backend.answers["/auth/bob"] = (204, {"X-User": "bob"}, b"")
    g.backend.answers["/auth/bad"] = (401, {"X-User": "ann"}, b"")

    def statuses(token):
        return g.statuses(3, "/user/request", headers={"X-Token": token, "X-User": "eve"})

    expect(statuses("bad"), [401] * 3, "wrong credentials")
    expect(statuses("good"), [200, 200, 429], "were charged to nobody")
    expect(statuses("bob"), [200, 200, 429], "another user")
    expect(statuses("bad"), [401] * 3, "401 comes before 429")


def test_auth_basic():
    g.write("users", "".join(user + ":{PLAIN}secret\n" for user in ("bob", "carl", "dora")))
    g.backend.answers["/auth/bob"] = (204, {"X-User": "bob"}, b"")
    until(lambda: g.ask("/user/request", headers={"X-Token": "bob"}).status == 429, "bob has used his up")
    expect(g.ask("/user/basic", headers=password("bob")).status, 429, "bob has used his up elsewhere")
    expect(g.statuses(3, "/user/basic"), [401] * 3, "no password")
    expect(g.statuses(3, "/user/basic", headers=password("carl", "wrong")), [401] * 3, "a wrong password")
    expect(g.statuses(3, "/user/basic", headers=password("carl")), [200, 200, 429], "was charged to nobody")


def test_before_access_control():
    """Without after_auth a name is only what the client says."""
    g.write("users", "dora:{PLAIN}secret\n")
    expect(g.statuses(3, "/user/early", headers=password("dora", "wrong")), [401, 401, 429], "a wrong password is charged")


def test_before_and_after():
    """One zone before access control, one after it.
    One zone that everybody is charged to, and behind the password another for each user."""
    erin = password("erin")
    g.write("users", "erin:{PLAIN}secret\n")
    expect(g.statuses(1, "/twice", headers=erin), [200], "both have room")
    expect(g.statuses(1, "/twice", headers=password("erin", "wrong")), [401], "charged to the first")
    expect(g.statuses(2, "/twice", headers=erin), [429] * 2, "the first has none left, before any password")
    expect(g.statuses(2, "/user/basic", headers=erin), [200, 429], "erin was charged once")


def test_access():
    """Allow, deny, satisfy."""
    expect(g.statuses(3, "/all/deny", client="127.0.0.20"), [403] * 3, "denied")
    expect(g.statuses(1, "/all/deny", client="127.0.0.22"), [200], "allowed")
    expect(g.statuses(2, "/all/any", client="127.0.0.22"), [401] * 2, "neither address nor password")
    expect(g.statuses(2, "/all/any", client="127.0.0.21"), [200, 429], "by its address")
