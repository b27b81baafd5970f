"""TLS on every listener: real clients, certificates that are refused, reloads, and peers that stand still."""

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time

import grpc
import pytest
import redis

from support import BUILD, expect, has, until
from support import envoy
from support.certificates import Authority
from support.service import Service

JSON = {"Content-Type": "application/json"}
CHECK = json.dumps({"event": "ocr", "key": "u"})


@pytest.fixture(name="ca", scope="module")
def authority():
    with Authority() as ca:
        ca.server = ca.issue("server")
        yield ca


def serve(ca, *flags, **options):
    certificate, key = ca.server
    return Service("--certificate", certificate, "--certificate-key", key, *flags, **options)


def trust(ca, client=None):
    context = ssl.create_default_context(cafile=ca.path)
    if client:
        context.load_cert_chain(*client)
    return context


def wrapped(ca, where, client=None, context=None):
    plain = socket.create_connection(where, timeout=30)
    return (context or trust(ca, client)).wrap_socket(plain, server_hostname="localhost")


def ask(ca, where, method, path, body=None, headers=None, client=None):
    connection = http.client.HTTPSConnection("localhost", where[1], context=trust(ca, client), timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()


def steer(ca, s, method, path, client=None):
    with open(os.path.join(s.data, "admin-token"), encoding="ascii") as file:
        return ask(ca, s.admin, method, path, None, {"Authorization": f"Bearer {file.read().strip()}"}, client)


def redis_client(ca, s, client=None):
    certificate, key = client or (None, None)
    return redis.Redis("localhost", s.resp[1], ssl=True, ssl_ca_certs=ca.path, ssl_certfile=certificate, ssl_keyfile=key, socket_timeout=30)


def envoy_code(ca, s, client=None):
    with open(ca.path, "rb") as file:
        root = file.read()
    chain, key = (open(path, "rb").read() for path in client) if client else (None, None)
    credentials = grpc.ssl_channel_credentials(root, key, chain)
    with grpc.secure_channel(f"localhost:{s.grpc[1]}", credentials) as channel:
        call = channel.unary_unary(envoy.RATE_LIMIT, envoy.RateLimitRequest.SerializeToString, envoy.RateLimitResponse.FromString)
        try:
            return call(envoy.request("d", envoy.descriptor(("a", "b"))), timeout=30).overall_code
        except grpc.RpcError as error:
            return error.code().name


def test_every_listener(ca):
    with serve(ca, "--grpc", "127.0.0.1:0") as s:
        expect(ask(ca, s.http, "POST", "/v1/check", CHECK, JSON)[0], 200)
        expect(json.loads(steer(ca, s, "GET", "/v1/rules")[1])["count"], 1)
        with redis_client(ca, s) as client:
            expect(client.execute_command("WEIR.CHECK", "event", "ocr", "key", "u")[0], 1)
            with client.pipeline(transaction=False) as pipeline:
                for _ in range(2000):
                    pipeline.execute_command("ECHO", "x" * 500)
                expect(pipeline.execute(), [b"x" * 500] * 2000)
        expect(envoy_code(ca, s), 1)
        # Longer than a record.
        expect(len(steer(ca, s, "GET", "/v1/openapi.json")[1]) > 100000, True)


def test_answers_before_the_request_is_over(ca):
    """The listener closes its end while the client is still sending: the answer arrives all the same."""
    with serve(ca) as s:
        for _ in range(60):
            expect(ask(ca, s.http, "POST", "/v1/check", "x" * 2000000, JSON)[0], 413)


def test_versions_and_protocols(ca):
    with serve(ca, "--grpc", "127.0.0.1:0") as s:
        for where, offered, chosen in ((s.http, ["h2", "http/1.1"], "http/1.1"), (s.grpc, ["h2", "http/1.1"], "h2"), (s.resp, ["x"], None), (s.http, ["x"], None)):
            context = trust(ca)
            context.set_alpn_protocols(offered)
            with wrapped(ca, where, context=context) as connection:
                expect(connection.selected_alpn_protocol(), chosen)
        for version, right in ((ssl.TLSVersion.TLSv1_3, True), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_1, False)):
            context = trust(ca)
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = version
            if right:
                with wrapped(ca, s.http, context=context) as connection:
                    expect(connection.version(), version.name.replace("_", "."))
            else:
                with pytest.raises(ssl.SSLError):
                    wrapped(ca, s.http, context=context)


