"""JSON as the protocol takes it: compact, non-ASCII as it is, NaN and Infinity bare."""

from __future__ import annotations

import json
from typing import Any


def compact(value: Any) -> str:
    """`value` as JSON text that can be encoded: an unpaired surrogate stays the escape that it was in the log."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if _is_encodable(text) else json.dumps(value, separators=(",", ":"))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
