"""What probes have in common whose keys must be asked for."""

from __future__ import annotations

from typing import ClassVar

from ..context import Context
from ..probe import Probe


class ExtendedProbe(Probe):
    """Runs with the setting `extended` only, and where the file or folder `source` is."""

    source: ClassVar[str]

    def discover(self, ctx: Context) -> str | None:
        """One look at one path."""
        if not ctx.settings.extended:
            return "only with the setting extended"
        return None if ctx.exists(self.source) else f"no {self.source}"
