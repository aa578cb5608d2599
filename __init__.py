"""runferry: an offline-first experiment logger for machines without a route to the backend.

The public face, and nothing else: each name below is imported from its module on first use, so that
`import runferry` costs milliseconds and touches neither protobuf nor the network.

    import runferry

    run = runferry.init(project="digits", config={"lr": 0.1})
    run.log({"loss": 0.5})
    runferry.finish()

`run`, `config` and `summary` are looked up on each access: they are the current run's.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import sync
    from .logformat import load, read
    from .writer import (
        Config,
        Run,
        Settings,
        Summary,
        alert,
        define_metric,
        finish,
        init,
        log,
    )

    run: Run | None
    config: Config
    summary: Summary

__version__ = "0.1.0"

_WHERE = {
    "Config": ".writer",
    "Run": ".writer",
    "Settings": ".writer",
    "Summary": ".writer",
    "alert": ".writer",
    "define_metric": ".writer",
    "finish": ".writer",
    "init": ".writer",
    "load": ".logformat",
    "log": ".writer",
    "read": ".logformat",
}
_LIVE = ("config", "run", "summary")

__all__ = [
    "Config",
    "Run",
    "Settings",
    "Summary",
    "__version__",
    "alert",
    "config",
    "define_metric",
    "finish",
    "init",
    "load",
    "log",
    "read",
    "run",
    "summary",
    "sync",
]


def __getattr__(name: str) -> Any:
    if name in _LIVE:
        return getattr(importlib.import_module(".writer.api", __name__), f"current_{name}")()
    if name == "sync":  # a folder of its own name, so the import system decides what stands here
        return importlib.import_module(".sync", __name__)
    if name not in _WHERE:
        hint = "" if name.startswith("_") else "; what is not there yet stands in the README"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    value = getattr(importlib.import_module(_WHERE[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
