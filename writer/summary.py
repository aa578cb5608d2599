"""The summary of a run while it is written: the last value of each metric, and what the user set.

Rows come by the thousand, so a row costs one assignment: its key plan remembers the row's values, and they are folded
in when somebody asks (a flush, a read). What a record says is the difference to the record before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..logformat.metricsummaries import MetricSummaries
from ..logformat.summary import Summary
from .encoding import to_json
from .history import KeyPlan
from .metrics import MetricDefinition
from .records import Update
from .values import Path


class SummaryState:
    """Folds rows by the metric definitions, exactly as a reader of the log does."""

    def __init__(self, removed: Callable[[Path], None] = lambda _path: None) -> None:
        """An empty one. `removed` is told what the user takes out of it."""
        self.removed = removed
        self._summary = Summary()
        self._folds = MetricSummaries()
        self._defined = False
        self._recent: dict[int, KeyPlan] = {}
        self._rows = 0
        self._written: dict[Path, bytes] = {}
        self._tree: dict[str, Any] | None = None
        self.dirty = False
        """Whether a record might say anything new."""

    def add_row(self, plan: KeyPlan, parts: list[bytes], *, nulls: bool, part: bool = False) -> None:
        """Take in one row, or a further part of the last one: the JSON text of each of the plan's paths."""
        self.dirty, self._tree = True, None
        if nulls or self._defined:  # a null updates nothing, and a mean needs every row
            self._fold_recent()
            self._fold(plan, parts, part=part)
            return
        if plan.latest is None:
            self._recent[id(plan)] = plan
        self._rows += 1
        plan.latest = parts
        plan.order = self._rows

    def define(self, definition: MetricDefinition) -> None:
        """Rows from now on fold by the definition."""
        self._fold_recent()
        self._defined = True
        self._folds.define(definition.as_message())

    def set(self, path: Path, value: Any) -> None:
        """The user's own plain value: it stands until a row brings a newer one. A dict replaces what was below `path`.

        Raises:
            ValueError: the value has no JSON text.
        """
        leaves = [(leaf, to_json(inner)) for leaf, inner in leaves_of(path, value)]
        if isinstance(value, dict):
            self.remove(path)
        self.dirty, self._tree = True, None
        self._fold_recent()
        for leaf, text in leaves:
            self._summary.set(leaf, text)

    def remove(self, path: Path) -> None:
        """Forget `path` and all below it, and say so at once: rows tell what they logged, and may have told it before."""
        self.dirty, self._tree = True, None
        self._fold_recent()
        depth = len(path)
        if any(leaf[:depth] == path for leaf in self._summary.leaves()):
            self.removed(path)
            self._written = {leaf: text for leaf, text in self._written.items() if leaf[:depth] != path}
        self._summary.remove(path)

    def take_changes(self) -> tuple[list[Update], list[Path]]:
        """What changed since the last call: updates, and the removals that go before them."""
        self._fold_recent()
        leaves = self._summary.leaves()
        updates = [(path, text) for path, text in leaves.items() if self._written.get(path) != text]
        removals = [path for path in self._written if path not in leaves]
        self._written = dict(leaves)
        self.dirty = False
        return updates, removals

    def forget_written(self) -> None:
        """A new segment begins: say everything again."""
        self._written = {}
        self.dirty = True

    def tree(self) -> dict[str, Any]:
        """The summary as nested dicts, not to be changed: the same ones until something changes."""
        if self._tree is None:
            self._fold_recent()
            self._tree = self._summary.tree()
        return self._tree

    def _fold_recent(self) -> None:
        if self._recent:
            for plan in sorted(self._recent.values(), key=lambda plan: plan.order):
                if plan.latest is not None:
                    self._fold(plan, plan.latest)
                    plan.latest = None
            self._recent.clear()

    def _fold(self, plan: KeyPlan, parts: list[bytes], *, part: bool = False) -> None:
        paths, texts = self._folds.apply(plan.paths, parts, self._summary, part=part)
        self._summary.update(paths, texts)


def leaves_of(path: Path, value: Any) -> list[tuple[Path, Any]]:
    """The leaves below `path`: a dict has one per entry, anything else is one."""
    if not isinstance(value, dict):
        return [(path, value)]
    return [leaf for name, inner in value.items() for leaf in leaves_of((*path, name), inner)]
