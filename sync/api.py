"""The backend as a handful of calls: what is asked, and what of the answer is believed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, urljoin, urlsplit

import orjson

from . import graphql
from .answers import ResumeStatus, count_of, dig, is_name, json_or_none, read_status
from .channel import Channel
from .credentials import Credentials, origin_of
from .errors import AuthError, Permanent, Retryable, TooSlow
from .lane import REQUEST, Cost
from .network import Network, is_loopback
from .pacer import Pacer, Pacers, StreamLane, StreamLanes
from .transport import Answer, Request
from .uplink import Uplink, pack

Result = TypeVar("Result")

_LONGEST_REASON = 500  # characters of a server's own words
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection", "expect", "host", "te", "upgrade"})


@dataclass(frozen=True)
class RunFields:
    """What `UpsertBucket` says of a run. None leaves a field as the server has it."""

    run_id: str
    project: str | None
    entity: str | None
    config: str | None
    """JSON text, each key wrapped as `{"value": ..}`."""
    display_name: str | None = None
    notes: str | None = None
    group: str | None = None
    job_type: str | None = None
    tags: tuple[str, ...] | None = None
    host: str | None = None
    program: str | None = None
    commit: str | None = None
    repo: str | None = None
    sweep: str | None = None


@dataclass(frozen=True)
class RemoteRun:
    """The run at the server, as its answer names it."""

    storage_id: str
    entity: str
    project: str
    run_id: str
    display_name: str = ""
    history_lines: int = 0
    inserted: bool = False

    def __str__(self) -> str:
        return f"{self.entity}/{self.project}/{self.run_id}"


@dataclass(frozen=True)
class UploadTargets:
    """Where the bytes of files go; a None URL means that the server wants no upload."""

    urls: Mapping[str, str | None]
    headers: Mapping[str, str] = field(default_factory=dict)


class Api:
    """The calls of one server. Holds the key, the channel and the lanes; any thread may call it."""

    def __init__(
        self,
        base_url: str,
        key: Credentials,
        channel: Channel,
        pacers: Pacers,
        user_headers: Mapping[str, str] | None = None,
        *,
        network: Network | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._host = urlsplit(base_url).netloc.rpartition("@")[2]
        self._key = key
        self._channel = channel
        self._pacers = pacers
        self._user_headers = dict(user_headers or {})
        self._extra_headers = dict(network.headers) if network is not None else {}
        is_local = is_loopback(base_url)
        self.uplink = Uplink(is_local=is_local)
        self._streams = StreamLanes(channel.clock, is_local=is_local)
        self._packs: bool | None = None

    def refused_key(self, error: AuthError) -> str:
        """That the server does not know the key, and where the key is from: one sentence."""
        return f"the server does not accept the key from {self._key.source} ({error})"

    def features(self, project: str) -> frozenset[str]:
        """Names of the features that the server has switched on; a server that does not know the query has none."""
        try:
            data = self.execute("ServerFeaturesQuery", graphql.SERVER_FEATURES, None, project)
        except Permanent as error:
            if error.status in (401, 403):
                raise
            return frozenset()
        features = dig(data, "serverInfo", "features")
        return frozenset(
            item["name"]
            for item in (features if isinstance(features, list) else [])
            if isinstance(item, dict) and isinstance(item.get("name"), str) and item.get("isEnabled") is True
        )

    def upsert(self, run: RunFields, storage_id: str | None = None) -> RemoteRun:
        """Create the run, or change what it says of itself."""
        variables = {
            "id": storage_id,
            "name": run.run_id,
            "project": run.project,
            "entity": run.entity,
            "groupName": run.group,
            "description": None,
            "displayName": run.display_name,
            "notes": run.notes,
            "commit": run.commit,
            "config": run.config,
            "host": run.host,
            "debug": None,
            "program": run.program,
            "repo": run.repo,
            "jobType": run.job_type,
            "state": None,
            "sweep": run.sweep,
            "tags": list(run.tags) if run.tags is not None else None,
            "summaryMetrics": None,
        }
        cost = Cost(creates_run=storage_id is None)
        data = self.execute(
            "UpsertBucket", graphql.UPSERT_BUCKET, variables, run.project or "", retry_conflict=True, cost=cost
        )
        bucket = dig(data, "upsertBucket", "bucket")
        entity = dig(bucket, "project", "entity", "name") or run.entity
        project = dig(bucket, "project", "name") or run.project
        run_id = dig(bucket, "name") or run.run_id
        if not (isinstance(bucket, dict) and is_name(entity) and is_name(project) and is_name(run_id)):
            raise Permanent("UpsertBucket: the answer names no run, entity or project", status=200)
        return RemoteRun(
            storage_id=bucket["id"] if is_name(bucket.get("id")) else "",
            entity=entity,
            project=project,
            run_id=run_id,
            display_name=str(bucket.get("displayName") or ""),
            history_lines=count_of(bucket.get("historyLineCount")) or 0,
            inserted=dig(data, "upsertBucket", "inserted") is True,
        )

    def resume_status(self, entity: str | None, project: str | None, run_id: str) -> ResumeStatus | None:
        """What the server holds of a run; None where it has no such run.

        Raises:
            Refused: the answer does not say it: whatever was done by it could write over what is there.
            SyncError: there is no answer.
        """
        variables = {"project": project, "entity": entity, "name": run_id}
        data = self.execute("RunResumeStatus", graphql.RUN_RESUME_STATUS, variables, project or "")
        model = data.get("model", "") if isinstance(data, dict) else ""
        bucket = model.get("bucket", "") if isinstance(model, dict) else model
        return None if bucket is None else read_status(bucket, run_id)

    def rewind(self, entity: str | None, project: str | None, run_id: str, step: int) -> int:
        """Take back every row behind the last one of step `step` or below; the number of rows that are left."""
        variables = {
            "runName": run_id,
            "entity": entity,
            "project": project,
            "metricName": "_step",
            "metricValue": float(step),
        }
        data = self.execute("RewindRun", graphql.REWIND_RUN, variables, project or "")
        left = count_of(dig(data, "rewindRun", "rewoundRun", "historyLineCount"))
        if left is None:
            raise Permanent("RewindRun: the answer does not say how many rows are left", status=200)
        return left

    def stream(self, run: RemoteRun, body: bytes, *, divisible: bool = False) -> None:
        """Post one `file_stream` body. Returns when the server has answered that it took it, with a whole answer.

        Raises:
            TooSlow: it did not get through in its time; only for a body that is `divisible`.
            SyncError: it did not get through, or was refused.
        """
        parts = (run.entity, run.project, run.run_id)
        if not all(parts) or {".", ".."} & set(parts):
            raise Permanent(f"{run} is not a place at a server", status=200)
        path = "/".join(quote(part, safe="") for part in parts)
        url = f"{self.base_url}/files/{path}/file_stream"
        lane, stream = self._lane(run.project), self._streams.of(parts)

        def post(sent: bytes, headers: Mapping[str, str]) -> None:
            def read(answer: Answer) -> None:
                _acknowledgement(answer)
                self.uplink.sent(len(sent), answer.sent_in, len(body))

            try:
                self._post(
                    url,
                    sent,
                    lane,
                    what=f"rows of {run.run_id}",
                    read=read,
                    headers=headers,
                    cost=Cost(body_bytes=len(sent)),
                    stream=stream,
                    divisible=divisible,
                )
            except TooSlow:
                self.uplink.late(len(sent))
                raise

        if self.uplink.should_pack(len(body)) and self._takes_packed(run.project):
            try:
                return post(pack(body), {"Content-Encoding": "gzip"})
            except Permanent as error:
                if error.status not in (400, 415):
                    raise
                self._packs = False  # whatever it said: it shall have the body as it is
        return post(body, {})

    def _takes_packed(self, project: str) -> bool:
        if self._packs is None:
            self._packs = "FILESTREAM_GZIP" in self.features(project)
        return self._packs

    def upload_targets(self, run: RemoteRun, names: list[str]) -> UploadTargets:
        """Ask where to put the files `names`. A name that the answer leaves out has no target."""
        variables = {"entity": run.entity, "project": run.project, "run": run.run_id, "files": names}
        data = self.execute("CreateRunFiles", graphql.CREATE_RUN_FILES, variables, run.project)
        files, asked = dig(data, "createRunFiles", "files"), frozenset(names)
        urls: dict[str, str | None] = {}
        for item in files if isinstance(files, list) else []:
            name = dig(item, "name")
            if isinstance(name, str) and name in asked and is_place(item):
                urls[name] = self.absolute(item["uploadUrl"]) if item["uploadUrl"] is not None else None
        return UploadTargets(urls, headers_of(dig(data, "createRunFiles", "uploadHeaders")))

    def notify(self, run: RemoteRun, title: str, text: str, severity: str, wait_ms: int) -> None:
        """Tell the run's people something; the server leaves out what it told them less than `wait_ms` before."""
        variables = {
            "entityName": run.entity,
            "projectName": run.project,
            "runName": run.run_id,
            "title": title,
            "text": text,
            "severity": severity,
            "waitDuration": wait_ms,
        }
        data = self.execute("NotifyScriptableRunAlert", graphql.NOTIFY_ALERT, variables, run.project)
        if dig(data, "notifyScriptableRunAlert", "success") is not True:
            raise Permanent("NotifyScriptableRunAlert: no success", status=200)

    def put(
        self, name: str, url: str, headers: Mapping[str, str], open_file: Callable[[], BinaryIO], size: int
    ) -> Mapping[str, str]:
        """Put the bytes of the file `name` to its upload URL, which never sees the key; the headers of the answer."""
        try:
            origin_of(url)
        except ValueError:
            raise Permanent(f"file {name}: the upload URL is not http(s)", status=200) from None
        request = Request("PUT", url, headers, open_file, size)
        lane = self._pacers.of(urlsplit(url).netloc.rpartition("@")[2], "")
        return self._channel.call(request, lane, what=f"file {name}", read=lambda answer: answer.headers, upload=True)

    def absolute(self, url: str) -> str:
        """`url` relative to the server; one that is no URL is left as it is, for `put` to refuse."""
        try:
            return urljoin(self.base_url + "/", url)
        except ValueError:
            return url

    def execute(
        self,
        operation: str,
        query: str,
        variables: object,
        project: str,
        *,
        retry_conflict: bool = False,
        cost: Cost = REQUEST,
    ) -> Any:
        """The `data` of a GraphQL operation, in the lane of `project`."""
        body = _encoded({"query": query, "variables": variables, "operationName": operation})
        return self._post(
            f"{self.base_url}/graphql",
            body,
            self._lane(project),
            what=operation,
            read=lambda answer: _graphql_data(answer, operation),
            retry_conflict=retry_conflict,
            headers=self._user_headers,
            cost=cost,
        )

    def _post(
        self,
        url: str,
        body: bytes,
        lane: Pacer,
        *,
        what: str,
        read: Callable[[Answer], Result],
        retry_conflict: bool = False,
        headers: Mapping[str, str] | None = None,
        cost: Cost = REQUEST,
        stream: StreamLane | None = None,
        divisible: bool = False,
    ) -> Result:
        """Post JSON, signed. Where an access token was refused before its time, once more with another one."""

        def send(authorization: str | None) -> Result:
            signed = {"Content-Type": "application/json", **self._extra_headers, **(headers or {})}
            if authorization is not None:
                signed["Authorization"] = authorization
            request = Request("POST", url, signed, body)
            return self._channel.call(
                request,
                lane,
                what=what,
                read=read,
                retry_conflict=retry_conflict,
                cost=cost,
                stream=stream,
                divisible=divisible,
            )

        authorization = self._key.header_for(url, self._exchange)
        try:
            return send(authorization)
        except AuthError as error:
            if error.status != 401 or not self._key.renew(authorization):
                raise
        return send(self._key.header_for(url, self._exchange))

    def _exchange(self, form: bytes) -> Any:
        """What the server gives for an identity token."""
        headers = {"Content-Type": "application/x-www-form-urlencoded", **self._extra_headers}
        request = Request("POST", f"{self.base_url}/oidc/token", headers, form)
        return self._channel.call(
            request,
            self._lane(""),
            what="the exchange of the identity token",
            read=lambda answer: _object(answer, "the exchange of the identity token"),
        )

    def _lane(self, project: str) -> Pacer:
        return self._pacers.of(self._host, project)


