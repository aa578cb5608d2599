"""A sync that is killed at one of its requests, within the test's own process."""

from __future__ import annotations

from typing import Any

import pytest
from support.syncrig import Rig, cursor


class KilledError(BaseException):
    """The process is gone: nothing catches it."""


def kill_at(rig: Rig, number: int, *, applied: bool, **settings: Any) -> None:
    """Sync until the `number`-th request, and leave beside the log what lay there at that moment."""
    (log,) = rig.folder.rglob("*.wandb")
    kept: list[bytes | None] = []

    def die(now: int, _operation: str, _request: object) -> None:
        if now >= number:
            if not kept:
                kept.append(cursor(log).read_bytes() if cursor(log).exists() else None)
            raise KilledError

    setattr(rig.backend, "after" if applied else "before", die)
    with pytest.raises(KilledError):
        rig.sync(**settings)
    rig.backend.before = rig.backend.after = lambda *_: None
    cursor(log).unlink(missing_ok=True)
    if kept[0] is not None:
        cursor(log).write_bytes(kept[0])
    log.with_name(log.name + ".lock").unlink(missing_ok=True)
