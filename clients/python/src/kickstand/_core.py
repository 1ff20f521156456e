"""Requests: their headers, attempts, retries and answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar

from ._errors import APIConnectionError, KickstandError, ProblemError
from ._pages import Page
from ._records import Record, decode
from ._streams import Download, Export, Import, import_body
from ._transport import Request, Response, Transport
from ._values import (
    decode_json,
    encode_json,
    given,
    header_value,
    query_string,
)
from ._version import __version__

R = TypeVar("R", bound=Record)
C = TypeVar("C", bound=Mapping[str, Any])
T = TypeVar("T")

MAX_JSON = 64 << 20
"""Bytes of an answer that is read into memory."""
_MAX_FIRST = 1 << 20
_MAX_MODIFY = 5
_JSON, _NDJSON, _CSV = "application/json", "application/x-ndjson", "text/csv"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The API key's window for requests."""

    limit: int
    remaining: int
    reset: int
    """End of the window, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class ResponseInfo:
    """The head of an answer."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    """Names in lower case."""
    etag: str | None
    request_id: str
    """Empty without one."""
    replayed: bool
    """Whether this is the stored answer to an earlier attempt."""
    rate_limit: RateLimit | None


class CallOptions(TypedDict, total=False):
    """Options of one call, all optional.

    timeout: Seconds for each attempt.
    max_retries: Retries after the first attempt.
    request_id: Sent as X-Request-Id: up to 64 characters of A-Za-z0-9._-.
    on_response: Called with the head of every answer, also of failed attempts.
    """

    timeout: float
    max_retries: int
    request_id: str
    on_response: Callable[[ResponseInfo], None]


@dataclass(frozen=True)
class Settings:
    """The settings of a client."""

    base_url: str
    """Without a slash at its end, such as https://help.example.com/api/v1."""
    key: str = field(repr=False)
    timeout: float
    max_retries: int
    max_retry_wait: float
    sleep: Callable[[float], None] = field(repr=False)
    random: Callable[[], float] = field(repr=False)
    now: Callable[[], float] = field(repr=False)


