"""Signing in: roles, sessions and their cookies, pages of others, and wrong tokens."""

import json
import os
import re
import signal
import socket
import threading
import time

import pytest

from support import expect, has, until
from support.contract import Checked
from support.service import Service

JSON = {"Content-Type": "application/json"}
RULE = {"match": {"event": "e"}, "by": ["key"], "limits": [{"name": "hour", "algorithm": "fixed_window", "max": 2, "per": "1h"}]}
ROLES = ("read", "operate", "admin")
# What each role may do beyond the one before it.
CALLS = {
    "read": [("GET", "/metrics"), ("GET", "/v1/openapi.json"), ("GET", "/v1/status"), ("GET", "/v1/top"), ("GET", "/v1/rules"),
             ("HEAD", "/v1/rules"), ("GET", "/v1/rules/ocr"), ("GET", "/v1/rules/ocr/overrides"), ("GET", "/v1/settings"),
             ("GET", "/v1/history"), ("GET", "/v1/rules/ocr/history"), ("GET", "/v1/settings/history"), ("GET", "/v1/penalties"),
             ("GET", "/v1/explain?event=ocr"), ("GET", "/v1/session"), ("PUT", "/v1/rules/e?dry_run=1"),
             ("DELETE", "/v1/rules/ocr?dry_run=true"), ("POST", "/v1/rules/ocr/disable?dry_run=1"),
             ("PUT", "/v1/rules/ocr/overrides/x?dry_run=1")],
    "operate": [("DELETE", "/v1/subjects?rule=ocr&by=x"), ("DELETE", "/v1/penalties?rule=ocr&by=x"), ("PUT", "/v1/rules/ocr/overrides/x"),
                ("DELETE", "/v1/rules/ocr/overrides/x"), ("POST", "/v1/undo?number=999999"), ("POST", "/v1/rules/ocr/undo?number=999999"),
                ("POST", "/v1/settings/undo?number=999999")],
    "admin": [("PUT", "/v1/rules/e"), ("PATCH", "/v1/rules/ocr"), ("PUT", "/v1/rules/e?dry_run=0"), ("POST", "/v1/rules/ocr/disable"),
              ("POST", "/v1/rules/ocr/enable"), ("PUT", "/v1/settings"), ("DELETE", "/v1/rules/e")],
}


def refused(answer, status, *parts):
    expect(answer.status, status, answer.body)
    document = answer.json()
    has(document["error"] + "\n" + document.get("hint", ""), *parts)


def token(s, role):
    with open(os.path.join(s.data, f"{role}-token"), encoding="ascii") as file:
        return file.read().strip()


def bearer(s, role):
    return {"Authorization": f"Bearer {token(s, role)}"}


def host(s):
    return f"127.0.0.1:{s.admin[1]}"


def page(s):
    """The headers of a page of the service."""
    return {"Host": host(s), "Origin": f"http://{host(s)}"}


def sign_in(s, secret, **headers):
    return s.ask(s.admin, "POST", "/v1/session", json.dumps({"token": secret}), {**JSON, "Host": host(s), **headers})


def cookie_of(answer):
    """The name and value of the cookie that an answer sets."""
    return answer.headers["Set-Cookie"].split(";")[0]


def session(s, role="admin", **headers):
    """The header Cookie of a new session."""
    answer = sign_in(s, token(s, role), **headers)
    expect(answer.status, 200, answer.body)
    return {"Cookie": cookie_of(answer)}


def call(s, method, path, headers):
    body = None
    if method in ("PUT", "PATCH"):
        document = {"unlimited": True} if "overrides" in path else {} if method == "PATCH" or "settings" in path else RULE
        body = json.dumps(document)
        headers = {**JSON, **headers}
    return s.ask(s.admin, method, path, body, headers)


def sign_out(s, cookie, **headers):
    return s.ask(s.admin, "DELETE", "/v1/session", None, {**page(s), **cookie, **headers})


def who(s, headers):
    return s.ask(s.admin, "GET", "/v1/session", None, headers)


# ---- roles ----


