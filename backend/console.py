"""Console lines as clients send them, taken apart."""

from __future__ import annotations

import json
import re
from typing import Any

# Shared runs have "[<label>] " before the text, which nothing tells from a text that begins so: it stays in the text.
_PLAIN = re.compile(r"(?P<level>ERROR )?(?P<time>\d{4}-\d\d-\d\dT[\d:.]+) (?P<text>.*)", re.DOTALL)


def console_line(number: int, text: str) -> dict[str, Any]:
    """`number timestamp level label line` of a line, whether it was sent as text or as JSON; the time as it was sent."""
    found = _PLAIN.fullmatch(text)
    if found is not None:
        return _node(number, found["text"], found["time"], "error" if found["level"] else None, None)
    if text.startswith("{"):
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, dict) and isinstance(value.get("content"), str):
            return _node(number, value["content"], value.get("ts"), value.get("level"), value.get("label"))
    return _node(number, text, None, None, None)


def _node(number: int, line: str, timestamp: Any, level: Any, label: Any) -> dict[str, Any]:
    return {"number": number, "timestamp": timestamp, "level": level or "info", "label": label, "line": line}
