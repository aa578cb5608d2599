"""System metrics: one file per probe, one sample per tick.

`Sampler(settings, emit)` samples on its own thread; `sample_once(settings)` takes one sample now;
`execution_context(settings)` and `hardware(settings)` give the two environment records as plain dicts.
Importing this package loads nothing: each name below comes from its module on first use. No vendor library is ever
loaded into this process.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core import Sampler
    from .engine import Sample
    from .environment import execution_context, hardware
    from .once import sample_once
    from .probe import Probe, ProbeUnavailableError, Tier
    from .redact import is_secret_name, redact_argv, redact_text
    from .registry import load_modules
    from .settings import SamplerSettings

_WHERE = {
    "Probe": ".probe",
    "ProbeUnavailableError": ".probe",
    "Sample": ".engine",
    "Sampler": ".core",
    "SamplerSettings": ".settings",
    "Tier": ".probe",
    "execution_context": ".environment",
    "hardware": ".environment",
    "is_secret_name": ".redact",
    "load_modules": ".registry",
    "redact_argv": ".redact",
    "redact_text": ".redact",
    "sample_once": ".once",
}

__all__ = [
    "Probe",
    "ProbeUnavailableError",
    "Sample",
    "Sampler",
    "SamplerSettings",
    "Tier",
    "execution_context",
    "hardware",
    "is_secret_name",
    "load_modules",
    "redact_argv",
    "redact_text",
    "sample_once",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name], __name__), name)
    globals()[name] = value
    return value
