"""Streams: exports, files, and the bodies and results of imports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar

from ._errors import APIConnectionError, KickstandError, ProblemError
from ._records import Record, decode
from ._transport import Response
from ._values import decode_json, encode_json

R = TypeVar("R", bound=Record)
S = TypeVar("S", bound="_Stream")

MAX_IMPORT = 16 << 20
"""The server accepts imports of up to 16 MiB."""

_MAX_LINE = 64 << 20


class _Stream:
    """An answer that is read piece by piece. Threads must not share it.

    A stream that is not read to its end occupies a connection: close it, or use ``with``.
    """

    def __init__(self, response: Response, first: bytes) -> None:
        self._response = response
        self._first = first

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the transfer."""
        self._response.close()

    def _lines(self) -> Iterator[bytes]:
        """Return the lines that are not empty. Raises APIConnectionError within one."""
        rest: list[bytes] = []
        size = 0
        for piece in self._pieces():
            *lines, tail = piece.split(b"\n")
            if lines:
                lines[0] = b"".join(rest) + lines[0]
                rest, size = [], 0
                yield from (line for line in lines if line.strip())
            rest.append(tail)
            size += len(tail)
            if size > _MAX_LINE:
                raise KickstandError("A line of the answer is longer than 64 MiB.")
        if any(rest):
            raise APIConnectionError("The answer was cut short within a line.")

    def _pieces(self) -> Iterator[bytes]:
        first, self._first = self._first, b""
        if first:
            yield first
        yield from self._response.body


class Export(_Stream, Generic[R]):
    """The records of an export, one by one: an iterator.

    It raises APIConnectionError if the export was cut short.
    """

    def __init__(self, response: Response, first: bytes, of: type[R]) -> None:
        super().__init__(response, first)
        self._records = (decode(of, _line(line)) for line in self._lines())

    def __iter__(self) -> Iterator[R]:
        return self

    def __next__(self) -> R:
        try:
            return next(self._records)
        except Exception:
            self.close()
            raise


def _line(text: bytes) -> object:
    try:
        return decode_json(text)
    except ValueError as error:
        raise KickstandError(f"A line of the answer is not JSON: {error}.") from None


class Download(_Stream):
    """The bytes of a file or of an export as CSV.

    Attributes:
        content_type: The media type, such as ``image/png``.
    """

    def __init__(self, response: Response, first: bytes) -> None:
        super().__init__(response, first)
        self.content_type = response.headers.get("content-type", "")

    def __iter__(self) -> Iterator[bytes]:
        """Return the pieces as they arrive."""
        return self._pieces()

    def read(self) -> bytes:
        """Return all bytes."""
        with self:
            return b"".join(self._pieces())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all bytes to a file, which is replaced if it exists."""
        with self, open(path, "wb") as file:
            for piece in self._pieces():
                file.write(piece)


def import_body(records: Iterable[Record | Mapping[str, Any]]) -> bytes:
    """Return records as NDJSON. Raises ValueError beyond the size that is accepted."""
    lines = []
    size = 0
    for record in records:
        value = record.to_dict() if isinstance(record, Record) else dict(record)
        line = encode_json(value) + b"\n"
        lines.append(line)
        size += len(line)
        if size > MAX_IMPORT:
            raise ValueError("an import is at most 16 MiB; send it in parts")
    return b"".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportLine(Record):
    """The result of one record of an import."""

    line: int
    """Number of the record, from 1."""
    status: int
    """201: created. 200: updated or unchanged. Otherwise see problem."""
    id: str | None
    ignored: list[str] | None
    """Members that were not applied, because their values are older."""
    problem: dict[str, Any] | None

    @property
    def error(self) -> ProblemError | None:
        """The problem as an error, or None."""
        return None if self.problem is None else ProblemError(self.status, self.problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSummary(Record):
    """The counts of an import."""

    created: int
    updated: int | None
    """Only with on_conflict="update"."""
    unchanged: int | None
    """Only with on_conflict="update"."""
    failed: int
    skipped: dict[str, int] | None
    """In how many records each read-only member was skipped."""


class Import(_Stream):
    """The results of an import, one by one: an iterator.

    The server has stored the records before it sends the first result.
    """

    def __init__(self, response: Response, first: bytes) -> None:
        super().__init__(response, first)
        self._results = self._read()
        self._summary: ImportSummary | None = None

    def __iter__(self) -> Iterator[ImportLine]:
        return self

    def __next__(self) -> ImportLine:
        try:
            return next(self._results)
        except Exception:
            self.close()
            raise

    @property
    def summary(self) -> ImportSummary:
        """The summary. It follows the results, so they are read to their end."""
        for _ in self:
            pass
        if self._summary is None:
            raise APIConnectionError("The answer was cut short: it has no summary.")
        return self._summary

    def _read(self) -> Iterator[ImportLine]:
        for text in self._lines():
            value = _line(text)
            if isinstance(value, dict) and "summary" in value:
                self._summary = decode(ImportSummary, value["summary"])
            else:
                yield decode(ImportLine, value)
        if self._summary is None:
            raise APIConnectionError("The answer was cut short: it has no summary.")
