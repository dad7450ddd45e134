"""Pictures of more than 8 bits a channel, which Pillow would cut to 8 on the way to "RGB" or "L".

What a file holds is kept, with its own type. Pillow holds such values of one channel only; of three or four it gives
one byte each, so those of 16 bits are decoded twice: once for the upper bytes and once for the lower ones.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.base.errors import UnsupportedError

_Pixels: TypeAlias = "npt.NDArray[Any]"
_PNM = re.compile(rb"P([2356])" + rb"(?:\s|#[^\n]*\n)+(\d+)" * 3 + rb"(?:#[^\n]*\n)*\s")
_TIFF_KINDS = {(1, 32): np.uint32, (2, 16): np.int16, (2, 32): np.int32}
"""Types by (SampleFormat, BitsPerSample), where Pillow has one mode, of int32, for all of them."""
_BITS, _FORMAT = 258, 339  # TIFF's tags BitsPerSample and SampleFormat
_OTHER_BYTE = {"16B": "16L", "16L": "16B", "16N": "16B" if sys.byteorder == "little" else "16L"}
_RAW_16 = re.compile(r";16[BLN]|SGI16")  # not "BGR;16", which is 16 bits a pixel
_DECODERS = ("zip", "raw", "libtiff")
"""Of PNG, TIFF and others: they heed the byte order they are told."""
_LUMA = np.array([0.299, 0.587, 0.114])


@dataclass(frozen=True, slots=True, eq=False)
class Deep:
    """`pixels`: [height, width], or [height, width, 3 or 4], of the file's type. `white`: the value that stands for
    it; 0 where the file does not say (signed numbers and fractions).
    """

    pixels: _Pixels
    white: int

    def as_mode(self, mode: str) -> Deep:
        """With the channels of mode "L", "RGB" or "RGBA". Raises UnsupportedError."""
        pixels = self.pixels
        if mode == "L":
            if pixels.ndim == 3:
                pixels = np.rint(pixels[:, :, :3] @ _LUMA).astype(pixels.dtype)
            return replace(self, pixels=pixels)
        if pixels.ndim == 2:
            pixels = np.repeat(pixels[:, :, None], 3, axis=2)
        if mode == "RGB":
            return replace(self, pixels=np.ascontiguousarray(pixels[:, :, :3]))
        if pixels.shape[2] == 3:
            pixels = np.concatenate([pixels, self._opaque(pixels)], axis=2)
        return replace(self, pixels=pixels)

    def _opaque(self, pixels: _Pixels) -> _Pixels:
        if not self.white:
            raise UnsupportedError(f"{pixels.dtype} pixels have no value for opaque", hint='mode="RGB" or "L"')
        return np.full((*pixels.shape[:2], 1), self.white, pixels.dtype)

    def resized(self, resize: Callable[[Any], Any]) -> Deep:
        """`resize` takes and returns one channel as Pillow's picture, of int32 or float32."""
        pixels = self.pixels
        if pixels.ndim == 2:
            return replace(self, pixels=_resized(pixels, resize))
        if pixels.shape[2] == 3:
            return replace(self, pixels=np.stack([_resized(pixels[:, :, one], resize) for one in range(3)], axis=2))
        # What is transparent must not colour its neighbours.
        share = pixels[:, :, 3].astype(np.float32) / self.white
        alpha = _resized(share, resize)
        colours = [_resized(pixels[:, :, one] * share, resize) / np.maximum(alpha, 1e-9) for one in range(3)]
        found = np.rint(np.clip(np.stack([*colours, alpha * self.white], axis=2), 0, self.white))
        return replace(self, pixels=found.astype(pixels.dtype))

    def in_8_bits(self) -> npt.NDArray[np.uint8]:
        """White becomes 255. Raises UnsupportedError."""
        if not self.white:
            raise UnsupportedError(
                f"{self.pixels.dtype} pixels have no value for white, so they cannot be scaled to 8 bits",
                hint="leave depth=8 away, and scale them yourself",
            )
        return np.rint(np.minimum(self.pixels / self.white, 1) * 255).astype(np.uint8)


def read(opened: Any, data: memoryview) -> Deep | None:
    """What `opened` (a `PIL.Image.Image`, nothing of which was decoded) holds; None: what uint8 can hold.

    Raises:
        UnsupportedError: more, and Pillow gives no more than 8 of them. Whatever Pillow raises.
    """
    if opened.format == "PPM" and (found := _netpbm(data)) is not None:
        return found
    if opened.mode.startswith("I;16"):
        pixels = np.asarray(opened).astype(np.uint16)
        return Deep(pixels, _white_of(opened, pixels))
    if opened.mode == "I":
        pixels = _of_its_kind(opened)
        return Deep(pixels, _white_of(opened, pixels))
    if opened.mode == "F":
        return Deep(np.array(opened, np.float32), 0)
    if opened.format == "TIFF" and opened.mode == "L" and opened.tag_v2.get(_FORMAT, (1,))[0] == 2:
        return Deep(np.array(opened).view(np.int8), 0)
    if any(_RAW_16.search(raw) for raw in _raw_modes(opened)):
        return _both_bytes(opened, data)
    if _bits_claimed(opened, data) > 8:
        raise _too_deep(opened)
    return None


