"""What every kind of media is: content that becomes files, and a few values in the row that name them.

It happens in two steps. *Staging*, on the caller's thread inside `log`, brings the content into the run's directory,
so that the caller may change or delete it. *Landing*, on the writer's thread, where the row's step is known, gives the
files their names and says what stands in the row.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from ..runfiles import RunFiles
from ..values import Path, UnloggableError

if TYPE_CHECKING:
    from .content import ArtifactContents


class Landing(NamedTuple):
    """What a landed medium leaves in the log."""

    value: Any
    """What stands under its key: plain values; nested dicts become nested keys."""
    paths: tuple[str, ...] = ()
    """Its files, relative to `files/`: one files record each, before the row."""
    records: tuple[bytes, ...] = ()
    """Further records that stand before the row, as `writer.records` makes them."""
    features: tuple[int, ...] = ()
    """Telemetry's numbers of the features that it uses."""


class MediaContext(NamedTuple):
    """The run, as far as media name it."""

    run_id: str
    project: str = ""
    entity: str = ""
    warn: Callable[[str, str], None] = lambda _topic, _text: None
    """Takes a topic and one line for the user; of each topic the first line counts."""
    time: Callable[[], float] = time.time
    """Seconds since the epoch."""
    recorded: set[bytes] | None = None
    """Records of the config that the run has already; None: not kept."""

    def once(self, record: bytes) -> tuple[bytes, ...]:
        """The record, unless the run has it: many rows say the same of the config."""
        if self.recorded is None:
            return (record,)
        if record in self.recorded:
            return ()
        self.recorded.add(record)
        return (record,)


class StagedMedia(Protocol):
    """Content in the run's directory that waits for its step."""

    def land(self, key: str, step: str) -> Landing:
        """Name the files.

        Args:
            key: the last component of the key that it was logged under; in the summary, all of it with dots.
            step: the row's step in digits, or "summary".

        Raises:
            OSError: a file cannot be named.
            ValueError: `key` cannot be part of a file name.
        """

    def drop(self) -> None:
        """The row goes nowhere: remove what was staged."""


class Media(ABC):
    """A value of a row, or of the summary, that stands for files."""

    KIND: ClassVar[str] = ""
    """`_type` in the log, unless `stage` says otherwise; in an artifact, the middle of the name of its JSON."""

    def where(self, path: Path) -> Path:
        """The path in the row of what was logged under `path`."""
        return path

    def cell(self, contents: ArtifactContents) -> dict[str, Any]:  # noqa: ARG002 - subclasses use it
        """What stands for it in the JSON of a table or another artifact; its files are added to `contents`.

        Raises:
            OSError: a file cannot be read or written.
            UnloggableError: artifacts have no such thing.
        """
        raise UnloggableError(f"artifacts hold no {type(self).__name__}")

    @abstractmethod
    def stage(self, files: RunFiles, context: MediaContext) -> StagedMedia:
        """Bring the content into the run's directory.

        Raises:
            OSError: it cannot be read or written.
            UnloggableError: it is not what it should be.
        """
