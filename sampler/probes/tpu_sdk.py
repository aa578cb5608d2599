"""The lists of texts that libtpu's SDK gives for a metric, as values by key."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..probe import Values
from .number_text import number
from .tpu_families import Family, Shape, label_of

_LINK = re.compile(r"tray(\d+)\.chip(\d+)\.")


def split(text: str) -> list[str]:
    """The items of a comma-separated text; it may stand in brackets and they in quotes."""
    items = (item.strip().strip("'\"").strip() for item in text.strip().strip("[]").split(","))
    return [item for item in items if item]


def stat_names(description: str, count: int) -> list[str]:
    """What `count` statistics are: the SDK says it in the metric's description only, and not in all."""
    if count == 5:
        described = re.sub(r"p99\.?9", "", description.lower())
        third = "p99" if "p99" in described and "p95" not in described else "p95"
        return ["mean", "p50", "p90", third, "p999"]
    if count == 4:
        return ["p50", "p90", "p95", "p999"]
    return [f"stat{index}" for index in range(count)]


def read_texts(family: Family, texts: Sequence[str], description: str, duty_per_chip: int) -> Values:
    """Values of one family; what is no number is left out."""
    shape = family.shape
    if shape is Shape.LABELLED:
        rows = (split(text) for text in texts)
        return {
            key: value
            for label, *stats in filter(None, rows)
            for key, value in _stats(f"{family.key}.{label_of(label)}", family, stats, description).items()
        }
    if shape is Shape.FLAT:
        return _stats(family.key, family, [item for text in texts for item in split(text)], description)
    if shape is Shape.COUNT:
        return _counts(family, texts)
    if shape is Shape.LINK and any(":" in text for text in texts):
        return _links(family, texts)
    repeat = duty_per_chip if shape is Shape.CHIP else 1
    return {
        family.key.format(i=index * repeat + each): value
        for index, text in enumerate(texts)
        if (value := number(text)) is not None
        for each in range(repeat)
    }


def _stats(prefix: str, family: Family, stats: Sequence[str], description: str) -> Values:
    names = stat_names(description, len(stats))
    return {
        f"{prefix}.{name}{family.suffix}": value
        for name, text in zip(names, stats, strict=True)
        if (value := number(text)) is not None
    }


def _pairs(texts: Sequence[str]) -> list[tuple[str, int | float]]:
    """Name and number of "tensorcore-0: 3"."""
    named = (text.strip().strip("'\"").rpartition(":") for text in texts)
    return [(name, value) for name, _, text in named if (value := number(text)) is not None]


def _counts(family: Family, texts: Sequence[str]) -> Values:
    return {
        f"{family.key}.{label_of(name) if name else f'item_{index}'}": value
        for index, (name, value) in enumerate(_pairs(texts))
    }


def _links(family: Family, texts: Sequence[str]) -> Values:
    """Each link by its name, and each device's worst link, unless two trays have devices of the same number."""
    pairs = _pairs(texts)
    values: Values = {f"{family.without_device}.{label_of(name)}": value for name, value in pairs}
    places = [(match[1], int(match[2]), value) for name, value in pairs if (match := _LINK.match(name))]
    if len({tray for tray, _, _ in places}) == 1:
        for _, device, value in places:
            key = family.key.format(i=device)
            values[key] = max(value, values.get(key, value))
    return values