class Core:
    """Sends the requests of one client. Threads may use it at the same time."""

    def __init__(self, settings: Settings, transport: Transport) -> None:
        self._settings = settings
        self._transport = transport

    def __reduce__(self) -> str:
        raise TypeError("a client has a secret key, so it cannot be pickled")

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()

    def record(
        self,
        of: type[R],
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, object] | None = None,
        options: CallOptions | None = None,
    ) -> R:
        """Send a request that is answered with a record."""
        call = self._call(method, path, query, body, headers, options)
        record = self._send(call, lambda r: self._read_record(of, r))
        if record is None:
            raise KickstandError("The server answered 304 without a condition.")
        return record

    def changed(
        self,
        of: type[R],
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, object] | None = None,
        options: CallOptions | None = None,
    ) -> R | None:
        """Get a record, or None if its ETag is that of If-None-Match."""
        call = self._call("GET", path, query, None, headers, options)
        return self._send(call, lambda r: self._read_record(of, r))

    def nothing(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, object] | None = None,
        options: CallOptions | None = None,
    ) -> None:
        """Send a request that is answered without a body."""
        call = self._call(method, path, query, body, headers, options)
        self._send(call, _read)

    def page(
        self,
        of: type[R],
        path: str,
        *,
        query: Mapping[str, object],
        headers: Mapping[str, object] | None = None,
        options: CallOptions | None = None,
    ) -> Page[R]:
        """Get a page of a list."""

        def fetch(cursor: str | None) -> Page[R]:
            asked = dict(query)
            if cursor is not None:
                asked["cursor"] = cursor
            call = self._call("GET", path, asked, None, headers, options)
            raw = self._send(call, _read_json)
            if not isinstance(raw, dict):
                raise KickstandError("The answer is not a list.")
            return Page(of, raw, cursor, fetch)

        return fetch(None)

    def export(
        self,
        of: type[R],
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, object] | None = None,
        options: CallOptions | None = None,
    ) -> Export[R]:
        """Stream the records of a whole list."""
        call = self._call("GET", path, query, None, headers, options, _NDJSON)
        return self._send(call, lambda r: Export(*_started(r, _NDJSON), of))

    def export_csv(
        self,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, object] | None = None,
        options: CallOptions | None = None,
    ) -> Download:
        """Stream a whole list as CSV."""
        call = self._call("GET", path, query, None, headers, options, _CSV)
        return self._send(call, lambda r: Download(*_started(r, _CSV)))

    def download(
        self,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, object] | None = None,
        options: CallOptions | None = None,
    ) -> Download | None:
        """Stream a file. None is the answer to If-None-Match."""
        call = self._call("GET", path, query, None, headers, options, "*/*")

        def read(response: Response) -> Download | None:
            if response.status == 304:
                response.close()
                return None
            return Download(*_started(response, ""))

        return self._send(call, read)

    def import_records(
        self,
        path: str,
        records: Iterable[Record | Mapping[str, Any]],
        *,
        query: Mapping[str, object],
        headers: Mapping[str, object] | None = None,
        options: CallOptions | None = None,
    ) -> Import:
        """Create or update many records, in a single attempt."""
        call = self._call("POST", path, query, None, headers, options)
        call.max_retries = 0
        call.body = import_body(records)
        call.headers["Content-Type"] = _NDJSON
        call.headers["Accept"] = _NDJSON
        call.stream = True
        return self._send(call, lambda r: Import(*_started(r, _NDJSON)))

    def modify(
        self,
        get: Callable[[], R],
        change: Callable[[R], C | None],
        update: Callable[[C, str], R],
    ) -> R:
        """Get a record and update it, again if it was changed in between."""
        for attempt in range(_MAX_MODIFY):
            record = get()
            changes = change(record)
            if not changes:
                return record
            try:
                return update(changes, record.etag)
            except ProblemError as error:
                if error.status != 412 or attempt == _MAX_MODIFY - 1:
                    raise
        raise AssertionError("unreachable")

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None,
        body: Mapping[str, object] | None,
        headers: Mapping[str, object] | None,
        options: CallOptions | None,
        accept: str = _JSON,
    ) -> _Call:
        chosen = options or {}
        unknown = set(chosen) - set(CallOptions.__annotations__)
        if unknown:
            raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
        sent = {"Accept": accept, "User-Agent": f"kickstand-python/{__version__}"}
        if method != "GET":
            from uuid import uuid4

            sent["Idempotency-Key"] = str(uuid4())
        if "request_id" in chosen:
            sent["X-Request-Id"] = header_value("request_id", chosen["request_id"])
        for name, value in given(headers or {}).items():
            sent[name] = header_value(name, value)
        key = sent.get("Idempotency-Key", "")
        if len(key) > 255 or " " in key:
            raise ValueError("an idempotency key is 1 to 255 visible ASCII characters")
        encoded = None
        if body is not None:
            encoded = encode_json(given(body))
            sent["Content-Type"] = _JSON
        return _Call(
            method=method,
            url=self._settings.base_url + path + query_string(query or {}),
            headers=sent,
            body=encoded,
            stream=accept != _JSON,
            timeout=checked_timeout(chosen.get("timeout", self._settings.timeout)),
            max_retries=chosen.get("max_retries", self._settings.max_retries),
            on_response=chosen.get("on_response"),
        )

    def _send(self, call: _Call, read: Callable[[Response], T]) -> T:
        """Send a request, with retries. read is part of an attempt."""
        retries = 0
        while True:
            try:
                return self._attempt(call, read)
            except (ProblemError, APIConnectionError) as error:
                if retries >= call.max_retries or not _is_retried(error):
                    raise
                wait = self._wait(retries, error)
                if wait is None:
                    raise
            self._settings.sleep(wait)
            retries += 1

    def _attempt(self, call: _Call, read: Callable[[Response], T]) -> T:
        response = self._transport.send(
            Request(
                method=call.method,
                url=call.url,
                headers={
                    **call.headers,
                    "Authorization": f"Bearer {self._settings.key}",
                },
                body=call.body,
                timeout=call.timeout,
                stream=call.stream,
            )
        )
        try:
            if call.on_response is not None:
                call.on_response(_info(response))
            if 200 <= response.status < 300 or response.status == 304:
                return read(response)
            raise self._problem(response)
        except BaseException:
            response.close()
            raise

    def _read_record(self, of: type[R], response: Response) -> R | None:
        if response.status == 304:
            _read(response)
            return None
        return decode(of, _read_json(response), response.headers.get("etag"))

    def _problem(self, response: Response) -> ProblemError:
        text = _read(response)
        document: object = None
        if "json" in response.headers.get("content-type", "").lower():
            try:
                document = decode_json(text)
            except ValueError:
                document = None
        if not isinstance(document, dict) or not isinstance(document.get("code"), str):
            detail = f"The server answered with status {response.status}."
            document = {"detail": detail}
        return ProblemError(
            response.status,
            document,
            request_id=response.headers.get("x-request-id", ""),
            retry_after=self._retry_after(response.headers.get("retry-after", "")),
        )

    def _retry_after(self, value: str) -> float | None:
        """Return the seconds of a Retry-After: a number, or the time until a date."""
        if re.fullmatch(r"[0-9]+", value):
            return float(value)
        if not value:
            return None
        from email.utils import parsedate_to_datetime

        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - self._settings.now())
        except (ValueError, OverflowError):
            return None

    def _wait(self, retries: int, error: Exception) -> float | None:
        """Return the seconds before the next attempt, or None for no further one."""
        backoff: float = min(8.0, 0.5 * 2 ** min(retries, 10))
        random = self._settings.random()
        after = error.retry_after if isinstance(error, ProblemError) else None
        if after is None:
            return backoff / 2 + random * backoff / 2
        if after > self._settings.max_retry_wait:
            return None
        return after + random * min(1.0, backoff)


