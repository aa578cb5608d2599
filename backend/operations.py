"""The GraphQL operations: what each field of a request does to the store, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .artifact_operations import ArtifactOperations, input_of
from .artifacts import Artifacts
from .contents import Contents
from .filestream import safe_name
from .gql_execute import Call, Resolver
from .gql_syntax import GraphQLError
from .history import Histories
from .jsontext import parse
from .keys import UploadSigner
from .limits import Quotas
from .nodes import Nodes, run_path, user
from .paging import connection
from .runs import STATES, Run, RunFields, RunPath
from .settings import ServeSettings
from .storage import Addresses
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
    artifacts: Artifacts
    contents: Contents
    histories: Histories
    quotas: Quotas
    settings: ServeSettings
    signer: UploadSigner
    clock: Callable[[], float]

    def resolvers(self, base_url: str) -> Mapping[str, Resolver]:
        """Top-level field -> function; `base_url` begins the upload URLs, without a trailing slash."""
        addresses = Addresses(self.signer, self.clock, base_url)
        nodes = Nodes(self.store, self.artifacts, self.histories, self.settings, addresses, self.clock)
        artifacts = ArtifactOperations(self.artifacts, self.contents, nodes.artifacts, addresses, self.settings.entity)
        return {
            "serverInfo": self._server_info,
            "viewer": self._viewer,
            "model": lambda given: self._project(given, nodes),
            "project": lambda given: self._project(given, nodes),
            "models": lambda given: self._projects(given, nodes),
            "upsertBucket": lambda given: self._upsert_bucket(given, nodes),
            "createRunFiles": lambda given: self._create_run_files(given, addresses),
            "markRunFilesUploaded": self._mark_uploaded,
            "notifyScriptableRunAlert": self._alert,
            "deleteRun": self._delete_run,
            "rewindRun": lambda given: self._rewind(given, nodes),
            **artifacts.resolvers(),
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
        return user(self.settings.entity)

    def _project(self, arguments: Arguments, nodes: Nodes) -> Any:
        return nodes.project(*self._entity_and_project(arguments.get("entityName"), arguments.get("name")))

    def _upsert_bucket(self, arguments: Arguments, nodes: Nodes) -> Any:
        given = input_of(arguments)
        if isinstance(given.get("id"), str):
            path = _path_of_id(given["id"])
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
        if self.settings.rates.run_creations is not None and not self.store.has_run(path):
            self.quotas.creation((path.entity, path.project))
        fields = RunFields(**values, tags=tags)
        run, inserted = self.store.upsert_run(path, fields, reuse_deleted=not self.settings.refuse_deleted)
        return {"bucket": nodes.run(run), "inserted": inserted}

    def _create_run_files(self, arguments: Arguments, addresses: Addresses) -> Any:
        given = input_of(arguments)
        names = given.get("files")
        if not isinstance(names, list) or len(names) > MAX_FILES_PER_REQUEST:
            raise GraphQLError(f"files is not a list of at most {MAX_FILES_PER_REQUEST} names")
        run = self._run(given)
        return {
            "runID": run.path.storage_id,
            "uploadHeaders": [],
            "files": [
                {
                    "name": name,
                    # A name that could leave the run's folder gets no URL; clients skip such a file.
                    "uploadUrl": addresses.run_file(run.key, name) if safe_name(name) else None,
                }
                for name in names
            ],
        }

    def _mark_uploaded(self, arguments: Arguments) -> Any:
        given = input_of(arguments)
        names = given.get("files")
        if not isinstance(names, list) or not all(safe_name(name) for name in names):
            raise GraphQLError("files is not a list of file names")
        self.store.mark_uploaded(self._run(given).path, names)
        return {"success": True}

    def _alert(self, arguments: Arguments) -> Any:
        given = input_of(arguments)
        title, text, severity = given.get("title"), given.get("text"), given.get("severity") or "INFO"
        wait_ms = given.get("waitDuration") or 0
        if not isinstance(title, str) or not isinstance(text, str) or severity not in ("INFO", "WARN", "ERROR"):
            raise GraphQLError("an alert has a title, a text, and severity INFO, WARN or ERROR")
        if not isinstance(wait_ms, int | float) or not 0 <= wait_ms < math.inf:
            raise GraphQLError("waitDuration is not a number of milliseconds")
        run = self._run(given)
        self.store.add_alert(run.path, title, text, severity, min(wait_ms, MAX_WAIT_MS) / 1000)
        return {"success": True}

    def _rewind(self, arguments: Arguments, nodes: Nodes) -> Any:
        given = input_of(arguments)
        value = given.get("metricValue")
        if given.get("metricName") != "_step" or not isinstance(value, int | float):
            raise GraphQLError("a run can be rewound to a number of metric _step only")
        run = self._run(given)
        return {"rewoundRun": nodes.run(self.store.rewind(run.path, value))}

    def _delete_run(self, arguments: Arguments) -> Any:
        given = input_of(arguments)
        if given.get("deleteArtifacts") is True:
            raise GraphQLError("not supported by this backend: deleteRun with deleteArtifacts")
        try:
            self.store.delete_run(_path_of_id(str(given.get("id"))))
        except RunNotFoundError as error:
            raise GraphQLError(str(error)) from None
        return {"clientMutationId": given.get("clientMutationId")}

    def _projects(self, arguments: Arguments, nodes: Nodes) -> Any:
        entity = str(arguments.get("entityName") or self.settings.entity)
        names = sorted({run.path.project for run in self.store.runs() if run.path.entity == entity})
        return connection(names, lambda name: nodes.project(entity, name), arguments)

    def _run(self, given: Arguments) -> Run:
        try:
            return self.store.run(self._path(given.get("entityName"), given.get("projectName"), given.get("runName")))
        except RunNotFoundError as error:
            raise GraphQLError(str(error)) from None

    def _entity_and_project(self, entity: object, project: object) -> tuple[str, str]:
        return str(entity or self.settings.entity), str(project or "uncategorized")

    def _path(self, entity: object, project: object, name: object) -> RunPath:
        return run_path(*self._entity_and_project(entity, project), name)


def _path_of_id(storage_id: str) -> RunPath:
    try:
        return RunPath.from_storage_id(storage_id)
    except ValueError as error:
        raise GraphQLError(str(error)) from None


def _is_json_object(name: str, text: str) -> bool:
    try:
        return isinstance(parse(text), dict)
    except ValueError as error:
        raise GraphQLError(f"{name} is not JSON: {error}") from None
