"""Old versions of the peer, each in an environment of its own: `python tests/support/old.py` makes them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "peer" / "old" / "script.py"
TIMEOUT_S = 120
KEY = "0" * 40
"""Any API key: versions only look how long it is."""

_BEFORE_CORE = ("setuptools<81", "pillow")  # the last with `pkg_resources`, which they import


@dataclass(frozen=True)
class Version:
    """One version of the peer as it writes a log."""

    number: str
    needs: tuple[str, ...] = ("pillow",)
    """What its own requirements leave too open, and what the script uses."""
    core: bool = True
    """Whether its Go program writes the log; before 0.18 that was Python, unless asked for."""

    @property
    def name(self) -> str:
        """`0.17.5`, or `0.17.5-core` where it is asked for its core."""
        return f"{self.number}-core" if self.asks_for_core else self.number

    @property
    def asks_for_core(self) -> bool:
        return self.core and self.number.startswith("0.17.")

    @property
    def environment(self) -> Path:
        return ROOT / f".venv-old-{self.number}" if self.number != "0.31.0" else ROOT / ".venv-peer"

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    def missing(self) -> str:
        """Why it cannot be run; empty if it can."""
        if (self.environment / "ready.stamp").exists():
            return ""
        return f"no {self.environment.name}: `make old-envs` sets it up, where this Python can run wandb {self.number}"


VERSIONS = [
    Version("0.10.33", ("protobuf<4", "urllib3<2", *_BEFORE_CORE), core=False),
    Version("0.12.21", ("protobuf<4", *_BEFORE_CORE), core=False),
    Version("0.13.11", ("protobuf<5", *_BEFORE_CORE), core=False),
    Version("0.15.12", ("protobuf<5", *_BEFORE_CORE), core=False),
    Version("0.16.6", ("protobuf<5", *_BEFORE_CORE), core=False),
    Version("0.17.5", ("protobuf<6", *_BEFORE_CORE), core=False),
    Version("0.17.5", ("protobuf<6", *_BEFORE_CORE)),
    Version("0.18.7"),
    Version("0.19.11"),
    Version("0.21.4"),
    Version("0.24.2"),
    Version("0.28.2"),
    Version("0.31.0"),
]
"""From the first that is read to the one that is the peer elsewhere. Two of 0.17.5: its core miscounted blocks."""


def make_environment(version: Version) -> str:
    """Make or bring up to date its environment; why that failed, or empty."""
    stamp, wanted = version.environment / "ready.stamp", f"{version.number} {' '.join(version.needs)} {sys.version}\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return ""
    shutil.rmtree(version.environment, ignore_errors=True)
    venv.create(version.environment, with_pip=True)
    pip = [version.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([*pip, f"wandb=={version.number}", *version.needs], [version.python, "-c", "import wandb"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    stamp.write_text(wanted)
    return ""


@dataclass(frozen=True)
class OldRun:
    """What one run of the script left."""

    log: Path
    exit_code: int
    stderr: str

    @property
    def files(self) -> Path:
        """Where the version itself keeps its summary, config and console."""
        return self.log.parent / "files"


def run_script(version: Version, kind: str, folder: Path, server: str, *, online: bool = False) -> OldRun:
    """Run the script of that kind in `folder`; `server` is a URL, which some versions ask even when they are offline.

    The log holds no name of this machine, nor of a folder or user of it.
    """
    home = folder / "home"
    home.mkdir(parents=True)
    shutil.copy(SCRIPT, folder / "train.py")
    quiet = ("WANDB__DISABLE_STATS", "WANDB__DISABLE_META", "WANDB_X_DISABLE_STATS", "WANDB_X_DISABLE_META")
    quiet += ("WANDB_SILENT", "WANDB_DISABLE_GIT", "WANDB_DISABLE_CODE", "WANDB_QUIET")
    settings = dict.fromkeys(quiet, "true") | {"WANDB_CONSOLE": "wrap", "WANDB_HOST": "node"}
    settings |= {"WANDB_ERROR_REPORTING": "false", "WITH_CORE": "1" if version.asks_for_core else ""}
    settings |= {"WANDB_MODE": "online" if online else "offline", "WANDB_BASE_URL": server, "WANDB_API_KEY": KEY}
    kept = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "NO_PROXY": "127.0.0.1"}
    with (folder / "stderr.txt").open("w+") as stderr:
        done = subprocess.run(
            [version.python, "train.py", kind],
            cwd=folder,
            env=kept | settings,
            stdout=subprocess.DEVNULL,
            stderr=stderr,  # a file: after a kill, a process of the peer may hold it open for a while
            timeout=TIMEOUT_S,
            check=False,
        )
        stderr.seek(0)
        said = stderr.read()
    (log,) = folder.glob("wandb/*run-*/run-*.wandb")
    return OldRun(log, done.returncode, said)


def main() -> None:
    """Make all environments that this Python can have, and say which it cannot."""
    for version in VERSIONS:
        if version.environment.name != ".venv-peer" and (reason := make_environment(version)):
            print(f"wandb {version.number}: {reason}", file=sys.stderr)  # noqa: T201 - make shows it


if __name__ == "__main__":
    main()
