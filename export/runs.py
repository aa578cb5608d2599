"""The runs of some paths, each with its logs, and what a run's logs hold."""

from __future__ import annotations

import glob
import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..logformat import Gap, RunState, find_logs, head_of, in_order, log_name, run_id_of, siblings, valid_run_id
from ..logformat.elapsed import in_seconds
from ..logformat.heal import Healed
from ..logformat.segments import fold
from ..logformat.sources import first_look

_NAMED = 5
"""Bits of a log that are named."""
_MOST = 100
"""Bytes of a folder's name that come from a run's id."""


class ExportError(Exception):
    """Why nothing can be exported, or not to there."""


@dataclass
class RunLogs:
    """A run that was found."""

    name: str
    """Its id, if that is a name for a folder; no two runs have the same, not even where case does not count."""
    logs: list[Path]
    problem: str = ""
    """Why they cannot be read as one run."""


@dataclass
class LoadedRun:
    """What a run's logs hold."""

    name: str
    logs: list[Path]
    shown: list[str]
    """The logs as the user calls them."""
    state: RunState
    gaps: list[tuple[str, Gap]] = field(default_factory=list)
    """The log of each gap."""
    healed: list[tuple[str, str]] = field(default_factory=list)
    """Logs with flipped bits that reading mended, and which bits these are."""
    runtimes: array[float] = field(default_factory=lambda: array("d"))
    """Seconds that the run had taken at each sample, the time between its logs not counted."""
    status: str = ""
    """How it ended: `finished`, `failed`, `crashed`, `running` or `unknown`."""


def find_runs(
    paths: Iterable[str | os.PathLike[str]],
    *,
    unreadable: Callable[[OSError], object] | None = None,
    home: Path = Path("wandb"),
) -> list[RunLogs]:
    """The runs below `paths`, in the order in which they are found.

    A log stands for itself alone. A run's directory, or its id, stands for all logs of the run that lie in the same `wandb`
    directory; logs of one run that are found in several places are one run.

    Args:
        paths: logs, directories, or ids of runs in `home`.
        unreadable: told of each folder that cannot be listed.
        home: where runs named by their ids lie.

    Raises:
        ExportError: nothing is at a path, or no log.
    """
    runs: dict[tuple[str, ...], list[Path]] = {}
    problems: dict[tuple[str, ...], str] = {}
    for path in map(Path, paths):
        logs = [log for place in _places(path, home) for log in find_logs(place, unreadable=unreadable)]
        if not logs:
            raise ExportError(f"{path}: no log (run-<id>.wandb) here")
        if len(logs) == 1 and logs[0] != path:
            with suppress(OSError, ValueError):  # said below, with the run
                logs = siblings(logs[0])
        for log in logs:
            try:
                key: tuple[str, ...] = head_of(log).run or (os.path.realpath(log),)
            except OSError as error:
                key = (os.path.realpath(log),)
                problems[key] = f"{log}: {error.strerror or error}"
            runs.setdefault(key, []).append(log)
    taken: set[str] = set()
    return [_run(key, logs, problems.get(key, ""), taken) for key, logs in runs.items()]


def _places(path: Path, home: Path) -> list[Path]:
    if path.exists() or os.path.lexists(path):
        return [path]
    found = sorted(home.glob(f"*run-*-{glob.escape(str(path))}/{glob.escape(log_name(str(path)))}"))
    if not found:
        raise ExportError(f"{path}: neither a path here nor the id of a run in ./{home}")
    return [log.parent for log in found]


def _run(key: tuple[str, ...], logs: list[Path], problem: str, taken: set[str]) -> RunLogs:
    name = _free(folder_name(key[2] if len(key) > 2 else run_id_of(logs[0]) or logs[0].stem), taken)
    if problem:
        return RunLogs(name, logs, problem)
    try:
        return RunLogs(name, in_order(logs) if len(logs) > 1 else logs)
    except (OSError, ValueError) as error:
        return RunLogs(name, logs, str(error))


def folder_name(run_id: str) -> str:
    """A run's id as the name of one folder, whatever a log gives for an id."""
    if valid_run_id(run_id) and not run_id.startswith(".") and len(run_id.encode()) <= _MOST:
        return run_id
    letters = "".join(char if char.isprintable() and char not in ":;,#?/'\"\\*<>|" else "_" for char in run_id)
    letters = letters.encode("utf-8", "replace")[:_MOST].decode("utf-8", "ignore").strip()
    return "_" + letters.lstrip(".") if letters.startswith(".") else letters or "run"


def _free(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while found.casefold() in taken:
        number += 1
        found = f"{name}-{number}"
    taken.add(found.casefold())
    return found


def status_by_end(state: RunState, log: Path) -> str:  # noqa: ARG001 - the port's
    """How a run ended by its logs alone: one without an end still runs."""
    return state.status(age=0.0)


def load(
    run: RunLogs,
    *,
    rows: bool = True,
    shown: Callable[[Path], str] = str,
    status: Callable[[RunState, Path], str] = status_by_end,
) -> LoadedRun:
    """Read a run's logs.

    Args:
        run: which one.
        rows: whether rows, samples and console are wanted; without, memory does not grow with the run.
        shown: what a log is called.
        status: how a run ended, by its state and its last log.

    Raises:
        OSError: a log cannot be read.
        ExportError: there is no record in them.
    """
    state = RunState(keep_rows=rows)
    loaded = LoadedRun(run.name, run.logs, [clean(shown(log)) for log in run.logs], state)
    known = mended = 0
    for index, _ in enumerate(fold(run.logs, state)):
        if bits := state.healed[mended:]:
            loaded.healed.append((loaded.shown[index], _told(bits)))
            mended = len(state.healed)
        loaded.gaps += ((loaded.shown[index], gap) for gap in state.gaps[known:])
        known = len(state.gaps)
        _extend_runtimes(loaded, run.logs[index])
    if not state.counts:
        with run.logs[-1].open("rb") as file:
            raise ExportError(first_look(file.read(512)) or "no record in it can be read")
    loaded.status = status(state, run.logs[-1])
    return loaded


def _told(bits: Sequence[Healed]) -> str:
    named = ", ".join(f"bit {bit.bit} of byte {bit.offset}" for bit in bits[:_NAMED])
    return f"{named}, and {len(bits) - _NAMED} more" if len(bits) > _NAMED else named


def _extend_runtimes(loaded: LoadedRun, log: Path) -> None:
    """The samples of a log that was just read count from its start, and on from what the run had taken then."""
    times = loaded.state.samples.timestamps_ns
    done = len(loaded.runtimes)
    if done == len(times):
        return
    start = head_of(log).start_time_ns or times[done]
    offset = loaded.state.elapsed.offset
    loaded.runtimes.extend(offset + in_seconds(time - start) for time in times[done:])


def clean(text: str) -> str:
    """A path as text that can be written as UTF-8."""
    return os.fsencode(text).decode("utf-8", "replace")
