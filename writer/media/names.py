"""Names of media's files, made from keys: whatever the key is, the file lies below the run's folder."""

from __future__ import annotations

import os
import re

from ..encoding import utf8

MAX_COMPONENT_BYTES = 255
"""Of one name: what the usual file systems take."""
MAX_KEY_BYTES = 1024
"""Of a key's part in a path; a longer key is cut. Paths beyond 4 KiB cannot be opened."""
SHOWN_DIGITS = 20
"""Of the content's SHA-256, in its file's name."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NOT_ON_WINDOWS = re.compile(r'[\\:*?"<>|]|[. ](?=/|$)')
_DEVICES = re.compile(r"(?:(?<=/)|^)(con|prn|aux|nul|com\d|lpt\d)(?=[./]|$)", re.IGNORECASE)


def file_name(key: str, step: str, sha256: str, extension: str) -> str:
    """`<key>_<step>_<first 20 digits of the hash><extension>`; slashes in the key become folders.

    Leading slashes go, `.` and `..` become underscores (the peer's rules), and so do control characters; a name that
    no file system takes is cut. The hash keeps apart what becomes the same.
    """
    *folders, last = safe_key(key).split("/")
    rest = f"_{step}_{sha256[:SHOWN_DIGITS]}{extension}"
    return "/".join([*folders, _cut(last, MAX_COMPONENT_BYTES - len(utf8(rest))) + rest])


def safe_key(key: str, windows: bool = os.name == "nt") -> str:
    """The key as a relative path that leads nowhere else; the key itself where it is one."""
    text = _CONTROL.sub("_", _cut(utf8(key).decode(), MAX_KEY_BYTES))
    if windows:
        text = _DEVICES.sub(r"\1_", _NOT_ON_WINDOWS.sub("_", text))
    *folders, last = (_cut(_safe(name), MAX_COMPONENT_BYTES) for name in text.split("/"))
    return "/".join([*filter(None, folders), last])


def _safe(name: str) -> str:
    if name in {".", ".."}:
        return name.replace(".", "_")
    return name.replace("\\", "_") if ".." in name.split("\\") else name


def _cut(text: str, size: int) -> str:
    data = text.encode()
    return text if len(data) <= size else data[:size].decode(errors="ignore")
