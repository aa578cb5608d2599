"""NVLink: bytes per second where there are no profiling counters, and errors of all links."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..probe import Values
from ..rates import Rises
from .nvml_calls import Calls
from .nvml_fields import Field, Fields

MOST_LINKS = 36  # of a device, as NVML counts them
KIB = 1 << 10

# Counters of data per link since the driver was loaded: transmit field, receive field, bytes per unit. The second is
# what Blackwell has.
_TRAFFIC = ((138, 139, KIB), (202, 204, 1))

# (fields whose sum is the errors, fields whose sum is the recoveries), per link, newest generation first: received with
# errors, local integrity, discarded on transmission / successful recoveries and failed ones; then replays and CRC errors.
_ERRORS = (((208, 211, 212), (215,)), ((161, 163), (162,)))
# nvmlNvLinkErrorCounter_t, for what came before
_REPLAY, _RECOVERY, _CRC_FLIT, _CRC_DATA = range(4)
_COUNTERS = ((_REPLAY, _CRC_FLIT, _CRC_DATA), (_RECOVERY,))


class NvLink:
    """The links of one device."""

    def __init__(self, nvml: Any, handle: Any, calls: Calls, fields: Fields) -> None:
        self._nvml = nvml
        self._handle = handle
        self._calls = calls
        self._fields = fields
        self._told: set[Field] = set()  # fields of traffic that have been told
        self._rises: Rises[Field] = Rises()
        self._errors: int | None = None  # which of _ERRORS the device has, then _COUNTERS
        self._counts: dict[Field, int | float] = {}  # what each link said last

    def sample_traffic(self, now: float) -> Values:
        """`nvlinkTxBytes`, `nvlinkRxBytes`: bytes/s over all links since the last call at `now` (s).

        A direction of which one link does not answer now is missing; the next value is an average over longer.
        """
        for generation, (sent, received, unit) in enumerate(_TRAFFIC):
            group, wanted = f"nvlink traffic {generation}", _of_all_links((sent, received))
            found = self._fields.read(group, wanted)
            if not found and all(self._fields.refused(group, field) for field in wanted):
                continue
            rates = {field: self._rises.per_second(field, raw, now) for field, raw in found.items()}
            self._told.update(found)
            silent = {field.number for field in self._told - found.keys() if not self._fields.refused(group, field)}
            values: Values = {}
            for name, direction in (("nvlinkTxBytes", sent), ("nvlinkRxBytes", received)):
                known = [rate for field, rate in rates.items() if field.number == direction and rate is not None]
                if known and direction not in silent:
                    values[name] = unit * sum(known)
            return values
        return {}

    def sample_errors(self) -> Values:
        """`nvlink.errors`, `nvlink.recoveries`: of all links since the driver was loaded.

        A link that does not answer now counts with what it said last: the sums never go back for want of an answer.
        """
        for number, kinds in enumerate((*_ERRORS, _COUNTERS)):
            if self._errors not in {None, number}:
                continue
            wanted = _of_all_links(field for kind in kinds for field in kind)
            group = f"nvlink errors {number}"
            found = self._read_counters(wanted) if kinds is _COUNTERS else self._fields.read(group, wanted)
            self._counts.update(found)
            if not self._counts and all(self._fields.refused(group, field) for field in wanted):
                continue
            self._errors = number
            return {
                name: int(sum(counts))
                for name, kind in zip(("nvlink.errors", "nvlink.recoveries"), kinds, strict=True)
                if (counts := [count for field, count in self._counts.items() if field.number in kind])
            }
        return {}

    def _read_counters(self, wanted: Iterable[Field]) -> dict[Field, int]:
        counts = {field: self._read_counter(field) for field in wanted}
        return {field: count for field, count in counts.items() if count is not None}

    def _read_counter(self, field: Field) -> int | None:
        name = f"NvLinkErrorCounter {field.scope} {field.number}"
        return self._calls.get(
            name, lambda: self._nvml.nvmlDeviceGetNvLinkErrorCounter(self._handle, field.scope, field.number)
        )


def _of_all_links(numbers: Iterable[int]) -> list[Field]:
    return [Field(number, link) for number in numbers for link in range(MOST_LINKS)]