def test_which_listeners(ca, folder):
    with serve(ca, "--resp-tls", "no", "--http", f"unix:{folder}/http") as s:
        with redis.Redis("localhost", s.resp[1]) as client:
            expect(client.ping(), True)
        expect(s.check(event="ocr", key="u").status, 200, "a unix socket")
        expect(steer(ca, s, "GET", "/v1/rules")[0], 200)


def test_clients_without_tls(ca):
    """They are not served, whatever they send, and the others are."""
    with serve(ca) as s:
        for where in (s.http, s.resp, s.admin):
            for text in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"*1\r\n$4\r\nPING\r\n", b"\x16\x03\x01\x40\x00" + b"\xff" * 20000, bytes(range(256)) * 50, b"\0"):
                with socket.create_connection(where, timeout=30) as connection:
                    connection.sendall(text)
                    connection.shutdown(socket.SHUT_WR)
                    received = b""
                    with contextlib.suppress(ConnectionResetError):
                        while piece := connection.recv(65536):
                            received += piece
                    expect(b"HTTP/1.1" in received or b"PONG" in received, False, text[:20])
        has(" ".join(event["message"] for event in s.events("mistake")), "TLS, connection to the")
        expect(ask(ca, s.http, "POST", "/v1/check", CHECK, JSON)[0], 200)


def test_certificates_of_clients(ca):
    with Authority() as clients:
        right, wrong = clients.issue("client"), ca.issue("stranger")
        every = [word for front in ("http", "resp", "grpc", "admin") for word in (f"--{front}-tls", "clients")]
        with serve(ca, *every, "--client-authorities", clients.path, "--grpc", "127.0.0.1:0") as s:
            expect(ask(ca, s.http, "POST", "/v1/check", CHECK, JSON, client=right)[0], 200)
            expect(steer(ca, s, "GET", "/v1/rules", client=right)[0], 200)
            with redis_client(ca, s, right) as client:
                expect(client.ping(), True)
            expect(envoy_code(ca, s, right), 1)
            for given in (None, wrong):
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    ask(ca, s.http, "POST", "/v1/check", CHECK, JSON, client=given)
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    steer(ca, s, "GET", "/v1/rules", client=given)
                with pytest.raises(redis.ConnectionError), redis_client(ca, s, given) as client:
                    client.ping()
                expect(envoy_code(ca, s, given), "UNAVAILABLE")


