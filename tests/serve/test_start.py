"""How `weir serve` starts: first greeting, wrong options, places that are taken, unix sockets, and systemd's way."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import socket
import stat
import subprocess
import tempfile

import support
from support import DEADLINE_S, ROOT, WEIR, expect, has, until
from support.service import FRONTS, Service

ANY = ["--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
NOTIFY_BYTES_MAX = 4096


def fails(*words, wanted):
    """Exit status 2, and one sentence at the end of stderr."""
    done = support.weir("serve", *words)
    text = done.stderr.decode()
    expect((done.returncode, done.stdout), (2, b""), text)
    has(text.splitlines()[-1], wanted)
    has(text.splitlines()[-1], "weir serve: ")


@contextlib.contextmanager
def scratch():
    with tempfile.TemporaryDirectory() as folder:
        yield folder


@contextlib.contextmanager
def running(words, **more):
    """A process that is gone afterwards."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, env=more.pop("env", support.ENVIRONMENT), **more)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(DEADLINE_S)


# ---- the greeting ----


def greeting_has(text, token):
    for part in ("weir 0.", "http://127.0.0.1:", "rules  5 from sqlite:", "curl "):
        has(text, part)
    expect(token in text, False, "the token is shown only on a terminal")


def test_first_start():
    """A first start greets, and what it says to try works."""
    with scratch() as folder:
        data = os.path.join(folder, "data")
        words = [WEIR, "serve", "--data", data, *ANY]
        with running(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            greeting = ""
            while "/v1/rules" not in greeting:
                line = process.stdout.readline()
                expect(line != "", True, f"the greeting goes on; so far: {greeting}")
                greeting += line
            with open(os.path.join(data, "admin-token"), encoding="ascii") as file:
                token = file.read().strip()
                expect(stat.S_IMODE(os.fstat(file.fileno()).st_mode), 0o600, "mode of the token")
            greeting_has(greeting, token)
            for command, part in zip(re.findall(r"^ +(curl .*)$", greeting, re.M), ("HTTP/1.1 200 OK", '"ocr"')):
                done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
                has(done.stdout, part)
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=DEADLINE_S)
            expect(process.returncode, 0, log)
            expect(token in log, False, "the token is in no log")
        expect({"admin-token", "cells", "rules.db"} - set(os.listdir(data)), set(), "what the data folder has")


def test_the_suggested_command_runs():
    """As it stands in the log, although this weir is not in the path."""
    with Service(rules=None) as service:
        [message] = [entry["message"] for entry in service.events("rules") if "is new" in entry["message"]]
        command = re.search("`(.* rules list --from .*?)`", message).group(1)
        done = subprocess.run(command, shell=True, check=False, capture_output=True, text=True)
        expect((done.returncode, done.stderr), (0, ""), command)
        has(done.stdout, "rules in sqlite:")


