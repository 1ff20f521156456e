"""Verification of the deliveries of webhooks.

Pass the body as the bytes that were received, before any parsing.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, overload

from ._errors import KickstandError, SignatureError
from ._records import decode
from ._values import decode_json

if TYPE_CHECKING:
    from .fleet.events import AnyFleetEvent
    from .helpdesk.events import AnyEvent

TOLERANCE = 300.0
"""Seconds by which a delivery's timestamp may differ from the receiver's clock."""


class Headers(Protocol):
    """The headers of a request: a dict, or the object of a web framework."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return names and values."""
        ...


@overload
def verify(
    body: bytes,
    headers: Headers,
    secret: str | Iterable[str],
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
    source: Literal["helpdesk"] = "helpdesk",
) -> AnyEvent:
    ...


@overload
def verify(
    body: bytes,
    headers: Headers,
    secret: str | Iterable[str],
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
    source: Literal["fleet", "sandbox"],
) -> AnyFleetEvent:
    ...


def verify(
    body: bytes,
    headers: Headers,
    secret: str | Iterable[str],
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
    source: Literal["helpdesk", "fleet", "sandbox"] = "helpdesk",
) -> AnyEvent | AnyFleetEvent:
    """Verify a delivery by the headers of Standard Webhooks and return its event.

    Args:
        body: The body as received.
        headers: The headers; the case of names does not matter.
        secret: The webhook's secret, or several while it is replaced.
        tolerance: Accepted difference in seconds between the delivery's timestamp and now.
        now: The receiver's time in seconds since 1970. Default: the clock.
        source: The source of the webhook. It decides the class of the event: the helpdesk and
            the fleet both have an event customer.created.

    Raises:
        SignatureError: The delivery is not signed with the secret, or is too old.
    """
    _check(source)
    keys = [_standard_key(s) for s in _secrets(secret)]
    found = _lower(headers)
    event_id = found.get("webhook-id", "")
    timestamp = found.get("webhook-timestamp", "")
    signatures = found.get("webhook-signature", "")
    if not event_id or not timestamp or not signatures:
        raise SignatureError("The delivery is not signed.", "unsigned")
    signed = f"{event_id}.{timestamp}.".encode("utf-8", "surrogatepass") + _bytes(body)
    wanted = [b"v1," + base64.b64encode(_mac(key, signed)) for key in keys]
    if not _matches(signatures.split(), wanted) or not _SECONDS.fullmatch(timestamp):
        raise _mismatch()
    if abs(int(time.time() if now is None else now) - int(timestamp)) > tolerance:
        raise SignatureError(
            f"The delivery's timestamp is more than {tolerance:g} seconds off.",
            "timestamp",
        )
    return _event(body, event_id, source)


@overload
def verify_body(
    body: bytes,
    headers: Headers,
    secret: str | Iterable[str],
    form: Literal["a", "b"],
    *,
    source: Literal["helpdesk"] = "helpdesk",
) -> AnyEvent:
    ...


@overload
def verify_body(
    body: bytes,
    headers: Headers,
    secret: str | Iterable[str],
    form: Literal["a", "b"],
    *,
    source: Literal["fleet", "sandbox"],
) -> AnyFleetEvent:
    ...


def verify_body(
    body: bytes,
    headers: Headers,
    secret: str | Iterable[str],
    form: Literal["a", "b"],
    *,
    source: Literal["helpdesk", "fleet", "sandbox"] = "helpdesk",
) -> AnyEvent | AnyFleetEvent:
    """Verify a delivery by X-Service-Signature and return its event.

    Prefer ``verify``: this header has no timestamp, so a recorded delivery is accepted at
    any time.

    Args:
        body: The body as received.
        headers: The headers; the case of names does not matter.
        secret: The webhook's secret, or several while it is replaced.
        form: The payload form of the webhook. The fleet has form b only.
        source: The source of the webhook, as of ``verify``.

    Raises:
        SignatureError: The delivery is not signed with the secret.
    """
    if form not in ("a", "b"):
        raise ValueError('form must be "a" or "b"')
    _check(source)
    keys = [s.encode() for s in _secrets(secret)]
    found = _lower(headers)
    signature = found.get("x-service-signature", "")
    if not signature:
        raise SignatureError("The delivery is not signed.", "unsigned")
    prefix = "sha256=" if form == "b" else ""
    wanted = [(prefix + _mac(key, _bytes(body)).hex()).encode() for key in keys]
    if not _matches([signature], wanted):
        raise _mismatch()
    return _event(body, found.get("webhook-id", ""), source)


_SECONDS = re.compile(r"[0-9]{1,15}")


def _mismatch() -> SignatureError:
    message = "The signature does not match the body and the secret."
    return SignatureError(message, "signature")


def _check(source: str) -> None:
    if source not in ("helpdesk", "fleet", "sandbox"):
        raise ValueError('source must be "helpdesk", "fleet" or "sandbox"')


def _lower(headers: Headers) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _bytes(body: object) -> bytes:
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise TypeError("body must be bytes, as they were received")
    return bytes(body)


def _secrets(secret: str | Iterable[str]) -> list[str]:
    secrets = [secret] if isinstance(secret, str) else list(secret)
    if not secrets or not all(secrets):
        raise ValueError("the secret of the webhook is empty")
    return secrets


def _standard_key(secret: str) -> bytes:
    """Return the key of Standard Webhooks: base64 after whsec_, else the secret's bytes."""
    if not secret.startswith("whsec_"):
        return secret.encode()
    encoded = secret[len("whsec_") :].rstrip("=")
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return secret.encode()
    if not key:
        raise ValueError("the secret of the webhook is empty")
    return key


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _matches(signatures: list[str], wanted: list[bytes]) -> bool:
    """Report whether any signature is wanted. The duration depends on their number only."""
    matched = False
    for signature in signatures:
        text = signature.encode("utf-8", "surrogatepass")
        for want in wanted:
            matched |= hmac.compare_digest(text, want)
    return matched


def _event(body: bytes, header_id: str, source: str) -> AnyEvent | AnyFleetEvent:
    from .helpdesk import events as helpdesk

    try:
        raw: Any = decode_json(bytes(body))
    except ValueError:
        raw = None
    if not isinstance(raw, dict) or not isinstance(raw.get("event"), str):
        raise KickstandError("The delivery is signed, but is not an event.")
    if source != "helpdesk":
        from .fleet import events as fleet

        known = fleet.EVENTS.get(raw["event"], helpdesk.UnknownEvent)
        return cast("AnyFleetEvent", decode(known, raw))
    if "created_at" not in raw and "timestamp" in raw:
        return decode(helpdesk.FlatEvent, {**raw, "id": header_id})
    of = helpdesk.EVENTS.get(raw["event"], helpdesk.UnknownEvent)
    return cast("AnyEvent", decode(of, raw))
