"""One sample now, without a sampler's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .clock import Clock, SystemClock
from .core import warn_on_stderr
from .engine import Engine, Sample
from .settings import SamplerSettings

DEVICES_WITHIN = 3.0  # s for vendor libraries to open
ANSWER_WITHIN = 2.0  # s for each reading


def sample_once(
    settings: SamplerSettings,
    *,
    pause: float = 0.5,
    root: str = "/",
    clock: Clock | None = None,
    warn: Callable[[str], None] = warn_on_stderr,
) -> Sample:
    """Take two readings `pause` s apart, which rates need, and return the second. Devices get up to 3 s to open."""
    clock = clock or SystemClock()
    samples: list[Sample] = []
    engine = Engine(settings, samples.append, clock=clock, root=root, warn=warn)
    try:
        engine.open()
        engine.open_third_party()
        engine.tick(grace=ANSWER_WITHIN)
        if engine.settle(DEVICES_WITHIN):
            engine.tick(grace=ANSWER_WITHIN)
        clock.wait(threading.Event(), pause)
        engine.tick(grace=ANSWER_WITHIN)
    finally:
        engine.close(1.0)
    return samples[-1] if samples else Sample(clock.time_ns(), {})
