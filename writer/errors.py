"""Errors that a script sees, under the peer's names. Bad data and a failing disk raise none of them."""

from __future__ import annotations


class Error(Exception):
    """What runferry raises on purpose."""


class UsageError(Error):
    """A call that cannot mean anything: says what is wrong with it."""


class CommError(Error):
    """Something that only a server could answer, and there is none here."""


class NoRunError(Error, RuntimeError):
    """A module-level function was called without a run."""
