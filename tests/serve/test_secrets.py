"""Secrets come from files, credentials of systemd and the environment, and appear nowhere: neither in logs, answers, metrics and messages, nor
in the list of processes. Here each of them is given in each way, and then everything fails."""

import contextlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import urllib.parse

import pytest

from support import DEADLINE_S, ROOT, WEIR, databases, expect, has, until, weir
from support.certificates import Authority
from support.service import Service
from support.store import Store
from support.wire import Wire

STORE, SENTINEL, ASK, PARTITION = "store-Sw0rd:fish@/", "sentinel-Sw0rd:fish@/", "ask-Sw0rdfish-0123456789", "partition-Sw0rdfish-0123456789"
RULE = {"match": {"event": "e"}, "by": ["key"], "limits": [{"max": 5, "per": "1h"}]}
PATHS = ("/v1/status", "/metrics", "/v1/settings", "/v1/rules", "/v1/history", "/v1/top", "/v1/refusals", "/v1/explain?event=e&key=k",
         "/v1/sample", "/v1/session", "/readyz", "/")


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read().strip()


def seen(s):
    """All that others can see, by its place."""
    headers = {"Authorization": f"Bearer {read(s.data, 'read-token')}"}
    places = {}
    for path in PATHS:
        answer = s.ask(s.admin, "GET", path, None, headers)
        expect(answer.status in (200, 503), True, f"{path}: {answer.body}")
        places[path] = answer.body.decode()
    top = weir("top", "--once", "--data", s.data, "--admin", f"{s.admin[0]}:{s.admin[1]}")
    places["weir top"] = (top.stdout + top.stderr).decode()
    places["log"] = "".join(s.lines())
    places["process list"] = read(f"/proc/{s.process.pid}/cmdline")
    return places


def expect_none(s, *secrets):
    secrets = [form for secret in secrets for form in (secret, urllib.parse.quote(secret, safe=""))]
    for place, text in seen(s).items():
        expect([secret for secret in secrets if secret in text], [], f"{place}: {text}")


class Given:
    """The same secrets, given in one of the ways: `path(name, secret)` is the file of a secret."""

    def __init__(self, how, folder):
        self.how, self.folder, self.environment = how, folder, {}
        if how == "credential":
            self.environment["CREDENTIALS_DIRECTORY"] = folder

    def path(self, name, secret):
        path = os.path.join(self.folder, name)
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o400), "w", encoding="utf-8") as out:
            out.write(secret)
        return path

    def address(self, address, variable, secret):
        if self.how == "address":
            return address.replace("@", f":{urllib.parse.quote(secret, safe='')}@")
        if self.how == "environment":
            self.environment[variable] = secret
            return address
        return f"{address}?password_file={self.path(variable, secret)}"


def fail_everything(s, db, store):
    """The store wants another password, and the database is down."""
    with Wire(store) as wire:
        wire.ask("AUTH", STORE)
        wire.ask("CONFIG", "SET", "requirepass", "another")
        wire.ask("CLIENT", "KILL", "TYPE", "normal")
    db.tell("kill")
    s.check(event="e", key="k")
    s.process.send_signal(signal.SIGHUP)
    until(lambda: "WRONGPASS" in (s.steer("GET", "/v1/status").json()["store"]["problem"] or ""), "the store refuses the password")
    until(lambda: not s.steer("GET", "/v1/status").json()["source"]["reachable"], "the database is down")
    until(lambda: s.events("source"), "the log says so")


@pytest.mark.parametrize("db", ["mysql", "postgres"], indirect=True)
@pytest.mark.parametrize("how", ["address", "environment", "credential"])
def test_secrets_are_nowhere(db, how, folder):
    given = Given(how, folder)
    databases.done(db, "init")
    user = db.address_without_password()
    with Authority() as ca, Store(password=STORE) as store, contextlib.ExitStack() as stack:
        certificate, key = ca.issue("server")
        own_key = read(key)
        flags = ["--rules", given.address(user, "WEIR_DB_PASSWORD", db.password), "--poll", "100ms",
                 "--counters", given.address(f"redis://default@127.0.0.1:{store.port}", "WEIR_REDIS_PASSWORD", STORE),
                 "--certificate", certificate, "--certificate-key", given.path("key", own_key), "--http-tls", "no", "--admin-tls", "no",
                 "--token-file", given.path("token", ASK)]
        s = stack.enter_context(Service(*flags, rules=False, environment=given.environment))
        expect(s.steer("PUT", "/v1/rules/e", RULE).status, 201)
        expect(s.steer("PUT", "/v1/settings", {"partition_key_secret": PARTITION}).status, 200)
        asked = s.ask(s.http, "POST", "/v1/check", '{"event": "e", "key": "k"}', {"Content-Type": "application/json", "Authorization": f"Bearer {ASK}"})
        expect(asked.status, 200, asked.body)
        until(lambda: s.steer("GET", "/v1/status").json()["store"]["up"], "the store accepts the password")
        own = [read(s.data, name) for name in ("admin-token", "operate-token", "read-token")]
        secrets = [db.password, STORE, ASK, PARTITION, own_key.split("\n")[1], *own]
        expect_none(s, *secrets)
        try:
            fail_everything(s, db, store)
            expect_none(s, *secrets)
        finally:
            db.tell("start")


