"""The read API: what the server holds, as JSON for people, tests and the page."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from .artifact_model import INPUT, OUTPUT, Artifact, StoredEntry
from .artifacts import Artifacts
from .filestream import CONSOLE, EVENTS, HISTORY
from .jsontext import parse
from .paging import node_id
from .runs import Run, RunPath
from .series import charts
from .settings import ServeSettings
from .store import RunNotFoundError, Store

STREAMS = {"history": HISTORY, "events": EVENTS, "console": CONSOLE}
MAX_POINTS = 5_000
# What a client uploaded is never taken for a page, and what changed is never taken from a cache.
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}


def json_response(content: Any, status: int = 200, *, strict: bool = False) -> Response:
    """JSON that keeps NaN and Infinity as bare words, which Python's parser reads back; `strict` makes them strings."""
    if strict:
        content = _strict(content)
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "backslashreplace"), status, HEADERS, "application/json")


def download(path: Path, name: str) -> Response:
    """A stored file, to be saved and never shown, whatever its name says."""
    return FileResponse(
        path,
        media_type="application/octet-stream",
        headers=HEADERS,
        filename=name.rpartition("/")[2] or "file",
        content_disposition_type="attachment",
    )


class ReadApi:
    """Routes below `/api/runs`; every one only reads."""

    def __init__(self, store: Store, artifacts: Artifacts, settings: ServeSettings, now: Any) -> None:
        self._store = store
        self._artifacts = artifacts
        self._settings = settings
        self._now = now

    def routes(self) -> list[Route]:
        """The routes, all GET."""
        run = "/api/runs/{entity}/{project}/{run}"
        return [
            Route("/api/runs", self.runs),
            Route(run, self.run),
            Route(run + "/charts", self.charts),
            Route(run + "/files/{name:path}", self.file),
            Route(run + "/artifacts", self.artifacts),
            Route(run + "/{stream}", self.lines),
        ]

    async def runs(self, _: Request) -> Response:
        """All runs, newest first, without their config and summary."""
        runs = await run_in_threadpool(self._store.runs)
        return json_response([self._outline(run) for run in runs])

    async def run(self, request: Request) -> Response:
        """One run, whole; `?json=strict` for readers whose JSON knows no NaN."""
        strict = request.query_params.get("json") == "strict"
        return await run_in_threadpool(lambda: json_response(self._whole(self._find(request)), strict=strict))

    async def lines(self, request: Request) -> Response:
        """Lines `[from, to)` of a stream: rows as they came, console lines as `{"line": n, "text": ...}`."""
        name = STREAMS.get(request.path_params["stream"])
        if name is None:
            raise HTTPException(404, "there are history, events and console")
        start, stop = _number(request, "from", 0), _number(request, "to", None)
        run = await run_in_threadpool(self._find, request)

        async def pages(at: int) -> AsyncIterator[bytes]:
            while page := await run_in_threadpool(self._store.lines, run, name, at, stop):
                at = page[-1][0] + 1
                if name == CONSOLE:
                    yield b"".join(_console_line(line, text) for line, text in page)
                else:  # a newline inside a row can only be blank space between its parts
                    yield b"".join(text.replace("\n", " ").encode() + b"\n" for _, text in page)

        return StreamingResponse(pages(start or 0), headers=HEADERS, media_type="application/jsonl")

    async def charts(self, request: Request) -> Response:
        """Series of one stream, drawn down to about `points` points each."""
        stream = request.query_params.get("stream", "history")
        if stream not in {"history", "events"}:
            raise HTTPException(400, "stream is history or events")
        points = min(_number(request, "points", 600) or 600, MAX_POINTS)
        run = await run_in_threadpool(self._find, request)
        extent = run.extent(STREAMS[stream])
        tag = f'"{run.key}-{extent.rows}-{extent.length}-{run.updated_at}-{points}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        wanted = request.query_params.get("filter", "")

        def draw() -> Response:
            pages = self._store.all_lines(run, STREAMS[stream])
            return json_response(
                charts(pages, x="_step" if stream == "history" else "_runtime", points=points, wanted=wanted)
            )

        response = await run_in_threadpool(draw)
        response.headers["ETag"] = tag
        return response

    async def artifacts(self, request: Request) -> Response:
        """The artifacts that the run made and those that it used, with all their entries."""
        run = await run_in_threadpool(self._find, request)

        def whole() -> Response:
            shown = [
                {**artifact_outline(one, role), "entries": [self._entry(e) for e in self._artifacts.entries(one.key)]}
                for role, one in self._artifacts_of(run)
            ]
            return json_response(shown)

        return await run_in_threadpool(whole)

    def _artifacts_of(self, run: Run) -> list[tuple[str, Artifact]]:
        return [(role, artifact) for role in (OUTPUT, INPUT) for artifact in self._artifacts.of_run(run.key, role)]

    @staticmethod
    def _entry(entry: StoredEntry) -> dict[str, Any]:
        shown = {"path": entry.path, "digest": entry.digest, "size": entry.size, "ref": entry.ref}
        return {**shown, "extra": _decoded(entry.extra)}

    async def file(self, request: Request) -> Response:
        """One stored file, as a download: never shown, whatever its name says."""
        run = await run_in_threadpool(self._find, request)
        files = await run_in_threadpool(self._store.files, run)
        for file in files:
            if file.name == request.path_params["name"] and file.blob is not None:
                return download(self._store.blobs.path(file.blob), file.name)
        raise HTTPException(404, "the run has no such file")

    def _find(self, request: Request) -> Run:
        parts = request.path_params
        try:
            return self._store.run(RunPath(parts["entity"], parts["project"], parts["run"]))
        except (RunNotFoundError, ValueError) as error:
            raise HTTPException(404, str(error)) from None

    def _outline(self, run: Run) -> dict[str, Any]:
        return {
            "id": run.path.storage_id,
            "entity": run.path.entity,
            "project": run.path.project,
            "name": run.path.name,
            "display_name": run.display_name,
            "group": run.group_name,
            "job_type": run.job_type,
            "tags": run.tags,
            "notes": run.notes,
            "state": run.state_at(self._now(), self._settings.crash_after_s),
            "exit_code": run.exit_code,
            "preempting": run.preempting,
            "created_at": run.created_at,
            "updated_at": run.updated_at,
            "heartbeat_at": run.heartbeat_at,
            **{f"{stream}_lines": run.extent(name).rows for stream, name in STREAMS.items()},
        }

    def _whole(self, run: Run) -> dict[str, Any]:
        files = self._store.files(run)
        return {
            **self._outline(run),
            "description": run.description,
            "host": run.host,
            "program": run.program,
            "git_commit": run.git_commit,
            "repo": run.repo,
            "sweep": run.sweep,
            "config": _decoded(run.config),
            "summary": _decoded(run.summary),
            # The next free line number: above the count where lines are missing in between.
            "next_line": {stream: run.extent(name).length for stream, name in STREAMS.items()},
            "other_streams": {
                name: extent.rows for name, extent in run.streams.items() if name not in STREAMS.values()
            },
            "files": [
                {"name": file.name, "size": file.size, "md5": file.md5, "uploaded": file.uploaded}
                for file in files
                if file.blob is not None
            ],
            "missing_files": [file.name for file in files if file.blob is None],
            "artifacts": [artifact_outline(artifact, role) for role, artifact in self._artifacts_of(run)],
            "alerts": [vars(alert) for alert in self._store.alerts(run)],
        }


def artifact_outline(artifact: Artifact, role: str) -> dict[str, Any]:
    """An artifact without its entries; `role` is what it is to the run: output or input."""
    metadata = None if artifact.metadata is None else _decoded(artifact.metadata)
    return {
        "id": node_id("Artifact", artifact.key),
        "role": role,
        "name": artifact.collection.name,
        "type": artifact.collection.type,
        "version": artifact.version,
        "state": artifact.state,
        "digest": artifact.digest,
        "description": artifact.description,
        "metadata": metadata,
        "aliases": artifact.aliases,
        "tags": artifact.tags,
        "ttl_s": artifact.ttl_s,
        "history_step": artifact.history_step,
        "size": artifact.size,
        "file_count": artifact.file_count,
    }


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    return value


def _decoded(text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        return {"_undecodable": text[:10_000]}


def _number(request: Request, name: str, default: int | None) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise HTTPException(400, f"{name} is not a line number")
    return int(text)


def _console_line(line: int, text: str) -> bytes:
    return json.dumps({"line": line, "text": text}, ensure_ascii=False).encode() + b"\n"
