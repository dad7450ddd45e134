"""Films and sounds, made by PyAV, whose content says where one is: frame n is grey of value 5 n, sounds are sines."""

from __future__ import annotations

import io
import tempfile
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import av
import numpy as np

RATE = 24
"""Frames a second."""
STEP = 5
"""Greyer from one frame to the next."""
TONE = 440
"""Hz."""


@cache
def film(
    kind: str = "mp4", codec: str = "mpeg4", *, seconds: float = 2.0, sound: bool = False, front: bool = False
) -> bytes:
    """64 x 64 pixels, a frame every 1/24 s, one in twelve of which can be decoded by itself. `front`: MP4's index is
    before its frames.
    """
    with tempfile.TemporaryDirectory() as folder:  # the index is moved by reading the file once more
        path = Path(folder, f"film.{kind}")
        with av.open(str(path), "w", options={"movflags": "+faststart"} if front else {}) as container:
            _paint(container, codec, round(seconds * RATE), sing=sound)
        return path.read_bytes()


def _paint(container: Any, codec: str, frames: int, *, sing: bool) -> None:
    stream: Any = container.add_stream(codec, rate=RATE)
    stream.width = stream.height = 64
    stream.pix_fmt, stream.codec_context.gop_size, stream.codec_context.thread_count = "yuv420p", 12, 1
    if codec in ("h264", "mpeg2video"):
        stream.codec_context.max_b_frames = 2
    stream.bit_rate = 8_000_000  # so that greys stay apart
    tone = container.add_stream("aac", rate=16_000, layout="mono") if sing else None
    for number in range(frames):
        frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), number * STEP, np.uint8), format="rgb24")
        frame.pts = number
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))
    if tone is not None:
        _sing(container, tone, frames / RATE, 16_000, 1)


@cache
def sound(kind: str = "wav", codec: str = "pcm_s16le", *, seconds: float = 2.0, rate: int = 48_000) -> bytes:
    """Two channels, the second of half the loudness."""
    out = io.BytesIO()
    with av.open(out, "w", format=kind) as container:
        _sing(container, container.add_stream(codec, rate=rate, layout="stereo"), seconds, rate, 2)
    return out.getvalue()


def tone_at(times: Any) -> Any:
    """What is heard on the first channel."""
    return 0.5 * np.sin(2 * np.pi * TONE * np.asarray(times))


def _sing(container: Any, stream: Any, seconds: float, rate: int, channels: int) -> None:
    one = tone_at(np.arange(round(seconds * rate)) / rate)
    both = np.stack([one, one / 2][:channels], axis=1)
    frame = av.AudioFrame.from_ndarray(
        (both * 32767).round().astype(np.int16).reshape(1, -1), format="s16", layout=stream.layout.name
    )
    frame.sample_rate, frame.pts = rate, 0
    container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def long_film(path: Path, size: int, *, front: bool = False) -> None:
    """A film of about `size` bytes of noise: MP4 or Matroska, by the name of `path`. `front` as of `film`."""
    packets = _noise()
    with av.open(str(path), "w", options={"movflags": "+faststart"} if front else {}) as container:
        stream: Any = container.add_stream("mjpeg", rate=RATE)
        stream.width = stream.height = 256
        stream.pix_fmt = "yuvj420p"
        for number in range(size // len(packets[0])):
            packet: Any = av.Packet(packets[number % len(packets)])
            packet.stream, packet.time_base, packet.is_keyframe = stream, Fraction(1, RATE), True
            packet.pts = packet.dts = number
            packet.duration = 1
            container.mux(packet)


@cache
def _noise() -> list[bytes]:
    """Some frames, each by itself."""
    stream: Any = av.CodecContext.create("mjpeg", "w")
    stream.width = stream.height = 256
    stream.pix_fmt, stream.time_base, stream.bit_rate = "yuvj420p", Fraction(1, RATE), 50_000_000
    noise = np.random.default_rng(0)
    found: list[bytes] = []
    for number in range(4):
        frame = av.VideoFrame.from_ndarray(noise.integers(0, 255, (384, 256), dtype=np.uint8), format="yuvj420p")
        frame.pts = number
        found += [bytes(packet) for packet in stream.encode(frame)]
    return found
