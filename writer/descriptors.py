"""Pseudo-terminals that stand before the real one."""

from __future__ import annotations

import fcntl
import os
import pty
import termios
from contextlib import suppress


def open_terminal(like: int) -> tuple[int, int]:
    """A pseudo-terminal as large as the terminal `like`: (our end, the program's end). Raises OSError.

    What the program writes arrives byte by byte as it was written: the real terminal does the rest.
    """
    ours, theirs = pty.openpty()
    try:
        attributes = termios.tcgetattr(theirs)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    except termios.error as error:  # no OSError, though it has the same arguments
        os.close(ours)
        os.close(theirs)
        raise OSError(*error.args) from error
    copy_size(like, ours)
    return ours, theirs


def copy_size(source: int, target: int) -> None:
    """Make terminal `target` as large as `source`; nothing if that is none."""
    with suppress(OSError):
        fcntl.ioctl(target, termios.TIOCSWINSZ, fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(8)))
