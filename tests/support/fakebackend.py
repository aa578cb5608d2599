"""A backend as a Python object: the protocol's line rule (a line number written again is replaced), and faults on demand.

It is written apart from the embedded backend, so that sync is held against the protocol and not against our own server.
"""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from runferry.sync.errors import Retryable
from runferry.sync.transport import Answer, Request
from support.fakeartifacts import FakeArtifacts

URL = "http://backend.test"
KEY = "k" * 40
STREAMS = {"wandb-history.jsonl": "history", "wandb-events.jsonl": "events", "output.log": "console"}


@dataclass
class FakeRun:
    """What the server holds of one run."""

    lines: dict[str, dict[int, str]] = field(default_factory=lambda: {"history": {}, "events": {}, "console": {}})
    summary: dict[str, Any] | None = None
    variables: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    uploaded: list[str] = field(default_factory=list)
    exit_code: int | None = None
    complete: bool = False
    generation: int = 0

    def stream(self, name: str) -> list[str]:
        """The lines of a stream in order; fails if one is missing in between."""
        lines = self.lines[name]
        assert sorted(lines) == list(range(len(lines))), f"holes in {name}: {sorted(lines)[:20]}"
        return [lines[number] for number in sorted(lines)]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The history, parsed."""
        return [json.loads(line) for line in self.stream("history")]

    @property
    def config(self) -> dict[str, Any]:
        """The config, parsed."""
        return json.loads(self.variables["config"])


Fault = Callable[[int, str, Request], "Answer | Exception | None"]


class FakeBackend(FakeArtifacts):
    """A `Transport`.

    `before(n, operation, request)` may answer or raise instead of applying the n-th request (from 1); `after` may do so
    once it was applied.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[str, FakeRun] = {}
        self.requests: list[tuple[str, Request]] = []
        self.written: Counter[tuple[str, str, int]] = Counter()
        self.features: list[str] = []
        self.before: Fault = lambda *_: None
        self.after: Fault = lambda *_: None
        self.headers: dict[str, str] = {}
        self._guard = threading.Lock()

    def send(self, request: Request) -> Answer:
        with self._guard:
            operation = self._operation(request)
            self.requests.append((operation, request))
            number = len(self.requests)
            fault = self.before(number, operation, request)
            if fault is None:
                answer = self._apply(operation, request)
                fault = self.after(number, operation, request)
            if isinstance(fault, Exception):
                raise fault
            return fault if fault is not None else answer

    def operations(self) -> list[str]:
        """The names of all requests so far."""
        return [operation for operation, _ in self.requests]

    def bodies(self, operation: str = "stream") -> list[dict[str, Any]]:
        """The decoded bodies of all requests of one operation."""
        return [json.loads(request.body) for name, request in self.requests if name == operation]

    def forget(self) -> None:
        """Empty the lists of requests and writes."""
        self.requests.clear()
        self.written.clear()

    def _operation(self, request: Request) -> str:
        if request.method == "PUT":
            return "put"
        return "stream" if request.url.endswith("/file_stream") else json.loads(request.body)["operationName"]

    def _apply(self, operation: str, request: Request) -> Answer:
        if operation == "put":
            assert "Authorization" not in request.headers
            body = request.body if isinstance(request.body, bytes) else _read(request.body(), request.size)
            if not urlsplit(request.url).path.startswith("/s/"):
                return Answer(200, self.put_artifact(request.url, dict(request.headers), body), b"")
            _, _, run_id, name = urlsplit(request.url).path.split("/", 3)
            self.runs[unquote(run_id)].files[unquote(name)] = body
            return Answer(200, dict(self.headers), b"")
        expected = "Basic " + base64.b64encode(f"api:{KEY}".encode()).decode()
        if request.headers.get("Authorization") != expected:
            return Answer(401, {}, b"who are you")
        if operation == "stream":
            return self._stream(request)
        variables = json.loads(request.body)["variables"]
        data = getattr(self, f"_on_{operation.lower()}")(variables)
        if data is None:
            return Answer(200, dict(self.headers), b'{"errors": [{"message": "not in this state"}]}')
        return Answer(200, dict(self.headers), json.dumps({"data": data}).encode())

    def _stream(self, request: Request) -> Answer:
        run_id = unquote(urlsplit(request.url).path.split("/")[4])
        run = self.runs.get(run_id)
        if run is None:
            return Answer(404, {}, b"no such run")
        body = json.loads(request.body)
        for name, part in body.get("files", {}).items():
            if name == "wandb-summary.json":
                assert part["offset"] == 0
                run.summary = json.loads(part["content"][0])
                continue
            for number, line in enumerate(part["content"], part["offset"]):
                run.lines[STREAMS[name]][number] = line
                self.written[run_id, STREAMS[name], number] += 1
        run.uploaded += body.get("uploaded", [])
        if body.get("complete"):
            run.complete, run.exit_code = True, body["exitcode"]
        return Answer(200, dict(self.headers), b'{"exitcode": null, "limits": {}}')

    def _on_upsertbucket(self, variables: dict[str, Any]) -> Any:
        inserted = variables["name"] not in self.runs
        run = self.runs.setdefault(variables["name"], FakeRun())
        run.variables.update({key: value for key, value in variables.items() if value is not None})
        bucket = {
            "id": f"id-{variables['name']}-{run.generation}",
            "name": variables["name"],
            "displayName": variables["displayName"] or "fresh-breeze-1",
            "config": run.variables.get("config"),
            "project": {"name": variables["project"], "entity": {"name": variables["entity"] or "me"}},
            "historyLineCount": len(run.lines["history"]),
        }
        return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}

    def _on_runresumestatus(self, variables: dict[str, Any]) -> Any:
        run = self.runs.get(variables["name"])
        if run is None:
            return {"model": {"bucket": None}}
        history = run.lines["history"]
        tail = [history[max(history)]] if history else []
        events = run.lines["events"]
        bucket = {
            "historyLineCount": len(history),
            "eventsLineCount": len(run.lines["events"]),
            "logLineCount": len(run.lines["console"]),
            "historyTail": json.dumps(tail),
            "eventsTail": json.dumps([events[max(events)]] if events else []),
            "config": run.variables.get("config"),
            "summaryMetrics": json.dumps(run.summary or {}),
            "tags": run.variables.get("tags"),
            "notes": run.variables.get("notes"),
        }
        return {"model": {"bucket": bucket}}

    def _on_rewindrun(self, variables: dict[str, Any]) -> Any:
        """Everything behind the last row of that step or below goes."""
        assert variables["metricName"] == "_step"
        history = self.runs[variables["runName"]].lines["history"]
        kept = [number for number, line in history.items() if json.loads(line)["_step"] <= variables["metricValue"]]
        for number in [number for number in history if number > max(kept, default=-1)]:
            del history[number]
        return {"rewindRun": {"rewoundRun": {"name": variables["runName"], "historyLineCount": len(history)}}}

    def _on_serverfeaturesquery(self, _: Any) -> Any:
        return {"serverInfo": {"features": [{"name": name, "isEnabled": True} for name in self.features]}}

    def _on_createrunfiles(self, variables: dict[str, Any]) -> Any:
        files = [
            {"name": name, "uploadUrl": f"http://storage.test/s/{variables['run']}/{_quoted(name)}"}
            for name in variables["files"]
        ]
        return {"createRunFiles": {"files": files, "uploadHeaders": ["X-Upload: yes"]}}


def reset(message: str = "connection reset") -> Retryable:
    """What a transport raises when a connection breaks."""
    return Retryable(message)


def _read(file: Any, size: int) -> bytes:
    with file:
        data = file.read(size)
        assert len(data) == size
        return data


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")
