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
    """Take two readings `pause` s apart, which rates need. Devices get up to 3 s to open.

    Returns the second reading; below it stands what only an earlier one had, such as what comes seldom.
    """
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
    in_order = sorted(samples, key=lambda sample: sample.timestamp_ns)
    values = {key: value for sample in in_order for key, value in sample.values.items()}
    return Sample(in_order[-1].timestamp_ns if in_order else clock.time_ns(), dict(sorted(values.items())))