@pytest.mark.parametrize("by", ["token", "session"])
def test_each_role_may_do_its_part(by):
    with Checked(rules=None) as s:
        for mine, role in enumerate(ROLES):
            headers = bearer(s, role) if by == "token" else {**page(s), **session(s, role)}
            expect(who(s, headers).json()["role"], role)
            for needed, name in enumerate(ROLES):
                for method, path in CALLS[name]:
                    answer = call(s, method, path, headers)
                    if mine >= needed:
                        expect(answer.status in (200, 201, 204, 404, 409), True, (role, method, path, answer.status, answer.body))
                        continue
                    expect("WWW-Authenticate" in answer.headers, False)
                    refused(answer, 403, f"needs the role {name}", f"the {by} has the role {role}", f"{name}-token")
        expect(s.steer("GET", "/v1/rules/e").status, 404, "what was not allowed was not done")


def test_only_the_admin_role_sees_secrets():
    secret, later = "the first secret text", "the second secret text"
    with Checked(rules=None) as s:
        for text in (secret, later):
            expect(s.steer("PUT", "/v1/settings", {"partition_key_secret": text, "ipv6_prefix": 48}).json()["partition_key_secret"], text)
        before = s.steer("GET", "/v1/settings").json()
        for role in ROLES:
            for headers in (bearer(s, role), {**page(s), **session(s, role)}):
                shown = [s.ask(s.admin, "GET", path, None, headers) for path in ("/v1/settings", "/v1/settings/history", "/v1/history")]
                for sent in (before, {**before, "ipv6_prefix": 56}, {"partition_key_secret": secret}):
                    shown.append(s.ask(s.admin, "PUT", "/v1/settings?dry_run=1", json.dumps(sent), {**JSON, **headers}))
                if role != "read":
                    shown.append(s.ask(s.admin, "POST", "/v1/settings/undo", None, headers))
                    shown.append(s.ask(s.admin, "POST", "/v1/undo", None, headers))
                    s.steer("PUT", "/v1/settings", before)
                for answer in shown:
                    expect(answer.status, 200, answer.body)
                seen = b"".join(answer.body for answer in shown)
                expect((secret.encode() in seen, later.encode() in seen, b'"(hidden)"' in seen), (role == "admin",) * 2 + (role != "admin",), (role, seen))
        # It is no value to write back.
        refused(s.steer("PUT", "/v1/settings", {"partition_key_secret": "(hidden)"}), 422, "partition_key_secret")
        expect(s.steer("GET", "/v1/settings").json(), before)


def test_token_files():
    with Service(rules=None) as s:
        tokens = [token(s, role) for role in ROLES]
        expect(len(set(tokens)), 3)
        for role, secret in zip(ROLES, tokens):
            expect(re.fullmatch(r"[0-9a-f]{48}", secret) is not None, True, secret)
            expect(os.stat(os.path.join(s.data, f"{role}-token")).st_mode & 0o777, 0o600)
            expect(who(s, bearer(s, role)).json(), {"role": role, "token": role, "expires": None})
        s.restart()
        expect([token(s, role) for role in ROLES], tokens, "they are kept")
        expect(any(secret in line for line in s.lines() for secret in tokens), False, "no token is in the log")
        # A file that others may read, and two roles with one token: nothing is changed.
        path = os.path.join(s.data, "read-token")
        os.chmod(path, 0o644)
        s.process.send_signal(signal.SIGHUP)
        until(lambda: any("read token" in entry["message"] for entry in s.events("reload")), "the mode is reported")
        os.chmod(path, 0o600)
        with open(path, "w", encoding="ascii") as file:
            file.write(tokens[1])
        s.process.send_signal(signal.SIGHUP)
        until(lambda: any("read-token and operate-token" in entry["message"] for entry in s.events("reload")), "one token for two")
        for role, secret in zip(ROLES, tokens):
            expect(who(s, {"Authorization": f"Bearer {secret}"}).json()["role"], role)


def test_decisions_know_no_roles():
    """The tokens of the admin listener are not for decisions, nor the other way round."""
    with Service(rules=None) as s:
        decide = os.path.join(s.folder.name, "decide")
        with open(decide, "w", encoding="ascii") as file:
            file.write("a-token-for-decisions")
        s.stop()
        s.flags += ["--token-file", decide]
        s.start()
        body = json.dumps({"event": "ocr", "key": "k"})
        expect(s.ask(s.http, "POST", "/v1/check", body, {**JSON, **bearer(s, "read")}).status, 401)
        expect(s.ask(s.http, "POST", "/v1/check", body, {**JSON, "Authorization": "Bearer a-token-for-decisions"}).status, 200)
        refused(who(s, {"Authorization": "Bearer a-token-for-decisions"}), 401, "token")
        expect(sign_in(s, "a-token-for-decisions").status, 401)


