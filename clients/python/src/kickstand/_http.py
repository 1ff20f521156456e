"""The transport over http.client."""

from __future__ import annotations

import io
import os
import select
import socket
import ssl
from collections import deque
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from ._errors import APIConnectionError, APITimeoutError
from ._transport import Request, Response

_PIECE = 64 << 10
_MAX_IDLE = 50


class HTTPTransport:
    """Sends requests over HTTP/1.1 and reuses connections.

    Certificates are verified. Proxies of the environment are not used. A process that
    forks can use it on both sides.

    Args:
        ssl_context: Replaces ``ssl.create_default_context()``, such as for a private
            certificate authority.
    """

    def __init__(self, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self._context = ssl_context
        self._pid = os.getpid()
        # Operations of deque and dict are atomic, so threads need no lock.
        self._idle: dict[tuple[str, str], deque[_Connection]] = {}

    def send(self, request: Request) -> Response:
        """Send a request and return its answer, before its body is read."""
        url = urlsplit(request.url)
        deadline = _Deadline(request.timeout)
        target = f"{url.path}?{url.query}" if url.query else url.path
        headers = dict(request.headers)
        connection = self._acquire(url.scheme, url.netloc)
        try:
            connection.begin(deadline)
            try:
                connection.request(request.method, target, request.body, headers)
            except (BrokenPipeError, ConnectionResetError):
                # The server may have answered before it read the whole body.
                if connection.sock is None:
                    raise
            answer = connection.getresponse()
        except (OSError, HTTPException, ValueError) as error:
            connection.close()
            raise _translated(error, request.timeout) from error
        except BaseException:
            connection.close()
            raise
        body = _Body(self, connection, answer, deadline, request)
        names = {name.lower() for name in answer.headers}
        return Response(
            status=answer.status,
            reason=answer.reason,
            headers={n: ", ".join(answer.headers.get_all(n) or []) for n in names},
            body=body,
            close=body.close,
        )

    def close(self) -> None:
        """Close idle connections."""
        for connections in list(self._idle.values()):
            while connections:
                connections.pop().close()

    def _acquire(self, scheme: str, netloc: str) -> _Connection:
        if self._pid != os.getpid():  # the parent process uses the connections
            self.close()
            self._pid = os.getpid()
        idle = self._idle.get((scheme, netloc))
        while idle:
            try:
                connection = idle.pop()
            except IndexError:
                break
            if connection.is_usable():
                return connection
            connection.close()
        if scheme == "http":
            return _PlainConnection(netloc)
        if self._context is None:
            self._context = ssl.create_default_context()
        return _TLSConnection(netloc, context=self._context)

    def _release(self, connection: _Connection, url: str) -> None:
        parts = urlsplit(url)
        idle = self._idle.setdefault((parts.scheme, parts.netloc), deque())
        if len(idle) < _MAX_IDLE:
            idle.append(connection)
        else:
            connection.close()


class _Deadline:
    """The time at which an attempt ends."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        self._at = monotonic() + self._seconds

    def left(self) -> float:
        """Return the seconds until then. Raises TimeoutError if there are none."""
        left = self._at - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


class _Connection(HTTPConnection):
    """A connection whose reads end at the deadline of the attempt."""

    sock: socket.socket | None
    _pid: int

    def begin(self, deadline: _Deadline) -> None:
        """Set the deadline of the next request."""
        self._pid = os.getpid()
        self.timeout = deadline.left()
        if self.sock is not None:
            self.sock.settimeout(self.timeout)

        def response_class(sock: socket.socket, **options: Any) -> HTTPResponse:
            return _Answer(_Socket(sock, deadline), **options)  # type: ignore

        self.response_class = response_class  # type: ignore

    def is_usable(self) -> bool:
        """Report whether the server has neither closed the connection nor sent bytes."""
        if self.sock is None:
            return False
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(self.sock, select.POLLIN)
            return not poll.poll(0)
        return not select.select([self.sock], [], [], 0)[0]


class _PlainConnection(_Connection):
    pass


class _TLSConnection(_Connection, HTTPSConnection):
    pass


class _Answer(HTTPResponse):
    """An answer after all interim ones. HTTPResponse itself skips those with status 100 only."""

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore
        return version, HTTPStatus.CONTINUE if 100 < status < 200 else status, reason


class _Socket:
    """The part of a socket that HTTPResponse uses."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock, self._deadline), _PIECE)


class _Reader(io.RawIOBase):
    """Reads a socket until a deadline."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._deadline.left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Body:
    """The pieces of an answer's body. At its end the connection is released."""

    def __init__(
        self,
        transport: HTTPTransport,
        connection: _Connection,
        answer: HTTPResponse,
        deadline: _Deadline,
        request: Request,
    ) -> None:
        self._transport = transport
        self._connection: _Connection | None = connection
        self._answer = answer
        self._deadline = deadline
        self._request = request
        # HTTPResponse.read1 does not check the length of a body, so this class does.
        self._left = answer.length

    def __iter__(self) -> _Body:
        return self

    def __next__(self) -> bytes:
        if self._connection is None:
            raise StopIteration
        try:
            piece = self._read()
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            raise _translated(error, self._request.timeout) from error
        except BaseException:
            self.close()
            raise
        if piece:
            return piece
        self._end(self._connection)
        raise StopIteration

    def _read(self) -> bytes:
        if self._left == 0:
            return b""
        if self._request.stream:
            self._deadline.restart()
        piece = self._answer.read1(min(_PIECE, self._left or _PIECE))
        if self._left is not None:
            if not piece:
                raise ConnectionResetError("the answer was cut short")
            self._left -= len(piece)
        elif not piece and not self._answer.chunked and self._answer.status < 300:
            raise ConnectionResetError("the answer has no length, so it may be cut")
        return piece

    def _end(self, connection: _Connection) -> None:
        self._answer.close()
        self._connection = None
        if self._answer.will_close:
            connection.close()
        else:
            self._transport._release(connection, self._request.url)

    def close(self) -> None:
        """Close the connection, unless the body was read to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._answer.close()
            connection.close()


def _translated(error: Exception, timeout: float) -> APIConnectionError:
    if isinstance(error, TimeoutError):
        return APITimeoutError(f"No answer within {timeout:g} seconds.")
    if isinstance(error, ssl.SSLCertVerificationError):
        message = f"The server's certificate is not valid: {error.verify_message}."
        return APIConnectionError(message, retryable=False)
    text = str(error) or type(error).__name__
    return APIConnectionError(f"The connection failed: {text}.")
