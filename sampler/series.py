"""Which series of an endpoint are kept, and the number that each set of labels gets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from .exposition import Line, parse_labels
from .keys import LONGEST_KEY

MOST_SERIES = 5000  # kept of one endpoint
MOST_LABEL_BYTES = 4 << 20  # of their labels together
MOST_NAMES = 20_000  # of metrics that are remembered as wanted or not
MOST_UNWANTED_BYTES = 4 << 20  # of series that are remembered as not wanted; others are judged again at each sample
LONGEST_LABELS = 4 << 10  # bytes of one series: a filter's `.*x` takes the square of that, and cannot be interrupted

Filters = Sequence[str] | Mapping[str, Mapping[str, str]]


class Chooser:
    """The filters of the settings: patterns that are searched in `endpoint.metric`, each perhaps with some of labels.

    A series is kept if for any one of them the name matches and so do all of its labels; a label that is not there
    does not. Without filters all are kept. `broken` tells which expressions are none: their patterns keep nothing.
    """

    def __init__(self, filters: Filters) -> None:
        self.broken: list[str] = []
        self._all = not filters
        self._rules: list[tuple[re.Pattern[str], dict[str, re.Pattern[str]]]] = []
        labels_of = filters if isinstance(filters, Mapping) else {pattern: {} for pattern in filters}
        for pattern, labels in labels_of.items():
            name = self._compiled(pattern)
            found = {
                label: self._compiled(text, f" (label {label!r} of {pattern!r})") for label, text in labels.items()
            }
            rule = {label: value for label, value in found.items() if value is not None}
            if name is not None and len(rule) == len(found):
                self._rules.append((name, rule))

    def _compiled(self, text: str, where: str = "") -> re.Pattern[str] | None:
        try:
            return re.compile(text)
        except re.error as error:
            self.broken.append(f"{text!r}{where} is no regular expression: {error}")
            return None

    def may_keep(self, name: str) -> bool:
        """Whether any series of the metric `name` (with the endpoint before it) can be kept."""
        return self._all or any(pattern.search(name) for pattern, _ in self._rules)

    def keeps(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the series is kept."""
        return self._all or any(
            pattern.search(name)
            and all(label in labels and value.search(labels[label]) for label, value in rule.items())
            for pattern, rule in self._rules
        )


class SeriesTable:
    """From lines to keys, `openmetrics.{endpoint}.{metric}.{n}`: `n` counts the metric's sets of labels as they appear.

    Bounded whatever the endpoint sends: `overflow` is called once, when a series is dropped because there are
    too many, or its labels are too long. A series that was seen costs one look into a dictionary.
    """

    def __init__(self, endpoint: str, chooser: Chooser, overflow: Callable[[], None]) -> None:
        self._endpoint = endpoint
        self._chooser = chooser
        self._overflow = overflow
        self._names: dict[bytes, bool] = {}
        self._keys: dict[bytes, str] = {}  # text of a series -> key
        self._kept: set[bytes] = set()  # names of their metrics
        self._unwanted: set[bytes] = set()
        self._unwanted_bytes = 0
        self._numbers: dict[tuple[str, frozenset[tuple[str, str]]], str] = {}
        self._count: dict[str, int] = {}
        self._label_bytes = 0
        self._full = False
        self.malformed = 0
        """Lines whose labels could not be read."""
        self.legend: dict[str, dict[str, str]] = {}
        """Key -> labels, of all that have any."""

    def wants(self, name: bytes) -> bool:
        """Whether anything of this metric may be kept."""
        if self._full:  # what came too late need not be read again
            return name in self._kept
        known = self._names.get(name)
        if known is None:
            if len(name) >= LONGEST_KEY:
                return False
            if len(self._names) >= MOST_NAMES:
                self._overflowed()
                return False
            text = name.decode("utf-8", "replace")
            known = text.isprintable() and self._chooser.may_keep(f"{self._endpoint}.{text}")
            self._names[name] = known
        return known

    def key_of(self, line: Line) -> str | None:
        """The key of a line's series; None if it is not kept."""
        key = self._keys.get(line.series)
        if key is not None or line.series in self._unwanted:
            return key
        return self._admit(line)

    def _admit(self, line: Line) -> str | None:
        if self._full:  # not even looked at: a body of a million series must not cost a million looks
            return None
        if len(line.labels) > LONGEST_LABELS:
            self._overflowed()
            return None
        parsed = parse_labels(line.labels) if line.labels else ("", {})
        if parsed is None:
            self.malformed += 1
            return None
        labels = parsed[1]
        metric = line.name.decode("utf-8", "replace")
        if not self._chooser.keeps(f"{self._endpoint}.{metric}", labels):
            self._unwanted_bytes += len(line.series)
            if self._unwanted_bytes <= MOST_UNWANTED_BYTES:
                self._unwanted.add(line.series)
            return None
        identity = (metric, frozenset(labels.items()))
        key = self._numbers.get(identity)
        if len(self._keys) >= MOST_SERIES or self._label_bytes + len(line.labels) > MOST_LABEL_BYTES:
            self._full = True
            self._overflowed()
            return key
        if key is None:
            number = self._count.get(metric, 0)
            self._count[metric] = number + 1
            key = self._numbers[identity] = f"openmetrics.{self._endpoint}.{metric}.{number}"
            if labels:
                self.legend[key] = labels
        self._keys[line.series] = key
        self._kept.add(line.name)
        self._label_bytes += len(line.labels)
        return key

    def _overflowed(self) -> None:
        overflow, self._overflow = self._overflow, _nothing
        overflow()


def _nothing() -> None:
    """It was told once."""
