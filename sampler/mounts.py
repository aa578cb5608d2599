"""Mounts of a process, and the block devices behind paths."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .context import Context

_ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))
_LEAST_FIELDS = (5, 3)  # before and after the " - " of a mountinfo line, see proc(5)
_VIRTUAL_DEVICES = ("loop", "ram", "zram", "dm-", "md")  # memory, or counted again on the disks below them
_REMOTE = ("nfs", "cifs", "smb", "lustre", "fuse", "ceph", "gpfs", "beegfs", "9p", "afs")  # may not answer
_MOST_LINKS = 40  # as in the kernel
_DEEPEST = 8  # devices on devices


class Mount(NamedTuple):
    """One line of mountinfo: `device` is major:minor, `root` the folder of the file system that is mounted."""

    device: str
    root: str
    point: str
    kind: str
    options: tuple[str, ...]
    source: str = ""  # a device's name, a server's export ...


def unescape(text: str) -> str:
    """A path as the kernel writes it in lists of mounts, without its escapes."""
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
            mounts.append(
                Mount(fields[2], unescape(fields[3]), unescape(fields[4]), kinds[0], options, unescape(kinds[1]))
            )
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


def real_path(ctx: Context, path: str, mounts: list[Mount]) -> str:
    """`path` without symbolic links, as far as they lie on disks: looking at a network file system could hang."""
    whole = posixpath.join("/", ctx.link("/proc/self/cwd") or "", path)
    done, left = "", [part for part in posixpath.normpath(whole).split("/") if part]
    for _ in range(_MOST_LINKS):
        while left:
            step = f"{done}/{left.pop(0)}"
            mount = mount_of(step, mounts)
            if mount is not None and (mount.kind.startswith(_REMOTE) or mount.kind == "autofs"):
                return "/".join((step, *left))
            target = ctx.link(step)
            if target is not None:
                joined = posixpath.normpath(posixpath.join(done or "/", target, *left))
                done, left = "", [part for part in joined.split("/") if part]
                break
            done = step
        else:
            return done or "/"
    return whole


def disks_of(ctx: Context, mount: Mount, names: Collection[str]) -> set[str]:
    """The disks among `names` that hold a mounted file system; empty where there are none (overlay, NFS)."""
    target = ctx.link(f"/sys/dev/block/{mount.device}")
    name = target.rpartition("/")[2] if target else ""
    if not name and mount.source.startswith("/dev/"):  # btrfs mounts have a device number of their own
        linked = ctx.link(mount.source)
        name = linked.rpartition("/")[2] if linked else mount.source.removeprefix("/dev/").replace("/", "!")
    return _bottom(ctx, name, names, depth=0) if name else set()


def _bottom(ctx: Context, name: str, names: Collection[str], depth: int) -> set[str]:
    """The disks below device `name`: `sda1` -> sda; those below a logical volume, a RAID or an encrypted device.

    Folders of /sys have `!` where names have `/`: `cciss!c0d0`.
    """
    itself = {name.replace("!", "/")} & set(names)
    if ctx.exists(f"/sys/class/block/{name}/partition"):
        parent = (ctx.link(f"/sys/class/block/{name}") or "").split("/")[-2:-1]
        return _bottom(ctx, parent[0], names, depth + 1) if parent and depth < _DEEPEST else itself
    below = ctx.list(f"/sys/class/block/{name}/slaves") if depth < _DEEPEST else []
    found: set[str] = set()
    for each in below:
        found |= _bottom(ctx, each, names, depth + 1)
    return found or itself  # a container may not see what a device is made of


def whole_disks(ctx: Context, names: Iterable[str]) -> set[str]:
    """Those of the devices `names` that are disks: no partitions, nothing that is memory or stacked on other disks."""
    return {
        name
        for name in names
        if not name.startswith(_VIRTUAL_DEVICES)
        and not ctx.exists(f"/sys/class/block/{name.replace('/', '!')}/partition")
    }
