"""The interface between a client and the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """One attempt of a request.

    The headers have the API key; they are not part of the repr.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)
    timeout: float
    """Seconds for the whole attempt; for a stream, until each piece of the body."""
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to one attempt. The caller of ``send`` closes it."""

    status: int
    reason: str
    headers: Mapping[str, str]
    """Names in lower case. Values of a repeated header are joined by commas."""
    body: Iterator[bytes] = field(repr=False)
    """Pieces of the body. Raises APIConnectionError if it ends early."""
    close: Callable[[], None] = field(repr=False, default=lambda: None)


class Transport(Protocol):
    """Sends requests. Threads may call ``send`` at the same time.

    ``send`` does not follow redirects, and raises APIConnectionError without an answer,
    or its subclass APITimeoutError after the timeout.
    """

    def send(self, request: Request) -> Response:
        """Send a request and return its answer, before its body is read."""
        ...

    def close(self) -> None:
        """Close idle connections."""
        ...
