"""The embedded backend: the W&B protocol over one SQLite file, a read API, and a page that draws the runs.

    serve(ServeSettings(data_dir=Path("runs")))           # blocks until a signal
    app = create_app(Store(folder), settings, keys)       # the ASGI application alone

`serve` and `create_app` need the extra `[serve]` (starlette, uvicorn) and raise ImportError without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .limits import DOCUMENTED, STYLES, UNLIMITED, Rates
from .settings import ServeSettings
from .store import Store

if TYPE_CHECKING:
    from .app import create_app
    from .server import serve

__all__ = ["DOCUMENTED", "STYLES", "UNLIMITED", "Rates", "ServeSettings", "Store", "create_app", "serve"]


def __getattr__(name: str) -> Any:
    if name == "create_app":
        from .app import create_app

        return create_app
    if name == "serve":
        from .server import serve

        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
