"""What a server holds of a run, asked for in the words of its public API.

Servers differ in what they can tell. All is asked for in one query; a server that refuses it is asked for each part alone,
and what it refuses then is `Unknown`, for this run and for all others.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .api import Api
from .errors import Permanent

_PAGE = 100  # files or artifacts
STEPS = 1000
"""Steps whose rows are asked for in one request."""
_MOST_PAGES = 10_000  # of a listing: a million files

_FILES = "edges { node { name sizeBytes md5 } cursor } pageInfo { endCursor hasNextPage }"
_ARTIFACTS = "edges { node { digest state artifactSequence { name } } cursor } pageInfo { endCursor hasNextPage }"
PARTS = {
    "history": "historyLineCount",
    "events": "eventsLineCount",
    "console": "logLineCount",
    "state": "state",
    "summary": "summaryMetrics",
    "config": "config",
    "keys": "historyKeys",
    "files": f"files(first: {_PAGE}) {{ {_FILES} }}",
    "artifacts": f"outputArtifacts(first: {_PAGE}) {{ {_ARTIFACTS} }}",
}
"""Part of an answer -> how it is asked for."""
_PAGES = {"files": ("files", _FILES), "artifacts": ("outputArtifacts", _ARTIFACTS)}

_ONE_RUN = """\
query {name}($entity: String, $project: String!, $run: String!{more}) {{
  project(name: $project, entityName: $entity) {{
    run(name: $run) {{ name {fields} }}
  }}
}}"""


class Place(NamedTuple):
    """A run at the server; the entity is None where the server chooses it for the key."""

    entity: str | None
    project: str
    run: str


@dataclass(frozen=True)
class Unknown:
    """A part that the server does not tell, and what it said instead."""

    reason: str


@dataclass(frozen=True)
class RemoteFile:
    """A file as the server has it; `md5` in base64, empty where it is not told."""

    size: int
    md5: str


@dataclass
class RemoteState:
    """What the server holds. A part that it does not tell is `Unknown`."""

    history: int | Unknown = field(default_factory=lambda: Unknown("not asked"))
    events: int | Unknown = field(default_factory=lambda: Unknown("not asked"))
    console: int | Unknown = field(default_factory=lambda: Unknown("not asked"))
    state: str | Unknown = field(default_factory=lambda: Unknown("not asked"))
    summary: dict[str, Any] | Unknown = field(default_factory=lambda: Unknown("not asked"))
    config: dict[str, Any] | Unknown = field(default_factory=lambda: Unknown("not asked"))
    last_step: int | Unknown = field(default_factory=lambda: Unknown("not asked"))
    files: dict[str, RemoteFile] | Unknown = field(default_factory=lambda: Unknown("not asked"))
    artifacts: dict[tuple[str, str], str] | Unknown = field(default_factory=lambda: Unknown("not asked"))
    """(name without version, digest) -> state."""


class _EndlessError(Exception):
    """A listing has no last page."""


class Remote:
    """Asks one server. Any thread may use it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._guard = threading.Lock()
        self._refused: dict[str, str] = {}
        """Part -> why; the same for all runs, for it is the field that the server does not know."""

    def state(self, place: Place) -> RemoteState | None:
        """What the server holds of a run; None where it has no such run.

        Raises:
            SyncError: it cannot be asked.
        """
        with self._guard:
            parts = [part for part in PARTS if part not in self._refused]
            refused = dict(self._refused)
        try:
            answer = self._ask("VerifyRun", place, parts)
        except Permanent as error:
            if error.status in (401, 403):
                raise
            if self._api.resume_status(*place) is None:
                return None
            answer = {}
            for part in parts:
                answer.update(self._ask_alone(part, place, refused))
        if answer is None:
            return None
        for part in _PAGES:
            connection = answer.pop(part, None)
            if isinstance(connection, dict):
                try:
                    answer[part] = [*self._all_pages(part, connection, place)]
                except _EndlessError:
                    refused[part] = "the server's listing does not end"
        return _read(answer, refused)

    def rows(self, place: Place, wanted: list[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Step and values of all rows that the server has in the thousands that begin at the `wanted` steps, which are in order.

        Raises:
            Permanent: the server does not tell.
            SyncError: it cannot be asked.
        """
        query = _ONE_RUN.format(
            name="VerifySteps",
            more=", $minStep: Int64, $maxStep: Int64, $samples: Int",
            fields="history(minStep: $minStep, maxStep: $maxStep, samples: $samples)",
        )
        for begin in wanted:
            page = {"minStep": begin, "maxStep": begin + STEPS, "samples": STEPS}
            answer = self._run("VerifySteps", query, place, page) or {}
            rows = answer.get("history")
            for row in rows if isinstance(rows, list) else []:
                values = _json(row)
                number = _whole(values.get("_step")) if isinstance(values, dict) else None
                if number is not None and begin <= number < begin + STEPS:  # whatever a server takes for the last step
                    yield number, values

    def _ask(self, name: str, place: Place, parts: list[str]) -> dict[str, Any] | None:
        fields = " ".join(f"{part}: {PARTS[part]}" for part in parts)
        query = _ONE_RUN.format(name=name, more="", fields=fields)
        return self._run(name, query, place, {})

    def _ask_alone(self, part: str, place: Place, refused: dict[str, str]) -> dict[str, Any]:
        try:
            return self._ask("VerifyRunPart", place, [part]) or {}
        except Permanent as error:
            if error.status in (401, 403):
                raise
            refused[part] = str(error)
            with self._guard:
                self._refused[part] = str(error)
            return {}

    def _all_pages(self, part: str, connection: Any, place: Place) -> Iterator[dict[str, Any]]:
        """The nodes of a listing, page after page."""
        name, fields = _PAGES[part]
        query = _ONE_RUN.format(
            name="VerifyPage",
            more=", $after: String",
            fields=f"page: {name}(first: {_PAGE}, after: $after) {{ {fields} }}",
        )
        seen: set[str] = set()
        for _ in range(_MOST_PAGES):
            connection = connection if isinstance(connection, dict) else {}
            edges, info = connection.get("edges"), connection.get("pageInfo")
            for edge in edges if isinstance(edges, list) else []:
                node = edge.get("node") if isinstance(edge, dict) else None
                if isinstance(node, dict):
                    yield node
            if not (edges and isinstance(info, dict) and info.get("hasNextPage") is True):
                return
            after = str(info.get("endCursor"))
            if after in seen:  # the same page again
                break
            seen.add(after)
            answer = self._run("VerifyPage", query, place, {"after": after})
            connection = (answer or {}).get("page")
        raise _EndlessError

    def _run(self, operation: str, query: str, place: Place, more: dict[str, Any]) -> dict[str, Any] | None:
        variables = {**place._asdict(), **more}
        data = self._api.execute(operation, query, variables, place.project)
        found = data.get("project") if isinstance(data, dict) else None
        found = found.get("run") if isinstance(found, dict) else None
        return found if isinstance(found, dict) else None


def _read(answer: dict[str, Any], refused: dict[str, str]) -> RemoteState:
    """The parts as values; one that is not of its type is as good as not told."""

    def told(part: str, value: Any) -> Any:
        if value is not None:
            return value
        return Unknown(refused.get(part, "the server's answer does not hold it"))

    keys = _json(answer.get("keys"))
    last = keys.get("lastStep") if isinstance(keys, dict) else None
    return RemoteState(
        history=told("history", _count(answer.get("history"))),
        events=told("events", _count(answer.get("events"))),
        console=told("console", _count(answer.get("console"))),
        state=told("state", answer["state"] if isinstance(answer.get("state"), str) else None),
        summary=told("summary", _object(answer.get("summary"))),
        config=told("config", _object(answer.get("config"))),
        last_step=told("keys", _whole(last)),
        files=told("files", _files(answer["files"]) if "files" in answer else None),
        artifacts=told("artifacts", _artifacts(answer["artifacts"]) if "artifacts" in answer else None),
    )


def _files(nodes: list[dict[str, Any]]) -> dict[str, RemoteFile]:
    files = {}
    for node in nodes:
        name, size, md5 = node.get("name"), node.get("sizeBytes"), node.get("md5")
        if isinstance(name, str):
            files[name] = RemoteFile(_bytes(size), md5 if isinstance(md5, str) else "")
    return files


def _artifacts(nodes: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    artifacts = {}
    for node in nodes:
        sequence = node.get("artifactSequence")
        name = sequence.get("name") if isinstance(sequence, dict) else None
        artifacts[str(name), str(node.get("digest"))] = str(node.get("state"))
    return artifacts


def _bytes(value: Any) -> int:
    """A size, which servers write as a number or as a text; -1 for what is none."""
    return int(value) if re.fullmatch(r"[0-9]{1,19}", str(value)) else -1


def _whole(value: Any) -> int | None:
    """A whole number, also one that is written as a float; None for what is none, infinity among them."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _object(value: Any) -> dict[str, Any] | None:
    found = _json(value)
    return found if isinstance(found, dict) else None


def _json(value: Any) -> Any:
    """The value of a JSON text; anything else is a value already."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None
