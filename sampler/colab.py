"""Which notebook of Google Colab this is, by the notebook server of the same machine."""

from __future__ import annotations

import json
import posixpath
import re
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from .context import Context
from .gathering import Fact, Fields

WITHIN = 3.0  # s; the peer's, too
_LONGEST = 1 << 20  # bytes
_LONGEST_PATH = 512  # characters
_MOST_SERVERS = 8
_ADDRESS = "https://colab.research.google.com/notebook#"


def colab_facts(ctx: Context, modules: Mapping[str, Any] = sys.modules) -> dict[str, Fact]:
    """The fact, where the process is a kernel of Colab, by the modules that it has loaded; else none."""
    kernel = modules.get("ipykernel")
    if "google.colab" not in modules or kernel is None:
        return {}
    from .http import Endpoint  # here, and not on the fact's thread: see `registry.load_modules`

    def sessions(text: str) -> Any:
        server = json.loads(text)
        token = server.get("token")
        headers = {"Authorization": f"token {token}"} if token else {}
        endpoint = Endpoint(f"{server['url'].rstrip('/')}/api/sessions", headers)
        answer = endpoint.get(accept="application/json", connect_within=WITHIN, within=WITHIN, longest=_LONGEST)
        return json.loads(answer.body)

    def ask() -> Fields:
        folder, name = posixpath.split(kernel.get_connection_file())
        number = name.removeprefix("kernel-").removesuffix(".json")
        # Each server leaves a file with its address and its token beside those of the kernels.
        files = [file for file in ctx.list(folder) if re.fullmatch(r"(jp|nb)server-.*\.json", file)]
        failure: Exception | None = None
        for file in files[:_MOST_SERVERS]:
            try:
                path = notebook_path(sessions(ctx.read(f"{folder}/{file}") or ""), number)
            except Exception as error:  # of a server that was killed the file stays
                failure = error
                continue
            if path is not None:
                return {"colab": _ADDRESS + path}
        if failure is not None:
            raise failure
        return {}

    return {"Colab": ask}


def notebook_path(sessions: Any, kernel: str) -> str | None:
    """What names the notebook of a kernel, `fileId=..`, in a server's list of sessions; None if nothing there does."""
    for session in sessions if isinstance(sessions, list) else ():
        parts = (session.get("kernel"), session.get("notebook")) if isinstance(session, Mapping) else (None, None)
        mine, notebook = (part if isinstance(part, Mapping) else {} for part in parts)
        path = notebook.get("path")
        if mine.get("id") == kernel and isinstance(path, str) and path.startswith("fileId="):
            found = unquote(path)
            return found if found.isprintable() and len(found) <= _LONGEST_PATH else None
    return None
