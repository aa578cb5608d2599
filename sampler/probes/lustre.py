"""Lustre file systems, as this client sees them."""

from __future__ import annotations

from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Values
from ..rates import Rises
from ..tables import whole
from .extended import ExtendedProbe

_FOLDERS = ("/proc/fs/lustre/llite", "/sys/kernel/debug/lustre/llite")  # from 2.13 on in debugfs, for root only
_DATA = ("read_bytes", "write_bytes")
_METADATA = (
    *("open", "close", "create", "mknod", "link", "unlink", "symlink", "rename", "mkdir", "rmdir", "truncate"),
    *("getattr", "setattr", "getxattr", "setxattr", "listxattr", "removexattr", "readdir", "statfs", "flock"),
)
"""Calls that ask the metadata server. Others move data, ask nobody, or count such a call once more (opencount)."""
_KEYS = {"read_bytes": "readRate", "write_bytes": "writeRate"} | dict.fromkeys(_METADATA, "metadataRate")
_SUM = 6  # column: of a line `name 12000 samples [bytes] least most sum`


def _metric(key: str, unit: str, source: str, formula: str) -> Metric:
    source = f"{_FOLDERS[0]}/*/stats {source}"
    test = "tests/sampler/test_fabric.py::test_lustre_by_file_system"
    return Metric("lustre.{fs}." + key, unit, source, formula, Kind.INTERVAL, Origin.OURS, "extended", test)


def read_stats(text: str | None) -> dict[str, int]:
    """Bytes by `read_bytes`, `write_bytes`; the number of calls by any other name."""
    found = {}
    for line in (text or "").splitlines():
        fields = line.split()
        if len(fields) < 3 or fields[2] != "samples":
            continue
        column = _SUM if fields[0] in _DATA else 1
        number = whole(fields[column]) if len(fields) > column else None
        if number is not None:
            found[fields[0]] = number
    return found


class LustreProbe(ExtendedProbe):
    """`lustre.{fs}.readRate|writeRate|metadataRate`; several mounts of a file system are summed."""

    name = "lustre"
    source = _FOLDERS[0]
    metrics: ClassVar = (
        _metric("readRate", "bytes/s", "read_bytes", "rise of the sum / time"),
        _metric("writeRate", "bytes/s", "write_bytes", "rise of the sum / time"),
        _metric("metadataRate", "1/s", "open, close, getattr ...", "calls / time"),
    )

    def __init__(self) -> None:
        self._rises = Rises[tuple[str, str]]()

    def discover(self, ctx: Context) -> str | None:
        """Older and newer versions tell at different places."""
        reason = super().discover(ctx)
        return None if ctx.settings.extended and ctx.exists(_FOLDERS[1]) else reason

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """A folder is named after the file system and the mount: `scratch-ffff8f00`."""
        rates: dict[str, float] = {}
        for folder in _FOLDERS:
            for mount in ctx.list(folder):
                fs = mount.rpartition("-")[0] or mount
                for name, count in read_stats(ctx.read(f"{folder}/{mount}/stats")).items():
                    key = _KEYS.get(name)
                    rate = self._rises.per_second((mount, name), count, ctx.now) if key is not None else None
                    if rate is not None:
                        rates[f"lustre.{fs}.{key}"] = rates.get(f"lustre.{fs}.{key}", 0) + rate
        out.update(rates)