@pytest.mark.parametrize("how", ["environment", "file"])
def test_sentinels(how, folder):
    """The server is not a sentinel, and accepts neither of the passwords."""
    given = Given(how, folder)
    with Store(password="another") as server:
        address = given.address(f"redis+sentinel://weir@127.0.0.1:{server.port}/fleet", "WEIR_REDIS_PASSWORD", STORE)
        if how == "file":
            address += f"&sentinel_password_file={given.path('sentinel', SENTINEL)}"
        else:
            given.environment["WEIR_SENTINEL_PASSWORD"] = SENTINEL
        with Service("--counters", address, rules=None, environment=given.environment) as s:
            until(lambda: s.events("store"), "the log says why")
            has(s.events("store")[0]["message"], "WRONGPASS")
            expect_none(s, STORE, SENTINEL)


@pytest.mark.parametrize("words", [
    ("--http", "redis://:geheim@h:1"), ("--idle", "redis://:geheim@h"), ("--counters", "redis://:geheim@h:x"), ("--counters", "redis://h?pass=geheim"),
    ("--counters", "redis//:geheim@h"), ("--counter", "redis://:geheim@h"), ("--rules", "mysq://u:geheim@h/db"), ("--rules", "mysql:u:geheim@h/db"), ("--rules", "mysql//u:geheim@h/db"),
    ("--rules", "postgres://u:geheim@h:x/db"), ("--rules", "postgres://u:geheim@127.0.0.1:1/db?sslpassword=geheim"), ("redis://:geheim@h",)])
def test_mistakes(words, folder):
    """What a start says that fails; in the file of options, too."""
    done = weir("serve", "--data", folder, "--http", "127.0.0.1:0", *words) if words[0] != "--http" else weir("serve", "--data", folder, *words)
    expect((done.returncode, b"geheim" in done.stdout + done.stderr), (2, False), done.stderr)
    if len(words) == 2:
        path = os.path.join(folder, "serve.yaml")
        with open(path, "w", encoding="ascii") as out:
            out.write(f"{words[0][2:]}: {words[1]}\n")
        done = weir("serve", "--data", folder, "--config", path)
        expect((done.returncode, b"geheim" in done.stdout + done.stderr), (2, False), done.stderr)


# ---- systemd ----

UNIT = os.path.join(ROOT, "systemd/weir.service.in")


def example():
    """The unit with the lines about credentials that stand in its comments."""
    return re.sub(r"(?m)^#((LoadCredential|Environment)=)", r"\1", read(UNIT)).replace("@bindir@", os.path.dirname(WEIR))


def test_the_unit_is_valid(folder):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is missing")
    path = os.path.join(folder, "weir.service")
    with open(path, "w", encoding="utf-8") as out:
        out.write(example())
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False)
    expect((done.returncode, done.stdout + done.stderr), (0, ""))


@pytest.mark.parametrize("db", ["postgres"], indirect=True)
def test_credentials_of_the_unit(db, folder):
    """The options of its example, with the servers of this test and a folder of credentials as systemd makes it."""
    databases.done(db, "init")
    with Authority() as ca, Store(password=STORE) as store:
        certificate, key = ca.issue("server")
        secrets = {"redis-password": STORE, "db-password": db.password, "ask-token": ASK, "weir.key": read(key)}
        expect(re.findall(r"(?m)^LoadCredential=([^:]*):", example()), list(secrets))
        given = Given("credential", folder)
        for name, secret in secrets.items():
            given.path(name, secret)
        words = re.search(r'(?m)^Environment="WEIR_OPTIONS=(.*)"$', example())[1]
        for name, value in (("%d", folder), ("/etc/weir/weir.pem", certificate), ("rediss://weir@redis.example", f"redis://default@127.0.0.1:{store.port}"),
                            ("postgres://weir@db.example/weir?sslmode=verify-full&", db.address_without_password() + "?")):
            expect(name in words, True, words)
            words = words.replace(name, value)
        with Service(*words.split(), "--http-tls", "no", "--admin-tls", "no", rules=False, environment=given.environment) as s:
            expect(s.steer("PUT", "/v1/rules/e", RULE).status, 201)
            until(lambda: s.steer("GET", "/v1/status").json()["store"]["up"], "the store accepts the password")
            context = ssl.create_default_context(cafile=ca.path)
            with socket.create_connection(s.resp, DEADLINE_S) as plain, context.wrap_socket(plain, server_hostname="localhost") as client:
                client.sendall(f"AUTH {ASK}\r\n".encode())
                expect(client.recv(100), b"+OK\r\n")
