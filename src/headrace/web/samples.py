"""Samples of snapshots, for pages: data sets that were opened, and small pictures of what is in them."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.errors import CorruptError, NotFoundError, UnsupportedError
from headrace.base.settings import Settings
from headrace.dataset import Dataset
from headrace.dataset.source import open_source
from headrace.namespace import Namespace

SIDE: Final = 160
"""Pixels: no side of a small picture is longer."""
_PIXELS: Final = 64_000_000
"""A picture of more is not decoded: few bytes may ask for much memory."""
_FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
_SETS: Final = 8
_PICTURES: Final = 2000
_TEXT: Final = 2000
_IMAGES: Final = frozenset({"jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm", "img", "image"})
_ALMOST_TEXT: Final = 0.02
"""Share of characters that no text has, up to which bytes are shown as text."""


@dataclass(frozen=True, slots=True)
class PartShown:
    """One part of a sample. `kind`: ``image``, ``text``, or ``bytes``; `text`: the beginning of it, where it is one."""

    name: str
    kind: str
    size: int | None
    text: str


class Samples:
    """Any thread. What is shown of a snapshot does not change, so it is kept as long as there is room."""

    def __init__(self, namespace: Namespace, settings: Settings) -> None:
        self._namespace, self._settings = namespace, settings
        self._lock = threading.Lock()
        self._sets: OrderedDict[str, Dataset] = OrderedDict()
        self._pictures: OrderedDict[tuple[str, int, str], bytes] = OrderedDict()

    def open(self, snapshot: str) -> Dataset:
        """The samples of ``name@version``. Raises as `Dataset.open`."""
        with self._lock:
            if snapshot not in self._sets:
                index = open_source(snapshot, by="stem", namespace=self._namespace, settings=self._settings)
                self._sets[snapshot] = Dataset.of(index, snapshot)
                while len(self._sets) > _SETS:
                    self._sets.popitem(last=False)
            self._sets.move_to_end(snapshot)
            return self._sets[snapshot]

    def at(self, snapshot: str, places: Sequence[int]) -> list[dict[str, Any]]:
        """Samples as the loader gives them, without any decoding. Raises IndexError, as the loader."""
        return self.open(snapshot).at(places, fetcher=self._namespace.fetcher)

    def picture(self, snapshot: str, place: int, part: str) -> bytes:
        """A part as a small JPEG, made here: no byte of the original is in it.

        Raises:
            NotFoundError: there is no such sample, or part. CorruptError: it is no picture, or one too large.
            UnsupportedError: Pillow is not installed. As the loader.
        """
        key = snapshot, place, part
        with self._lock:
            if (kept := self._pictures.get(key)) is not None:
                self._pictures.move_to_end(key)
                return kept
        try:
            sample = self.at(snapshot, [place])[0]
            data = sample[part]
        except (IndexError, KeyError):
            raise NotFoundError("there is no such part", path=f"{snapshot}/{place}/{part}") from None
        made = small_picture(data, f"{snapshot}/{place}/{part}")
        with self._lock:
            self._pictures[key] = made
            while len(self._pictures) > _PICTURES:
                self._pictures.popitem(last=False)
        return made


def shown_part(name: str, value: Any) -> PartShown:
    """What a page says of one part of a sample."""
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
    """JPEG of at most `SIDE` pixels a side. Raises CorruptError, UnsupportedError."""
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
            if turned.mode in ("I", "F", "I;16", "I;16B"):  # deeper than a page shows: stretched to what there is
                turned = ImageOps.autocontrast(turned.convert("F").point(_eighth).convert("L"))
            turned.thumbnail((SIDE, SIDE))
            out = io.BytesIO()
            turned.convert("RGB").save(out, "JPEG", quality=82)
            return out.getvalue()
    except CorruptError:
        raise
    except Exception as error:  # what damaged files make Pillow raise is of many kinds
        raise CorruptError(f"is no picture that can be shown: {error}", path=where) from error


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
