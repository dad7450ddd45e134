"""A stream of a video or sound file, opened by PyAV: of bytes, or of an object that is read where PyAV looks."""

from __future__ import annotations

import io
from collections.abc import Generator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from headrace.base.errors import CorruptError, HeadraceError, UnsupportedError
from headrace.catalog import StoredObject

if TYPE_CHECKING:
    from av.container import InputContainer

MOST_PIXELS: Final = 1 << 26
"""Of a frame, twice those of 8K: a damaged file may ask for any number, and a decoder takes memory before it looks."""
_UNTIMED: Final = 0x80
"""FFmpeg's AVFMT_NOTIMESTAMPS, as of H.264 without a container."""
Kind: TypeAlias = Literal["video", "audio"]
_MICROSECONDS: Final = 1_000_000  # PyAV's unit where it is no stream's
_GUESSED: Final = frozenset({"aac", "h264", "hevc", "mp3", "mpeg", "mpegts"})
"""Formats whose files do not say how long they are: PyAV reckons it from their size."""


class Opened(NamedTuple):
    """One stream of an open file. Times are in seconds; `origin` is what the file counts from, 0 for whoever asks.

    `unit`: seconds of one tick of the stream. `end`: when it ends, as its header says; None: it does not say. `exact`:
    whether that is said of this very stream.
    """

    container: InputContainer
    stream: Any
    origin: float
    unit: float
    end: float | None
    exact: bool

    def seek(self, time: float) -> bool:
        """Go on from the last place at or before `time` where decoding can begin. False: this file cannot be sought."""
        from av.error import FFmpegError

        if self.container.format.flags & _UNTIMED:
            return False
        ticks = int((max(time, 0.0) + self.origin) / self.unit)
        try:
            self.container.seek(max(ticks, self.stream.start_time or 0), stream=self.stream)
        except FFmpegError:
            return False
        return True


def check_installed() -> None:
    """Raises UnsupportedError: PyAV is not installed."""
    if find_spec("av") is None:
        raise UnsupportedError("video and audio need PyAV", hint="pip install 'headrace[media]'")


@contextmanager
def opened(value: Any, kind: Kind, path: str) -> Generator[Opened]:
    """The first stream of that kind. `value`: bytes, or a `StoredObject`; `path`: for messages.

    Raises, also for what goes wrong while it is open:
        CorruptError: no such file, or no such stream in it. UnsupportedError: nothing here decodes it. What reading
        the object raises.
    """
    import av

    try:
        source = value.open() if isinstance(value, StoredObject) else io.BytesIO(memoryview(value))
        # What a file tells of itself may be in any encoding. PyAV 19 and later do not mind.
        lenient: dict[str, Any] = {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}
        with closing(source), av.open(source, "r", **lenient) as container:
            yield _stream(container, kind)
    except HeadraceError as error:
        raise error.at(path) from None
    except Exception as error:  # what PyAV raises are OSErrors, ValueErrors and others
        said = getattr(error, "strerror", None) or error
        raise CorruptError(f"no {kind} that can be decoded: {said}", path=path) from error


def _stream(container: InputContainer, kind: Kind) -> Opened:
    stream: Any = next((one for one in container.streams if one.type == kind), None)
    if stream is None:
        held = ", ".join(f"{one.type} ({_codec(one)})" for one in container.streams) or "nothing that is known"
        raise CorruptError(f"holds no {kind}, but {held}", hint="name the parts that do: hr.decode.video('mp4', …)")
    if stream.codec_context is None:
        raise UnsupportedError(
            f"PyAV has no decoder for its {kind}, {_codec(stream)}", hint="convert it, or build PyAV with that codec"
        )
    stream.codec_context.thread_count = 1  # samples are what is decoded side by side
    if kind == "video":
        stream.codec_context.options = {"max_pixels": str(MOST_PIXELS)}
    for other in container.streams:
        if other is not stream:
            _leave_out(other)
    origin = (container.start_time or 0) / _MICROSECONDS
    unit = float(stream.time_base)
    end = _end_of(stream, origin, unit)
    exact = end is not None and container.format.name not in _GUESSED
    if end is None and container.duration is not None:
        end = container.duration / _MICROSECONDS
    return Opened(container, stream, origin, unit, end, exact)


def _leave_out(stream: Any) -> None:
    """Do not read what is not asked for, where PyAV can (from 18 on)."""
    import av.stream

    kinds = getattr(av.stream, "Discard", None)
    if kinds is not None:
        stream.discard = kinds.all


def _codec(stream: Any) -> str:
    """What a stream is coded in, as far as anybody knows."""
    return stream.codec_context.name if stream.codec_context is not None else "an unknown codec"


def _end_of(stream: Any, origin: float, unit: float) -> float | None:
    """When a stream ends, where the file says it of this one: Matroska does so in a tag."""
    if stream.duration is not None:
        return ((stream.start_time or 0) + stream.duration) * unit - origin
    hours, *rest = stream.metadata.get("DURATION", "").split(":")
    try:
        minutes, seconds = rest
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    except ValueError:
        return None