# ---- sessions ----


def test_signing_in_and_out():
    with Checked(rules=None) as s:
        for role in ROLES:
            before = time.time()
            answer = sign_in(s, token(s, role))
            expect(answer.status, 200, answer.body)
            document = answer.json()
            expect(document["role"], role)
            expires = time.strptime(document["expires"], "%Y-%m-%dT%H:%M:%SZ")
            ends = time.mktime(expires) - time.timezone
            expect(before + 12 * 3600 - 2 <= ends <= time.time() + 12 * 3600 + 2, True, document)
            cookie, *attributes = answer.headers["Set-Cookie"].split("; ")
            expect(sorted(attributes), ["HttpOnly", "Path=/", "SameSite=Strict"])
            expect(cookie.startswith(f"weir_{s.admin[1]}={role}."), True, cookie)
            expect(answer.headers["Cache-Control"], "no-store")
            expect(token(s, role) in cookie, False)
            expect(who(s, {"Cookie": cookie}).json(), document)
            expect(s.ask(s.admin, "HEAD", "/v1/session", None, {"Cookie": cookie}).status, 200)
            out = sign_out(s, {"Cookie": cookie})
            expect((out.status, out.body), (204, b""))
            has(out.headers["Set-Cookie"], f"weir_{s.admin[1]}=;", "Max-Age=0", "Path=/")
            refused(who(s, {"Cookie": cookie}), 401, "token")
            expect(sign_out(s, {"Cookie": cookie}).status, 401, "signed out already")
        expect(s.ask(s.admin, "DELETE", "/v1/session", None, bearer(s, "read")).status, 204, "there is no session")
        said = [entry["message"] for entry in s.events("session")]
        expect(len(said), 6, said)
        has(said[2], "signed in with the operate token from 127.0.0.1")
        has(said[3], "signed out", "operate")


def test_the_log_names_who_signs_in():
    """As the sign-in itself says it, whoever was there before."""
    with Checked(rules=None) as s:
        cookie = {}
        for name in ("ann", "bea"):
            answer = sign_in(s, token(s, "read"), **{"X-Weir-Author": name}, **cookie)
            expect(answer.status, 200, answer.body)
            cookie = {"Cookie": cookie_of(answer)}
        said = [entry["message"] for entry in s.events("session")]
        expect([line.split(" from ")[0] for line in said], [f"signed in with the read token by {name}" for name in ("ann", "bea")])


def test_token_wins_over_the_cookie():
    with Checked(rules=None) as s:
        cookie = session(s, "admin")
        expect(who(s, {**cookie, **bearer(s, "read")}).json(), {"role": "read", "token": "read", "expires": None})
        expect(who(s, {**cookie, "Authorization": "Bearer wrong"}).status, 401)
        # What a proxy with a password of its own passes on is not a token.
        expect(who(s, {**cookie, "Authorization": "Basic dTpw"}).json()["role"], "admin")
        expect(who(s, {**cookie, "Authorization": "Bearer "}).json()["role"], "admin")
        expect(sign_out(s, cookie, **bearer(s, "read")).status, 204, "ends the session of the cookie, too")
        expect(who(s, cookie).status, 401)


def test_sessions_outlive_a_restart():
    with Checked(rules=None) as s:
        s.stop()
        s.flags += ["--admin", host(s)]
        s.start()
        kept, ended = session(s, "operate"), session(s, "operate")
        expect(sign_out(s, ended).status, 204)
        for _ in range(2):
            s.restart()
            expect(who(s, kept).json()["role"], "operate")
            expect(who(s, ended).status, 401, "it stays ended")
        s.kill()
        s.start()
        expect((who(s, kept).status, who(s, ended).status), (200, 401))
        expect(os.stat(os.path.join(s.data, "ended-sessions")).st_mode & 0o777, 0o600)


