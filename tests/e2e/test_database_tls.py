"""TLS to databases: whom weir talks to is checked, and what is wrong is said."""

import os
import shutil
import subprocess
import tempfile
import urllib.parse
from pathlib import Path

import pytest

from support import WEIR, expect, has, until
from support.certificates import Authority
from support.databases import Server

LIST = ("rules", "list", "--from")


class Place:
    """A server whose certificate can be replaced."""

    def __init__(self, kind, ca, server, folder):
        self.kind, self.ca, self.server, self.folder = kind, ca, server, folder

    def use(self, certificate, key):
        """The server has this one from now on."""
        for source, name in ((certificate, "server.pem"), (key, "server.key")):
            shutil.copy(source, os.path.join(self.folder, name + ".new"))
            os.chmod(os.path.join(self.folder, name + ".new"), 0o600)
            os.chown(os.path.join(self.folder, name + ".new"), self.owner(), -1)
            os.rename(os.path.join(self.folder, name + ".new"), os.path.join(self.folder, name))
        if self.kind == "mysql":
            self.server.sql("FLUSH SSL")
        else:
            self.server.sql("SELECT pg_reload_conf()")

    def owner(self):
        """The user of the server."""
        parts = urllib.parse.urlsplit(self.server.address)
        path = urllib.parse.unquote(parts.netloc.rpartition("@")[2])
        return os.stat(os.path.dirname(path) if self.kind == "mysql" else path.partition(":")[0]).st_uid

    def ask(self, how):
        """The status of `weir rules list`, and what it says."""
        query = {"mysql": ("ssl-mode=required", f"ssl-mode=verify&ssl-ca={self.ca.path}"),
                 "postgres": ("sslmode=require", f"sslmode=verify-full&sslrootcert={self.ca.path}")}[self.kind][how == "verify"]
        address = f"{self.server.address_without_password()}?{query}"
        environment = {**os.environ, "WEIR_DB_PASSWORD": self.server.password}
        done = subprocess.run([WEIR, *LIST, address], capture_output=True, text=True, check=False, timeout=60, env=environment)
        return done.returncode, done.stderr


@pytest.fixture(name="place", params=("mysql", "postgres"))
def tls_place(request):
    with Authority() as ca, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chmod(folder, 0o755)  # the server runs as another user
        certificate, key = ca.issue("right")
        for source, name in ((certificate, "server.pem"), (key, "server.key")):
            shutil.copy(source, folder / name)
            os.chmod(folder / name, 0o644)
        os.environ["WEIR_TEST_DATABASE_TLS"] = str(folder)
        try:
            with Server(request.param) as server:
                if server.missing:
                    pytest.skip(f"{server.missing} is missing")
                place = Place(request.param, ca, server, str(folder))
                if request.param == "postgres":
                    os.chown(folder / "server.key", place.owner(), -1)
                    os.chmod(folder / "server.key", 0o600)
                    for name, value in (("ssl_cert_file", folder / "server.pem"), ("ssl_key_file", folder / "server.key"), ("ssl", "on")):
                        server.sql(f"ALTER SYSTEM SET {name} = '{value}'")
                    server.sql("SELECT pg_reload_conf()")
                    until(lambda: server.sql("SHOW ssl") == [["on"]], "it speaks TLS")
                done = subprocess.run([WEIR, "rules", "init", "--from", server.tcp_address], capture_output=True, text=True, check=False)
                expect(done.returncode, 0, done.stderr)
                yield place
        finally:
            del os.environ["WEIR_TEST_DATABASE_TLS"]


# The words are those of the client libraries.
SAID = {"mysql": ("certificate",), "postgres": ("certificate", "does not match host name")}
WRONG = {"name": {"names": "DNS:elsewhere.test"}, "expired": {"days": -1}, "stranger": None}


def test_whom_it_talks_to(place):
    place.use(*place.ca.issue("right"))
    until(lambda: place.ask("verify")[0] == 0, lambda: place.ask("verify")[1])
    expect(place.ask("require")[0], 0)
    with Authority() as other:
        for kind, how in WRONG.items():
            place.use(*(place.ca.issue(kind, **how) if how else other.issue(kind)))
            until(lambda: place.ask("verify")[0] != 0, f"{kind}: it is refused")
            status, said = place.ask("verify")
            expect((status, any(words in said for words in SAID[place.kind])), (2, True), f"{kind}: {said}")
            expect(place.server.password in said, False, said)
            expect(place.ask("require")[0], 0, f"{kind}: whoever it is")
        place.use(*place.ca.issue("right"))
        until(lambda: place.ask("verify")[0] == 0, "the right one again")
