"""Text of logs as HTML and SVG: whatever it holds, it is shown, and never obeyed."""

from __future__ import annotations

import re
from html import escape

_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls; tab and newline are text
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"  # what is not seen, or turns the order of characters
    "\u2028\u2029\ufeff\ufff9-\uffff\ud800-\udfff\U000e0000-\U000e0fff]"  # line ends of other kinds, no characters, tags
)


def text(value: str, limit: int = 0) -> str:
    """`value` for the text or a quoted attribute of an element; what a browser would hide or obey is written as an escape.

    Of more than `limit` characters (0: any number) the rest is left out, and how many there are is said.
    """
    if limit and len(value) > limit:
        return f"{text(value[:limit])}… ({len(value):,} characters in all)"
    if not value.isprintable():
        value = _UNSHOWN.sub(_escaped, value)
    return escape(value)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
