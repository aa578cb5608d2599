"""The ASGI application: routes, keys, body limits, and the words for what went wrong."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import orjson
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from .artifacts import Artifacts
from .contents import Contents
from .drain import Drain
from .errors import BadRequestError, ConflictError, NotFoundError, TooLargeError
from .filestream import decode, gunzip
from .gql_execute import Request as GraphQLRequest
from .gql_execute import failure
from .gql_syntax import GraphQLError
from .history import Histories
from .keys import ApiKeys, UploadSigner
from .limits import Quota, QuotaError, Quotas
from .operations import Operations
from .readapi import ReadApi, download, json_response
from .requestlog import entry_of
from .runs import RunPath
from .settings import ServeSettings
from .storage import Storage
from .store import Store

MAX_BODY = 64 << 20  # bytes, as sent and unpacked; clients stay below 12 MB unless told otherwise
SMALL_BODY = 64 << 10
MAX_FILE = 5 << 40  # the largest file that clients of this protocol upload
WRITE_SIZE = 1 << 20
WRITER_THREADS = 4  # one commits at a time; the others flush uploaded files meanwhile

PAGE_FOLDER = Path(__file__).parent / "page"
ASSETS = {"page.js": "text/javascript", "chart.js": "text/javascript", "page.css": "text/css"}
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

P = ParamSpec("P")
T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Clocks:
    """`wall` gives seconds since the epoch, `steady` seconds that never jump."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


