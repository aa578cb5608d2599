"""How full the file systems behind the given paths are."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import ClassVar

from ..context import Context
from ..metric import Metric
from ..probe import Probe, Tier, Values
from ..settings import SamplerSettings

GIB = 1 << 30  # the documented key says GB and divides by 1024 three times
_TEST = "tests/sampler/test_host.py::test_disk_usage_agrees_with_statvfs"


class DiskUsageProbe(Probe):
    """`disk.{path}.usagePercent|usageGB` of one path, spelt as given. A path that cannot be reached has no keys.

    On a thread per path: `statvfs` blocks for as long as a network file system does not answer.
    """

    name = "disk_usage"
    tier = Tier.THREAD
    metrics: ClassVar = (
        Metric("disk.{path}.usagePercent", "%", "statvfs", "used / (used + free to users)", test=_TEST),
        Metric("disk.{path}.usageGB", "GiB", "statvfs", "used blocks, those reserved for root not counted", test=_TEST),
    )

    def __init__(self, path: str) -> None:
        self.instance = path

    @classmethod
    def instances(cls, settings: SamplerSettings) -> Iterable[DiskUsageProbe]:
        """One per path."""
        return [cls(path) for path in dict.fromkeys(settings.disk_paths)]

    def discover(self, ctx: Context) -> str | None:  # noqa: ARG002 - the base's signature
        """Any system with statvfs; Windows has the portable probe."""
        return None if hasattr(os, "statvfs") else "no statvfs on this system"

    def sample(self, ctx: Context, out: Values) -> None:
        """Used bytes; the percentage leaves out what is reserved for root, as `df` does."""
        try:
            sizes = os.statvfs(ctx.path(self.instance))
        except (OSError, ValueError) as error:  # not there, or no valid path: absent is not zero
            why = getattr(error, "strerror", None) or str(error)
            self.notices = [f"this path cannot be reached: {why}"]
            return
        used = sizes.f_blocks - sizes.f_bfree
        usable = used + sizes.f_bavail
        out[f"disk.{self.instance}.usagePercent"] = 100 * used / usable if usable else 0.0
        out[f"disk.{self.instance}.usageGB"] = used * sizes.f_frsize / GIB
