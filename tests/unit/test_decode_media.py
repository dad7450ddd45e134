"""`hr.decode.video`, `hr.decode.audio`: which frames and samples come, what is read, what is said of bad files."""

from __future__ import annotations

import io
import pickle
import secrets
import sys
import threading
import time
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.base.errors import BadSampleError, ChangedError, CorruptError, InputError, UnsupportedError
from headrace.fetch import default_fetcher
from headrace.loader.epoch_part import Source, Stretch
from headrace.store import open_store
from tests.media_kit import RATE, STEP, film, long_film, sound, tone_at
from tests.tar_kit import tar_of

FILMS = [("mp4", "h264"), ("mkv", "mpeg4"), ("ts", "mpeg2video"), ("webm", "libvpx")]
"""An index of times at which frames are decoded, not shown; one that is read late; none at all."""


def seen(pixels: Any) -> list[int]:
    """The numbers of frames, by how grey they are."""
    return np.rint(pixels[:, 8:24, 8:24].mean(axis=(1, 2, 3)) / STEP).astype(int).tolist()


@pytest.mark.parametrize(("kind", "codec"), FILMS)
def test_the_frame_that_is_shown_at_each_time_comes(kind: str, codec: str) -> None:
    sample = {"__key__": "a", kind: film(kind, codec), "label": b"3"}
    for asked, want in [
        ({"frames": 4}, [6, 18, 30, 42]),
        ({"frames": [1.99, 0.3, 0.3, 0.52, 0.0]}, [47, 7, 7, 12, 0]),
        ({"every": 0.5}, [0, 12, 24, 36]),
        ({}, list(range(48))),
    ]:
        found = hr.decode.video(**asked)(sample)
        assert found["label"] == b"3"
        assert found[kind].dtype == np.uint8
        assert seen(found[kind]) == want
        np.testing.assert_allclose(found[f"{kind}.times"], np.array(want) / RATE, atol=1e-3)  # Matroska's are in ms


def test_what_a_file_says_of_itself_may_be_in_any_encoding() -> None:
    data = film("mkv")
    assert b"Lavf" in data
    assert seen(hr.decode.video(frames=[1.0])({"mkv": data.replace(b"Lavf", b"\xe9\xe0vf")})["mkv"]) == [24]


@pytest.mark.parametrize("size", [32, (20, 60), (200, 90)])
def test_frames_have_the_size_asked_for_and_their_middle(size: Any) -> None:
    found = hr.decode.video(frames=[1.0], size=size)({"mp4": film()})["mp4"]
    assert found.shape == (1, *((size, size) if isinstance(size, int) else size), 3)
    assert seen(found) == [24]


def test_a_sound_has_the_rate_asked_for_and_begins_where_asked() -> None:
    for kind, codec in (("wav", "pcm_s16le"), ("flac", "flac"), ("ogg", "libopus")):
        sample = {"__key__": "a", kind: sound(kind, codec)}
        whole = hr.decode.audio()(sample)
        assert (whole[kind].dtype, whole[kind].shape, whole[f"{kind}.rate"]) == (np.float32, (2, 96_000), 48_000)
        part = hr.decode.audio(rate=16_000, start=0.5, seconds=0.25)(sample)[kind]
        assert part.shape == (2, 4_000)
        want = tone_at(0.5 + np.arange(4_000) / 16_000)
        np.testing.assert_allclose(part, [want, want / 2], atol=0.06 if codec == "libopus" else 0.002)
        assert hr.decode.audio(start=1.75, seconds=1)(sample)[kind].shape == (2, 12_000)


def test_a_sound_of_many_channels_has_each_in_its_place() -> None:
    values = np.arange(24 * 4_000, dtype=np.int16).reshape(4_000, 24)
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(24)
        file.setsampwidth(2)
        file.setframerate(8_000)
        file.writeframes(values.tobytes())
    np.testing.assert_array_equal(hr.decode.audio()({"wav": out.getvalue()})["wav"] * 32_768, values.T)


def test_film_and_sound_of_one_object() -> None:
    sample = {"mp4": film(sound=True)}
    heard = hr.decode.audio("mp4", seconds=1)(sample)
    assert heard["mp4"].shape == (1, 16_000)
    assert seen(hr.decode.video(frames=2)(sample)["mp4"]) == [12, 36]


