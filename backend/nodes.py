"""Projects, runs and their files as GraphQL nodes; fields that cost something are worked out when they are asked for."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .artifact_model import INPUT, OUTPUT
from .artifact_nodes import ArtifactNodes
from .artifacts import Artifacts
from .console import console_line
from .filestream import CONSOLE, EVENTS, HISTORY
from .gql_syntax import GraphQLError
from .history import Histories
from .jsontext import parse
from .manifest import base64_md5
from .paging import MAX_PAGE, connection, iso, names_of, node_id, parse_node_id
from .runs import Run, RunPath
from .settings import ServeSettings
from .storage import Addresses
from .store import RunNotFoundError, Store, StoredFile

Arguments = dict[str, Any]
ORDERS = {"created_at": "created_at", "createdAt": "created_at", "heartbeat_at": "heartbeat_at", "name": "display_name"}


@dataclass(frozen=True)
class Nodes:
    """Builds the nodes of one request."""

    store: Store
    artifact_store: Artifacts
    histories: Histories
    settings: ServeSettings
    addresses: Addresses
    clock: Callable[[], float]

    @property
    def artifacts(self) -> ArtifactNodes:
        """The builder of artifact nodes."""
        return ArtifactNodes(self.artifact_store, self.addresses, self.project, self.run_or_none, self._run_of_key)

    def project(self, entity: str, project: str) -> Any:
        """A project, whether anything is in it or not."""
        nodes = self.artifacts
        collections = self.artifact_store.collections

        def of_type(name: object) -> Callable[[Arguments], Any]:
            def found(given: Arguments) -> Any:
                members = [one for one in collections(entity, project) if name in (None, one.type)]
                return connection(members, nodes.collection, given)

            return found

        def collection(given: Arguments) -> Any:
            named = [one for one in collections(entity, project) if one.name == given.get("name")]
            return nodes.collection(named[0]) if named else None

        def type_node(given: Arguments) -> Any:
            name = given.get("name")
            if not any(one.type == name for one in collections(entity, project)):
                return None
            found = of_type(name)
            return {**nodes.type(str(name)), "artifactCollections": found, "artifactCollection": collection}

        def types(given: Arguments) -> Any:
            names = sorted({one.type for one in collections(entity, project)})
            return connection(names, nodes.type, given)

        def version(given: Arguments) -> Any:
            found = self.artifact_store.by_name(entity, project, str(given.get("name")))
            return None if found is None else nodes.artifact(found)

        def membership(given: Arguments) -> Any:
            found = self.artifact_store.by_name(entity, project, str(given.get("name")))
            return None if found is None else nodes.membership(found)

        def run(given: Arguments) -> Any:
            path = run_path(entity, project, given.get("name"))
            found = self.run_or_none(path)
            if found is None and given.get("missingOk") is not True:
                raise GraphQLError(f"run {path.entity}/{path.project}/{path.name} is not on this server")
            return found

        return {
            "__typename": "Project",
            "id": node_id("Project", f"v1:{project}:{entity}"),
            "internalId": node_id("ProjectInternalId", _project_number(entity, project)),
            "name": project,
            "entityName": entity,
            "entity": {"__typename": "Entity", "id": node_id("Entity", f"v1:{entity}"), "name": entity},
            "createdAt": iso(0),  # nothing is kept of a project itself
            "isBenchmark": False,
            "user": user(entity),
            "readOnly": False,
            "bucket": run,
            "run": run,
            "runCount": lambda _: len(self._runs_of(entity, project)),
            "runs": lambda given: self._runs(entity, project, given),
            "artifact": version,
            "artifactType": type_node,
            "artifactTypes": types,
            "artifactCollection": collection,
            "artifactCollections": of_type(None),
            "artifactCollectionMembership": membership,
        }

    def run_or_none(self, path: RunPath) -> Any:
        """A run, None where it is not here."""
        try:
            return self.run(self.store.run(path))
        except RunNotFoundError:
            return None

    def run(self, run: Run) -> Any:
        """A run as clients see it. Line counts are the next free line, so that holes keep offsets true."""
        return {
            "__typename": "Run",
            "id": run.path.storage_id,
            "internalId": node_id("RunInternalId", run.key),
            "name": run.path.name,
            "displayName": run.display_name,
            "description": run.description,
            "group": run.group_name,
            "groupName": run.group_name,
            "jobType": run.job_type,
            "notes": run.notes,
            "tags": run.tags,
            "host": run.host,
            "jobProgram": run.program,
            "commit": run.git_commit,
            "repo": run.repo,
            "sweepName": run.sweep,
            "state": run.state_at(self.clock(), self.settings.crash_after_s),
            "exitCode": run.exit_code,
            "stopped": False,
            "readOnly": False,
            "user": user(run.path.entity),
            "createdAt": iso(run.created_at),
            "updatedAt": iso(run.updated_at),
            "heartbeatAt": iso(run.heartbeat_at),
            "config": run.config,
            "summaryMetrics": run.summary,
            "wandbConfig": lambda given: _wandb_config(run.config, given.get("keys")),
            "historyLineCount": run.extent(HISTORY).length,
            "eventsLineCount": run.extent(EVENTS).length,
            "logLineCount": run.extent(CONSOLE).length,
            "historyTail": lambda _: self._tail(run, HISTORY),
            "eventsTail": lambda _: self._tail(run, EVENTS),
            "systemMetrics": lambda _: self._last(run, EVENTS) or "{}",
            "historyKeys": lambda _: self.histories.keys(run),
            "lastHistoryStep": lambda _: self.histories.keys(run)["lastStep"],
            "history": lambda given: self._rows(run, HISTORY, given),
            "events": lambda given: self._rows(run, EVENTS, given),
            "parquetHistory": {"parquetUrls": [], "liveData": []},  # nothing is exported; readers go on with `history`
            "logLines": lambda given: self._console(run, given),
            "sampledHistory": lambda given: self._sampled(run, given),
            "fileCount": lambda _: len(self._stored_files(run)),
            "files": lambda given: self._files(run, given),
            "outputArtifacts": lambda given: self._artifacts(run, OUTPUT, given),
            "inputArtifacts": lambda given: self._artifacts(run, INPUT, given),
            "project": lambda _: self.project(run.path.entity, run.path.project),
            "projectId": str(_project_number(run.path.entity, run.path.project)),
        }

    def _run_of_key(self, key: int) -> Any:
        run = self.store.run_of_key(key)
        return None if run is None else self.run(run)

    def _runs_of(self, entity: str, project: str) -> list[Run]:
        return [run for run in self.store.runs() if (run.path.entity, run.path.project) == (entity, project)]

    def _runs(self, entity: str, project: str, given: Arguments) -> Any:
        filters, order = given.get("filters"), given.get("order") or "-created_at"
        if filters not in (None, "", "{}"):
            raise GraphQLError("not supported by this backend: runs with filters")
        field = ORDERS.get(str(order)[1:])
        if field is None or order[0] not in "+-":
            raise GraphQLError(f"not supported by this backend: runs in the order {order!r}")
        runs = self._runs_of(entity, project)
        runs.sort(key=lambda run: getattr(run, field), reverse=order[0] == "-")
        return connection(runs, self.run, given)

    def _stored_files(self, run: Run) -> list[StoredFile]:
        return [file for file in self.store.files(run) if file.blob is not None]

    def _files(self, run: Run, given: Arguments) -> Any:
        names = names_of(given)
        if given.get("pattern") is not None:
            raise GraphQLError("not supported by this backend: files by pattern")
        files = [file for file in self._stored_files(run) if names is None or file.name in names]
        return connection(files, lambda file: self._file(run, file), given)

    def _file(self, run: Run, file: StoredFile) -> Any:
        url = self.addresses.download(file.blob or "", file.name)

        def address(given: Arguments) -> str:
            return self.addresses.run_file(run.key, file.name) if given.get("upload") is True else url

        return {
            "__typename": "File",
            "id": node_id("File", f"run:{run.key}:{file.name}"),
            "name": file.name,
            "displayName": file.name,
            "sizeBytes": file.size,
            "md5": base64_md5(file.md5 or ""),
            "digest": base64_md5(file.md5 or ""),
            "mimetype": None,
            "storagePath": f"blobs/{file.blob}",
            "updatedAt": iso(file.updated_at),
            "url": address,
            "directUrl": url,
        }

    def _artifacts(self, run: Run, role: str, given: Arguments) -> Any:
        return connection(self.artifact_store.of_run(run.key, role), self.artifacts.artifact, given)

    def _rows(self, run: Run, stream: str, given: Arguments) -> list[str]:
        low, high, samples = given.get("minStep"), given.get("maxStep"), given.get("samples")
        if not all(value is None or type(value) in (int, float) for value in (low, high, samples)):
            raise GraphQLError("minStep, maxStep and samples are numbers")
        first, end = -math.inf if low is None else low, math.inf if high is None else high
        try:
            return self.histories.rows(run, stream, first, end, None if samples is None else int(samples))
        except ValueError as error:
            raise GraphQLError(str(error)) from None

    def _console(self, run: Run, given: Arguments) -> Any:
        """The page of console lines that `first` and `after` ask for, or the `last` ones."""
        first, last, after = given.get("first"), given.get("last"), given.get("after")
        length = run.extent(CONSOLE).length
        start = 0
        if isinstance(last, int):
            start = max(0, length - min(max(0, last), MAX_PAGE))
        elif after:
            place = parse_node_id("Line", after)
            if place is None:
                raise GraphQLError("after is not a cursor of this server")
            start = place + 1
        end = start + (min(first, MAX_PAGE) if isinstance(first, int) and first >= 0 else MAX_PAGE)
        lines = self.store.lines(run, CONSOLE, start, min(end, length))
        return {
            "edges": [
                {"cursor": node_id("Line", number), "node": console_line(number, text)} for number, text in lines
            ],
            "pageInfo": {
                "hasNextPage": bool(lines) and lines[-1][0] + 1 < length,
                "endCursor": node_id("Line", lines[-1][0]) if lines else None,
            },
        }

    def _sampled(self, run: Run, given: Arguments) -> Any:
        specs = given.get("specs")
        if not isinstance(specs, list) or not all(isinstance(spec, str) for spec in specs):
            raise GraphQLError("specs is not a list of JSON texts")
        try:
            return [self.histories.sampled(run, spec) for spec in specs]
        except ValueError as error:
            raise GraphQLError(str(error)) from None

    def _tail(self, run: Run, stream: str) -> str:
        """JSON text of a list that holds the last line, itself a string of JSON text; empty list for an empty stream."""
        last = self._last(run, stream)
        return json.dumps([] if last is None else [last], ensure_ascii=False)

    def _last(self, run: Run, stream: str) -> str | None:
        lines = self.store.lines(run, stream, max(0, run.extent(stream).length - 1))
        return lines[0][1] if lines else None


def run_path(entity: object, project: object, name: object) -> RunPath:
    """The place of a run.

    Raises:
        GraphQLError: one of the names is none.
    """
    try:
        return RunPath(str(entity), str(project), str(name or ""))
    except ValueError as error:
        raise GraphQLError(str(error)) from None


def user(entity: str) -> Any:
    """Who works under an entity; there are no users here, so it is the entity itself."""
    return {
        "__typename": "User",
        "id": node_id("User", f"v1:{entity}"),
        "name": entity,
        "username": entity,
        "email": None,
        "entity": entity,
        "admin": False,
        "flags": "{}",
        "deletedAt": None,
        "apiKeys": {"edges": []},
        "teams": {"edges": [{"node": {"id": node_id("Entity", f"v1:{entity}"), "name": entity}}]},
    }


def _project_number(entity: str, project: str) -> int:
    """Clients want a number; projects have no row of their own."""
    return zlib.crc32(f"{entity}/{project}".encode())


def _wandb_config(config: str, keys: object) -> str:
    """The named keys of the config's `_wandb` value, as JSON text; clients ask so whether a run ever started."""
    entry = parse(config).get("_wandb")
    inner = entry.get("value") if isinstance(entry, dict) else None
    wanted = [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []
    return json.dumps({key: inner[key] for key in wanted if key in inner} if isinstance(inner, dict) else {})
