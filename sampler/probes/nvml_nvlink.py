"""NVLink: bytes per second where there are no profiling counters, and errors of all links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..probe import Values
from .nvml_calls import Calls
from .nvml_fields import Field, Fields
from .nvml_rate import Rate

MOST_LINKS = 18  # of a device, as NVML counts them
KIB = 1 << 10

# Counters of data per link since the driver was loaded: transmit field, receive field, bytes per unit. The second is
# what Blackwell has.
_TRAFFIC = ((138, 139, KIB), (202, 204, 1))

# (fields whose sum is the errors, fields whose sum is the recoveries), per link, newest generation first: received with
# errors, local integrity, discarded on transmission / successful recoveries and failed ones; then replays and CRC errors.
_ERRORS = (((208, 211, 212), (215,)), ((161, 163), (162,)))
# nvmlNvLinkErrorCounter_t, for what came before
_REPLAY, _RECOVERY, _CRC_FLIT, _CRC_DATA = range(4)


class NvLink:
    """The links of one device."""

    def __init__(self, nvml: Any, handle: Any, calls: Calls, fields: Fields) -> None:
        self._nvml = nvml
        self._handle = handle
        self._calls = calls
        self._fields = fields
        self._generation: int | None = None  # which of _TRAFFIC the device has
        self._rates: dict[Field, Rate] = {}

    def sample_traffic(self, now: float) -> Values:
        """`nvlinkTxBytes`, `nvlinkRxBytes`: bytes/s over all links since the last call at `now` (s)."""
        for generation, (sent, received, unit) in enumerate(_TRAFFIC):
            if self._generation not in {None, generation}:
                continue
            wanted = [Field(field, link) for field in (sent, received) for link in range(MOST_LINKS)]
            found = self._fields.read(f"nvlink traffic {generation}", wanted)
            if found:
                self._generation = generation
                rates = {
                    field: self._rates.setdefault(field, Rate()).per_second(raw, now) for field, raw in found.items()
                }
                return {
                    name: unit * sum(known)
                    for name, direction in (("nvlinkTxBytes", sent), ("nvlinkRxBytes", received))
                    if (
                        known := [
                            rate for field, rate in rates.items() if field.number == direction and rate is not None
                        ]
                    )
                }
        return {}

    def sample_errors(self) -> Values:
        """`nvlink.errors`, `nvlink.recoveries`: of all links since the driver was loaded."""
        for number, kinds in enumerate(_ERRORS):
            wanted = [Field(field, link) for kind in kinds for field in kind for link in range(MOST_LINKS)]
            found = self._fields.read(f"nvlink errors {number}", wanted)
            if found:
                sums = (_sum([raw for field, raw in found.items() if field.number in kind]) for kind in kinds)
                return _named(*sums)
        return _named(self._count(_REPLAY, _CRC_FLIT, _CRC_DATA), self._count(_RECOVERY))

    def _count(self, *counters: int) -> int | None:
        return _sum(
            [
                count
                for counter in counters
                for link in range(MOST_LINKS)
                if (count := self._counter(link, counter)) is not None
            ]
        )

    def _counter(self, link: int, counter: int) -> int | None:
        name = f"NvLinkErrorCounter {link} {counter}"
        return self._calls.get(name, lambda: self._nvml.nvmlDeviceGetNvLinkErrorCounter(self._handle, link, counter))


def _sum(counts: Sequence[int | float]) -> int | None:
    return int(sum(counts)) if counts else None


def _named(errors: int | None, recoveries: int | None) -> Values:
    told = {"nvlink.errors": errors, "nvlink.recoveries": recoveries}
    return {name: count for name, count in told.items() if count is not None}
