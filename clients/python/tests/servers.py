"""Servers on a socket that answer as tests need it, and transports without one."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import kickstand

KEY = "sk_live_" + "k" * 32


def answer(body: object, status: int = 200, headers: str = "") -> bytes:
    """Return an answer of HTTP/1.1 with JSON."""
    text = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{headers}"
    return f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text


class Connection:
    """The server's end of a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.file = sock.makefile("rb")

    def read(self) -> tuple[str, dict[str, str], bytes] | None:
        """Return request line, headers and body, or None at the end."""
        line = self.file.readline().decode().strip()
        if not line:
            return None
        headers = {}
        while (text := self.file.readline().decode().strip()) != "":
            name, _, value = text.partition(":")
            headers[name.lower()] = value.strip()
        return line, headers, self.file.read(int(headers.get("content-length", "0")))

    def send(self, text: bytes) -> None:
        self.sock.sendall(text)


@contextlib.contextmanager
def serve(handle: Callable[[Connection], None]) -> Iterator[str]:
    """Run a function for each connection and return the server's origin."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=200)
    open_sockets: list[socket.socket] = []

    def run(sock: socket.socket) -> None:
        connection = Connection(sock)
        with contextlib.suppress(OSError):
            handle(connection)
        connection.file.close()
        sock.close()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                open_sockets.append(sock)
                threading.Thread(target=run, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        for sock in open_sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


class Answers:
    """A transport that returns answers in turn and records the requests."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[kickstand.Request] = []

    def send(self, request: kickstand.Request) -> kickstand.Response:
        self.requests.append(request)
        body = self.answers.pop(0)
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        headers = {"content-type": "application/json", "etag": '"1"'}
        return kickstand.Response(200, "OK", headers, iter([body]))

    def close(self) -> None:
        pass


def helpdesk(*answers: Any) -> tuple[kickstand.Helpdesk, Answers]:
    """Return a client and its transport."""
    transport = Answers(*answers)
    client = kickstand.Helpdesk(KEY, base_url="https://kickstand.example", transport=transport)
    return client, transport
