"""The program that runs Python code in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path


def interpreter() -> str | None:
    """This interpreter's program; None where it is another, which must not be started again.

    A frozen application would begin its training anew, and so would that one; programs such as uwsgi embed Python.
    """
    program = sys.executable or ""
    known = Path(program).name.lower().startswith(("python", "pypy"))
    return program if known and not getattr(sys, "frozen", False) else None
