"""What a watch tells: each thing once, so that the output of a week is a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .report import (
    NOTHING_NEW,
    Event,
    Finished,
    Paused,
    Planned,
    Reporter,
    Retrying,
    RunReport,
    Started,
    Verdict,
)


class News:
    """Tells each thing once: a verdict when it changes, a wait when it begins."""

    def __init__(self, told: Reporter) -> None:
        self.tell = told
        self.verdicts: dict[Path, RunReport] = {}
        """Of the pass that goes on."""
        self.doubts = False
        """A failure is not the last word, and not told: it is going to be tried in another way."""
        self._begun: set[str] = set()
        self._waits: set[tuple[str, str]] = set()
        self._last: dict[str, tuple[object, ...]] = {}
        self._sent: dict[str, tuple[int, int]] = {}

    def __call__(self, event: Event) -> None:
        """Pass on an event of a pass, or keep it."""
        if isinstance(event, RunReport):
            self._verdict(event)
        elif isinstance(event, (Retrying, Paused)):
            wait = (event.what, event.reason)
            if wait not in self._waits:
                self._waits.add(wait)
                self.tell(event)
        elif isinstance(event, Started):
            if event.log not in self._begun:
                self._begun.add(event.log)
                self.tell(event)
        elif not isinstance(event, (Planned, Finished)):
            self.tell(event)

    def _verdict(self, report: RunReport) -> None:
        self.verdicts[Path(report.log)] = report
        rows, files = self._sent.get(report.log, (0, 0))
        sent = self._sent[report.log] = (rows + report.rows_sent, files + report.files_sent)
        # How long a server has been silent changes with every attempt, what to do does not.
        says = (report.verdict, report.try_again) if report.try_again else (report.verdict, report.reason)
        if not report.try_again:
            self._waits.clear()
        if self.doubts and report.verdict is Verdict.FAILED and not report.try_again:
            return
        last = self._last.get(report.log)
        stands = last is not None and last[0] is report.verdict and report.reason == NOTHING_NEW
        if last != says and not stands:
            self._last[report.log] = says
            self._begun.add(report.log)
            self.tell(replace(report, rows_sent=sent[0], files_sent=sent[1]))

    def total(self, report: RunReport) -> RunReport:
        """A report with what all passes sent."""
        rows, files = self._sent.get(report.log, (report.rows_sent, report.files_sent))
        return replace(report, rows_sent=rows, files_sent=files)
