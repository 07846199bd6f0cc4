"""The web application: routes of the page, its live views and its requests.

/static/…                 scripts and styles; some are shared with the report page
/api/live                 a view as server-sent events
/api/messages             the message browser
/api/produce, /api/actions/…   changes, with --allow-changes only
any other path            the page, which reads its URL itself
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from konvene.client.errors import ClientError
from konvene.console import actions, messages
from konvene.console.failure import Failure
from konvene.console.live import Hub
from konvene.console.security import Access, Guard
from konvene.console.views import UnknownView
from konvene.console.watch import ClusterWatch

__all__ = ["Options", "application"]

MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_BROWSING = 2
"""Requests for messages that run at a time; each may hold some tens of megabytes."""
MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
STATIC = ("konvene.console", "static"), ("konvene.pipeline.answers", "page")
"""Packages and their folders with static files; the second one is shared with the report page."""

Body = Mapping[str, Any]


class Options(NamedTuple):
    """What the page may do."""

    access: Access
    allow_changes: bool = False


class _NotAllowed(Failure):
    def __init__(self) -> None:
        super().__init__(403, "changes are not allowed", "Start the console with --allow-changes.")


def application(watch: ClusterWatch, hub: Hub, options: Options) -> Guard:
    """Return the application of a console that shows `watch`, with the live views of `hub`."""
    page = _static_file("index.html")
    browsing = asyncio.Semaphore(MAX_BROWSING)

    async def live(request: Request) -> Response:
        try:
            events = hub.open(request.query_params.get("view", ""), request.query_params)
        except UnknownView as error:
            return JSONResponse({"error": str(error), "hint": None}, 404)
        return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    async def show(request: Request) -> Response:
        if request.url.path.startswith(("/api/", "/static/")):
            return JSONResponse({"error": f"there is no {request.url.path}", "hint": None}, 404)
        return page

    async def browse(request: Request) -> Any:
        fields = await _body(request) if request.method == "POST" else request.query_params
        async with browsing:
            return await messages.browse(watch.cluster, messages.parse_query(fields))

    def change(run: Callable[[ClusterWatch, Body], Awaitable[Any]]) -> Callable[[Request], Awaitable[Any]]:
        async def changed(request: Request) -> Any:
            if not options.allow_changes:
                raise _NotAllowed
            try:
                return await run(watch, await _body(request))
            finally:
                watch.forget()

        return changed

    routes = [
        Route("/api/live", live),
        Route("/api/messages", _answered(browse), methods=["GET", "POST"]),
        *(
            Route(f"/api/{path}", _answered(change(run)), methods=["POST"])
            for path, run in actions.ACTIONS.items()
        ),
        Route("/static/{name}", _static),
        Route("/{path:path}", show),
    ]
    return Guard(Starlette(routes=routes), options.access)


def _answered(handler: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that answers with the handler's JSON, or with its failure as a sentence."""

    async def endpoint(request: Request) -> Response:
        try:
            return JSONResponse(await handler(request))
        except Failure as failure:
            return JSONResponse({"error": failure.error, "hint": failure.hint}, failure.status)
        except ClientError as error:
            return JSONResponse({"error": str(error), "hint": None}, 502)

    return endpoint


async def _body(request: Request) -> Body:
    """Return the JSON object in a request. Raises `Failure` if it has none, or one that is too large."""
    body = bytearray()
    stream: AsyncIterator[bytes] = request.stream()
    async for chunk in stream:
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise Failure(413, f"the request is larger than {MAX_BODY_BYTES:,} bytes")
    try:
        parsed = json.loads(bytes(body))
    except (ValueError, RecursionError):  # the latter if it is nested too deeply
        raise Failure(400, "the body is not JSON") from None
    if not isinstance(parsed, dict):
        raise Failure(400, "the body is not a JSON object")
    return parsed


async def _static(request: Request) -> Response:
    return _static_file(request.path_params["name"])


def _static_file(name: str) -> Response:
    """Return a file of the page, or 404; names with a path separator cannot occur in the route."""
    for package, folder in STATIC:
        file: Traversable = resources.files(package) / folder / name
        suffix = name.rpartition(".")[2]
        if suffix not in MEDIA_TYPES:
            continue
        with contextlib.suppress(OSError, ValueError):  # no name that a file can have
            return Response(file.read_bytes(), media_type=MEDIA_TYPES[suffix])
    return JSONResponse({"error": f"there is no {name}", "hint": None}, 404)
