"""The backend's application in this process, with clocks that a test sets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from runferry.backend import ServeSettings, Store, create_app
from runferry.backend.app import Clocks
from runferry.backend.keys import ApiKeys

KEY = "k" * 40


@contextlib.contextmanager
def in_process(folder: Path, **options: Any) -> Iterator[InProcess]:
    """The application over a store in `folder`; `options` are those of `InProcess`."""
    server = InProcess(folder, **options)
    try:
        yield server
    finally:
        server.close()


class InProcess:
    """A client and the application behind it; `wall` and `steady` are the application's clocks, in seconds."""

    def __init__(self, folder: Path, wrap: Any = None, **settings: Any) -> None:
        self.wall = 1_700_000_000.0
        self.steady = 0.0
        self.settings = ServeSettings(data_dir=folder, **settings)
        self.store = Store(folder, clock=lambda: self.wall)
        keys = ApiKeys((KEY,)) if self.settings.auth else None
        clocks = Clocks(wall=lambda: self.wall, steady=lambda: self.steady)
        self.app: Any = create_app(self.store, self.settings, keys, clocks)
        if wrap is not None:
            self.app = wrap(self.app)

    def close(self) -> None:
        """Closes the store."""
        self.store.close()

    def request(self, method: str, path: str, *, key: str | None = KEY, **options: Any) -> httpx.Response:
        """One request; `key=None` sends no Authorization."""
        headers = dict(options.pop("headers", {}))
        if key is not None:
            headers.setdefault("Authorization", "Basic " + base64.b64encode(f"api:{key}".encode()).decode())

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
                return await client.request(method, path, headers=headers, **options)

        return asyncio.run(send())

    def get(self, path: str, **options: Any) -> httpx.Response:
        """A GET without a key."""
        return self.request("GET", path, key=None, **options)

    def graphql(self, query: str, variables: Any = None, **options: Any) -> Any:
        """The decoded answer to a document."""
        return json.loads(
            self.request("POST", "/graphql", json={"query": query, "variables": variables}, **options).content
        )

    def upsert(self, name: str = "r1", **fields: Any) -> Any:
        """Makes or changes a run of project `proj`; the answer to `bucket`."""
        query = """mutation UpsertBucket($input: UpsertBucketInput!) { upsertBucket(input: $input) {
            bucket { id name displayName description config sweepName historyLineCount
                     project { id name entity { id name } } } inserted } }"""
        given = {"name": name, "modelName": "proj", "entityName": None, **fields}
        return self.graphql(query, {"input": given})["data"]["upsertBucket"]

    def stream(self, body: Any, name: str = "r1", **options: Any) -> httpx.Response:
        """POSTs a file stream body."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", f"/files/local/proj/{name}/file_stream", content=content, **options)

    def upload_url(self, name: str, run: str = "r1") -> str:
        """The signed address for one file."""
        query = """mutation CreateRunFiles($entity: String!, $project: String!, $run: String!, $files: [String!]!) {
            createRunFiles(input: {entityName: $entity, projectName: $project, runName: $run, files: $files}) {
                runID uploadHeaders files { name uploadUrl } } }"""
        given = {"entity": "local", "project": "proj", "run": run, "files": [name]}
        return self.graphql(query, given)["data"]["createRunFiles"]["files"][0]["uploadUrl"]

    def run(self, name: str = "r1") -> Any:
        """The run by the read API."""
        return json.loads(self.get(f"/api/runs/local/proj/{name}").content)
