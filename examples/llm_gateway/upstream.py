"""A stand-in for a language model's server, so that the example needs no account: it streams words, and says at the end how many
tokens that were.

    python3 upstream.py [PORT]

POST /v1/chat/completions takes {"messages": [{"content": "…"}], "max_tokens": N, "words": M}: it answers with M words, one token
each, and at most max_tokens of them. "pause_s" is the time between two words."""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Model(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = sum(len(message["content"].split()) for message in asked["messages"])
        words = min(asked.get("words", 20), asked["max_tokens"])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for number in range(words):
            self.event({"choices": [{"delta": {"content": f"word{number} "}}]})
            time.sleep(asked.get("pause_s", 0))
        self.event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": words}})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, data: object) -> None:
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # the gateway has hung up, because its client has


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9000), Model)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
