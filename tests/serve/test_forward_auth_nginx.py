"""Forward auth with a real nginx, and the configuration that docs/forward-auth.md shows."""

import contextlib
import http.client
import http.server
import os
import re
import socket
import subprocess
import tempfile
import threading
import time

from support import DEADLINE_S, ENVIRONMENT, ROOT, an_hour_since, expect, free_port, until
from support.service import Answer, Service

RULES = """
settings: { trusted_proxies: [127.0.0.1] }
rules:
  - id: client
    match: { path: "/api/*" }
    by: [ip]
    limits: [ { name: few, algorithm: fixed_window, max: 2, per: 1h } ]
  - id: orders
    match: { method: POST, host: shop.example, path: /orders }
    limits: [ { name: once, algorithm: fixed_window, max: 1, per: 1h } ]
  - id: user
    match: { path: /user }
    by: [user]
    limits: [ { name: once, algorithm: fixed_window, max: 1, per: 1h } ]
  - id: plan
    match: { path: /plan }
    by: ["header:X-Plan"]
    limits: [ { name: five, algorithm: fixed_window, max: 5, per: 1h } ]
"""
# Requests pass while weir is away, as the page says.
OPEN = ("internal;", "internal;\n        error_page 500 502 504 = @away;"), (
    "    # auth_request knows", "    location @away {\n        return 204;\n    }\n\n    # auth_request knows")

# Where weir is there it is not to be taken for away on a machine that stands still.
PATIENT = tuple((f"proxy_{kind}_timeout 1s;", f"proxy_{kind}_timeout {DEADLINE_S}s;") for kind in ("connect", "send", "read"))


# A header of the client goes to weir, and the same to the application.
BY_NAME = tuple((f"{words}\n        #proxy_set_header X-Plan", f"{words}\n        proxy_set_header X-Plan")
                for words in ("a client may send one twice.", "each by its name."))


