"""Tokens with names and roles: added and withdrawn while the service runs, and named in the history of changes."""

import json
import os
import signal
import subprocess

import grpc
import pytest

from support import BUILD, expect, has, until
from support.certificates import Authority
from support.contract import Checked
from support.envoy import Client, descriptor
from support.service import Service
from support.wire import Error, Wire

JSON = {"Content-Type": "application/json"}
OVERRIDE = json.dumps({"limits": ["1 per 60s"]})


def token(s, *words, fails=False):
    """What the command prints."""
    done = subprocess.run([os.path.join(BUILD, "weir"), "token", *words, "--data", s.data], capture_output=True, text=True, check=False)
    expect(done.returncode, 2 if fails else 0, done.stderr)
    return done.stderr if fails else done.stdout.strip()


def in_force(s, count):
    """So many, with those of the host."""
    until(lambda: s.events("tokens") and s.events("tokens")[-1]["message"] == f"{count} tokens are in force", "the service follows the file")


def add(s, name, role):
    return token(s, "add", name, "--role", role)


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def check(s, secret):
    return s.ask(s.http, "POST", "/v1/check", '{"event": "ocr", "key": "u"}', {**JSON, **(bearer(secret) if secret else {})}).status


def look(s, secret):
    return s.ask(s.admin, "GET", "/v1/rules", None, bearer(secret)).status


def test_roles_of_names():
    with Checked("--require-token", "yes", "--grpc", "127.0.0.1:0") as s:
        secrets = {role: add(s, f"{role}.of@example.org", role) for role in ("ask", "read", "operate", "admin")}
        in_force(s, 7)
        expect({role: check(s, secret) for role, secret in secrets.items()}, {"ask": 200, "read": 401, "operate": 401, "admin": 401})
        expect({role: look(s, secret) for role, secret in secrets.items()}, {"ask": 401, "read": 200, "operate": 200, "admin": 200})
        expect(check(s, None), 401)
        put = {role: s.ask(s.admin, "PUT", "/v1/settings", "{}", {**JSON, **bearer(secrets[role])}).status for role in ("read", "operate")}
        expect(put, {"read": 403, "operate": 403})
        who = s.ask(s.admin, "GET", "/v1/session", None, bearer(secrets["operate"])).json()
        expect((who["role"], who["token"]), ("operate", "operate.of@example.org"))
        expect(s.ask(s.admin, "POST", "/v1/session", json.dumps({"token": secrets["ask"]}), JSON).status, 401, "nothing to do there")
        expect(token(s, "list").split("\n")[0].split(), ["ask.of@example.org", "ask"])
        with open(os.path.join(s.data, "tokens"), encoding="ascii") as file:
            expect(any(secret in file.read() for secret in secrets.values()), False, "hashes only")
        expect(any(secret in line for line in s.lines() for secret in secrets.values()), False, "nor in the log")


def test_redis_clients():
    with Service("--require-token", "yes") as s:
        ann, bob, read = add(s, "ann", "ask"), add(s, "bob", "admin"), add(s, "eve", "read")
        in_force(s, 6)
        with Wire(s) as wire:
            for words in (("ann", bob), ("bob", ann), ("default", read), ("eve", read), ("ann", ""), ("", ann)):
                expect(wire.ask("AUTH", *words), Error("WRONGPASS invalid username-password pair or user is disabled."), words)
            for words in (("ann", ann), ("default", ann), (ann,)):
                expect(wire.ask("AUTH", *words), "OK")
            has(wire.ask("WEIR.RESET", "ocr", "u"), "admin token")
            expect(wire.ask("HELLO", "2", "AUTH", "bob", bob)[1], "weir")
            wire.ask("WEIR.CHECK", "event", "ocr", "key", "u")
            expect(wire.ask("WEIR.RESET", "ocr", "u"), "OK")


def test_changes_while_it_runs():
    """A connection is as good as its own token: those of others come and go."""
    with Checked("--require-token", "yes") as s:
        ann, bob = add(s, "ann", "ask"), add(s, "bob", "ask")
        in_force(s, 5)
        with Wire(s) as anns, Wire(s) as bobs:
            expect((anns.ask("AUTH", ann), bobs.ask("AUTH", bob)), ("OK", "OK"))
            bobs.ask("MULTI"), anns.ask("MULTI")
            token(s, "withdraw", "bob")
            in_force(s, 4)
            until(lambda: check(s, bob) == 401, "bob's is not valid")
            until(lambda: str(bobs.ask("PING")).startswith("NOAUTH"), "and neither is his connection")
            expect(check(s, ann), 200)
            expect((anns.ask("PING"), anns.ask("EXEC")), ("QUEUED", ["PONG"]))
            token(s, "withdraw", "ann")
            until(lambda: str(anns.ask("PING")).startswith("NOAUTH"), "the last one")
            expect(check(s, None), 401, "withdrawing the last one opens nothing")
        cara = add(s, "bob", "ask")
        until(lambda: check(s, cara) == 200, "the name can be used again")
        expect(check(s, bob), 401)


