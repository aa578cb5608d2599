"""The real server in a process of its own, for tests of everything that talks to a backend."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START_TIMEOUT_S = 30


class Server:
    """A running server; `url` and `key` are what a client needs."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self._arguments = arguments
        self._port = 0
        self.start()

    def start(self) -> None:
        """Starts (again, on the same port and data) and returns when it listens."""
        command = [sys.executable, "-m", "runferry.cli", "serve", "--json"]
        command += ["--port", str(self._port), "--data-dir", str(self.data_dir)]
        command += ["--request-log", str(self.folder / "requests.jsonl"), "--faults", str(self.folder / "faults.json")]
        environ = {name: value for name, value in os.environ.items() if name != "RUNFERRY_SERVE_API_KEYS"}
        with (self.folder / "stderr.txt").open("ab") as errors:
            self.process = subprocess.Popen(
                command + self._arguments, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, env=environ
            )
        watchdog = threading.Timer(START_TIMEOUT_S, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        if not line:
            self.stop()
            raise RuntimeError(f"the server did not start: {self.errors()}")
        said = json.loads(line)
        self.url: str = said["url"]
        self._port = int(self.url.rpartition(":")[2])
        self.key = Path(said["api_key_file"]).read_text().split()[0] if said["api_key_file"] else "0" * 40

    def kill(self) -> None:
        """SIGKILL: nothing can be tidied up. `start` brings it back on the same data."""
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def _reap(self) -> int:
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self.process.stdout.close()

    def errors(self) -> str:
        """What the server wrote to standard error."""
        return (self.folder / "stderr.txt").read_text()

    # ---- what it holds

    def get(self, path: str) -> bytes:
        """The body of a GET of the read API."""
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return answer.read()

    def runs(self) -> list[dict[str, Any]]:
        """All runs."""
        return json.loads(self.get("/api/runs"))

    def run(self, entity: str, project: str, run: str) -> dict[str, Any] | None:
        """One run, whole; None when there is none."""
        try:
            return json.loads(self.get(_path(entity, project, run)))
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            raise

    def history(self, entity: str, project: str, run: str) -> list[dict[str, Any]]:
        """The history rows."""
        return self._rows(entity, project, run, "history")

    def events(self, entity: str, project: str, run: str) -> list[dict[str, Any]]:
        """The system metric rows."""
        return self._rows(entity, project, run, "events")

    def console(self, entity: str, project: str, run: str) -> list[str]:
        """The console lines as they were sent."""
        return [row["text"] for row in self._rows(entity, project, run, "console")]

    def artifacts(self, entity: str, project: str, run: str) -> list[dict[str, Any]]:
        """The artifacts that the run made or used, with their entries."""
        return json.loads(self.get(f"{_path(entity, project, run)}/artifacts"))

    def file(self, entity: str, project: str, run: str, name: str) -> bytes:
        """The content of a file."""
        return self.get(f"{_path(entity, project, run)}/files/{urllib.parse.quote(name)}")

    def _rows(self, entity: str, project: str, run: str, stream: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.get(f"{_path(entity, project, run)}/{stream}").splitlines()]

    # ---- what it saw, and how it misbehaves

    def requests(self, operation: str | None = None) -> list[dict[str, Any]]:
        """The request log (reads of this helper left out), or its entries of one operation."""
        path = self.folder / "requests.jsonl"
        entries = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        entries = [entry for entry in entries if not entry["path"].startswith("/api/")]
        return [entry for entry in entries if operation in (None, entry["operation"])]

    def forget_requests(self) -> None:
        """Empties the request log."""
        os.truncate(self.folder / "requests.jsonl", 0)

    def set_faults(self, faults: list[dict[str, Any]]) -> None:
        """Replaces the fault script; it holds from the next request on, all counts at zero."""
        write_faults(self.folder, faults)

    # ---- talking to it without a client

    def post(self, path: str, body: Any, *, headers: dict[str, str] | None = None) -> Any:
        """POSTs JSON with the API key; the decoded answer.

        Raises:
            urllib.error.HTTPError: any status but 2xx.
        """
        token = base64.b64encode(f"api:{self.key}".encode()).decode()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Authorization": f"Basic {token}", "Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.url + path, data, sent)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def graphql(self, query: str, variables: dict[str, Any] | None = None) -> Any:
        """Runs a GraphQL document; the whole answer."""
        return self.post("/graphql", {"query": query, "variables": variables})

    def make_run(self, name: str, project: str = "proj", entity: str | None = None, **fields: Any) -> Any:
        """Makes a run; the bucket's id and display name."""
        query = "mutation U($i: UpsertBucketInput!) { upsertBucket(input: $i) { bucket { id displayName } } }"
        given = {"name": name, "modelName": project, "entityName": entity, **fields}
        return self.graphql(query, {"i": given})["data"]["upsertBucket"]["bucket"]

    def stream(self, run: str, body: Any, project: str = "proj", entity: str = "local") -> Any:
        """POSTs one file stream body."""
        return self.post(f"/files/{entity}/{project}/{run}/file_stream", body)


def _path(*parts: str) -> str:
    return "/api/runs/" + "/".join(urllib.parse.quote(part, safe="") for part in parts)


def write_faults(folder: Path, faults: list[dict[str, Any]]) -> None:
    """Puts a fault script where the server of this folder reads it; it appears whole or not at all."""
    new = folder / "faults.json.new"
    new.write_text(json.dumps(faults))
    new.replace(folder / "faults.json")


def surroundings(server: Server, **changes: str) -> dict[str, str]:
    """An environment in which our commands talk to `server`; `changes` come on top, and empty ones are taken away."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "RUNFERRY_"))}
    wanted = {"RUNFERRY_API_KEY": server.key, "RUNFERRY_BASE_URL": server.url, **changes}
    return {**kept, **{name: value for name, value in wanted.items() if value}}


@contextlib.contextmanager
def serve(
    folder: Path,
    *,
    limit: int | None = None,
    window: float | None = None,
    faults: list[dict[str, Any]] | None = None,
    arguments: list[str] | None = None,
) -> Iterator[Server]:
    """A server with its data in `folder` (made when missing), ended when the block ends.

    `arguments` are further options of `runferry serve`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_faults(folder, faults or [])
    options = list(arguments or [])
    if limit is not None:
        options += ["--limit", str(limit)]
    if window is not None:
        options += ["--window", str(window)]
    server = Server(folder, options)
    try:
        yield server
    finally:
        server.stop()
