"""Values of what the TPU runtime's server answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from ..probe import Values
from .tpu_families import Family, Shape, label_of
from .tpu_wire import Attribute, Histogram, Point, Summary

QUANTILES = {0.5: "p50", 0.9: "p90", 0.95: "p95", 0.99: "p99", 0.999: "p999"}
_LONGEST_NUMBER = 10  # digits of a device's
_PERCENTILES = (0.5, 0.9, 0.95, 0.999)  # made of a histogram


def read_points(family: Family, points: Sequence[Point], duty_per_chip: int) -> Values:
    """Values of one family, by key."""
    if family.shape in {Shape.DEVICE, Shape.CHIP}:
        repeat = duty_per_chip if family.shape is Shape.CHIP else 1
        return {
            family.key.format(i=device * repeat + each): point.value
            for point in points
            if (device := _device(point.attributes)) is not None and isinstance(point.value, (int, float))
            for each in range(repeat)
        }
    if family.shape is Shape.COUNT:
        return {
            f"{family.key}.{label_of(_label(point.attributes))}": point.value
            for point in points
            if isinstance(point.value, (int, float))
        }
    groups: defaultdict[str, list[Point]] = defaultdict(list)
    for point in points:
        label = "" if family.shape is Shape.FLAT else f".{label_of(_label(point.attributes))}"
        groups[label].append(point)
    return {
        f"{family.key}{label}.{stat}{family.suffix}": value
        for label, group in groups.items()
        for stat, value in _stats(group).items()
    }


def _device(attributes: Mapping[str, Attribute]) -> int | None:
    """The number of a device: a lone attribute, or the one of a list that says so."""
    for name in ("", "device_ordinal", "device-id"):
        text = str(attributes.get(name, ""))
        if text.isdecimal() and len(text) < _LONGEST_NUMBER:
            return int(text)
    return None


def _label(attributes: Mapping[str, Attribute]) -> str:
    """A label as the SDK spells it: "tensorcore-0" of a core, "8MB+" of transfers, whatever else tells them apart."""
    if "device_ordinal" in attributes:
        core = str(attributes.get("core_type", "device")).replace("_", "")
        return f"{core}-{attributes['device_ordinal']}"
    if "buffer-size" in attributes:
        return str(attributes["buffer-size"])
    return "-".join(str(value) for _, value in sorted(attributes.items()))


def _stats(points: Iterable[Point]) -> dict[str, float]:
    """Statistics of all readings with one label."""
    histograms = [point.value for point in points if isinstance(point.value, Histogram) and point.value.population > 0]
    if histograms:
        return _of_histogram(merge(histograms))
    for point in points:
        if isinstance(point.value, Summary) and point.value.population > 0:
            made = {name: value for quantile, value in point.value.quantiles if (name := _name(quantile))}
            return {"mean": point.value.total / point.value.population, **made}
    return {}


def _name(quantile: float) -> str | None:
    return QUANTILES.get(round(quantile, 9))


def merge(histograms: Sequence[Histogram]) -> Histogram:
    """One histogram of all: percentiles cannot be averaged. Of different buckets, those that hold most."""
    alike: defaultdict[tuple[float, ...], list[Histogram]] = defaultdict(list)
    for histogram in histograms:
        alike[histogram.bounds].append(histogram)
    group = max(alike.values(), key=lambda each: sum(histogram.population for histogram in each))
    population = sum(histogram.population for histogram in group)
    mean = sum(histogram.mean * histogram.population for histogram in group) / population
    columns = zip_longest(*(histogram.counts for histogram in group), fillvalue=0)
    return Histogram(population, mean, group[0].bounds, tuple(map(sum, columns)))


def _of_histogram(histogram: Histogram) -> dict[str, float]:
    stats = {"mean": histogram.mean}
    if histogram.bounds and any(histogram.counts):
        stats |= {QUANTILES[share]: percentile(histogram, share) for share in _PERCENTILES}
    return stats


def percentile(histogram: Histogram, share: float) -> float:
    """The value below which `share` of all lie, linear within a bucket; the last bound for what is above it."""
    bounds, wanted, below = histogram.bounds, share * sum(histogram.counts), 0
    for index, count in enumerate(histogram.counts[: len(bounds)]):
        if count > 0 and below + count >= wanted:
            low = bounds[index - 1] if index else 0.0
            return low + (wanted - below) / count * (bounds[index] - low)
        below += count
    return bounds[-1]
