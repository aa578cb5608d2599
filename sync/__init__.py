"""Replaying logs to a backend: discover, plan, replay, send, acknowledge, cursor, verdict.

    sync(paths, settings) -> Report          what became of each log, and an exit code
    preview(paths, settings) -> Preview      the runs found and what there is to do, without a server

Line numbers at the server are a function of the logs alone, so re-sending is idempotent; a cursor beside each log, saved
after each acknowledged request, makes it cheap. `synced` is said only when the server acknowledged every row, summary
and file.

    paths -> plan -> scan -> contact -> rowlane -> runfiles -> verdict      (`replay` runs one run through these)
                 contact, rowlane and runfiles use: api -> channel (pacer, retry) -> transport

Every name here is loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import sync
    from .errors import (
        AuthError,
        Conflict,
        NoCredentials,
        OutOfTime,
        Permanent,
        RateLimited,
        Refused,
        Retryable,
        SyncError,
        UsageError,
    )
    from .report import Event, Report, RunReport, Verdict
    from .settings import SyncSettings
    from .shard import Shard
    from .todo import Preview, RunPreview, preview

_WHERE = {
    "sync": ".engine",
    **dict.fromkeys(
        (
            "AuthError",
            "Conflict",
            "NoCredentials",
            "OutOfTime",
            "Permanent",
            "RateLimited",
            "Refused",
            "Retryable",
            "SyncError",
            "UsageError",
        ),
        ".errors",
    ),
    **dict.fromkeys(("Event", "Report", "RunReport", "Verdict"), ".report"),
    **dict.fromkeys(("Preview", "RunPreview", "preview"), ".todo"),
    "SyncSettings": ".settings",
    "Shard": ".shard",
}

__all__ = [
    "AuthError",
    "Conflict",
    "Event",
    "NoCredentials",
    "OutOfTime",
    "Permanent",
    "Preview",
    "RateLimited",
    "Refused",
    "Report",
    "Retryable",
    "RunPreview",
    "RunReport",
    "Shard",
    "SyncError",
    "SyncSettings",
    "UsageError",
    "Verdict",
    "preview",
    "sync",
]


def __getattr__(name: str) -> Any:
    """The public names, each from its module."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name], __package__), name)
    globals()[name] = value
    return value


class _Module(ModuleType):
    """`runferry.sync` is both this package and the function of the public face: calling the one calls the other."""

    def __call__(self, *args: Any, **kwargs: Any) -> Report:
        return self.sync(*args, **kwargs)  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        """By its name, as a function is: pools of processes send what they call."""
        return importlib.import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Module
