"""Samples as people look at them: what of a part is a picture, a sound, text; small pictures; `Dataset.show`."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headrace.base import cards
from headrace.base.errors import CorruptError, UnsupportedError
from headrace.base.units import format_bytes
from headrace.catalog import KEY
from headrace.loader.decode import npy
from headrace.loader.shown import sounds
from headrace.loader.shown.arrays_shown import array_picture, is_picture, told

PICTURE_SIDE: Final = 160
"""Pixels: no side of a small picture is longer."""
_PIXELS: Final = 64_000_000
"""A picture of more is not decoded: few bytes may ask for much memory."""
_FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
_TEXT: Final = 2000  # characters of a text that are shown
BEGINNING: Final = 4 * _TEXT
"""Bytes of a part that tell what it is."""
LARGEST_SHOWN: Final = 128 << 20
"""Bytes: of a larger part no picture is made."""
_WHOLE_ARRAY: Final = 4 << 20
"""Bytes: of a larger array the least and the largest value are not looked for."""
_LINE: Final = 60  # characters of a part in one line of many
PICTURE_SUFFIXES: Final = frozenset(
    {"jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm", "img", "image"}
)
_MAGIC: Final = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a")
"""What images begin with, whatever they are called."""
_ALMOST_TEXT: Final = 0.02
"""Share of characters that no text has, up to which bytes are shown as text."""


@dataclass(frozen=True, slots=True)
class AboutPicture:
    """Of an encoded picture: pixels; `mode` as Pillow calls it (``RGB``)."""

    format: str
    width: int
    height: int
    mode: str
    frames: int


@dataclass(frozen=True, slots=True)
class PartShown:
    """One part of a sample. `kind`: ``image``, ``sound``, ``text``, ``array``, ``value`` or ``bytes``; `size`: bytes;
    `text`: the beginning of it, or what it is; `cut`: whether more follows. `picture`: whether `picture_of` makes one.
    """

    name: str
    kind: str
    size: int | None
    text: str
    picture: bool = False
    cut: bool = False


class Grid:
    """Samples side by side, for notebooks; as text a line each."""

    def __init__(self, samples: Sequence[Mapping[str, Any]]) -> None:
        self.samples = samples

    def __repr__(self) -> str:
        return "\n".join(_line(sample) for sample in self.samples)

    def _repr_html_(self) -> str:
        return "".join(_tile(sample) for sample in self.samples)


def shown_part(name: str, value: Any, size: int | None = None) -> PartShown:
    """What is said of one part of a sample. `size`: where `value` is only the beginning of so many bytes."""
    if isinstance(value, (memoryview, bytes, bytearray)):
        return _shown_bytes(name, value, len(value) if size is None else size)
    if getattr(value, "shape", None):
        array = np.asarray(value)
        return PartShown(name, "array", array.nbytes, told(array), is_picture(array.shape, array.dtype))
    return PartShown(name, "value", None, str(value)[:_TEXT], cut=len(str(value)) > _TEXT)


def bytes_needed(name: str, size: int) -> int:
    """How many of a part's first bytes `shown_part` looks at; 0: the name says what it is."""
    suffix = name.rpartition(".")[2].lower()
    if suffix in PICTURE_SUFFIXES:
        return 0
    whole = suffix == "npy" and size <= _WHOLE_ARRAY
    return size if whole else min(size, BEGINNING)


def _shown_bytes(name: str, value: memoryview | bytes | bytearray, size: int) -> PartShown:
    suffix = name.rpartition(".")[2].lower()
    if suffix in PICTURE_SUFFIXES or bytes(value[:12]).startswith(_MAGIC):
        return PartShown(name, "image", size, "", picture=True)
    if suffix in sounds.SOUND_SUFFIXES and sounds.media_type(bytes(value[: sounds.SOUND_HEAD])):
        found = sounds.look_at_wave(bytes(value[:BEGINNING]))
        drawn = found is not None and size <= sounds.MOST_SOUND
        return PartShown(name, "sound", size, "" if found is None else str(found), picture=drawn)
    if suffix == "npy":
        with contextlib.suppress(CorruptError):
            return _shown_npy(name, value, size)
    text = _as_text(bytes(value[:BEGINNING]))
    if text is None:
        return PartShown(name, "bytes", size, "")
    return PartShown(name, "text", size, text[:_TEXT], cut=len(text) > _TEXT or size > BEGINNING)


