"""A stand-in for a tracking server, or a proxy before a real one, that breaks in a named way."""

import gzip
import http.client
import math
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# Seconds between two pieces of an endless answer.
DRIP_SECONDS = 0.02
# How an endless answer begins, and the piece that is repeated.
ENDLESS = {
    "drip status": (b"HTTP/1.1 ", b"2"),
    "drip headers": (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
    "drip body": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{", b" "),
    "drip chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "drip continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "drip errors": (b"HTTP/1.1 500 No\r\nContent-Length: 1000000\r\n\r\n", b"x"),
    "flood": (b"HTTP/1.1 200 OK\r\n\r\n", b" " * 2**20),
}
# What a fault answers in the server's place.
NONSENSE = {
    "{}": b"{}",
    "null": b"null",
    "list": b"[]",
    "nothing": b"",
    "page": b"<html><body>Sign in to the network</body></html>",
    "number": b"42",
    "text": b'"fine"',
    "other types": b'{"run": 5, "runs": {"info": 1}, "experiment": "x", "experiment_id": [1]}',
    "empty parts": b'{"run": {}, "runs": [{}], "experiment": {}, "model_versions": [{}]}',
    "other run": b'{"run": {"info": {"run_id": "0123", "lifecycle_stage": "active"}, "data": {}},'
    b'"runs": [{"info": {"run_id": "0123", "lifecycle_stage": "active"}, "data": {}}],'
    b'"experiment": {"experiment_id": "77", "name": "x", "lifecycle_stage": "active"}}',
    "error body": b'{"error_code": "INTERNAL_ERROR", "message": "no"}',
    "not UTF-8": b'{"run": "\xff\xfe"}',
    "deep": b"[" * 100_000,
    "cut": b'{"run": {"info": {"run_',
}
JSON = {"Content-Type": "application/json"}
ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    **{fault: (200, JSON, content) for fault, content in NONSENSE.items()},
    "redirect": (307, {"Location": "/again"}, b""),
    "half body": (200, {"Content-Length": "1000", "Connection": "close"}, b"{"),
    "bad gzip": (200, JSON | {"Content-Encoding": "gzip"}, b"{}"),
    "bomb": (200, JSON | {"Content-Encoding": "gzip"}, gzip.compress(b" " * 2**20) * 128),
    "control": (400, JSON, b'{"error_code": "\\u001b[2J", "message": "\\u001b]0;x\\u0007 y"}'),
    "429": (429, {"Retry-After": "1000000000"}, b""),
    "500": (500, {"Retry-After": "3600"}, b""),
    "503": (503, {"Retry-After": "3600"}, b""),
}


class Faulty(ThreadingHTTPServer):
    """Breaks in the way named by `fault`, after `calls` calls and `times` times; health is fine
    unless `is_ill`.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, upstream: int | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream, self.fault, self.calls = upstream, "", 0
        self.times, self.is_ill = math.inf, False
        self.requests: Counter[bytes] = Counter()
        self.released = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def due(self, request: bytes) -> str:
        """The fault of this request; a reply is lost twice, because mlflow asks a second time."""
        self.calls -= 1
        self.requests[request] += 1
        if (
            self.calls >= 0
            or -self.calls > self.times
            or (
                self.fault == "lost reply" and (request[:3] == b"GET" or self.requests[request] > 2)
            )
        ):
            return ""
        return self.fault

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections break here on purpose."""


class Handler(BaseHTTPRequestHandler):
    server: Faulty

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        health = self.path == "/health" and not self.server.is_ill
        fault = "" if health else self.server.due(self.command.encode() + self.path.encode() + body)
        if fault == "hang":
            self.server.released.wait()
        elif fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connection.close()
        elif fault in ENDLESS:
            self.drip(*ENDLESS[fault], seconds=0 if fault == "flood" else DRIP_SECONDS)
        elif fault in ANSWERS:
            self.reply(*ANSWERS[fault])
        elif self.server.upstream is None:
            self.reply(200, {}, b"OK")
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

    def drip(self, start: bytes, piece: bytes, seconds: float) -> None:
        self.close_connection = True
        self.wfile.write(start)
        while not self.server.released.wait(seconds):
            self.wfile.write(piece)

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
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
