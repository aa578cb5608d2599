"""How far the sync of a log came, as its side files tell: no network, no reading of the log."""

from __future__ import annotations

from pathlib import Path

from .cursor import load
from .places import Places, default_state_dir


def sync_state(log: Path, state_dir: Path | None = None) -> str:
    """`synced`, `synced by wandb`, `grew since`, `N rows sent`, or `no`."""
    places = Places(log, state_dir or default_state_dir())
    cursor, _ = load(places.cursors)
    try:
        length = log.stat().st_size
    except OSError:
        length = 0
    if cursor is None:
        return "synced by wandb" if places.marker.exists() else "no"
    if cursor.complete:
        return "synced" if cursor.size == length else "grew since"
    return f"{cursor.sent.history} rows sent"
