"""Bytes that the network interfaces sent and received since the sampler started, and TCP retransmissions."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Probe, Values
from ..rates import Counter, Rises, Totals
from ..tables import read_pair, wholes

_TEST = "tests/sampler/test_host.py::test_network_counts_since_start_without_loopback_and_bond_members"
_WAYS = ("sent", "recv")


def _metric(key: str, unit: str, formula: str, *, setting: str = "") -> Metric:
    kind = Kind.TOTAL if unit == "bytes" else Kind.INTERVAL
    return Metric(key, unit, "/proc/net/dev", formula, kind, Origin.OURS if setting else Origin.LISTED, setting, _TEST)


class LinkCounts(NamedTuple):
    """The sixteen columns of /proc/net/dev behind the interface's name."""

    received: int  # bytes
    received_packets: int
    received_errors: int
    received_drops: int
    received_fifo: int
    received_frame: int
    received_compressed: int
    received_multicast: int
    sent: int  # bytes
    sent_packets: int
    sent_errors: int
    sent_drops: int
    sent_fifo: int
    sent_collisions: int
    sent_carrier: int
    sent_compressed: int


def read_interfaces(ctx: Context) -> dict[str, LinkCounts]:
    """Counters by interface, without loopback."""
    table = {}
    for line in (ctx.read("/proc/net/dev") or "").splitlines():
        name, _, rest = line.rpartition(":")  # an alias holds a colon of its own
        numbers = wholes(rest.split())
        name = name.strip()
        if name and name != "lo" and numbers is not None and len(numbers) >= len(LinkCounts._fields):
            table[name] = LinkCounts(*numbers[: len(LinkCounts._fields)])
    return table


class NetworkProbe(Probe):
    """`network.sent|recv` (bytes), `network.tcpRetransmits`; `per_interface` and `extended` add to these."""

    name = "network"
    metrics: ClassVar = (
        *(_metric(f"network.{way}", "bytes", "summed over all but lo and members") for way in _WAYS),
        Metric(
            "network.tcpRetransmits",
            "count",
            "/proc/net/snmp Tcp RetransSegs",
            "segments sent again",
            Kind.TOTAL,
            Origin.PEER,
            test=_TEST,
        ),
        *(_metric(f"network.{{interface}}.{way}", "bytes", "", setting="per_interface") for way in _WAYS),
        *(
            _metric(f"network.{way}Rate", "bytes/s", f"rise of network.{way} / time", setting="extended")
            for way in _WAYS
        ),
    )

    def __init__(self) -> None:
        self._sent, self._received, self._retransmits = Totals[str](), Totals[str](), Counter()
        self._rises = Rises[str]()

    def discover(self, ctx: Context) -> str | None:
        """Linux only: elsewhere the portable probe stands in."""
        return None if ctx.exists("/proc/net/dev") else "no /proc/net/dev"

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """An interface that appears later starts at its first reading; one that goes keeps its total in the sum.

        Members of bonds, bridges and teams are left out: what they carry is counted there already.
        """
        links = read_interfaces(ctx)
        if links:
            counted = {name: link for name, link in links.items() if not ctx.exists(f"/sys/class/net/{name}/master")}
            self._sent.update({name: link.sent for name, link in counted.items()})
            self._received.update({name: link.received for name, link in counted.items()})
            self._sample_bytes(ctx, counted, out)
        retransmits = read_pair(ctx.read("/proc/net/snmp"), "Tcp", "RetransSegs")
        if retransmits is not None:
            out["network.tcpRetransmits"] = float(self._retransmits.since_first(retransmits))

    def _sample_bytes(self, ctx: Context, counted: dict[str, LinkCounts], out: Values) -> None:
        for key, totals in zip(_WAYS, (self._sent, self._received), strict=True):
            total = float(totals.total)
            out[f"network.{key}"] = total
            if ctx.settings.per_interface:
                out.update({f"network.{name}.{key}": float(totals.risen[name]) for name in counted})
            if ctx.settings.extended and (rate := self._rises.per_second(key, total, ctx.now)) is not None:
                out[f"network.{key}Rate"] = rate
