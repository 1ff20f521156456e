"""Client of the Kickstand APIs: the helpdesk and the fleet.

    from kickstand import Helpdesk

    client = Helpdesk()  # KICKSTAND_URL and KICKSTAND_KEY
    for ticket in client.tickets.list(status=["open"]):
        print(ticket.number, ticket.subject)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._errors import (
    APIConnectionError,
    APITimeoutError,
    FieldError,
    KickstandError,
    ProblemError,
    SignatureError,
)
from ._values import NOT_GIVEN, NotGiven
from ._version import __version__

if TYPE_CHECKING:
    from ._attachment import attachment
    from ._core import CallOptions, RateLimit, ResponseInfo
    from ._http import HTTPTransport
    from ._pages import Page
    from ._records import Record
    from ._streams import Download, Export, Import, ImportLine, ImportSummary
    from ._transport import Request, Response, Transport
    from .fleet import Fleet
    from .helpdesk import Helpdesk

__all__ = [
    "NOT_GIVEN",
    "APIConnectionError",
    "APITimeoutError",
    "CallOptions",
    "Download",
    "Export",
    "FieldError",
    "Fleet",
    "HTTPTransport",
    "Helpdesk",
    "Import",
    "ImportLine",
    "ImportSummary",
    "KickstandError",
    "NotGiven",
    "Page",
    "ProblemError",
    "RateLimit",
    "Record",
    "Request",
    "Response",
    "ResponseInfo",
    "SignatureError",
    "Transport",
    "__version__",
    "attachment",
]

# The modules of these names are imported when a name is first used: a receiver of webhooks
# needs none of them, and a program rarely both APIs.
_MODULES = {
    "CallOptions": "_core",
    "Download": "_streams",
    "Export": "_streams",
    "Fleet": "fleet",
    "HTTPTransport": "_http",
    "Helpdesk": "helpdesk",
    "Import": "_streams",
    "ImportLine": "_streams",
    "ImportSummary": "_streams",
    "Page": "_pages",
    "RateLimit": "_core",
    "Record": "_records",
    "Request": "_transport",
    "Response": "_transport",
    "ResponseInfo": "_core",
    "Transport": "_transport",
    "attachment": "_attachment",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value
