"""Records: dataclasses made from JSON."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import field, fields
from datetime import date, datetime
from typing import Any, TypeVar, Union

from ._errors import KickstandError
from ._values import parse_time, rfc3339

R = TypeVar("R", bound="Record")


class Record:
    """Base class of the records in answers.

    Members that this version of the package does not have are in ``to_dict()`` only. An
    enum may have values that its type does not list: the server adds some over time.
    """

    __slots__ = ("_etag", "_raw")

    @property
    def etag(self) -> str:
        """The ETag of the answer, for ``if_match`` and ``if_none_match``.

        Raises KickstandError for a record that has none, such as one of a list.
        """
        value = getattr(self, "_etag", None)
        if not isinstance(value, str):
            raise KickstandError("The answer with this record had no ETag; get it.")
        return value

    def to_dict(self) -> dict[str, Any]:
        """Return the record as the server sent it: times as text, unknown members too."""
        raw = getattr(self, "_raw", None)
        if raw is None:
            raw = {_name(f): getattr(self, f.name) for f in fields(self)}
        copied: dict[str, Any] = _plain(raw)
        return copied

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _restore, (type(self), self.to_dict(), getattr(self, "_etag", None))


def member(name: str) -> Any:
    """Return a field whose name on the wire is not a name of Python."""
    return field(metadata={"name": name})


def secret() -> Any:
    """Return a field that is not part of the repr."""
    return field(repr=False)


def _name(f: Any) -> str:
    name: str = f.metadata.get("name", f.name)
    return name


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, date):
        return value.isoformat()
    return value


def _restore(of: type[R], raw: dict[str, Any], etag: str | None) -> R:
    return decode(of, raw, etag)


def decode(of: type[R], raw: object, etag: str | None = None) -> R:
    """Return the record of a JSON object. An absent member is None."""
    if not isinstance(raw, dict):
        raise KickstandError(f"The answer is not a {of.__name__}.")
    try:
        record = of(
            **{
                attribute: convert(raw.get(name)) if convert else raw.get(name)
                for attribute, name, convert in _members(of)
            }
        )
    except ValueError as error:
        raise KickstandError(f"The answer has a wrong {of.__name__}: {error}") from None
    object.__setattr__(record, "_raw", raw)
    object.__setattr__(record, "_etag", etag)
    return record


Converter = Callable[[Any], Any]


_MEMBERS: dict[type[Record], list[tuple[str, str, Converter | None]]] = {}


def _members(of: type[Record]) -> list[tuple[str, str, Converter | None]]:
    """Return attribute, name on the wire, and converter of each member."""
    members = _MEMBERS.get(of)
    if members is None:
        hints = typing.get_type_hints(of)
        members = [(f.name, _name(f), _converter(hints[f.name])) for f in fields(of)]
        _MEMBERS[of] = members
    return members


def _converter(hint: Any) -> Converter | None:
    """Return the function from JSON to a type; None if JSON has the type already.

    Values of another type, such as null, stay as they are.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        others = [_converter(a) for a in args if a is not type(None)]
        return others[0] if len(others) == 1 else None
    if origin is list and (item := _converter(args[0])):
        return _list_converter(item)
    if origin is dict and (item := _converter(args[1])):
        return _dict_converter(item)
    if not isinstance(hint, type):
        return None
    if issubclass(hint, Record):
        return _record_converter(hint)
    if hint is datetime:
        return lambda v: parse_time(v) if isinstance(v, str) else v
    if hint is date:
        return lambda v: date.fromisoformat(v) if isinstance(v, str) else v
    return None


def _list_converter(item: Converter) -> Converter:
    return lambda v: [item(i) for i in v] if isinstance(v, list) else v


def _dict_converter(item: Converter) -> Converter:
    return lambda v: {k: item(i) for k, i in v.items()} if isinstance(v, dict) else v


def _record_converter(of: type[Record]) -> Converter:
    return lambda v: decode(of, v) if isinstance(v, dict) else v
