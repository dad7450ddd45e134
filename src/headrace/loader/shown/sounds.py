"""Sounds as pages show them: of which kind bytes really are, how long a sound is, and its waveform as a picture.

Sources: RFC 2361 and Microsoft's multimedia data standards update (RIFF WAVE), RFC 9639 (FLAC), RFC 3533 (Ogg),
ISO/IEC 11172-3 (frames of MPEG audio), id3.org's ID3v2.4.0.
"""

from __future__ import annotations

import io
import wave
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headrace.base.errors import CorruptError

SOUND_SUFFIXES: Final = frozenset({"wav", "flac", "mp3", "ogg", "oga", "opus"})
SOUND_HEAD: Final = 16
"""Bytes by which the kind of a sound is told."""
MOST_SOUND: Final = 64 << 20
"""Bytes: of a longer one no waveform is drawn."""
_WIDTHS: Final = {1: 8, 2: 16, 3: 24, 4: 32}


@dataclass(frozen=True, slots=True)
class Wave:
    """What the head of a WAV file says. `rate`: samples a second of each channel."""

    seconds: float
    rate: int
    channels: int

    def __str__(self) -> str:
        channels = "1 channel" if self.channels == 1 else f"{self.channels} channels"
        return f"{self.seconds:.3g} s, {self.rate:,} Hz, {channels}"


def media_type(head: bytes) -> str | None:
    """Of a sound by its first `SOUND_HEAD` bytes, whatever it is called; None: a browser may not be given these."""
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return "audio/wav"
    if head[:4] == b"fLaC":
        return "audio/flac"
    if head[:4] == b"OggS":
        return "audio/ogg"
    return "audio/mpeg" if head[:3] == b"ID3" or _is_layer_3(head) else None


def look_at_wave(head: bytes) -> Wave | None:
    """Of a WAV file, of which some hundred bytes suffice; None: it is none, or no plain PCM."""
    try:
        with wave.open(io.BytesIO(head)) as file:
            rate = file.getframerate()
            return Wave(file.getnframes() / rate, rate, file.getnchannels()) if rate else None
    except (wave.Error, EOFError, ValueError, RuntimeError):
        return None


def peaks(data: Any, columns: int, where: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """The least and the largest value of a WAV file in each of so many stretches, all channels together, -1 to 1.

    Raises CorruptError: it is no plain PCM, or too long.
    """
    if len(data) > MOST_SOUND:
        raise CorruptError(f"a sound of {len(data):,} bytes is too long to be drawn", path=where)
    try:
        with wave.open(io.BytesIO(data)) as file:
            width, channels = file.getsampwidth(), file.getnchannels()
            frames = _numbers(file.readframes(file.getnframes()), width, channels)
    except (wave.Error, EOFError, ValueError, RuntimeError, KeyError) as error:
        raise CorruptError(f"is no sound that can be drawn: {error}", path=where) from error
    if not len(frames):
        raise CorruptError("is a sound of no length", path=where)
    starts = np.linspace(0, len(frames), min(columns, len(frames)), endpoint=False).astype(np.int64)
    low, high = frames.min(1), frames.max(1)
    return np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)


def wave_picture(data: Any, side: int, where: str) -> bytes:
    """The waveform as a JPEG of `side` pixels a side. Raises as `peaks`; ImportError: Pillow is not installed."""
    from PIL import Image, ImageDraw

    low, high = peaks(data, side, where)
    image = Image.new("RGB", (side, side // 2), "white")
    pen = ImageDraw.Draw(image)
    middle = side / 4
    for at, (least, most) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        pen.line([(at, middle - most * (middle - 2)), (at, middle - least * (middle - 2))], fill="#0b6bcb")
    out = io.BytesIO()
    image.save(out, "JPEG", quality=82)
    return out.getvalue()


def _numbers(frames: bytes, width: int, channels: int) -> npt.NDArray[np.float32]:
    """Samples as [frames, channels], -1 to 1. Raises KeyError: of no known width."""
    bits = _WIDTHS[width]
    whole = len(frames) // (width * channels) * width * channels
    raw = np.frombuffer(frames, np.uint8, whole)
    if width == 1:
        values = raw.astype(np.float32) - 128
    elif width == 3:
        padded = np.zeros((whole // 3, 4), np.uint8)
        padded[:, 1:] = raw.reshape(-1, 3)
        values = padded.view("<i4")[:, 0].astype(np.float32) / 256
    else:
        values = raw.view(f"<i{width}").astype(np.float32)
    return (values / float(1 << (bits - 1))).reshape(-1, channels)


def _is_layer_3(head: bytes) -> bool:
    """Whether these begin a frame of MPEG audio, layer III: a sync word, and no field that is reserved."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return False
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bitrate, rate = head[2] >> 4, head[2] >> 2 & 3
    return version != 1 and layer == 1 and bitrate not in (0, 15) and rate != 3
