"""Databases for tests: SQLite always; MariaDB and PostgreSQL where they are installed, as private servers."""

import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import urllib.parse

import harness

TABLES = ["THROTTLED_CALLS", "WEIR_RULES", "WEIR_SETTINGS", "WEIR_HISTORY"]
THROTTLED_CALLS = """CREATE TABLE THROTTLED_CALLS (
  THROTTLE_ID          int PRIMARY KEY,
  NORMALIZED_CALL      varchar(256) NOT NULL,
  MAX_LOCKS            int NOT NULL,
  LOCK_TIMEOUT_SECONDS int NOT NULL,
  THROTTLE_EXPIRATION  bigint DEFAULT NULL,
  UNIQUE (NORMALIZED_CALL))"""


class Sqlite:
    kind = "sqlite"
    missing = None

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weir-sqlite-")
        self.count = 0
        self.clear()

    def clear(self):
        """From here on there is nothing in it."""
        self.count += 1
        self.path = os.path.join(self.folder.name, f"{self.count}.db")
        self.address = f"sqlite:{self.path}"

    def sql(self, statement):
        """Runs a statement; its rows, each a list of texts."""
        with sqlite3.connect(self.path, isolation_level=None, timeout=20) as db:
            return [["" if value is None else str(value) for value in row] for row in db.execute(statement)]

    def close(self):
        self.folder.cleanup()


class Server:
    """One that tests/source/servers_main.c looks after."""

    def __init__(self, kind, group):
        self.kind, self.group = kind, group
        self.missing, self.address = None, None

    def begin(self, words):
        if words[1] == "missing":
            self.missing = " ".join(words[2:])
            return
        self.address, self.tcp_address = words[1:3]
        self.parts = urllib.parse.urlsplit(self.tcp_address)
        self.password = urllib.parse.unquote(self.parts.password or "")

    def sql(self, statement):
        user, host, port = self.parts.username, self.parts.hostname, str(self.parts.port)
        database = self.parts.path.strip("/")
        if self.kind == "mysql":
            words = ["mariadb", "--no-defaults", "--default-character-set=utf8mb4", "-h", host, "-P", port, "-u", user, "-N", "-B",
                     database]
        else:
            words = ["psql", "-X", "-q", "-A", "-t", "-F", "\t", "-h", host, "-p", port, "-U", user, "-d", database,
                     "-v", "ON_ERROR_STOP=1", "-c", "SET client_min_messages = error", "-f", "-"]
        secrets = {"MYSQL_PWD": self.password, "PGPASSWORD": self.password}
        environment = {**os.environ, **secrets, "LC_ALL": "C.UTF-8", "PGCLIENTENCODING": "UTF8"}
        text = f"{statement};\n".encode()
        done = subprocess.run(words, input=text, env=environment, capture_output=True, timeout=60, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{self.kind}: {statement[:500]}: {done.stderr.decode()}")
        rows = [line.split("\t") for line in done.stdout.decode().splitlines()]
        return [["" if value == "NULL" else value for value in row] for row in rows]

    def address_without_password(self):
        return self.tcp_address.replace(f":{self.parts.password}@", "@")

    def clear(self):
        self.sql(";\n".join(f"DROP TABLE IF EXISTS {table}" for table in [*TABLES, *map(str.lower, TABLES)]))

    def tell(self, what):
        """kill, start, freeze, thaw."""
        self.group.stdin.write(f"{what} {self.kind}\n".encode())
        self.group.stdin.flush()
        harness.expect(self.group.stdout.readline(), b"ok\n", what)


class Databases:
    """`with Databases() as all:`; each of them has kind, address, sql(), clear(), missing."""

    def __enter__(self):
        self.sqlite, self.group, self.servers = Sqlite(), None, []
        if len(sys.argv) > 2 and os.path.exists(sys.argv[2]):
            self.group = subprocess.Popen([sys.argv[2], "mysql", "postgres"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.servers = [Server(kind, self.group) for kind in ("mysql", "postgres")]
            for server in self.servers:
                words = self.group.stdout.readline().decode().split()
                if len(words) < 3:
                    raise AssertionError(f"{server.kind}: the server does not start")
                server.begin(words)
        return [self.sqlite, *self.servers]

    def __exit__(self, *_):
        if self.group:
            self.group.stdin.close()
            self.group.wait(timeout=60)
            self.group.stdout.close()
        self.sqlite.close()


def rules(source, *words, **more):
    """Runs `weir rules` against a database or an address: status, output, errors."""
    address = source if isinstance(source, str) else source.address
    done = harness.weir("rules", *words, "--from", address, **more)
    secret = re.search(r"//[^/@:]*:([^/@]+)@", address)
    if secret and secret.group(1).encode() in done.stdout + done.stderr:
        raise AssertionError("a password is on show")
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def done(source, *words, **more):
    """The same where it must succeed: its output."""
    status, out, errors = rules(source, *words, **more)
    harness.expect((status, errors), (0, ""), f"{words} {out}")
    return out


def main(cases, databases):
    """Every case with every database."""

    def bind(case, database):
        def run():
            if database.missing:
                raise harness.Skip(f"{database.missing} is not installed")
            database.clear()
            case(database)

        return run

    harness.main([(f"{db.kind}: {case.__name__.replace('_', ' ')}", bind(case, db)) for db in databases for case in cases])
