"""The errors of this package. All of them are subclasses of KickstandError."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class KickstandError(Exception):
    """Base class of every error that a request or a verification raises.

    Arguments that cannot be sent, such as an empty id, raise ValueError or TypeError
    before a request is made.
    """


class APIConnectionError(KickstandError):
    """The server could not be reached, or its answer did not arrive completely."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class APITimeoutError(APIConnectionError):
    """The answer did not arrive within the timeout of an attempt."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One invalid part of a request."""

    code: str
    detail: str
    pointer: str | None = None
    """JSON pointer of a member of the body, such as ``#/customer/email``."""
    parameter: str | None = None
    """Name of a parameter of the query or the path."""
    header: str | None = None


class ProblemError(KickstandError):
    """The server refused a request (RFC 9457).

    Attributes:
        status: The HTTP status.
        code: The code for programs, such as ``not_found`` (see ``kickstand.codes``).
            Empty if the answer was not a problem document, such as a proxy's page.
        title: The meaning of the code.
        detail: The explanation for people.
        type: URL of a page about the code.
        request_id: Id of the request, also in the server's log. Empty without one.
        errors: The invalid parts of the request.
        retry_after: Seconds after which the request may succeed, or None.
        raw: The whole document, with members that only some codes have.
    """

    def __init__(
        self,
        status: int,
        document: Mapping[str, Any],
        *,
        request_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        def text(name: str) -> str:
            value = document.get(name)
            return value if isinstance(value, str) else ""

        self.status = status
        self.code = text("code")
        self.title = text("title")
        self.detail = text("detail") or self.title
        self.type = text("type")
        self.request_id = text("request_id") or request_id
        self.errors = _field_errors(document.get("errors"))
        self.retry_after = retry_after
        self.raw = dict(document)
        super().__init__(self.detail)

    def __str__(self) -> str:
        parts = [self.code] if self.code else []
        if self.request_id:
            parts.append(f"request {self.request_id}")
        return f"{self.detail} ({', '.join(parts)})" if parts else self.detail

    def __reduce__(self) -> tuple[Any, ...]:
        return _problem, (self.status, self.raw, self.request_id, self.retry_after)


def _problem(
    status: int,
    document: Mapping[str, Any],
    request_id: str,
    retry_after: float | None,
) -> ProblemError:
    return ProblemError(status, document, request_id=request_id, retry_after=retry_after)


def _field_errors(value: object) -> list[FieldError]:
    if not isinstance(value, list):
        return []
    return [
        FieldError(
            code=str(item.get("code", "")),
            detail=str(item.get("detail", "")),
            pointer=item.get("pointer"),
            parameter=item.get("parameter"),
            header=item.get("header"),
        )
        for item in value
        if isinstance(item, dict)
    ]


class SignatureError(KickstandError):
    """A delivery of a webhook is not signed with the secret, or is too old.

    Attributes:
        reason: ``unsigned``, ``signature`` or ``timestamp``.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message, reason)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])
