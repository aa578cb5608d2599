"""A run being written.

Training threads hand rows off (`run`, `pump`), one thread makes records of them (`recorder`, `history`, `records`) and
brings them to the disk (`journal`, `segment`, `filesystem`). docs/writing.md says what is promised, and on what it rests.
"""

from __future__ import annotations

from .errors import CommError, Error, NoRunError, UsageError
from .mappings import Config, Summary
from .report import FinishReport
from .run import Run
from .settings import Settings, SettingsError
from .values import UnloggableError

__all__ = [
    "CommError",
    "Config",
    "Error",
    "FinishReport",
    "NoRunError",
    "Run",
    "Settings",
    "SettingsError",
    "Summary",
    "UnloggableError",
    "UsageError",
]
