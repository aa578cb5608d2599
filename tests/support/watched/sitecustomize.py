"""Imported first by each Python process of a script that we run: `import wandb` is us, and whatever leaves is heard.

Calls to a network raise. What they were, which files were written and which processes started stands in the file that
AUDIT_LOG names, a JSON array per line: the event and the absolute path that it is about.
"""

from __future__ import annotations

import json
import os
import socket
import sys

_PATHS = {
    "os.chmod": 1,
    "os.chown": 1,
    "os.link": 2,
    "os.mkdir": 1,
    "os.remove": 1,
    "os.rename": 2,
    "os.rmdir": 1,
    "os.setxattr": 1,
    "os.truncate": 1,
    "os.utime": 1,
}
"""Events about files -> how many of their first arguments are paths."""
_PROCESSES = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
_HARMLESS = {"socket.gethostname", "socket.__new__"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_log = os.open(os.environ["AUDIT_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
_seen = set()


def _note(event, about=""):
    if not isinstance(about, int):  # a descriptor: its opening was heard
        entry = (event, os.path.abspath(os.fsdecode(about)) if about else "")  # noqa: PTH100 - follows no links
        if entry not in _seen:
            _seen.add(entry)
            os.write(_log, json.dumps(entry).encode() + b"\n")


def _between_processes(arguments):
    """Whether a call is about a socket that does not leave the machine, as workers have them."""
    return arguments and getattr(arguments[0], "family", None) == getattr(socket, "AF_UNIX", -1)


def _hear(event, arguments):
    if event == "open":
        path, _, flags = arguments
        if flags & _WRITING:
            _note(event, path)
    elif event == "os.symlink":
        _note(event, arguments[1])
    elif event in _PATHS:
        for path in arguments[: _PATHS[event]]:
            _note(event, path)
    elif event in _PROCESSES:
        _note(event)
    elif event.startswith("socket.") and event not in _HARMLESS and not _between_processes(arguments):
        _note(event)
        raise RuntimeError(f"offline means offline: {event} {arguments}")


import runferry  # noqa: E402 - before the hook: what a checkout does on import is not the script's

sys.modules["wandb"] = runferry
sys.addaudithook(_hear)
