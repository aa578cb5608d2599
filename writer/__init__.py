"""A run being written.

Training threads hand rows off (`run`, `pump`), one thread makes records of them (`recorder`, `history`, `records`) and
brings them to the disk (`journal`, `segment`, `filesystem`). docs/writing.md says what is promised, and on what it rests.
"""

from __future__ import annotations

from .api import NoRunError, alert, current_run, define_metric, finish, init, log
from .mappings import Config, Summary
from .metrics import MetricDefinition
from .report import FinishReport
from .run import Run
from .settings import Settings, SettingsError
from .values import UnloggableError

__all__ = [
    "Config",
    "FinishReport",
    "MetricDefinition",
    "NoRunError",
    "Run",
    "Settings",
    "SettingsError",
    "Summary",
    "UnloggableError",
    "alert",
    "current_run",
    "define_metric",
    "finish",
    "init",
    "log",
]