def test_a_new_token_ends_its_sessions():
    with Checked(rules=None) as s:
        cookies = {role: session(s, role) for role in ROLES}
        os.remove(os.path.join(s.data, "operate-token"))
        s.process.send_signal(signal.SIGHUP)
        until(lambda: who(s, cookies["operate"]).status == 401, "the session has ended")
        expect(who(s, cookies["read"]).json()["role"], "read")
        expect(who(s, cookies["admin"]).json()["role"], "admin")
        expect(who(s, session(s, "operate")).json()["role"], "operate")
        # Also one that was made while the service was down.
        s.stop()
        s.flags += ["--admin", host(s)]
        with open(os.path.join(s.data, "admin-token"), "w", encoding="ascii") as file:
            file.write("another-admin-token")
        s.start()
        expect((who(s, cookies["read"]).status, who(s, cookies["admin"]).status), (200, 401))


def test_sign_out_that_cannot_be_stored():
    """The session has ended, and the answer says what is wrong."""
    with Checked(rules=None) as s:
        cookie = session(s, "read")
        os.mkdir(os.path.join(s.data, "ended-sessions"))
        refused(sign_out(s, cookie), 503, "ended-sessions", "restart")
        expect(who(s, cookie).status, 401)
        os.rmdir(os.path.join(s.data, "ended-sessions"))


