"""What a run saves: files of the user's, and its code. The public half of `Run` that deals with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from . import records
from .artifactmethods import ArtifactMethods
from .encoding import to_json
from .report import say

if TYPE_CHECKING:
    from .artifact import Artifact
    from .runfiles import RunFiles
    from .savedfiles import SavedFiles

DIFF = "diff.patch"
"""What was not committed when the run began; the peer calls it so too."""
FEATURE_SAVE = 3
"""Telemetry's number of it."""


class SaveMethods(ArtifactMethods):
    """Mixed into `Run`, which owns the attributes named here."""

    if TYPE_CHECKING:

        def _refuse(self, topic: str, text: str) -> None: ...

    _made_files: RunFiles | None
    _monotonic: Callable[[], float]
    _saved: SavedFiles | None = None

    def save(
        self,
        glob_str: str | bytes | os.PathLike[str],
        base_path: str | os.PathLike[str] | None = None,
        policy: str = "live",
        glob: bool = True,
    ) -> list[str]:
        """Save files with the run: they are copied into its directory, and "live" and "end" ones again when it ends.

        The pattern is expanded now; files that come later are not found. A file that cannot be copied is named in a
        warning (`strict` raises).

        Args:
            glob_str: a path, which may have `*`, `?` and `[]`.
            base_path: the folder below which the structure of folders is kept. Unless given: the working directory,
                or, for an absolute path, the folder above the last one.
            policy: "live": copied again every ten seconds if it changed, and when the run ends. "end": only when it
                ends. "now": never again.
            glob: False takes the path as it is, whatever characters it has.

        Returns:
            Where the files lie in the run's directory, sorted.

        Raises:
            ValueError: another policy, or a pattern that leads out of `base_path` or stands for all of it.
        """
        from .savedfiles import POLICIES, SavedFiles, select

        if policy not in POLICIES:
            raise ValueError(f"a policy is one of {', '.join(POLICIES)}, not {policy!r}")
        if not self._takes_rows:
            self._log_refused()
            return []
        try:
            folder = self._files.files
            selection = select(glob_str, base_path, folder, self._warn, literal=not glob)
        except OSError as error:  # no directory of the run, or a working directory that is gone
            self._refuse("save", f"save: {error.strerror or error}")
            return []
        saved = self._saved
        if saved is None:
            new = SavedFiles(self._files, self._warn, self._record_saved, self._settings.ignore_globs)
            saved = self.__dict__.setdefault("_saved", new)  # in one step: another thread may be here, too
        paths, failures = saved.save(selection, policy)
        self._note(FEATURE_SAVE)
        self._secure_files()
        self._record_saved(paths, policy)
        if failures:
            more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
            self._refuse(f"save {failures[0]}", f"not saved: {failures[0]}{more}")
        return [str(folder / path) for path in paths]

    def log_code(
        self,
        root: str | os.PathLike[str] | None = ".",
        name: str | None = None,
        include_fn: Callable[..., bool] | None = None,
        exclude_fn: Callable[..., bool] | None = None,
    ) -> Artifact | None:
        """Log the code below a folder as an artifact of type "code".

        Args:
            root: the folder.
            name: of the artifact; made of the project and the script's path unless given.
            include_fn: which files, asked with the path and, if it takes two arguments, with `root`; Python files,
                `requirements.txt` and Docker's files unless given.
            exclude_fn: which of them not; those in `wandb` and `.wandb` unless given. Files that git ignores are no
                exception, as in the peer; the folder in which this run lies always is one.

        Returns:
            The artifact; None if there is no such file.
        """
        from . import codefiles

        if not self._takes_rows:
            self._log_refused()
            return None
        chosen = None
        if root is not None:
            try:
                chosen = codefiles.code_artifact(
                    Path(os.path.abspath(root)),  # noqa: PTH100 - without following links
                    name or codefiles.code_name(self._settings.project, self._script()[1]),
                    include_fn or codefiles.is_code,
                    exclude_fn or codefiles.in_log_folder,
                    but=self._settings.root / "wandb",
                    files=self.file_store,
                )
            except OSError as error:  # the working directory is gone
                self._refuse("code", f"log_code: {error.strerror or error}")
                return None
        if chosen is None:
            self._warn_once("code", f"log_code: no code is below {root}")
            return None
        self._log_artifact(chosen)
        self._say_code_path(chosen.name)
        return chosen

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _script(self) -> tuple[Path | None, str]:
        """The script, and its path in the code of the run; None and "" where there is none."""
        from .codefiles import below_repository, main_script

        given = self._settings.program
        try:
            script = Path(given).absolute() if given else main_script()
            return script, below_repository(script, Path.cwd(), git=not self._settings.disable_git)
        except FileNotFoundError:  # the working directory was removed
            return None, ""

    def _say_code_path(self, path: str) -> None:
        body = records.config([(("_wandb", "code_path"), to_json(path))])
        self._submit(lambda recorder: recorder.record(body))

    def _errands(self) -> list[Callable[[], None]]:
        """What is to be saved of the run itself, away from the training thread."""
        if not self._takes_rows:
            return []
        errands: list[Callable[[], None]] = []
        if self._settings.save_code:
            script, path = self._script()
            if script is not None and path:
                errands.append(lambda: self._save_script(script, f"code/{path}"))
        if not self._settings.disable_meta:
            errands.append(self._save_requirements)
        if self._settings.git_diff and not self._settings.disable_git:
            with suppress(FileNotFoundError):  # the working directory was removed
                here = Path.cwd()  # now: the script may go elsewhere
                errands.append(lambda: self._save_diff(here))
        return errands

    def _save_script(self, script: Path, path: str) -> None:
        if self._place(script, path):
            self._say_code_path(path)

    def _save_requirements(self) -> None:
        from .requirements import requirements

        self._place(requirements(), "requirements.txt")

    def _save_diff(self, folder: Path) -> None:
        from ..sampler import gitinfo

        try:
            repository = gitinfo.find(folder)
            if repository is None:
                return
            diff = gitinfo.diff(repository.root, redact="git" in self._settings.redact)
        except OSError as error:
            self._warn_once("git_diff", f"{DIFF} is not saved: {error.strerror or error}")
            return
        if not diff.patch or not self._place(diff.patch, DIFF):
            return
        if diff.cut:
            self._warn_once("git_diff", f"{DIFF} is cut off behind {gitinfo.MAX_DIFF >> 20} MiB")
        if diff.redacted and self._settings.talks:
            say(f"{diff.redacted} of the values in {DIFF} look like secrets and are hidden (setting redact=-git)")

    def _place(self, source: Path | bytes, path: str) -> bool:
        from .savedfiles import matches_any

        if matches_any(self._settings.ignore_globs, path):
            return False
        try:
            self._files.stage(source).place(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            self._warn_once(f"file {path}", f"{path} is not saved: {reason}")
            return False
        body = records.files(path, kind=records.WANDB)
        self._submit(lambda recorder: recorder.record(body))
        return True

    def _record_saved(self, paths: Iterable[str], policy: str) -> None:
        from .savedfiles import POLICIES

        bodies = [records.files(path, POLICIES[policy]) for path in paths]
        if bodies:
            self._submit(lambda recorder: recorder.record_all(bodies, urgent=True))

    def _stop_saving(self, timeout_s: float) -> None:
        """Copy saved files a last time."""
        if self._saved is not None:
            self._saved.stop(timeout_s)
