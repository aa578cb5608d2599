"""Trouble and load of each network interface."""

from __future__ import annotations

from typing import ClassVar

from ..context import LIMITS_EVERY, Context
from ..metric import Kind, Metric, Origin
from ..probe import Tier, Values
from ..rates import Rises, Totals
from ..tables import read_whole
from .extended import ExtendedProbe
from .network import LinkCounts, read_interfaces

_BITS = 8
_CLASS = "/sys/class/net"


def _metric(key: str, unit: str, source: str, formula: str, kind: Kind) -> Metric:
    test = "tests/sampler/test_host_extended.py::test_trouble_and_load_of_interfaces"
    return Metric("net.{interface}." + key, unit, source, formula, kind, Origin.OURS, "extended", test)


class NetLinksProbe(ExtendedProbe):
    """`net.{interface}.drops|errors|speedMbps|utilPercent` of the interfaces with hardware, of all where none has any.

    On a thread: the speed is asked of the driver, under a lock that others may hold for long.
    """

    name = "net_links"
    source = "/proc/net/dev"
    tier = Tier.THREAD
    metrics: ClassVar = (
        _metric("drops", "count", "/proc/net/dev", "packets dropped, both ways", Kind.TOTAL),
        _metric("errors", "count", "/proc/net/dev", "packets with errors, both ways", Kind.TOTAL),
        _metric("speedMbps", "Mbit/s", "/sys/class/net/{interface}/speed", "absent while it is not known", Kind.GAUGE),
        _metric(
            "utilPercent",
            "%",
            "/proc/net/dev, speed",
            "8 * bytes/s of the busier direction / speed",
            Kind.INTERVAL,
        ),
    )

    def __init__(self) -> None:
        self._drops, self._errors = Totals[str](), Totals[str]()
        self._rises = Rises[tuple[str, str]]()
        self._speeds: dict[str, int] = {}
        self._asked: int | None = None  # tick

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """Speeds are asked for now and then only."""
        links = read_interfaces(ctx)
        if not links:
            return
        links = {name: link for name, link in links.items() if ctx.exists(f"{_CLASS}/{name}/device")} or links
        self._drops.update({name: link.received_drops + link.sent_drops for name, link in links.items()})
        self._errors.update({name: link.received_errors + link.sent_errors for name, link in links.items()})
        if self._asked is None or ctx.tick - self._asked >= LIMITS_EVERY:
            self._asked = ctx.tick
            speeds = {name: read_whole(ctx, f"{_CLASS}/{name}/speed") for name in links}
            self._speeds = {name: speed for name, speed in speeds.items() if speed is not None and speed > 0}
        for name, link in links.items():
            out[f"net.{name}.drops"] = self._drops.risen[name]
            out[f"net.{name}.errors"] = self._errors.risen[name]
            self._sample_load(name, link, ctx.now, out)

    def _sample_load(self, name: str, link: LinkCounts, now: float, out: Values) -> None:
        rates = (
            self._rises.per_second((name, "sent"), link.sent, now),
            self._rises.per_second((name, "received"), link.received, now),
        )
        speed = self._speeds.get(name)
        if speed is None:
            return
        out[f"net.{name}.speedMbps"] = speed
        known = [rate for rate in rates if rate is not None]
        if known:
            out[f"net.{name}.utilPercent"] = 100 * max(known) * _BITS / (speed * 1e6)
