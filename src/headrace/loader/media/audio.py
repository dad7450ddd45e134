"""`hr.decode.audio`: sounds as arrays of samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from headrace.base.errors import CorruptError, InputError
from headrace.catalog import KEY
from headrace.loader.media.container import Opened, check_installed, opened
from headrace.loader.part_choice import wanted

_Sound: TypeAlias = "npt.NDArray[np.float32]"
_SOUNDS: Final = frozenset({"wav", "flac", "mp3", "ogg", "oga", "opus", "m4a", "aac", "aif", "aiff", "audio"})
_PREROLL: Final = 0.25
"""Seconds decoded before a start: what a codec makes of the first it sees, and a filter of its edge, is not heard."""
_SLACK: Final = 0.25
"""Seconds that a sound may be shorter than the end it states."""


def audio(
    *names: str, rate: int | None = None, start: float = 0.0, seconds: float | None = None
) -> Audio:
    """Sounds, also those of videos: float32 of shape (channels, samples), between -1 and 1, through PyAV.

    A part ``wav`` gives way to its samples, and ``wav.rate`` beside it is how many there are in a second. Of an object
    that is opened lazily (``Dataset.open(lazy=)``) only what lies around the stretch asked for is read.

    Args:
        names: the parts to decode; default: all whose name ends in a suffix of sounds (``wav``, ``flac``, ``mp3`` …).
            A sample's video is named: ``hr.decode.audio("mp4")``.
        rate: samples a second of the result; None: as the file has them.
        start: seconds from the file's beginning that are left out.
        seconds: how many are taken, fewer where the sound ends before; None: to its end.

    Raises:
        InputError: numbers that are not positive. UnsupportedError: PyAV is not installed.
    """
    check_installed()
    if rate is not None and rate < 1:
        raise InputError(f"rate={rate!r}", hint="samples a second, such as 16_000")
    if not (start >= 0 and math.isfinite(start)):
        raise InputError(f"start={start!r}", hint="seconds from the beginning")
    if seconds is not None and not (seconds > 0 and math.isfinite(seconds)):
        raise InputError(f"seconds={seconds!r}", hint="more than 0, or None: to the end")
    return Audio(names, rate, start, seconds)


@dataclass(frozen=True, slots=True)
class Audio:
    """See `audio`."""

    names: tuple[str, ...]
    rate: int | None
    start: float
    seconds: float | None

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """The sample with arrays for sounds.

        Raises:
            CorruptError: no sound, or one that breaks off. InputError: it ends before `start`. UnsupportedError: there
            is no decoder for it. KeyError: a name that the sample has not. What reading an object raises.
        """
        found = dict(sample)
        for name in wanted(sample, self.names, _SOUNDS):
            found[name], found[f"{name}.rate"] = self.decode(sample[name], path=f"{sample.get(KEY, '')}.{name}")
        return found

    def decode(self, data: Any, path: str = "") -> tuple[_Sound, int]:
        """Samples, and how many there are in a second. `data`: bytes, or a `StoredObject`. Raises as the call."""
        with opened(data, "audio", path) as file:
            rate = self.rate or int(file.stream.rate)
            return self._stretch(file, rate), rate

    def _stretch(self, file: Opened, rate: int) -> _Sound:
        begin = round(self.start * rate)
        stop = None if self.seconds is None else begin + round(self.seconds * rate)
        if self.start and file.end is not None and file.exact and self.start >= file.end:
            raise _too_late(self.start, file.end)
        if self.start:
            file.seek(self.start - _PREROLL)
        pieces = list[_Sound]()
        first = at = 0
        for place, piece in _resampled(file, rate):
            if not pieces:
                first = at = place
            pieces.append(piece)
            at += piece.shape[1]
            if stop is not None and at >= stop:
                break
        else:
            _check_end(file, at / rate, stop and stop / rate)
        if not pieces or (at <= begin and self.start):
            raise _too_late(self.start, at / rate)
        made = np.concatenate(pieces, axis=1)
        return np.ascontiguousarray(made[:, max(0, begin - first) : stop and stop - first])


def _resampled(file: Opened, rate: int) -> Iterator[tuple[int, _Sound]]:
    """(where it begins, samples), both in samples of `rate`, one decoded frame after the other."""
    import av

    # All channels in one plane: PyAV (18) reads beyond its memory where there are more than eight planes.
    resampler = av.AudioResampler(format="flt", layout=file.stream.layout, rate=rate)
    frames: Iterator[Any] = file.container.decode(file.stream)
    for frame in chain(frames, [None]):  # None: what the filter still holds
        for made in resampler.resample(frame):
            place = 0 if made.time is None else round((made.time - file.origin) * rate)
            yield place, cast("_Sound", made.to_ndarray()).reshape(made.samples, -1).T


def _too_late(start: float, end: float) -> InputError:
    reason = f"ends after {end:.3g} s: nothing is heard from {start:.3g} s on"
    return InputError(reason, hint="a smaller start; on_error= leaves out what is too short")


def _check_end(file: Opened, heard: float, wanted_end: float | None) -> None:
    """Whether it is right that nothing comes behind. Times in seconds."""
    if file.end is None or not file.exact:
        return
    due = file.end if wanted_end is None else min(file.end, wanted_end)
    if heard < due - _SLACK:
        reason = f"breaks off after {heard:.3g} s, and should have {file.end:.3g} s"
        raise CorruptError(reason, hint="cut off when it was copied? Copy it again")
