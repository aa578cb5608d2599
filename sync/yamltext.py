"""A tree of JSON values as YAML text that any reader (1.1 or 1.2) gives back unchanged. Writing only, and no more of YAML."""

from __future__ import annotations

import json
import math
import re
from typing import Any

# Plain only where no reader could see anything but this text: no digit first, no indicator, no colon, no reserved word.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_/.+-]*\Z")
_RESERVED = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"}
# YAML's printable set is smaller than JSON's: C1 controls, DEL, the byte order mark and lone surrogates are escaped.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
_INDENT = "    "


def dump(tree: dict[str, Any]) -> str:
    """Block-style YAML of `tree`, keys in the tree's order, four spaces a level."""
    if not tree:
        return "{}\n"
    out: list[str] = []
    _mapping(tree, "", out)
    return "".join(out)


def _mapping(tree: dict[str, Any], indent: str, out: list[str]) -> None:
    for key, value in tree.items():
        out.append(f"{indent}{_text(str(key))}:")
        _value(value, indent + _INDENT, out)


def _value(value: Any, indent: str, out: list[str]) -> None:
    """What follows `key:` or `-`."""
    if isinstance(value, dict) and value:
        out.append("\n")
        _mapping(value, indent, out)
    elif isinstance(value, (list, tuple)) and value:
        out.append("\n")
        for item in value:
            out.append(f"{indent}-")
            _value(item, indent + _INDENT, out)
    else:
        out.append(f" {_scalar(value)}\n")


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, (list, tuple)):
        return "[]"
    return _text(str(value))


def _float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    if "e" in text and "." not in text:  # YAML 1.1 reads 1e-05 as a text
        text = text.replace("e", ".0e")
    return text.replace("e", "e+") if "e" in text and text[text.index("e") + 1].isdigit() else text


def _text(text: str) -> str:
    if _PLAIN.match(text) and text.lower() not in _RESERVED:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
