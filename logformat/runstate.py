"""The fold of a log, or of the segments of one run in order, into what the run is: one truth for every consumer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .bulk import BatchFold
from .columns import Rows
from .config import change_config
from .console import ConsoleLine
from .elapsed import Elapsed, nanoseconds, seconds_of, shifted_runtime
from .heal import Healed
from .history import RUNTIME, STEP, TIMESTAMP, Path, decode_history, decode_items, is_part, place_of, step_of
from .metricsummaries import Column, MetricSummaries
from .plainrows import Block
from .record import Batch, Gap, GapReason, Record
from .runinfo import RunInfo, is_node
from .samples import Samples, sample_values
from .steps import ALL_STEPS, StepCounter, Steps
from .summary import Summary
from .terminal import Terminal

_STREAMS = {0: "stderr", 1: "stdout"}
_POLICIES = {0: "now", 1: "end", 2: "live"}


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert record."""

    title: str
    text: str
    level: str
    wait_seconds: float
    offset: int = field(default=-1, compare=False)
    """Where its record begins in the log."""


class RunState:
    """Add the records of a log in order, or those of each log of a run, one log after the other; read what they make.

    With `keep_rows=False` rows, samples and console lines are counted but not kept, so that memory does not grow with
    the log. Nothing that a log holds raises: a record that cannot be understood is counted in `bad_records`.
    """

    def __init__(self, *, keep_rows: bool = True) -> None:
        self._keep = keep_rows
        self.info = RunInfo()
        self.has_run = False
        """Whether a run record was seen: without one nobody knows which run this is."""
        self.config: dict[str, Any] = {}
        self._config_lost: dict[Path, None] = {}
        self._has_producer = False
        self._by_core = True
        """Whether records tell of changes, as those of the peer's core do. The peer's Python, which wrote logs up to 0.17, put
        the whole summary into a summary record, and a whole value in place of one of the config."""
        self.metrics: list[Any] = []
        """MetricRecords in order of definition, one per name or glob."""
        self.telemetry: Any = None
        """The latest TelemetryRecord, or None."""
        self.environments: dict[str, Any] = {}
        """Writer id -> its EnvironmentRecords, merged; the logs of a run that was resumed have one each, in their order."""
        self.rows = Rows()
        self.row_count = 0
        self.part_count = 0
        """History records that were further parts of a row: `row_count` and this are all that were understood."""
        self.cut_count = 0
        """Rows left out, because their steps are those of another log of the run: see `begin_log`."""
        self.last_step: int | None = None
        """Of the latest row. One that has no step follows the row before it in its log, from 0 on."""
        self.highest_step: int | None = None
        self.log_highest: int | None = None
        """The same of the log that is being read."""
        self.samples = Samples()
        self.sample_count = 0
        self.elapsed = Elapsed()
        """How long the run took, and how the logs share it."""
        self.console: list[ConsoleLine] = []
        """Complete lines; `console_rest` has unfinished ones. The latest `SCREEN_ROWS` of a stream may still change, where they
        stand, if a program goes up to them to draw a bar again: see `terminal`."""
        self.console_count = 0
        self.files: dict[str, str] = {}
        """Path below `files/` -> policy: now, end or live. Paths are as logged, so not to be trusted."""
        self.artifacts: list[Any] = []
        """ArtifactRecords in order."""
        self.used_artifacts: list[Any] = []
        """UseArtifactRecords in order: artifacts that a server had already."""
        self.alerts: list[Alert] = []
        self.exit_code: int | None = None
        """None as long as no exit record was seen."""
        self.exit_runtime = 0
        """Seconds, from the exit record."""
        self.preempting = False
        self.gaps: list[Gap] = []
        self.healed: list[Healed] = []
        """Bits of the logs that reading mended; who reads them says so, as `fold` and `load` do."""
        self.gap_rows: list[int] = []
        """How many of `rows` stand before each of `gaps`: rows may be missing there."""
        self.counts: Counter[str] = Counter()
        """Records by kind."""
        self.bad_records = 0
        """Records whose message could not be parsed."""
        self._summary = Summary()
        self._summary_step = b""
        """The step that the latest summary record carries: logs of the peer hold it just before the row itself."""
        self.metric_summaries = MetricSummaries()
        """The metrics that are not simply their last values."""
        self._started_ns = 0
        self.is_later = False
        """A later log of the run is read. What its records say of a minimum or a mean is that of its own rows."""
        self._metric_index: dict[tuple[str, str], int] = {}
        self._streams = {name: Terminal(name, self.console if keep_rows else None) for name in ("stdout", "stderr")}
        self._counter = StepCounter()
        self._steps, self._step_shift = ALL_STEPS, 0
        self._row_step: bytes | None = None
        self._row_offset = 0
        self._row_paths: tuple[Path, ...] = ()
        self._row_places = (-1, -1, -1)  # where rows of those paths hold their step, time and runtime
        self._batches: BatchFold | None = None
        self._handlers = {
            "header": self._header,
            "history": self._history,
            "run": self._run,
            "config": self._config,
            "summary": self._summary_record,
            "stats": self._stats,
            "output_raw": self._output,
            "output": self._output,
            "output_logger": self._output_logger,
            "files": self._files,
            "artifact": self._artifact,
            "use_artifact": self._use_artifact,
            "alert": self._alert,
            "metric": self._metric,
            "telemetry": self._telemetry,
            "environment": self._environment,
            "exit": self._exit,
            "preempting": self._preempting,
        }

    def __repr__(self) -> str:
        run = self.info.run_id or "unknown run"
        end = "no exit" if self.exit_code is None else f"exit {self.exit_code}"
        return f"<RunState of {run}: {self.row_count} rows, {self.sample_count} samples, {end}>"

    def _repr_html_(self) -> str:
        from .frames import overview

        return overview(self.rows, repr(self)[1:-1])

    # -- feeding -----------------------------------------------------------------------------------------------------

    def add(self, item: Record | Gap) -> None:
        """Take the next record or gap of the log into account."""
        if isinstance(item, Gap):
            self._add_gap(item)
            return
        self.counts[item.kind] += 1
        handler = self._handlers.get(item.kind)
        if handler is None:
            return
        try:
            handler(item)
        except ValueError:  # WireError is one
            self.bad_records += 1
            self._add_gap(Gap(item.offset, item.end - item.offset, GapReason.BAD_PROTO, 1))

    def _add_gap(self, gap: Gap) -> None:
        self.gaps.append(gap)
        self.gap_rows.append(self.row_count)

    def add_row(self, paths: tuple[Path, ...], texts: list[bytes], *, overwritten: bool = False) -> None:
        """As `add`, for a row that the caller has decoded. One that is `overwritten` leaves nothing in the summary."""
        self.counts["history"] += 1
        self._fold_row(paths, texts, overwritten=overwritten)

    def add_block(self, block: Block, defined: Sequence[Column] = (), *, is_spoken_for: bool = False) -> None:
        """As `add`, for plain rows and the summary records among them; `rows` are left to who calls it.

        Where `folds_metrics`, `defined` has the metrics with summaries of their own, which the block leaves out. If it
        `is_spoken_for`, it leaves what summary records say, and those are among them.
        """
        count = len(block.offsets)
        self.counts["history"] += count
        if block.summaries:
            self.counts["summary"] += block.summaries
        self.row_count += count
        self._row_step, self.last_step = block.last.step, block.last.number
        self._row_offset = block.last.offset
        self._counter.step = self.last_step
        self._reached(block.highest)
        self.elapsed.saw(block.time_s * 1e9)
        self.elapsed.saw_seconds(block.runtime_s)
        self._summary.update(tuple(block.leaves), list(block.leaves.values()), nulls=True)
        self._summary_step = block.spoken
        self.metric_summaries.apply_many(defined, None if is_spoken_for else self._summary)

    def begin_log(self, steps: Steps = ALL_STEPS, step_shift: int = 0) -> None:
        """What comes next is of another log: its first row is no part of the last one, and how the run ends is its word.

        A log that begins with its header or run record is noticed without, if rows came before.

        Args:
            steps: of the rows that count. Others are left out, and what summary records say of them.
            step_shift: added to the steps of its rows, where it counts from 0 again behind others.
        """
        self._counter, self._steps, self._step_shift = StepCounter(steps), steps, step_shift
        self._row_step, self._row_offset, self.log_highest = None, 0, None
        self.exit_code, self.exit_runtime, self.preempting = None, 0, False
        self.elapsed.begin_log()

    def add_all(self, items: Iterable[Record | Gap]) -> RunState:
        """Add each of `items`; returns itself, so that `RunState().add_all(read_records(path))` reads well."""
        for item in items:
            self.add(item)
        return self

    def add_batches(self, items: Iterable[Batch | Gap]) -> RunState:
        """As `add_all`, for what `LogReader.batches` or `poll_batches` gives: to the same effect, in a third of the time."""
        for item in items:
            if isinstance(item, Gap):
                self._add_gap(item)
            else:
                if self._batches is None:
                    self._batches = BatchFold(self, keep_rows=self._keep)
                self._batches.add(item)
        return self

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def summary(self) -> dict[str, Any]:
        """Nested summary: rows folded by the metric definitions, then what summary records said after them."""
        return self._summary.tree()

    def lost(self) -> dict[str, list[Path]]:
        """The keys of `config` and of `summary`, by these names, whose values are no JSON or lie too deep.

        Steps are not among them: one that is none is counted instead.
        """
        summary: list[Path] = []
        self._summary.tree(summary)
        return {"config": list(self._config_lost), "summary": [path for path in summary if path != STEP]}

    @property
    def row_step(self) -> bytes | None:
        """The text of the latest row's step: a record of the same step is a part of that row."""
        return self._row_step

    @property
    def summary_step(self) -> bytes:
        """The text of the step that the latest summary record carries: what a row of that step leaves, it has said already.

        May be set, by who has found that record to say no more than its row, and has added the row instead.
        """
        return self._summary_step

    @summary_step.setter
    def summary_step(self, text: bytes) -> None:
        self._summary_step = text

    @property
    def takes_blocks(self) -> bool:
        """Whether `add_block` may be used: nothing has to be done to each row by itself, if no metrics are folded."""
        is_plain = self._steps is ALL_STEPS and not self._step_shift and not self.elapsed.shift
        return is_plain and self._by_core

    @property
    def replaces_summary(self) -> bool:
        """Whether a summary record stands in place of all that rows left before it, as the peer's Python wrote them."""
        return not self._by_core

    @property
    def folds_metrics(self) -> bool:
        """Whether a metric was defined whose summary is not simply its last value."""
        return self.metric_summaries.has_rules

    @property
    def console_rest(self) -> list[ConsoleLine]:
        """What the program wrote behind its last newline, per stream."""
        return [line for stream in self._streams.values() for line in stream.rest()]

    @property
    def damage(self) -> list[Gap]:
        """Gaps that lost something for certain: all but an unfinished tail or zeros behind the last record."""
        soft = {GapReason.TORN_TAIL, GapReason.ZEROED}
        return [
            gap for gap in self.gaps if not (gap.reason in soft and gap is self.gaps[-1] and gap.records_lost is None)
        ]

    @property
    def records_lost(self) -> int | None:
        """Records known to be lost in gaps; None if a gap does not tell."""
        known = [gap.records_lost for gap in self.gaps]
        return None if None in known else sum(lost for lost in known if lost)

    @property
    def runtime(self) -> float:
        """Seconds that the run took, over all of its logs: exit records, else the last time that anything carries."""
        return self.elapsed.total

    @property
    def last_runtime(self) -> float:
        """Seconds: the largest `_runtime` of a row."""
        return self.elapsed.latest

    @property
    def last_time_ns(self) -> int:
        """The latest time that a row, sample or console line carries."""
        return self.elapsed.latest_ns

    @property
    def environment(self) -> Any:
        """That of the latest writer, or None."""
        return next(reversed(self.environments.values()), None)

    def status(self, *, age: float, stale_after: float = 600.0) -> str:
        """`finished`, `failed`, `crashed`, `running` or `unknown`; `age` is the seconds since the log last grew."""
        if self.exit_code is not None:
            return "finished" if self.exit_code == 0 else "failed"
        if not self.has_run:
            return "unknown"
        return "crashed" if age > stale_after else "running"

    # -- one method per kind of record -------------------------------------------------------------------------------

    def _header(self, record: Record) -> None:
        if record.offset < self._row_offset:
            self.begin_log()
        if record.kind == "header":
            with suppress(ValueError):  # one that cannot be read says nothing
                header = record.message()
                self._has_producer = bool(header.version_info.producer)
                if is_node(header):
                    self.elapsed.set_aside()

    def _history(self, record: Record) -> None:
        self._fold_row(*decode_history(record.body))
        self._row_offset = record.offset

    def _fold_row(self, paths: tuple[Path, ...], texts: list[bytes], *, overwritten: bool = False) -> None:
        if paths is not self._row_paths:
            self._row_paths = paths
            self._row_places = (place_of(STEP, paths), place_of(TIMESTAMP, paths), place_of(RUNTIME, paths))
        step, timestamp, runtime = self._row_places
        text = texts[step] if step >= 0 else None
        cut = self._counter.cut
        if not self._counter.keeps(text):
            self.cut_count += self._counter.cut - cut
            return
        part = text == self._row_step and is_part(text, self._row_step)
        self._row_step = text
        if part:
            self.part_count += 1
        else:
            self.row_count += 1
        self.last_step = self._counter.step + self._step_shift
        self._reached(self.last_step)
        shown = text
        if self._step_shift and text is not None and step_of(text) is not None:
            texts = texts.copy()
            shown = texts[step] = b"%d" % self.last_step
        if timestamp >= 0:
            self.elapsed.saw(seconds_of(texts[timestamp]) * 1e9)
        if runtime >= 0:
            if self.elapsed.shift:
                texts = texts.copy()
                texts[runtime] = shifted_runtime(texts[runtime], self.elapsed.shift)
            self.elapsed.saw_row(texts[runtime])
        if self._keep and part:
            self.rows.merge(paths, texts)
        elif self._keep:
            self.rows.append(paths, texts)
        if overwritten:
            return
        if text is not None and shown is not None and text == self._summary_step:
            # The summary record before it says what the row made.
            self.metric_summaries.apply(paths, texts, self._summary if self.is_later else None, part=part)
            self._summary.set(STEP, shown)
            return
        plain_paths, plain_texts = self.metric_summaries.apply(paths, texts, self._summary, part=part)
        self._summary.update(plain_paths, plain_texts)

    def _reached(self, step: int) -> None:
        """A row has this step."""
        if self.log_highest is None or step > self.log_highest:
            self.log_highest = step
            self.highest_step = step if self.highest_step is None else max(self.highest_step, step)

    def _run(self, record: Record) -> None:
        run = record.message()
        self._header(record)
        self.has_run = True
        self._summary_step = b""  # the rows of another segment count from 0 again
        started_ns = nanoseconds(run.start_time)
        self.is_later = self.is_later or self._started_ns not in {0, started_ns}
        self._started_ns = started_ns
        goes_on = bool(run.runtime or run.starting_step)  # which only our writers say
        self.elapsed.begin_run(started_ns, goes_on=goes_on, runtime=run.runtime)
        self.info.take(run)
        # Both writers of the peer say its version; the Python one names no producer of the log.
        self._by_core = self._has_producer or not run.telemetry.cli_version
        change_config(self.config, run.config, self._config_lost, merge=self._by_core)
        if run.HasField("telemetry"):
            self.telemetry = run.telemetry

    def _config(self, record: Record) -> None:
        change_config(self.config, record.message(), self._config_lost, merge=self._by_core)

    def _summary_record(self, record: Record) -> None:
        if not self._by_core and not self.is_later:
            step = self._summary.leaves().get(STEP)  # which is for rows to say
            self._summary = Summary()
            if step is not None:
                self._summary.set(STEP, step)
        body = record.body
        items = decode_items(body)
        if items is not None and items[2] == len(body):
            self._update_summary(items[0], items[1])
            return
        change = record.message()
        paths = tuple(tuple(item.nested_key) or (item.key,) for item in change.update)
        self._update_summary(paths, [item.value_json.encode() for item in change.update])
        for item in change.remove:
            self._summary.remove(tuple(item.nested_key) or (item.key,))

    def _is_cut(self, paths: tuple[Path, ...], texts: list[bytes]) -> bool:
        """Whether a summary record speaks for a row that does not count: those of the peer carry the step of their row."""
        place = place_of(STEP, paths) if self._steps != ALL_STEPS else -1
        step = step_of(texts[place]) if place >= 0 else None
        return step is not None and not self._steps.keep(step)

    def _update_summary(self, paths: tuple[Path, ...], texts: list[bytes]) -> None:
        if self._is_cut(paths, texts):
            return
        while STEP in paths:  # the step of the summary is that of the last row; this one says up to where it was folded
            at = paths.index(STEP)
            self._summary_step = texts.pop(at)
            paths = paths[:at] + paths[at + 1 :]
        texts = self.elapsed.in_summary(paths, texts)
        if self.is_later:
            kept = [pair for pair in zip(paths, texts, strict=True) if not self.metric_summaries.makes(pair[0])]
            paths, texts = tuple(path for path, _ in kept), [text for _, text in kept]
        self._summary.update(paths, texts, nulls=True)

    def _stats(self, record: Record) -> None:
        stats = record.message()
        self.sample_count += 1
        timestamp = nanoseconds(stats.timestamp)
        self.elapsed.saw(timestamp)
        if self._keep:
            self.samples.add(timestamp, sample_values(stats))

    def _output(self, record: Record) -> None:
        output = record.message()
        stream = _STREAMS.get(output.output_type, "stdout")
        self._add_lines(self._streams[stream].feed(nanoseconds(output.timestamp), output.line))

    def _output_logger(self, record: Record) -> None:
        self._add_lines(self._streams["stdout"].feed(self.last_time_ns, record.message().line))

    def _add_lines(self, lines: list[ConsoleLine]) -> None:
        self.console_count += len(lines)
        for line in lines:
            self.elapsed.saw(line.timestamp_ns)

    def _files(self, record: Record) -> None:
        for item in record.message().files:
            self.files[item.path] = _POLICIES.get(item.policy, "now")

    def _artifact(self, record: Record) -> None:
        self.artifacts.append(record.message())

    def _use_artifact(self, record: Record) -> None:
        self.used_artifacts.append(record.message())

    def _alert(self, record: Record) -> None:
        alert = record.message()
        self.alerts.append(Alert(alert.title, alert.text, alert.level, alert.wait_duration / 1000, record.offset))

    def _metric(self, record: Record) -> None:
        metric = record.message()
        if metric.expanded_from_glob:
            return
        key = (metric.name, metric.glob_name)
        index = self._metric_index.get(key)
        if index is None:
            self._metric_index[key] = len(self.metrics)
            self.metrics.append(metric)
        elif metric._control.overwrite:  # noqa: SLF001 - a field of the message
            self.metrics[index] = metric
        else:
            self.metrics[index].MergeFrom(metric)
            metric = self.metrics[index]
        self.metric_summaries.define(metric)

    def _telemetry(self, record: Record) -> None:
        self.telemetry = record.message()

    def _environment(self, record: Record) -> None:
        environment = record.message()
        writer = environment.writer_id or next(reversed(self.environments), "")
        before = self.environments.get(writer)
        if before is None:
            self.environments[writer] = environment
            return
        for name in ("args", "gpu_nvidia", "gpu_amd"):
            if getattr(environment, name):
                before.ClearField(name)  # the later list replaces, it does not extend
        before.MergeFrom(environment)

    def _exit(self, record: Record) -> None:
        end = record.message()
        self.exit_code = end.exit_code
        self.exit_runtime = end.runtime
        self.elapsed.end(end.runtime)

    def _preempting(self, record: Record) -> None:  # noqa: ARG002 - one signature for all kinds
        self.preempting = True
