"""TLS to the store: decisions, outages, failovers, certificates that are refused and certificates that are replaced."""

import contextlib
import os
import shutil

import pytest

from support import expect, free_port, has, until
from support.certificates import Authority
from support.crowd import Crowd, Node, agree, ask, charged, spend, total
from support.service import Service
from support.store import PATIENT, SecureStore, Store
from support.wire import Wire

MAX = 2000
REST_S = 0.02
RULES = f"""
rules:
  - {{ id: some, match: {{ event: some }}, by: [key], on_store_failure: deny,
      limits: [ {{ name: n, algorithm: fixed_window, max: {MAX}, per: 365d }} ] }}
  - {{ id: lent, match: {{ event: lent }}, by: [key], on_store_failure: deny, lease: {{ slice: 5%, ttl: 10m }},
      limits: [ {{ name: n, algorithm: fixed_window, max: {MAX}, per: 365d }} ] }}
"""
SECRET = "correct-horse"


@pytest.fixture(name="ca", scope="module")
def authority():
    with Authority() as ca:
        ca.server = ca.issue("server")
        yield ca


@pytest.fixture(name="other", scope="module")
def other_authority():
    with Authority() as ca:
        ca.server = ca.issue("server")
        yield ca


def node_of(address, *flags):
    return Node(address, RULES, *PATIENT, *flags)


def problem(address):
    """What a service says of a store that it does not reach."""
    with Service("--counters", address, rules=RULES) as service:
        entries = until(lambda: service.events("store"), "the store is not reached")
        expect(ask(service, ("some", "x"))[0], "denied")
        said = entries[0]["message"]
        has(said, "does not answer")
        return said


# ---- decisions ----


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_decisions(ca, protocol):
    """Exact and leased, by many clients of two services: all of max, and no more."""
    exact, leased = ("some", "x"), ("lent", "x")
    with SecureStore(ca, "--tls-protocols", protocol) as store, node_of(store.address) as one, node_of(store.address) as two:
        with Crowd([one, two], [exact, leased]) as crowd:
            pass
        expect(crowd.allowed(exact), MAX)
        expect(charged(store, exact, "n.f"), MAX)
        passed = crowd.allowed(leased) + sum(spend(node, leased) for node in (one, two))
        expect(passed <= MAX, True, f"{passed} have passed")
        for node in (one, two):
            agree(node, up=1)
            has(node.status()["address"], f"rediss://127.0.0.1:{store.tls_port}")


def test_killed_and_stopped(ca):
    """kill -9, and SIGSTOP: what was told to have passed is charged, and not more than that and what was lost."""
    exact = ("some", "y")
    with SecureStore(ca, persistent=True) as store:
        with Node(store.address, RULES, "--store-deadline", "1s") as node:
            with Crowd([node], [exact], greedy=True, rest_s=REST_S) as crowd:
                for go_away, come_back in ((store.kill, store.start), (store.pause, store.go_on)):
                    before = crowd.allowed(exact)
                    until(lambda b=before: crowd.allowed(exact) > b + 50, "decisions are made")
                    go_away()
                    until(lambda: not node.is_up(), "it is noticed")
                    come_back()
                    until(node.is_up, "it is reached again")
                before = crowd.allowed(exact)
                until(lambda: crowd.allowed(exact) > before + 50, "decisions are made")
            expect(crowd.unanswered(), 0)
            passed, lost = crowd.allowed(exact), total([node], "lost")
            count = until(lambda: charged(store, exact, "n.f"), "it answers")
            expect(passed <= count <= passed + lost, True, f"{passed} have passed, {lost} were lost, {count} are charged")
            # A restarted server is another one; what it answers late is given back.
            agree(node, up=3, down=2, replaced=1)


# ---- who is refused ----


def test_wrong_name(ca):
    with SecureStore(ca, certificate=ca.issue("elsewhere", "DNS:redis.example")) as store:
        has(problem(store.address), "for another name", "IP address mismatch", "name=HOST")
        with node_of(store.secure_address(name="redis.example")) as node:
            expect(ask(node, ("some", "x"))[0], "allowed")
        has(problem(store.secure_address(name="redis.example.org")), "for another name", "ostname mismatch")


