"""A stand-in for a tracking server, or a proxy before a real one, that breaks in a named way."""

import http.client
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "page": (200, {}, b"<html><body>Sign in to the network</body></html>"),
    "401": (401, {}, b"who are you"),
    "404": (404, {}, b"no such page"),
    "429": (429, {"Retry-After": "1000000000"}, b""),
    "500": (500, {"Retry-After": "3600"}, b""),
    "503": (503, {"Retry-After": "3600"}, b""),
}


class Faulty(ThreadingHTTPServer):
    """Breaks in the way named by `fault`, after `calls` calls; health is fine unless `is_ill`."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, upstream: int | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream, self.fault, self.calls, self.is_ill = upstream, "", 0, False
        self.requests: Counter[bytes] = Counter()
        self.logins: set[str | None] = set()
        self.released = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def due(self, request: bytes) -> str:
        """The fault of this request; a reply is lost twice, because mlflow asks a second time."""
        self.calls -= 1
        self.requests[request] += 1
        is_answered = request[:3] == b"GET" or self.requests[request] > 2
        if self.calls >= 0 or (self.fault == "lost reply" and is_answered):
            return ""
        return self.fault

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections break here on purpose."""


class Handler(BaseHTTPRequestHandler):
    server: Faulty

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.logins.add(self.headers["Authorization"])
        health = self.path == "/health" and not self.server.is_ill
        fault = "" if health else self.server.due(self.command.encode() + self.path.encode() + body)
        if fault == "hang":
            self.server.released.wait()
        elif fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connection.close()
        elif fault in ANSWERS:
            self.reply(*ANSWERS[fault])
        elif self.server.upstream is None:
            self.reply(200, {}, b"OK" if self.path == "/health" else b"{}")
        else:
            self.forward(body, fault == "lost reply")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def forward(self, body: bytes, lost: bool) -> None:
        kept = {name: text for name, text in self.headers.items() if name.lower() != "connection"}
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.upstream)) as connection:
            connection.request(self.command, self.path, body, kept)
            reply = connection.getresponse()
            content = reply.read()
        if not lost:
            kind = reply.headers.get("Content-Type", "text/plain")
            self.reply(reply.status, {"Content-Type": kind}, content)

    def reply(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@contextmanager
def faulty(upstream: int | None = None) -> Iterator[Faulty]:
    server = Faulty(upstream)
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()


def free_port() -> int:
    """Returns a free port outside the ranges that Ray and the system hand out themselves."""
    while True:
        port = 5000 + secrets.randbelow(5000)
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
