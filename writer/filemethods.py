"""What a run does with files: media in rows, saved files, artifacts. The public half of `Run` that deals with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .filesystem import FileSystem
from .journal import Journal
from .pump import WAIT_S, Pump
from .settings import Resolved
from .values import Key, path_of

if TYPE_CHECKING:
    from .identity import Identity
    from .media import Media, StagedMedia
    from .runfiles import RunFiles

StagedRow = dict[Key, "StagedMedia"]
"""The media of a row, or of the summary, whose content is in the run's directory."""


class FileMethods:
    """Mixed into `Run`, which owns the attributes named here."""

    if TYPE_CHECKING:

        def _refuse(self, topic: str, text: str) -> None: ...
        def _warn_once(self, topic: str, text: str) -> None: ...
        @property
        def disabled(self) -> bool:
            """Whether nothing is written."""

    _settings: Resolved
    _identity: Identity
    _journal: Journal
    _fs: FileSystem
    _warn: Callable[[str], None]
    _time: Callable[[], float]
    _monotonic: Callable[[], float]
    _pump: Pump
    _made_files: RunFiles | None = None
    _scratch = ""
    _files_late = False
    """Whether somebody waited for files in vain."""
    _recorded: set[bytes] | None = None

    @property
    def _files(self) -> RunFiles:
        """The files beside the log; made on first use, because most runs have none."""
        made = self._made_files
        if made is None:
            from .runfiles import RunFiles

            new = RunFiles(
                lambda: self._journal.directory,
                self._fs,
                transfer=self._settings.file_transfer,
                copy_limit=self._settings.copy_limit,
                warn=self._warn,
            )
            made = self.__dict__.setdefault("_made_files", new)  # in one step: another thread may be here, too
        return made

    @property
    def dir(self) -> str:
        """The folder for the run's files; empty as long as there is none.

        A process that writes no log has a temporary one, gone with the process, so that scripts need not ask.
        """
        if self.disabled:
            if not self._scratch:
                self._scratch = _temporary()
            return self._scratch
        directory = self._journal.directory
        return str(directory / "files") if directory else ""

    @property
    def sync_dir(self) -> str:
        """The run's directory, which is what `runferry sync` takes; empty as long as there is none."""
        directory = self._journal.directory
        return str(directory) if directory else ""

    def _sync_files(self) -> None:
        if self._made_files is not None:
            self._made_files.device.begin()

    def _settle_files(self, timeout_s: float) -> bool:
        """Wait until the files of all that was logged are on the device; whether they are."""
        if self._made_files is None:
            return True
        deadline = self._monotonic() + timeout_s
        landed = self._pump.barrier(sync=False, timeout_s=timeout_s)  # media get their names on the writer's thread
        return self._made_files.device.settle(max(0.0, deadline - self._monotonic())) and landed

    def _secure_files(self) -> None:
        """Have files brought to the device; at level `disk` wait for it, in vain only once."""
        if self._settings.durability != "disk":
            self._files.device.begin()
            return
        late = not self._files.device.settle(0.0 if self._files_late else WAIT_S)
        if late and not self._files_late and not self._files.device.unsure:
            self._warn(f"files are not on the device after {WAIT_S:g} s; until they are, no call waits for them")
        self._files_late = late

    def _stage_all(self, media: Mapping[Key, Media]) -> StagedRow:
        """The media whose content could be brought into the run's directory; the others are named and left out."""
        from .media import MediaContext

        if self._recorded is None:
            self._recorded = set()
        context = MediaContext(
            self._settings.run_id,
            self._settings.project,
            self._settings.entity,
            warn=self._warn_once,
            time=self._time,
            recorded=self._recorded,
        )
        staged: StagedRow = {}
        try:
            for key, medium in media.items():
                try:
                    staged[key] = medium.stage(self._files, context)
                except Exception as error:  # whatever a medium's type or the disk does, it costs its own key only
                    name = ".".join(path_of(key))
                    self._refuse(f"media {name}", f"{name} is left out: {type(error).__name__}: {error}")
        except BaseException:  # `strict`, or Ctrl-C
            drop_all(staged)
            raise
        return staged


def drop_all(staged: StagedRow | None) -> None:
    """The row goes nowhere."""
    for medium in (staged or {}).values():
        medium.drop()


def _temporary() -> str:
    import atexit
    import shutil
    import tempfile

    folder, owner = tempfile.mkdtemp(prefix="runferry-"), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # a forked child leaves its parent's alone
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
