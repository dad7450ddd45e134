"""Samples as people look at them: what of a part is a picture, what is text; small pictures; `Dataset.show`."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headrace.base import cards
from headrace.base.errors import CorruptError, UnsupportedError
from headrace.base.units import format_bytes
from headrace.dataset.own_key import KEY

SIDE: Final = 160
"""Pixels: no side of a small picture is longer."""
_PIXELS: Final = 64_000_000
"""A picture of more is not decoded: few bytes may ask for much memory."""
_FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
_TEXT: Final = 2000
_LINE: Final = 60
_IMAGES: Final = frozenset({"jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm", "img", "image"})
_ALMOST_TEXT: Final = 0.02
"""Share of characters that no text has, up to which bytes are shown as text."""


@dataclass(frozen=True, slots=True)
class PartShown:
    """One part of a sample. `kind`: ``image``, ``text``, ``array``, ``value`` or ``bytes``; `size`: bytes; `text`: the
    beginning of it, or what it is.
    """

    name: str
    kind: str
    size: int | None
    text: str


class Grid:
    """Samples side by side, for notebooks; as text a line each."""

    def __init__(self, samples: Sequence[Mapping[str, Any]]) -> None:
        self.samples = samples

    def __repr__(self) -> str:
        return "\n".join(_line(sample) for sample in self.samples)

    def _repr_html_(self) -> str:
        return "".join(_tile(sample) for sample in self.samples)


def shown_part(name: str, value: Any) -> PartShown:
    """What is said of one part of a sample."""
    if isinstance(value, (memoryview, bytes, bytearray)):
        if name.rpartition(".")[2].lower() in _IMAGES:
            return PartShown(name, "image", len(value), "")
        text = _as_text(bytes(value[: 4 * _TEXT]))
        return PartShown(name, "bytes" if text is None else "text", len(value), (text or "")[:_TEXT])
    shape = getattr(value, "shape", None)
    if shape:
        told = f"{getattr(value, 'dtype', '')} {' × '.join(map(str, shape))}"
        return PartShown(name, "array", getattr(value, "nbytes", None), told)
    return PartShown(name, "value", None, str(value)[:_TEXT])


def small_picture(data: Any, where: str) -> bytes:
    """JPEG of at most `SIDE` pixels a side: no byte of the original is in it.

    Raises:
        CorruptError: it is no picture, or one too large. UnsupportedError: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise UnsupportedError("pictures need Pillow", hint="pip install 'headrace[images]'") from None
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
            if opened.width * opened.height > _PIXELS:
                raise CorruptError(f"a picture of {opened.width:,} × {opened.height:,} pixels is too large", path=where)
            opened.draft("RGB", (2 * SIDE, 2 * SIDE))
            turned = ImageOps.exif_transpose(opened)
            if turned.mode in ("I", "F", "I;16", "I;16B"):  # deeper than a screen shows: 16 bits become 8
                turned = turned.convert("F").point(_eighth).convert("L")
            turned.thumbnail((SIDE, SIDE))
            return _jpeg(turned)
    except CorruptError:
        raise
    except Exception as error:  # what damaged files make Pillow raise is of many kinds
        raise CorruptError(f"is no picture that can be shown: {error}", path=where) from error


def _jpeg(image: Any) -> bytes:
    out = io.BytesIO()
    image.convert("RGB").save(out, "JPEG", quality=82)
    return out.getvalue()


def _eighth(value: float) -> float:
    return value / 257


def _as_text(data: bytes) -> str | None:
    """None: it is no text."""
    try:
        text = data.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        if len(data) - error.start > 3 or len(data) < 4 * _TEXT:  # not just cut within a letter
            return None
        text = data[: error.start].decode()
    odd = sum(not letter.isprintable() and letter not in "\n\r\t" for letter in text)
    return text if odd <= _ALMOST_TEXT * len(text) else None


def _line(sample: Mapping[str, Any]) -> str:
    return "  ".join([str(sample.get(KEY, "")), *(_told(shown_part(name, value)) for name, value in _parts(sample))])


def _told(part: PartShown) -> str:
    size = format_bytes(part.size) if part.size is not None else ""
    words = part.text.replace("\n", " ")
    shown = words if len(words) <= _LINE else f"{words[:_LINE]}…"
    return f"{part.name}: {shown or ('picture' if part.kind == 'image' else part.kind)}{f' ({size})' if size else ''}"


def _tile(sample: Mapping[str, Any]) -> str:
    pictures: list[str] = []
    lines = [str(sample.get(KEY, ""))]
    for name, value in _parts(sample):
        part = shown_part(name, value)
        made = _picture_of(part, value)
        if made is None:
            lines.append(_told(part))
        else:
            pictures.append(cards.picture(made, "image/jpeg", name))
    return cards.tile("".join(pictures), lines, side=SIDE)


def _picture_of(part: PartShown, value: Any) -> bytes | None:
    """Of encoded images, and of arrays that have the shape of one; None: it is none."""
    try:
        if part.kind == "image":
            return small_picture(value, part.name)
        array = np.asarray(value) if part.kind == "array" else None
        if array is None or array.dtype != np.uint8 or not (array.ndim == 2 or array.shape[2:] == (3,)):
            return None
        from PIL import Image

        image = Image.fromarray(np.ascontiguousarray(array))
        image.thumbnail((SIDE, SIDE))
        return _jpeg(image)
    except (CorruptError, UnsupportedError, ImportError):
        return None


def _parts(sample: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in sample.items() if name != KEY]
