"""Descriptors: which of them lead to the same place, and pseudo-terminals that stand before the real one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress


def identity(fd: int) -> tuple[int, int] | None:
    """What tells open files apart; None if the descriptor is closed."""
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def by_destination(fds: Iterable[int]) -> list[list[int]]:
    """The open descriptors, those that lead to the same file, pipe or terminal together.

    What is written to these has one order, which only a single pipe before them keeps.
    """
    groups: dict[tuple[int, int] | int, list[int]] = {}
    for fd in fds:
        place = identity(fd)
        if place is not None:
            groups.setdefault(place if place[1] else fd, []).append(fd)  # no inode: not told on this system
    return list(groups.values())


def open_terminal(like: int) -> tuple[int, int]:
    """A pseudo-terminal as large as the terminal `like`: (our end, the program's end). Raises OSError.

    What the program writes arrives byte by byte as it was written: the real terminal does the rest.
    """
    import pty
    import termios

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


def refusal(name: str, number: int) -> str:
    """One line about a stream of the console that took no more: a full disk below `> out`. `number` is the errno."""
    return f"{name} takes no more output ({os.strerror(number)}); the log goes on with it"


def copy_size(source: int, target: int) -> None:
    """Make terminal `target` as large as `source`; nothing if one of them is none."""
    import fcntl
    import termios

    with suppress(OSError):
        fcntl.ioctl(target, termios.TIOCSWINSZ, fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(8)))
