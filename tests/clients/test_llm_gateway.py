"""examples/llm_gateway: run as its README says, with clients at the same time, clients that hang up, and a gateway that dies."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import support
from support import DEADLINE_S, expect, until
from support.service import Service

pytest.importorskip("uvicorn", reason="python3-uvicorn is missing")
pytest.importorskip("redis", reason="python3-redis is missing")

ROOT = Path(support.ROOT)
FOLDER = ROOT / "examples" / "llm_gateway"
# No window ends while it is tested.
RULES = re.sub(r"per: 1m", "per: 365d", (FOLDER / "rules.yaml").read_text())
PROMPT = "tell me a story"
PROMPT_TOKENS, MAX_TOKENS = 4, 1000
ALL = (20000, 5000000)  # tokens, micro-dollars


@contextlib.contextmanager
def running(*command, **environment):
    """A program of the example, on the port that it says."""
    paths = {"PYTHONPATH": str(ROOT / "clients/python/src"), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([sys.executable, *command], cwd=FOLDER, env={**os.environ, **paths, **environment},
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    try:
        for line in process.stdout:
            lines.append(line)
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found:
                break
        else:
            raise AssertionError("".join(lines))
        process.port = int(found.group(1))
        yield process
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        process.stdout.close()


@pytest.fixture
def service():
    with Service(rules=RULES) as s:
        yield s


@pytest.fixture
def upstream():
    with running("upstream.py", "0") as process:
        yield f"http://127.0.0.1:{process.port}"


def gateway(service, upstream, **environment):
    # Nothing here is to fail because the machine is busy: so it waits long for weir.
    return running("-m", "uvicorn", "gateway:app", "--port", "0", "--no-access-log", UPSTREAM=upstream,
                   WEIR=f"redis://127.0.0.1:{service.resp[1]}", DEADLINE_S="30", **environment)


class Client:
    """A request whose answer is read piece by piece."""

    def __init__(self, port, user="ann", **body):
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        content = json.dumps({"messages": [{"content": PROMPT}], "max_tokens": MAX_TOKENS, **body}).encode()
        self.socket.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-User: %s\r\nContent-Length: %d\r\n\r\n%s"
                            % (user.encode(), len(content), content))
        self.read = b""

    def more(self):
        data = self.socket.recv(65536)
        self.read += data
        return data

    def status(self):
        while b"\r\n\r\n" not in self.read and self.more():
            pass
        return int(self.read.split()[1])

    def words(self):
        return self.read.count(b'"content"')

    def rest(self):
        while self.more():
            pass
        self.socket.close()
        return self.read


def left(s, user="ann"):
    def fits(unit, most):
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            passes = s.check(event="llm", key=user, costs={unit: middle}, peek=True).json()["allowed"]
            low, high = (middle, high) if passes else (low, middle - 1)
        return low

    return fits("tokens", ALL[0]), fits("udollars", ALL[1])


def test_an_answer_costs_what_it_was(service, upstream):
    with gateway(service, upstream) as running_gateway:
        client = Client(running_gateway.port, words=30)
        expect(client.status(), 200)
        expect(b"[DONE]" in client.rest() and client.words(), 30)
        tokens = PROMPT_TOKENS + 30
        until(lambda: left(service) == (ALL[0] - tokens, ALL[1] - PROMPT_TOKENS * 3 - 30 * 15), "it is settled")
        refused = Client(running_gateway.port, max_tokens=20000)
        expect(refused.status(), 429)
        expect(b'"limit": "tokens"' in refused.rest() and b"ratelimit" in refused.read, True)
        expect(Client(running_gateway.port, user="", words=1).status(), 400)
        expect(Client(running_gateway.port, messages=5).status(), 400)
        expect(left(service)[0], ALL[0] - tokens)


def test_streams_at_the_same_time_and_clients_that_hang_up(service, upstream):
    with gateway(service, upstream) as running_gateway:
        clients = [Client(running_gateway.port, words=MAX_TOKENS, pause_s=1) for _ in range(30)]
        statuses = [client.status() for client in clients]
        most = ALL[0] // (PROMPT_TOKENS + MAX_TOKENS)
        expect((statuses.count(200), statuses.count(429)), (most, 30 - most), "never more than the budget")
        expect(left(service)[0], ALL[0] - most * (PROMPT_TOKENS + MAX_TOKENS))
        streaming = [client for client, status in zip(clients, statuses) if status == 200]
        for client in streaming:
            while client.words() < 2:
                client.more()
        seen = sum(PROMPT_TOKENS + client.words() for client in streaming)
        for client in clients:
            client.socket.close()
        # As long as one of them is held, more than its max_tokens is used.
        until(lambda: ALL[0] - left(service)[0] < MAX_TOKENS, "all are settled")
        expect(ALL[0] - left(service)[0] >= seen, True, "what was streamed is paid")
        expect(Client(running_gateway.port, words=1).status(), 200)


def test_a_model_that_is_away_costs_nothing(service):
    with gateway(service, "http://127.0.0.1:1") as running_gateway:
        expect(Client(running_gateway.port).status(), 502)
        until(lambda: left(service) == ALL, "nothing is charged")


def test_a_gateway_that_dies_holds_nothing_for_long(service, upstream):
    with gateway(service, upstream, TTL_S="3") as running_gateway:
        client = Client(running_gateway.port, words=MAX_TOKENS, pause_s=1)
        expect(client.status(), 200)
        running_gateway.kill()
        client.rest()
    until(lambda: left(service) == ALL, "what it held is free")
