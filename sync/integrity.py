"""Whether a log is whole, by the reading and the judgement of a sync."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from ..logformat import RunState
from .liveness import Liveness
from .plan import LogHead
from .report import NOTHING_YET, shorten
from .scan import scan


@dataclass(frozen=True)
class Integrity:
    """Whether a log is whole."""

    log: str
    run: str
    is_whole: bool
    reason: str
    """What is damaged; or a word on a log that is whole but has not ended."""
    rows: int = 0
    size: int = 0
    gaps: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The object that `runferry verify --json` prints."""
        return {"type": "integrity", **asdict(self)}


def verify_log(head: LogHead, liveness: Liveness, stale_after: float = 600.0) -> Integrity:
    """Read a log to its end and judge what a sync would judge. Never raises."""
    name = os.fspath(head.path)
    if liveness.is_beginning(head, stale_after):
        return Integrity(name, head.run_id, is_whole=True, reason=NOTHING_YET, size=head.size)
    if head.problem:
        return Integrity(name, head.run_id, is_whole=False, reason=head.problem, size=head.size)
    try:
        young = liveness.is_alive(head.path, head.modified, stale_after)
        facts = scan(head.path, RunState(keep_rows=False), start_ns=head.start_ns, young=young)
    except OSError as error:
        return Integrity(name, head.run_id, is_whole=False, reason=f"cannot be read: {error.strerror or error}")
    gaps = tuple(facts.damage_lines())
    reason = f"damaged: {shorten(gaps)}" if gaps else "" if facts.exit_code is not None else "no exit record"
    if facts.unfinished and not gaps:
        reason = "its last record is being written"
    if head.salvaged:
        gaps, reason = gaps or ("the run record",), reason or "its run record is damaged"
    return Integrity(name, head.run_id, not gaps, reason, facts.lines.history, facts.size, gaps)
