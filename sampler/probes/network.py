"""Bytes that the network interfaces sent and received since the sampler started, and TCP retransmissions."""

from __future__ import annotations

from ..context import Context
from ..counter import Counter
from ..probe import Probe, Values

_RECEIVED, _SENT = 0, 8  # columns of /proc/net/dev behind the interface's name


def read_interfaces(ctx: Context) -> dict[str, tuple[int, int]]:
    """Bytes (sent, received) by interface, without loopback and what a bond, bridge or team counts already."""
    table = {}
    for line in (ctx.read("/proc/net/dev") or "").splitlines():
        name, colon, rest = line.partition(":")
        fields = rest.split()
        name = name.strip()
        if colon and len(fields) > _SENT and name != "lo" and not ctx.exists(f"/sys/class/net/{name}/master"):
            table[name] = (int(fields[_SENT]), int(fields[_RECEIVED]))
    return table


def read_retransmits(ctx: Context) -> int | None:
    """TCP segments sent again since boot."""
    lines = [line.split() for line in (ctx.read("/proc/net/snmp") or "").splitlines() if line.startswith("Tcp:")]
    names, numbers = lines if len(lines) == 2 else ([], [])  # a line of names, then one of numbers
    return int(dict(zip(names, numbers, strict=False)).get("RetransSegs", -1)) if names else None


class NetworkProbe(Probe):
    """`network.sent|recv` (bytes), `network.tcpRetransmits`; `per_interface` and `extended` add to these."""

    name = "network"
    prefixes = ("network.",)

    def __init__(self) -> None:
        self._counters: dict[str, tuple[Counter, Counter]] = {}
        self._retransmits = Counter()
        self._last: tuple[float, float, float] | None = None  # monotonic s, bytes sent, bytes received

    def discover(self, ctx: Context) -> str | None:
        """Linux only: elsewhere the portable probe stands in."""
        return None if ctx.exists("/proc/net/dev") else "no /proc/net/dev"

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """An interface that appears later starts at its first reading; one that goes keeps its total in the sum."""
        for name, (raw_sent, raw_received) in read_interfaces(ctx).items():
            counters = self._counters.setdefault(name, (Counter(), Counter()))
            counters[0].rise(raw_sent)
            counters[1].rise(raw_received)
            if ctx.settings.per_interface:
                out[f"network.{name}.sent"] = float(counters[0].total)
                out[f"network.{name}.recv"] = float(counters[1].total)
        sent = float(sum(counters[0].total for counters in self._counters.values()))
        received = float(sum(counters[1].total for counters in self._counters.values()))
        out["network.sent"], out["network.recv"] = sent, received
        retransmits = read_retransmits(ctx)
        if retransmits is not None and retransmits >= 0:
            out["network.tcpRetransmits"] = float(self._retransmits.since_first(retransmits))
        if ctx.settings.extended and self._last is not None and ctx.now > self._last[0]:
            elapsed = ctx.now - self._last[0]
            out["network.sentRate"] = (sent - self._last[1]) / elapsed
            out["network.recvRate"] = (received - self._last[2]) / elapsed
        self._last = (ctx.now, sent, received)
