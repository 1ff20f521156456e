"""Files to send with a message."""

from __future__ import annotations

import base64
import mimetypes
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .helpdesk import MessageAttachmentInput


def attachment(
    file: str | os.PathLike[str] | bytes,
    name: str | None = None,
    content_type: str | None = None,
) -> MessageAttachmentInput:
    """Return a file for the attachments of a message.

    Args:
        file: The path of a file, or its bytes.
        name: The file's name. Required with bytes; otherwise the name in the path.
        content_type: The media type. Default: that of the name's extension, if any.
    """
    if isinstance(file, (bytes, bytearray, memoryview)):
        content = bytes(file)
        if not name:
            raise ValueError("bytes need a name")
    else:
        path = Path(file)
        content, name = path.read_bytes(), name or path.name
    made: MessageAttachmentInput = {
        "name": name,
        "content": base64.b64encode(content).decode(),
    }
    content_type = content_type or mimetypes.guess_type(name)[0]
    if content_type is not None:
        made["content_type"] = content_type
    return made
