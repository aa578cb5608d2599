"""Copies of a run: in its process there is none but the run itself, and in another process one that logs nothing.

Models and data sets that hold a run are copied and pickled: for a moving average of the weights, for workers that are
spawned, for a checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from .identity import Behind
from .ranks import Role
from .records import RunInfo
from .settings import Resolved

if TYPE_CHECKING:
    from pathlib import Path

    from .run import Run

_begun: WeakValueDictionary[str, Run] = WeakValueDictionary()
"""The runs that this process began, or got from the one that forked it."""


class Luggage(NamedTuple):
    """What a run takes along where it is pickled."""

    token: str
    settings: Resolved
    role: Role
    info: RunInfo
    behind: Behind | None
    config: dict[str, Any]
    logs: tuple[Path, ...]


def enlist(run: Run) -> str:
    """What tells the run from every other one, in any process."""
    token = os.urandom(16).hex()
    _begun[token] = run
    return token


def packed(run: Run, token: str) -> tuple[Callable[[Luggage], Run], tuple[Luggage]]:
    """The run as `pickle` takes it."""
    identity, logs = run._identity, tuple(run._journal.paths)  # noqa: SLF001 - the run's own machinery
    config = run.config.as_dict()
    return unpacked, (Luggage(token, run.settings, run._role, identity.info, identity.behind, config, logs),)  # noqa: SLF001 - as above


def unpacked(luggage: Luggage) -> Run:
    """The run itself where it is known, else a copy as a forked child has it: it tells what it is, and logs nothing."""
    known = _begun.get(luggage.token)
    if known is not None:
        return known
    from .run import Run

    settings = luggage.settings._replace(config_paths=())  # the config is there already
    run = Run(settings, luggage.config, role=Role.NONE, behind=luggage.behind)
    run._become_copy(luggage.role, luggage.info, luggage.logs)  # noqa: SLF001 - as above
    return run
