"""`hr.decode.video`: frames of videos as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from headrace.base.errors import CorruptError, InputError
from headrace.catalog import KEY
from headrace.loader.media.container import MOST_PIXELS, check_installed, opened
from headrace.loader.media.frame_reader import Frame, FrameReader
from headrace.loader.part_choice import wanted

if TYPE_CHECKING:
    from av import VideoFrame

_Pixels: TypeAlias = "npt.NDArray[np.uint8]"
_VIDEOS: Final = frozenset({"mp4", "m4v", "mov", "mkv", "webm", "avi", "mpg", "mpeg", "ts", "ogv", "video"})


def video(
    *names: str,
    frames: int | Sequence[float] | None = None,
    every: float | None = None,
    size: int | tuple[int, int] | None = None,
) -> Video:
    """Frames of videos: uint8 of shape (frames, height, width, 3), in RGB, through PyAV.

    A part ``mp4`` gives way to its frames, and ``mp4.times`` beside it says when each of them begins: float64
    (frames,), in seconds from the file's beginning. Of an object that is opened lazily (``Dataset.open(lazy=)``) only
    what lies around the frames asked for is read.

    Args:
        names: the parts to decode; default: all whose name ends in a suffix of videos (``mp4``, ``mkv``, ``webm`` …).
        frames: a number: so many, each from the middle of one of as many equal stretches. Times in seconds: the frame
            that is shown at each. None, without `every`: all of them.
        every: seconds from one frame to the next, from 0 on.
        size: (height, width) in pixels of the result, or one number for both: frames are scaled to cover it, their
            shape kept, and cut around their centre. None: as they are.

    The rotation that cameras note is not applied. One thread decodes one video.

    Raises:
        InputError: `frames` and `every` together, numbers that are not positive. UnsupportedError: PyAV is not
        installed.
    """
    check_installed()
    if frames is not None and every is not None:
        raise InputError("frames= and every= together", hint="one of them")
    if every is not None and not (every > 0 and math.isfinite(every)):
        raise InputError(f"every={every!r}", hint="seconds, more than 0")
    if isinstance(frames, int) and frames < 1:
        raise InputError(f"frames={frames!r}", hint="at least 1, or times in seconds")
    times = None if frames is None or isinstance(frames, int) else tuple(map(float, frames))
    if times is not None and not (times and all(time >= 0 and math.isfinite(time) for time in times)):
        raise InputError(f"frames={frames!r}", hint="times in seconds from the beginning, or a number of frames")
    height, width = (size, size) if isinstance(size, int) else size or (0, 0)
    if size is not None and (height < 1 or width < 1):
        raise InputError(f"size={size!r}", hint="pixels: one number, or (height, width)")
    return Video(names, frames if isinstance(frames, int) else None, times, every, height, width)


@dataclass(frozen=True, slots=True)
class Video:
    """See `video`. `height`, `width`: 0 where the size is left as it is."""

    names: tuple[str, ...]
    count: int | None
    times: tuple[float, ...] | None
    every: float | None
    height: int
    width: int

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """The sample with frames for videos.

        Raises:
            CorruptError: no video, or one that breaks off. InputError: a time after its end. UnsupportedError: there
            is no decoder for it. KeyError: a name that the sample has not. What reading an object raises.
        """
        found = dict(sample)
        for name in wanted(sample, self.names, _VIDEOS):
            found[name], found[f"{name}.times"] = self.decode(sample[name], path=f"{sample.get(KEY, '')}.{name}")
        return found

    def decode(self, data: Any, path: str = "") -> tuple[_Pixels, npt.NDArray[np.float64]]:
        """Frames and their times. `data`: bytes, or a `StoredObject`. Raises as the call."""
        with opened(data, "video", path) as file:
            reader, painter = FrameReader(file), _Painter(self.height, self.width)
            made = [(painter.pixels(frame.picture), max(0.0, frame.time)) for frame in self._frames(reader)]
        places = self._places() if self.times is not None else range(len(made))
        pixels = np.empty((len(places), *made[0][0].shape), np.uint8)
        for at, place in enumerate(places):
            pixels[at] = made[place][0]
        return pixels, np.array([made[place][1] for place in places], np.float64)

    def _frames(self, reader: FrameReader) -> Iterator[Frame]:
        """By rising times; times asked for twice once."""
        if self.times is not None:
            return map(reader.at, sorted(set(self.times)))
        if self.count is not None:
            step = reader.end() / self.count
            return (reader.at((number + 0.5) * step) for number in range(self.count))
        if self.every is not None:
            every = self.every
            return (reader.at(number * every) for number in range(max(1, math.ceil(reader.end() / every - 1e-9))))
        return reader.all()

    def _places(self) -> list[int]:
        """Of each time asked for, among those that are decoded."""
        order = {time: place for place, time in enumerate(sorted(set(self.times or ())))}
        return [order[time] for time in self.times or ()]


class _Painter:
    """Frames as arrays of one shape. One thread, one video."""

    def __init__(self, height: int, width: int) -> None:
        from av.video.reformatter import VideoReformatter

        self._height, self._width = height, width
        self._reformatter = VideoReformatter()
        self._shape: tuple[int, int] | None = None

    def pixels(self, frame: VideoFrame) -> _Pixels:
        """(height, width, 3). Raises CorruptError: of another shape than those before."""
        height, width = frame.height, frame.width
        if not self._height:
            shape = self._shape = self._shape or (height, width)
            if shape != (height, width):
                reason = f"its frames change their size from {shape} to {(height, width)} pixels"
                raise CorruptError(reason, hint="size=(height, width) makes them alike")
        else:
            scale = max(self._height / height, self._width / width)
            height, width = max(self._height, round(height * scale)), max(self._width, round(width * scale))
            if height * width > MOST_PIXELS:
                raise CorruptError(f"has frames of {frame.height} x {frame.width} pixels: too long and narrow to scale")
        rgb = self._reformatter.reformat(frame, width, height, "rgb24", interpolation="BILINEAR", threads=1)
        pixels = cast("_Pixels", rgb.to_ndarray())
        if self._height:
            top, left = (pixels.shape[0] - self._height) // 2, (pixels.shape[1] - self._width) // 2
            pixels = pixels[top : top + self._height, left : left + self._width]
        return pixels
