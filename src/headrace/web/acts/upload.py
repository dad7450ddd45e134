"""``/act/uploads…``: a file of the viewer's into the namespace, piece by piece, going on where it was broken off."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.errors import InputError
from headrace.web.pages import browse
from headrace.web.told import Act, Done
from headrace.web.uploads import LARGEST_PIECE, Standing, What
from headrace.web.world import World


@dataclass(frozen=True, slots=True)
class AskedBegin:
    """`folder`: where it goes; `name`: its name there; `size`: bytes; `stamp`: when it was changed last, in
    milliseconds since the epoch; `replace`: a file of that name.
    """

    folder: str
    name: str
    size: int
    stamp: int = 0
    replace: bool = False


@dataclass(frozen=True, slots=True)
class AskedPiece:
    """`id`: of the upload; `offset`: of the first byte of `content` in the file."""

    id: str
    offset: int
    content: bytes


@dataclass(frozen=True, slots=True)
class AskedDrop:
    """`id`: of the upload."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stands(Done):
    """`id`: of the upload; `offset`: the next byte that is wanted; `piece`: how many at once, the last piece is
    shorter, that of an empty file empty; `over`: all of it is there.
    """

    id: str
    offset: int
    piece: int
    over: bool


def begin(world: World, asked: AskedBegin) -> Stands:
    """Begin it, or say where it stands. Raises as `Uploads.begin`."""
    if not asked.name or "/" in asked.name:
        raise InputError("is no name of a file", path=asked.name)
    path = f"{asked.folder.removesuffix('/')}/{asked.name}"
    if not path.startswith("/"):
        raise InputError("a path starts with /", path=path)
    browse.check(path)
    return _stands(world.uploads.begin(What(path, asked.size, asked.stamp, asked.replace)))


def piece(world: World, asked: AskedPiece) -> Stands:
    """The next bytes of it. Raises as `Uploads.take`."""
    found = world.uploads.take(asked.id, asked.offset, asked.content)
    if found.over:
        world.forget_listings()
    return _stands(found)


def drop(world: World, asked: AskedDrop) -> Done:
    """What came of it is thrown away. Idempotent."""
    world.uploads.drop(asked.id)
    return Done("It is thrown away.")


def _stands(found: Standing) -> Stands:
    said = "It is there." if found.over else f"{found.offset:,} bytes are there."
    return Stands(said, None, id=found.id, offset=found.offset, piece=found.piece, over=found.over)


BEGIN = Act("/uploads", "upload", "write", AskedBegin, Stands, begin, "Begin to upload a file, or ask how that stands.")
PIECE = Act(
    "/uploads/{id}", "upload-piece", "write", AskedPiece, Stands, piece, "The next bytes of a file that is uploaded.",
    most=LARGEST_PIECE,
)  # fmt: skip
DROP = Act("/uploads/{id}/drop", "upload-drop", "write", AskedDrop, Done, drop, "Throw an unfinished upload away.")
