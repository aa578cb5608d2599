"""What `watched/sitecustomize.py` heard of the processes of a script."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from support import peer

_STARTING = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
_RUN_DIRECTORY = re.compile(r"wandb/(offline-)?run-\d{8}_\d{6}-[^/]+(/.*)?")
_LINK = re.compile(r"wandb/latest-run(\.\d+)?")
"""The link, and the name under which it is made before it replaces the one that is there."""


@dataclass(frozen=True)
class Heard:
    """What left a script's processes, each once."""

    network: list[str]
    written: list[Path]
    """Files that were made, written, renamed or removed."""
    started: set[str]
    """The calls that started processes."""


def read(folder: Path) -> Heard:
    """What was heard of the script that ran in `folder`."""
    entries = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    return Heard(
        [event for event, _ in entries if event.startswith("socket.")],
        [Path(path) for event, path in entries if path and event not in _STARTING],
        {event for event, _ in entries if event in _STARTING},
    )


def outside(written: Iterable[Path], folder: Path, own: Iterable[str]) -> list[str]:
    """Those that lie neither in a run directory, nor are the folder of runs and its link, nor the script's `own`."""
    found = []
    for path in written:
        if path == Path(os.devnull):
            continue
        name = os.path.relpath(path, folder)
        if (
            name in {".", "wandb"}
            or _RUN_DIRECTORY.fullmatch(name)
            or _LINK.fullmatch(name)
            or name.split("/")[0] in own
        ):
            continue
        found.append(name)
    return found


_EVERYTHING = """
import os, shutil, socket, subprocess, sys
from pathlib import Path

open("made", "w").close()
Path("made").rename("renamed")
os.mkdir("folder")
os.symlink("renamed", "link")
os.link("renamed", "hard")
os.remove("hard")
os.rmdir("folder")
os.truncate("renamed", 0)
os.close(os.open("appended", os.O_APPEND | os.O_CREAT | os.O_WRONLY))
shutil.copyfile("renamed", "copied")
with open("renamed"):
    pass  # reading is nobody's business
refused = 0
plain, datagram = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
for call in (
    lambda: plain.connect(("127.0.0.1", 9)),
    lambda: plain.bind(("127.0.0.1", 0)),
    lambda: datagram.sendto(b"x", ("127.0.0.1", 9)),
    lambda: socket.getaddrinfo("example.org", 80),
    lambda: socket.gethostbyname("example.org"),
    lambda: socket.create_connection(("127.0.0.1", 9)),
):
    try:
        call()
    except RuntimeError:
        refused += 1
subprocess.run([sys.executable, "-c", "open('child', 'w').close()"], check=True)
if not os.fork():
    os._exit(0)
os.wait()
print(refused)
"""
ALL = (
    6,
    {"socket.bind", "socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"},
    {"appended", "child", "copied", "folder", "hard", "link", "made", "renamed"},
    {"os.fork", "subprocess.Popen"},
)
"""What must be heard of a program that does everything: calls refused, network, files, processes."""


def heard_of(folder: Path) -> tuple[int, set[str], set[str], set[str]]:
    """Run that program in `folder`: what was heard."""
    command = [sys.executable, "-c", _EVERYTHING]
    done = subprocess.run(command, cwd=folder, env=environ(folder), capture_output=True, text=True, check=True)
    heard = read(folder)
    return int(done.stdout), set(heard.network), set(outside(heard.written, folder, ())), heard.started


def environ(folder: Path) -> dict[str, str]:
    """The environment in which processes are heard."""
    return peer.environment(folder, **peer.watched(folder))