def test_expired(ca):
    with SecureStore(ca, certificate=ca.issue("old", days=-1)) as store:
        has(problem(store.address), "not valid now", "expired")


def test_not_trusted(ca, other):
    with SecureStore(ca) as store:
        has(problem(store.secure_address(ca=other.path)), "not trusted", "ca=FILE")
        has(problem(store.secure_address(ca=None)), "not trusted", "ca=FILE")


def test_self_signed(ca):
    path, key = ca.at("own.pem"), ca.at("own.key")
    ca.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", path, "-days", "5",
               "-subj", "/CN=own", "-addext", "subjectAltName=IP:127.0.0.1")
    with SecureStore(ca, certificate=(path, key)) as store:
        has(problem(store.address), "not trusted", "self-signed")
        with node_of(store.secure_address(ca=path)) as node:
            expect(ask(node, ("some", "x"))[0], "allowed")


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_client_certificate(ca, other, protocol):
    with SecureStore(ca, "--tls-protocols", protocol, clients="yes") as store:
        cert, key = ca.issue("client", "DNS:client")
        with node_of(store.secure_address(cert=cert, key=key)) as node:
            expect(ask(node, ("some", "x"))[0], "allowed")
        has(problem(store.address), "client certificate" if protocol == "TLSv1.3" else "handshake failure")
        cert, key = other.issue("client", "DNS:client")
        has(problem(store.secure_address(cert=cert, key=key)), "does not accept the client certificate")


def test_plain_server(ca):
    """Each has what the other has not."""
    with SecureStore(ca) as store:
        said = problem(f"rediss://127.0.0.1:{store.port}?ca={ca.path}")
        expect("TLS" in said and ("redis://" in said or "on this port" in said), True, said)
        said = problem(f"redis://127.0.0.1:{store.tls_port}")
        has(said, "rediss://")


def test_files_are_checked_at_the_start(ca):
    for address, wanted in (
        ("rediss://h?ca=/nowhere/ca.pem", ("/nowhere/ca.pem", "No such file")),
        (f"rediss://h?ca={ca.key}", (ca.key,)),
        (f"rediss://h?cert={ca.server[0]}&key={ca.key}", (ca.key, "mismatch")),
        ("redis://h?password_file=/nowhere/secret", ("/nowhere/secret, the password_file of the store's address", "No such file")),
        ("redis://h?ca=/x", ("ca", "rediss://")),
    ):
        with pytest.raises(AssertionError) as why, Service("--counters", address, rules=RULES):
            pass
        has(str(why.value), *wanted)


# ---- what is replaced while it runs ----


def replace(source, target):
    shutil.copy(source, target + ".new")
    os.rename(target + ".new", target)


def test_certificates_are_replaced(ca, other):
    """Another authority, server certificate and client certificate: they count from the next connection on."""
    trusted, cert, key = (ca.at(f"used-{name}") for name in ("ca.pem", "cert.pem", "key.pem"))
    for source, target in zip((ca.path, *ca.issue("first", "DNS:first")), (trusted, cert, key)):
        replace(source, target)
    with SecureStore(ca, clients="yes") as store, node_of(store.secure_address(ca=trusted, cert=cert, key=key)) as node:
        expect(ask(node, ("some", "x"))[0], "allowed")
        store.kill()
        until(lambda: not node.is_up(), "it is noticed")
        store.ca, store.certificate = other, other.server
        store.start()
        until(lambda: "not trusted" in (node.status()["problem"] or ""), lambda: f"the old ones do not do: {node.status()}")
        for source, target in zip((other.path, *other.issue("second", "DNS:second")), (trusted, cert, key)):
            replace(source, target)
        until(node.is_up, "the new ones do")
        expect(ask(node, ("some", "x"))[0], "allowed")