def test_a_session_ends_with_its_token():
    with Checked(rules=None) as s:
        s.stop()
        s.flags += ["--admin", f"127.0.0.1:{s.admin[1]}"]
        s.start()
        secret = add(s, "ann", "operate")
        in_force(s, 4)
        answer = s.ask(s.admin, "POST", "/v1/session", json.dumps({"token": secret}), JSON)
        cookie = {"Cookie": answer.headers["Set-Cookie"].split(";")[0]}
        has(s.events("session")[-1]["message"], "signed in with the operate token ann from")
        s.restart()
        who = s.ask(s.admin, "GET", "/v1/session", None, cookie).json()
        expect((who["role"], who["token"]), ("operate", "ann"))
        token(s, "withdraw", "ann")
        until(lambda: s.ask(s.admin, "GET", "/v1/session", None, cookie).status == 401, "it ends")
        add(s, "ann", "operate")
        until(lambda: s.events("tokens")[-1]["message"].startswith("4 "), "there is an ann again")
        expect(s.ask(s.admin, "GET", "/v1/session", None, cookie).status, 401, "another one")


@pytest.mark.parametrize("sent, wanted", [(None, "admin api (ann)"), ("Ann Example", "Ann Example (ann)"), ("x (bob)", "x (bob) (ann)")])
def test_history_has_the_name(sent, wanted):
    with Checked(rules=None) as s:
        secret = add(s, "ann", "operate")
        in_force(s, 4)
        author = {"X-Weir-Author": sent} if sent else {}
        put = s.ask(s.admin, "PUT", "/v1/rules/ocr/overrides/x", OVERRIDE, {**JSON, **bearer(secret), **author})
        expect(put.status in (200, 201), True, put.body)
        s.check(event="ocr", key="y")
        freed = s.ask(s.admin, "DELETE", "/v1/subjects?rule=ocr&by=y", None, {**bearer(secret), **author})
        expect(freed.status, 204, freed.body)
        names = lambda: [event["who"] for event in s.steer("GET", "/v1/history?most=2").json()["events"]]
        until(lambda: names() == [wanted] * 2, names)


def test_history_has_the_resets_of_redis_clients(store):
    """With a store another thread resets, and without one the thread that decides."""
    for counters in ((), ("--counters", f"redis://127.0.0.1:{store.port}")):
        with Checked(*counters, rules=None) as s:
            secret = add(s, "ann", "admin")
            in_force(s, 4)
            for token_sent, name in ((s.token, "admin"), (secret, "ann")):
                s.check(event="ocr", key="u")
                with Wire(s) as wire:
                    expect((wire.ask("AUTH", token_sent), wire.ask("WEIR.RESET", "ocr", "u")), ("OK", "OK"))
                    expect(isinstance(wire.ask("WEIR.RESET", "ocr", "nobody"), Error), True, "and is not recorded")
                newest = lambda: s.steer("GET", "/v1/history?most=1").json()["events"][0]
                until(lambda: newest()["who"] == f"redis client ({name})", newest)
                expect([newest()[of] for of in ("what", "rule", "table", "row")], ["reset", "ocr", "subject", "u"])
                has(s.events("change")[-1]["message"], f"reset by redis client ({name}) from 127.0.0.1")


def test_a_name_has_no_hidden_characters():
    """Such as U+202E, which lets the text after it run backwards."""
    with Checked(rules=None) as s:
        for name in ("ann\u202e", "an\u200bn", "\u2066ann", "an\u00adn", "an\tn", "ann\ufeffa"):
            put = s.steer("PUT", "/v1/rules/ocr/overrides/x", json.loads(OVERRIDE), {"X-Weir-Author": name.encode().decode("latin-1")})
            expect((put.status, "invisible characters" in put.body.decode()), (400, True), repr(name))
        put = s.steer("PUT", "/v1/rules/ocr/overrides/x", json.loads(OVERRIDE), {"X-Weir-Author": "Zoë 安".encode().decode("latin-1")})
        expect(put.status in (200, 201), True, put.body)
        expect(s.steer("GET", "/v1/history?most=1").json()["events"][0]["who"], "Zoë 安")


def test_nobody_signs_with_the_name_of_another():
    with Checked(rules=None) as s:
        with open(os.path.join(s.data, "operate-token"), encoding="ascii") as file:
            own = file.read().strip()
        for subject, name in (("x", "Ann (ann)"), ("y", "Ann (ann)\u3000")):  # a space that cannot be seen
            put = s.ask(s.admin, "PUT", f"/v1/rules/ocr/overrides/{subject}", OVERRIDE, {**JSON, **bearer(own), "X-Weir-Author": name.encode()})
            expect(put.status in (200, 201), True, put.body)
            expect(s.steer("GET", "/v1/history?most=1").json()["events"][0]["who"], f"{name} (operate)")


