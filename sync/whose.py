"""Whose lines the server holds of a run: its config names all that have written, logs name their writers."""

from __future__ import annotations

from collections.abc import Iterable

from ..logformat.elapsed import nanoseconds
from .answers import ResumeStatus, writers_in
from .errors import Refused
from .runconfig import rfc3339
from .segment import Segment
from .work import RunWork


def is_our_writer(status: ResumeStatus, segments: Iterable[Segment]) -> bool:
    """Whether the server's config names the writer of one of these logs, or when it started."""
    ours = _writers_of(segments)
    return any(writer & ours for writer in status.writers)


def _writers_of(segments: Iterable[Segment]) -> set[str]:
    """What identifies the writers of these logs, as far as they say it."""
    found = set()
    for segment in segments:
        environment = segment.opening.environment
        if environment is not None:
            found.add(environment.writer_id)
            if environment.HasField("started_at"):
                found.add(rfc3339(nanoseconds(environment.started_at)))
    return found - {""}


def check_lost(work: RunWork, status: ResumeStatus) -> bool:
    """Whether a log was sent from here and its cursor is lost. It can only be sent again where all that have written are here.

    Samples and console lines do not tell whose they are, so that its own, among those of other nodes, cannot be found.

    Raises:
        Refused: a log was, and others have written.
    """
    if not (status.events_lines or status.console_lines):
        return False
    lost = [segment for segment in work.segments if segment.cursor is None]
    if not is_our_writer(status, lost):
        return False
    ours = _writers_of(work.segments)
    others = [writer for writer in status.writers if not writer & ours]
    before = frozenset[str]().union(*writers_in(work.inherited.config))
    if others and all(writer & before for writer in others) and not _writers_of(lost) & before:
        return False  # they lie before these logs, which lie in their order
    if others:
        raise Refused(
            f"the server holds lines of run {work.plan.run_id} of these logs and of others that are not here, and which are whose "
            "is not known any more: sync all logs of the run in one command, or these as another run (--id NEW)"
        )
    return True
