"""Sounds: how long, samples a second, and channels, by their heads (of Ogg also by the last page); and a player.

Sources: as of `loader.shown.sounds`; the Vorbis I specification, 4.2.2; RFC 7845 (Opus in Ogg), 5.1; RFC 9639, 8.2
(FLAC); ISO/IEC 11172-3, 2.4.2.3, and ISO/IEC 13818-3 (frames of MPEG audio); Xing's header with the number of frames.
"""

from __future__ import annotations

import struct
import wave
from collections.abc import Callable
from typing import Final

from headrace.base.errors import CorruptError
from headrace.loader import SOUND_HEAD, SOUND_SUFFIXES, media_type
from headrace.web.previews.preview import Kind, Made, Preview, facts
from headrace.web.previews.source import Source

_READ: Final = 64 << 10  # bytes of the end: a page of Ogg has fewer (RFC 3533)
_OPUS_RATE: Final = 48_000  # samples a second, in which Opus counts whatever it was made of (RFC 7845)
_RATES: Final = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
"""By the two bits of a frame's version: MPEG 1, 2, 2.5."""
_BITRATES: Final = {
    True: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    False: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""Kilobits a second of layer III; True: of MPEG 1."""
_Heard = tuple[float | None, int, int]
"""Seconds (None: not told), samples a second, channels."""


def _make(source: Source) -> Made:
    kind = media_type(bytes(source.read(0, SOUND_HEAD)))
    if kind is None:
        raise CorruptError("does not begin as any that can be played", path=source.path)
    try:
        seconds, rate, channels = _LOOKS[kind](source)
    except (wave.Error, EOFError, ValueError, IndexError, RuntimeError, struct.error) as error:
        notes = (f"What its head says cannot be told: {error or 'it is cut off'}.",)
        return Made(Preview("sound", facts(format=kind), notes, sound=True))
    told = facts(
        format=kind, duration=None if seconds is None else _duration(seconds), rate=f"{rate:,} Hz", channels=channels
    )
    return Made(Preview("sound", told, sound=True))


def _wave(source: Source) -> _Heard:
    with wave.open(source.file()) as file:
        return file.getnframes() / file.getframerate(), file.getframerate(), file.getnchannels()


def _flac(source: Source) -> _Heard:
    """Of STREAMINFO, which comes first: 20 bits of rate, 3 of channels, 5 of depth, 36 of samples."""
    (packed,) = struct.unpack_from(">Q", bytes(source.read(0, 26)), 18)
    rate, channels, samples = packed >> 44, (packed >> 41 & 7) + 1, packed & ((1 << 36) - 1)
    if not rate:
        raise ValueError("it has no rate")
    return samples / rate if samples else None, rate, channels


def _ogg(source: Source) -> _Heard:
    """Of the head of its first stream, and the place of its last page."""
    head = bytes(source.read(0, 512))
    tail = bytes(source.read(source.size - _READ, source.size))
    last = tail.rfind(b"OggS")
    (end,) = struct.unpack_from("<q", tail, last + 6) if last >= 0 else (-1,)
    if (at := head.find(b"OpusHead")) >= 0:
        channels, skipped = struct.unpack_from("<BH", head, at + 9)
        return (max(0, end - skipped) / _OPUS_RATE if end >= 0 else None), _OPUS_RATE, channels
    if (at := head.find(b"\x01vorbis")) >= 0:
        channels, rate = struct.unpack_from("<BI", head, at + 11)
        if not rate:
            raise ValueError("it has no rate")
        return (end / rate if end >= 0 else None), rate, channels
    raise ValueError("its first stream is neither Vorbis nor Opus")


def _mpeg(source: Source) -> _Heard:
    """Of its first frame: as many as the encoder's own head in it says, else as if all had its bit rate."""
    start = 0
    head = bytes(source.read(0, 10))
    if head[:3] == b"ID3":  # four times seven bits
        start = 10 + sum((one & 0x7F) << 7 * (3 - at) for at, one in enumerate(head[6:10]))
    frame = bytes(source.read(start, start + 256))
    if len(frame) < 4 or frame[0] != 0xFF or frame[1] & 0xE0 != 0xE0:
        raise ValueError("no frame follows its tags")
    version, layer = frame[1] >> 3 & 3, frame[1] >> 1 & 3
    if version == 1 or layer != 1 or frame[2] >> 4 in (0, 15) or frame[2] >> 2 & 3 == 3:
        raise ValueError("its first frame is none of layer III")
    rate, channels = _RATES[version][frame[2] >> 2 & 3], 1 if frame[3] >> 6 == 3 else 2
    samples = 1152 if version == 3 else 576
    marks = (frame.find(b"Xing"), frame.find(b"Info"))
    if (at := max(marks)) >= 0 and frame[at + 7] & 1:
        (frames,) = struct.unpack_from(">I", frame, at + 8)
        return frames * samples / rate, rate, channels
    bits = _BITRATES[version == 3][frame[2] >> 4] * 1000
    return (source.size - start) * 8 / bits, rate, channels


def _duration(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes):,} min {rest:.0f} s" if minutes else f"{rest:.3g} s"


_LOOKS: Final[dict[str, Callable[[Source], _Heard]]] = {
    "audio/wav": _wave, "audio/flac": _flac, "audio/ogg": _ogg, "audio/mpeg": _mpeg,
}  # fmt: skip
KIND = Kind(
    "sound",
    tuple(f".{one}" for one in sorted(SOUND_SUFFIXES)),
    ((8, b"WAVE"), (0, b"fLaC"), (0, b"OggS"), (0, b"ID3")),
    _make,
)
