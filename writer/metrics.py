"""What `define_metric` says about metrics: their step, how the summary folds them, whether they are shown."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

from .errors import UsageError
from .values import Path

SUMMARY_KINDS = {"min": 1, "max": 2, "mean": 3, "best": 4, "last": 5, "none": 6, "copy": 7, "first": 8}
"""Name -> field number in MetricSummary."""
GOALS = {None: 0, "minimize": 1, "maximize": 2}


class MetricDefinition(NamedTuple):
    """One call of `define_metric`."""

    name: str
    step_metric: str | None = None
    step_sync: bool = False
    hidden: bool = False
    summary: frozenset[str] = frozenset()
    goal: str | None = None
    overwrite: bool = False

    @property
    def is_glob(self) -> bool:
        """Whether the name stands for every metric that begins with it."""
        return self.name.endswith("*")

    @property
    def summary_numbers(self) -> list[int]:
        """The summary kinds by field number."""
        return [SUMMARY_KINDS[kind] for kind in self.summary]

    @property
    def goal_number(self) -> int:
        """0 unset, 1 minimize, 2 maximize."""
        return GOALS[self.goal]

    def as_message(self) -> Any:
        """What `logformat.summary.MetricSummaries` reads of a MetricRecord."""
        kinds = SimpleNamespace(**{kind: kind in self.summary for kind in SUMMARY_KINDS})
        names = ("", self.name) if self.is_glob else (self.name, "")
        return SimpleNamespace(name=names[0], glob_name=names[1], summary=kinds, goal=self.goal_number)

    def matches(self, name: str) -> bool:
        """Whether the definition speaks of the metric."""
        return name.startswith(self.name[:-1]) if self.is_glob else name == self.name


def define(
    name: str,
    step_metric: str | MetricDefinition | None = None,
    *,
    step_sync: bool | None = None,
    hidden: bool | None = None,
    summary: str | Iterable[str] | None = None,
    goal: str | None = None,
    overwrite: bool | None = None,
) -> MetricDefinition:
    """A checked definition. A step metric fills itself into rows that lack it unless `step_sync=False`.

    Raises:
        UsageError: an unknown summary kind or goal, what is no name, or a `*` anywhere but at the end.
    """
    step = step_metric.name if isinstance(step_metric, MetricDefinition) else step_metric or None
    if not isinstance(name, str) or not name or "*" in name[:-1]:
        raise UsageError(f"define_metric: {name!r} is not a metric name; a `*` may stand at its end only")
    if step is not None and not isinstance(step, str):
        raise UsageError(f"define_metric: step_metric {step!r} is not a metric name")
    given: Any = summary.split(",") if isinstance(summary, str) else summary or ()
    if not isinstance(given, Iterable):
        raise UsageError(f"define_metric: summary {summary!r} is neither a text nor several")
    kinds = frozenset(str(kind).strip().lower() for kind in given) - {""}
    if unknown := kinds - SUMMARY_KINDS.keys():
        raise UsageError(f"define_metric: summary {sorted(unknown)} is not one of {', '.join(SUMMARY_KINDS)}")
    aim = str(goal).lower() if goal else None
    if aim not in GOALS:
        raise UsageError(f"define_metric: goal {goal!r} is neither 'minimize' nor 'maximize'")
    if "best" in kinds and aim is None:
        raise UsageError("define_metric: summary 'best' needs a goal")
    sync = bool(step) if step_sync is None else bool(step_sync)
    return MetricDefinition(name, step, sync, bool(hidden), kinds, aim, bool(overwrite))


class Definitions:
    """The definitions in force: an exact name goes before a glob, an earlier glob before a later one."""

    def __init__(self) -> None:
        self._exact: dict[str, MetricDefinition] = {}
        self._globs: dict[str, MetricDefinition] = {}

    def __bool__(self) -> bool:
        return bool(self._exact or self._globs)

    @property
    def step_metrics(self) -> set[str]:
        """The metrics that serve others as their step."""
        return {definition.step_metric for definition in self.all() if definition.step_metric}

    def all(self) -> list[MetricDefinition]:
        """Every definition, for a segment that starts over."""
        return [*self._exact.values(), *self._globs.values()]

    def add(self, definition: MetricDefinition) -> MetricDefinition:
        """What holds from now on: a second definition of a name adds to the first unless it says overwrite."""
        table = self._globs if definition.is_glob else self._exact
        before = table.get(definition.name)
        if before is not None and not definition.overwrite:
            definition = MetricDefinition(
                definition.name,
                definition.step_metric or before.step_metric,
                definition.step_sync or before.step_sync,
                definition.hidden or before.hidden,
                definition.summary | before.summary,
                definition.goal or before.goal,
            )
        table[definition.name] = definition
        return definition

    def find(self, path: Path) -> MetricDefinition | None:
        """The definition for a metric; a nested one goes by its dotted name."""
        name = ".".join(path)
        if name in self._exact:
            return self._exact[name]
        for definition in self._globs.values():
            if definition.matches(name):
                return definition
        return None
