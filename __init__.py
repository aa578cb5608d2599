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
        AlertLevel,
        CommError,
        Config,
        Error,
        Run,
        Settings,
        Summary,
        UsageError,
        agent,
        alert,
        attach,
        define_metric,
        finish,
        init,
        join,
        link_artifact,
        link_model,
        log,
        log_artifact,
        log_code,
        log_model,
        login,
        mark_preempting,
        pin_config_keys,
        require,
        restore,
        save,
        setup,
        sweep,
        teardown,
        termerror,
        termlog,
        termwarn,
        unwatch,
        use_artifact,
        use_model,
        watch,
    )

    run: Run | None
    config: Config
    summary: Summary

__version__ = "0.1.0"

_WRITER = """
    AlertLevel CommError Config Error Run Settings Summary UsageError agent alert attach define_metric finish init
    join link_artifact link_model log log_artifact log_code log_model login mark_preempting pin_config_keys require restore
    save setup sweep teardown termerror termlog termwarn unwatch use_artifact use_model watch
"""
_WHERE = {
    **dict.fromkeys(_WRITER.split(), ".writer"),
    "load": ".logformat",
    "read": ".logformat",
}
_LIVE = ("config", "run", "summary")

__all__ = [
    "AlertLevel",
    "CommError",
    "Config",
    "Error",
    "Run",
    "Settings",
    "Summary",
    "UsageError",
    "__version__",
    "agent",
    "alert",
    "attach",
    "config",
    "define_metric",
    "finish",
    "init",
    "join",
    "link_artifact",
    "link_model",
    "load",
    "log",
    "log_artifact",
    "log_code",
    "log_model",
    "login",
    "mark_preempting",
    "pin_config_keys",
    "read",
    "require",
    "restore",
    "run",
    "save",
    "setup",
    "summary",
    "sweep",
    "sync",
    "teardown",
    "termerror",
    "termlog",
    "termwarn",
    "unwatch",
    "use_artifact",
    "use_model",
    "watch",
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
