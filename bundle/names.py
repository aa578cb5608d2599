"""Names of files in a bundle: relative, below the folder that it is unpacked into, and each once."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from itertools import pairwise

from ..logformat.rundir import LOG_SUFFIX

MAX_NAME = 4096
"""Bytes of a whole name, as Linux limits a path."""
MAX_PART = 255
"""Bytes between two slashes, as nearly all file systems limit them."""
MAX_PARTS = 128
"""Parts of a name: more than a tree of runs has, and fewer than a system's calls get lost in."""
PART_PREFIX = ".runferry-part-"
"""Of the name of a file that is not whole yet."""
_SIDE = tuple(f"{LOG_SUFFIX}.{kind}" for kind in ("alive", "cursor", "lock", "synced", "syncstate"))
_DEVICES = frozenset({"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)})


def why_unsafe(name: str, *, windows: bool = False) -> str:
    """Why no file may get this name, empty if one may; `windows`: on its file systems, whose names say more."""
    if not name or "\0" in name:
        return "not a file name"
    if name.startswith("/"):
        return "an absolute name"
    parts = name.split("/")
    if ".." in parts:
        return "it leads out of the folder"
    if "" in parts or "." in parts:
        return "not a plain name"
    try:
        lengths = [len(part.encode("utf-8", "surrogateescape")) for part in parts]
    except UnicodeEncodeError:
        return "not a file name"
    if max(lengths) > MAX_PART or sum(lengths) + len(parts) > MAX_NAME or len(parts) > MAX_PARTS:
        return "the name is too long"
    if windows and any(_is_special(part) for part in parts):
        return "Windows has no such file names"
    return ""


def is_side_file(name: str) -> bool:
    """Whether a file of this name is a lock, cursor or marker beside a log; below `files/` it is what the user saved."""
    *above, last = name.casefold().split("/")
    return "files" not in above and any(mark in last for mark in _SIDE)


def why_no_data(name: str) -> str:
    """Why a file of this name is in no bundle, if it is one that commands leave where they work; empty for all others."""
    if name.rpartition("/")[2].casefold().startswith(PART_PREFIX):
        return "a file that an interrupted call left"
    if is_side_file(name):
        return "it speaks of a process, or of what a server has, and not of the run"
    return ""


def _is_special(part: str) -> bool:
    return (
        any(char in '<>:"\\|?*' or char < " " for char in part)
        or part[-1] in ". "
        or part.partition(".")[0].rstrip().casefold() in _DEVICES
    )


def folded(name: str) -> str:
    """What two names have in common that are one on file systems of Macs and Windows."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def clash(names: Iterable[str]) -> str:
    """A name that is there twice, or is a file and a folder; empty if there is none."""
    ordered = sorted(name.replace("/", "\0") for name in names)  # what lies in a folder stands right behind its name
    for name, after in pairwise(ordered):
        if after == name or after.startswith(name + "\0"):
            return name.replace("\0", "/")
    return ""
