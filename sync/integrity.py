"""Whether logs are whole, by the reading and the judgement of a sync; many of them in several processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from ..logformat import GapReason, Record, RunState, read_records
from ..logformat.losses import Loss, losses
from .clock import SystemClock
from .liveness import Liveness
from .plan import LogHead
from .report import NOTHING_YET, shorten
from .scan import Facts, scan

_BATCH_BYTES = 32 << 20
_BATCH_LOGS = 256  # small logs cost more to open than to read
_WORTH_BYTES, _WORTH_LOGS = 64 << 20, 512
"""What is less is read before another process has started."""
_MOST_PROCESSES = 32


class State(str, Enum):
    """How a log is."""

    WHOLE = "whole"
    """Every byte was read, but for the end of a record that is being written."""
    HEALED = "healed"
    """All was read, because checksums prove what flipped bits were; the file has them wrong."""
    TORN = "torn"
    """It ends inside a record, and nobody writes on: only what its writer had last is lost."""
    DAMAGED = "damaged"
    """Records in it are lost, or its run record."""
    UNREADABLE = "unreadable"
    """It cannot be opened, is no log, or holds no record."""


@dataclass(frozen=True)
class Integrity:
    """Whether a log is whole."""

    log: str
    run: str
    is_whole: bool
    """Nothing is lost: `state` is `whole` or `healed`."""
    reason: str
    """What is damaged; or a word on a log that is whole but has not ended."""
    rows: int = 0
    size: int = 0
    gaps: tuple[str, ...] = ()
    state: State = State.WHOLE
    losses: tuple[dict[str, Any], ...] = ()
    """Each gap: its bytes, and the numbers of records and the steps that are lost with it."""
    healed: tuple[tuple[int, int], ...] = ()
    """Offset and bit of each that is wrong in the file."""

    def as_json(self) -> dict[str, Any]:
        """The object that `runferry verify --json` prints."""
        return {"type": "integrity", **asdict(self), "state": self.state.value}


def verify_log(head: LogHead, liveness: Liveness, stale_after: float = 600.0) -> Integrity:
    """Read a log to its end and judge what a sync would judge. Never raises."""
    name = os.fspath(head.path)
    if liveness.is_beginning(head, stale_after):
        return Integrity(name, head.run_id, is_whole=True, reason=NOTHING_YET, size=head.size)
    if head.problem:
        return _without_run(head)
    try:
        young = liveness.is_alive(head.path, head.modified, stale_after)
        facts = scan(head.path, RunState(keep_rows=False), start_ns=head.start_ns, young=young)
        lost = _losses(head, facts) if facts.damage else ()
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        return Integrity(name, head.run_id, is_whole=False, reason=reason, state=State.UNREADABLE)
    gaps = tuple(facts.damage_lines())
    state, reason = _judged(facts, lost)
    if head.salvaged:
        state, gaps, reason = State.DAMAGED, gaps or ("the run record",), reason or "its run record is damaged"
    return Integrity(
        name,
        head.run_id,
        state in {State.WHOLE, State.HEALED},
        reason,
        facts.lines.history,
        facts.size,
        gaps,
        state,
        tuple(loss.as_json() for loss in lost),
        tuple((bit.offset, bit.bit) for bit in facts.healed),
    )


def verify_logs(
    heads: Iterable[LogHead], stale_after: float = 600.0, *, processes: int | None = None
) -> Iterator[Integrity]:
    """`verify_log` of each of `heads`, in their order; of many logs, or large ones, in several processes.

    `processes`: None for as many as there are cores.
    """
    heads = list(heads)
    batches = list(_batches(heads))
    is_much = len(heads) > _WORTH_LOGS or sum(head.size for head in heads) > _WORTH_BYTES
    count = min(processes or (_cores() if is_much else 1), len(batches), _MOST_PROCESSES)
    done = 0
    if count > 1:
        try:
            for found in _aside(batches, stale_after, count):
                done += 1
                yield from found
        except (
            OSError,
            BrokenProcessPool,
        ):  # not to be had here, or killed for its memory: the rest is read by this one
            pass
    liveness = Liveness(SystemClock())
    for batch in batches[done:]:
        for head in batch:
            yield verify_log(head, liveness, stale_after)


def _aside(batches: Sequence[list[LogHead]], stale_after: float, count: int) -> Iterator[list[Integrity]]:
    context = multiprocessing.get_context("spawn")  # there may be threads here, and locks that they hold
    pool = ProcessPoolExecutor(count, context, initializer=_begin_process)
    try:
        yield from pool.map(_verify_batch, batches, [stale_after] * len(batches))
    except BaseException:  # Ctrl-C, too, or a reader of ours that wants no more
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    pool.shutdown()


def _begin_process() -> None:
    """Leave Ctrl-C to the process that is asked to verify, and end with it, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def end() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=end, daemon=True).start()


def _verify_batch(heads: list[LogHead], stale_after: float) -> list[Integrity]:
    liveness = Liveness(SystemClock())
    return [verify_log(head, liveness, stale_after) for head in heads]


def _batches(heads: Iterable[LogHead]) -> Iterator[list[LogHead]]:
    """Parts of about the same work, in order."""
    batch: list[LogHead] = []
    size = 0
    for head in heads:
        batch.append(head)
        size += head.size
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_LOGS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _judged(facts: Facts, lost: Sequence[Loss]) -> tuple[State, str]:
    """How a log is, and why, by its gaps."""
    if facts.damage:
        ends = {GapReason.TORN_TAIL, GapReason.ZEROED}
        is_torn = all(gap.reason in ends and gap.end >= facts.size for gap in facts.damage)
        word = State.TORN if is_torn else State.DAMAGED
        return word, f"{word.value}: {shorten(map(str, lost), separator='; ')}"
    if facts.healed:
        return State.HEALED, facts.healed_words()
    if facts.unfinished:
        return State.WHOLE, "its last record is being written"
    if facts.header_version:
        return State.WHOLE, f"its header names version {facts.header_version} of the format, which is not known"
    return State.WHOLE, "" if facts.exit_code is not None else "no exit record"


def _losses(head: LogHead, facts: Facts) -> tuple[Loss, ...]:
    """The damage with what it took, by a second reading."""
    found = {loss.gap.offset: loss for loss in losses(read_records(head.path))}
    return tuple(found.get(gap.offset) or Loss(gap, is_last=False) for gap in facts.damage)


def _without_run(head: LogHead) -> Integrity:
    """What is to be said of a log that names no run: whether there is anything in it."""
    state, lost = State.UNREADABLE, list[Loss]()
    with contextlib.suppress(OSError):
        if head.path.is_file() and any(isinstance(item, Record) for item in read_records(head.path)):
            state, lost = State.DAMAGED, list(losses(read_records(head.path)))
    gaps = tuple(f"bytes {loss.gap.offset}-{loss.gap.end} ({loss.gap.reason.value})" for loss in lost)
    return Integrity(
        os.fspath(head.path),
        head.run_id,
        is_whole=False,
        reason=head.problem,
        size=head.size,
        gaps=gaps,
        state=state,
        losses=tuple(loss.as_json() for loss in lost),
    )
