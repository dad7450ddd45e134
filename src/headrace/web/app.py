"""The application: each page as HTML and, below ``/api/v1``, as JSON; what can be done, below ``/act``; what they need
beside; behind the guard.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from headrace.base.account import Account, on
from headrace.base.errors import HeadraceError, InputError
from headrace.base.units import format_bytes
from headrace.fetch import Read
from headrace.web import media
from headrace.web.acts import ACTS
from headrace.web.api import ACT, API, described
from headrace.web.cost import Cost
from headrace.web.drawing import Drawing
from headrace.web.failures import failure_of
from headrace.web.guard import SEALED, Application, Guard
from headrace.web.packing import packing
from headrace.web.pages import PAGES, browse, files
from headrace.web.pieces import Stored
from headrace.web.raw import download
from headrace.web.static_files import Static, mark
from headrace.web.told import Act, Page
from headrace.web.world import World


def application(world: World) -> Application:
    """To be served. What it answers is made on threads, so that no store is waited for on the event loop."""
    drawing = Drawing(world)

    def first(_: Request) -> Response:
        return RedirectResponse(f"{world.options.base}/runs")

    def step(request: Request) -> Response:
        """From a form, which cannot put what is typed into a path."""
        asked = {name: quote(request.query_params.get(name, ""), safe="") for name in ("step", "rank")}
        rank = f"?rank={asked['rank']}" if asked["rank"] else ""
        run = quote(request.path_params["run"], safe="")
        return RedirectResponse(f"{world.options.base}/runs/{run}/step/{asked['step'] or '0'}{rank}", 303)

    def description(_: Request) -> Response:
        return _json(described(PAGES, ACTS))

    def unslashed(request: Request) -> Response:
        """A path that ends in a slash too many: the router's own answer would not know the base."""
        path = request.scope["raw_path"].decode("latin-1").partition("?")[0].strip("/")
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{world.options.base}/{path}{query}")

    routes: list[BaseRoute] = [
        Route("/", first, methods=["GET"]),
        Route("/runs/{run}/step", step, methods=["GET"]),
        Route(f"{API}/openapi.json", packing(description), methods=["GET"]),
    ]
    for page in PAGES:
        shown, twin = packing(_html(world, page, drawing)), packing(_twin(world, page))
        routes.append(Route(page.path, shown, methods=["GET"], name=page.name))
        routes.append(Route(API + page.path, twin, methods=["GET"], name=f"api-{page.name}"))
    routes += [Route(ACT + act.path, _act(world, act), methods=["POST"], name=f"act-{act.name}") for act in ACTS]
    routes += media.routes(world, drawing, _file)
    routes.append(Route("/raw/runs/{run}/{name:path}", _raw(world, drawing), methods=["GET"], name="raw"))
    routes.append(Route("/raw/files/{path:path}", _raw_file(world, drawing), methods=["GET"], name="raw-file"))
    routes.append(Route("/preview/{path:path}", _preview(world, drawing), methods=["GET"], name="preview"))
    routes.append(Mount(f"/static/{mark()}", Static(), name="static"))
    routes.append(Route("/{path:path}/", unslashed, methods=["GET"]))
    failed = {Exception: drawing.failed, HTTPException: drawing.failed}
    inner = Starlette(routes=routes, exception_handlers=failed)
    inner.router.redirect_slashes = False
    return Guard(inner, world.options)


def _html(world: World, page: Page, drawing: Drawing) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        account = Account()
        try:
            with on(account):
                told = page.tell(world, request.path_params, _query(request))
        except HeadraceError as error:
            return drawing.failed(request, error)
        cost = Cost.of(account, world.settings.prices)
        twin = f"{API}{request.url.path}" + (f"?{request.url.query}" if request.url.query else "")
        return drawing.draw(f"{page.name}.html", shown=told.data, told=told, page=page, twin=twin, cost=cost)

    return answer


def _raw(world: World, drawing: Drawing) -> Callable[[Request], Response]:
    """A file that a run has left."""

    def answer(request: Request) -> Response:
        try:
            where = files.location(world, request.path_params["run"], request.path_params["name"])
            return download(request, world.namespace, where)
        except HeadraceError as error:
            return drawing.failed(request, error)

    return answer


def _raw_file(world: World, drawing: Drawing) -> Callable[[Request], Response]:
    """A file of the namespace."""

    def answer(request: Request) -> Response:
        try:
            path = f"/{request.path_params['path']}"
            browse.check(path)
            return download(request, world.tree, path)
        except HeadraceError as error:
            return drawing.failed(request, error)

    return answer


def _file(world: World, request: Request) -> Stored:
    """Of the namespace, whole. Raises InputError: a folder."""
    path = f"/{request.path_params['path']}"
    browse.check(path)
    entry, at = world.stat(path), world.tree.resolve(path)
    if not entry.is_file:
        raise InputError("is a folder", path=path)
    whole = Read(at.store, at.key, entry.size if entry.size >= 0 else None, entry.version)
    return Stored(path, entry.name, whole, world.tree.fetcher)


def _preview(world: World, drawing: Drawing) -> Callable[[Request], Response]:
    """A picture of the namespace, as a smaller one that was made here."""

    def answer(request: Request) -> Response:
        try:
            path = f"/{request.path_params['path']}"
            browse.check(path)
            made = world.previews.of(world.stat(path)).picture
        except HeadraceError as error:
            return drawing.failed(request, error)
        if not made:
            return Response("It is no picture.\n", 415, SEALED, "text/plain")
        return Response(made, 200, {"cache-control": "private, max-age=86400", **SEALED}, "image/jpeg")

    return answer


def _query(request: Request) -> dict[str, str]:
    """What is given several times, with commas."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _twin(world: World, page: Page) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        try:
            account = Account()
            with on(account):
                told = page.tell(world, request.path_params, _query(request))
            return _with_cost(_json(told.data), Cost.of(account, world.settings.prices))
        except HeadraceError as error:
            failure = failure_of(error)
            return _json(failure, failure.status)

    return answer


def _act(world: World, act: Act) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            world.options.check(act.needs)  # before a body is taken in
            body = await _body(request, act.most)
            return _json(await run_in_threadpool(act.carry_out, world, request.path_params, _query(request), body))
        except HeadraceError as error:
            failure = failure_of(error)
            return _json(failure, failure.status)

    return answer


async def _body(request: Request, most: int) -> bytes:
    """Raises InputError: it is larger than that, or did not come to its end."""
    found = bytearray()
    try:
        async for piece in request.stream():
            found += piece
            if len(found) > most:
                hint = "send less at once"
                raise InputError(f"is larger than {format_bytes(most)}", path=request.url.path, hint=hint)
    except ClientDisconnect:
        raise InputError("was broken off", path=request.url.path) from None
    return bytes(found)


def _json(data: Any, status: int = 200) -> Response:
    """NaN and infinity are null, which JSON has words for."""
    body = msgspec.json.encode(data)
    return Response(body, status, {"cache-control": "no-store"}, "application/json")


def _with_cost(answer: Response, cost: Cost) -> Response:
    """What it cost comes beside what the page shows, as ``cost``."""
    rest = bytes(answer.body)[1:]
    body = b'{"cost":' + msgspec.json.encode(cost) + (b"}" if rest == b"}" else b"," + rest)
    return Response(body, answer.status_code, {"cache-control": "no-store"}, "application/json")
