"""Whether a device's PCIe link is what it could be: a card in the wrong slot, or a link that came up narrower."""

from __future__ import annotations

from typing import Any

from .nvml_calls import Calls, Getters

BUSY = 50.0  # % of time with a kernel: an idle device lets its link slow down to save power
SURE_AFTER = 3  # readings in a row


class LinkWatch:
    """Looks at the link of device `index` while the device is busy."""

    def __init__(self, nvml: Any, handle: Any, calls: Calls, index: int) -> None:
        self._get = Getters(nvml, handle, calls)
        self._index = index
        self._slow = 0  # readings in a row
        self.notice: str | None = None  # what to tell the user

    def look(self, load: float | None) -> None:
        """Read the link, at a `load` in %, unless it was found slow already."""
        if self.notice is not None or load is None or load < BUSY:
            return
        now = (self._get("CurrPcieLinkGeneration"), self._get("CurrPcieLinkWidth"))
        best = (self._get("MaxPcieLinkGeneration"), self._get("MaxPcieLinkWidth"))
        slow = any(is_now < could_be for is_now, could_be in zip(now, best, strict=True) if is_now and could_be)
        self._slow = self._slow + 1 if slow else 0
        if self._slow == SURE_AFTER:
            self.notice = (
                f"the PCIe link of GPU {self._index} is slower under load than it could be: generation {now[0]} with "
                f"{now[1]} lanes instead of {best[0]} with {best[1]}"
            )