@pytest.mark.parametrize("secure", [False, True])
def test_password_file(ca, secure):
    """It is read for each connection, and told to nobody."""
    path = ca.at("secret")
    with open(path, "w", encoding="ascii") as out:
        out.write(SECRET + "\n")
    with SecureStore(ca, password=SECRET) as store:
        plain = f"redis://127.0.0.1:{store.port}?password_file={path}"
        with node_of(store.secure_address(password_file=path) if secure else plain) as node:
            expect(ask(node, ("some", "x"))[0], "allowed")
            with Wire(store) as wire:
                expect(wire.ask("AUTH", SECRET), "OK")
                expect(wire.ask("CONFIG", "SET", "requirepass", "battery-staple"), "OK")
                wire.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            until(lambda: "WRONGPASS" in (node.status()["problem"] or ""), lambda: f"the old one does not do: {node.status()}")
            with open(path, "w", encoding="ascii") as out:
                out.write("battery-staple")
            until(node.is_up, "the new one does")
            log = "".join(node.lines())
            expect(SECRET in log or "battery" in log, False, log)
        has(problem(store.secure_address(user="weir:hunter2@")), "WRONGPASS")
        expect("hunter2" in problem(store.secure_address(user="weir:hunter2@")), False)


# ---- sentinels ----

CONFIG = """
bind 127.0.0.1
port {port}
dir {dir}
tls-port {tls_port}
tls-cert-file {cert}
tls-key-file {key}
tls-ca-cert-file {ca}
tls-auth-clients no
tls-replication yes
requirepass {secret}
sentinel monitor fleet 127.0.0.1 {master} 1
sentinel down-after-milliseconds fleet 600000
sentinel failover-timeout fleet 60000
"""


class SecureSentinel(SecureStore):
    """It watches over one master, over TLS, and wants a password itself."""

    def __init__(self, ca, master):
        super().__init__(ca, password=SECRET)
        self.master = master

    def command(self):
        config = os.path.join(self.folder.name, "sentinel.conf")
        certificate, key = self.certificate
        with open(config, "w", encoding="ascii") as out:
            out.write(CONFIG.format(port=self.port, dir=self.folder.name, tls_port=self.tls_port, cert=certificate, key=key, ca=self.ca.path,
                                    secret=self.password, master=self.master.tls_port))
        return ["redis-server", config, "--sentinel"]

    @property
    def address(self):
        secret = os.path.join(self.folder.name, "secret")
        with open(secret, "w", encoding="ascii") as out:
            out.write(self.password)
        return f"rediss+sentinel://127.0.0.1:{free_port()},127.0.0.1:{self.tls_port}/fleet?ca={self.ca.path}&sentinel_password_file={secret}"


def test_sentinels(ca):
    """The master dies; its replica takes over, which is reached by TLS, too."""
    subject = ("some", "x")
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(SecureStore(ca, "--tls-replication", "yes", "--repl-diskless-sync-delay", 0))
        second = stack.enter_context(SecureStore(ca, "--tls-replication", "yes", "--replicaof", "127.0.0.1", first.tls_port))
        with Wire(first) as wire:
            until(lambda: wire.ask("SET", "test", 1) == "OK" and wire.ask("WAIT", 1, 100) == 1, "the replica follows")
        sentinel = stack.enter_context(SecureSentinel(ca, first))
        node = stack.enter_context(node_of(sentinel.address))
        has(node.status()["address"], "rediss+sentinel://", f"(127.0.0.1:{first.tls_port})")
        expect(spend(node, subject, 50), 50)
        with Wire(first) as wire:
            wire.ask("SET", "test", 2)
            until(lambda: wire.ask("WAIT", 1, 100) == 1, "the replica has it")
        until(lambda: any(str(second.tls_port) in one for one in sentinel.ask("SENTINEL", "REPLICAS", "fleet")), "the sentinel knows the replica")
        first.kill()
        until(lambda: sentinel.ask("SENTINEL", "FAILOVER", "fleet") == "OK", "it fails over")
        until(lambda: node.is_up() and f"(127.0.0.1:{second.tls_port})" in node.status()["address"], lambda: f"{node.status()}")
        expect(spend(node, subject, 50), 50)
        expect(charged(second, subject, "n.f"), 100)


def test_sentinel_without_tls(ca):
    """A sentinel without TLS cannot be asked with it."""
    with Store() as store:
        said = problem(f"rediss+sentinel://127.0.0.1:{store.port}/fleet?ca={ca.path}")
        has(said, "no sentinel names the master", "TLS")
