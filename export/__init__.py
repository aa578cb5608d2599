"""Runs in other forms: rows as JSONL, CSV, Parquet, TensorBoard event files, and one HTML page that needs nothing.

`export` takes paths and writes files; `FORMATS` has the formats, each a module that is loaded when it is wanted. What they write
are the tables and documents of `contents`, or a whole run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .exporting import Options, Outcome, export
    from .formats import FORMATS, Exporter
    from .runs import ExportError, find_runs, load
    from .selection import Selection

_WHERE = {
    "FORMATS": "formats",
    "ExportError": "runs",
    "Exporter": "formats",
    "Options": "exporting",
    "Outcome": "exporting",
    "Selection": "selection",
    "export": "exporting",
    "find_runs": "runs",
    "load": "runs",
}

__all__ = ["FORMATS", "ExportError", "Exporter", "Options", "Outcome", "Selection", "export", "find_runs", "load"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
