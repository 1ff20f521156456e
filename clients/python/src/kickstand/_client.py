"""The base class of the clients."""

from __future__ import annotations

import os
import random as _random
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar
from urllib.parse import urlsplit

from ._core import Core, Settings, checked_timeout
from ._transport import Transport
from ._values import is_visible

C = TypeVar("C", bound="Client")


class Client:
    """The base class of Helpdesk and Fleet. Threads may share a client.

    Args:
        key: The API key. Default: the environment variable KICKSTAND_KEY.
        base_url: The server's origin, such as ``https://help.example.com``. Default: the
            environment variable KICKSTAND_URL.
        timeout: Seconds for each attempt of a request.
        max_retries: Retries after the first attempt, if its answer was lost or says that
            a later one may succeed.
        max_retry_wait: A problem whose Retry-After is longer, in seconds, is raised.
        allow_http: Allow http to another machine, which everyone in between can read.
        transport: Sends the requests. Default: HTTPTransport.
        sleep, random, now: Replace ``time.sleep``, ``random.random`` and ``time.time``,
            for tests.
    """

    def __init__(
        self,
        key: str | None = None,
        *,
        base_url: str | None = None,
        timeout: float = 30.0,
        max_retries: int = 3,
        max_retry_wait: float = 60.0,
        allow_http: bool = False,
        transport: Transport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = _random.random,
        now: Callable[[], float] = time.time,
    ) -> None:
        key = os.environ.get("KICKSTAND_KEY", "") if key is None else key
        if not is_visible(key):
            raise ValueError(
                "the API key must be visible ASCII characters, without blanks and line"
                " breaks: pass key or set KICKSTAND_KEY"
            )
        if base_url is None:
            base_url = os.environ.get("KICKSTAND_URL", "")
        settings = Settings(
            base_url=_origin(base_url, allow_http) + self._prefix(key),
            key=key,
            timeout=checked_timeout(timeout),
            max_retries=max_retries,
            max_retry_wait=max_retry_wait,
            sleep=sleep,
            random=random,
            now=now,
        )
        if transport is None:
            from ._http import HTTPTransport

            transport = HTTPTransport()
        self._core = Core(settings, transport)
        self._base_url = settings.base_url

    @staticmethod
    def _prefix(key: str) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._base_url!r})"

    def __enter__(self: C) -> C:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close idle connections. The client can still be used."""
        self._core.close()


def _origin(base_url: str, allow_http: bool) -> str:
    """Return a checked origin without a slash."""
    if not base_url:
        raise ValueError("pass base_url or set KICKSTAND_URL")
    if "@" in base_url:
        raise ValueError("base_url must not have a user or a password")
    wrong = ValueError(
        f"base_url must be an origin such as https://help.example.com, not {base_url!r}"
    )
    if not is_visible(base_url) or "\\" in base_url:
        raise wrong
    try:
        url = urlsplit(base_url)
        host, port = url.hostname, url.port
    except ValueError:
        raise wrong from None
    if url.scheme not in ("https", "http") or not host or port == 0:
        raise wrong
    if url.path not in ("", "/") or "?" in base_url or "#" in base_url:
        raise wrong
    if url.scheme == "http" and not allow_http and not _is_loopback(host):
        raise ValueError(
            f"base_url {base_url!r} would send the key unencrypted: use https, or pass"
            " allow_http=True"
        )
    return f"{url.scheme}://{url.netloc}"


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
