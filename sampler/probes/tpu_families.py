"""What can be asked of a TPU: one family of keys each, under its names in libtpu's SDK and in the runtime's service."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple


class Shape(Enum):
    """How the values of a family are told apart."""

    DEVICE = auto()  # a number per device
    CHIP = auto()  # a number per chip, repeated for each of its devices
    LINK = auto()  # a score per link, by the link's name; or a number per device
    COUNT = auto()  # a number per label
    LABELLED = auto()  # statistics per label
    FLAT = auto()  # statistics without a label


class Family(NamedTuple):
    """One family. `key` has `{i}` where the device's number goes; `sdk` names are tried in order."""

    key: str
    shape: Shape
    unit: str
    sdk: tuple[str, ...]
    rpc: str = ""

    @property
    def suffix(self) -> str:
        """What stands behind the name of a statistic in a key."""
        return {"us": "Us", "Mbit/s": "Mbps"}[self.unit]

    @property
    def without_device(self) -> str:
        """The key of what has a label in place of a device."""
        return self.key.replace("{i}.", "")


FAMILIES = (
    Family("tpu.{i}.tensorcoreUtilization", Shape.DEVICE, "%", ("tensorcore_util", "tensorcore_utilization")),
    Family("tpu.{i}.dutyCycle", Shape.CHIP, "%", ("duty_cycle_pct",), "tpu.runtime.tensorcore.dutycycle.percent"),
    Family(
        "tpu.{i}.hbmCapacityTotal",
        Shape.DEVICE,
        "bytes",
        ("hbm_capacity_total",),
        "tpu.runtime.hbm.memory.total.bytes",
    ),
    Family(
        "tpu.{i}.hbmCapacityUsage",
        Shape.DEVICE,
        "bytes",
        ("hbm_capacity_usage",),
        "tpu.runtime.hbm.memory.usage.bytes",
    ),
    Family("tpu.{i}.runtimeHbmUtilization", Shape.DEVICE, "%", (), "tpu.runtime.hbm.utilization.percent"),
    Family("tpu.{i}.tensorcoreIdleDuration", Shape.DEVICE, "s", (), "tpu.runtime.tensorcore.idle_duration.seconds"),
    Family("tpu.{i}.throttleScore", Shape.DEVICE, "score", ("tpu_throttle_score",)),
    Family("tpu.{i}.iciLinkHealth", Shape.LINK, "score", ("ici_link_health",)),
    Family(
        "tpu.bufferTransferLatency",
        Shape.LABELLED,
        "us",
        ("buffer_transfer_latency",),
        "megascale.dcn_transfer_latencies.microsecond.cumulative.distribution",
    ),
    Family(
        "tpu.inboundBufferTransferLatency",
        Shape.LABELLED,
        "us",
        ("inbound_buffer_transfer_latency",),
        "megascale.dcn_inbound_transfer_latencies.microsecond.cumulative.distribution",
    ),
    Family(
        "tpu.hostToDeviceTransferLatency",
        Shape.LABELLED,
        "us",
        ("host_to_device_transfer_latency",),
        "megascale.host_to_device_transfer_latencies.microsecond.cumulative.distribution",
    ),
    Family(
        "tpu.deviceToHostTransferLatency",
        Shape.LABELLED,
        "us",
        ("device_to_host_transfer_latency",),
        "megascale.device_to_host_transfer_latencies.microsecond.cumulative.distribution",
    ),
    Family(
        "tpu.collectiveE2ELatency",
        Shape.LABELLED,
        "us",
        ("collective_e2e_latency",),
        "megascale.collective_end_to_end_latencies.microsecond.cumulative.distribution",
    ),
    Family(
        "tpu.hostComputeLatency",
        Shape.LABELLED,
        "us",
        ("host_compute_latency",),
        "megascale.mxla_compute_latencies.microsecond.cumulative.distribution",
    ),
    Family(
        "tpu.grpcTcpMinRtt",
        Shape.FLAT,
        "us",
        ("tcp_min_rtt", "grpc_tcp_min_rtt", "grpc_tcp_min_round_trip_times"),
        "megascale.grpc_tcp_min_rtt.microsecond.cumulative.distribution",
    ),
    Family(
        "tpu.grpcTcpDeliveryRate",
        Shape.FLAT,
        "Mbit/s",
        ("tcp_delivery_rate", "grpc_tcp_delivery_rate", "grpc_tcp_delivery_rates"),
        "megascale.grpc_tcp_delivery_rate.Mbps.cumulative.distribution",
    ),
    Family(
        "tpu.hloExecTiming",
        Shape.LABELLED,
        "us",
        ("hlo_execution_timing", "hlo_exec_timing"),
        "hlo.execution.timing.distribution.microseconds",
    ),
    Family("tpu.hloQueueSize", Shape.COUNT, "count", ("hlo_queue_size",), "hlo.queue.size.gauge"),
)


def label_of(text: str) -> str:
    """A name as a part of a key: "8MB+-ALL_REDUCE" -> "8mb_plus_all_reduce"; "unknown" if nothing is left of it."""
    spelt = text.lower().replace("+", "_plus_").replace("%", "pct")
    return re.sub("[^a-z0-9]+", "_", spelt).strip("_") or "unknown"
