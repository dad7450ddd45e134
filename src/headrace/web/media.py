"""Pictures and sounds of samples, as a browser asks for them: pictures made here, sounds once their first bytes were
looked at. Nothing of the bucket comes as anything else.

Sources: RFC 9110 on ranges, conditions and ETags; RFC 8246 (immutable).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from headrace.base.errors import CorruptError, HeadraceError, NotFoundError
from headrace.loader import SOUND_HEAD, media_type
from headrace.web.drawing import Drawing
from headrace.web.guard import SEALED
from headrace.web.pieces import Piece
from headrace.web.ranges import asked_range
from headrace.web.world import World

_OF_SAMPLE: Final = "/{name}/{version}/{place:int}/{part}"
_OF_OBJECT: Final = "/{name}/{version}/object/{row:int}"
_FOR_EVER: Final = "private, max-age=31536000, immutable"
_ASK: Final = "private, no-cache"
_STRETCH: Final = 4 << 20
"""Bytes of a sound that one answer holds: players ask for the rest."""
DIGITS: Final = 16
"""Of a snapshot's digest, in URLs (``?of=``): then what they name never changes."""


Find: TypeAlias = Callable[[World, Request], Piece]
"""Which piece a request is about. Raises what a page would."""


def routes(world: World, drawing: Drawing, file: Find) -> list[BaseRoute]:
    """``/picture/…`` and ``/sound/…``, of parts of samples and of objects by their rows; ``/listen/…``, of files, which
    `file` finds.
    """
    found: list[BaseRoute] = []
    for kind, answer in (("picture", _picture), ("sound", _sound)):
        for path, piece, name in ((_OF_SAMPLE, _part, kind), (_OF_OBJECT, _object, f"object-{kind}")):
            made = _answering(world, drawing, piece, answer)
            found.append(Route(f"/{kind}{path}", made, methods=["GET"], name=name))
    made = _answering(world, drawing, file, _sound)
    found.append(Route("/listen/{path:path}", made, methods=["GET"], name="listen"))
    return found


_Answer = Callable[[World, Piece, Request], Response]


def _answering(
    world: World, drawing: Drawing, find: Find, answer: _Answer
) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        try:
            piece = find(world, request)
            told = {"etag": f'"{piece.id}"', "cache-control": _lasting(world, request), **SEALED}
            if told["etag"] in request.headers.get("if-none-match", ""):
                return Response(None, 304, told)
            made = answer(world, piece, request)
        except CorruptError as error:
            return Response(f"{error}\n", 415, SEALED, "text/plain")
        except HeadraceError as error:
            return drawing.failed(request, error)
        made.headers.update(told)
        return made

    return endpoint


def _snapshot(request: Request) -> str:
    return f"{request.path_params['name']}@{request.path_params['version']}"


def _part(world: World, request: Request) -> Piece:
    place, part = _number(request, "place"), request.path_params["part"]
    return world.samples.piece(_snapshot(request), place, part)


def _object(world: World, request: Request) -> Piece:
    snapshot = world.samples.snapshot(_snapshot(request))
    return world.samples.object_pieces(snapshot, [_number(request, "row")])[0]


def _number(request: Request, name: str) -> int:
    """Raises NotFoundError: one that nothing can have."""
    number = int(request.path_params[name])
    if number >= 1 << 62:
        raise NotFoundError("there is no such part", path=request.url.path)
    return number


def _lasting(world: World, request: Request) -> str:
    """For ever where the URL says of which content: a name may be given again once its snapshot was deleted."""
    of = request.query_params.get("of", "")
    if "name" not in request.path_params:
        return _ASK
    same = len(of) >= DIGITS and world.samples.snapshot(_snapshot(request)).digest.startswith(of)
    return _FOR_EVER if same else _ASK


def _picture(world: World, piece: Piece, _: Request) -> Response:
    return Response(world.samples.picture(piece), 200, media_type="image/jpeg")


def _sound(_: World, piece: Piece, request: Request) -> Response:
    """A stretch of it, never more than `_STRETCH`."""
    size = piece.size or 0
    kind = media_type(piece.read(0, min(SOUND_HEAD, size)))
    if kind is None:
        raise CorruptError("is no sound that can be played", path=piece.where)
    headers = {"accept-ranges": "bytes"}
    asked = asked_range(request.headers.get("range"), size)
    if asked is None and size <= _STRETCH:
        return Response(piece.read(0, size), 200, headers, kind)
    start, stop = asked or (0, size)
    if start >= size:
        return Response(None, 416, {**headers, "content-range": f"bytes */{size}"})
    stop = min(stop, size, start + _STRETCH)
    headers["content-range"] = f"bytes {start}-{stop - 1}/{size}"
    return Response(piece.read(start, stop), 206, headers, kind)