def resized(side: int) -> bytes:
    """A film whose last frames say that they are of so many pixels: RFC 6386, 9.1."""
    head, _, tail = film("webm", "libvpx").rpartition(bytes.fromhex("9d012a40004000"))
    return head + bytes.fromhex("9d012a") + side.to_bytes(2, "little") * 2 + tail


_two = hr.decode.video("x", frames=2)
WRONG: list[tuple[Any, Callable[[], bytes], type[Exception], str]] = [
    (_two, lambda: b"no film" * 99, CorruptError, "no video that can be decoded"),
    (_two, lambda: b"", CorruptError, "no video that can be decoded"),
    (_two, lambda: film()[:-1700], CorruptError, "no video that can be decoded"),
    (_two, lambda: film(front=True)[:2200], CorruptError, "should have 2 s"),
    (hr.decode.video("x"), lambda: film("mkv")[:2000], CorruptError, "should have 2 s"),
    (_two, sound, CorruptError, r"holds no video, but audio \(pcm_s16le\)"),
    (hr.decode.audio("x"), film, CorruptError, r"holds no audio, but video \(mpeg4\)"),
    (hr.decode.video("x", frames=[0.5, 2.0]), film, InputError, "ends after 2 s: it shows nothing at 2 s"),
    (hr.decode.video("x", frames=[9.0]), lambda: film("ts", "mpeg2video"), InputError, "ends after 2 s"),
    (hr.decode.audio("x", start=2.5), sound, InputError, r"ends after 2 s: nothing is heard from 2\.5 s on"),
    (hr.decode.audio("x"), lambda: sound("flac", "flac")[:30_000], CorruptError, "no audio that can be decoded"),
    (hr.decode.video("x"), lambda: resized(48), CorruptError, r"change their size from \(64, 64\) to \(48, 48\)"),
    (hr.decode.video("x", size=8), lambda: resized(16_383), CorruptError, "no video that can be decoded"),
    (_two, lambda: film("mkv").replace(b"V_MPEG4", b"V_WHATS"), UnsupportedError, "no decoder for its video"),
]


@pytest.mark.parametrize(("decode", "data", "kind", "said"), WRONG)
def test_what_cannot_be_decoded_is_named(
    decode: Any, data: Callable[[], bytes], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=rf"^train/7\.x: .*{said}"):
        decode({"__key__": "train/7", "x": data()})