def run(*words):
    """What a command prints; None: it failed."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout if done.returncode == 0 else None


def test_curl(ca):
    """As docs/service.md shows it, with and without a certificate of the client."""
    with Authority() as other:
        certificate, key = ca.issue("client")
        with serve(ca) as s:
            url = f"https://localhost:{s.http[1]}"
            check = ("curl", "-s", "-H", "Content-Type: application/json", "-d", CHECK, f"{url}/v1/check")
            expect(run("curl", "-s", "--cacert", ca.path, f"{url}/healthcheck"), "OK")
            has(run(*check, "--cacert", ca.path), '"allowed":true')
            expect(run(*check, "--cacert", other.path), None, "an unknown authority")
        with serve(ca, "--http-tls", "clients", "--client-authorities", ca.path) as s:
            url = f"https://localhost:{s.http[1]}/healthcheck"
            expect(run("curl", "-s", "--cacert", ca.path, "--cert", certificate, "--key", key, url), "OK")
            expect(run("curl", "-s", "--cacert", ca.path, url), None, "without a certificate")


def test_redis_cli(ca):
    with Authority() as other:
        certificate, key = ca.issue("client")
        words = ("redis-cli", "--raw", "-h", "localhost", "--tls")
        decide = ("WEIR.CHECK", "event", "ocr", "key", "cli")
        with serve(ca) as s:
            port = ("-p", str(s.resp[1]))
            expect(run(*words, *port, "--cacert", ca.path, "PING"), "PONG\n")
            expect(run(*words, *port, "--cacert", ca.path, *decide).split("\n")[:2], ["1", "ocr"])
            expect(run(*words, *port, "--cacert", other.path, "PING"), None, "an unknown authority")
        with serve(ca, "--resp-tls", "clients", "--client-authorities", ca.path) as s:
            port = ("-p", str(s.resp[1]))
            expect(run(*words, *port, "--cacert", ca.path, "--cert", certificate, "--key", key, "PING"), "PONG\n")
            expect(run(*words, *port, "--cacert", ca.path, "PING"), None, "without a certificate")


def serial(connection):
    return connection.getpeercert()["serialNumber"]


def test_a_reload_drops_no_connection(ca):
    with Authority() as own:
        path, key = own.issue("server")
        with Service("--certificate", path, "--certificate-key", key) as s:
            with wrapped(own, s.resp) as old:
                before = serial(old)
                own.issue("server")
                s.process.send_signal(signal.SIGHUP)
                until(lambda: s.events("reload"), "it is reloaded")

                def is_new():
                    with wrapped(own, s.resp) as fresh:
                        return serial(fresh) != before
                until(is_new, "new connections have the new one")
                old.sendall(b"PING\r\n")
                expect(old.recv(100), b"+PONG\r\n", "old ones stay")
                with open(path, "w", encoding="ascii") as file:
                    file.write("nothing\n")
                begin = os.path.getsize(s.log)
                s.process.send_signal(signal.SIGHUP)
                until(lambda: s.events("reload", begin), "it says so")
                has(s.events("reload", begin)[0]["message"], "nothing was changed", "certificate in", path)
                expect(is_new(), True)
                old.sendall(b"PING\r\n")
                expect(old.recv(100), b"+PONG\r\n")


def test_an_expired_certificate_is_told_of():
    """At the start and at each reload; /metrics says when it expires."""
    def until_s(s):
        text = s.steer("GET", "/metrics").body.decode()
        return [float(line.split()[1]) for line in text.splitlines() if line.startswith("weir_certificate_expiry_seconds ")]

    with Authority() as own:
        path, key = own.issue("server", days=-1)
        with Service("--certificate", path, "--certificate-key", key, "--admin-tls", "no") as s:
            has(until(lambda: s.events("certificate"), "it is logged")[0]["message"], "has expired", path)
            expect(-86400 - 600 < until_s(s)[0] - time.time() < -86400 + 600, True, until_s(s))
            own.issue("server", days=5)
            begin = os.path.getsize(s.log)
            s.process.send_signal(signal.SIGHUP)
            until(lambda: s.events("reload", begin), "it is reloaded")
            expect(s.events("certificate", begin), [], "nothing to tell")
            expect(5 * 86400 - 600 < until_s(s)[0] - time.time() <= 5 * 86400, True, until_s(s))
    with Service() as s:
        expect(until_s(s), [], "no certificate")


def test_handshakes_that_stand_still(ca):
    """They end after the time of a request, and keep nobody out meanwhile."""
    with serve(ca, "--request", "1s", "--connections", "20", "--threads", "1") as s:
        silent = [socket.create_connection(s.http, timeout=60) for _ in range(10)]
        for i, connection in enumerate(silent):
            connection.sendall(b"\x16\x03\x01\x02\x00\x01"[: i % 7])
        expect(ask(ca, s.http, "POST", "/v1/check", CHECK, JSON)[0], 200)
        for connection in silent:
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(1000):
                    pass
            connection.close()
        # More than there may be: the slow ones give way.
        slow = [socket.create_connection(s.http, timeout=60) for _ in range(40)]
        until(lambda: ask_once(ca, s) == 200, "there is room")
        for connection in slow:
            connection.close()


def ask_once(ca, s):
    try:
        return ask(ca, s.http, "POST", "/v1/check", CHECK, JSON)[0]
    except OSError:
        return 0


def test_a_trickle(ca):
    """Each byte of a handshake and of requests in a packet of its own."""
    with serve(ca) as s:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trust(ca).wrap_bio(incoming, outgoing, server_hostname="localhost")
        with socket.create_connection(s.resp, timeout=30) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def move():
                data = outgoing.read()
                for i in range(len(data)):
                    connection.sendall(data[i : i + 1])

            def more():
                move()
                incoming.write(connection.recv(7))
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    more()
            client.write(b"PING\r\nECHO x\r\nQUIT\r\n")
            move()
            received = b""
            while True:
                try:
                    piece = client.read(100)
                    if not piece:
                        break
                    received += piece
                except ssl.SSLWantReadError:
                    more()
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    break
            expect(received, b"+PONG\r\n$1\r\nx\r\n+OK\r\n")


def test_the_end_is_told(ca):
    """close_notify comes before the end, in both directions: a cut cannot look like an end."""
    with serve(ca) as s:
        with wrapped(ca, s.http) as connection:
            connection.sendall(b"GET /healthcheck HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            received = b""
            while piece := connection.recv(1000):  # without suppress_ragged_eofs a cut would look like this, too
                received += piece
            has(received.decode(), "200 OK", "OK")
        context = trust(ca)
        plain = socket.create_connection(s.http, timeout=30)
        with context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as connection:
            connection.sendall(b"GET /healthcheck HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while connection.recv(1000):
                pass
            plain = connection.unwrap()
            plain.close()


def test_live_events(ca):
    with serve(ca) as s:
        with open(os.path.join(s.data, "admin-token"), encoding="ascii") as file:
            token = file.read().strip()
        with wrapped(ca, s.admin) as connection:
            connection.sendall(f"GET /v1/live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            received = b""
            while received.count(b"data: {") < 3:
                received += connection.recv(65536)


def test_it_drains(ca):
    """What was asked before the end is answered, whole."""
    with serve(ca) as s:
        answers = []

        def work():
            with redis_client(ca, s) as client, contextlib.suppress(redis.ConnectionError):
                for _ in range(100000):
                    answers.append(client.echo("x" * 1000) == b"x" * 1000)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(answers) > 200, "they work")
        s.stop()
        for thread in threads:
            thread.join()
        expect(all(answers), True)


def test_a_peer_that_reads_nothing(ca):
    """It costs a bounded amount of memory, and its time is over like that of any other."""
    with serve(ca, "--request", "1s", "--pipeline-bytes", "64k") as s:
        descriptors = lambda: len(os.listdir(f"/proc/{s.process.pid}/fd"))
        steer(ca, s, "GET", "/v1/counts")  # the file of the counts is open
        with wrapped(ca, s.resp) as connection:
            expect(ping(connection), b"+PONG\r\n")
            before = descriptors()
        with wrapped(ca, s.resp) as connection:
            connection.settimeout(0.5)
            command = b"*2\r\n$4\r\nECHO\r\n$10000\r\n" + b"x" * 10000 + b"\r\n"
            end = time.monotonic() + 30
            with contextlib.suppress(OSError):
                while time.monotonic() < end:
                    with contextlib.suppress(TimeoutError):
                        connection.sendall(command * 20)
                raise AssertionError("it is still served")
            until(lambda: descriptors() <= before, lambda: f"{descriptors()} descriptors, {before} before")
        expect(ask(ca, s.http, "POST", "/v1/check", CHECK, JSON)[0], 200)


def top(s, address, ca):
    command = [os.path.join(BUILD, "weir"), "top", "--once", "--admin", f"{address}:{s.admin[1]}", "--data", s.data]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "SSL_CERT_FILE": ca.path})
    return done.returncode, done.stderr


def test_the_command(ca):
    with Authority() as other, serve(ca) as s:
        expect(top(s, "https://localhost", ca), (0, ""))
        expect(top(s, "https://127.0.0.1", ca), (0, ""))
        has(top(s, "https://localhost", other)[1], "TLS: unable to get local issuer certificate")
        expect(top(s, "localhost", ca)[0], 2)
    certificate, key = ca.issue("elsewhere", "DNS:elsewhere.test")
    with Service("--certificate", certificate, "--certificate-key", key) as s:
        has(top(s, "https://localhost", ca)[1], "TLS: hostname mismatch")
        has(top(s, "https://127.0.0.1", ca)[1], "TLS: IP address mismatch")
    with Service() as s:
        status, said = top(s, "https://localhost", ca)
        expect((status, "TLS: " in said or "reset by peer" in said), (2, True), said)


def ping(connection):
    connection.sendall(b"PING\r\n")
    return connection.recv(100)


def test_a_new_connection_replaces_one(ca):
    """At the maximum one idle connection gives way, and no other one."""
    with serve(ca, "--connections", "20", "--threads", "1") as s:
        with contextlib.ExitStack() as stack:
            # Each is used before the next is there: how long it was idle is known to a quarter of a second.
            idle = []
            for _ in range(20):
                idle.append(stack.enter_context(wrapped(ca, s.resp)))
                expect(ping(idle[-1]), b"+PONG\r\n")
            for _ in range(3):
                expect(ping(stack.enter_context(wrapped(ca, s.resp))), b"+PONG\r\n")

            def alive(connection):
                with contextlib.suppress(OSError):
                    return ping(connection) == b"+PONG\r\n"
                return False
            expect([alive(connection) for connection in idle], [False] * 3 + [True] * 17)


def test_clients_that_do_not_close(ca):
    """They have their answer, and keep nobody out; nor do they delay the end."""
    with serve(ca, "--request", "60s", "--drain", "60s") as s:
        with contextlib.ExitStack() as stack:
            for _ in range(300):
                connection = stack.enter_context(wrapped(ca, s.admin))
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                has(connection.recv(1000).decode(), "200 OK")
            expect(steer(ca, s, "GET", "/v1/rules")[0], 200)
            before = time.monotonic()
            s.stop()
            expect(time.monotonic() - before < 30, True, "the shutdown does not wait for them")


def test_half_closed(ca):
    """A client that will send nothing more is answered."""
    with serve(ca, "--connections-per-address", "3", "--threads", "1") as s:
        with socket.create_connection(s.http, timeout=30) as plain:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = trust(ca).wrap_bio(incoming, outgoing, server_hostname="localhost")
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    plain.sendall(outgoing.read())
                    incoming.write(plain.recv(65536))
            client.write(b"GET /healthcheck HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            plain.sendall(outgoing.read())
            plain.shutdown(socket.SHUT_WR)
            while piece := plain.recv(65536):
                incoming.write(piece)
            has(client.read(65536).decode(), "200 OK")


def cpu_s(s):
    with open(f"/proc/{s.process.pid}/stat", encoding="ascii") as file:
        words = file.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def states(s):
    """Yields the state of each thread: R if it runs or waits for a CPU, S if it sleeps."""
    for thread in os.listdir(f"/proc/{s.process.pid}/task"):
        with open(f"/proc/{s.process.pid}/task/{thread}/stat", encoding="ascii") as file:
            yield file.read().rpartition(")")[2].split()[0]


def test_nobody_makes_it_spin(ca):
    """Requests in a pipeline, and nothing is read: the listener ends with input that it has not read, and the relay has to wait."""
    # Saving the table takes CPU time, too.
    with serve(ca, "--request", "3s", "--threads", "1", "--save", "1h") as s:
        def is_blocked():
            # A thread that waits for a CPU does not work either, but it is not asleep.
            before = cpu_s(s)
            for _ in range(30):
                if any(state != "S" for state in states(s)):
                    return False
                time.sleep(0.01)
            return cpu_s(s) - before < 0.1
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                connection = stack.enter_context(wrapped(ca, s.http))
                connection.settimeout(0.1)
                with contextlib.suppress(OSError):
                    for _ in range(20):
                        connection.sendall(b"GET /healthcheck HTTP/1.1\r\nHost: x\r\n\r\n" * 20000)
            until(is_blocked, "all of them have to wait")
            before = cpu_s(s)
            time.sleep(8)
            expect(cpu_s(s) - before < 1.5, True, f"{cpu_s(s) - before} s of CPU while nothing happens")


def test_renegotiation_costs_nothing(ca):
    """Of TLS 1.2: the answers to these records are not kept without bound for a client that reads nothing."""
    with serve(ca, "--request", "60s") as s:
        def memory():
            with open(f"/proc/{s.process.pid}/status", encoding="ascii") as file:
                return int(next(line for line in file if line.startswith("RssAnon")).split()[1]) << 10
        context = trust(ca)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with wrapped(ca, s.resp, context=context) as connection:
            expect(ping(connection), b"+PONG\r\n")
            before = memory()
            connection.settimeout(0.5)
            with contextlib.suppress(OSError, AttributeError):
                for _ in range(100):
                    connection.sendall(b"PING\r\n" * 10000)
            expect(memory() - before < 32 << 20, True, f"{before} bytes before, {memory()} after")


def test_certificates_are_looked_at_each_time(ca):
    """A session is not resumed where clients need a certificate: it might have expired since."""
    with Authority() as clients:
        with serve(ca, "--resp-tls", "clients", "--client-authorities", clients.path) as s:
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context = trust(ca, clients.issue("client"))
                context.minimum_version = context.maximum_version = version
                with wrapped(ca, s.resp, context=context) as connection:
                    expect(ping(connection), b"+PONG\r\n")
                    session = connection.session
                with socket.create_connection(s.resp, timeout=30) as plain:
                    with context.wrap_socket(plain, server_hostname="localhost", session=session) as again:
                        expect((ping(again), again.session_reused), (b"+PONG\r\n", False))


@pytest.mark.parametrize("flags, why", [
    (("--certificate", "/nowhere.pem"), "cannot use the certificate in /nowhere.pem: No such file or directory"),
    (("--certificate-key", "/x"), "certificate-key needs the option certificate, too"),
    (("--client-authorities", "/x"), "client-authorities needs the option certificate, too"),
    (("--certificate", "SERVER", "--certificate-key", "KEY", "--resp-tls", "clients"), 'resp-tls is "clients", but client-authorities does not name'),
    (("--certificate", "SERVER"), "cannot use the key in"),
])
def test_mistakes(ca, folder, flags, why):
    words = {"SERVER": ca.server[0], "KEY": ca.server[1]}
    command = [os.path.join(BUILD, "weir"), "serve", "--data", os.path.join(folder, "data"), "--http", "127.0.0.1:0", "--resp", "off", "--admin", "off",
               *(words.get(flag, flag) for flag in flags)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    expect(done.returncode, 2, done.stderr)
    has(done.stderr, why)
