"""What a run tells besides rows: definitions of metrics, alerts, console output. That public half of `Run`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from . import records

if TYPE_CHECKING:
    from .console import ConsoleLog
    from .metrics import MetricDefinition
    from .pump import Job

_LEVELS = ("INFO", "WARN", "ERROR")


class TellMethods:
    """Mixed into `Run`, which owns the attributes named here."""

    _console: ConsoleLog
    _warn_once: Callable[[str, str], None]

    if TYPE_CHECKING:

        def _submit(self, job: Job, *, wake: bool = True, wait: bool = True) -> None: ...
        def _note(self, *features: int) -> None: ...

    def define_metric(  # noqa: PLR0917 - the peer's signature
        self,
        name: str,
        step_metric: str | MetricDefinition | None = None,
        step_sync: bool | None = None,
        hidden: bool | None = None,
        summary: str | Iterable[str] | None = None,
        goal: str | None = None,
        overwrite: bool | None = None,
    ) -> MetricDefinition:
        """Say how a metric is drawn and summarised.

        Args:
            name: the metric, or its beginning and a `*`. A nested metric goes by its dotted name.
            step_metric: the metric on its x axis, or its definition.
            step_sync: fill the step metric into rows that lack it; on by default if there is one.
            hidden: not drawn.
            summary: "min", "max", "mean", "best", "last", "first", "none" or "copy", or several with commas.
            goal: "minimize" or "maximize", for "best".
            overwrite: forget earlier definitions of the name.

        Raises:
            UsageError: an unknown summary or goal, what is no name, or a `*` anywhere but at the end.
        """
        from .metrics import define  # few runs begin with it

        definition = define(
            name, step_metric, step_sync=step_sync, hidden=hidden, summary=summary, goal=goal, overwrite=overwrite
        )
        self._note(
            records.FEATURE_METRIC,
            *([records.FEATURE_METRIC_SUMMARY] if definition.summary else []),
            *([records.FEATURE_METRIC_GOAL] if definition.goal else []),
            *([records.FEATURE_METRIC_HIDDEN] if definition.hidden else []),
            *([records.FEATURE_METRIC_STEP_SYNC] if step_sync else []),
        )
        self._submit(lambda recorder: recorder.define(definition))
        return definition

    def alert(self, title: str, text: str, level: str | None = None, wait_duration: float | None = None) -> None:
        """Leave a message for whoever watches the run.

        Args:
            title: short.
            text: as long as need be.
            level: "INFO" (default), "WARN" or "ERROR", or an `AlertLevel`; what is none of them counts as "INFO".
            wait_duration: seconds (or a timedelta) for which the same title stays silent afterwards; a minute unless
                given.
        """
        given: Any = 60 if wait_duration is None else wait_duration
        seconds = given.total_seconds() if hasattr(given, "total_seconds") else given
        silent_ms = int(min(max(0.0, float(seconds) * 1000), 2.0**53))  # "for ever" is a number in the log
        urgency = str(getattr(level, "value", level) or "INFO").upper()
        if urgency not in _LEVELS:
            self._warn_once(f"alert {urgency}", f"alert: level {level!r} is not one of {', '.join(_LEVELS)}")
            urgency = "INFO"
        body = records.alert(str(title), str(text), urgency, silent_ms)
        self._submit(lambda recorder: recorder.record(body, urgent=True))

    def mark_preempting(self) -> None:
        """Note that the scheduler is about to stop the process. Never waits, so that signal handlers may call it."""
        self._submit(lambda recorder: recorder.record(records.preempting(), urgent=True), wait=False)

    def console(self, stream: str, text: str | bytes) -> None:
        """Log console output.

        Args:
            stream: "stdout" or "stderr".
            text: as it was written: parts of lines, carriage returns and escape sequences included. Bytes are UTF-8,
                and may end in the middle of a character.
        """
        self._console.add(stream, text)

    def write_logs(self, text: str) -> None:
        """Log a line as console output, without printing it."""
        body = records.output_logger(str(text) + "\n")
        self._submit(lambda recorder: recorder.record(body, bulk=True), wake=False)