class Backend:
    """The routes that write, and the page."""

    def __init__(self, store: Store, settings: ServeSettings, keys: ApiKeys | None, clocks: Clocks) -> None:
        self._store = store
        self._settings = settings
        self._keys = keys
        self._clocks = clocks
        self._signer = UploadSigner(store.secret)
        self._quotas = Quotas(settings.limit, settings.window_s, settings.rates, clocks.steady)
        self._artifacts, contents = Artifacts(store, clocks.wall), Contents(store)
        self._storage = Storage(store, self._artifacts, contents)
        self._operations = Operations(
            store, self._artifacts, contents, Histories(store), self._quotas, settings, self._signer, clocks.wall
        )
        # Threads of their own, so that writers who wait for each other leave those of the readers alone.
        self._writers = ThreadPoolExecutor(WRITER_THREADS, "runferry-writer")

    def routes(self) -> list[Route]:
        """Every route of the server, each behind the check that it needs."""
        reads = ReadApi(self._store, self._artifacts, self._settings, self._clocks.wall).routes()
        pages = [Route(path, self._page) for path in ("/", "/{entity}/{project}/runs/{run}")]
        assets = [Route("/page/{name}", self._asset)]
        return [
            Route("/graphql", self._with_key(self._graphql), methods=["POST"]),
            Route("/files/{entity}/{project}/{run}/file_stream", self._with_key(self._file_stream), methods=["POST"]),
            Route("/storage/{place}/{token}", self._upload, methods=["PUT"]),
            Route("/storage/{place}/{token}", self._download, methods=["GET"]),
            Route("/api/runs/{entity}/{project}/{run}", self._with_key(self._delete), methods=["DELETE"]),
            *(Route(r.path, self._for_readers(r.endpoint), methods=["GET"]) for r in (*pages, *assets, *reads)),
        ]

    # ---- who may

    def _with_key(self, handler: Handler) -> Handler:
        async def checked(request: Request) -> Response:
            if self._keys is None:
                self._refuse_foreign_pages(request)
            elif not self._keys.accepts(request.headers.get("authorization")):
                raise HTTPException(401, "the API key is missing or not one of this server's")
            return await handler(request)

        return checked

    def _for_readers(self, handler: Handler) -> Handler:
        async def checked(request: Request) -> Response:
            if self._settings.loopback:
                self._refuse_foreign_pages(request)
            elif self._keys is None or not self._keys.accepts(request.headers.get("authorization")):
                raise HTTPException(
                    401,
                    "sign in with any user name and an API key of this server as the password",
                    {"WWW-Authenticate": 'Basic realm="runferry", charset="UTF-8"'},
                )
            return await handler(request)

        return checked

    def _refuse_foreign_pages(self, request: Request) -> None:
        """Where no key is asked for, a page from elsewhere in this user's browser must not get in.

        Its requests carry either its own origin, or a name of its own that it made point here.
        """
        host = request.url.hostname or ""
        origin = request.headers.get("origin")
        if not _is_loopback(host) or origin not in (None, f"http://{request.url.netloc}"):
            raise HTTPException(
                403, "without a key this server answers on its loopback address and to its own page only"
            )

    # ---- writing

    async def _graphql(self, request: Request) -> Response:
        body = await self._body(request)
        try:
            parsed = await _off_loop(GraphQLRequest, body)
        except GraphQLError as error:
            return json_response(failure(str(error)), 400)
        entry = entry_of(request.scope)
        entry.operation = parsed.name or ",".join(call.field.name for call in parsed.calls)
        projects = [project for call in parsed.calls if (project := self._operations.project_of(call))]
        quota = self._quotas.graphql(projects[0]) if projects else None
        base_url = str(request.base_url).rstrip("/")
        in_thread = self._in_writer if parsed.writes else run_in_threadpool
        answer = await in_thread(parsed.run, self._operations.resolvers(base_url))
        return self._with_quota(Response(orjson.dumps(answer), media_type="application/json"), quota)

    async def _file_stream(self, request: Request) -> Response:
        entry = entry_of(request.scope)
        entry.operation = "FileStream"
        path = _run_path(request)
        body = await self._body(request)
        update = await _off_loop(decode, body)
        entry.details = {
            "files": {name: {"offset": part.offset, "lines": len(part.content)} for name, part in update.files.items()},
            "uploaded": len(update.uploaded),
            "complete": update.complete,
            "exitcode": update.exit_code,
        }
        quota = self._quotas.stream((path.entity, path.project), path.name, len(body))
        await self._in_writer(self._store.apply_stream, path, update)
        return self._with_quota(json_response({"exitcode": None, "limits": {}}), quota)

    async def _delete(self, request: Request) -> Response:
        await self._in_writer(self._store.delete_run, _run_path(request))
        return Response(status_code=204)

    async def _upload(self, request: Request) -> Response:
        entry = entry_of(request.scope)
        entry.operation = "Upload"
        place, name = self._signed(request)
        entry.details = {"file": name}
        sent_md5 = request.headers.get("content-md5")
        parts = request.stream()
        first, is_whole = await _first_part(parts)
        if is_whole:
            md5 = await self._in_writer(self._keep, place, name, first, sent_md5)
        else:
            md5 = await self._receive(place, name, first, parts, sent_md5)
        entry.details["md5"] = md5
        return Response(status_code=200, headers={"ETag": f'"{md5}"'})

    def _keep(self, place: str, name: str, body: bytearray, sent_md5: str | None) -> str:
        """Keeps a body that has come; its MD5. One call in one thread: most files are small."""
        upload = self._store.blobs.upload()
        try:
            upload.write(body)
            return self._storage.put(place, name, upload, sent_md5)
        finally:
            upload.discard()

    async def _receive(
        self, place: str, name: str, pending: bytearray, parts: AsyncIterator[bytes], sent_md5: str | None
    ) -> str:
        """Keeps a body that begins with `pending`, part by part as it comes; its MD5."""
        upload = await self._in_writer(self._store.blobs.upload)
        try:
            async for part in parts:
                pending += part
                if upload.size + len(pending) > MAX_FILE:
                    raise HTTPException(413, f"a file has at most {MAX_FILE} bytes")
                if len(pending) >= WRITE_SIZE:
                    await self._in_writer(upload.write, pending)
                    pending = bytearray()
            await self._in_writer(upload.write, pending)
            return await self._in_writer(self._storage.put, place, name, upload, sent_md5)
        finally:
            await self._in_writer(upload.discard)

    async def _download(self, request: Request) -> Response:
        entry_of(request.scope).operation = "Download"
        place, name = self._signed(request)
        path = await run_in_threadpool(self._storage.get, place)
        if path is None:
            raise HTTPException(404, "there is nothing to fetch at this address")
        return download(path, name)

    def _signed(self, request: Request) -> tuple[str, str]:
        """Place and file name of a signed address."""
        place, token = request.path_params["place"], request.path_params["token"]
        query = request.query_params
        signature = (query.get("expires", ""), query.get("signature", ""))
        name = self._signer.check(place, token, *signature, self._clocks.wall())
        if name is None:
            raise HTTPException(403, "the signed address is not valid or no longer valid; ask for a new one")
        return place, name

    async def _in_writer(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        call = partial(function, *arguments, **named)
        return await asyncio.get_running_loop().run_in_executor(self._writers, call)

    async def _body(self, request: Request) -> bytes:
        announced = request.headers.get("content-length", "0")
        if announced.isascii() and announced.isdigit() and int(announced) > MAX_BODY:
            raise HTTPException(413, f"a request body has at most {MAX_BODY} bytes")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                raise HTTPException(413, f"a request body has at most {MAX_BODY} bytes")
        encoding = request.headers.get("content-encoding", "identity").lower()
        if encoding == "gzip" and self._settings.gzip:
            return await run_in_threadpool(gunzip, bytes(body), MAX_BODY)
        if encoding != "identity":
            raise HTTPException(
                415, "Content-Encoding is gzip or none" if self._settings.gzip else "no Content-Encoding is read"
            )
        return bytes(body)

    def _with_quota(self, response: Response, quota: Quota | None) -> Response:
        if quota is not None:
            response.headers.update(quota.headers(self._settings.limit_headers))
        return response

    def refused(self, _: Request, error: Exception) -> Response:
        """The answer to a request too many."""
        return self._with_quota(json_response({"error": str(error)}, 429), getattr(error, "quota", None))

    # ---- the page

    async def _page(self, _: Request) -> Response:
        return FileResponse(PAGE_FOLDER / "index.html", headers=PAGE_HEADERS)

    async def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ASSETS:
            raise HTTPException(404, "no such file")
        return FileResponse(PAGE_FOLDER / name, headers=PAGE_HEADERS, media_type=ASSETS[name])


def create_app(store: Store, settings: ServeSettings, keys: ApiKeys | None, clocks: Clocks | None = None) -> Starlette:
    """The application over an open store. `keys` is None when the settings ask for no check."""
    if settings.auth and keys is None:
        raise ValueError("API keys are needed unless the settings turn the check off")
    backend = Backend(store, settings, keys, clocks or Clocks())
    handlers: dict[Any, Any] = {
        HTTPException: _http_error,
        QuotaError: backend.refused,
        NotFoundError: _answer(404),
        BadRequestError: _answer(400),
        ConflictError: _conflict,
        TooLargeError: _answer(413),
        ClientDisconnect: _gone,
        sqlite3.Error: _storage_error,
        OSError: _storage_error,
    }
    return Starlette(routes=backend.routes(), exception_handlers=handlers, middleware=[Middleware(Drain)])


async def _first_part(parts: AsyncIterator[bytes]) -> tuple[bytearray, bool]:
    """The first `WRITE_SIZE` bytes of a body or a little more, and whether that is all of it."""
    first = bytearray()
    async for part in parts:
        first += part
        if len(first) >= WRITE_SIZE:
            return first, False
    return first, True


async def _off_loop(decoder: Callable[[bytes], T], body: bytes) -> T:
    """Decodes a body; in a thread if it would keep other requests waiting longer than the change of threads takes."""
    return decoder(body) if len(body) <= SMALL_BODY else await run_in_threadpool(decoder, body)


def _run_path(request: Request) -> RunPath:
    parts = request.path_params
    try:
        return RunPath(parts["entity"], parts["project"], parts["run"])
    except ValueError as error:
        raise HTTPException(404, str(error)) from None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _answer(status: int) -> Callable[[Request, Exception], Response]:
    return lambda _request, error: json_response({"error": str(error)}, status)


def _conflict(_: Request, error: Exception) -> Response:
    """In the shape of a GraphQL answer: only operations make things."""
    return json_response(failure(str(error)), 409)


def _http_error(_: Request, error: HTTPException) -> Response:
    response = json_response({"error": error.detail}, error.status_code)
    response.headers.update(error.headers or {})
    return response


def _gone(_request: Request, _error: Exception) -> Response:
    """The client broke its body off; nobody reads this answer, and nothing was kept."""
    return Response(status_code=400)


def _storage_error(request: Request, error: Exception) -> Response:
    """Nothing of the request was kept; the client may try again."""
    full = getattr(error, "errno", None) == errno.ENOSPC or "full" in str(error)
    print(f"runferry serve: {request.method} {request.url.path}: {error}", file=sys.stderr)  # noqa: T201 - operator's notice
    return json_response({"error": f"the server cannot store this: {error}"}, 507 if full else 500)
