"""Whether a server holds what the logs of a run hold.

What the logs hold is worked out by the code that sends it: cursors, stitching, overlap, fold. What the server cannot tell
is not checked, and said so.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from glob import has_magic
from typing import Any

from .context import Context
from .cursor import load
from .errors import AuthError, OutOfTime, Permanent, SyncError
from .filelane import MADE, made_files, recorded_files
from .localfiles import UnsafeFileError, shown, why
from .places import Places, is_writable
from .plan import LogHead, RunPlan
from .remote import Place, Remote, RemoteState, Unknown
from .replay import RunReplay
from .report import counted, shorten
from .rowcheck import SPELLED, check_rows
from .rowlane import gather_console
from .runfiles import ConsoleFile, RunFile, fits, missing_lines
from .settings import SyncSettings
from .work import RunWork

STILL_GROWING = "the run goes on and has grown since its last sync: sync again"
_COMMITTED = "COMMITTED"
_PART = 1024 * 1024


class Match(str, Enum):
    """What a comparison came to."""

    EQUAL = "equal"
    DIFFERS = "differs"
    UNKNOWN = "unknown"
    """Not checked: the server does not tell, or could not be asked."""


@dataclass(frozen=True)
class Check:
    """One comparison. `note` is in words: what differs, or why it was not checked."""

    name: str
    match: Match
    logs: Any = None
    """What the logs hold, where that is a number or a word."""
    server: Any = None
    note: str = ""
    behind: bool = False
    """What differs is what a server lacks, or has older, until the next sync of a run that goes on."""


@dataclass(frozen=True)
class Verification:
    """A run's logs beside what the server has."""

    run: str
    logs: tuple[str, ...]
    target: str
    match: Match
    reason: str
    """One line: what differs, or what was not checked."""
    checks: tuple[Check, ...] = ()
    try_again: bool = False
    credentials: bool = False
    is_damaged: bool = False
    """A part of the logs cannot be read, and was not compared."""

    @property
    def is_whole(self) -> bool:
        """Whether all that can be lost was compared and is equal."""
        return (
            self.match is Match.EQUAL
            and not self.is_damaged
            and all(check.match is Match.EQUAL or check.name in {"alerts", "last step"} for check in self.checks)
        )

    def as_json(self) -> dict[str, Any]:
        """The object that `runferry verify --remote --json` prints."""
        return {"type": "verify", **asdict(self)}


@dataclass
class Held:
    """What the logs of a run hold, as a server should have it."""

    history: int
    events: int
    console: int
    last_step: int | None
    exit_code: int | None
    summary: dict[str, Any]
    config: dict[str, Any]
    files: list[RunFile]
    artifacts: list[Any] = field(default_factory=list)
    alerts: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    """Files that the logs name and that are not here to be compared -> why."""
    gone: dict[str, int] = field(default_factory=dict)
    """Files that were removed here once the server had them -> bytes that were sent."""