class Application(http.server.BaseHTTPRequestHandler):
    """What nginx protects: notes what comes, answers 403 for /forbidden."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, body))
        self.server.plans.append(self.headers.get_all("X-Plan"))
        self.send_response(403 if self.path == "/forbidden" else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    do_POST = do_GET

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def application():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Application)
    server.daemon_threads = True
    server.seen = []
    server.plans = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def example(name):
    with open(os.path.join(ROOT, "examples", "gateways", name), encoding="utf-8") as file:
        return file.read()


def configuration(folder, port, weir, app, changes):
    text = example("nginx.conf")
    places = (("listen 8000;", f"listen 127.0.0.1:{port};"), ("127.0.0.1:8080", weir), ("127.0.0.1:3000", app))
    for old, new in places + tuple(changes):
        expect(text.count(old), 1, f"{old} in nginx.conf")
        text = text.replace(old, new)
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    return (
        f"{'user root;' if os.geteuid() == 0 else ''}\ndaemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log {folder}/errors;\nevents {{ }}\n"
        f"http {{\naccess_log off;\n{temporary}{text}}}\n"
    )


class Nginx:
    """An nginx of the example in front of an application. It inherits its socket, so that nobody takes the port before it."""

    def __init__(self, weir, app, changes=()):
        self.weir, self.app, self.changes = weir, app, changes

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            path = os.path.join(self.folder.name, "nginx.conf")
            with open(path, "w", encoding="utf-8") as file:
                file.write(configuration(self.folder.name, self.port, self.weir, self.app, self.changes))
            words = ["nginx", "-p", self.folder.name, "-e", "errors", "-c", path]
            environment = {**ENVIRONMENT, "NGINX": f"{listener.fileno()};"}
            environment["PATH"] = environment.get("PATH", "") + ":/usr/sbin"
            self.process = subprocess.Popen(words, env=environment, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, kind, *_):
        self.process.terminate()
        self.process.wait(DEADLINE_S)
        if kind is not None:
            with open(os.path.join(self.folder.name, "errors"), encoding="utf-8") as file:
                print("".join("# " + line for line in file), flush=True)
        self.folder.cleanup()

    def ask(self, path, method="GET", body=None, client="127.0.0.9", host="shop.example", headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S, source_address=(client, 0))
        with contextlib.closing(connection):
            connection.request(method, path, body, {"Host": host, **(headers or {})})
            return Answer(connection.getresponse())


    def raw(self, path, *headers):
        """The status. Headers go out as they are."""
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE_S) as line:
            line.sendall("\r\n".join([f"GET {path} HTTP/1.1", "Host: h", "Connection: close", *headers, "", ""]).encode())
            response = http.client.HTTPResponse(line)
            response.begin()
            return response.status


@contextlib.contextmanager
def all_of_it(*flags, changes=()):
    with Service(*flags, rules=RULES) as s, application() as app:
        with Nginx("{}:{}".format(*s.http), "{}:{}".format(*app.server_address), PATIENT + changes) as nginx:
            yield s, app, nginx


def test_passes_and_refuses():
    """Passes, and refuses with 429 and a wait."""
    with all_of_it() as (_, app, nginx):
        begin = time.monotonic()
        answer = nginx.ask("/api/a?b=c")
        expect((answer.status, answer.body), (200, b"ok"), "first")
        expect(answer.headers["RateLimit"], '"client/few";r=1;t=3600', "what is left")
        expect(answer.headers["RateLimit-Policy"], '"client/few";q=2;w=3600', "of what")
        expect(nginx.ask("/api/b").status, 200, "second")
        answer = nginx.ask("/api/a")
        expect((answer.status, answer.body), (429, b"Too many requests\n"), "third")
        wait = [an_hour_since(begin, answer.headers[name]) for name in ("Retry-After", "RateLimit")]
        expect(wait, ["3600", '"client/few";r=0;t=3600'], "wait")
        expect([path for _, path, _ in app.seen], ["/api/a?b=c", "/api/b"], "what the application saw")
        expect(nginx.ask("/api/a", client="127.0.0.10").status, 200, "another client")
        expect([nginx.ask("/other").status for _ in range(5)], [200] * 5, "no rule")


def test_methods_hosts_and_bodies():
    with all_of_it() as (_, app, nginx):
        expect([nginx.ask("/orders").status for _ in range(3)], [200] * 3, "GET")
        expect(nginx.ask("/orders", "POST", "x", host="other.example").status, 200, "another host")
        expect(nginx.ask("/orders", "POST", "y" * 20000).status, 200, "first")
        expect(nginx.ask("/orders", "POST", "z").status, 429, "second")
        expect([body for method, _, body in app.seen if method == "POST"], [b"x", b"y" * 20000], "bodies")


def test_what_clients_forge():
    forged = {
        "X-Forwarded-For": "192.0.2.1",
        "X-Forwarded-Uri": "/free",
        "X-Original-URI": "/free",
        "X-Forwarded-Method": "OPTIONS",
        "X-Original-Method": "OPTIONS",
        "X-Forwarded-Host": "free.example",
        "X-User": "u1",
    }
    with all_of_it("--user-header", "X-User") as (_, _, nginx):
        for name, value in forged.items():
            expect(nginx.ask("/user", headers={name: value}).status, 200, name)
        client = [nginx.ask("/api/a", headers=forged).status for _ in range(3)]
        expect(client, [200, 200, 429], "by address")
        expect([nginx.ask("/orders", "POST", "x", headers=forged).status for _ in range(2)], [200, 429], "by host")
        expect([nginx.ask("/user", headers=forged).status for _ in range(3)], [200] * 3, "nobody is u1")
        expect(nginx.ask("/_weir").status, 404, "the question itself is internal")


def test_the_applications_403():
    """A 403 of the application stays one."""
    with all_of_it() as (_, _, nginx):
        answer = nginx.ask("/forbidden")
        expect((answer.status, answer.body), (403, b"ok"), "is not weir's")


def test_users_of_nginx():
    """Users that nginx knows. auth_basic comes first: who gives a wrong password is charged to nobody."""
    with tempfile.NamedTemporaryFile("w", encoding="ascii") as users:
        users.write("ann:{PLAIN}secret\n")
        users.flush()
        changes = (("#proxy_set_header X-User", "proxy_set_header X-User"),
                   ("auth_request /_weir;", f'auth_request /_weir;\n auth_basic shop;\n auth_basic_user_file {users.name};'))
        with all_of_it("--user-header", "X-User", changes=changes) as (_, _, nginx):
            good, bad = {"Authorization": "Basic YW5uOnNlY3JldA=="}, {"Authorization": "Basic YW5uOndyb25n"}
            expect([nginx.ask("/user", headers=bad).status for _ in range(3)], [401] * 3, "a wrong password")
            expect([nginx.ask("/user", headers=good).status for _ in range(2)], [200, 429], "the right one")


def test_through_a_unix_socket():
    """Every process that may open it is trusted, whatever trusted_proxies says."""
    with tempfile.TemporaryDirectory() as folder, application() as app:
        place = "unix:" + os.path.join(folder, "weir")
        with Service("--http", place, rules=RULES.replace("[127.0.0.1]", "[]")):
            with Nginx(place, "{}:{}".format(*app.server_address), PATIENT) as nginx:
                expect([nginx.ask("/api/a").status for _ in range(3)], [200, 200, 429], "decided")


def test_while_weir_is_away():
    """Nothing passes while weir is away."""
    with all_of_it() as (s, app, nginx):
        expect(nginx.ask("/api/a").status, 200, "before")
        s.kill()
        expect(nginx.ask("/api/a").status, 500, "away")
        expect(len(app.seen), 1, "what the application saw")


def test_open_while_weir_is_away():
    """Or everything, if that is wished."""
    with all_of_it("--http", f"127.0.0.1:{free_port()}", changes=OPEN) as (s, _, nginx):
        expect([nginx.ask("/api/a").status for _ in range(3)], [200, 200, 429], "decided")
        s.kill()
        expect([nginx.ask("/api/a").status for _ in range(3)], [200] * 3, "away")
        s.start()
        until(lambda: nginx.ask("/api/a").status == 429, "back, and nothing was forgotten")


def sizes():
    """Headers of a request, from few to more than nginx takes: together, one of them, and a long URI."""
    for count in (1, 80):
        for total in range(1024, 33 * 1024, 1024):
            yield "/api/a", {f"X-{i}": "a" * (total // count) for i in range(count)}
    for length in range(512, 33 * 1024, 512):
        yield "/api/" + "a" * length, {}
        yield "/api/a", {"X-Plan": "a" * length}
        yield "/api/" + "a" * length, {"X-Plan": "a" * length}


def test_large_requests():
    """No size gets a request past a limit, not even where requests pass while weir is away. nginx takes lines of 8 KiB unless it
    is told otherwise; those that are larger than what weir takes are an error of weir's to it, which is no 502."""
    larger = ("listen ", "large_client_header_buffers 4 32k;\n    listen ")
    for changes, worst in (((), 499), (BY_NAME, 499), (BY_NAME + (larger,), 500)):
        with all_of_it(changes=OPEN + changes) as (_, app, nginx):
            expect([nginx.ask("/api/a").status for _ in range(3)], [200, 200, 429], "used up")
            for path, headers in sizes():
                status = nginx.ask(path, headers=headers).status
                expect(400 <= status <= worst, True, f"{status} for {len(path)} and {sum(map(len, headers.values()))} bytes")
            expect(len(app.seen), 2, "what the application saw")


