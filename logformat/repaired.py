"""Repaired logs as files: a run directory that the peer's sync and viewers take, or one file. See `repair`.

    FOLDER/offline-run-<YYYYMMDD_HHMMSS>-<id>/run-<id>.wandb    the peer syncs by itself what is named `offline-`
                                              files/            a copy, which it adds to; links stay links
                                              repair.json       what was lost, healed and left out

It appears whole or not at all, and nothing that is there is ever replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from .repair import Findings, rewrite
from .rundir import LOG_SUFFIX, RunDirName, log_name, run_id_of, valid_run_id
from .words import counted

REPORT = "repair.json"
_FILES = "files"
_PREFIX = "offline-run"
_REASONS_SHOWN = 3


class RepairError(Exception):
    """Why a log is not repaired."""


@dataclass(frozen=True)
class Wishes:
    """What is added to a log that lacks it."""

    run_id: str = ""
    entity: str = ""
    project: str = ""
    exit_code: int | None = None


@dataclass
class Repaired:
    """What was made of a log."""

    log: str
    """As its user calls it."""
    output: Path
    """The new run directory, or file."""
    found: Findings
    run_id: str
    records: int = 0
    """Those in the new log."""
    exit_code: int | None = None
    notes: list[str] = field(default_factory=list)
    """What was moved, added, or could not be done."""

    def as_json(self) -> dict[str, Any]:
        """The damage report."""
        found = self.found
        return {
            "type": "repair",
            "log": self.log,
            "output": str(self.output),
            "run": self.run_id,
            "records": self.records,
            "rows": found.rows,
            "exit_code": self.exit_code,
            "gaps": [loss.as_json() for loss in found.losses],
            "healed": [{"offset": bit.offset, "bit": bit.bit} for bit in found.healed],
            "left_out": dict(found.left_out),
            "notes": self.notes,
        }


def repair_to_folder(
    log: Path, folder: Path, found: Findings, wishes: Wishes, *, name: str = "", with_files: bool = True
) -> Repaired:
    """Make a run directory in `folder` of a log and its files.

    Args:
        log: it.
        folder: made if it is missing.
        found: what `repair.examine` found in it.
        wishes: what to add.
        name: how the log is called in the report.
        with_files: copy what lies in `files/` of a run directory.

    Raises:
        RepairError: nothing can be made of it, or the directory is there already.
        OSError: a file cannot be read or written.
    """
    done = _begin(log, found, wishes, name)
    target = folder / str(RunDirName(_PREFIX, _started(log, done.found), done.run_id))
    done.output = target
    folder.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(target):
        raise RepairError(f"{target} is there already: move it away, or name another folder with -o")
    part = folder / f".{target.name}.{secrets.token_hex(4)}.part"
    part.mkdir()
    try:
        with (part / log_name(done.run_id)).open("xb") as out:
            _write(log, out, done, wishes)
        _copy_files(log.parent, part / _FILES, done, with_files=with_files)
        (part / REPORT).write_text(_report(done), encoding="utf-8")
        try:
            part.rename(target)
        except OSError as error:
            if not os.path.lexists(target):
                raise
            raise RepairError(f"{target} is there already: another repair was faster") from error
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return done


def repair_to_file(log: Path, target: Path, found: Findings, wishes: Wishes, *, name: str = "") -> Repaired:
    """As `repair_to_folder`: one new log, and `<target>.repair.json` beside it."""
    done = _begin(log, found, wishes, name)
    done.output = target
    report = target.with_name(f"{target.name}.{REPORT}")
    for path in (target, report):
        if os.path.lexists(path):
            raise RepairError(f"{path} is there already: move it away, or name another file with -o")

    def write_log(out: BinaryIO) -> None:
        _write(log, out, done, wishes)

    def write_report(out: BinaryIO) -> None:
        out.write(_report(done).encode())

    _appear(target, write_log)
    _appear(report, write_report)
    return done


def _begin(log: Path, found: Findings, wishes: Wishes, name: str) -> Repaired:
    """What can be said before anything is written.

    Raises:
        RepairError: there is nothing to be made of this log.
    """
    if not found.records:
        raise RepairError(found.note or "no record in it can be read: there is nothing to repair")
    if found.run and wishes.run_id and wishes.run_id != found.run_id:
        raise RepairError(f"it is the log of run {found.run_id!r}: --run-id is for logs whose run record is lost")
    if not found.run and not wishes.run_id:
        hint = run_id_of(log)
        said = f"; by its name it is {hint!r}" if hint else ""
        raise RepairError(f"its run record is lost: say with --run-id which run it is{said}")
    done = Repaired(name or str(log), log, found, found.run_id or wishes.run_id or run_id_of(log))
    if not valid_run_id(done.run_id):
        raise RepairError(f"its run id, {done.run_id!r}, cannot be a name")
    _note(done, wishes)
    return done


def _note(done: Repaired, wishes: Wishes) -> None:
    """Note what is not where it was, or was not there."""
    found, notes = done.found, done.notes
    done.exit_code = found.exit_code if found.exits else wishes.exit_code
    if not found.run:
        notes.append("the run record was lost: a new one has the run id that was given")
    elif not found.run_leads:
        notes.append("the first run record stood behind other records, or was lost: the next one is at the front, too")
    if found.is_odd and not found.losses:
        notes.append("its blocks were counted otherwise than readers count them, as cores up to 0.17.5 did")
    if found.misplaced:
        count = sum(last - first + 1 for first, last in found.misplaced)
        notes.append(f"{counted(count, 'record')} stood where others belong, by their numbers: all are in order now")
    if found.exits > 1:
        notes.append(f"{found.exits} exit records: the last one, code {found.exit_code}, is kept")
    if found.exits and not found.exit_ends:
        notes.append("records stood behind the exit record, which is at the end now")
    if found.exits and wishes.exit_code is not None:
        notes.append(f"there was an exit record: its code, {found.exit_code}, is kept")
    elif not found.exits and wishes.exit_code is not None:
        notes.append(f"there was no exit record: one with code {wishes.exit_code} was added")
    if found.header_version not in {0, None}:
        notes.append(f"the header named version {found.header_version} of the format; the new one names version 0")


def _write(log: Path, out: BinaryIO, done: Repaired, wishes: Wishes) -> None:
    run = None
    if not done.found.run:
        from . import messages

        seconds, nanos = divmod(done.found.start_ns, 10**9)
        run = messages.RunRecord(run_id=done.run_id, entity=wishes.entity, project=wishes.project)
        run.start_time.CopyFrom(messages.Timestamp(seconds=seconds, nanos=nanos))
    done.records = rewrite(log, out, done.found, run=run, exit_code=wishes.exit_code)
    out.flush()
    os.fsync(out.fileno())


def _started(log: Path, found: Findings) -> datetime:
    """When the run began, in local time: by its directory's name, its records, or the file's time."""
    named = RunDirName.parse(log.parent.name)
    if named is not None:
        return named.started
    began = found.start_ns / 1e9 if found.start_ns else log.stat().st_mtime
    return datetime.fromtimestamp(began)  # noqa: DTZ006 - local by contract


def _copy_files(run_dir: Path, target: Path, done: Repaired, *, with_files: bool) -> None:
    source = run_dir / _FILES
    if not (with_files and RunDirName.parse(run_dir.name) and source.is_dir()):
        target.mkdir()
        return
    try:
        shutil.copytree(source, target, symlinks=True)
    except shutil.Error as error:
        failed = [f"{Path(name).name}: {reason}" for name, _, reason in error.args[0]]
        more = f" and {len(failed) - _REASONS_SHOWN} more" if len(failed) > _REASONS_SHOWN else ""
        done.notes.append(f"files that could not be copied: {'; '.join(failed[:_REASONS_SHOWN])}{more}")


def _report(done: Repaired) -> str:
    return json.dumps(done.as_json(), indent=1, ensure_ascii=True) + "\n"


def _appear(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Have a file appear whole, where none is.

    Raises:
        RepairError: one is.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as out:
            write(out)
        try:
            os.link(part, path)
        except FileExistsError as error:
            raise RepairError(f"{path} is there already: another repair was faster") from error
        except OSError:  # a file system without links
            part.rename(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def is_log_name(path: Path) -> bool:
    """Whether a path is called as a log is: what `-o` then names is a file, else a folder."""
    return path.name.endswith(LOG_SUFFIX) and not path.is_dir()
