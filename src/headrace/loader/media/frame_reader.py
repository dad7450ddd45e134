"""Frames of a video at chosen times, by as little decoding and reading as the file's index allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.base.errors import CorruptError, InputError
from headrace.loader.media.container import Opened

if TYPE_CHECKING:
    from av import VideoFrame

_HAIR: Final = 1e-6
"""Seconds by which times may differ that are meant to be the same."""
_WALK: Final = 1.0
"""Seconds ahead that are decoded rather than sought, where the file has no index to tell."""
_SLACK: Final = 0.25
"""Seconds that a video may be shorter than the end it states."""
_LOOSE: Final = 2.0
"""The same where the end is that of the whole file: its sound may be longer."""


class Frame(NamedTuple):
    """`time`: when it begins, in seconds from the file's beginning."""

    picture: VideoFrame
    time: float


class FrameReader:
    """The frames of one video, asked for by rising times, in seconds from its beginning. One thread."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._length = 1 / float(opened.stream.average_rate) if opened.stream.average_rate else 0.0
        self._coming = self._decoded()
        self._shown: Frame | None = None
        self._ahead: Frame | None = None

    def end(self) -> float:
        """When the video ends. A file that does not say it is read through for it, and sought back.

        Raises CorruptError.
        """
        opened = self._opened
        if opened.end is not None:
            return opened.end
        packets: Iterator[Any] = opened.container.demux(opened.stream)
        stops = [(one.pts + (one.duration or 0)) * opened.unit for one in packets if one.pts is not None]
        if not stops or not opened.seek(0):
            raise CorruptError("does not say how long it is", hint="frames=[seconds, …] asks for frames by their times")
        self._coming = self._decoded()
        return max(stops) - opened.origin

    def at(self, time: float) -> Frame:
        """The frame that is shown at `time`: the last that begins by then, or the first one.

        Raises:
            InputError: the video ends before. CorruptError: it ends before it should.
        """
        end = self._opened.end
        if end is not None and time >= end:
            raise _too_late(time, end)
        if self._is_worth_seeking(time):
            self._seek(time)
        following = self._peek()
        while following is not None and (self._shown is None or following.time <= time + _HAIR):
            self._shown, self._ahead = following, None
            following = self._peek()
        if self._shown is None:
            raise CorruptError("holds no frame that can be decoded")
        if following is None:
            self._check_end(time, self._shown)
        return self._shown

    def all(self) -> Iterator[Frame]:
        """All frames, in their order. Raises CorruptError: the video ends before it should."""
        last = None
        for last in self._decoded():
            yield last
        if last is None:
            raise CorruptError("holds no frame that can be decoded")
        if self._opened.end is not None:
            self._check_end(self._opened.end - _HAIR, last)

    def _decoded(self) -> Iterator[Frame]:
        """What is decoded from here on."""
        opened, time = self._opened, -self._length
        frames: Iterator[VideoFrame] = opened.container.decode(opened.stream)
        for one in frames:
            time = time + self._length if one.pts is None else one.pts * opened.unit - opened.origin
            yield Frame(one, time)

    def _peek(self) -> Frame | None:
        if self._ahead is None:
            self._ahead = next(self._coming, None)
        return self._ahead

    def _is_worth_seeking(self, time: float) -> bool:
        """Whether decoding can begin anew between here and there."""
        opened = self._opened
        here = self._shown.time if self._shown is not None else 0.0
        index = getattr(opened.stream, "index_entries", ())
        if len(index) < 2:  # Matroska's is read by the first seek
            return time - here > _WALK
        found = index.search_timestamp(int((time + opened.origin) / opened.unit))
        return found > 0 and index[found].timestamp * opened.unit - opened.origin > here + _HAIR

    def _seek(self, time: float) -> None:
        # An index tells when a frame is decoded, which may be before it is shown: then the frame at `time` belongs to
        # what comes before.
        back = 0.0
        while self._opened.seek(time - back):
            self._coming, self._shown, self._ahead = self._decoded(), None, None
            first = self._peek()
            if time <= back or (first is not None and first.time <= time + _HAIR):
                return
            back = max(_WALK, 2 * back)

    def _check_end(self, time: float, last: Frame) -> None:
        """Whether it is right that nothing comes behind `last`."""
        stop = last.time + ((last.picture.duration or 0) * self._opened.unit or self._length)
        stated = self._opened.end
        if stated is None:
            if time >= stop + _HAIR:
                raise _too_late(time, stop)
        elif time > stop + (_SLACK if self._opened.exact else _LOOSE):
            reason = f"breaks off after {stop:.3g} s, and should have {stated:.3g} s"
            raise CorruptError(reason, hint="cut off when it was copied? Copy it again")


def _too_late(time: float, end: float) -> InputError:
    hint = "frames=8 or every= spread them over each video as it is; on_error= leaves out what is too short"
    return InputError(f"ends after {end:.3g} s: it shows nothing at {time:.3g} s", hint=hint)
