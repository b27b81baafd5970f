"""A redis-server of a test's own: on a free port of loopback, in a folder of its own, gone at the end."""

import os
import signal
import socket
import subprocess
import tempfile
import time

from support import DEADLINE_S, free_port
from support.wire import Wire


# For a service of a test that counts in a store which is up: on a busy machine an answer may take longer than the default deadline,
# and the host would count in place of the store.
PATIENT = ("--store-deadline", "10s")


class Store:
    """with Store() as store: store.address is what --counters takes. persistent: what it has answered it still knows after
    kill() and start(); else it begins empty. password: it wants one. Further options are those of redis-server."""

    def __init__(self, *options, persistent=False, password=None):
        self.options = ["--appendonly", "yes", "--appendfsync", "always"] if persistent else ["--appendonly", "no"]
        self.options += ["--save", "", *(str(option) for option in options)]
        self.password = password
        if password:
            self.options += ["--requirepass", password]
        self.process = None

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.log = os.path.join(self.folder.name, "log")
        try:
            for attempt in range(5):
                self.port = free_port()
                if self.start(attempt < 4):
                    break
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, *details):
        if self.process and self.process.poll() is None:
            self.kill()
        if kind is not None:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                print("".join("# redis: " + line for line in log), flush=True)
        self.folder.cleanup()

    # ---- life ----

    def command(self):
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder.name, *self.options]

    def start(self, may_fail=False):
        """Until it answers, on the same port as before. False: it has ended, for somebody else may have the port."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                if may_fail:
                    return False
                raise AssertionError(f"redis-server ended with {self.process.returncode}")
            try:
                if self.ask("PING") == "PONG":
                    return True
            except OSError:
                pass
            time.sleep(0.01)
        raise AssertionError("redis-server does not answer")

    def kill(self):
        """kill -9; also while it is paused."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def stop(self):
        self.process.terminate()
        self.process.wait(DEADLINE_S)

    def restart(self):
        """kill -9, and a new one on the same port."""
        self.kill()
        self.start()

    def pause(self):
        """It keeps its connections, and says nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    # ---- asking it ----

    @property
    def address(self):
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def resp(self):
        return ("127.0.0.1", self.port)

    def socket(self, where):
        return socket.create_connection(where, DEADLINE_S)

    def ask(self, *words):
        """One command, on a connection of its own."""
        with Wire(self) as wire:
            if self.password:
                wire.ask("AUTH", self.password)
            return wire.ask(*words)


class SecureStore(Store):
    """It speaks TLS, too, on a port of its own, which store.address names. The test asks it without TLS. certificate: that and its key;
    clients: "yes" if they must have one of the same authority."""

    def __init__(self, ca, *options, certificate=None, clients="no", **more):
        super().__init__(*options, **more)
        self.ca = ca
        self.certificate = certificate or ca.server
        self.clients = clients
        self.tls_port = None

    def start(self, may_fail=False):
        if may_fail:
            self.tls_port = free_port()
        return super().start(may_fail)

    def command(self):
        certificate, key = self.certificate
        words = ["--tls-port", str(self.tls_port), "--tls-cert-file", certificate, "--tls-key-file", key]
        return [*super().command(), *words, "--tls-ca-cert-file", self.ca.path, "--tls-auth-clients", self.clients]

    @property
    def address(self):
        return self.secure_address()

    def secure_address(self, user="", **options):
        """options: of the address; ca is that of the server unless it is given, or None."""
        options = {"ca": self.ca.path, **options}
        text = "&".join(f"{name}={value}" for name, value in options.items() if value)
        return f"rediss://{user}127.0.0.1:{self.tls_port}/0?{text}"