def verify_run(
    plan: RunPlan, context: Context, remote: Remote, *, deep: bool = False, overlap: str | None = None
) -> Verification:
    """Compare one run. Never raises but for a stop (`Interrupted`).

    `deep` compares step and values of every row, which asks for all of them; `overlap` is the policy by which the logs are
    stitched, None for the one by which they were sent.
    """
    logs = tuple(os.fspath(head.path) for head in plan.segments)

    def unknown(reason: str, *, try_again: bool = False, credentials: bool = False) -> Verification:
        name = "/".join((plan.entity or "", plan.project, plan.run_id))
        return Verification(
            plan.run_id, logs, name, Match.UNKNOWN, reason, try_again=try_again, credentials=credentials
        )

    try:
        work = RunReplay(plan, replace(context, settings=_settings(plan, context.settings, overlap))).read()
        place = _place(work)
        state = remote.state(place)
        with contextlib.closing(ConsoleFile()) as console:
            held = _held(work, console)
            checks = _compare(held, state) if state is not None else []
        if deep and state is not None:
            checks.append(_steps(work, remote, place))
    except AuthError as error:
        refused = error.status == 401
        return unknown(context.api.refused_key(error) if refused else str(error), credentials=refused)
    except OutOfTime as error:
        return unknown(str(error), try_again=True)
    except SyncError as error:
        return unknown(str(error))
    except RecursionError:
        return unknown("a value is nested too deeply to be compared")
    except OSError as error:
        return unknown(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    target = "/".join(part or "" for part in place)
    if state is None:
        return Verification(plan.run_id, logs, target, Match.DIFFERS, "the server has no such run")
    damage = [line for segment in work.segments for line in segment.found.damage_lines()]
    found = _judged(plan.run_id, logs, target, checks, damage, goes_on=_has_grown(work))
    if found.match is Match.EQUAL and held.missing and isinstance(state.files, Unknown):
        lost = f"nobody can tell whether the server has what is not here ({shorten(missing_lines(held.missing))})"
        found = replace(found, match=Match.UNKNOWN, reason=f"{lost}; {found.reason}")
    absent = _logs_elsewhere(work)
    if absent and found.match is not Match.EQUAL:
        hint = f"the run was sent with {counted(absent, 'more log')}: name all of them in one command"
        found = replace(found, reason=f"{found.reason}; {hint}")
    return found


def _settings(plan: RunPlan, settings: SyncSettings, overlap: str | None) -> SyncSettings:
    """Those by which the run was sent to this server, where its cursors say."""
    cursors = [load(Places(head.path, settings.state_dir, is_writable).cursors)[0] for head in plan.segments]
    sent = [cursor for cursor in cursors if cursor is not None and cursor.target.base_url == settings.base_url]
    return replace(
        settings,
        dry_run=True,
        following=False,
        overlap=overlap or (sent[-1].overlap if sent else settings.overlap),
        follow_links=settings.follow_links or any(cursor.follow_links for cursor in sent),
    )


def _has_grown(work: RunWork) -> bool:
    """Whether the run goes on, and its log holds what was not sent yet."""
    last, cursor = work.last.found, work.last.cursor
    return cursor is not None and last.exit_code is None and last.end > cursor.offset and work.is_young(work.last)


def _logs_elsewhere(work: RunWork) -> int:
    """How many logs of the run were sent, as the cursors know, that are not among these."""
    sent = {start for segment in work.segments if segment.cursor is not None for start in segment.cursor.kin}
    return len(sent - {segment.head.start_ns for segment in work.segments}) if sent else 0


def _judged(
    run: str, logs: tuple[str, ...], target: str, checks: list[Check], damage: list[str], *, goes_on: bool
) -> Verification:
    different = [f"{check.name}: {check.note}" for check in checks if check.match is Match.DIFFERS]
    unchecked = [
        f"files ({check.note})" if check.name == "files" and check.note else check.name
        for check in checks
        if check.match is Match.UNKNOWN
    ]
    match, reason = Match.EQUAL, f"not checked: {', '.join(unchecked)}" if unchecked else ""
    if different:
        goes_on = goes_on and all(check.behind for check in checks if check.match is Match.DIFFERS)
        match, reason = Match.DIFFERS, "; ".join([*([STILL_GROWING] if goes_on else []), *different])
    elif any(check.name == "rows" and check.match is Match.UNKNOWN for check in checks):
        match, reason = Match.UNKNOWN, f"the server does not tell how many rows it has ({reason})"
    if damage:  # what cannot be read here is compared with nothing
        reason = "; ".join([*filter(None, [reason]), f"damaged here: {shorten(damage)}"])
    late = goes_on and bool(different)
    return Verification(run, logs, target, match, reason, tuple(checks), try_again=late, is_damaged=bool(damage))


def _place(work: RunWork) -> Place:
    """Where the run is at the server: as its cursor names it, else as a sync would ask for it."""
    cursor = work.last.cursor
    if cursor is not None:
        return Place(cursor.entity, cursor.project, cursor.run_id)
    return Place(work.plan.entity, work.plan.project, work.plan.run_id)


# -- what the logs hold ----------------------------------------------------------------------------------------------


def _held(work: RunWork, console: ConsoleFile) -> Held:
    """What the logs hold; `console` is filled, and has to stay open while the files are compared."""
    lines = work.segments[0].placed.base
    last_step = None
    for segment in work.segments:
        found = segment.found
        lines = lines + found.lines
        if found.highest_step is not None:
            highest = found.highest_step + segment.placed.step_shift
            last_step = max(highest, last_step if last_step is not None else 0)
        if found.lines.console:
            gather_console(found, console)
    summary, _ = work.summary()
    files, missing = recorded_files(work)
    here = {file.name for file in files}
    marks = {name: mark for segment in work.segments if segment.cursor for name, mark in segment.cursor.files.items()}
    return Held(
        history=lines.history,
        events=lines.events,
        console=lines.console,
        last_step=last_step,
        exit_code=work.last.found.exit_code,
        summary=json.loads(summary),
        config=work.config(),
        files=[*files, *made_files(work, summary, console)],
        artifacts=list(work.state.artifacts),
        alerts=len(work.state.alerts),
        missing=missing,
        gone={
            name: mark.size
            for name, mark in marks.items()
            if mark.told and not mark.is_made and name not in here and name not in MADE
        },
    )


# -- comparing -------------------------------------------------------------------------------------------------------


def _compare(held: Held, state: RemoteState) -> list[Check]:
    checks = [
        _number("rows", held.history, state.history),
        _number("samples", held.events, state.events),
        _number("console lines", held.console, state.console),
        _number("last step", held.last_step, state.last_step) if held.last_step is not None else None,
        _end(held.exit_code, state.state),
        _tree("summary", held.summary, state.summary),
        _tree("config", _values(held.config), _values(state.config)),
        _files(held, state),
        _artifacts(held.artifacts, state) if held.artifacts else None,
    ]
    if held.alerts:
        checks.append(Check("alerts", Match.UNKNOWN, held.alerts, None, "no server tells which alerts it got"))
    return [check for check in checks if check is not None]


def _unchecked(name: str, ours: Any, why: Unknown) -> Check:
    return Check(name, Match.UNKNOWN, ours, None, why.reason)


def _number(name: str, ours: int | None, theirs: int | Unknown) -> Check:
    if isinstance(theirs, Unknown):
        return _unchecked(name, ours, theirs)
    if ours == theirs:
        return Check(name, Match.EQUAL, ours, theirs)
    behind = ours is not None and ours > theirs  # (of what is equal nothing is)
    return Check(name, Match.DIFFERS, ours, theirs, f"{ours} here, {theirs} there", behind)


def _end(exit_code: int | None, theirs: str | Unknown) -> Check:
    """Whether the state at the server fits the exit code of the log; one without an end may count as gone there."""
    if isinstance(theirs, Unknown):
        return _unchecked("state", exit_code, theirs)
    fits = {"running", "crashed", "preempting", "preempted"} if exit_code is None else {"finished"}
    if exit_code:
        fits = {"failed", "crashed", "killed", "preempted"}
    said = "no exit record" if exit_code is None else f"exit code {exit_code}"
    note = "" if theirs in fits else f"{said} here, {theirs} there"
    return Check("state", Match.DIFFERS if note else Match.EQUAL, exit_code, theirs, note)


def _tree(name: str, ours: dict[str, Any], theirs: dict[str, Any] | Unknown) -> Check:
    """Whether both have the same keys and values. What begins with `_` is the server's own business where we have it not."""
    if isinstance(theirs, Unknown):
        return _unchecked(name, None, theirs)
    wrong = [f"{key} is missing there" for key in ours if key not in theirs]
    wrong += [f"{key} differs" for key in ours if key in theirs and not _is_same(ours[key], theirs[key])]
    more = [f"{key} is only there" for key in theirs if key not in ours and not key.startswith("_")]
    match = Match.DIFFERS if wrong or more else Match.EQUAL
    return Check(name, match, len(ours), len(theirs), shorten([*wrong, *more]), bool(wrong and not more))


def _values(config: dict[str, Any] | Unknown) -> Any:
    """A config without its wrapping, and without what clients say of themselves."""
    if isinstance(config, Unknown):
        return config
    return {
        key: item["value"] if isinstance(item, dict) and "value" in item else item
        for key, item in config.items()
        if key != "_wandb"
    }


def _is_same(ours: Any, theirs: Any) -> bool:
    """Whether two JSON values are the same; NaN is itself, and servers may spell what JSON has no word for."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_is_same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_is_same, ours, theirs))
    if isinstance(ours, float) and not math.isfinite(ours):
        return theirs is None or repr(ours) == repr(theirs) or str(theirs) == SPELLED[repr(ours)]
    return bool(ours == theirs) and (type(ours) is type(theirs) or (_is_number(ours) and _is_number(theirs)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _files(held: Held, state: RemoteState) -> Check:
    """Whether each file that the logs name is there: of those that can be read here with the same size and bytes."""
    if isinstance(state.files, Unknown):
        return _unchecked("files", len(held.files), state.files)
    wrong, by_size, behind = [], 0, True
    uncompared = []
    for name, reason in held.missing.items():
        if _is_there(name, state.files):
            uncompared.append(f"{shown(name)} ({reason})")
        else:
            wrong.append(f"{shown(name)} is missing there, and cannot be sent from here ({reason})")
            behind = False
    for name, size in held.gone.items():
        there = state.files.get(name)
        if name not in held.missing and (there is None or there.size != size):
            bytes_there = "is missing" if there is None else f"has {counted(there.size, 'byte')}"
            wrong.append(
                f"{shown(name)} {bytes_there} there; {counted(size, 'byte')} were sent, and it was removed here"
            )
            behind = False
    for file in held.files:
        there = state.files.get(file.name)
        if there is None:
            wrong.append(f"{file.name} is missing there")
        elif there.size != file.size:
            wrong.append(f"{file.name} has {counted(file.size, 'byte')} here, {there.size} there")
            behind = behind and file.name in MADE
        elif not there.md5:
            by_size += 1
        else:
            try:
                is_same = there.md5 in _digests(file)
            except (OSError, UnsafeFileError) as error:  # since it was looked at
                uncompared.append(f"{shown(file.name)} ({why(error, file.name)})")
                continue
            if not is_same:
                wrong.append(f"{file.name} has other bytes there")
                behind = behind and file.name in MADE
    notes = [shorten(wrong)] if wrong else []
    notes += [f"{by_size} by size alone, as the server tells no MD5"] if by_size else []
    notes += [f"not here to be compared: {shorten(uncompared)}"] if uncompared else []
    match = Match.DIFFERS if wrong else Match.UNKNOWN if uncompared or by_size else Match.EQUAL
    return Check("files", match, len(held.files), len(state.files), "; ".join(notes), behind and bool(wrong))


def _is_there(name: str, files: Iterable[str]) -> bool:
    """Whether a server has a file of this name, or one that fits it where it is a pattern."""
    names = set(files)
    return name in names or (has_magic(name) and any(fits(one, name) for one in names))


def _digests(file: RunFile) -> set[str]:
    """The MD5 of a file as servers write it: base64, or hexadecimal."""
    digest = hashlib.md5(usedforsecurity=False)
    with file.open() as data:
        while part := data.read(_PART):
            digest.update(part)
    return {base64.b64encode(digest.digest()).decode(), digest.hexdigest()}


def _artifacts(artifacts: list[Any], state: RemoteState) -> Check:
    """Whether the server has each artifact that a log ends, with the same digest, committed."""
    if isinstance(state.artifacts, Unknown):
        return _unchecked("artifacts", len(artifacts), state.artifacts)
    wrong, parts = [], 0
    for record in artifacts:
        if record.distributed_id or record.incremental_beta1 or not record.finalize:
            parts += 1  # its digest is that of a whole which this log does not hold
            continue
        said = state.artifacts.get((record.name, record.digest))
        if said is None:
            wrong.append(f"{record.name} ({record.digest}) is missing there")
        elif said != _COMMITTED:
            wrong.append(f"{record.name} is {said.lower()} there")
    notes = [shorten(wrong)] if wrong else []
    notes += [f"not compared: {counted(parts, 'part')} of artifacts"] if parts else []
    match = Match.DIFFERS if wrong else Match.UNKNOWN if parts else Match.EQUAL
    return Check("artifacts", match, len(artifacts), len(state.artifacts), "; ".join(notes), bool(wrong))


def _steps(work: RunWork, remote: Remote, place: Place) -> Check:
    """Whether each step has as many rows there as here, with the same values."""
    try:
        found = check_rows(work, remote, place)
    except AuthError:
        raise
    except Permanent as error:
        return Check("steps", Match.UNKNOWN, None, None, str(error))
    match = Match.DIFFERS if found.wrong else Match.EQUAL
    return Check("steps", match, found.here, found.there, shorten(found.wrong), bool(found.wrong) and found.only_behind)


# -- where runs were sent to -----------------------------------------------------------------------------------------


def as_sent(heads: Iterable[LogHead], settings: SyncSettings) -> list[LogHead]:
    """The heads with entity, project and run id as a sync was told for them, if it was told others than the log says.

    What the settings override stays to them; a cursor of another server says nothing here.
    """
    sent = []
    for head in heads:
        cursor, _ = load(Places(head.path, settings.state_dir, is_writable).cursors)
        if cursor is not None and cursor.target.base_url == settings.base_url:
            target = cursor.target
            project = target.project or head.project
            head = replace(head, entity=target.entity or "", project=project, run_id=target.run_id)  # noqa: PLW2901 - the same head, corrected
        sent.append(head)
    return sent
