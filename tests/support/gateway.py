"""A real nginx with weir's module in front of a backend, for tests: on free ports of loopback, in a folder of its own, gone at
the end."""

import collections
import contextlib
import glob
import grp
import http.client
import http.server
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

from support import BUILD, DEADLINE_S, ENVIRONMENT, expect, until

MODULE = os.path.join(BUILD, "nginx", "ngx_http_weir_module.so")
NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
ZONE = "weir_zone main 1m rules=@FOLDER@/rules.yaml;"
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
# What no test may find in a log. Who kills a worker finds that in the log, too.
FAULTS = re.compile(r"AddressSanitizer|LeakSanitizer|runtime error:|\[alert\](?!.* exited on signal 9)|exited on signal (?!9\b)")

Answer = collections.namedtuple("Answer", "status headers body")
Request = collections.namedtuple("Request", "method path headers body")


def sanitizer():
    """What an nginx needs that was not built with the sanitizers itself."""
    if not os.path.exists(MODULE):
        return {}
    with open(MODULE, "rb") as file:
        program = file.read()
    if b"__asan_init" not in program:
        return {}
    clang = f"libclang_rt.asan-{os.uname().machine}.so"
    compiler, runtime = ("gcc", "libasan.so") if b"libasan.so" in program else ("clang", clang)
    found = subprocess.run([compiler, f"-print-file-name={runtime}"], capture_output=True, text=True, check=True).stdout.strip()
    # nginx leaves to the system what lives as long as it does.
    return {"LD_PRELOAD": os.path.realpath(found), "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}


SANITIZER = sanitizer()


def an_hour(text):
    """Where seconds of an hour have passed since, the whole hour: a slow machine answers later."""
    return re.sub(r"\b359\d\b", "3600", text)


# ---- what stands behind nginx ----


class Backend(http.server.ThreadingHTTPServer):
    """Notes what it is asked, and answers 200 "ok", or what `answers` holds for the path: (status, headers, body)."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen = []
        self.answers = {}
        self.place = "{}:{}".format(*self.server_address)
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()

    def paths(self):
        """What was asked since the last call."""
        seen, self.seen = self.seen, []
        return [request.path for request in seen]

    def handle_error(self, request, client_address):
        """Clients that go away are part of the tests."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.respond
        raise AttributeError(name)

    def respond(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append(Request(self.command, self.path, self.headers, body))
        status, headers, body = self.server.answers.get(self.path.split("?")[0], (200, {}, b"ok"))
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


# ---- nginx ----


class Gateway:
    """with Gateway(http=TEXT, server=TEXT, rules=TEXT) as g: g.ask("/")

    http, server, main: what stands in http{}, in its one server{} and outside of both. In them @FOLDER@ is the gateway's folder,
    @BACKEND@ the backend's host:port, @PORT@ nginx's own, @H2@ a second port of it, on which it speaks only HTTP/2; `names` adds
    to these.
    rules: the text of @FOLDER@/rules.yaml, or texts by name ({"api": TEXT} is @FOLDER@/api.yaml).
    user: whom the workers run as; that one owns the folder then."""

    def __init__(self, http=ZONE, server="", rules="rules: []", workers=1, user=None, main="", backend=True, names=None):
        self.texts = {"http": http, "server": server, "main": main}
        self.rules = rules if isinstance(rules, dict) else {"rules": rules}
        self.worker_count = workers
        self.user = user
        self.has_backend = backend
        self.backend = None
        self.names = dict(names or {})
        self.process = None

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            # Only root reaches what $TMPDIR may name.
            place = "/tmp" if self.user else None
            self.folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway", dir=place))
            self.sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=511)) for _ in range(2)]
            for s in self.sockets:
                s.setblocking(False)  # of two workers that see one connection, one would wait for another for ever
            self.port, self.h2_port = (s.getsockname()[1] for s in self.sockets)
            self.names.update(FOLDER=self.folder, PORT=str(self.port), H2=str(self.h2_port))
            if self.has_backend:
                self.backend = stack.enter_context(Backend())
                self.names["BACKEND"] = self.backend.place
            if self.user and os.geteuid() == 0:
                os.chmod(self.folder, 0o755)
                os.chown(self.folder, pwd.getpwnam(self.user).pw_uid, -1)
            for name, text in self.rules.items():
                self.write_rules(text, name)
            stack.callback(self.end)
            self.start()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, kind, *_):
        with self.stack:
            if kind is None:
                self.stop()
            else:
                print("".join("# " + line + "\n" for line in self.errors().splitlines()[-100:]), end="", flush=True)

    # ---- its files ----

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        if not os.path.exists(self.path(name)):
            return ""
        with open(self.path(name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def write(self, name, text):
        """At once: who reads it sees the old text or the new one."""
        with open(self.path(name) + ".new", "w", encoding="utf-8") as out:
            out.write(self.fill(text))
        os.rename(self.path(name) + ".new", self.path(name))

    def write_rules(self, text, name="rules"):
        self.write(f"{name}.yaml", text)

    def errors(self):
        """The error log, and what came before it or past it."""
        return self.read("errors") + self.read("stderr")

    def fill(self, text):
        return re.sub(r"@([A-Z0-9]+)@", lambda found: self.names[found[1]], text)

    def configuration(self, http, server, main):
        temporary = "".join(f"{kind}_temp_path @FOLDER@/{kind};\n" for kind in TEMPORARY)
        return self.fill(
            f"load_module {MODULE};\n"
            f"{self.user_line()}\n"
            "daemon off;\n"
            f"worker_processes {self.worker_count};\n"
            "pid @FOLDER@/pid;\n"
            "error_log @FOLDER@/errors notice;\n"
            f"{main}\n"
            "events { worker_connections 1024; }\n"
            "http {\n"
            f"{'' if 'access_log' in http else 'access_log off;'}\n"
            f"{temporary}{http}\n"
            "server {\n"
            "listen 127.0.0.1:@PORT@;\n"
            "listen 127.0.0.1:@H2@ http2;\n"
            f"{server}\n"
            "}\n}\n"
        )

    def user_line(self):
        if os.geteuid() != 0:
            return ""
        user = pwd.getpwnam(self.user or "root")
        return f"user {user.pw_name} {grp.getgrgid(user.pw_gid).gr_name};"

    def configure(self, **texts):
        """Another http, server or main, from the next reload or restart on."""
        self.texts.update(texts)
        self.write("nginx.conf", self.configuration(**self.texts))

    def command(self, conf, *words):
        return [NGINX, "-p", self.folder, "-e", self.path("errors"), "-c", self.path(conf), *words]

    def test_config(self, http=None, server=None, main=None):
        """(exit status, what it says) of `nginx -t`; what is left out is as in the running one."""
        given = {"http": http, "server": server, "main": main}
        texts = {**self.texts, **{name: text for name, text in given.items() if text is not None}}
        self.write("tried.conf", self.configuration(**texts))
        done = subprocess.run(self.command("tried.conf", "-t", "-q"), env={**ENVIRONMENT, **SANITIZER}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        expect(FAULTS.findall(done.stderr), [], done.stderr)
        return done.returncode, done.stderr

    # ---- its processes ----

    def start(self):
        """It inherits its sockets, so that nobody takes the ports before it, or while it is restarted."""
        self.configure()
        numbers = [s.fileno() for s in self.sockets]
        environment = {**ENVIRONMENT, **SANITIZER, "NGINX": "".join(f"{number};" for number in numbers)}
        with open(self.path("stderr"), "ab") as stderr:
            self.process = subprocess.Popen(self.command("nginx.conf"), env=environment, pass_fds=numbers, stdin=subprocess.DEVNULL,
                                            stdout=stderr, stderr=stderr)
        until(self.is_up, "nginx is up")

    def is_up(self):
        if self.process.poll() is not None:
            raise AssertionError(f"nginx ended with {self.process.returncode}:\n{self.errors()}")
        return len(self.workers()) == self.worker_count

    def workers(self):
        """The processes that take requests; not those that are on their way out."""
        found = []
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as children:
                found = [int(pid) for pid in children.read().split()]
        return [pid for pid in found if self.title(pid) == "nginx: worker process"]

    @staticmethod
    def title(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return file.read().rstrip(b"\0 ").decode()
        return ""

    def reload(self):
        """Until new workers have taken over. A configuration that is no good raises, and the old ones stay."""
        before, said = set(self.workers()), len(self.read("errors"))
        self.process.send_signal(signal.SIGHUP)

        def taken_over():
            refused = re.search(r".*\[emerg\].*", self.read("errors")[said:])
            if refused:
                raise AssertionError(f"not reloaded: {refused[0]}")
            return self.is_up() and not before & set(self.workers())

        until(taken_over, "new workers")

    def stop(self):
        """Has to end well, with nothing in its logs that tells of a fault."""
        self.process.send_signal(signal.SIGQUIT)
        expect(self.process.wait(DEADLINE_S), 0, "exit status:\n" + self.errors())
        found = FAULTS.search(self.errors())
        if found:
            raise AssertionError(f"{found[0]}:\n{self.errors()}")

    def restart(self):
        self.stop()
        self.start()

    def end(self):
        """In any case. Workers stay when their master dies before them."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(DEADLINE_S)
        if self.process and self.process.returncode != 0:
            for pid in self.users():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()

    def users(self):
        """The processes that have a file of the folder open."""
        found = set()
        for number in glob.glob("/proc/[0-9]*/fd/*"):
            with contextlib.suppress(OSError):
                if os.readlink(number).startswith(self.folder + "/"):
                    found.add(int(number.split("/")[2]))
        return found - {os.getpid()}

    # ---- clients ----

    def connection(self, client="127.0.0.1"):
        """For several requests, one after the other; to be closed."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S, source_address=(client, 0))

    @contextlib.contextmanager
    def connection_to_each(self):
        """An open connection to each worker. While the others are stopped, there is only one that can accept it."""
        pids = self.workers()
        with contextlib.ExitStack() as stack:
            result = [stack.enter_context(contextlib.closing(self.connection())) for _ in pids]
            for pid, connection in zip(pids, result):
                others = [other for other in pids if other != pid]
                try:
                    for other in others:
                        os.kill(other, signal.SIGSTOP)
                        until(lambda: self.state(other) == "T", "a worker is stopped")
                    self.ask("/", "OPTIONS", over=connection)
                finally:
                    for other in others:
                        os.kill(other, signal.SIGCONT)
            yield result

    @staticmethod
    def state(pid):
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(") ")[2][0]

    def ask(self, path="/", method="GET", body=None, headers=None, client="127.0.0.1", over=None):
        """One request, over a connection of its own or an open one. Headers: a mapping, or pairs."""
        connection = over or self.connection(client)
        pairs = list(headers.items()) if isinstance(headers, dict) else list(headers or [])
        try:
            has_host = any(name.lower() == "host" for name, _ in pairs)
            connection.putrequest(method, path, skip_host=has_host, skip_accept_encoding=True)
            if body is not None:
                body = body.encode() if isinstance(body, str) else body
                connection.putheader("Content-Length", str(len(body)))
            for name, value in pairs:
                connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            if not over:
                connection.close()

    def statuses(self, count, *request, **more):
        """Of the same request, so many times."""
        return [self.ask(*request, **more).status for _ in range(count)]

    def raw(self, data, client="127.0.0.1", end=False):
        """All that nginx says to these bytes until it closes. end: nothing more will come, as one that goes away."""
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE_S, source_address=(client, 0)) as s:
            parts = []
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                s.sendall(data)
                if end:
                    s.shutdown(socket.SHUT_WR)
                while part := s.recv(65536):
                    parts.append(part)
            return b"".join(parts)
