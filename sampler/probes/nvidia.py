"""NVIDIA devices through NVML (module `pynvml` of the distribution nvidia-ml-py), in a helper process."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..context import Context
from ..probe import Probe, ProbeUnavailableError, Tier, Values
from .nvml_library import driver_signs
from .nvml_metrics import METRICS

if TYPE_CHECKING:
    from .nvml_session import Session


class NvidiaProbe(Probe):
    """`gpu.{i}.*` and `gpu.process.{i}.*`, `i` being the NVML index.

    `gpu.process.{i}.*` repeats values of a device that any monitored process uses. `nvml` replaces the module.
    """

    name = "nvidia"
    tier = Tier.HELPER
    metrics = METRICS

    def __init__(self, nvml: ModuleType | Any = None) -> None:
        self._nvml = nvml
        self._session: Session | None = None

    def discover(self, ctx: Context) -> str | None:
        """Looks for the driver, not for the library: loading that takes a while."""
        signs = driver_signs(sys.platform, os.environ)
        return None if any(map(ctx.exists, signs)) else f"no NVIDIA driver: none of {', '.join(signs)}"

    def open(self, ctx: Context) -> None:
        """Load and initialise NVML; choose the devices; read what does not change."""
        from .nvml_session import Session  # for the helper only: with what it needs it is most of this probe

        if self._nvml is None:
            try:
                import pynvml
            except ImportError as error:
                raise ProbeUnavailableError(f"module pynvml (nvidia-ml-py) cannot be loaded: {error}") from error
            self._nvml = pynvml
        self._session = Session(self._nvml, ctx)

    def sample(self, ctx: Context, out: Values) -> None:
        """One device after the other; a lost one is asked again each minute."""
        if self._session is not None:
            self._session.sample(ctx, out)
            self.notices = self._session.notices

    def metadata(self) -> dict[str, Any]:
        """See `nvml_metadata.read_metadata`."""
        return self._session.metadata if self._session is not None else {}

    def close(self) -> None:
        """Shut the library down."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
