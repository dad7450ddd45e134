"""`hr.decode`: what the decoders make of bytes, and what they say of bytes that are none of theirs."""

from __future__ import annotations

import contextlib
import io
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import headrace as hr
from headrace.base.errors import CorruptError, InputError


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


@pytest.mark.parametrize("given_", [{"size": 0}, {"size": (3, -1)}, {"mode": "CMYK"}])
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
