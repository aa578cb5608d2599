"""What is installed in this interpreter, as pip names it.

The library's own way parses whole messages, which costs a run's first moments a hundred milliseconds; two lines at the
beginning of a file say all that is asked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_METADATA = {".dist-info": "METADATA", ".egg-info": "PKG-INFO"}
_MAX_HEADER_LINES = 200


def requirements(folders: Iterable[str] | None = None) -> bytes:
    """One `name==version` per line, sorted. Of a package that is there twice, the one that is imported.

    Args:
        folders: where packages lie; `sys.path` unless given.
    """
    found: dict[str, str] = {}
    for folder in sys.path if folders is None else folders:
        for name, version in _installed(folder or "."):
            found.setdefault(name.lower().replace("_", "-"), f"{name}=={version}\n")
    return "".join(found[key] for key in sorted(found)).encode("utf-8", "replace")


def _installed(folder: str) -> Iterator[tuple[str, str]]:
    try:
        entries = sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
    except OSError:
        return  # an archive, or nothing
    for entry in entries:
        kind = os.path.splitext(entry)[1]  # noqa: PTH122 - a name, not a path
        if kind in _METADATA:
            path = Path(folder, entry)
            name, version = _header(path / _METADATA[kind] if os.path.isdir(path) else path)  # noqa: PTH112 - raises nothing
            if name and version:
                yield name, version


def _header(path: Path) -> tuple[str, str]:
    """The fields `Name` and `Version` of a package's description; empty where it has none."""
    fields = {"Name": "", "Version": ""}
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for _, line in zip(range(_MAX_HEADER_LINES), file, strict=False):
                key, colon, value = line.partition(":")
                if not colon and not line.strip():
                    break  # the text begins
                if key in fields:
                    fields[key] = value.strip()
                    if all(fields.values()):
                        break
    except OSError:
        return "", ""
    return fields["Name"], fields["Version"]
