"""runferry: an offline-first experiment logger for machines without a route to the backend.

The public face, and nothing else: each name below is imported from its module on first use, so that
`import runferry` costs milliseconds and touches neither protobuf nor the network.

    import runferry

    run = runferry.init(project="digits", config={"lr": 0.1})
    run.log({"loss": 0.5})
    runferry.finish()

`run`, `config` and `summary` are looked up on each access: they are the current run's. Old scripts assign a dict to
`config`: it is added to the run's, which would be out of reach otherwise.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import sync
    from .logformat import load, read
    from .sync.verify import verify_remote as verify
    from .writer import CommError, Config, Error, Run, Settings, Summary, UsageError, errors
    from .writer.api import (
        AlertLevel,
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
    from .writer.artifact import Artifact
    from .writer.media import plot
    from .writer.media.audio import Audio
    from .writer.media.histogram import Histogram
    from .writer.media.html import Html
    from .writer.media.image import Image
    from .writer.media.molecule import Molecule
    from .writer.media.object3d import Object3D, box3d
    from .writer.media.overlays import BoundingBoxes2D, Classes, ImageMask
    from .writer.media.plot import plot_table
    from .writer.media.plotly import Plotly
    from .writer.media.table import Table
    from .writer.media.video import Video

    run: Run | None
    config: Config
    summary: Summary

__version__ = "0.1.0"

_API = """
    AlertLevel agent alert attach define_metric finish init join link_artifact link_model log log_artifact log_code log_model
    login mark_preempting pin_config_keys require restore save setup sweep teardown termerror termlog termwarn unwatch
    use_artifact use_model watch
"""
_WHERE = {
    **dict.fromkeys(_API.split(), ".writer.api"),
    **dict.fromkeys(("CommError", "Config", "Error", "Run", "Settings", "Summary", "UsageError"), ".writer"),
    "errors": ".writer",
    "load": ".logformat",
    "read": ".logformat",
    "Artifact": ".writer.artifact",
    "Audio": ".writer.media.audio",
    "BoundingBoxes2D": ".writer.media.overlays",
    "Classes": ".writer.media.overlays",
    "Histogram": ".writer.media.histogram",
    "Html": ".writer.media.html",
    "Image": ".writer.media.image",
    "ImageMask": ".writer.media.overlays",
    "Molecule": ".writer.media.molecule",
    "Object3D": ".writer.media.object3d",
    "Plotly": ".writer.media.plotly",
    "Table": ".writer.media.table",
    "Video": ".writer.media.video",
    "box3d": ".writer.media.object3d",
    "plot_table": ".writer.media.plot",
}
_LIVE = ("config", "run", "summary")

__all__ = [
    "AlertLevel",
    "Artifact",
    "Audio",
    "BoundingBoxes2D",
    "Classes",
    "CommError",
    "Config",
    "Error",
    "Histogram",
    "Html",
    "Image",
    "ImageMask",
    "Molecule",
    "Object3D",
    "Plotly",
    "Run",
    "Settings",
    "Summary",
    "Table",
    "UsageError",
    "Video",
    "__version__",
    "agent",
    "alert",
    "attach",
    "box3d",
    "config",
    "define_metric",
    "errors",
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
    "plot",
    "plot_table",
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
    "verify",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name in _LIVE:
        return getattr(importlib.import_module(".writer.api", __name__), f"current_{name}")()
    if name == "sync":  # a folder of its own name, so the import system decides what stands here
        return importlib.import_module(".sync", __name__)
    if name == "verify":
        return importlib.import_module(".sync.verify", __name__).verify_remote
    if name == "plot":
        return importlib.import_module(".writer.media.plot", __name__)
    if name not in _WHERE:
        hint = "" if name.startswith("_") else "; docs/drop-in.md lists the names of wandb that are not here"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    value = getattr(importlib.import_module(_WHERE[name], __name__), name)
    globals()[name] = value
    return value


class _Face(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        if name in {"config", "summary"}:
            getattr(importlib.import_module(".writer.api", __name__), f"assign_{name}")(value)
        else:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face


def __dir__() -> list[str]:
    return sorted(__all__)
