"""RDMA ports: InfiniBand, RoCE, and the Elastic Fabric Adapter. Their traffic is in no network interface's counters."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Tier, Values
from ..rates import Rises, Totals
from ..tables import read_whole
from .extended import ExtendedProbe

_ROOT = "/sys/class/infiniband"
_WORD = 4  # bytes; ports count data in words of 32 bits
_TEST = "tests/sampler/test_fabric.py::test_rates_and_counts_of_a_port"

_COUNTS = {
    "xmitWait": "counters/port_xmit_wait",
    "symbolErrors": "counters/symbol_error",
    "linkDowned": "counters/link_downed",
    "linkRecovery": "counters/link_error_recovery",
    "rcvErrors": "counters/port_rcv_errors",
    "xmitDiscards": "counters/port_xmit_discards",
    "out_of_sequence": "hw_counters/out_of_sequence",
    "packet_seq_err": "hw_counters/packet_seq_err",
    "local_ack_timeout_err": "hw_counters/local_ack_timeout_err",
    "rnr_nak_retry_err": "hw_counters/rnr_nak_retry_err",
    "roce_adp_retrans": "hw_counters/roce_adp_retrans",
    "np_cnp_sent": "hw_counters/np_cnp_sent",
    "rp_cnp_handled": "hw_counters/rp_cnp_handled",
    "rxDrops": "hw_counters/rx_drops",
}
"""Key -> file below a port. Those of RoCE keep the kernel's names, which is what people look for."""


class _Traffic(NamedTuple):
    """A counter of data: its files, the best first, and the bytes that one of its units stands for."""

    files: tuple[tuple[str, int], ...]
    meaning: str


_RATES = {
    "xmitBytesRate": _Traffic(
        (("counters_ext/port_xmit_data_64", _WORD), ("counters/port_xmit_data", _WORD), ("hw_counters/tx_bytes", 1)),
        "sent",
    ),
    "rcvBytesRate": _Traffic(
        (("counters_ext/port_rcv_data_64", _WORD), ("counters/port_rcv_data", _WORD), ("hw_counters/rx_bytes", 1)),
        "received",
    ),
    "rdmaReadBytesRate": _Traffic((("hw_counters/rdma_read_bytes", 1),), "read from other hosts' memory"),
    "rdmaWriteBytesRate": _Traffic((("hw_counters/rdma_write_bytes", 1),), "written to other hosts' memory"),
}


def _metric(key: str, unit: str, source: str, formula: str, kind: Kind) -> Metric:
    key = "ib.{device}.{port}." + key
    source = f"{_ROOT}/{{device}}/ports/{{port}}/{source}"
    return Metric(key, unit, source, formula, kind, Origin.OURS, "extended", _TEST)


class InfinibandProbe(ExtendedProbe):
    """`ib.{device}.{port}.*`: rates of data, counts of trouble since the sampler began.

    On a thread: a driver asks its device for each of these files, and a device may not answer.
    """

    name = "infiniband"
    source = _ROOT
    tier = Tier.THREAD
    metrics: ClassVar = (
        *(
            _metric(
                key,
                "bytes/s",
                " or ".join(file for file, _ in traffic.files),
                f"data {traffic.meaning} / time",
                Kind.INTERVAL,
            )
            for key, traffic in _RATES.items()
        ),
        *(_metric(key, "count", file, "", Kind.TOTAL) for key, file in _COUNTS.items()),
    )

    def __init__(self) -> None:
        self._rises = Rises[tuple[str, str]]()
        self._counts = Totals[tuple[str, str]]()

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """Ports come and go with their devices; a counter that a device does not have has no key."""
        counts: dict[tuple[str, str], int] = {}
        for device in ctx.list(_ROOT):
            for port in ctx.list(f"{_ROOT}/{device}/ports"):
                folder = f"{_ROOT}/{device}/ports/{port}"
                prefix = f"ib.{device}.{port}."
                self._sample_rates(ctx, folder, prefix, out)
                for key, file in _COUNTS.items():
                    count = read_whole(ctx, f"{folder}/{file}")
                    if count is not None:
                        counts[prefix, key] = count
        self._counts.update(counts)
        out.update({prefix + key: self._counts.risen[prefix, key] for prefix, key in counts})

    def _sample_rates(self, ctx: Context, folder: str, prefix: str, out: Values) -> None:
        for key, traffic in _RATES.items():
            for file, unit in traffic.files:
                count = read_whole(ctx, f"{folder}/{file}")
                if count is not None:
                    rate = self._rises.per_second((prefix, file), count, ctx.now)
                    if rate is not None:
                        out[prefix + key] = rate * unit
                    break
