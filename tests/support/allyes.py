"""A server that says yes to all that a version of `wandb` asks, so that it goes through a run as if it were online.

Offline, versions before 0.31 leave no summary and no config of their own; online they do, and both come from the process
itself: nothing that is answered here gets into them.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PROJECT = {"id": "p", "name": "old", "entity": {"id": "e", "name": "team"}}
_FIELDS = re.compile(r"^[^{]*{\s*(\w+)")  # the first field that a query selects


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer({})

    def do_PUT(self) -> None:
        self._body()
        self._answer({})

    def do_POST(self) -> None:
        body = self._body()
        if not self.path.endswith("/graphql"):
            self._answer({"exitcode": None, "limits": {}})
            return
        asked = json.loads(body)
        field = _FIELDS.match(asked["query"])
        self._answer({"data": self._data(field[1] if field else "", asked)})

    def _data(self, field: str, asked: dict[str, Any]) -> dict[str, Any]:
        query, variables = asked["query"], asked.get("variables") or {}
        if "__type" in query or "__schema" in query:  # what the server can do: nothing beyond the first version
            return {alias: {"fields": [], "inputFields": []} for alias in re.findall(r"(\w+)\s*:\s*__type", query)}
        if field == "viewer":
            flags = json.dumps({"code_saving_enabled": False})
            viewer = {"id": "u", "entity": "team", "username": "user", "email": "", "flags": flags}
            return {"viewer": viewer | {"teams": {"edges": []}, "apiKeys": {"edges": []}}} | self._server(query)
        if field == "serverInfo":
            return self._server(query)
        if field == "upsertBucket":
            name = variables.get("name") or variables.get("id") or "run"
            bucket = {
                "id": "b",
                "name": name,
                "displayName": name,
                "description": "",
                "config": "{}",
                "sweepName": None,
            }
            return {field: {"bucket": bucket | {"project": _PROJECT, "historyLineCount": 0}, "inserted": True}}
        if field in {"model", "project"}:
            files = variables.get("files") or []
            urls = [{"node": {"name": name, "url": self._url(name), "updatedAt": None}} for name in files]
            return {
                field: _PROJECT
                | {"bucket": {"id": "b", "files": {"uploadHeaders": [], "edges": urls}} if files else None}
            }
        if field == "createRunFiles":
            files = variables.get("files") or []
            urls = [{"name": name, "uploadUrl": self._url(name)} for name in files]
            return {field: {"runID": "b", "uploadHeaders": [], "files": urls}}
        if field == "createArtifact":
            newest = {"id": "a", "versionIndex": 0}
            sequence = {"id": "s", "name": "any", "latestArtifact": newest}
            artifact = {"id": "a", "digest": variables.get("digest"), "state": "COMMITTED", "aliases": []}
            return {field: {"artifact": artifact | {"artifactSequence": sequence}}}
        return {field: {"success": True}}

    def _server(self, query: str) -> dict[str, Any]:
        versions = {"max_cli_version": "99.0.0", "min_cli_version": "0.0.1"}
        local = {"outOfDate": False, "latestVersionString": "0.70.0", "versionOnThisInstanceString": "0.70.0"}
        known = {"cliVersionInfo": versions, "exposesExplicitSequenceNumber": False, "features": []}
        return {"serverInfo": known | {"latestLocalVersionInfo": local}} if "serverInfo" in query else {}

    def _url(self, name: str) -> str:
        return f"http://{self.headers['Host']}/upload/{name}"

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients end without closing their connections: no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def stand_in() -> Iterator[str]:
    """Its address, as long as the block runs."""
    with _Server(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
