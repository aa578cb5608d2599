"""NFS mounts, as this client sees them."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..mounts import unescape
from ..probe import Values
from ..rates import Rises, Totals
from ..tables import wholes
from .extended import ExtendedProbe

_STATS = "/proc/self/mountstats"
_FIELDS = (
    8  # of an operation: ops, transmissions, timeouts, bytes sent, bytes received, ms queued, ms answered, ms in all
)


def _metric(key: str, unit: str, field: str, formula: str, kind: Kind = Kind.INTERVAL) -> Metric:
    test = "tests/sampler/test_fabric.py::test_nfs_by_mount"
    return Metric("nfs.{mount}." + key, unit, f"{_STATS} {field}", formula, kind, Origin.OURS, "extended", test)


class Operation(NamedTuple):
    """What one kind of request has done since the file system was mounted."""

    requests: int
    transmissions: int
    sent: int  # bytes, with headers
    received: int
    round_trips_ms: int


def read_mountstats(text: str | None) -> dict[str, dict[str, Operation]]:
    """Mount point -> operation -> what it did; NFS only. Of mounts on top of each other the last one counts."""
    found: dict[str, dict[str, Operation]] = {}
    current: dict[str, Operation] | None = None
    for line in (text or "").splitlines():
        if line.startswith("device "):
            before, kind_known, after = line.rpartition(" with fstype ")
            current = None
            point = unescape(before.partition(" mounted on ")[2])
            if kind_known and point and after.split(" ", 1)[0] in {"nfs", "nfs4"}:
                current = found[point] = {}
        elif current is not None and ":" in line:
            name, _, rest = line.partition(":")
            numbers = wholes(rest.split()[:_FIELDS])
            if numbers is not None and len(numbers) == _FIELDS and name.strip().isupper():
                requests, transmissions, _, sent, received, _, answered, _ = numbers
                current[name.strip()] = Operation(requests, transmissions, sent, received, answered)
    return found


class NfsProbe(ExtendedProbe):
    """`nfs.{mount}.readRate|writeRate|readRttMs|writeRttMs|retrans`. Asks the kernel only, never a server."""

    name = "nfs"
    source = _STATS
    metrics: ClassVar = (
        _metric("readRate", "bytes/s", "READ", "bytes received / time"),
        _metric("writeRate", "bytes/s", "WRITE", "bytes sent / time"),
        _metric("readRttMs", "ms", "READ", "from request to answer, mean; absent if nothing was read"),
        _metric("writeRttMs", "ms", "WRITE", "from request to answer, mean; absent if nothing was written"),
        _metric("retrans", "count", "all operations", "transmissions - operations", Kind.TOTAL),
    )

    def __init__(self) -> None:
        self._rises = Rises[tuple[str, str, str]]()
        self._again = Totals[str]()

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """Mounts come and go."""
        mounts = read_mountstats(ctx.read(_STATS))
        self._again.update(
            {
                mount: sum(operation.transmissions - operation.requests for operation in operations.values())
                for mount, operations in mounts.items()
                if operations
            }
        )
        for mount, operations in mounts.items():
            if operations:
                out[f"nfs.{mount}.retrans"] = self._again.risen[mount]
            for key, name in (("read", "READ"), ("write", "WRITE")):
                if name in operations:
                    self._sample_operation(mount, key, operations[name], ctx.now, out)

    def _sample_operation(self, mount: str, key: str, operation: Operation, now: float, out: Values) -> None:
        moved = operation.received if key == "read" else operation.sent
        rate = self._rises.per_second((mount, key, "bytes"), moved, now)
        count = self._rises.rise((mount, key, "count"), operation.requests, now)
        answered = self._rises.rise((mount, key, "ms"), operation.round_trips_ms, now)
        if rate is not None:
            out[f"nfs.{mount}.{key}Rate"] = rate
        if count is not None and count.amount and answered is not None:
            out[f"nfs.{mount}.{key}RttMs"] = answered.amount / count.amount
