"""`hr.decode`: what the decoders make of bytes, and what they say of bytes that are none of theirs."""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import headrace as hr
from headrace.base.errors import CorruptError, InputError, UnsupportedError
from headrace.loader import deep_pictures as deep


def _picture(height: int, width: int, kind: str = "PNG", mode: str = "RGB") -> bytes:
    """Red on the left, green on the right; smooth, so that JPEG keeps it."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, :, 0] = np.linspace(255, 0, width).astype(np.uint8)
    pixels[:, :, 1] = np.linspace(0, 255, width).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, kind, **({"quality": 95} if kind == "JPEG" else {}))
    return out.getvalue()


def _tried(work: Callable[[], Any]) -> tuple[Any, CorruptError | None]:
    """What came of it, and the error, if it was one that bad bytes may end in; any other goes on."""
    try:
        return work(), None
    except CorruptError as error:
        return None, error


@pytest.fixture(params=["as installed", "Pillow alone"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "Pillow alone":
        monkeypatch.setitem(sys.modules, "simplejpeg", None)


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("size", [None, 32, (20, 50), (300, 10), (400, 500)])
def test_an_image_has_the_size_asked_for_and_its_content_in_place(kind: str, size: Any) -> None:
    sample = {"__key__": "a", "image": memoryview(_picture(120, 200, kind)), "label": b"3"}
    found = hr.decode.image(size=size)(sample)
    pixels = found["image"]
    height, width = (120, 200) if size is None else (size, size) if isinstance(size, int) else size
    assert pixels.shape == (height, width, 3)
    assert pixels.dtype == np.uint8
    middle = pixels[height // 2, width // 2].astype(int)
    assert np.abs(middle - [127, 127, 0]).max() < 20, "the centre stays the centre"
    assert pixels[0, 0, 0] >= pixels[0, -1, 0]
    assert found["label"] == b"3"
    assert sample["image"] is not pixels


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize(("mode", "shape"), [("RGB", (9, 8, 3)), ("L", (9, 8)), ("RGBA", (9, 8, 4))])
@pytest.mark.parametrize("stored", ["RGB", "L"])
def test_modes(mode: Any, shape: tuple[int, ...], stored: str) -> None:
    for kind in ("PNG", "JPEG"):
        assert hr.decode.image(mode=mode)({"x.png": _picture(9, 8, kind, stored)})["x.png"].shape == shape


# Deeper than 8 bits

_GREY = (np.arange(20 * 30).reshape(20, 30) * 100 + 7).astype(np.uint16)  # upper and lower bytes of all kinds
_COLOUR = np.stack([_GREY, _GREY[::-1], _GREY[:, ::-1]], axis=2)
_ALPHA = np.concatenate([_COLOUR, _GREY[:, :, None]], axis=2)


def _png(pixels: np.ndarray[Any, Any], colour: int) -> bytes:
    """16 bits a channel. `colour`: PNG's colour type."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 16, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def _tiff(pixels: np.ndarray[Any, Any], order: str = "<", *, photometric: int = 1, packed: bool = False) -> bytes:
    """One strip, deflated if `packed`."""
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    data = pixels.astype(pixels.dtype.newbyteorder(order)).tobytes()  # pyright: ignore[reportArgumentType]
    data = zlib.compress(data) if packed else data
    kind = {"u": 1, "i": 2, "f": 3}[pixels.dtype.kind]
    values: dict[int, tuple[str, list[int]]] = {
        256: ("I", [pixels.shape[1]]),
        257: ("I", [pixels.shape[0]]),
        258: ("H", [pixels.dtype.itemsize * 8] * channels),
        259: ("H", [8 if packed else 1]),
        262: ("H", [photometric]),
        273: ("I", [0]),
        277: ("H", [channels]),
        278: ("I", [pixels.shape[0]]),
        279: ("I", [len(data)]),
        **({338: ("H", [2])} if channels == 4 and photometric == 2 else {}),
        339: ("H", [kind] * channels),
    }
    behind = 8 + 2 + 12 * len(values) + 4
    more = b"".join(
        struct.pack(order + form * len(some), *some)
        for form, some in values.values()
        if struct.calcsize(form) * len(some) > 4
    )
    values[273] = ("I", [behind + len(more)])
    entries, at = b"", behind
    for tag, (form, some) in values.items():
        packed_values = struct.pack(order + form * len(some), *some)
        entries += struct.pack(order + "HHI", tag, {"H": 3, "I": 4}[form], len(some))
        if len(packed_values) > 4:
            entries += struct.pack(order + "I", at)
            at += len(packed_values)
        else:
            entries += packed_values.ljust(4, b"\0")
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HIH", 42, 8, len(values))
    return head + entries + bytes(4) + more + data