def test_what_signing_in_takes():
    with Checked(rules=None) as s:
        admin = token(s, "admin")

        def send(body, headers=JSON, path="/v1/session"):
            return s.ask(s.admin, "POST", path, body, {"Host": host(s), **headers})

        for body in ("", "{", "[]", "null", '"x"', "{}", '{"token": 1}', '{"token": null}', '{"token": ""}', '{"token": ["x"]}',
                     json.dumps({"token": admin, "role": "admin"}), f'{{"token": "{admin}", "token": "{admin}"}}',
                     f'{{"token": "{admin}\\u0000"}}', f'{{"token": "{admin}"}} x', b'{"token": "\xff"}'):
            answer = send(body)
            expect((answer.status, answer.headers.get("Set-Cookie")), (400, None), (body, answer.body))
        for kind in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}):
            refused(send(json.dumps({"token": admin}), kind), 415, "application/json")
        refused(send(json.dumps({"token": admin}), JSON, "/v1/session?x=1"), 400, "`x`")
        expect(send(json.dumps({"token": f" {admin}\n"})).status, 200, "blanks around it")
        # No stranger fills the memory for bodies.
        refused(send(json.dumps({"token": "x" * 4096})), 413, "more than 4096 bytes")
        expect(send(json.dumps({"token": "x" * 4000})).status, 401)
        head = (f"POST /v1/session HTTP/1.1\r\nHost: {host(s)}\r\nContent-Type: application/json\r\n"
                "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        for body, wanted in ((json.dumps({"token": admin}), 200), ("x" * 5000, None)):
            with s.socket(s.admin) as connection:
                connection.sendall(f"{head}{len(body):x}\r\n{body}\r\n0\r\n\r\n".encode())
                try:
                    answer = connection.recv(65536)
                except ConnectionResetError:
                    answer = b""
                expect(status(answer) if answer else None, wanted, "in chunks")
        expect(status(wire(s, "POST /v1/session HTTP/1.1", JSON)), 400, "no length")
        for path in ("/v1/session/", "/v1/session/x", "/v1/Session"):
            expect(s.ask(s.admin, "POST", path, "{}", {**JSON, **bearer(s, "read")}).status, 404)
        answer = s.ask(s.admin, "PUT", "/v1/session", "{}", {**JSON, **bearer(s, "read")})
        refused(answer, 405, "GET, HEAD, POST, DELETE")


def test_author_of_a_session():
    with Checked(rules=None) as s:
        for role, name, limits in (("operate", None, "1 per 60s"), ("admin", None, "2 per 60s"), ("admin", "eve", "3 per 60s")):
            author = {"X-Weir-Author": name} if name else {}
            headers = {**page(s), **session(s, role, **author), **author, **JSON}
            put = s.ask(s.admin, "PUT", "/v1/rules/ocr/overrides/x", json.dumps({"limits": [limits]}), headers)
            expect(put.status in (200, 201), True, put.body)
            event = s.ask(s.admin, "GET", "/v1/history?most=1", None, headers).json()["events"][0]
            expect(event["who"], name or f"page ({role})", event)
        s.steer("DELETE", "/v1/rules/ocr/overrides/x")
        expect(s.steer("GET", "/v1/history?most=1").json()["events"][0]["who"], "admin api")
        has(s.events("session")[-1]["message"], "admin token by eve from")
        # What a client sends stays in its line of the log.
        wire(s, "POST /v1/session HTTP/1.1", JSON, {"X-Weir-Author": "a\tb\x01c"}, json.dumps({"token": token(s, "read")}))
        expect(all(line.startswith("{") and line.endswith("}\n") for line in s.lines()), True)


# ---- cookies that are not ours ----


def wire(s, line, *parts):
    """A request with its bytes as given; the answer, whole. parts: dictionaries of headers, or lists of pairs, or the body."""
    body = "".join(part for part in parts if isinstance(part, str)).encode()
    pairs = [("Host", host(s)), ("Connection", "close")]
    for part in parts:
        if not isinstance(part, str):
            pairs += part.items() if isinstance(part, dict) else part
    if body:
        pairs.append(("Content-Length", str(len(body))))
    head = line + "\r\n" + "".join(f"{name}: {value}\r\n" for name, value in pairs) + "\r\n"
    with s.socket(s.admin) as connection:
        connection.sendall(head.encode("latin-1") + body)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


def status(answer):
    return int(answer.split(b" ", 2)[1]) if answer else None


def test_forged_cookies():
    with Checked(rules=None) as s, Checked(rules=None) as other:
        name, value = session(s, "read")["Cookie"].split("=", 1)
        role, scheme, ends, nonce, owner, mac = value.split(".")
        expect((role, scheme, len(nonce), owner, len(mac)), ("read", "http", 32, "read", 64))
        admin = session(s, "admin")["Cookie"].split("=", 1)[1].split(".")
        forged = [
            ".".join(("admin", scheme, ends, nonce, owner, mac)),
            ".".join(("admin", scheme, ends, nonce, "admin", mac)),
            ".".join((role, scheme, ends, nonce, "admin", mac)),
            ".".join(("admin", scheme, ends, nonce, "admin", admin[5])),
            ".".join((role, scheme, admin[2], admin[3], owner, admin[5])),
            ".".join((role, scheme, str(int(ends) + 1), nonce, owner, mac)),
            ".".join((role, scheme, "9" * 30, nonce, owner, mac)),
            ".".join((role, "https", ends, nonce, owner, mac)),
            ".".join((role, scheme, ends, nonce, owner, mac.upper())),
            ".".join((role, scheme, ends, nonce, owner, mac[:-1])),
            ".".join((role, scheme, ends, nonce, owner, "")),
            ".".join((role, scheme, ends, nonce, owner)),
            ".".join((role, scheme, ends, nonce, mac)),
            ".".join((role, scheme, ends, mac)),
            value + "0" * 500, value + "0", value[:-1], value + ".", "." + value, f'"{value}"', "'" + value + "'", value.replace(".", "%2E"),
            value + "\\", "", ".", "....", "read", token(s, "admin"), "admin", "x" * 4000, "\x7f" * 100, "é" * 50,
        ]
        for each in forged:
            expect(status(wire(s, "GET /v1/session HTTP/1.1", {"Cookie": f"{name}={each}"})), 401, each)
        for header in (f"{name} {value}", f"{name}={value}, {name}={value}", f"x{name}={value}", f"{name.upper()}={value}",
                       f"{name}x={value}", f"weir_{other.admin[1]}={value}", f"weir={value}", value):
            expect(who(s, {"Cookie": header}).status, 401, header)
        expect(who(s, {"Cookie": f"{name}={value}"}).status, 200, "the true one is as good as before")
        for header in (f"a=b;{name}={value}", f" {name} = {value} ;", f";;{name}={value};x", f"$Version=1; {name}={value}"):
            expect(who(s, {"Cookie": header}).status, 200, header)
        # Of another service: also one with the same tokens, on another port.
        theirs = session(other, "read")["Cookie"].split("=", 1)[1]
        expect(who(s, {"Cookie": f"{name}={theirs}"}).status, 401)
        for role in ROLES:
            with open(os.path.join(other.data, f"{role}-token"), "w", encoding="ascii") as file:
                file.write(token(s, role))
        other.process.send_signal(signal.SIGHUP)
        until(lambda: who(other, bearer(s, "read")).status == 200, "the same tokens")
        expect(who(other, {"Cookie": f"weir_{other.admin[1]}={value}"}).status, 401)
        theirs = session(other, "read")["Cookie"].split("=", 1)[1]
        expect(who(s, {"Cookie": f"{name}={theirs}"}).status, 401)


def test_several_cookies():
    """A page on another port of the host can set a cookie of the same name: it does not hide the true one."""
    with Checked(rules=None) as s:
        first, second = session(s, "read")["Cookie"], session(s, "operate")["Cookie"]
        name = first.split("=")[0]
        expect(who(s, {"Cookie": f"{name}=junk; {first}; {name}="}).json()["role"], "read")
        expect(status(wire(s, "GET /v1/session HTTP/1.1", [("Cookie", f"{name}=junk"), ("Cookie", "a=b"), ("Cookie", first)])), 200)
        many = "; ".join(f"c{i}=x" for i in range(90))
        expect(who(s, {"Cookie": f"{many}; {first}"}).status, 200)
        more = "; ".join(f"c{i}=x" for i in range(300))
        expect(status(wire(s, "GET /v1/session HTTP/1.1", {"Cookie": f"{more}; {first}"})), 431)
        expect(status(wire(s, "GET /v1/session HTTP/1.1", [("Cookie", "x" * 9000), ("Cookie", first)])) in (431, None), True)
        expect(who(s, {"Cookie": "; ".join([f"{name}=junk"] * 90 + [first])}).status, 200)
        # Signing out ends all that were sent.
        expect(sign_out(s, {"Cookie": f"{first}; {second}"}).status, 204)
        expect((who(s, {"Cookie": first}).status, who(s, {"Cookie": second}).status), (401, 401))


def test_headers_are_not_injected():
    with Checked(rules=None) as s:
        secret = json.dumps({"token": token(s, "read")})
        for evil in ("x\\r\\nSet-Cookie: a=b", "http://localhost\\r\\nX: y"):
            answer = sign_in(s, evil)
            expect((answer.status, answer.headers.get("Set-Cookie"), answer.headers.get("X")), (401, None, None))
        for line in ("POST /v1/session?%0d%0aX:%20y HTTP/1.1", "POST /v1/session%0d%0aX:y HTTP/1.1"):
            answer = wire(s, line, JSON, secret)
            expect(status(answer) in (400, 401, 404), True, answer)
            expect(b"\r\nX:" in answer, False)


# ---- pages of others ----


def test_changes_by_a_session_come_from_our_page():
    with Checked("--admin-hosts", "weir.example,other.example:8443", rules=None) as s:
        port = s.admin[1]
        cookie = session(s, "admin")
        here = f"127.0.0.1:{port}"

        def send(headers, method="POST", path="/v1/undo?number=999999"):
            return s.ask(s.admin, method, path, None, {**cookie, **headers})

        for headers in ({"Host": here, "Origin": f"http://{here}"}, {"Host": f"localhost:{port}", "Origin": f"http://LOCALHOST:{port}"},
                        {"Host": here, "Sec-Fetch-Site": "same-origin"}, {"Host": f"[::1]:{port}", "Origin": f"http://[::1]:{port}"},
                        {"Host": here, "Origin": "http://weir.example"}, {"Host": "weir.example", "Origin": "http://weir.example:80"}):
            expect(send(headers).status, 409, headers)
        for origin in (f"http://127.0.0.1:{port + 1}", "http://127.0.0.1", "http://localhost:3000", f"http://localhost:{port}",
                       f"https://127.0.0.1:{port}", "http://weir.example:3000", "https://weir.example", "https://other.example:8443",
                       "http://other.example", f"http://127.0.0.1:{port}.", f"http://127.0.0.1.:{port}", f"http://[::1]:{port}"):
            refused(send({"Host": here, "Origin": origin}), 403, "Origin", origin)
            refused(send({"Host": here, "Origin": origin}, "GET", "/v1/status"), 403, "Origin")
            refused(send({"Host": here, "Origin": origin, "Sec-Fetch-Site": "same-origin"}), 403, "Origin")
        for origin in ("null", "http://evil.example", f"http://{here}.evil.example", "x", f"http://{here}@evil.example"):
            refused(send({"Host": here, "Origin": origin}), 403, "Origin")
        refused(send({"Host": here}), 403, "neither Origin nor Sec-Fetch-Site")
        refused(send({"Host": here, "Origin": ""}), 403, "neither Origin nor Sec-Fetch-Site")
        for site in ("cross-site", "same-site", "none", "Same-Origin", "same-origin, x"):
            refused(send({"Host": here, "Sec-Fetch-Site": site}), 403, "Sec-Fetch-Site")
        for method, path in (("DELETE", "/v1/session"), ("DELETE", "/v1/rules/ocr"), ("PUT", "/v1/rules/ocr?dry_run=1"), ("OPTIONS", "/v1/undo"),
                             ("POST", "/v1/nowhere")):
            refused(send({"Host": here}, method, path), 403, "Origin")
        # A token needs none of this: no page has it.
        expect(s.steer("POST", "/v1/undo?number=999999").status, 409)
        expect(s.steer("POST", "/v1/undo?number=999999", None, {"Host": here, "Origin": "http://localhost:3000"}).status, 409)
        expect(s.steer("POST", "/v1/undo?number=999999", None, {**cookie, "Sec-Fetch-Site": "same-site"}).status, 409)
        expect(who(s, cookie).status, 200, "the session is as it was")


def test_other_pages_read_nothing():
    with Checked(rules=None) as s:
        cookie = session(s, "read")
        for headers in ({}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, page(s)):
            answer = s.ask(s.admin, "GET", "/v1/status", None, {**cookie, **headers})
            expect(answer.status, 200, headers)
            expect([name for name in answer.headers if name.lower().startswith("access-control")], [])
        for site in ("cross-site", "same-site", "x"):
            refused(s.ask(s.admin, "GET", "/v1/status", None, {**cookie, "Sec-Fetch-Site": site}), 403, "Sec-Fetch-Site")
            expect(s.ask(s.admin, "HEAD", "/v1/status", None, {**cookie, "Sec-Fetch-Site": site}).status, 403)
            expect(s.ask(s.admin, "GET", "/healthz", None, {**cookie, "Sec-Fetch-Site": site}).status, 200, "needs no session")
        preflight = s.ask(s.admin, "OPTIONS", "/v1/session", None, {"Host": host(s), "Origin": "http://localhost:3000",
                                                                    "Access-Control-Request-Method": "POST"})
        expect(preflight.status, 401)
        expect([name for name in preflight.headers if name.lower().startswith("access-control")], [])


def test_other_pages_do_not_sign_in():
    with Checked(rules=None) as s:
        secret = token(s, "read")
        port = s.admin[1]
        for headers in ({}, page(s), {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
            expect(sign_in(s, secret, **headers).status, 200, headers)
        for headers in ({"Origin": "http://localhost:3000"}, {"Origin": f"http://127.0.0.1:{port + 1}"}, {"Origin": "null"},
                        {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = sign_in(s, secret, **headers)
            expect((answer.status, answer.headers.get("Set-Cookie")), (403, None), headers)


def test_behind_a_proxy_with_tls():
    """The page says https in Origin: the cookie is only for https, and pages without it are others."""
    with Checked("--admin-hosts", "weir.example", rules=None) as s:
        for name in ("weir.example", f"127.0.0.1:{s.admin[1]}"):
            answer = s.ask(s.admin, "POST", "/v1/session", json.dumps({"token": token(s, "admin")}),
                           {**JSON, "Host": name, "Origin": "https://weir.example"})
            expect(answer.status, 200, answer.body)
            has(answer.headers["Set-Cookie"], "; Secure")
            headers = {"Cookie": cookie_of(answer), "Host": name}
            undo = "/v1/undo?number=999999"
            expect(s.ask(s.admin, "POST", undo, None, {**headers, "Origin": "https://weir.example"}).status, 409)
            refused(s.ask(s.admin, "POST", undo, None, {**headers, "Origin": "http://weir.example"}), 403, "Origin")
            expect(s.ask(s.admin, "GET", "/v1/status", None, headers).status, 200)


def test_a_unix_socket():
    with Checked(rules=None) as outer:
        path = os.path.join(outer.folder.name, "admin.sock")
        with Checked("--admin", f"unix:{path}", rules=None) as s:
            body = json.dumps({"token": token(s, "operate")})
            answer = s.ask(s.admin, "POST", "/v1/session", body, {**JSON, "Host": "localhost", "Origin": "http://localhost"})
            expect(answer.status, 200, answer.body)
            cookie = cookie_of(answer)
            expect(cookie.startswith("weir_unix_"), True, cookie)
            undo = ("POST", "/v1/undo?number=999999", None)
            expect(s.ask(s.admin, *undo, {"Cookie": cookie, "Host": "localhost", "Origin": "http://localhost"}).status, 409)
            refused(s.ask(s.admin, *undo, {"Cookie": cookie, "Host": "localhost:1", "Origin": "http://localhost"}), 403, "Origin")
            s.restart()
            expect(who(s, {"Cookie": cookie}).status, 200)


# ---- wrong tokens ----


def wrong(s, how, secret="0" * 48):
    if how == "token":
        return s.ask(s.admin, "GET", "/v1/status", None, {"Authorization": f"Bearer {secret}"})
    return sign_in(s, secret)


@pytest.mark.parametrize("how", ["token", "session"])
def test_wrong_tokens_wait(how):
    """After five, an answer waits: until then others with the right token are served, also from the same address."""
    with Checked(rules=None) as s:
        for i in range(5):
            refused(wrong(s, how, f"wrong-{i}"), 401, "token is missing or wrong")
        answers, right = [], []
        threads = [threading.Thread(target=lambda: answers.append(wrong(s, how))) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            right.append((wrong(s, "token", s.token).status, sign_in(s, token(s, "read")).status))
        for thread in threads:
            thread.join()
        expect([answer.status for answer in answers], [401] * 4)
        expect(set(right), {(200, 200)})
        # No token at all is not a guess, nor is the cookie of a session that has ended.
        for headers in ({}, {"Cookie": f"weir_{s.admin[1]}=read.http.1.x.y"}, {"Authorization": "Basic x"}):
            for _ in range(5):
                expect(s.ask(s.admin, "GET", "/v1/status", None, headers).status, 401)
        lines = [entry["message"] for entry in s.events("mistake")]
        expect(len(lines), 1, lines)


def test_many_wrong_tokens_at_once():
    """So many answers wait; the others are told to come later. Nobody with a right token is kept out, and a
    stop ends well while they wait."""
    with Checked("--request", "60s", rules=None) as s:
        connections = []
        request = (f"GET /v1/status HTTP/1.1\r\nHost: {host(s)}\r\nAuthorization: Bearer {'0' * 48}\r\n\r\n").encode()
        for _ in range(100):
            connection = s.socket(s.admin)
            connection.sendall(request)
            connections.append(connection)
        refusals = []

        def collect():
            for connection in connections:
                connection.setblocking(False)
                try:
                    answer = connection.recv(65536)
                except BlockingIOError:
                    continue
                refusals.append(answer)
            return any(answer.startswith(b"HTTP/1.1 429") for answer in refusals)

        until(collect, "some are told to come later")
        late = [answer for answer in refusals if answer.startswith(b"HTTP/1.1 429")]
        has(late[0].decode(), "Retry-After: 5", "a right token is never refused")
        expect(s.steer("GET", "/v1/status").status, 200)
        expect(sign_in(s, s.token).status, 200)
        s.restart()
        for connection in connections:
            connection.close()
        expect(wrong(s, "token").status, 401, "the count begins anew")


def test_clients_that_do_not_wait():
    """Clients that leave before their answer comes."""
    with Checked(rules=None) as s:
        request = (f"GET /v1/status HTTP/1.1\r\nHost: {host(s)}\r\nAuthorization: Bearer {'0' * 48}\r\n\r\n").encode()
        for i in range(60):
            connection = s.socket(s.admin)
            connection.sendall(request)
            if i % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            connection.close()
        for _ in range(5):
            expect(s.steer("GET", "/v1/status").status, 200)
        until(lambda: s.steer("GET", "/v1/status").json()["connections"]["open"] <= 2, "their connections are gone")
        # A body of a request with a wrong token is not kept while it waits.
        answer = s.ask(s.admin, "PUT", "/v1/rules/e", b"x" * 500000, {**JSON, "Authorization": "Bearer wrong"})
        expect(answer.status in (401, 429), True, answer.status)