def slow(s, where, path, body, secret, wait):
    """The headers, then what wait() does, then the body. Returns the status."""
    with s.socket(where) as connection:
        connection.sendall((f"PUT {path} HTTP/1.1\r\n" if where == s.admin else f"POST {path} HTTP/1.1\r\n").encode() +
                           (f"Host: localhost\r\nAuthorization: Bearer {secret}\r\nContent-Type: application/json\r\nX-Weir-Author: ann\r\n"
                            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body[:5]}").encode())
        wait()
        connection.sendall(body[5:].encode())
        return int(connection.recv(4096).split()[1])


def test_withdrawn_before_the_body_came():
    with Service("--require-token", "yes", rules=None) as s:
        for where, role, path, body, allowed in ((s.admin, "operate", "/v1/rules/ocr/overrides/x", OVERRIDE, (200, 201)), (s.http, "ask", "/v1/check", '{"event": "ocr", "key": "u"}', (200, 429))):
            secret = add(s, "eve", role)
            ask = look if where == s.admin else check
            until(lambda: ask(s, secret) != 401, "it is valid")

            def withdraw():
                token(s, "withdraw", "eve")
                until(lambda: ask(s, secret) == 401, "it is not")
            expect(slow(s, where, path, body, secret, withdraw), 401, role)
            # The tokens of others may change meanwhile.
            secret = add(s, "ann", role)
            until(lambda: ask(s, secret) != 401, "it is valid")
            expect(slow(s, where, path, body, secret, lambda: in_force_after(s, lambda: add(s, f"x-{role}", "read"))) in allowed, True, role)
            token(s, "withdraw", "ann")


def in_force_after(s, change):
    begin = len(s.events("tokens"))
    change()
    until(lambda: len(s.events("tokens")) > begin, "the service follows the file")


def test_a_failed_reload_forgets_no_withdrawal():
    with Authority() as ca:
        certificate, key = ca.issue("server")
        with Service("--certificate", certificate, "--certificate-key", key, "--admin-tls", "no", "--http-tls", "no", "--resp-tls", "no") as s:
            secret = add(s, "eve", "admin")
            until(lambda: look(s, secret) == 200, "it is valid")
            with open(certificate, "w", encoding="ascii") as file:
                file.write("nothing\n")
            token(s, "withdraw", "eve")
            s.process.send_signal(signal.SIGHUP)
            until(lambda: look(s, secret) == 401, "it is withdrawn")


def test_a_bad_file_changes_nothing():
    with Checked("--require-token", "yes") as s:
        secret = add(s, "ann", "ask")
        in_force(s, 4)
        path = os.path.join(s.data, "tokens")
        with open(path, "a", encoding="ascii") as file:
            file.write("bob admin 12345\n")
        until(lambda: s.events("tokens")[-1]["level"] == "error", "the log tells")
        has(s.events("tokens")[-1]["message"], "stay as they were", "tokens:2: a line has a name, a role")
        expect(check(s, secret), 200)
        has(token(s, "add", "bob", "--role", "ask", fails=True), "tokens:2:")
        with open(path, encoding="ascii") as file:
            lines = file.read().split("\n")
        with open(path, "w", encoding="ascii") as file:
            file.write(lines[0] + "\n")
        until(lambda: s.events("tokens")[-1]["message"] == "the tokens can be read again", "the log tells")
        os.unlink(path)
        until(lambda: check(s, secret) == 401, "without the file there are no names")
        expect(len([1 for event in s.events("tokens") if event["level"] == "error"]), 1)


def test_a_file_elsewhere():
    with Service("--require-token", "yes", rules=None) as s:
        path = os.path.join(s.data, "elsewhere")
        secret = subprocess.run([os.path.join(BUILD, "weir"), "token", "add", "ann", "--role", "ask", "--file", path],
                                capture_output=True, text=True, check=True).stdout.strip()
        expect(check(s, secret), 401)
        s.flags += ["--tokens", path]
        s.restart()
        expect(check(s, secret), 200)


def code(client):
    try:
        return client.code("d", descriptor(("user", "a")))
    except grpc.RpcError as error:
        return error.code().name


def test_envoy_sends_one():
    with Service("--require-token", "yes", "--grpc", "127.0.0.1:0") as s:
        secret = add(s, "envoy", "ask")
        in_force(s, 4)
        for given, wanted in ((secret, 1), (secret[:-1], "UNAUTHENTICATED")):
            with Client(s.grpc, given) as client:
                expect(code(client), wanted)


def test_the_command():
    with Service() as s:
        for words, why in (((), "say what to do"), (("list", "x"), "list takes no name"), (("add", "x"), "--role ask, read, operate or admin"),
                           (("add", "--role", "ask"), "add takes one name"), (("withdraw",), "withdraw takes one name"),
                           (("withdraw", "x", "--role", "ask"), "only add takes --role"), (("withdraw", "x"), "has no token with the name x"),
                           (("add", "a b", "--role", "ask"), "is not such a name"), (("add", "admin", "--role", "ask"), "not the name of a role"),
                           (("add", "x", "--role", "root"), "role")):
            has(token(s, *words, fails=True), why)
        expect(token(s, "list"), "")
        add(s, "x", "ask")
        has(token(s, "add", "x", "--role", "read", fails=True), "already a token with the name x")
