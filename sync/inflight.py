"""Whether the end of a log that cannot be read is lost, or is a record that is being written: for whoever reads live logs."""

from __future__ import annotations

from pathlib import Path

from ..logformat import Gap, GapReason
from .choice import exit_code_of
from .liveness import Liveness
from .scan import is_open_end


def is_in_flight(log: Path, gap: Gap, liveness: Liveness, stale_after: float) -> bool:
    """Whether a gap in a log is no loss, as a sync judges it: nothing is behind it, and a writer is there who has not ended the run.

    Args:
        log: the log, which may have grown since.
        gap: the gap.
        liveness: who tells whether the writer is there.
        stale_after: seconds, as for `Liveness.is_alive`.

    Raises:
        OSError: the log cannot be read.
    """
    status = log.stat()
    read = (
        gap.end if gap.reason is GapReason.TORN_TAIL else status.st_size
    )  # zeros may lie anywhere, a torn end at the end
    return (
        is_open_end(gap, read, grown=status.st_size > read)
        and liveness.is_alive(log, status.st_mtime, stale_after)
        and exit_code_of(log, tail_only=True) is None
    )
