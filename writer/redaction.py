"""Secrets out of a config before it is written. The rules are the sampler's; here is when they are needed."""

from __future__ import annotations

import re
from typing import Any

# The rules cost some milliseconds to load. They hide values by the name beside them, or by a token's shape, which has
# one of these signs: 16 letters and digits in a row, or an assignment, a header or a password in a URL.
_NAME_SIGN = re.compile(r"key|token|secret|pass|pwd|cred|auth|jwt|bearer", re.IGNORECASE)
_SHAPE_SIGN = re.compile(r"[A-Za-z0-9+/_-]{16}|[=@:]|\s")


def redact(name: str, value: Any) -> tuple[Any, int]:
    """The plain value of a config key without its secrets, and how many were taken out."""
    if isinstance(value, dict):
        return _each(value.items(), dict)
    if isinstance(value, list):
        return _each(((name, item) for item in value), list)
    if not isinstance(value, str) or not value:
        return value, 0
    if not _NAME_SIGN.search(name) and not _SHAPE_SIGN.search(value):
        return value, 0
    from ..sampler.redact import MARK, is_secret_name, redact_text

    if is_secret_name(name):
        return MARK, 1
    return redact_text(value, before=name)


def _each(pairs: Any, kind: type) -> tuple[Any, int]:
    done = [(key, *redact(str(key), item)) for key, item in pairs]
    count = sum(found for _, _, found in done)
    return ({key: item for key, item, _ in done} if kind is dict else [item for _, item, _ in done]), count
