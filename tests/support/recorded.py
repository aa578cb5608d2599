"""A server that knows nothing but recorded answers: it takes a request only in the shape that the protocol documents.

`fixtures/protocol/exchanges.jsonl` holds requests of another client and a server's answers to them, one per line. What is
asked here gets the recorded answer with the names of the run, files and hosts put in; everything that was never recorded
or documented is an `AssertionError`, which no sync takes for a server's fault.
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from runferry.backend.gql_syntax import Field, Operation, Variable, parse
from runferry.sync.transport import Answer, Request

BASE = "http://recorded.test"
STORAGE = "http://storage.recorded.test"
EXCHANGES = Path(__file__).parents[2] / "fixtures" / "protocol" / "exchanges.jsonl"

_UPSERT = {
    "id": "String", "name": "String", "project": "String", "entity": "String", "groupName": "String",
    "description": "String", "displayName": "String", "notes": "String", "commit": "String", "config": "JSONString",
    "host": "String", "debug": "Boolean", "program": "String", "repo": "String", "jobType": "String",
    "state": "String", "sweep": "String", "tags": "[String!]", "summaryMetrics": "JSONString",
}  # fmt: skip
DECLARED: dict[str, dict[str, str]] = {
    "UpsertBucket": _UPSERT,
    "RunResumeStatus": {"project": "String", "entity": "String", "name": "String!"},
    "CreateRunFiles": {"entity": "String!", "project": "String!", "run": "String!", "files": "[String!]!"},
    "ServerFeaturesQuery": {},
    "NotifyScriptableRunAlert": {
        "entityName": "String!", "projectName": "String!", "runName": "String!", "title": "String!",
        "text": "String!", "severity": "AlertSeverity = INFO", "waitDuration": "Duration",
    },
    "RewindRun": {
        "runName": "String!", "entity": "String", "project": "String", "metricName": "String!", "metricValue": "Float!",
    },
    "CreateArtifact": {"input": "CreateArtifactInput!"},
    "CreateArtifactManifest": {
        "artifactID": "ID!", "baseArtifactID": "ID", "name": "String!", "digest": "String!", "entityName": "String!",
        "projectName": "String!", "runName": "String!", "manifestType": "ArtifactManifestType!",
        "includeUpload": "Boolean!",
    },
    "CreateArtifactFiles": {"input": "CreateArtifactFilesInput!"},
    "CommitArtifact": {"artifactID": "ID!"},
    "UseArtifact": {"input": "UseArtifactInput!"},
    "ClientIDMapping": {"clientID": "ID!"},
}  # fmt: skip
"""Operation -> its variables and their types, as the server declares them."""

_INPUT_NAMES = {
    "UpsertBucket": {
        "project": "modelName", "entity": "entityName", "program": "jobProgram", "repo": "jobRepo",
    },
    "CreateRunFiles": {"entity": "entityName", "project": "projectName", "run": "runName"},
    "RewindRun": {"entity": "entityName", "project": "projectName"},
    "CreateArtifactManifest": {"manifestType": "type"},
}  # fmt: skip
"""Variable -> key of the input object, where they differ."""
_INPUTS = {
    "CreateArtifactInput!": {
        "entityName", "projectName", "runName", "artifactTypeName", "artifactCollectionName", "digest",
        "digestAlgorithm", "description", "aliases", "tags", "metadata", "ttlDurationSeconds", "historyStep",
        "enableDigestDeduplication", "distributedID", "clientID", "sequenceClientID", "storageRegion",
    },
    "CreateArtifactFilesInput!": {"artifactFiles", "storageLayout"},
    "UseArtifactInput!": {
        "artifactID", "entityName", "projectName", "runName", "artifactEntityName", "artifactProjectName",
    },
}  # fmt: skip
_ARTIFACT_FILE = {"artifactID", "artifactManifestID", "name", "md5", "mimetype", "uploadPartsInput"}
_STREAMS = {"wandb-history.jsonl", "wandb-events.jsonl", "wandb-summary.json", "output.log"}
_NOT_RECORDED = {
    "RewindRun": {"data": {"rewindRun": {"rewoundRun": None}}},  # filled from UpsertBucket's bucket
    "UseArtifact": {"data": {"useArtifact": {"artifact": {"id": "QXJ0aWZhY3Q6MQ=="}}}},
    "ClientIDMapping": {"data": {"clientIDMapping": {"serverID": "QXJ0aWZhY3Q6MQ=="}}},
}


class RecordedServer:
    """A `Transport`. `asked` counts what it was asked for."""

    def __init__(self, features: tuple[str, ...] = ()) -> None:
        self._answers: dict[str, Any] = {}
        for line in EXCHANGES.read_text("utf-8").splitlines():
            exchange = json.loads(line)
            self._answers.setdefault(exchange["operation"], exchange["response"])
        self._answers |= copy.deepcopy(_NOT_RECORDED)
        bucket = self._answers["UpsertBucket"]["data"]["upsertBucket"]["bucket"]
        self._answers["RewindRun"]["data"]["rewindRun"]["rewoundRun"] = bucket
        self._features = features
        self._guard = threading.Lock()
        self.asked: list[str] = []
        self.variables: list[tuple[str, Any]] = []
        self.puts: dict[str, bytes] = {}
        self._headers_of: dict[str, dict[str, str]] = {}

    def send(self, request: Request) -> Answer:
        """Answer a request of a documented shape."""
        with self._guard:
            path = unquote(urlsplit(request.url).path)
            if request.method == "PUT":
                return self._put(request, path)
            assert request.method == "POST"
            assert request.url.startswith(BASE)
            assert request.headers["Authorization"].startswith("Basic ")
            assert request.headers["Content-Type"] == "application/json"
            assert "Content-Encoding" not in request.headers  # no server of this kind says that it takes packed bodies
            body = json.loads(request.body)
            if path == "/graphql":
                return self._graphql(body)
            assert re.fullmatch(r"/files/[^/]+/[^/]+/[^/]+/file_stream", path)
            return self._stream(body)

    # -- GraphQL -----------------------------------------------------------------------------------------------------

    def _graphql(self, body: dict[str, Any]) -> Answer:
        assert set(body) == {"query", "variables", "operationName"}
        name, variables = body["operationName"], body["variables"]
        assert name in DECLARED, f"{name} is no operation of the protocol"
        self.asked.append(name)
        self.variables.append((name, variables))
        declared = dict(re.findall(r"\$(\w+):\s*([\[\]\w!]+(?:\s*=\s*\w+)?)", body["query"].split("{", 1)[0]))
        assert declared == DECLARED[name]
        assert set(variables or {}) == set(declared), "all declared variables are sent, and no others"
        for variable, kind in declared.items():
            _check(kind, variables[variable], f"{name}.{variable}")
        operation = parse(body["query"]).operation(name)
        _check_use(operation, name, declared)
        answer = self._answer(name, variables)
        for field in _fields(operation.selections):
            _check_selection(field, answer["data"], variables or {})
        return Answer(200, {}, json.dumps(answer).encode())

    def _answer(self, name: str, variables: Any) -> Any:
        """The recorded answer, about what was asked."""
        answer = copy.deepcopy(self._answers[name])
        data = answer["data"]
        if name in ("UpsertBucket", "RewindRun"):
            bucket = data["upsertBucket"]["bucket"] if name == "UpsertBucket" else data["rewindRun"]["rewoundRun"]
            bucket["name"] = variables.get("name", variables.get("runName"))
            bucket["project"]["name"] = variables["project"]
        elif name == "RunResumeStatus":
            data["model"]["bucket"] = None
        elif name == "ServerFeaturesQuery":
            data["serverInfo"]["features"] = [{"name": name, "isEnabled": True} for name in self._features]
        elif name == "CreateRunFiles":
            template = data["createRunFiles"]["files"][0]
            data["createRunFiles"]["files"] = [
                {**template, "name": file, "uploadUrl": f"{STORAGE}/run/{number}?sig=abc"}
                for number, file in enumerate(variables["files"])
            ]
            headers = dict(line.split(": ", 1) for line in data["createRunFiles"]["uploadHeaders"])
            self._headers_of.update((f"/run/{number}", headers) for number in range(len(variables["files"])))
        elif name == "CreateArtifactManifest":
            manifest = data["createArtifactManifest"]["artifactManifest"]
            if variables["includeUpload"]:
                headers = ["Content-Md5: " + variables["digest"], "Content-Type: application/json"]
                manifest["file"] = {"id": "x", "uploadUrl": f"{STORAGE}/manifest", "uploadHeaders": headers}
                self._headers_of["/manifest"] = dict(line.split(": ", 1) for line in headers)
        elif name == "CreateArtifactFiles":
            files = data["createArtifactFiles"]["files"]
            template = files["edges"][0]
            files["edges"] = []
            for number, asked in enumerate(variables["input"]["artifactFiles"]):
                assert set(asked) == _ARTIFACT_FILE
                edge = copy.deepcopy(template)
                url = f"{STORAGE}/artifact/{number}"
                edge["node"] |= {"uploadUrl": url, "uploadHeaders": ["Content-MD5: " + asked["md5"]]}
                files["edges"].append(edge)
                self._headers_of[f"/artifact/{number}"] = {"Content-MD5": asked["md5"]}
        return answer

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _stream(self, body: dict[str, Any]) -> Answer:
        self.asked.append("file_stream")
        self.variables.append(("file_stream", body))
        assert set(body) <= {"files", "uploaded", "preempting", "complete", "exitcode"}
        assert body, "an empty body is a heartbeat, and nobody asked for one"
        for name, part in body.get("files", {}).items():
            assert name in _STREAMS
            assert set(part) == {"offset", "content"}
            assert type(part["offset"]) is int
            assert part["offset"] >= 0
            assert part["content"]
            assert all(type(line) is str and "\n" not in line for line in part["content"])
        assert body.get("preempting", True) is True
        assert body.get("complete", True) is True
        assert ("exitcode" in body) == ("complete" in body)
        return Answer(200, {}, self._answers["file_stream"].encode())

    def _put(self, request: Request, path: str) -> Answer:
        self.asked.append("PUT")
        assert request.url.startswith(STORAGE)
        assert "Authorization" not in request.headers
        if request.length:
            expected = self._headers_of[path]
            assert expected.items() <= dict(request.headers).items()
        self.puts[path] = request.body if isinstance(request.body, bytes) else _read(request.body())
        return Answer(200, {}, b"")


def _read(file: BinaryIO) -> bytes:
    with file:
        return file.read()


def _fields(selections: list[Any]) -> Iterator[Field]:
    for selection in selections:
        assert isinstance(selection, Field), "fragments were never recorded"
        yield selection


def _check(kind: str, value: Any, what: str) -> None:
    """Whether a value is of the type that its variable declares."""
    kind = kind.split(" =", maxsplit=1)[0]
    if value is None:
        assert not kind.endswith("!"), f"{what} is null"
        return
    base = kind.removesuffix("!")
    if kind in _INPUTS:
        unknown = set(value) - _INPUTS[kind]
        assert not unknown, f"{what}: {unknown}"
    elif base.startswith("["):
        assert isinstance(value, list), what
        for item in value:
            _check(base[1:-1], item, what)
    elif base == "JSONString":
        assert isinstance(json.loads(value), dict), what
    else:
        python = {"Boolean": bool, "Float": (int, float), "Duration": int}.get(base, str)
        assert isinstance(value, python), f"{what}: {value!r} is no {base}"
    if base == "AlertSeverity":
        assert value in ("INFO", "WARN", "ERROR"), what
    if base == "ArtifactManifestType":
        assert value in ("FULL", "INCREMENTAL", "PATCH"), what


def _check_use(operation: Operation, name: str, declared: dict[str, str]) -> None:
    """Whether each variable is given to the argument or input key that is documented for it."""
    used: dict[str, str] = {}

    def walk(value: Any, key: str) -> None:
        if isinstance(value, Variable):
            used[value.name] = key
        elif isinstance(value, dict):
            for inner, item in value.items():
                walk(item, inner)

    def visit(fields: Iterator[Field]) -> None:
        for field in fields:
            walk(field.arguments, field.name)
            walk(field.directives, field.name)
            visit(_fields(field.selections))

    visit(_fields(operation.selections))
    assert set(used) == set(declared), f"{name}: declared and never used"
    if name != "RunResumeStatus":
        renamed = _INPUT_NAMES.get(name, {})
        wanted = {variable: renamed.get(variable, variable) for variable in declared} | {"includeUpload": "if"}
        assert used == {variable: wanted[variable] for variable in declared}


def _check_selection(field: Field, node: Any, variables: dict[str, Any]) -> None:
    """Whether all that is selected is there in the recorded answer."""
    if field.directives and variables.get("includeUpload") is False:
        return
    assert field.name in node, f"{field.name} was never answered"
    value = node[field.name]
    for item in value if isinstance(value, list) else [value]:
        if item is not None:
            for inner in _fields(field.selections):
                _check_selection(inner, item, variables)
