"""System metrics: one file per probe, one sample per tick.

`Sampler(settings, emit)` samples on its own thread; `sample_once(settings)` takes one sample now;
`execution_context(settings)` and `hardware(settings)` give the two environment records as plain dicts.
Importing this package starts nothing and loads no vendor library.
"""

from __future__ import annotations

from .core import Sampler
from .engine import Sample
from .environment import execution_context, hardware
from .once import sample_once
from .probe import Probe, ProbeUnavailableError, Tier
from .redact import is_secret_name, redact_argv, redact_text
from .settings import SamplerSettings

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
    "redact_argv",
    "redact_text",
    "sample_once",
]