def _pnm(kind: int, pixels: np.ndarray[Any, Any], white: int) -> bytes:
    head = f"P{kind}\n# a comment\n{pixels.shape[1]} {pixels.shape[0]}\n{white}\n".encode()
    plain = " ".join(map(str, pixels.ravel().tolist())).encode()
    return head + (pixels.astype(">u2").tobytes() if kind > 4 else plain)


_WIDE = {
    "int8": (_GREY >> 5).astype(np.int8),
    "int16": _GREY.astype(np.int16),
    "uint32": _GREY * np.uint32(70_000),
    "int32": _GREY * np.int32(-30_000),
}
_FLOAT = (_GREY / np.float32(7)).astype(np.float32)
_DEEP: dict[str, tuple[bytes, np.ndarray[Any, Any]]] = {
    "PNG grey": (_png(_GREY, 0), _GREY),
    "PNG RGB": (_png(_COLOUR, 2), _COLOUR),
    "PNG RGBA": (_png(_ALPHA, 6), _ALPHA),
    "PGM": (_pnm(5, _GREY, 65535), _GREY),
    "PGM of 10 bits": (_pnm(5, _GREY % 1024, 1023), _GREY % 1024),
    "PGM plain": (_pnm(2, _GREY, 65535), _GREY),
    "PPM": (_pnm(6, _COLOUR, 65535), _COLOUR),
    "PPM plain": (_pnm(3, _COLOUR, 65535), _COLOUR),
    "PFM": (b"Pf\n30 20\n-1.0\n" + _FLOAT[::-1].tobytes(), _FLOAT),
    "TIFF grey deflated": (_tiff(_GREY, packed=True), _GREY),
    "TIFF RGB deflated": (_tiff(_COLOUR, photometric=2, packed=True), _COLOUR),
    **{f"TIFF grey {order}": (_tiff(_GREY, order), _GREY) for order in "<>"},
    **{f"TIFF RGB {order}": (_tiff(_COLOUR, order, photometric=2), _COLOUR) for order in "<>"},
    **{f"TIFF RGBA {order}": (_tiff(_ALPHA, order, photometric=2), _ALPHA) for order in "<>"},
    **{f"TIFF {name}": (_tiff(values), values) for name, values in _WIDE.items()},
    **{f"TIFF float32 {order}": (_tiff(_FLOAT, order), _FLOAT) for order in "<>"},
}


@pytest.mark.parametrize("name", _DEEP)
def test_deep_pictures_keep_their_values_and_their_type(name: str) -> None:
    data, stored = _DEEP[name]
    channels = stored if stored.ndim == 3 else np.repeat(stored[:, :, None], 3, axis=2)
    found = hr.decode.image().decode(data)
    assert found.dtype == stored.dtype
    np.testing.assert_array_equal(found, channels[:, :, :3])
    grey = hr.decode.image(mode="L").decode(data)
    assert (grey.dtype, grey.shape) == (stored.dtype, (20, 30))
    if stored.ndim == 2:
        np.testing.assert_array_equal(grey, stored)
    else:
        np.testing.assert_allclose(grey, stored[:, :, :3] @ [0.299, 0.587, 0.114], atol=1)


