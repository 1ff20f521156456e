"""Values of requests: absent arguments, paths, queries, headers and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timezone
from typing import Any, Final, Literal, TypeVar, Union
from urllib.parse import quote


class NotGiven:
    """The type of NOT_GIVEN."""

    __slots__ = ()

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "NOT_GIVEN"


NOT_GIVEN: Final = NotGiven()
"""The default of an argument that is not sent. None is sent as null, which clears."""


T = TypeVar("T")

AnyOf = Union[T, Sequence[T]]
"""A value of a filter, or several of which a record has any."""


def segment(value: str) -> str:
    """Return an id as one segment of a path."""
    if not isinstance(value, str):
        raise TypeError(f"an id must be a str, not {type(value).__name__}")
    if value in ("", ".", ".."):
        raise ValueError(f"{value!r} is not an id")
    return quote(value, safe="")


def any_of(values: object) -> object:
    """Return the values of a filter as a list. A text is one value."""
    if isinstance(values, NotGiven):
        return values
    if isinstance(values, str):
        return [values]
    if isinstance(values, (bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(f"a filter cannot be a {type(values).__name__}")
    return list(values)


def query_string(parameters: Mapping[str, object]) -> str:
    """Return the query of a URL, with its question mark unless it is empty."""
    pairs = []
    for name, value in parameters.items():
        if isinstance(value, NotGiven):
            continue
        if value is None:
            raise TypeError(f"{name} must not be None; leave it out")
        for text in _texts(name, value):
            pairs.append(f"{quote(name, safe='')}={quote(text, safe='')}")
    return "?" + "&".join(pairs) if pairs else ""


def _texts(name: str, value: object) -> Iterable[str]:
    if not isinstance(value, list):
        return [_text(name, value)]
    texts = [_text(name, item) for item in value]
    if name.endswith("[]"):
        return texts
    for text in texts:
        if "," in text:
            raise ValueError(f"a value of {name} must not have a comma: {text!r}")
    return [",".join(texts)] if texts else []


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (int, float)):
        return json.dumps(value, allow_nan=False)
    raise TypeError(f"a value of {name} cannot be a {type(value).__name__}")


def rfc3339(value: datetime) -> str:
    """Return a time in UTC with milliseconds, the server's precision, as RFC 3339."""
    if value.utcoffset() is None:
        raise ValueError(f"{value!r} has no time zone; use datetime.now(timezone.utc) or tzinfo")
    try:
        value = value.astimezone(timezone.utc)
    except OverflowError:
        raise ValueError(f"{value!r} is outside of the years 1 to 9999") from None
    return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(?:\.(\d+))?([Zz]|[+-]\d{2}:\d{2})",
    re.ASCII,
)


def parse_time(text: str) -> datetime:
    """Return an RFC 3339 time. Digits beyond microseconds are cut off."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not an RFC 3339 time")
    day, clock, fraction, zone = match.groups()
    micros = (fraction or "")[:6].ljust(6, "0")
    zone = "+00:00" if zone in "Zz" else zone
    return datetime.fromisoformat(f"{day}T{clock}.{micros}{zone}")


def given(members: Mapping[str, object]) -> dict[str, object]:
    """Return the members that are not NOT_GIVEN."""
    return {k: v for k, v in members.items() if not isinstance(v, NotGiven)}


def encode_json(value: object) -> bytes:
    """Return a value as JSON in UTF-8."""
    return json.dumps(
        value,
        default=_plain,
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    ).encode()


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, NotGiven):
        raise TypeError("NOT_GIVEN cannot be part of a value; leave the member out")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    raise TypeError(f"a {type(value).__name__} cannot be sent as JSON")


def decode_json(text: bytes) -> Any:
    """Parse JSON in UTF-8. Raises ValueError for anything else."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(text.decode("utf-8"), parse_constant=refuse)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


_VISIBLE = re.compile(r"[\x21-\x7e]+")
_PRINTABLE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


def is_visible(value: str) -> bool:
    """Report whether a text is one or more visible ASCII characters."""
    return _VISIBLE.fullmatch(value) is not None


def header_value(name: str, value: object) -> str:
    """Return the value of a header. The error does not have the value."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if _PRINTABLE.fullmatch(value) is None:
        raise ValueError(f"{name} must be one or more printable ASCII characters")
    return value
