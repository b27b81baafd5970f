"""Databases for tests: SQLite, and MariaDB and PostgreSQL as private servers. Each has kind, address, sql(), clear(), missing."""

import glob
import os
import re
import sqlite3
import subprocess
import tempfile
import urllib.parse

from support import BUILD, DEADLINE_S, expect, weir

KINDS = ("sqlite", "mysql", "postgres")
SERVERS = os.path.join(BUILD, "tests", "source", "source_servers")
# Debian's own psql is a script that looks for this one, each time.
PSQL = max(glob.glob("/usr/lib/postgresql/*/bin/psql"), default="psql")
TABLES = ["THROTTLED_CALLS", "WEIR_RULES", "WEIR_SETTINGS", "WEIR_OVERRIDES", "WEIR_HISTORY"]
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
        with sqlite3.connect(self.path, isolation_level=None, timeout=DEADLINE_S) as db:
            return [["" if value is None else str(value) for value in row] for row in db.execute(statement)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()


class Server:
    """`with Server("mysql") as db`. tests/source/servers_main.c looks after it."""

    def __init__(self, kind):
        self.kind = kind
        self.missing, self.address = None, None

    def __enter__(self):
        self.group = subprocess.Popen([SERVERS, self.kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        words = self.group.stdout.readline().decode().split()
        if len(words) < 3:
            self.__exit__()
            raise AssertionError(f"{self.kind}: the server does not start")
        if words[1] == "missing":
            self.missing = " ".join(words[2:])
        else:
            self.address, self.tcp_address = words[1:3]
            self.parts = urllib.parse.urlsplit(self.tcp_address)
            self.password = urllib.parse.unquote(self.parts.password or "")
        return self

    def __exit__(self, *_):
        self.group.stdin.close()
        self.group.wait(timeout=60)
        self.group.stdout.close()

    def sql(self, statement):
        user, host, port = self.parts.username, self.parts.hostname, str(self.parts.port)
        database = self.parts.path.strip("/")
        if self.kind == "mysql":
            words = ["mariadb", "--no-defaults", "--default-character-set=utf8mb4", "-h", host, "-P", port, "-u", user, "-N", "-B",
                     database]
        else:
            words = [PSQL, "-X", "-q", "-A", "-t", "-F", "\t", "-h", host, "-p", port, "-U", user, "-d", database,
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
        expect(self.group.stdout.readline(), b"ok\n", what)


def rules(source, *words, **more):
    """Runs `weir rules` against a database or an address: status, output, errors."""
    address = source if isinstance(source, str) else source.address
    done = weir("rules", *words, "--from", address, **more)
    secret = re.search(r"//[^/@:]*:([^/@]+)@", address)
    if secret and secret.group(1).encode() in done.stdout + done.stderr:
        raise AssertionError("a password is on show")
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def done(source, *words, **more):
    """The same where it must succeed: its output."""
    status, out, errors = rules(source, *words, **more)
    expect((status, errors), (0, ""), f"{words} {out}")
    return out
