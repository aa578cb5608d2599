"""Facts gathered side by side, each on a thread of its own: one that never answers costs the others nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from .probe import in_words

Fields = dict[str, Any]
Fact = Callable[[], Mapping[str, Any]]


def merge(into: Fields, fields: Mapping[str, Any]) -> None:
    """Add `fields`; of a field that is a dict in both, entry by entry. None and what is empty is not known."""
    for name, value in fields.items():
        if value is None or value in ("", {}, [], ()):
            continue
        before = into.get(name)
        if isinstance(before, dict) and isinstance(value, Mapping):
            before.update(value)
        else:
            into[name] = dict(value) if isinstance(value, Mapping) else value


class Gathering:
    """Begins with all facts at once. A fact that raises, or that hangs, is missing, and `missing` says why."""

    def __init__(self, facts: Mapping[str, Fact]) -> None:
        self._changed = threading.Condition()  # guards all below
        self._fields: Fields = {}
        self._pending = dict.fromkeys(facts, time.perf_counter())
        self._failed: dict[str, str] = {}
        self._seconds: dict[str, float] = {}
        self._hurried = False
        for name, fact in facts.items():
            thread = threading.Thread(target=self._find, args=(name, fact), name=f"runferry-{name}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system's bound of threads
                self._end(name, {}, str(error))

    def _find(self, name: str, fact: Fact) -> None:
        try:
            fields, failure = fact(), ""
        except Exception as error:  # no such user, no permission, or a fault of ours: the others are told all the same
            fields, failure = {}, in_words(error)
        self._end(name, fields, failure)

    def _end(self, name: str, fields: Mapping[str, Any], failure: str) -> None:
        with self._changed:
            merge(self._fields, fields)
            self._seconds[name] = time.perf_counter() - self._pending.pop(name)
            if failure:
                self._failed[name] = failure
            self._changed.notify_all()

    def take(self, within: float) -> Fields:
        """What has arrived since the last call: as soon as all is known, else after `within` s or at `hurry`."""
        with self._changed:
            self._changed.wait_for(lambda: self._hurried or not self._pending, max(0.0, within))
            fields, self._fields = self._fields, {}
            return fields

    def hurry(self) -> None:
        """End a wait in `take`, now and later; from any thread."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    @property
    def missing(self) -> dict[str, str]:
        """Facts that are not known, and why: an error, or no answer for so many seconds."""
        with self._changed:
            now = time.perf_counter()
            waited = {name: f"no answer for {now - begun:.1f} s" for name, begun in self._pending.items()}
            return {**self._failed, **waited}

    @property
    def seconds(self) -> dict[str, float]:
        """How long each fact took that has answered."""
        with self._changed:
            return dict(self._seconds)
