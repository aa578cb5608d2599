"""How TCP fares on this host (in this network namespace)."""

from __future__ import annotations

from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Values
from ..rates import Counter, Rises
from ..tables import read_pair, whole
from .extended import ExtendedProbe


def _metric(key: str, unit: str, source: str, formula: str, kind: Kind) -> Metric:
    test = "tests/sampler/test_host_extended.py::test_tcp"
    return Metric("tcp." + key, unit, source, formula, kind, Origin.OURS, "extended", test)


class TcpProbe(ExtendedProbe):
    """`tcp.retransRate`, `tcp.listenDrops`, `tcp.timeWait`."""

    name = "tcp"
    source = "/proc/net/snmp"
    metrics: ClassVar = (
        _metric("retransRate", "1/s", "/proc/net/snmp Tcp RetransSegs", "rise / time", Kind.INTERVAL),
        _metric("listenDrops", "count", "/proc/net/netstat TcpExt ListenDrops", "connections refused", Kind.TOTAL),
        _metric("timeWait", "count", "/proc/net/sockstat TCP tw", "connections that have been closed", Kind.GAUGE),
    )

    def __init__(self) -> None:
        self._rises = Rises[str]()
        self._drops = Counter()

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """Three files, each for itself."""
        again = read_pair(ctx.read("/proc/net/snmp"), "Tcp", "RetransSegs")
        rate = self._rises.per_second("", again, ctx.now) if again is not None else None
        if rate is not None:
            out["tcp.retransRate"] = rate
        drops = read_pair(ctx.read("/proc/net/netstat"), "TcpExt", "ListenDrops")
        if drops is not None:
            out["tcp.listenDrops"] = self._drops.since_first(drops)
        for line in (ctx.read("/proc/net/sockstat") or "").splitlines():
            name, *fields = line.split() or [""]
            waiting = dict(zip(fields[::2], fields[1::2], strict=False)).get("tw") if name == "TCP:" else None
            if waiting is not None and (count := whole(waiting)) is not None:
                out["tcp.timeWait"] = count