def test_commands_run_from_a_folder_with_blanks():
    """Those of the greeting, and those of the log and of errors."""
    with scratch() as folder:
        data = os.path.join(folder, "it's my data")
        words = [WEIR, "serve", "--data", data, *ANY]
        with running(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            greeting = "".join(iter(process.stdout.readline, "Or look at the rules here:\n"))
            done = subprocess.run(["bash", "-c", process.stdout.readline()], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
            has(done.stdout, '"ocr"')
            has(greeting, "weir 0.")
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=DEADLINE_S)
        [command] = re.findall("`(.* rules list --from .*?)`", log)
        done = subprocess.run(command, shell=True, check=False, capture_output=True, text=True)
        expect((done.returncode, done.stderr), (0, ""), command)
        missing = support.weir("serve", "--data", data, "--rules", f"sqlite:{folder}/other rules.db", *ANY)
        [command] = re.findall("`(.* rules init --from .*?)`", missing.stderr.decode())
        done = subprocess.run(command, shell=True, check=False, capture_output=True, text=True)
        expect((done.returncode, done.stderr), (0, ""), command)
        expect(os.path.exists(f"{folder}/other rules.db"), True, command)


def test_greeting_suggests_what_a_rule_counts():
    """What to try is for a rule that is there, and never one of the subjects of the README's tour."""
    limits = "by: [user], limits: [ 9 per 1m ] } ]"
    for rules, part in (
        ("rules: [ { id: a, match: { event: transfer }, " + limits, '"event": "transfer", "user": "somebody"'),
        ("rules: [ { id: a, match: { event: \"x' y\" }, " + limits, '"method": "GET"'),
        ("rules: []", '"method": "GET"'),
    ):
        with scratch() as folder:
            path = os.path.join(folder, "rules.yaml")
            with open(path, "w", encoding="ascii") as file:
                file.write(rules)
            words = [WEIR, "serve", "--data", os.path.join(folder, "data"), "--rules", f"file:{path}", *ANY]
            with running(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
                greeting = "".join(iter(process.stdout.readline, "Try a decision:\n"))
                commands = [process.stdout.readline() for _ in range(2)]
                has(commands[0], part)
                has(greeting, "weir 0.")
                done = subprocess.run(["bash", "-c", "".join(commands)], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
                has(done.stdout, "HTTP/1.1 200 OK")


def test_greeting_on_a_terminal():
    """The token is shown on a terminal."""
    with scratch() as folder:
        ours, theirs = pty.openpty()
        log = os.path.join(folder, "log")
        with open(log, "wb") as errors, running([WEIR, "serve", "--data", folder, *ANY], stdout=theirs, stderr=errors) as process:
            os.close(theirs)
            text = b""
            while b"/v1/rules" not in text:
                ready, _, _ = select.select([ours], [], [], DEADLINE_S)
                expect(bool(ready), True, f"the greeting goes on; so far: {text}")
                text += os.read(ours, 4096)
            with open(os.path.join(folder, "admin-token"), "rb") as file:
                expect(file.read().strip() in text, True, "the token is shown on a terminal")
            process.terminate()
            expect(process.wait(DEADLINE_S), 0)
        os.close(ours)


# ---- what cannot be ----


def test_wrong_options():
    """A wrong option is one sentence."""
    see = "; see 'weir serve --help'"
    for words, wanted in (
        (["--frobnicate", "x"], "weir serve: unknown option --frobnicate" + see),
        (["--htpp", "off"], "unknown option --htpp (did you mean --http?)" + see),
        (["--idle", "5"], "--idle: '5' is not allowed here; allowed: 100ms to 1d"),
        (["--http", "example.com:80"], "--http: 'example.com:80' is not allowed here; allowed: HOST:PORT"),
        (["--http", ":80"], "--http: ':80' is not allowed here"),
        (["mysql://ann:geheim@h/db"], "unexpected argument 'mysql'; "),
        (["--config", "/nonexistent.yaml"], "/nonexistent.yaml: cannot be read: No such file or directory"),
    ):
        fails(*words, wanted=wanted)


def test_wrong_file():
    """A wrong file is one sentence with its line."""
    with scratch() as folder:
        path = os.path.join(folder, "weir.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("http: off\n\nconections: 5\n")
        fails("--config", path, wanted=f"weir serve: {path}:3: unknown option conections (did you mean connections?)")


def test_port_in_use():
    """A port in use is one sentence, also if the other one is a weir."""
    with Service("--threads", "2") as s, scratch() as folder:
        place = f"127.0.0.1:{s.http[1]}"
        for threads in "1", "2":
            words = ["--data", folder, "--threads", threads, *ANY]
            words[words.index("--http") + 1] = place
            fails(*words, wanted=f"weir serve: {place} is in use; choose another address with --http")
        expect(s.check(event="ocr", key="a").status, 200)


def test_no_data_folder():
    """A data folder that cannot be is one sentence."""
    with scratch() as folder:
        fails("--data", os.path.join(folder, "no", "folder"), *ANY, wanted="weir serve: cannot create the data folder ")
        path = os.path.join(folder, "file")
        with open(path, "w", encoding="ascii"):
            pass
        fails("--data", path, *ANY, wanted=f"weir serve: cannot use the data folder {path}: ")


def test_no_password_for_others():
    """No password is shown. Neither in the list of processes nor in a message."""
    with scratch() as folder, socket.create_server(("127.0.0.1", 0)) as silent:
        source = f"postgres://ann:geheim@127.0.0.1:{silent.getsockname()[1]}/db"
        with running([WEIR, "serve", "--data", folder, "--rules", source, *ANY], stderr=subprocess.PIPE) as process:
            silent.settimeout(DEADLINE_S)
            connection, _ = silent.accept()
            with open(f"/proc/{process.pid}/cmdline", "rb") as file:
                words = file.read()
            connection.close()
            silent.close()
            _, errors = process.communicate(timeout=DEADLINE_S)
        expect((b"ann:******@" in words, b"geheim" in words), (True, False), words)
        expect((process.returncode, b"geheim" in errors), (2, False), errors)


# ---- unix sockets ----


def test_unix_sockets():
    """Unix sockets are made, replaced and removed."""
    with scratch() as folder, scratch() as other:
        paths = {front: os.path.join(folder, front) for front in FRONTS}
        with Service(*(word for front in paths for word in (f"--{front}", "unix:" + paths[front]))) as s:
            expect((s.http, s.resp, s.admin), tuple(paths.values()))
            for path in paths.values():
                expect(stat.S_IMODE(os.stat(path).st_mode), 0o660, path)
            expect(s.check(event="ocr", key="a").status, 200)
            with s.socket(s.resp) as client:
                client.sendall(b"PING\r\n")
                expect(client.recv(100), b"+PONG\r\n")
            s.kill()
            expect(sorted(os.listdir(folder)), sorted(paths), "what a killed process leaves behind")
            s.start()
            expect(s.check(event="ocr", key="a").status, 200)
            fails("--data", other, "--http", "unix:" + s.http, wanted=f"unix:{s.http} is in use; choose another address")
            s.stop()
            expect(os.listdir(folder), [], "files of sockets")


# ---- systemd ----


class Manager:
    """The receiving end of sd_notify."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(DEADLINE_S)
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.folder.cleanup()

    def expect(self, line):
        """The next message has it."""
        message = self.socket.recv(NOTIFY_BYTES_MAX).decode()
        expect(line in message.splitlines(), True, f"{line} in {message!r}")
        return message


def test_notifies():
    """The service manager is told."""
    with Manager() as manager, Service(environment={"NOTIFY_SOCKET": manager.path}) as s:
        manager.expect("READY=1")
        s.process.send_signal(signal.SIGHUP)
        has(manager.expect("RELOADING=1"), "MONOTONIC_USEC=")
        manager.expect("READY=1")
        s.stop()
        manager.expect("STOPPING=1")


# $LISTEN_PID is the process that bash becomes. The sockets are moved to 3 and on.
ACTIVATE = 'exec 3<&"$HTTP" 4<&"$RESP"; LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=http:resp exec "$@"'


class Activated(Service):
    """With sockets that somebody else has made: one on TCP, one in a file."""

    def __init__(self, listeners, *flags):
        super().__init__(*flags)
        self.listeners = listeners

    def start(self):
        numbers = [os.dup(listener.fileno()) for listener in self.listeners]
        high = [self.above(number) for number in numbers]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", ACTIVATE, "bash", *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=high,
                env={**support.ENVIRONMENT, "HTTP": str(high[0]), "RESP": str(high[1])},
            )
        for number in high:
            os.close(number)
        until(lambda: self.listening(0), "the service listens")

    @staticmethod
    def above(number):
        """Out of the way of 3 and 4."""
        high = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 20)
        os.close(number)
        return high


def test_sockets_are_handed_over():
    """Sockets of the service manager are taken over."""
    with scratch() as folder, contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        local.bind(os.path.join(folder, "resp"))
        local.listen()
        waiting = stack.enter_context(socket.create_connection(tcp.getsockname(), DEADLINE_S))
        waiting.sendall(b"GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        with Activated([tcp, local], "--threads", "2", "--http", "127.0.0.1:1") as s:
            expect((s.http, s.resp), (tcp.getsockname(), os.path.join(folder, "resp")))
            expect(waiting.recv(100).startswith(b"HTTP/1.1 404 "), True, "who came before the service is answered")
            for i in range(20):
                expect(s.check(event="other", key=str(i)).status, 200)
            with s.socket(s.resp) as client:
                client.sendall(b"PING\r\n")
                expect(client.recv(100), b"+PONG\r\n")
            s.stop()
        expect(os.listdir(folder), ["resp"], "what the manager made is the manager's")


def test_sockets_of_unknown_names():
    """Sockets of unknown names are refused."""
    command = ACTIVATE.replace("http:resp", "http:web")
    with socket.create_server(("127.0.0.1", 0)) as tcp, scratch() as folder:
        high = Activated.above(os.dup(tcp.fileno()))
        environment = {**support.ENVIRONMENT, "HTTP": str(high), "RESP": str(high)}
        words = ["bash", "-c", command, "bash", WEIR, "serve", "--data", folder, *ANY]
        done = subprocess.run(words, capture_output=True, pass_fds=[high], env=environment, timeout=DEADLINE_S, check=False)
        os.close(high)
        expect(done.returncode, 2, done.stderr)
        has(done.stderr.decode(), "hands over a socket named 'web'; allowed: http, resp, grpc, admin")


# ---- a new token ----


def test_token_is_made_anew():
    """A token that was removed is made anew by SIGHUP. As the page says: remove the file, and send SIGHUP."""
    with Service() as s:
        path = os.path.join(s.data, "admin-token")
        first = s.token
        os.remove(path)
        s.process.send_signal(signal.SIGHUP)
        until(lambda: s.steer("GET", "/v1/rules").status == 401, "the old one does not count any more")
        with open(path, encoding="ascii") as file:
            s.token = file.read().strip()
        expect(s.token != first, True, "another one")
        expect(stat.S_IMODE(os.stat(path).st_mode), 0o600, "its mode")
        expect(s.steer("GET", "/v1/rules").status, 200, "the new one counts")


# ---- its page ----


def test_page_has_the_options():
    """The table in docs/service.md is the one that the service reads."""
    manual = os.path.join(os.path.dirname(WEIR), "src", "serve", "serve_manual")
    table = subprocess.run([manual, "table"], capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout
    with open(os.path.join(ROOT, "docs", "service.md"), encoding="utf-8") as page:
        if table not in page.read():
            raise AssertionError(f"docs/service.md has another table; this is the one:\n{table}")


def test_no_rule_is_left():
    with Service(rules='rules: [{ id: r, match: { event: e }, limits: "1 per 1h" }]\n') as s:
        with open(s.rules_file, "w", encoding="utf-8") as file:
            file.write("rules: []\n")
        said = until(lambda: [entry for entry in s.events("rules") if "every request passes" in entry["message"]], "it is said")
        expect([entry["level"] for entry in said], ["warning"])
