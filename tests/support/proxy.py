"""A way between one service and the store that can be cut, in either direction, slowed down, or broken off."""

import contextlib
import socket
import struct
import threading

CHUNK = 1 << 16


class Proxy:
    """with Proxy(store) as way: way.address is what --counters takes. `requests` and `answers` are open; while one is cleared
    nothing passes in that direction, and what was sent waits. slow(): answers arrive that much later."""

    def __init__(self, store):
        self.store = store
        self.requests, self.answers, self.fast = threading.Event(), threading.Event(), threading.Event()
        self.lock = threading.Lock()
        self.pairs = []
        self.threads = []

    def __enter__(self):
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"redis://127.0.0.1:{self.listening.getsockname()[1]}/0"
        self.mend()
        self.spawn(self.accept)
        return self

    def __exit__(self, *why):
        # A thread that waits for a connection is not woken by a close.
        self.listening.shutdown(socket.SHUT_RDWR)
        self.reset()
        self.mend()
        for thread in self.threads:
            thread.join()
        self.listening.close()

    def mend(self):
        for gate in (self.requests, self.answers, self.fast):
            gate.set()

    def slow(self, delay_s):
        self.delay_s = delay_s
        self.fast.clear()

    def reset(self):
        """All connections end at once, and what waited in them is gone."""
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for one in (one for pair in pairs for one in pair):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RD)
            one.close()

    def spawn(self, run, *args):
        thread = threading.Thread(target=run, args=args)
        self.threads.append(thread)
        thread.start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listening.accept()
                try:
                    far = socket.create_connection(self.store.resp)
                except OSError:
                    near.close()
                    continue
                with self.lock:
                    self.pairs.append((near, far))
                self.spawn(self.carry, near, far, self.requests, False)
                self.spawn(self.carry, far, near, self.answers, True)

    def carry(self, source, target, gate, slow):
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if slow and not self.fast.is_set():
                    self.fast.wait(self.delay_s)
                gate.wait()
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
