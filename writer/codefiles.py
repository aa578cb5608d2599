"""The code of a run: the script, and the sources of a folder."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .artifact_record import MAX_NAME_CHARACTERS, internal_name

if TYPE_CHECKING:
    from .artifact import Artifact
    from .runfiles import RunFiles

Choice = Callable[[str, str], bool] | Callable[[str], bool]
"""Whether a path is meant; may be asked with the folder that is walked as a second argument."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_\-.]")
_LOG_FOLDERS = ("wandb", ".wandb")


def is_code(path: str) -> bool:
    """What is code unless the user says otherwise: Python, `requirements.txt`, and Docker's files."""
    name = Path(path).name
    return name.endswith(".py") or name == "requirements.txt" or name.startswith("Dockerfile")


def in_log_folder(path: str, root: str) -> bool:
    """Whether a file lies in the folder of the logs, `wandb` or `.wandb`, at the top of `root`."""
    return os.path.relpath(path, root).startswith(tuple(folder + os.sep for folder in _LOG_FOLDERS))


def main_script() -> Path | None:
    """The script that this process runs; None in a shell or a notebook."""
    name = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(name).absolute() if name and Path(name).is_file() else None


def below_repository(script: Path | None, folder: Path, *, git: bool = True) -> str:
    """A script's path relative to the repository that `folder` is in, or to `folder`; "" where it is not below."""
    if script is None:
        return ""
    roots = [above for above in (folder, *folder.parents) if (above / ".git").exists()] if git else []
    root = (roots or [folder])[0]
    try:
        return script.relative_to(root).as_posix()
    except ValueError:
        return ""


def code_name(project: str, script: str) -> str:
    """What the artifact of a run's code is called, so that all runs of a script make versions of one."""
    name = _NOT_IN_NAMES.sub("_", f"source-{project}-{script}" if script else f"source-{project}")
    half = MAX_NAME_CHARACTERS // 2 - 1
    return name if len(name) <= MAX_NAME_CHARACTERS else f"{name[:half]}..{name[-half:]}"


def code_artifact(
    root: Path, name: str, include: Choice, exclude: Choice, *, but: Path, files: RunFiles | None
) -> Artifact | None:
    """The code below a folder as an artifact; None if there is none.

    Args:
        root: the folder.
        name: of the artifact.
        include: which files are code.
        exclude: which of them are not.
        but: a folder that is passed over, because runs lie in it.
        files: of the run that logs it.
    """
    from .artifact import Artifact

    artifact = Artifact.internal(internal_name(name), "code")
    chosen = _chosen(root, _asked(include), _asked(exclude), but)
    with artifact.filled_for(files):
        artifact.fill(root, ((path, path.relative_to(root).as_posix()) for path in chosen), [])
    return artifact if len(artifact.manifest) else None


def _chosen(
    root: Path, include: Callable[[str, str], bool], exclude: Callable[[str, str], bool], but: Path
) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if Path(folder, name) != but)
        for name in sorted(names):
            path = Path(folder, name)
            if include(str(path), str(root)) and not exclude(str(path), str(root)) and path.is_file():
                yield path


def _asked(choice: Choice) -> Callable[[str, str], bool]:
    takes_root = len(inspect.signature(choice).parameters) == 2
    return choice if takes_root else lambda path, _root: choice(path)  # type: ignore[call-arg,return-value]
