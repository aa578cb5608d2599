"""A sync that deletes the run directories of what it brought over, once the server was asked whether it has it all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from .clean import Cleaner, Fate
from .compare import Match, Verification
from .credentials import Credentials
from .report import Cleaned, Event, Finished, Report, Reporter, Verdict
from .session import Session
from .settings import SyncSettings
from .verify import verify_remote

_TRY_AGAIN, _FAILED = 75, 1


def delete_after_verify(
    run: Callable[[Reporter], Report],
    settings: SyncSettings,
    reporter: Reporter,
    *,
    session: Session,
    key: Credentials | None = None,
    cleaner: Cleaner | None = None,
) -> int:
    """Call `run` (a sync or a watch with these settings), then delete what it says is synced and the server has.

    Values of rows are compared, too: a number of rows says nothing of what is in them, and nothing is left to compare later.

    Each run of which a log was synced is told of once more (`Cleaned`), before the end is. The exit code is the sync's,
    unless that is 0 and a run stays because the server does not have it (1), or could not be asked (75).

    Raises:
        UsageError, NoCredentials: as `sync`.
    """
    end: list[Finished] = []

    def tell(event: Event) -> None:
        if isinstance(event, Finished):
            end.append(event)
        else:
            reporter(event)

    report = run(tell)
    code = report.exit_code
    logs = [found.log for found in report.runs if found.verdict is Verdict.SYNCED]
    if logs and not report.interrupted:
        found = verify_remote(logs, settings, deep=True, key=key, session=session)
        cleaner = cleaner or Cleaner(state_dir=settings.state_dir, clock=session.clock)
        for result in found.runs:
            code = max(code, _delete(result, cleaner, reporter), key=_weight)
        if found.interrupted:
            code = 130
    counts = end[-1].counts if end else report.counts()
    reporter(Finished(code, counts, report.left_out))
    return code


def _weight(code: int) -> int:
    """Which of two exit codes says more: 130, 2, 1, 75, 0."""
    return (0, _TRY_AGAIN, _FAILED, 2, 130).index(code)


def _delete(result: Verification, cleaner: Cleaner, reporter: Reporter) -> int:
    """Delete a run if it is at the server whole; an exit code."""
    if result.match is not Match.EQUAL:
        _tell(reporter, result, Fate.KEPT, f"{result.match.value} from what the server has: {result.reason}")
        return _TRY_AGAIN if result.try_again else _FAILED
    if not result.is_whole:
        _tell(reporter, result, Fate.KEPT, f"the server does not tell enough: {result.reason}")
        return _FAILED
    code = 0
    for candidate in cleaner.look(result.logs):
        fate, reason = candidate.fate, candidate.reason
        if fate is Fate.DELETABLE:
            fate, reason = cleaner.delete(candidate)
        code = _FAILED if fate is Fate.FAILED else code
        _tell(reporter, result, fate, reason, size=candidate.bytes, logs=candidate.logs)
    return code


def _tell(
    reporter: Reporter, result: Verification, fate: Fate, reason: str, *, size: int = 0, logs: tuple[Path, ...] = ()
) -> None:
    names = tuple(map(os.fspath, logs)) or result.logs
    reporter(Cleaned(result.run, names, size, fate.value, reason))
