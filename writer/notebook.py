"""Whether a person runs this, cell by cell."""

from __future__ import annotations

import sys


def in_notebook() -> bool:
    """Whether the process is a notebook's kernel, by the shell that IPython says is running."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return any(base.__name__ == "ZMQInteractiveShell" for base in type(shell).__mro__)
