"""Helpers for the tests of receivers of webhooks."""

from __future__ import annotations

import base64
import time
from typing import Literal

from .webhooks import _mac, _standard_key


def sign(
    body: bytes,
    secret: str,
    *,
    id: str = "01985ec5-8a60-7000-8000-000000000000",
    timestamp: float | None = None,
    form: Literal["a", "b"] = "b",
) -> dict[str, str]:
    """Return the headers with which the server signs a delivery.

    Args:
        body: The body of the delivery.
        secret: The webhook's secret.
        id: Id of the event.
        timestamp: Time of the delivery in seconds since 1970. Default: now.
        form: The payload form, for X-Service-Signature.
    """
    seconds = str(int(time.time() if timestamp is None else timestamp))
    signed = f"{id}.{seconds}.".encode() + body
    own = _mac(secret.encode(), body).hex()
    return {
        "Content-Type": "application/json",
        "Webhook-Id": id,
        "Webhook-Timestamp": seconds,
        "Webhook-Signature": "v1," + base64.b64encode(_mac(_standard_key(secret), signed)).decode(),
        "X-Service-Signature": f"sha256={own}" if form == "b" else own,
    }
