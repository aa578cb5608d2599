"""What somebody who looks at a run should be shown first: values that are no numbers, jumps of a loss, stalls, GPUs that idle."""

from __future__ import annotations

import math
import re
import time
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import sub
from typing import NamedTuple

from .axes import STEP, WALL, Axis
from .curves import Curve
from .store import RunView

JUMP = 12.0
"""Times the usual change: the differences of normal noise are beyond 8 times their median absolute deviation once in ten million."""
_WINDOW, _BLOCK = 256, 64  # differences that tell what is usual, and how many are judged by the same ones
_LEAST = 32  # differences, below which nothing is usual
_FLAT = 1e-3  # of the size of the values: smaller changes are no jump, however flat the curve was
STALL = 20.0
"""Times the usual time between two rows, and at least a minute."""
_STALL_LEAST_S = 60.0
_SAMPLE = 4096  # distances that tell what is usual
IDLE_PERCENT, IDLE_S = 5.0, 300.0
"""A GPU idles if it is busy for less than so many percent of the time, in all samples of so many seconds."""
_LOSS = re.compile(r"loss|nll|perplexity|\bppl\b", re.IGNORECASE)
_GPU = re.compile(r"gpu\.(\d+)\.gpu(?:/l:(.*))?")


class Anomaly(NamedTuple):
    """Something to look at."""

    kind: str
    """`nan`, `jump`, `stall` or `idle`."""
    key: str
    """The metric; empty for one of the run as a whole."""
    begin: float
    """Where it lies on the axis; of a moment, begin and end are the same."""
    end: float
    words: str


def anomalies(view: RunView, axis: Axis = STEP, now: float | None = None) -> list[Anomaly]:
    """All of a run, by where they lie. A preview has no stalls, and only the jumps and NaNs among what was read.

    Args:
        view: the run.
        axis: of `begin` and `end`.
        now: epoch seconds, for a run that goes on; the real time, if none is given.
    """
    moment = time.time() if now is None else now
    found: list[Anomaly] = []
    for metric in view.metrics():
        curve = view.curve(metric.path, axis)
        found += odd_values(metric.name, curve)
        if _LOSS.search(metric.name) and not view.reading.is_preview:
            found += jumps(metric.name, curve)
    if not view.reading.is_preview:
        found += _stalls(view, axis, moment)
    for column in view.samples.columns:
        if (gpu := _GPU.fullmatch(column.key)) is not None:
            node = f" of {gpu[2]}" if gpu[2] else ""
            curve = view.sample_curve(column.key, WALL)
            for begin, end in idle_times(curve):
                x0, x1 = view.at_time(begin, axis), view.at_time(end, axis)
                if x0 is not None and x1 is not None:
                    words = f"GPU {gpu[1]}{node} was idle for {_lasting(end - begin)}"
                    found.append(Anomaly("idle", column.key, x0, x1, words))
    return sorted(found, key=lambda one: (one.begin, one.key))


def odd_values(key: str, curve: Curve) -> list[Anomaly]:
    """The first value that is NaN or infinite, with the number of all."""
    if not curve.odd:
        return []
    x, word = curve.odd[0]
    more = f", and {len(curve.odd) - 1:,} more" if len(curve.odd) > 1 else ""
    return [Anomaly("nan", key, x, x, f"{key}: first {_NAMES[word]}{more}")]


def jumps(key: str, curve: Curve, times: float = JUMP) -> list[Anomaly]:
    """Where a value rises by more than `times` the median absolute deviation of the changes before it; once in 64 points."""
    x, y = curve.x, curve.y
    changes = array("d", map(sub, islice(y, 1, None), y))
    found = []
    for begin in range(_LEAST, len(changes), _BLOCK):
        block = changes[begin : begin + _BLOCK]
        top = max(block)
        usual = changes[max(0, begin - _WINDOW) : begin]
        at = begin + block.index(top) + 1
        if top <= _FLAT * abs(y[at]):
            continue
        if top > times * _deviation(usual):
            found.append(Anomaly("jump", key, x[at], x[at], f"{key}: from {y[at - 1]:.4g} to {y[at]:.4g} at once"))
    return found


def idle_times(curve: Curve) -> Iterator[tuple[float, float]]:
    """The times in which a GPU, whose load in percent is the curve by the clock, was idle for long enough."""
    begin = end = None
    for x, y in zip(curve.x, curve.y, strict=True):
        if y < IDLE_PERCENT:
            begin, end = (x if begin is None else begin), x
            continue
        if begin is not None and end is not None and end - begin >= IDLE_S:
            yield begin, end
        begin = end = None
    if begin is not None and end is not None and end - begin >= IDLE_S:
        yield begin, end


def stalls(times: Sequence[float], now: float | None = None) -> Iterator[tuple[float, float]]:
    """Where far more time lies between two rows than usual; the last one up to `now`, if the run goes on.

    Args:
        times: of the rows, epoch seconds, ascending.
        now: epoch seconds; None for a run that has ended.
    """
    distances = array("d", map(sub, islice(times, 1, None), times))
    if len(distances) < 3:
        return
    some = sorted(distances[:: max(1, len(distances) // _SAMPLE)])
    least = max(_STALL_LEAST_S, STALL * some[len(some) // 2])
    for at, distance in enumerate(distances):
        if distance > least:
            yield times[at], times[at + 1]
    if now is not None and now - times[-1] > least:
        yield times[-1], now


def _stalls(view: RunView, axis: Axis, now: float) -> Iterator[Anomaly]:
    """Those of a run, but for what lies between its sessions."""
    walls = view.axes.of(WALL)
    is_running = view.status(now) == "running"
    joins = {walls[row] for row in view.reading.joins if row < len(walls)}
    for begin, end in stalls(array("d", filter(math.isfinite, walls)), now if is_running else None):
        x0, x1 = view.at_time(begin, axis), view.at_time(end, axis)
        if end in joins or x0 is None or x1 is None:
            continue
        since = ", up to now" if end == now else ""
        yield Anomaly("stall", "", x0, x1, f"no row for {_lasting(end - begin)}{since}")


def _deviation(values: Sequence[float]) -> float:
    """The median absolute deviation from the median."""
    middle = sorted(values)[len(values) // 2]
    return sorted(abs(value - middle) for value in values)[len(values) // 2]


def _lasting(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


_NAMES = {"nan": "NaN", "inf": "infinity", "-inf": "-infinity"}
