"""Decoders for `Dataset.map`: images, video, audio, arrays, text. Each is optional: any function of a sample will do.

    ds.map(hr.decode.image(size=224))

A decoder replaces parts of the sample by what their bytes say. It is immutable, pickles, and works on any thread; the
decoding itself lets go of the interpreter's lock.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.base.errors import CorruptError, InputError, UnsupportedError
from headrace.base.parsing import steadily
from headrace.catalog import KEY, GivesKeys, TakesColumns, key_of, keys_of
from headrace.loader import deep_pictures as deep
from headrace.loader.media.audio import Audio, audio
from headrace.loader.media.video import Video, video
from headrace.loader.part_choice import wanted

__all__ = ["Audio", "Example", "Image", "Npy", "Text", "Video", "audio", "example", "image", "npy", "text", "video"]

Mode: TypeAlias = Literal["RGB", "RGBA", "L"]
_Pixels: TypeAlias = "npt.NDArray[np.uint8]"
_IMAGES = frozenset({"jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm", "img", "image"})
_COLOURS = {"RGB": "RGB", "RGBA": "RGBA", "L": "GRAY"}
_MOST_PIXELS = 178_956_970
"""Twice Pillow's own bound against decompression bombs; Pillow refuses above it, too."""


def image(
    *names: str,
    size: int | tuple[int, int] | None = None,
    mode: Mode = "RGB",
    depth: Literal[8] | None = None,
    to: str | None = None,
) -> Image:
    """Images as arrays of shape (height, width, channels), or (height, width) for mode "L"; uint8 unless deeper.

    Args:
        names: the parts to decode; default: all whose name ends in a suffix of images (``jpg``, ``0.png``, ``image``).
        size: (height, width) in pixels of the result, or one number for both: the image is scaled to cover it, its
            shape kept, and cut around its centre. None: as it is.
        mode: "RGB", "RGBA" or "L" (grey).
        depth: 8: uint8 whatever the file holds, its white becoming 255. None: values of more than 8 bits stay as they
            are, with the file's type.
        to: what the array is called, whatever the file's suffix: the samples of a folder of JPEG and PNG files then
            have one name, and stack. For samples of one image. None: it replaces the bytes, under their name.

    | file | array |
    |---|---|
    | up to 8 bits a channel; 1 bit, palette, grey with alpha, CMYK | uint8 |
    | PNG of 16 bits; PGM, PPM above 255 | uint16 |
    | TIFF, grey: 16 or 32 bits, or with a sign | uint16, int16, uint32, int32, float32, int8 |
    | TIFF, RGB and RGBA: 16 bits | uint16 |
    | PFM, grey | float32 |

    Deep grey in mode "RGB" has its value in all three channels. Signed numbers and float32 have no value for white:
    neither ``depth=8`` nor mode "RGBA" is for them. Other deep files, of which Pillow gives 8 bits only (grey with
    alpha, CMYK, JPEG 2000 in colour, AVIF), need ``depth=8``.

    JPEG goes through simplejpeg where that is installed, already scaled down while it is decoded; all else through
    Pillow. The orientation that cameras note (EXIF) is not applied.

    Raises:
        InputError: a size that is not positive, an unknown mode or depth. UnsupportedError: Pillow is not installed.
    """
    if find_spec("PIL") is None:
        raise UnsupportedError("images need Pillow", hint="pip install 'headrace[images]'")
    height, width = (size, size) if isinstance(size, int) else size or (0, 0)
    if size is not None and (height < 1 or width < 1):
        raise InputError(f"size={size!r}", hint="pixels: one number, or (height, width)")
    if mode not in _COLOURS:
        raise InputError(f"mode={mode!r} is not known", hint=f"one of {', '.join(_COLOURS)}")
    if depth not in (None, 8):
        raise InputError(f"depth={depth!r} is not known", hint="8, or None: as deep as the file")
    return Image(names, height, width, mode, depth, to)


