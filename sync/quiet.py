"""Keeps the HTTP library from logging our requests.

A program that logs everything (level DEBUG) would write down the URLs of uploads, which are signed, and the headers of
answers. Its own requests by the same library stay in its log.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

_LOGGERS = ("httpcore.connection", "httpcore.http11", "httpcore.proxy", "httpcore.socks")
_ours = threading.local()


class _NotOurs(logging.Filter):
    """Drops what a thread of ours logs in the middle of a request."""

    def filter(self, _: logging.LogRecord) -> bool:
        return not getattr(_ours, "sending", False)


_not_ours = _NotOurs()


def keep_quiet() -> None:
    """To be called before the first request; again does no harm."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_not_ours)


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """What this thread asks of the HTTP library is not logged."""
    _ours.sending = True
    try:
        yield
    finally:
        _ours.sending = False
