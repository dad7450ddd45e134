"""Arrays as people look at them: a picture where they have the shape of one, else what is in them."""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headrace.base.errors import CorruptError
from headrace.base.words import number

_CHANNELS: Final = (1, 3, 4)  # grey, RGB, RGBA
_SHORTEST: Final = 8
"""Rows and columns that a picture has at least."""
_FLATTEST: Final = 16
"""How many times longer than the other a side of a picture may be."""
_PIXELS: Final = 64_000_000  # pixels of a picture, at most: few bytes may ask for much memory


def is_picture(shape: tuple[int, ...], kind: np.dtype[Any]) -> bool:
    """Whether it is [height, width], or the same with 1, 3 or 4 channels first or last."""
    sides = _sides(shape)
    if sides is None or kind.kind not in "buif":
        return False
    height, width = sides
    return min(sides) >= _SHORTEST and max(sides) <= _FLATTEST * min(sides) and height * width <= _PIXELS


def array_picture(array: npt.NDArray[Any], side: int, where: str) -> bytes:
    """JPEG of at most `side` pixels a side. Bytes are taken as they are, of all else the least value becomes black and
    the largest white; what is not finite is black.

    Raises CorruptError: it has no shape of a picture. ImportError: Pillow is not installed.
    """
    from PIL import Image

    if not is_picture(array.shape, array.dtype):
        raise CorruptError(f"an array of shape {array.shape} is no picture", path=where)
    if array.ndim == 3 and array.shape[2] not in _CHANNELS:
        array = np.moveaxis(array, 0, 2)
    step = max(1, max(array.shape[:2]) // (4 * side))  # of a large one, not every value is looked at
    array = array[::step, ::step]
    if array.ndim == 3:
        array = array[:, :, 0] if array.shape[2] == 1 else array[:, :, :3]
    image = Image.fromarray(np.ascontiguousarray(array if array.dtype == np.uint8 else _in_bytes(array)))
    image.thumbnail((side, side))
    out = io.BytesIO()
    image.convert("RGB").save(out, "JPEG", quality=82)
    return out.getvalue()


def told(
    array: npt.NDArray[Any] | None = None, *, shape: tuple[int, ...] = (), kind: np.dtype[Any] | None = None
) -> str:
    """Type, shape, and the range of its values; of an array that is not at hand, what `shape` and `kind` tell."""
    if array is None:
        return f"{kind} {' × '.join(map(str, shape)) or 'number'}"
    words = f"{array.dtype} {' × '.join(map(str, array.shape)) or 'number'}"
    if array.dtype.kind not in "buif" or not array.size:
        return words
    if array.dtype.kind != "f":
        return f"{words}, {number(array.min())} to {number(array.max())}"
    finite = array[np.isfinite(array)]
    ranged = f", {number(float(finite.min()))} to {number(float(finite.max()))}" if finite.size else ""
    odd = array.size - finite.size
    return f"{words}{ranged}" + (f", {odd:,} not finite" if odd else "")


def _sides(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """Height and width."""
    if len(shape) == 2:
        return shape[0], shape[1]
    if len(shape) != 3:
        return None
    if shape[2] in _CHANNELS:
        return shape[0], shape[1]
    return (shape[1], shape[2]) if shape[0] in _CHANNELS else None


def _in_bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    values = array.astype(np.float64)
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros(array.shape, np.uint8)
    low, high = float(values[finite].min()), float(values[finite].max())
    scaled = (np.where(finite, values, low) - low) * (255 / (high - low) if high > low else 0)
    return scaled.astype(np.uint8)
