"""Mounts of a process, and the block devices behind paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .context import Context

_ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))
_LEAST_FIELDS = (5, 3)  # before and after the " - " of a mountinfo line, see proc(5)
_VIRTUAL_DEVICES = ("loop", "ram", "zram", "dm-", "md")  # memory, or counted again on the disks below them


class Mount(NamedTuple):
    """One line of mountinfo: `device` is major:minor, `root` the folder of the file system that is mounted."""

    device: str
    root: str
    point: str
    kind: str
    options: tuple[str, ...]


def _unescape(text: str) -> str:
    for code, character in _ESCAPES:
        text = text.replace(code, character)
    return text


def read_mounts(ctx: Context, pid: int | str) -> list[Mount]:
    """The mounts that process `pid` sees, in mount order."""
    mounts = []
    for line in (ctx.read(f"/proc/{pid}/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) >= _LEAST_FIELDS[0] and len(kinds) >= _LEAST_FIELDS[1]:
            options = tuple(kinds[2].split(","))
            mounts.append(Mount(fields[2], _unescape(fields[3]), _unescape(fields[4]), kinds[0], options))
    return mounts


def is_below(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies in it, by whole names (`/home2` is not below `/home`)."""
    folder = folder.rstrip("/")
    return path == folder or path.startswith(folder + "/") or not folder


def mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    """The mount that serves `path`: the longest mount point above it, the last mounted where several cover it."""
    best = None
    for mount in mounts:
        if is_below(path, mount.point) and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def disk_of(ctx: Context, device: str) -> str | None:
    """The disk that holds block device `major:minor`: `8:1` -> `sda`. None where there is none (overlay, NFS)."""
    target = ctx.link(f"/sys/dev/block/{device}")
    if target is None:
        return None
    *_, parent, name = ["", "", *target.split("/")]
    return parent if ctx.exists(f"/sys/dev/block/{device}/partition") else name


def whole_disks(ctx: Context, names: list[str]) -> list[str]:
    """Those of the devices `names` that are disks: no partitions, nothing that is memory or stacked on other disks."""
    return [
        name
        for name in names
        if not name.startswith(_VIRTUAL_DEVICES) and not ctx.exists(f"/sys/class/block/{name}/partition")
    ]