@pytest.mark.parametrize("name", _DEEP)
def test_deep_pictures_are_scaled_in_their_own_type(name: str) -> None:
    data, stored = _DEEP[name]
    found = hr.decode.image(size=10, mode="L").decode(data)
    middle = stored[:, 5:25].astype(float) if stored.ndim == 2 else stored[:, 5:25, :3] @ [0.299, 0.587, 0.114]
    assert (found.dtype, found.shape) == (stored.dtype, (10, 10))
    assert abs(found.mean() - middle.mean()) < 0.02 * np.ptp(middle)
    assert hr.decode.image(size=(40, 60)).decode(data).shape == (40, 60, 3)


@pytest.mark.parametrize("name", _DEEP)
def test_deep_pictures_become_8_bits_where_that_is_asked_for(name: str) -> None:
    data, stored = _DEEP[name]
    decode = hr.decode.image(mode="L" if stored.ndim == 2 else "RGBA" if stored.shape[2] == 4 else "RGB", depth=8)
    if stored.dtype.kind != "u":
        with pytest.raises(UnsupportedError, match="no value for white"):
            decode.decode(data)
        return
    white = 1023 if "10 bits" in name else np.iinfo(stored.dtype).max
    found = decode.decode(data)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, np.rint(stored / white * 255))


def test_deep_pictures_with_alpha() -> None:
    np.testing.assert_array_equal(hr.decode.image(mode="RGBA").decode(_DEEP["PNG RGBA"][0]), _ALPHA)
    opaque = hr.decode.image(mode="RGBA").decode(_DEEP["PNG grey"][0])
    assert (opaque[:, :, 3] == 65535).all()
    clear = _ALPHA.copy()
    clear[:, :15] = (60_000, 0, 0, 0)
    clear[:, 15:] = (0, 500, 0, 65_535)
    small = hr.decode.image(mode="RGBA", size=(2, 3)).decode(_png(clear, 6))
    assert small[:, 1, 0].max() == 0, "what is transparent colours nothing"
    assert np.abs(small[:, 1, 1].astype(int) - 500).max() <= 1
    with pytest.raises(UnsupportedError, match="no value for opaque"):
        hr.decode.image(mode="RGBA").decode(_DEEP["TIFF int32"][0])


def _jpeg2000(bits: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(out, "JPEG2000")
    data = bytearray(out.getvalue())
    at = data.index(b"\xff\x4f\xff\x51") + 42
    for channel in range(3):
        data[at + 3 * channel] = bits - 1
    return bytes(data)


_TOO_DEEP = {
    "PNG grey with alpha": _png(_ALPHA[:, :, :2], 4),
    "TIFF CMYK": _tiff(_ALPHA, photometric=5),
    "JPEG 2000": _jpeg2000(12),
}


@pytest.mark.parametrize("name", _TOO_DEEP)
def test_what_is_deeper_than_can_be_kept_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"a/1\.png: .* more than 8 bits a channel.*depth=8"):
        hr.decode.image()({"__key__": "a/1", "png": _TOO_DEEP[name]})
    found = hr.decode.image(depth=8)({"__key__": "a/1", "png": _TOO_DEEP[name]})["png"]
    assert (found.dtype, found.shape[2]) == (np.uint8, 3)


@pytest.mark.parametrize("bits", [8, 10, 12])
def test_what_an_avif_says_of_its_bits(bits: int) -> None:
    """A stand-in: Pillow writes none of more than 8."""
    out = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(out, "AVIF")
    data = bytearray(out.getvalue())
    at = data.index(b"pixi") + 9
    data[at : at + 3] = bytes([bits] * 3)
    opened = SimpleNamespace(format="AVIF", mode="RGB", tile=[])
    if bits == 8:
        assert deep.read(opened, memoryview(data)) is None
    else:
        with pytest.raises(UnsupportedError, match="AVIF, RGB"):
            deep.read(opened, memoryview(data))


