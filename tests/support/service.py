"""A running `weir serve`, for tests: on free ports of loopback, in a folder of its own, gone at the end."""

import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile

from support import DEADLINE_S, ENVIRONMENT, WEIR, expect, until

FRONTS = ("http", "resp", "admin")
OPTIONAL_FRONTS = ("grpc",)  # off unless a flag asks for it
# A thread of the service touches all pages of a new cells file; with the default size that is most of what a start costs.
CELLS_KEYS = 65536

OCR = """
settings: { trusted_proxies: [127.0.0.0/8, "::1"] }
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits:
      - { name: day, algorithm: fixed_window, max: 5, per: 24h }
      - { name: hour, algorithm: fixed_window, max: 3, per: 1h }
"""


def place(where):
    """("127.0.0.1", 8080), or the path of a unix socket."""
    if where.startswith("unix:"):
        return where[5:]
    host, port = where.rsplit(":", 1)
    return host.strip("[]"), int(port)


class Answer:
    """What came over HTTP."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self):
        return json.loads(self.body)


class Service:
    """with Service(*flags, rules=TEXT) as s: s.http, s.resp, s.admin (and s.grpc) are where it listens, s.data its folder, s.token the
    admin token. rules: the text of a rules file; None: what `weir serve` begins with; False: given in the flags."""

    def __init__(self, *flags, rules=OCR, environment=None):
        self.flags = [str(flag) for flag in flags]
        self.rules = rules
        self.environment = environment or {}
        self.process = None

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.data = os.path.join(self.folder.name, "data")
        self.log = os.path.join(self.folder.name, "log")
        self.rules_file = os.path.join(self.folder.name, "rules.yaml")
        if self.rules:
            self.write_rules(self.rules)
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, *details):
        if self.process and self.process.poll() is None:
            if kind is None:
                self.stop()
            else:
                self.kill()
        if kind is not None:
            print("".join("# " + line for line in self.lines()), flush=True)
        self.folder.cleanup()

    def write_rules(self, text):
        with open(self.rules_file + ".new", "w", encoding="utf-8") as out:
            out.write(text)
        os.rename(self.rules_file + ".new", self.rules_file)

    def command(self):
        words = [WEIR, "serve", "--data", self.data, "--log", "json"]
        if self.rules:
            words += ["--rules", self.rules_file]
        if not {"--cells", "--cells-keys", "--cells-bytes", "--config"}.intersection(self.flags):
            words += ["--cells-keys", str(CELLS_KEYS)]
        for front in FRONTS:
            if f"--{front}" not in self.flags:
                words += [f"--{front}", "127.0.0.1:0"]
        return words + self.flags

    def start(self):
        """Until everything listens."""
        begin = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**ENVIRONMENT, **self.environment},
            )
        until(lambda: self.listening(begin), "the service listens")
        token = os.path.join(self.data, "admin-token")
        if self.admin and os.path.exists(token):
            with open(token, encoding="ascii") as file:
                self.token = file.read().strip()

    def listening(self, begin):
        if self.process.poll() is not None:
            raise AssertionError(f"weir serve ended with {self.process.returncode}: {''.join(self.lines(begin))}")
        found = {}
        for entry in self.events("listen", begin):
            front, where = entry["message"].split(" on ", 1)
            found[front] = place(where)
        wanted = []
        for front in FRONTS + tuple(front for front in OPTIONAL_FRONTS if f"--{front}" in self.flags):
            off = f"--{front}" in self.flags and self.flags[self.flags.index(f"--{front}") + 1] == "off"
            if not off:
                wanted.append(front)
        if set(wanted) - set(found):
            return False
        self.http, self.resp, self.admin = (found.get(front) for front in FRONTS)
        self.grpc = found.get("grpc")
        return True

    def lines(self, begin=0):
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8") as log:
            log.seek(begin)
            return log.readlines()

    def events(self, event, begin=0):
        """Entries of the log of one kind."""
        result = []
        for line in self.lines(begin):
            if line.startswith("{") and line.endswith("}\n"):
                entry = json.loads(line)
                if entry["event"] == event:
                    result.append(entry)
        return result

    def stop(self):
        """SIGTERM; it has to end well."""
        self.process.send_signal(signal.SIGTERM)
        expect(self.process.wait(DEADLINE_S), 0, "exit status after SIGTERM:\n" + "".join(self.lines()))

    def kill(self):
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def restart(self):
        self.stop()
        self.start()

    def allocated(self):
        """Bytes. The pages of the cells file are not among them: a thread touches all of them soon after the start."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:")) * 1024

    # ---- clients ----

    def socket(self, where):
        """A connection; `where` is s.http, s.resp or s.admin."""
        if isinstance(where, tuple):
            return socket.create_connection(where, DEADLINE_S)
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(DEADLINE_S)
        s.connect(where)
        return s

    def ask(self, where, method, path, body=None, headers=None):
        """One HTTP request."""
        connection = http.client.HTTPConnection("localhost", timeout=DEADLINE_S)
        connection.sock = self.socket(where)
        try:
            connection.putrequest(method, path, skip_host=any(name.lower() == "host" for name in headers or {}))
            if body is not None:
                body = body.encode() if isinstance(body, str) else body
                connection.putheader("Content-Length", str(len(body)))
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            connection.endheaders(body)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def check(self, **request):
        """A decision over HTTP."""
        return self.ask(self.http, "POST", "/v1/check", json.dumps(request), {"Content-Type": "application/json"})

    def steer(self, method, path, document=None, headers=None):
        """A call of the admin API, with the token."""
        headers = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        body = None
        if document is not None:
            body = document if isinstance(document, (str, bytes)) else json.dumps(document)
            headers.setdefault("Content-Type", "application/json")
        return self.ask(self.admin, method, path, body, headers)