def test_spellings_of_a_header():
    """nginx hands on tabs at the ends of a value, and the application drops them."""
    blanks = ["", " ", "\t", "\t\t", " \t", "\t ", "\t\t\t"]
    with all_of_it(changes=BY_NAME) as (_, app, nginx):
        found = [nginx.raw("/plan", f"X-Plan:{before}gold{after}") for before in blanks * 4 for after in blanks]
        expect(found, [200] * 5 + [429] * (len(found) - 5), "blanks and tabs")
        expect({plan[0].strip() for plan in app.plans}, {"gold"}, "to the application they are one")


def test_a_header_twice():
    """weir sees what the application sees: what this nginx makes of the header, or all of it where everything is passed on."""
    everything = (("proxy_pass_request_headers off;", ""),)
    with all_of_it(changes=BY_NAME) as (_, app, nginx):
        for i in range(20):
            nginx.raw("/plan", f"X-Plan: junk{i}", "X-Plan: real")
            nginx.raw("/plan", "X-Plan: real", f"X-Plan: junk{i}")
        expect({len(plan) for plan in app.plans}, {1}, "values that the application gets")
        most = max(app.plans.count(plan) for plan in app.plans)
        expect(most <= 5, True, f"{most} of one value passed")
    with all_of_it(changes=everything) as (_, app, nginx):
        expect([nginx.raw("/plan", f"X-Plan: junk{i}", "X-Plan: real") for i in range(20)], [429] * 20, "all headers: twice")
        expect([nginx.raw("/plan", "X-Plan: real") for _ in range(6)], [200] * 5 + [429], "nothing was charged")
        expect(app.plans, [["real"]] * 5, "what the application saw")


def accepted(s):
    text = s.steer("GET", "/metrics").body.decode()
    return int(re.search(r"^weir_connections_accepted_total (\d+)$", text, re.MULTILINE)[1])


def test_one_connection():
    """A refusal does not cost nginx its connection to weir."""
    with all_of_it() as (s, _, nginx):
        before = accepted(s)
        for _ in range(30):
            nginx.ask("/api/a")
        expect(accepted(s) - before, 2, "connections: one for 30 questions, one for this")


def test_no_answer():
    """A weir that does not answer is away. Somebody accepts, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent, application() as app:
        place = "{}:{}".format(*silent.getsockname())
        with Nginx(place, "{}:{}".format(*app.server_address)) as nginx:
            expect(nginx.ask("/api/a").status, 500, "closed")
        with Nginx(place, "{}:{}".format(*app.server_address), OPEN) as nginx:
            expect(nginx.ask("/api/a").status, 200, "open")


def test_the_page_shows_what_is_tested():
    with open(os.path.join(ROOT, "docs", "forward-auth.md"), encoding="utf-8") as file:
        page = file.read()
    shown = re.findall(r"```\w*\n(.*?)```", page, re.DOTALL)
    for name in os.listdir(os.path.join(ROOT, "examples", "gateways")):
        if not name.startswith("nginx-"):  # tests/nginx/page.py has those of the module
            expect(example(name) in shown, True, f"docs/forward-auth.md shows {name}")
    for old, new in OPEN:
        added = new.replace(old, "").strip()
        expect(any(" ".join(added.split()) in " ".join(block.split()) for block in shown), True, f"the page shows {added}")
