"""What a sync asked of the network, in numbers."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import Interrupted, SyncError
from .report import Event, Paused, Reporter, Retrying
from .transport import Answer, Request, Transport

CLASSES = ("2xx", "3xx", "4xx", "429", "5xx", "none")
"""Classes of answers; `none`: the request was not answered."""


@dataclass
class Traffic:
    """Totals of the attempts made so far; a request that was retried counts each time."""

    answers: Counter[str] = field(default_factory=Counter)
    """Requests by the class of their answer."""
    sent: int = 0
    """Bytes of bodies that were answered, whatever the answer."""
    received: int = 0
    """Bytes of the answers' bodies."""
    retries: int = 0
    """Attempts after a failure."""
    retry_wait: float = 0.0
    """Seconds that requests had to wait after failures, added up."""
    limit_wait: float = 0.0
    """Seconds for which rate limits closed a lane, added up."""

    def as_json(self) -> dict[str, Any]:
        """The totals as a JSON object; bytes and seconds by their unit."""
        return {
            "answers": {kind: self.answers[kind] for kind in CLASSES},
            "sent_bytes": self.sent,
            "received_bytes": self.received,
            "retries": self.retries,
            "retry_wait_seconds": self.retry_wait,
            "limit_wait_seconds": self.limit_wait,
        }


class Counters:
    """Totals that any thread may add to and read."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._total = Traffic()

    def add(self, kind: str, sent: int, received: int) -> None:
        """Count an attempt."""
        with self._guard:
            self._total.answers[kind] += 1
            self._total.sent += sent
            self._total.received += received

    def watching(self, reporter: Reporter) -> Reporter:
        """`reporter`, with the waits that it is told of counted."""

        def tell(event: Event) -> None:
            with self._guard:
                if isinstance(event, Retrying):
                    self._total.retries += 1
                    self._total.retry_wait += event.wait
                elif isinstance(event, Paused):
                    self._total.limit_wait += event.wait
            reporter(event)

        return tell

    def read(self) -> Traffic:
        """A copy of the totals as they are now."""
        with self._guard:
            return replace(self._total, answers=Counter(self._total.answers))


class Counted:
    """A transport whose attempts are counted."""

    def __init__(self, transport: Transport, counters: Counters) -> None:
        self._transport = transport
        self._counters = counters

    def send(self, request: Request) -> Answer:
        """Send `request` once; raises as the transport does."""
        try:
            answer = self._transport.send(request)
        except Interrupted:
            raise
        except SyncError:
            self._counters.add("none", 0, 0)
            raise
        kind = "429" if answer.status == 429 else f"{answer.status // 100}xx"
        self._counters.add(kind if kind in CLASSES else "none", request.length, len(answer.body))
        return answer
