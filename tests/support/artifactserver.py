"""A backend that takes artifacts, as much of one as the peer's sync asks for: what it was told, and the bytes it got."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote


class ArtifactServer(ThreadingHTTPServer):
    """Answers on a free port of this machine."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.created: list[dict[str, Any]] = []
        """The input of each CreateArtifact; the artifact's id is its number in this list."""
        self.committed: list[int] = []
        self.used: list[int] = []
        """Artifacts that a run named as its inputs."""
        self.contents: dict[tuple[int, str], bytes] = {}
        """(artifact, path) -> what was uploaded."""
        self.manifests: dict[int, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        """Files of runs by name."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave without a word are no error."""

    def put(self, path: str, data: bytes) -> None:
        """An upload."""
        kind, _, rest = path.lstrip("/").partition("/")
        if kind == "files":
            self.files[unquote(rest)] = data
            return
        number, _, name = rest.partition("/")
        if kind == "content":
            self.contents[int(number), unquote(name)] = data
        else:
            self.manifests[int(number)] = json.loads(data)

    def answer(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        """The data of a GraphQL operation."""
        return getattr(self, f"_on_{operation.lower()}", lambda _variables: {})(variables)

    def _on_upsertbucket(self, variables: dict[str, Any]) -> Any:
        project = {"name": "p", "entity": {"name": "e"}}
        bucket = {"id": "run", "name": variables["name"], "displayName": "d", "config": "{}", "project": project}
        return {"upsertBucket": {"bucket": bucket | {"historyLineCount": 0}, "inserted": True}}

    def _on_serverfeaturesquery(self, _: Any) -> Any:
        return {"serverInfo": {"features": []}}

    def _on_createrunfiles(self, variables: dict[str, Any]) -> Any:
        files = [{"name": name, "uploadUrl": f"{self.url}/files/{quote(name)}"} for name in variables["files"]]
        return {"createRunFiles": {"runID": "run", "uploadHeaders": [], "files": files}}

    def _on_createartifact(self, variables: dict[str, Any]) -> Any:
        self.created.append(variables["input"])
        artifact = {"id": str(len(self.created) - 1), "state": "PENDING", "artifactSequence": {"latestArtifact": None}}
        return {"createArtifact": {"artifact": artifact}}

    def _on_createartifactmanifest(self, variables: dict[str, Any]) -> Any:
        return {"createArtifactManifest": self._manifest(variables["artifactID"], variables)}

    def _on_updateartifactmanifest(self, variables: dict[str, Any]) -> Any:
        return {"updateArtifactManifest": self._manifest(variables["artifactManifestID"], variables)}

    def _manifest(self, number: str, variables: dict[str, Any]) -> Any:
        """A manifest, whose id is its artifact's."""
        upload = {"uploadUrl": f"{self.url}/manifest/{number}", "uploadHeaders": []}
        return {
            "artifactManifest": {"id": number, "file": {"id": "file"} | (upload if variables["includeUpload"] else {})}
        }

    def _on_createartifactfiles(self, variables: dict[str, Any]) -> Any:
        edges = []
        for file in variables["input"]["artifactFiles"]:
            name, artifact = file["name"], file["artifactID"]
            node = {"id": "f", "name": name, "displayName": name, "storagePath": name, "uploadHeaders": []}
            node |= {"uploadUrl": f"{self.url}/content/{artifact}/{quote(name)}", "artifact": {"id": artifact}}
            edges.append({"node": node | {"uploadMultipartUrls": None}})
        return {"createArtifactFiles": {"files": {"edges": edges}}}

    def _on_commitartifact(self, variables: dict[str, Any]) -> Any:
        self.committed.append(int(variables["artifactID"]))
        return {"commitArtifact": {"artifact": {"id": variables["artifactID"], "digest": ""}}}

    def _on_useartifact(self, variables: dict[str, Any]) -> Any:
        self.used.append(int(variables["input"]["artifactID"]))
        return {"useArtifact": {"artifact": {"id": variables["input"]["artifactID"]}}}

    def _on_clientidmapping(self, variables: dict[str, Any]) -> Any:
        return {"clientIDMapping": {"serverID": "QQ==" if variables["clientID"] else ""}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ArtifactServer

    def _reply(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_PUT(self) -> None:
        self.server.put(self.path, self._body())
        self._reply({})

    def do_POST(self) -> None:
        asked = json.loads(self._body() or b"{}")
        if self.path != "/graphql":
            self._reply({"exitcode": None, "limits": {}})
            return
        operation = asked.get("operationName") or asked["query"].split("(")[0].split()[-1]
        self._reply({"data": self.server.answer(operation, asked.get("variables") or {})})

    def log_message(self, *_arguments: Any) -> None:
        """Quiet."""


@contextlib.contextmanager
def serving() -> Iterator[ArtifactServer]:
    """A server that answers until the block ends."""
    server = ArtifactServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