@dataclass
class _Call:
    """A request of which every attempt is the same."""

    method: str
    url: str
    headers: dict[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)
    stream: bool
    timeout: float
    max_retries: int
    on_response: Callable[[ResponseInfo], None] | None


def checked_timeout(seconds: float) -> float:
    """Return a timeout that the system's calls accept."""
    if not 0 < seconds <= 86400:
        raise ValueError("a timeout must be more than 0 seconds, and at most a day")
    return seconds


def _is_retried(error: ProblemError | APIConnectionError) -> bool:
    if isinstance(error, APIConnectionError):
        return error.retryable
    if error.status == 409:
        return error.code == "idempotency_in_progress"
    return error.status in (408, 429, 500, 502, 503, 504)


def _read(response: Response) -> bytes:
    pieces = []
    size = 0
    for piece in response.body:
        pieces.append(piece)
        size += len(piece)
        if size > MAX_JSON:
            response.close()
            raise KickstandError("The answer is larger than 64 MiB.")
    return b"".join(pieces)


def _read_json(response: Response) -> object:
    text = _read(response)
    try:
        return decode_json(text)
    except ValueError:
        raise _unexpected(response, "The answer is not JSON.") from None


def _unexpected(response: Response, detail: str) -> ProblemError:
    request_id = response.headers.get("x-request-id", "")
    return ProblemError(response.status, {"detail": detail}, request_id=request_id)


def _started(response: Response, media_type: str) -> tuple[Response, bytes]:
    """Check the type of a stream and read its first line, as part of the attempt."""
    if not response.headers.get("content-type", "").startswith(media_type):
        raise _unexpected(response, f"The answer is not {media_type}.")
    first = b""
    for piece in response.body:
        first += piece
        if b"\n" in piece or len(first) > _MAX_FIRST or not media_type:
            break
    return response, first


def _info(response: Response) -> ResponseInfo:
    def number(name: str) -> int | None:
        text = response.headers.get(f"x-ratelimit-{name}", "")
        return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None

    limit, remaining, reset = number("limit"), number("remaining"), number("reset")
    window = None
    if limit is not None and remaining is not None and reset is not None:
        window = RateLimit(limit, remaining, reset)
    return ResponseInfo(
        status=response.status,
        headers=response.headers,
        etag=response.headers.get("etag"),
        request_id=response.headers.get("x-request-id", ""),
        replayed=response.headers.get("idempotent-replayed") == "true",
        rate_limit=window,
    )
