"""What a probe says of each of its keys: the table in docs/metrics.md is made of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache


class Kind(Enum):
    """How a value relates to time."""

    GAUGE = "now"
    INTERVAL = "since the last sample"
    TOTAL = "since the sampler began"
    COUNTER = "since the device began"


class Origin(Enum):
    """Who else has a key of this name and meaning."""

    LISTED = "listed"  # in the public list of system metrics
    PEER = "peer"  # what wandb 0.31 writes beside them
    OURS = "ours"


@dataclass(frozen=True, slots=True)
class Metric:
    """One key, or all keys of one form."""

    key: str
    """With what varies in braces: `gpu.{i}.temp`, `disk.{path}.usageGB`. `{i}` stands for a whole number."""
    unit: str
    """As its values have it: `%`, `MiB`, `bytes`, `count`, `W`."""
    source: str
    """What is read: a file, a call, a field."""
    formula: str = ""
    """What is made of it; empty if nothing is."""
    kind: Kind = Kind.GAUGE
    origin: Origin = Origin.LISTED
    setting: str = ""
    """The setting that asks for it (`extended`); empty if it is always there."""
    test: str = ""
    """The test that holds its value, as `tests/sampler/test_host.py::test_...`."""

    def matches(self, key: str) -> bool:
        """Whether `key` is of this form."""
        return pattern(self.key).fullmatch(key) is not None


@cache
def pattern(form: str) -> re.Pattern[str]:
    """What a form of keys matches: `{i}` a whole number, any other word in braces any text."""
    parts = re.split(r"(\{[^{}]*\})", form)
    return re.compile(
        "".join(
            re.escape(part) if not part.startswith("{") else r"\d+" if part == "{i}" else ".+" for part in parts if part
        ),
        re.DOTALL,
    )
