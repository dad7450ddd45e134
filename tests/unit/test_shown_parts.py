"""Arrays and sounds as people look at them."""

from __future__ import annotations

import io
import struct
import wave

import numpy as np
import pytest
from PIL import Image

from headrace.base.errors import CorruptError
from headrace.loader.shown.arrays_shown import array_picture, is_picture, told
from headrace.loader.shown.showing import BEGINNING, bytes_needed, picture_of, shown_part, small_picture
from headrace.loader.shown.sounds import look_at_wave, media_type, peaks, wave_picture


def saved(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def sound(values: list[int], width: int = 2, channels: int = 1, rate: int = 8000) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        shift = 128 if width == 1 else 0  # of one byte they have no sign
        file.writeframes(b"".join((value + shift).to_bytes(width, "little", signed=width > 1) for value in values))
    return out.getvalue()


@pytest.mark.parametrize(
    ("shape", "kind", "expected"),
    [((64, 48), "u1", True), ((64, 48), "f4", True), ((64, 48, 3), "f8", True), ((3, 64, 48), "f4", True),
     ((1, 64, 48), "?", True), ((64, 48, 4), "u1", True), ((64,), "u1", False), ((64, 48, 5), "u1", False),
     ((4, 64), "u1", False), ((1000, 8), "u1", False), ((64, 48), "c8", False), ((64, 48), "U3", False),
     ((100_000, 100_000), "u1", False), ((2, 3, 64, 64), "u1", False)],
)  # fmt: skip
def test_what_has_the_shape_of_a_picture(shape: tuple[int, ...], kind: str, expected: bool) -> None:
    assert is_picture(shape, np.dtype(kind)) is expected


@pytest.mark.parametrize("shape", [(64, 48), (64, 48, 3), (3, 64, 48), (64, 48, 1), (64, 48, 4)])
@pytest.mark.parametrize("kind", ["u1", "i2", "f2", "f4", "?"])
def test_arrays_are_drawn(shape: tuple[int, ...], kind: str) -> None:
    array = np.linspace(0, 1 if kind == "?" else 200, num=int(np.prod(shape))).reshape(shape).astype(kind)
    with Image.open(io.BytesIO(array_picture(array, 32, ""))) as made:
        assert (made.format, made.size) == ("JPEG", (24, 32))


def test_what_is_not_finite_is_black_and_told() -> None:
    array = np.ones((16, 16), np.float32)
    array[:8] = np.nan
    array[8:12] = np.inf
    array[15] = 3
    with Image.open(io.BytesIO(array_picture(array, 16, ""))) as made:
        pixels = np.asarray(made.convert("L"), np.float64)
    assert pixels[0].mean() < 10
    assert pixels[15].mean() > 240
    assert told(array) == "float32 16 × 16, 1 to 3, 192 not finite"
    array_picture(np.full((16, 16), np.nan), 16, "")
    with pytest.raises(CorruptError, match="no picture"):
        array_picture(np.zeros((3, 3)), 16, "")


def test_a_large_array_is_told_from_its_beginning() -> None:
    data = saved(np.zeros((3000, 3000), np.float32))
    assert bytes_needed("x.npy", len(data)) == BEGINNING
    part = shown_part("x.npy", data[:BEGINNING], len(data))
    assert (part.kind, part.text, part.picture, part.size) == ("array", "float32 3000 × 3000", True, len(data))
    small = saved(np.arange(5))
    assert bytes_needed("npy", len(small)) == len(small)
    assert shown_part("npy", small).text == "int64 5, 0 to 4"
    assert shown_part("npy", b"\x93NUMPY but no more").kind in ("bytes", "text")


def test_names_and_first_bytes_say_what_is_an_image() -> None:
    assert bytes_needed("jpg", 5_000_000) == 0
    assert shown_part("data", b"\x89PNG\r\n\x1a\n....").picture
    assert not shown_part("svg", b"<svg/>").picture


def test_a_text_that_goes_on_is_said_to() -> None:
    assert not shown_part("txt", b"short").cut
    assert shown_part("txt", b"x" * 3000).cut
    assert shown_part("txt", b"x" * 1000, 10**9).cut


@pytest.mark.parametrize(
    ("head", "kind"),
    [(sound([0, 1]), "audio/wav"), (b"fLaC\0\0\0\x22", "audio/flac"), (b"OggS\0\x02", "audio/ogg"),
     (b"ID3\x04\0", "audio/mpeg"), (b"\xff\xfb\x90\x64", "audio/mpeg"), (b"\xff\xf3\x44\xc4", "audio/mpeg"),
     (b"\xff\xff\xff\xff", None), (b"\xff\xd8\xff\xe0", None), (b"<html>", None), (b"", None), (b"RIFF....AVI ", None)],
)  # fmt: skip
def test_the_kind_of_a_sound_is_told_by_its_bytes(head: bytes, kind: str | None) -> None:
    assert media_type(head[:16]) == kind


@pytest.mark.parametrize(("size", "made"), [((8, 8), (160, 160)), ((28, 21), (140, 105)), ((90, 40), (90, 40))])
def test_few_pixels_are_seen_one_by_one(size: tuple[int, int], made: tuple[int, int]) -> None:
    """As squares of one colour: a browser would blur a picture that is enlarged by it."""
    picture = Image.new("L", size)
    picture.putpixel((1, 0), 255)
    data = io.BytesIO()
    picture.save(data, "PNG")
    with Image.open(io.BytesIO(small_picture(data.getvalue(), "where"))) as small:
        assert small.size == made
        times = made[0] // size[0]
        row = [int(small.convert("L").getpixel((x * times + times // 2, times // 2))) for x in range(3)]
    assert row[1] > 150
    if times > 4:
        assert row[1] > 230
        assert max(row[0], row[2]) < 25


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_the_peaks_of_a_sound(width: int) -> None:
    top = (1 << (8 * width - 1)) - 1
    data = sound([0, top, -top, 0, 0, 0, top // 2, 0], width)
    low, high = peaks(data, 2, "")
    assert low == pytest.approx([-1, 0], abs=0.01)
    assert high == pytest.approx([1, 0.5], abs=0.01)


def test_sounds_are_told_and_drawn() -> None:
    data = sound([0, 20_000, -20_000, 5] * 4000, channels=2)
    assert str(look_at_wave(data[:100])) == "1 s, 8,000 Hz, 2 channels"
    part = shown_part("wav", data[:BEGINNING], len(data))
    assert (part.kind, part.picture, part.size) == ("sound", True, len(data))
    with Image.open(io.BytesIO(picture_of(part, data, ""))) as made:
        assert (made.format, made.size) == ("JPEG", (160, 80))
    assert shown_part("wav", b"no sound").kind == "text"
    for bad in (b"RIFF....WAVE", data[:44], data[:20] + struct.pack("<H", 9) + data[22:], b""):
        with pytest.raises(CorruptError):
            wave_picture(bad, 160, "")
