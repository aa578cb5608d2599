"""The files of a run on their way to the server, and the last word behind them: which arrived, and how the run ended."""

from __future__ import annotations

import os
from dataclasses import replace

from . import runconfig, runfiles
from .body import Body
from .cursor import FileMark
from .here import HERE
from .mediasweep import unrecorded_media
from .report import FileProgress
from .work import RunWork

_FEW, _SMALL = 8, 256 * 1024  # files and their bytes
MADE = frozenset({runfiles.SUMMARY_FILE, runfiles.CONFIG_FILE, runfiles.METADATA_FILE, runfiles.CONSOLE_FILE})
"""Files that are made from the log if it has what is in them, whatever lies under their names."""


def send_files(work: RunWork, summary: str, console_file: runfiles.ConsoleFile) -> None:
    """Upload what is new, and say what arrived and how the run ended.

    Raises:
        SyncError: a request did not get through.
        OSError: the cursor cannot be written.
    """
    remote = work.remote()
    last = work.last
    cursor = last.position
    files, missing = recorded_files(work)
    files += made_files(work, summary, console_file)
    known: dict[str, FileMark] = {}
    for segment in work.segments:
        known.update(segment.position.files)

    def save(done: dict[str, FileMark]) -> None:
        cursor.complete, cursor.files = False, {**known, **done}
        last.places.unmark()
        cursor.save(last.places.cursor)
        work.context.reporter(FileProgress(os.fspath(last.head.path), len(done), len(files)))

    few = len(files) <= _FEW and sum(file.size for file in files) <= _SMALL
    pool = HERE if few and work.context.is_near else work.context.uploads
    result = runfiles.upload(work.context.api, remote, files, known=known, pool=pool, save=save)
    work.files_sent = len(result.sent)
    work.missing += runfiles.missing_lines(missing) + result.missing
    work.late += result.only_late
    exit_code = last.found.exit_code
    untold = sorted(name for name, mark in result.done.items() if not mark.told)
    if untold or (exit_code is not None and exit_code != cursor.exit_code):
        # Without an exit record nothing is said of the end: a server shows a run that has fallen silent as crashed.
        body = Body(0, 0, 0, uploaded=untold, exit_code=exit_code)
        work.context.api.stream(remote, body.encode())
        cursor.exit_code = exit_code
        result.done.update((name, replace(mark, told=True)) for name, mark in result.done.items())
    names = {file.name for file in files} | _told(work)
    if not work.files_wait:
        _note_console(work)
        names |= {runfiles.CONSOLE_FILE} if work.last.position.console_waits else set()
    cursor.files = {name: mark for name, mark in {**known, **result.done}.items() if name in names}


def _note_console(work: RunWork) -> None:
    """Say that `output.log` was left as it was, and note it for the sync that has all logs."""
    lacks = _lacks_console(work) and any(segment.found.lines.console for segment in work.segments)
    for segment in work.segments:
        segment.position.console_waits = lacks and bool(work.anchors)
    if lacks:
        work.last.notes.append(
            f"{runfiles.CONSOLE_FILE} is left as it is at the server: lines of it are in logs of the run that are not here"
        )


def _lacks_console(work: RunWork) -> bool:
    """Whether console lines of the run are in logs that are not here: a file without them takes the place of none that has them."""
    if not (work.anchors or work.start.base.console):
        return False
    end = 0
    for segment in work.segments:
        begin = segment.placed.base.console
        if begin > end:
            return True
        end = begin + segment.found.lines.console
    return False


def recorded_files(work: RunWork) -> tuple[list[runfiles.RunFile], dict[str, str]]:
    """The files that the logs name (of one name in several segments, the last one's), and why others cannot be read."""
    files: dict[str, runfiles.RunFile] = {}
    missing: dict[str, str] = {}
    folders = [segment.head.path.parent for segment in reversed(work.segments)]
    follow_links = work.context.settings.follow_links
    made, had = _names_made(work), _told(work)
    for segment in work.segments:
        recorded = [name for name in segment.found.files if name not in made]
        if not work.waits():  # the sweep may read the whole log: not in every pass over a run that goes on
            recorded += unrecorded_media(segment.head.path, segment.found.end, recorded)
        homes = runfiles.by_home(recorded, segment.head.path.parent, folders)
        for home, names in homes.items():
            found, lost = runfiles.recorded_files(home, names, follow_links=follow_links, had=had)
            files.update({file.name: file for file in found if file.name not in made})
            missing.update(lost)
    return list(files.values()), missing


def _told(work: RunWork) -> frozenset[str]:
    """Files from the disk that the server has and was told of, as far as the cursors know."""
    marks = [item for segment in work.segments if segment.cursor for item in segment.cursor.files.items()]
    return frozenset(name for name, mark in marks if mark.told and not mark.is_made)


def _names_made(work: RunWork) -> frozenset[str]:
    """The files that are made from these logs. Old logs hold no environment, or no console: they have the files instead."""
    absent = set()
    if not runconfig.environment_tree(work.state):
        absent.add(runfiles.METADATA_FILE)
    if not work.waits() and not any(segment.found.lines.console for segment in work.segments):
        absent.add(runfiles.CONSOLE_FILE)
    return MADE - absent


def made_files(work: RunWork, summary: str, console_file: runfiles.ConsoleFile) -> list[runfiles.RunFile]:
    """The files that every run has at the server, made from the log."""
    work.files_wait = work.waits()
    made = [] if work.files_wait else [runfiles.made_here(runfiles.SUMMARY_FILE, summary.encode())]
    made.append(runfiles.config_file(work.config()))
    environment = runconfig.environment_tree(work.state)
    if environment:
        made.append(runfiles.metadata_file(environment))
    console = None if work.files_wait or _lacks_console(work) else console_file.as_file()
    return [*made, console] if console is not None else made
