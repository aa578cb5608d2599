"""How far the sync of a log came, as its side files tell: no network, no reading of the log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .cursor import load
from .errors import UsageError
from .places import Places, default_state_dir
from .report import counted
from .weburl import run_url


@dataclass(frozen=True)
class SyncStatus:
    """What the side files of a log say."""

    words: str
    """For people: `synced`, `marked as synced` (no cursor says by whom), `partial (3 missing)`, `grew since`, `12 rows sent`, or `no`."""
    rows_sent: int = 0
    url: str | None = None
    """The run's page, if it was sent from here."""


def sync_status(log: Path, state_dir: Path | None = None) -> SyncStatus:
    """How far the sync of `log` came."""
    try:
        places = Places(log, state_dir or default_state_dir())
    except UsageError:  # a user without a home directory: nothing lies there
        places = Places(log, log.parent)
    cursor, _ = load(places.cursors)
    if cursor is None:
        if not places.marker.exists():
            return SyncStatus("no")
        return SyncStatus("grew since" if places.is_outgrown() else "marked as synced")
    try:
        length = log.stat().st_size
    except OSError:
        length = 0
    words = f"{counted(cursor.sent.history, 'row')} sent"
    if cursor.complete:
        words = "synced" if cursor.size == length else "grew since"
    elif cursor.lacks and cursor.size == length:
        words = f"partial ({cursor.lacks} missing)"
    url = run_url(cursor.target.base_url, cursor.entity, cursor.project, cursor.run_id)
    return SyncStatus(words, cursor.sent.history, url)