@pytest.mark.parametrize(
    "make",
    [
        lambda: hr.decode.video(frames=0), lambda: hr.decode.video(frames=[]), lambda: hr.decode.video(frames=[-1.0]),
        lambda: hr.decode.video(frames=2, every=1), lambda: hr.decode.video(every=0), lambda: hr.decode.video(size=0),
        lambda: hr.decode.audio(rate=0), lambda: hr.decode.audio(start=-1), lambda: hr.decode.audio(seconds=0),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(InputError):
        make()


def test_without_pyav_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    for make in (hr.decode.video, hr.decode.audio):
        with pytest.raises(UnsupportedError, match=r"pip install 'headrace\[media\]'"):
            make()


def test_a_bad_film_is_within_the_budget_of_bad_samples(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.mp4").write_bytes(film() if number != 3 else film()[:1000])
    ds = hr.Dataset.open(tmp_path, lazy="mp4")
    loader = ds.map(hr.decode.video(frames=2, size=16), on_error=hr.Skip(max_count=1)).batch(5).loader()
    (batch,) = loader
    assert batch["__key__"] == ["0", "1", "2", "4", "5"]
    assert batch["mp4"].shape == (5, 2, 16, 16, 3)
    assert batch["mp4.times"].shape == (5, 2)
    with pytest.raises(BadSampleError, match=r"^3: map\(Video\) failed: .*3\.mp4.*on_error="):
        list(ds.map(hr.decode.video(frames=2)))


# Objects that are not read whole


@pytest.mark.parametrize(("name", "front"), [("a.mp4", True), ("a.mp4", False), ("a.mkv", False)])
def test_a_few_frames_of_a_long_film_take_a_few_ranges_of_it(tmp_path: Path, name: str, front: bool) -> None:
    long_film(tmp_path / name, 20_000_000, front=front)
    size = (tmp_path / name).stat().st_size
    ds = hr.Dataset.open(tmp_path, lazy=("mp4", "mkv")).map(hr.decode.video(frames=4, size=32))
    before = default_fetcher().stats().counters.get("fetch.bytes", 0)
    (sample,) = ds
    took = default_fetcher().stats().counters["fetch.bytes"] - before
    assert sample[name[2:]].shape == (4, 32, 32, 3)
    assert size > 20_000_000
    assert 0 < took < size / 8


def lazy_objects(folder: Path, count: int = 7) -> hr.Dataset:
    for number in range(count):
        (folder / f"{number}.bin").write_bytes(bytes([number]) * 9)
        (folder / f"{number}.txt").write_text(str(number))
    return hr.Dataset.open(folder, lazy=["bin"])


def opened(sample: Any) -> Any:
    with sample["bin"].open() as file:
        file.seek(8)
        return {**sample, "bin": file.read()[0]}


def test_objects_left_unread_come_in_the_same_order_and_resume(tmp_path: Path) -> None:
    ds = lazy_objects(tmp_path)
    eager = hr.Dataset.open(tmp_path).map(lambda sample: {**sample, "bin": sample["bin"][0]}).shuffle(3).batch(2)
    lazy = ds.map(opened).shuffle(3).batch(2)
    want = [batch["bin"].tolist() for batch in eager]
    assert [batch["bin"].tolist() for batch in lazy] == want
    loader = eager.loader()
    next(iter(loader))
    resumed = lazy.loader()
    resumed.load_state_dict(loader.state_dict())
    assert [batch["bin"].tolist() for batch in resumed] == want[1:]
    assert [one["bin"] for one in ds.map(opened)[2:4]] == [2, 3]
    assert [len(one["bin"]) for one in ds.windows(3)] == [3] * 5


def test_what_the_cache_has_is_left_unread_as_well() -> None:
    place = f"memory://{secrets.token_hex(8)}"
    store = open_store(place)
    for number in range(3):
        store.put(f"{number}.bin", bytes([number]) * 9)
    for _ in range(2):
        assert [opened(sample)["bin"] for sample in hr.Dataset.open(place, lazy=["bin"])] == [0, 1, 2]


def test_what_may_be_read_counts_as_bytes_under_way(tmp_path: Path) -> None:
    for number in range(40):
        with (tmp_path / f"{number}.bin").open("wb") as file:
            file.truncate(32 << 20)
    go = threading.Event()
    ds = hr.Dataset.open(tmp_path, lazy=["bin"]).map(lambda sample: go.wait() and {}, threads=1)
    loader = ds.loader(prefetch=64 << 20)
    epoch, deadline = iter(loader), time.monotonic() + 5
    while loader.stats().held_bytes < 48 << 20 and time.monotonic() < deadline:
        time.sleep(0.005)
    held = loader.stats().held_bytes
    go.set()
    assert len(list(epoch)) == 40
    assert 48 << 20 <= held <= 64 << 20


def test_objects_left_unread_stay_but_a_dataset_of_them_travels(tmp_path: Path) -> None:
    ds = lazy_objects(tmp_path)
    with pytest.raises(UnsupportedError, match=r"0\.bin: .*decode it on threads"):
        pickle.dumps(ds[0]["bin"])
    assert opened(pickle.loads(pickle.dumps(ds))[4])["bin"] == 4
    source, stretch = pickle.loads(pickle.dumps((Source.of(ds), Stretch.of(ds, 0, 2, 5))))
    assert [opened(sample)["bin"] for sample in source.open(stretch)] == [2, 3, 4]


def test_an_object_that_changed_is_read_anew_or_of_a_snapshot_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", f"file://{tmp_path}/home")
    (tmp_path / "data").mkdir()
    ds = lazy_objects(tmp_path / "data")
    pinned = hr.Dataset.open(hr.snapshot(str(tmp_path / "data"), name="few").id, lazy=["bin"])
    (tmp_path / "data/5.bin").write_bytes(b"\x63" * 12)
    assert opened(ds[5])["bin"] == 99
    assert opened(pinned[4])["bin"] == 4
    with pytest.raises(ChangedError, match=r"5\.bin"):
        opened(pinned[5])


def test_what_cannot_be_left_unread_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of([("0.bin", b"x")]))
    for options, said in [
        ({"lazy": ["bin"]}, "single objects"),
        ({"lazy": [".bin"]}, "suffixes without a dot"),
        ({"lazy": ["tar"], "format": "objects", "on_change": "report"}, "on_change"),
    ]:
        with pytest.raises(InputError, match=said):
            hr.Dataset.open(tmp_path, **options)
