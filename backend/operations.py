"""The GraphQL operations: what each field of a request does to the store, and what it answers."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from .filestream import CONSOLE, EVENTS, HISTORY, safe_name
from .gql_execute import Call, Resolver
from .gql_syntax import GraphQLError
from .jsontext import parse
from .keys import UploadSigner
from .runs import STATES, Run, RunFields, RunPath
from .settings import ServeSettings
from .store import RunNotFoundError, Store

Arguments = dict[str, Any]

# Input field of upsertBucket -> what it sets.
UPSERT_FIELDS = {
    "displayName": "display_name",
    "groupName": "group_name",
    "jobType": "job_type",
    "description": "description",
    "notes": "notes",
    "host": "host",
    "jobProgram": "program",
    "commit": "git_commit",
    "jobRepo": "repo",
    "sweep": "sweep",
    "config": "config",
    "summaryMetrics": "summary",
    "state": "state",
}
JSON_FIELDS = {"config", "summaryMetrics"}
MAX_WAIT_MS = 10**12  # 30 years; an integer beyond the range of floats could not be divided
MAX_FILES_PER_REQUEST = 100_000


@dataclass(frozen=True)
class Operations:
    """The resolvers of one server."""

    store: Store
    settings: ServeSettings
    signer: UploadSigner
    clock: Callable[[], float]

    def resolvers(self, base_url: str) -> Mapping[str, Resolver]:
        """Top-level field -> function; `base_url` begins the upload URLs, without a trailing slash."""
        return {
            "serverInfo": self._server_info,
            "viewer": self._viewer,
            "model": self._project,
            "project": self._project,
            "upsertBucket": self._upsert_bucket,
            "createRunFiles": lambda arguments: self._create_run_files(arguments, base_url),
            "notifyScriptableRunAlert": self._alert,
            "rewindRun": self._rewind,
        }

    def project_of(self, call: Call) -> tuple[str, str] | None:
        """The (entity, project) that a call counts for, None when it names none."""
        given = call.arguments.get("input") if isinstance(call.arguments.get("input"), dict) else call.arguments
        assert isinstance(given, dict)  # noqa: S101 - for the type checker
        project = given.get("projectName") or given.get("modelName") or given.get("project")
        if project is None and call.field.name in {"model", "project"}:
            project = given.get("name")
        if not isinstance(project, str):
            return None
        entity = given.get("entityName") or given.get("entity") or self.settings.entity
        return str(entity), project

    def _server_info(self, _: Arguments) -> Any:
        features = {"FILESTREAM_GZIP": self.settings.gzip, "STRUCTURED_CONSOLE_LOGS": self.settings.structured_console}
        return {
            "features": [{"name": name, "isEnabled": on} for name, on in features.items()],
            "cliVersionInfo": None,
            "latestLocalVersionInfo": None,
        }

    def _viewer(self, _: Arguments) -> Any:
        entity = self.settings.entity
        return {
            "id": _node_id("User", entity),
            "name": entity,
            "username": entity,
            "email": None,
            "entity": entity,
            "admin": False,
            "flags": "{}",
            "teams": {"edges": [{"node": {"id": _node_id("Entity", entity), "name": entity}}]},
        }

    def _project(self, arguments: Arguments) -> Any:
        entity, project = self._entity_and_project(arguments.get("entityName"), arguments.get("name"))

        def bucket(inner: Arguments) -> Any:
            try:
                return self._bucket(self.store.run(self._path(entity, project, inner.get("name"))))
            except RunNotFoundError as error:
                if inner.get("missingOk") is True:
                    return None
                raise GraphQLError(str(error)) from None

        return {**_project_node(entity, project), "bucket": bucket, "run": bucket}

    def _upsert_bucket(self, arguments: Arguments) -> Any:
        given = _input(arguments)
        if isinstance(given.get("id"), str):
            try:
                path = RunPath.from_storage_id(given["id"])
            except ValueError as error:
                raise GraphQLError(str(error)) from None
        else:
            path = self._path(given.get("entityName"), given.get("modelName"), given.get("name"))
        values: dict[str, Any] = {}
        for name, column in UPSERT_FIELDS.items():
            value = given.get(name)
            if value is None:
                continue
            if not isinstance(value, str):
                raise GraphQLError(f"{name} is not a string")
            if name in JSON_FIELDS and not _is_json_object(name, value):
                raise GraphQLError(f"{name} is not the JSON text of an object")
            values[column] = value
        if values.get("state", "running") not in STATES:
            raise GraphQLError(f"state is not one of {', '.join(sorted(STATES))}")
        tags = given.get("tags")
        if tags is not None and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
            raise GraphQLError("tags is not a list of strings")
        run, inserted = self.store.upsert_run(path, RunFields(**values, tags=tags))
        return {"bucket": self._bucket(run), "inserted": inserted}

    def _create_run_files(self, arguments: Arguments, base_url: str) -> Any:
        given = _input(arguments)
        names = given.get("files")
        if not isinstance(names, list) or len(names) > MAX_FILES_PER_REQUEST:
            raise GraphQLError(f"files is not a list of at most {MAX_FILES_PER_REQUEST} names")
        run = self._run(given)
        now = self.clock()
        return {
            "runID": run.path.storage_id,
            "uploadHeaders": [],
            "files": [
                {
                    "name": name,
                    # A name that could leave the run's folder gets no URL; clients skip such a file.
                    "uploadUrl": base_url + self.signer.sign(run.key, name, now) if safe_name(name) else None,
                }
                for name in names
            ],
        }

    def _alert(self, arguments: Arguments) -> Any:
        given = _input(arguments)
        title, text, severity = given.get("title"), given.get("text"), given.get("severity") or "INFO"
        wait_ms = given.get("waitDuration") or 0
        if not isinstance(title, str) or not isinstance(text, str) or severity not in ("INFO", "WARN", "ERROR"):
            raise GraphQLError("an alert has a title, a text, and severity INFO, WARN or ERROR")
        if not isinstance(wait_ms, int | float) or not 0 <= wait_ms < math.inf:
            raise GraphQLError("waitDuration is not a number of milliseconds")
        run = self._run(given)
        self.store.add_alert(run.path, title, text, severity, min(wait_ms, MAX_WAIT_MS) / 1000)
        return {"success": True}

    def _rewind(self, arguments: Arguments) -> Any:
        given = _input(arguments)
        value = given.get("metricValue")
        if given.get("metricName") != "_step" or not isinstance(value, int | float):
            raise GraphQLError("a run can be rewound to a number of metric _step only")
        run = self._run(given)
        return {"rewoundRun": self._bucket(self.store.rewind(run.path, value))}

    def _run(self, given: Arguments) -> Run:
        try:
            return self.store.run(self._path(given.get("entityName"), given.get("projectName"), given.get("runName")))
        except RunNotFoundError as error:
            raise GraphQLError(str(error)) from None

    def _entity_and_project(self, entity: object, project: object) -> tuple[str, str]:
        return str(entity or self.settings.entity), str(project or "uncategorized")

    def _path(self, entity: object, project: object, name: object) -> RunPath:
        try:
            return RunPath(*self._entity_and_project(entity, project), str(name or ""))
        except ValueError as error:
            raise GraphQLError(str(error)) from None

    def _bucket(self, run: Run) -> Any:
        """A run as clients see it. Line counts are the number of the next free line, so that holes keep offsets true."""
        return {
            "id": run.path.storage_id,
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
            "sweepName": run.sweep,
            "state": run.state_at(self.clock(), self.settings.crash_after_s),
            "exitCode": run.exit_code,
            "createdAt": _iso(run.created_at),
            "updatedAt": _iso(run.updated_at),
            "heartbeatAt": _iso(run.heartbeat_at),
            "config": run.config,
            "summaryMetrics": run.summary,
            "wandbConfig": lambda arguments: _wandb_config(run.config, arguments.get("keys")),
            "historyLineCount": run.extent(HISTORY).length,
            "eventsLineCount": run.extent(EVENTS).length,
            "logLineCount": run.extent(CONSOLE).length,
            "historyTail": lambda _: self._tail(run, HISTORY),
            "eventsTail": lambda _: self._tail(run, EVENTS),
            "project": _project_node(run.path.entity, run.path.project),
        }

    def _tail(self, run: Run, stream: str) -> str:
        """JSON text of a list that holds the last line, itself a string of JSON text; empty list for an empty stream."""
        length = run.extent(stream).length
        return json.dumps([text for _, text in self.store.lines(run, stream, max(0, length - 1))], ensure_ascii=False)


def _project_node(entity: str, project: str) -> Any:
    owner = {"id": _node_id("Entity", entity), "name": entity}
    return {"id": _node_id("Project", f"{project}:{entity}"), "name": project, "entity": owner}


def _node_id(kind: str, name: str) -> str:
    return base64.b64encode(f"{kind}:v1:{name}".encode()).decode()


def _input(arguments: Arguments) -> Arguments:
    given = arguments.get("input")
    if not isinstance(given, dict):
        raise GraphQLError("input is missing")
    return given


def _is_json_object(name: str, text: str) -> bool:
    try:
        return isinstance(parse(text), dict)
    except ValueError as error:
        raise GraphQLError(f"{name} is not JSON: {error}") from None


def _wandb_config(config: str, keys: object) -> str:
    """The named keys of the config's `_wandb` value, as JSON text; clients ask so whether a run ever started."""
    entry = parse(config).get("_wandb")
    inner = entry.get("value") if isinstance(entry, dict) else None
    wanted = [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []
    return json.dumps({key: inner[key] for key in wanted if key in inner} if isinstance(inner, dict) else {})


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")
