"""Settings files: where they are, and what stands in them. They are read, never written.

The peer's format: `key = value` below `[default]`, full-line comments, further lines of a value indented. What
`[DEFAULT]` holds counts where `[default]` has nothing. Nothing here raises: a training must not end by a stray line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from .bounded import read_bounded

MAX_BYTES = 1 << 20
"""A settings file is a handful of lines; what is larger is something else."""

_SECTION, _FALLBACK = "default", "DEFAULT"


class Line(NamedTuple):
    """A value and the number of the line that its key stands in."""

    value: str
    number: int


class SettingsFile(NamedTuple):
    """What one file says."""

    path: Path
    values: dict[str, Line]
    problem: str
    """What is wrong with it, with its place; empty if nothing is."""


def workspace_files(root: Path) -> Iterator[Path]:
    """The files beside the runs, the strongest first."""
    for name in ("runferry", "wandb"):
        hidden = root / f".{name}"
        yield (hidden if os.path.isdir(hidden) else root / name) / "settings"  # noqa: PTH112 - it raises for nothing


def user_files(environ: Mapping[str, str], home: Path | None) -> Iterator[Path]:
    """The files of the user, the strongest first. The peer's stands where the peer looks for it."""
    base = Path(environ["XDG_CONFIG_HOME"]) if environ.get("XDG_CONFIG_HOME") else home and home / ".config"
    for name, folder in (("runferry", base), ("wandb", home and home / ".config")):
        chosen = environ.get(f"{name.upper()}_CONFIG_DIR")
        if chosen:
            yield Path(os.path.expanduser(chosen)) / "settings"  # noqa: PTH111 - it raises for nothing
        elif folder is not None:
            yield folder / name / "settings"


def read_settings_file(path: Path) -> SettingsFile | None:
    """What `path` says; None if there is no such file."""
    try:
        content = read_bounded(path, MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return SettingsFile(path, {}, f"{path}: this settings file is ignored: {why}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return SettingsFile(path, {}, _not_text(path, content, error.start))
    if "\0" in text:
        return SettingsFile(path, {}, _not_text(path, content, content.index(b"\0")))
    return _parsed(path, text)


def _not_text(path: Path, content: bytes, offset: int) -> str:
    line = content.count(b"\n", 0, offset) + 1
    return f"{path}:{line}: this settings file is ignored: it is no UTF-8 text"


def _parsed(path: Path, text: str) -> SettingsFile:
    found: dict[str, dict[str, tuple[int, list[str]]]] = {_SECTION: {}, _FALLBACK: {}}  # line and parts of each value
    section: str | None = None
    parts: list[str] | None = None  # of the value that an indented line continues
    margin = 0
    wrong: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped and parts is not None:
            parts.append("")  # within a value; after it, it is cut off
        if not stripped or stripped[0] in "#;":
            continue
        indent = len(line) - len(line.lstrip())
        if parts is not None and indent > margin:
            parts.append(stripped)
            continue
        parts = None
        if stripped[0] == "[" and "]" in stripped:
            section = stripped[1 : stripped.index("]")]
            continue
        at = min((place for mark in "=:" if (place := stripped.find(mark)) >= 0), default=0)
        key = stripped[:at].strip().lower()
        if section is None or not key:
            wrong.append(number)
            continue
        parts, margin = [stripped[at + 1 :].strip()], indent
        if section in found:
            found[section][key] = (number, parts)
    problem = ""
    if wrong:
        more = f" (as {len(wrong) - 1} more)" if wrong[1:] else ""
        problem = f"{path}:{wrong[0]}: this line{more} is ignored: it is no `key = value` below [{_SECTION}]"
    values = {
        key: Line("\n".join(parts).strip().replace("%%", "%"), number)
        for key, (number, parts) in {**found[_FALLBACK], **found[_SECTION]}.items()
    }
    return SettingsFile(path, values, problem)