def is_place(value: object) -> bool:
    """Whether an answer says where bytes go: a URL, or null where the server has them. Anything else says nothing."""
    url = value.get("uploadUrl", "") if isinstance(value, dict) else ""
    return url is None or (isinstance(url, str) and url != "")


def headers_of(lines: object) -> dict[str, str]:
    """Upload headers as servers give them: `Name: value` texts. Those that frame a request are its client's to say."""
    headers = {}
    for line in lines if isinstance(lines, list) else []:
        name, colon, value = str(line).partition(":")
        if colon and name.strip().lower() not in _FRAMING:
            headers[name.strip()] = value.strip()
    return headers


def _graphql_data(answer: Answer, operation: str) -> Any:
    """The `data` of an answer. An answer that is no JSON object was cut on its way; an `errors` list is the last word."""
    document = _object(answer, operation)
    errors = document.get("errors")
    if errors:
        messages = [str(dig(error, "message") or error) for error in (errors if isinstance(errors, list) else [errors])]
        raise Permanent(f"{operation}: {'; '.join(messages)[:_LONGEST_REASON]}", status=answer.status)
    return document.get("data")


def _object(answer: Answer, what: str) -> dict[str, Any]:
    """The JSON object of an answer; anything else was cut on its way."""
    document = json_or_none(answer.body)
    if not isinstance(document, dict):
        raise Retryable(f"{what}: the answer is not a JSON object", status=answer.status)
    return document


def _acknowledgement(answer: Answer) -> None:
    """A body that cannot be read may belong to a request that was never applied: lines are re-sent to the same place."""
    if not isinstance(json_or_none(answer.body), dict):
        raise Retryable("the server's answer was cut off", status=answer.status)


def _encoded(document: Any) -> bytes:
    """JSON; an unpaired surrogate, which a server's own words may hold, stays the escape that it was."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return json.dumps(document).encode()