def _netpbm(data: memoryview) -> Deep | None:
    """PGM and PPM: Pillow would stretch the values of one to 65535, and cut those of the other."""
    head = _PNM.match(bytes(data[:4096]))
    if head is None:
        return None
    kind, width, height, white = map(int, head.groups())
    if not 255 < white < 65536:
        return None
    shape = (height, width) if kind in (2, 5) else (height, width, 3)
    count = int(np.prod(shape))
    if kind in (5, 6):
        values = np.frombuffer(data, ">u2", count, head.end()).astype(np.uint16)
    else:
        plain = re.sub(rb"#[^\n]*", b"", bytes(data[head.end() :])).split(maxsplit=count)[:count]
        values = np.array(plain, dtype=np.uint32).astype(np.uint16)
    return Deep(values.reshape(shape), white)


def _of_its_kind(opened: Any) -> _Pixels:
    """Values that Pillow holds as int32, as the file has them."""
    pixels = np.array(opened, np.int32)
    if opened.format == "PNG":
        return pixels.astype(np.uint16)
    if opened.format == "TIFF":
        tags = opened.tag_v2
        kind = _TIFF_KINDS.get((tags.get(_FORMAT, (1,))[0], tags[_BITS][0]), np.int32)
        return pixels.view(np.uint32) if kind is np.uint32 else pixels.astype(kind)
    return pixels


def _white_of(opened: Any, pixels: _Pixels) -> int:
    if pixels.dtype.kind != "u":
        return 0
    bits = opened.tag_v2[_BITS][0] if opened.format == "TIFF" else 16
    return (1 << bits) - 1


def _both_bytes(opened: Any, data: memoryview) -> Deep:
    """Colour of 16 bits. Pillow takes the upper byte of each; told the other byte order, it takes the lower one."""
    import PIL.Image

    tiles = list(opened.tile)
    others = [_with_other_byte(tile, opened.mode) for tile in tiles]
    if opened.mode not in ("RGB", "RGBA") or any(other is None for other in others):
        raise _too_deep(opened)
    with PIL.Image.open(io.BytesIO(data)) as again:
        again.tile = others
        low = np.asarray(again).astype(np.uint16)
    return Deep(np.asarray(opened).astype(np.uint16) << 8 | low, 65535)


def _with_other_byte(tile: Any, mode: str) -> Any:
    """None: there is no such way."""
    name, box, offset, args = tile
    raw = args if isinstance(args, str) else args[0]
    base, _, order = raw.partition(";")
    if name not in _DECODERS or base != mode or order not in _OTHER_BYTE:
        return None
    other = f"{base};{_OTHER_BYTE[order]}"
    changed = other if isinstance(args, str) else (other, *args[1:])
    return tile._replace(args=changed) if hasattr(tile, "_replace") else (name, box, offset, changed)


def _raw_modes(opened: Any) -> list[str]:
    """What the file's pixels are called, beside the decoders' names."""
    found: list[str] = []
    for name, _, _, args in getattr(opened, "tile", ()):
        found.append(name)
        found += [one for one in (args if isinstance(args, (tuple, list)) else [args]) if isinstance(one, str)]
    return found


def _bits_claimed(opened: Any, data: memoryview) -> int:
    """Bits a channel by the file's own word, where Pillow does not tell."""
    if opened.format == "JPEG2000":
        at = bytes(data[:65536]).find(b"\xff\x4f\xff\x51")
        return (data[at + 42] & 0x7F) + 1 if at >= 0 else 0
    if opened.format == "AVIF":
        head = bytes(data[:65536])
        at = head.find(b"pixi")
        return head[at + 9] if at >= 0 else 0
    return 0


def _too_deep(opened: Any) -> UnsupportedError:
    return UnsupportedError(
        f"a picture ({opened.format}, {opened.mode}) of more than 8 bits a channel, of which Pillow gives 8",
        hint="depth=8 takes those; or decode it yourself",
    )


def _resized(channel: _Pixels, resize: Callable[[Any], Any]) -> _Pixels:
    import PIL.Image

    kind = channel.dtype
    if kind.kind == "f":
        return np.array(resize(PIL.Image.fromarray(channel.astype(np.float32))))
    middle = 1 << 31 if kind == np.uint32 else 0  # Pillow's whole numbers have a sign
    found = resize(PIL.Image.fromarray((channel.astype(np.int64) - middle).astype(np.int32)))
    return (np.array(found).astype(np.int64) + middle).astype(kind)