def npy(*names: str) -> Npy:
    """``.npy`` files (NumPy's format, versions 1 to 3) as arrays that may be changed.

    `names`: the parts to decode; default: all whose name ends in ``npy``. Pickled objects are refused.
    """
    return Npy(names)


def text(*names: str, encoding: str = "utf-8") -> Text:
    """Text as `str`. `names`: the parts to decode; default: all whose name ends in ``txt`` or ``text``.

    Raises:
        InputError: an unknown encoding.
    """
    try:
        "".encode(encoding)
    except LookupError as error:
        raise InputError(f"encoding={encoding!r} is not known") from error
    return Text(names, encoding)


def example(name: str = "data", *, single: Sequence[str] = ()) -> Example:
    """A serialised ``tf.train.Example`` as its features, without TensorFlow: what most TFRecords hold.

    The part `name` gives way to one part a feature: int64 [n], float32 [n], or a list of n bytes. Features named in
    `single` must hold one value, which then stands for itself: a number, or bytes (for `image`, say). A feature
    ``__key__`` of one text is the sample's key.
    """
    return Example(name, tuple(single))


def sequence_example(name: str = "data", *, single: Sequence[str] = ()) -> SequenceExample:
    """A serialised ``tf.train.SequenceExample`` as its features, without TensorFlow.

    The part `name` gives way to one part a feature of the context, as `example` has it, and one a feature list: an
    array [steps, n] where every step has as many numbers, else a list of what each step holds. Features named in
    `single` hold one value, or one a step: then a list is an array [steps], or a list of bytes. A feature ``__key__``
    of one text, in the context, is the sample's key.
    """
    return SequenceExample(name, tuple(single))


@dataclass(frozen=True, slots=True)
class Image:
    """See `image`. `height`, `width`: 0 where the size is left as it is."""

    names: tuple[str, ...]
    height: int
    width: int
    mode: Mode
    depth: Literal[8] | None = None
    to: str | None = None

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """The sample with arrays for images.

        Raises:
            CorruptError: bytes that are no image. UnsupportedError: one that is deeper than can be kept; see `image`.
            KeyError: a name that the sample has not. InputError: with `to`, a sample of no image or of several.
        """
        found, chosen = dict(sample), list(wanted(sample, self.names, _IMAGES))
        if self.to is not None and len(chosen) != 1:
            raise InputError(
                f"{len(chosen)} images in one sample, and to={self.to!r} is one name",
                path=str(sample.get("__key__", "")),
                hint=f"image(name, to={self.to!r}) says which; without to= each keeps its name",
            )
        for name in chosen:
            array = self.decode(sample[name], path=f"{sample.get('__key__', '')}.{name}")
            if self.to is not None:
                del found[name]
            found[self.to or name] = array
        return found

    def decode(self, data: Any, path: str = "") -> npt.NDArray[Any]:
        """One image's bytes as pixels. Raises CorruptError, UnsupportedError."""
        view = memoryview(data)
        try:
            pixels = self._jpeg(view) if bytes(view[:2]) == b"\xff\xd8" else None
            return self._pillow(view) if pixels is None else pixels
        except UnsupportedError as error:
            raise error.at(path) from None
        except Exception as error:  # Pillow's plug-ins raise what they like
            raise CorruptError(f"no image that can be decoded: {error}", path=path) from error

    def _jpeg(self, data: memoryview) -> _Pixels | None:
        """None: not by simplejpeg."""
        try:
            import simplejpeg
        except ImportError:
            return None
        height, width = map(int, simplejpeg.decode_jpeg_header(data)[:2])
        if height * width > _MOST_PIXELS:
            raise ValueError(f"{width} x {height} pixels are too many")
        low = _covering(height, width, self.height, self.width)
        pixels: _Pixels = simplejpeg.decode_jpeg(
            data, _COLOURS[self.mode], min_height=low[0], min_width=low[1], min_factor=1
        )
        if self.mode == "L":
            pixels = pixels[:, :, 0]
        if not self.height or pixels.shape[:2] == (self.height, self.width):
            return pixels
        import PIL.Image

        return self._fitted(PIL.Image.fromarray(pixels))

    def _pillow(self, data: memoryview) -> npt.NDArray[Any]:
        import PIL.Image

        with PIL.Image.open(io.BytesIO(data)) as opened:
            pixels = self._deep(opened, data)
            if pixels is not None:
                return pixels
            if self.height:
                low = _covering(opened.height, opened.width, self.height, self.width)
                opened.draft(self.mode if self.mode != "RGBA" else "RGB", (low[1], low[0]))
            return self._fitted(opened.convert(self.mode))

    def _deep(self, opened: Any, data: memoryview) -> npt.NDArray[Any] | None:
        """None: not more than 8 bits a channel, or 8 of them will do."""
        try:
            found = deep.read(opened, data)
        except UnsupportedError:
            if self.depth is None:
                raise
            return None
        if found is None:
            return None
        found = found.as_mode(self.mode)
        if self._scales(*found.pixels.shape[:2]):
            found = found.resized(self._scaled)
        return found.pixels if self.depth is None else found.in_8_bits()

    def _fitted(self, picture: Any) -> _Pixels:
        """Scaled to cover the size and cut to it, in one go."""
        if self._scales(picture.height, picture.width):
            picture = self._scaled(picture, reducing_gap=2.0)
        return np.array(picture)

    def _scales(self, height: int, width: int) -> bool:
        return self.height > 0 and (height, width) != (self.height, self.width)

    def _scaled(self, picture: Any, reducing_gap: float | None = None) -> Any:
        import PIL.Image

        scale = min(picture.width / self.width, picture.height / self.height)
        width, height = self.width * scale, self.height * scale
        left, top = (picture.width - width) / 2, (picture.height - height) / 2
        box = (left, top, min(left + width, picture.width), min(top + height, picture.height))
        how = PIL.Image.Resampling.BILINEAR
        return picture.resize((self.width, self.height), how, box=box, reducing_gap=reducing_gap)


