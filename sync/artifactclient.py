"""What an artifact is called by its client until a server gives it an id, where the log's own name for it is taken.

A log gives each artifact a random client id, and a server takes that for one artifact of one project. A run that is
sent to a second project needs others there, the same ones each time: a sync that was killed finds what it began.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Mapping
from typing import Any

from .api import RemoteRun
from .cursor import Target
from .plan import DEFAULT_PROJECT, LogHead

_CHARACTERS = string.ascii_lowercase + string.digits
_LENGTH = 128  # characters, as in logs
_NAMES = ("clientID", "sequenceClientID")


def is_its_own(target: Target, head: LogHead) -> bool:
    """Whether a log goes to the entity and project that it names itself; one that lost its run record may have gone to any."""
    named = (head.entity or None, head.project or DEFAULT_PROJECT)
    return not head.salvaged and (target.entity, target.project) == named


def renamed(fields: Mapping[str, Any], base_url: str, run: RemoteRun) -> dict[str, str]:
    """The client ids among the fields of `CreateArtifact`, as they are at this server and run."""
    return {name: client_id_at(fields[name], base_url, run) for name in _NAMES if fields[name]}


def client_id_at(client_id: str, base_url: str, run: RemoteRun) -> str:
    """The client id that stands for a log's `client_id` at this server and run: a function of these alone."""
    told = json.dumps([client_id, base_url, run.entity, run.project, run.run_id])
    number = int.from_bytes(hashlib.shake_256(told.encode()).digest(96), "big")  # 768 bits on 662: as good as uniform
    letters = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_CHARACTERS))
        letters.append(_CHARACTERS[digit])
    return "".join(letters)
