"""How full shared memory is: data loaders that find none die of a bus error."""

from __future__ import annotations

import os
from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Values
from .extended import ExtendedProbe


class ShmProbe(ExtendedProbe):
    """`shm.usedPercent` of /dev/shm."""

    name = "shm"
    source = "/dev/shm"  # noqa: S108 - looked at, never written
    metrics: ClassVar = (
        Metric(
            "shm.usedPercent",
            "%",
            "statvfs of /dev/shm",
            "used / size; absent where it has no limit",
            Kind.GAUGE,
            Origin.OURS,
            "extended",
            "tests/sampler/test_host_extended.py::test_shared_memory",
        ),
    )

    def sample(self, ctx: Context, out: Values) -> None:
        """It lies in memory and answers at once."""
        try:
            sizes = os.statvfs(ctx.path(self.source))
        except OSError:
            return
        if sizes.f_blocks:
            out["shm.usedPercent"] = 100 * (sizes.f_blocks - sizes.f_bfree) / sizes.f_blocks