@dataclass(frozen=True, slots=True)
class Npy:
    """See `npy`."""

    names: tuple[str, ...]

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """The sample with arrays. Raises CorruptError; KeyError: a name that the sample has not."""
        found = dict(sample)
        for name in wanted(sample, self.names, frozenset({"npy"})):
            found[name] = self.decode(sample[name], path=f"{sample.get('__key__', '')}.{name}")
        return found

    def decode(self, data: Any, path: str = "") -> npt.NDArray[Any]:
        """One array from its bytes. Raises CorruptError."""
        view = memoryview(data).cast("B")
        try:
            shape, fortran, kind, start = self._head(view)
            flat = np.frombuffer(view, kind, math.prod(shape), start)
            flat = flat if flat.flags.writeable else flat.copy()  # nobody may change what was read
            return flat.reshape(shape, order="F" if fortran else "C")
        except Exception as error:  # NumPy reads the header as Python, whose own errors come through
            raise CorruptError(f"not a .npy file: {error}", path=path) from error

    def look(self, data: Any, path: str = "") -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and type of an array, of which the first 64 KiB suffice. Raises CorruptError."""
        try:
            shape, _, kind, _ = self._head(memoryview(data).cast("B"))
        except Exception as error:
            raise CorruptError(f"not a .npy file: {error}", path=path) from error
        return shape, kind

    def _head(self, view: memoryview) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
        """Shape, whether in Fortran order, type, and where the data start. Raises anything."""
        head = io.BytesIO(view[: 1 << 16])
        version = np.lib.format.read_magic(head)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0

        def header() -> Any:
            head.seek(np.lib.format.MAGIC_LEN)
            return read(head)

        shape, fortran, kind = steadily(header)
        if version == (3, 0) and kind.names:  # as version 2, but names of fields are UTF-8
            kind.names = tuple(name.encode("latin-1").decode() for name in kind.names)
        if kind.hasobject:
            raise ValueError("pickled objects are not read")
        return shape, fortran, kind, head.tell()


@dataclass(frozen=True, slots=True)
class Example(TakesColumns, GivesKeys):
    """See `example`."""

    name: str
    single: tuple[str, ...]

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """The sample with features.

        Raises:
            CorruptError: no Example, or one that lacks a value it should hold. KeyError: a name the sample has not.
        """
        from headrace.formats import example as parse

        others = {name: value for name, value in sample.items() if name != self.name}
        try:
            features: dict[str, Any] = dict(parse(sample[self.name]))
            for name in self.single:
                if len(features.get(name, ())) != 1:
                    raise CorruptError(f"feature {name!r} holds {len(features.get(name, ()))} values instead of one")
                features[name] = features[name][0]
        except CorruptError as error:
            raise error.at(f"{sample.get('__key__', '')}.{self.name}") from None
        if KEY in features and KEY in others:
            others[KEY] = key_of(features[KEY], others[KEY])
        return {**features, **others}

    def columns(self, columns: Mapping[str, Any]) -> dict[str, Any] | None:
        """The same for several samples at once; None where that cannot be. Raises as for one."""
        from headrace.formats import examples

        others = {name: values for name, values in columns.items() if name != self.name}
        features: dict[str, Any] | None = examples(columns[self.name])
        if features is None:
            return None
        for name in self.single:
            values = features.get(name, [()])
            if any(len(one) != 1 for one in values):
                return None
            features[name] = [one[0] for one in values]
        if KEY in features and KEY in others:
            others[KEY] = keys_of(features[KEY], others[KEY])
        return {**features, **others}

    def may_name(self) -> bool:
        """See `GivesKeys.may_name`."""
        return True


@dataclass(frozen=True, slots=True)
class SequenceExample(GivesKeys):
    """See `sequence_example`."""

    name: str
    single: tuple[str, ...]

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """The sample with features.

        Raises:
            CorruptError: no SequenceExample, one that has a name twice, or lacks a value it should hold. KeyError: a
                name the sample has not.
        """
        from headrace.formats import sequence, stacked

        others = {name: value for name, value in sample.items() if name != self.name}
        try:
            found = sequence(sample[self.name])
            twice = next((name for name in found.context if name in found.steps), None)
            if twice is not None:
                raise CorruptError(f"{twice!r} is a feature of the context, and a feature list")
            features: dict[str, Any] = {name: self._one(name, value) for name, value in found.context.items()}
            for name, steps in found.steps.items():
                features[name] = stacked([self._one(name, value) for value in steps])
            missing = next((name for name in self.single if name not in features), None)
            if missing is not None:
                raise CorruptError(f"has no feature {missing!r}")
        except CorruptError as error:
            raise error.at(f"{sample.get(KEY, '')}.{self.name}") from None
        if KEY in features and KEY in others:
            others[KEY] = key_of(features[KEY], others[KEY])
        return {**features, **others}

    def may_name(self) -> bool:
        """See `GivesKeys.may_name`."""
        return True

    def _one(self, name: str, value: Any) -> Any:
        if name not in self.single:
            return value
        if len(value) != 1:
            raise CorruptError(f"feature {name!r} holds {len(value)} values instead of one")
        return value[0]


@dataclass(frozen=True, slots=True)
class Text:
    """See `text`."""

    names: tuple[str, ...]
    encoding: str

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """The sample with strings. Raises CorruptError; KeyError: a name that the sample has not."""
        found = dict(sample)
        for name in wanted(sample, self.names, frozenset({"txt", "text"})):
            try:
                found[name] = str(sample[name], self.encoding)
            except UnicodeDecodeError as error:
                path = f"{sample.get('__key__', '')}.{name}"
                raise CorruptError(f"not {self.encoding} at byte {error.start}", path=path) from error
        return found


def _covering(height: int, width: int, least_height: int, least_width: int) -> tuple[int, int]:
    """The smallest (height, width) of that shape that covers the size; (0, 0) where there is none to cover."""
    if not least_height or not height or not width:
        return 0, 0
    scale = max(least_height / height, least_width / width)
    return min(height, int(np.ceil(height * scale))), min(width, int(np.ceil(width * scale)))