@pytest.mark.parametrize("depth", [None, 8])
@pytest.mark.parametrize(
    ("kind", "mode"),
    [("PNG", "1"), ("PNG", "P"), ("PNG", "LA"), ("PNG", "RGBA"), ("BMP", "1"), ("BMP", "P"), ("GIF", "P"), ("PPM", "L"),
     ("TIFF", "1"), ("TIFF", "P"), ("TIFF", "LA"), ("TIFF", "CMYK"), ("JPEG", "CMYK"),
     ("JPEG2000", "RGB"), ("AVIF", "RGB")],
)  # fmt: skip
def test_up_to_8_bits_a_channel_is_uint8(kind: str, mode: str, depth: Any) -> None:
    for wanted, shape in (("RGB", (8, 8, 3)), ("RGBA", (8, 8, 4)), ("L", (8, 8))):
        out = io.BytesIO()
        Image.fromarray(np.full((8, 8, 3), 255, np.uint8)).convert(mode).save(out, kind)
        found = hr.decode.image(mode=wanted, depth=depth).decode(out.getvalue())
        assert (found.dtype, found.shape) == (np.uint8, shape)
        assert found.min() >= 253


def test_a_deep_picture_cut_short_is_corrupt() -> None:
    for data in (_DEEP["PNG RGB"][0], _DEEP["PPM"][0], _DEEP["PPM plain"][0], _DEEP["TIFF RGB <"][0]):
        with pytest.raises(CorruptError, match="k"):
            hr.decode.image().decode(data[: len(data) // 2], "k")


def test_simplejpeg_and_pillow_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("simplejpeg")
    data = _picture(120, 200, "JPEG")
    quick = hr.decode.image().decode(data).astype(int)
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    assert np.abs(hr.decode.image().decode(data).astype(int) - quick).mean() < 2


def test_named_parts_only() -> None:
    sample = {"__key__": "k", "left.png": _picture(4, 5), "right.png": _picture(6, 7)}
    found = hr.decode.image("right.png")(sample)
    assert found["right.png"].shape == (6, 7, 3)
    assert found["left.png"] == sample["left.png"]
    with pytest.raises(KeyError):
        hr.decode.image("middle.png")(sample)


def test_one_name_for_images_of_several_kinds() -> None:
    decode = hr.decode.image(size=4, to="image")
    for name in ("png", "JPG"):
        found = decode({"__key__": "k", name: _picture(4, 5), "class": 1})
        assert sorted(found) == ["__key__", "class", "image"]
        assert found["image"].shape == (4, 4, 3)
    pair = {"__key__": "a/k", "left.png": _picture(4, 5), "right.png": _picture(6, 7)}
    assert sorted(hr.decode.image("right.png", to="image")(pair)) == ["__key__", "image", "left.png"]
    for odd in (pair, {"__key__": "a/k", "txt": b""}):
        with pytest.raises(InputError, match="images in one sample") as caught:
            decode(odd)
        assert caught.value.path == "a/k"


@pytest.mark.parametrize("given_", [{"size": 0}, {"size": (3, -1)}, {"mode": "CMYK"}, {"depth": 16}])
def test_wrong_wishes_are_refused_when_made(given_: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        hr.decode.image(**given_)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["JPEG", "PNG", ""]), st.integers(0, 400), st.booleans())
def test_bytes_that_are_no_image_are_named(noise: bytes, kind: str, cut: int, scaled: bool) -> None:
    """Also such as begin like one."""
    data = (_picture(20, 20, kind)[:cut] if kind else b"") + noise
    decode = hr.decode.image(size=8 if scaled else None)
    pixels, error = _tried(lambda: decode({"__key__": "a/1", "jpg": data})["jpg"])
    assert error.path == "a/1.jpg" if error is not None else pixels.ndim == 3


def test_an_image_that_claims_to_be_huge_is_refused() -> None:
    data = bytearray(_picture(16, 16, "JPEG"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(CorruptError):
        hr.decode.image().decode(bytes(data))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f4", ">i2", "?", "<c16"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_arrays_come_back_as_they_were(order: Any, kind: str, version: tuple[int, int]) -> None:
    array = np.asarray(np.arange(24).reshape(2, 3, 4) % 2, dtype=kind, order=order)
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    found = hr.decode.npy()({"x.npy": memoryview(out.getvalue()), "y": b"n"})
    np.testing.assert_array_equal(found["x.npy"], array)
    assert found["x.npy"].dtype == array.dtype
    assert found["y"] == b"n"


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 200), st.integers(0, 255), st.integers(0, 300))
def test_damaged_arrays_are_named_or_read(at: int, value: int, cut: int) -> None:
    out = io.BytesIO()
    np.save(out, np.arange(16, dtype=np.int32))
    data = bytearray(out.getvalue())
    data[at % len(data)] = value
    found, error = _tried(lambda: hr.decode.npy().decode(bytes(data[:cut]), "k.npy"))
    assert error.path == "k.npy" if error is not None else isinstance(found, np.ndarray)


def test_names_of_fields_may_be_any_text() -> None:
    array = np.zeros(3, dtype=[("größe", "<i4"), ("東", "<f8")])
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=(3, 0))
    assert hr.decode.npy().decode(out.getvalue()).dtype == array.dtype