def _shown_npy(name: str, value: memoryview | bytes | bytearray, size: int) -> PartShown:
    shape, kind = npy().look(value)
    words = told(npy().decode(value)) if len(value) == size and size <= _WHOLE_ARRAY else told(shape=shape, kind=kind)
    return PartShown(name, "array", size, words, picture=is_picture(shape, kind) and size <= LARGEST_SHOWN)


def picture_of(part: PartShown, data: Any, where: str) -> bytes:
    """JPEG of an image, an array that has the shape of one, or the waveform of a sound: no byte of the original is in
    it.

    Raises:
        CorruptError: it is no picture, or one too large. UnsupportedError: Pillow is not installed.
    """
    try:
        if part.kind == "array":
            is_file = isinstance(data, (memoryview, bytes, bytearray))
            return array_picture(npy().decode(data, where) if is_file else np.asarray(data), PICTURE_SIDE, where)
        if part.kind == "sound":
            return sounds.wave_picture(data, PICTURE_SIDE, where)
        return small_picture(data, where)
    except ImportError:
        raise UnsupportedError("pictures need Pillow", hint="pip install 'headrace[images]'") from None


def about_picture(data: Any, where: str) -> AboutPicture:
    """What the picture is, without decoding it. Raises as `small_picture`."""
    image, _ = _pillow()
    try:
        with image.open(io.BytesIO(data), formats=_FORMATS) as opened:
            frames = getattr(opened, "n_frames", 1)
            return AboutPicture(opened.format or "", opened.width, opened.height, opened.mode, frames)
    except Exception as error:  # what damaged files make Pillow raise is of many kinds
        raise _no_picture(error, where) from error


def small_picture(data: Any, where: str, *, side: int = PICTURE_SIDE) -> bytes:
    """JPEG of at most `side` pixels a side: no byte of the original is in it.

    Raises:
        CorruptError: it is no picture, or one too large. UnsupportedError: Pillow is not installed.
    """
    image, operations = _pillow()
    try:
        with image.open(io.BytesIO(data), formats=_FORMATS) as opened:
            if opened.width * opened.height > _PIXELS:
                raise CorruptError(f"a picture of {opened.width:,} × {opened.height:,} pixels is too large", path=where)
            opened.draft("RGB", (2 * side, 2 * side))
            turned = operations.exif_transpose(opened)
            if turned.mode in ("I", "F", "I;16", "I;16B"):  # deeper than a screen shows: 16 bits become 8
                turned = turned.convert("F").point(_eighth).convert("L")
            turned.thumbnail((side, side))
            times = side // max(turned.size)
            if times > 1:  # of few pixels: each is seen as it is, which a browser would smooth away
                turned = turned.resize((turned.width * times, turned.height * times), image.Resampling.NEAREST)
            return _jpeg(turned)
    except CorruptError:
        raise
    except Exception as error:  # what damaged files make Pillow raise is of many kinds
        raise _no_picture(error, where) from error


def _pillow() -> tuple[Any, Any]:
    """Its modules ``Image`` and ``ImageOps``."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise UnsupportedError("pictures need Pillow", hint="pip install 'headrace[images]'") from None
    return Image, ImageOps


def _no_picture(error: Exception, where: str) -> CorruptError:
    return CorruptError(f"is no picture that can be shown: {error}", path=where)


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
        if len(data) - error.start > 3 or len(data) < BEGINNING:  # not just cut within a letter
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
        made = _drawn(part, value)
        if made is not None:
            pictures.append(cards.picture(made, "image/jpeg", name))
        if made is None or part.text:
            lines.append(_told(part))
    return cards.tile("".join(pictures), lines, side=PICTURE_SIDE)


def _drawn(part: PartShown, value: Any) -> bytes | None:
    """None: it is no picture."""
    if not part.picture:
        return None
    try:
        return picture_of(part, value, part.name)
    except (CorruptError, UnsupportedError):
        return None


def _parts(sample: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in sample.items() if name != KEY]
