"""Whether a person runs this, cell by cell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def in_notebook() -> bool:
    """Whether the process is a notebook's kernel, by the shell that IPython says is running."""
    return any(base.__name__ == "ZMQInteractiveShell" for base in type(_shell()).__mro__)


def _shell() -> Any:
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def follow_cells(begins: Callable[[], None], ends: Callable[[], None]) -> Callable[[], None]:
    """Have `begins` called before each cell runs and `ends` after it; what is returned undoes that. In a notebook."""
    events = getattr(_shell(), "events", None)
    if events is None:  # a shell that tells nobody of its cells
        return lambda: None
    hooks = {"pre_run_cell": lambda *_: begins(), "post_run_cell": lambda *_: ends()}
    for event, hook in hooks.items():
        events.register(event, hook)

    def leave() -> None:
        for event, hook in hooks.items():
            try:
                events.unregister(event, hook)
            except ValueError:  # somebody else did
                continue

    return leave
