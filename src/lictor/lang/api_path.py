"""Names as parts of a path of the Kubernetes API, so that none of them leads to another place."""

import re
from urllib.parse import quote

from lictor.errors import ApiError

# What nearly all names are made of; others are looked at more closely.
_PLAIN = re.compile(r"[A-Za-z0-9_:-][A-Za-z0-9_.:-]*")


def escape_segment(text: str) -> str:
    """One part of a path. What Kubernetes would not take for a name is refused with ApiError."""
    if _PLAIN.fullmatch(text):
        return text
    # The API server undoes percent signs before it splits a path: an escaped slash is a slash.
    if text in ("", ".", "..") or "/" in text or "%" in text or not text.isprintable():
        raise ApiError(
            f"{text!r} is no name: it must not be empty, . or .., nor hold / or %", status=400
        )
    return quote(text, safe=":@~")
