"""One deadline for a whole plain call. redis-py has one for each step: connecting, sending, each piece of an answer.

A call that has to connect first has more time for what comes after that: or a service so far away that connecting and asking
take longer than one deadline would never be reached, since each call would begin anew."""

from __future__ import annotations

import functools
import socket
import threading
from time import monotonic
from typing import Any, Tuple

MOMENT_S = 0.001
LATE_STEPS = 16  # of a connection that is made anew, and more
NEAR = 0.05
CONNECTING = 3  # deadlines for a call that connects: with TLS and a token it takes several round trips


class Clock(threading.local):
    """When the call of this thread is over. Then what needs no waiting may still be done: a thread that others have kept
    from running finds its answer there. But only some steps, since a peer may drip."""

    deadline = end = 0.0
    late_steps = 0

    def start(self, deadline: float) -> Tuple[float, float]:
        """For resume: a signal's handler may ask amid another call."""
        before = self.deadline, self.end
        self.resume(deadline, monotonic() + deadline)
        return before

    def resume(self, deadline: float, end: float) -> None:
        self.deadline, self.end, self.late_steps = deadline, end, 0

    def left(self, least: float = MOMENT_S) -> float:
        return max(self.end - monotonic(), least)

    def connected(self) -> None:
        """The token and the question have time of their own."""
        self.end = max(self.end, monotonic() + (CONNECTING - 1) * self.deadline)

    def step(self, sock: Any) -> None:
        """Before each step. With 0 redis-py only looks whether something has come. About the right time is left as it is,
        without a system call."""
        there = sock.gettimeout()
        if there == 0:
            return
        left = self.end - monotonic()
        if left <= MOMENT_S:
            left = MOMENT_S
            self.late_steps += 1
            if self.late_steps > LATE_STEPS:
                raise socket.timeout("the deadline is over")
        if there is None or abs(left - there) > left * NEAR:
            sock.settimeout(left)


clock = Clock()


class TimedSocket:
    """Mixed into the class of a socket."""

    __slots__ = ()

    def sendall(self: Any, *what: Any) -> None:
        clock.step(self)
        super().sendall(*what)  # type: ignore[misc]

    def recv(self: Any, *what: Any) -> Any:
        clock.step(self)
        return super().recv(*what)  # type: ignore[misc]

    def recv_into(self: Any, *what: Any) -> Any:
        clock.step(self)
        return super().recv_into(*what)  # type: ignore[misc]


@functools.lru_cache(maxsize=None)
def timed_socket(kind: Any) -> Any:
    return type("TimedSocket", (TimedSocket, kind), {"__slots__": ()})


@functools.lru_cache(maxsize=None)
def timed(kind: Any) -> Any:
    """redis-py's class of connections, but by the clock. Should it connect in another method one day, each step has the
    deadline again."""

    class Timed(kind):  # type: ignore[misc]
        # Of each address that the host has, and of the handshake of TLS.
        socket_connect_timeout = property(lambda _: clock.left(), lambda _, seconds: None)
        socket_timeout = property(lambda _: clock.left(clock.deadline), lambda _, seconds: None)

        def _connect(self) -> Any:
            sock = super()._connect()
            sock.__class__ = timed_socket(sock.__class__)
            clock.connected()
            return sock

    return Timed