def test_an_array_that_claims_to_be_huge_is_refused() -> None:
    for version in ((1, 0), (2, 0), (3, 0)):
        out = io.BytesIO()
        np.lib.format.write_array(out, np.zeros((10**3,), np.uint8), version=version)
        huge = out.getvalue().replace(b"(1000,), }" + b" " * 12, b"(1000000000000000,), }")
        assert huge != out.getvalue()
        with pytest.raises(CorruptError):
            hr.decode.npy().decode(huge)


def test_pickled_objects_are_refused() -> None:
    out = io.BytesIO()
    np.save(out, np.asarray([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(CorruptError):
        hr.decode.npy().decode(out.getvalue())


def test_text() -> None:
    sample = {"__key__": "k", "txt": memoryview("grün".encode()), "0.text": b"x", "png": b"y"}
    assert hr.decode.text()(sample) == {"__key__": "k", "txt": "grün", "0.text": "x", "png": b"y"}
    with pytest.raises(CorruptError, match=r"k\.txt"):
        hr.decode.text()({"__key__": "k", "txt": b"\xff"})
    with pytest.raises(InputError):
        hr.decode.text(encoding="utf-99")


@pytest.mark.parametrize("one", [hr.decode.image("a", size=3), hr.decode.npy(), hr.decode.text("b")])
def test_decoders_pickle(one: Any) -> None:
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize("where", ["thread", "process"])
def test_a_loader_decodes_and_names_what_it_cannot(tmp_path: Path, where: Any) -> None:
    for number in range(12):
        (tmp_path / f"{number:02d}.png").write_bytes(_picture(40, 30) if number != 7 else b"\x89PNG, but no more")
        (tmp_path / f"{number:02d}.txt").write_text(str(number))
    ds = hr.Dataset.open(tmp_path.as_uri()).map(hr.decode.image(size=16), threads=2, on_error=hr.Skip(max_count=1))
    with contextlib.closing(ds.map(hr.decode.text()).batch(4).loader(where=where)) as loader:
        batches = list(loader)
        assert [name for batch in batches for name in batch["txt"]] == [str(n) for n in range(12) if n != 7]
        assert all(batch["png"].shape[1:] == (16, 16, 3) for batch in batches)
        assert [skipped.key for skipped in loader.ledger] == ["07"]
