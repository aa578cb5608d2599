"""Rows and summary records into the state of a run, on their way to the server."""

from __future__ import annotations

from ..logformat import Record, RunState
from ..logformat.history import STEP
from ..logformat.plainrows import repeats


class RowFold:
    """Rows and summary records into the state of a run that defines no metrics.

    A row whose keys the next row sets all anew leaves no trace in the summary, so it is only counted. Once a summary
    record has come, every row is folded: it is for the state to say which rows that record speaks for. Logs of the peer
    hold each row twice, first as a summary record with the same items: that one is not even decoded.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._held: list[bytes] | None = None
        self._paths: tuple[tuple[str, ...], ...] = ()
        self._spoken = False
        """A summary record has said what the row that is held leaves; parts of it that follow leave nothing."""
        self._holds = True
        self._announced: Record | None = None
        """A summary record that may say no more than the row behind it."""

    @property
    def waits(self) -> bool:
        """Whether the next row decides about a summary record."""
        return self._announced is not None

    def row(self, paths: tuple[tuple[str, ...], ...], values: list[bytes], body: bytes) -> None:
        """Take the next row into account: its items, and its record's bytes."""
        spoken = False
        if self._announced is not None:
            # (A null is no value in a row, and one in a summary record.)
            spoken = b"null" not in values and repeats(self._announced.body, body)
            if spoken:
                self._announced = None
            else:
                self._fold_summary()
        if self._holds and not self._spoken:
            self._fold_row(overwritten=paths is self._paths and b"null" not in values)
        else:
            self._fold_row()
        self._paths, self._held, self._spoken = paths, values, spoken
        if not self._holds:
            self._fold_row()

    def summary(self, record: Record) -> None:
        """Take a summary record into account."""
        self._fold_summary()
        self._announced = record

    def flush(self) -> None:
        """Fold what is held back: no other row comes next."""
        self._fold_row()
        self._fold_summary()

    def _fold_row(self, *, overwritten: bool = False) -> None:
        if self._held is not None:
            self._state.add_row(self._paths, self._held, overwritten=overwritten)
            if self._spoken and STEP in self._paths:
                self._state.summary_step = self._held[self._paths.index(STEP)]
        self._held, self._spoken = None, False

    def _fold_summary(self) -> None:
        record, self._announced = self._announced, None
        if record is not None:
            self._fold_row()
            self._holds = False
            self._state.add(record)
