"""Event files as TensorFlow and PyTorch write them, encoded here by hand: their scalars, whatever state they are in.

TensorFlow's own writer is heard in tests/integration/test_tracking_tensorflow.py.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from headrace.formats.checksums.crc32c import crc32c, masked
from headrace.tracking.events import EventFiles
from headrace.tracking.points import Point

NAME = "events.out.tfevents.1700000000.host.1.0"
SCALARS, HISTOGRAMS = b"scalars", b"histograms"


# A small encoder: https://protobuf.dev/programming-guides/encoding/


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", value)


def message(field: int, body: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(body)) + body


def metadata(plugin: bytes) -> bytes:
    return message(9, message(1, message(1, plugin)) + message(3, b"a description") + number(4, 1))


def value(tag: str, *parts: bytes) -> bytes:
    return message(1, message(7, b"node") + message(1, tag.encode()) + b"".join(parts))


def event(step: int, *values: bytes, wall: float = 1_700_000_000.25) -> bytes:
    return double(1, wall) + (number(2, step) if step else b"") + message(5, b"".join(values))


def simple(tag: str, number: float) -> bytes:
    return value(tag, single(2, number))


def tensor(tag: str, body: bytes, plugin: bytes | None = SCALARS) -> bytes:
    return value(tag, message(8, body), b"" if plugin is None else metadata(plugin))


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    crcs = (struct.pack("<I", masked(crc32c(memoryview(one)))) for one in (length, data))
    return length + next(crcs) + data + next(crcs)


VERSION = record(double(1, 1_700_000_000.0) + message(3, b"brain.Event:2") + message(10, message(1, b"writer")))
FLOAT, DOUBLE, INT32, INT64, BOOL, BFLOAT16, HALF, UINT64 = 1, 2, 3, 9, 10, 14, 19, 23


def written(folder: Path, *records: bytes, name: str = NAME) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        file.write(b"".join(records))
    return path


def found(points: list[Point]) -> list[tuple[str, int | None, float]]:
    return [(point.name, point.step, point.value) for point in points]


# What is a scalar


def test_simple_values(tmp_path: Path):
    """As `torch.utils.tensorboard` writes them by default, and TensorFlow 1."""
    written(
        tmp_path, VERSION, record(event(0, simple("loss", 0.5))), record(event(7, simple("a", 0.0), simple("b", -1.5))),
        record(event(-3, simple("nan", math.nan), simple("ü", math.inf), wall=0.0)),
    )  # fmt: skip
    points = EventFiles(str(tmp_path)).new()
    assert points[0] == Point(1_700_000_000_250_000, "loss", 0.5, 0, 0)
    assert found(points[:3]) == [("loss", 0, 0.5), ("a", 7, 0.0), ("b", 7, -1.5)]
    assert (points[3].name, points[3].step, points[3].time_us) == ("nan", -3, 0)
    assert math.isnan(points[3].value)
    assert points[4][1:4] == ("ü", math.inf, -3)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (number(1, FLOAT) + message(2, b"") + message(4, struct.pack("<f", 2.5)), 2.5),
        (number(1, DOUBLE) + message(4, struct.pack("<d", 0.1)), 0.1),
        (number(1, INT32) + message(4, struct.pack("<i", -7)), -7),
        (number(1, INT64) + message(4, struct.pack("<q", 1 << 40)), 1 << 40),
        (number(1, BOOL) + message(4, b"\1"), 1),
        (number(1, HALF) + message(4, np.float16(0.25).tobytes()), 0.25),
        (number(1, BFLOAT16) + message(4, b"\x20\x40"), 2.5),
        (number(1, UINT64) + message(4, struct.pack("<Q", 9)), 9),
        (number(1, FLOAT) + message(5, struct.pack("<f", 2.5)), 2.5),
        (number(1, FLOAT) + single(5, 2.5), 2.5),
        (number(1, DOUBLE) + double(6, 0.1), 0.1),
        (number(1, DOUBLE) + message(6, struct.pack("<d", 0.1)), 0.1),
        (number(1, INT32) + number(7, -7), -7),
        (number(1, INT32) + message(7, varint(-7)), -7),
        (number(1, INT64) + message(10, varint(1 << 40)), 1 << 40),
        (number(1, BOOL) + number(11, 1), 1),
        (number(1, HALF) + message(13, varint(0x3400)), 0.25),
        (number(1, BFLOAT16) + number(13, 0x4020), 2.5),
        (number(1, UINT64) + number(17, 9), 9),
        (number(1, FLOAT) + message(4, struct.pack("<2f", 1, 2)), None),
        (number(1, FLOAT) + message(5, struct.pack("<2f", 1, 2)), None),
        (number(1, INT32) + message(7, varint(1) + varint(2)), None),
        (number(1, 7) + message(8, b"text"), None),
        (number(1, FLOAT), None),
    ],
)
def test_tensors(tmp_path: Path, body: bytes, wanted: float | None):
    """As TensorFlow 2 writes them, and `torch.utils.tensorboard` in its new style."""
    written(tmp_path, VERSION, record(event(3, tensor("x", body))))
    assert found(EventFiles(str(tmp_path)).new()) == ([] if wanted is None else [("x", 3, wanted)])


def test_who_is_a_scalar_may_be_said_once(tmp_path: Path):
    body = number(1, FLOAT) + single(5, 2.5)
    written(tmp_path, record(event(1, tensor("never said", body, None), tensor("x", body))))
    files = EventFiles(str(tmp_path))
    assert found(files.new()) == [("x", 1, 2.5)]
    written(tmp_path, record(event(2, tensor("x", body, None), tensor("other", body, HISTOGRAMS))))
    written(tmp_path, record(event(3, tensor("x", body, HISTOGRAMS))))
    assert found(files.new()) == [("x", 2, 2.5)]


def test_all_else_is_passed_over_unread(tmp_path: Path):
    noise = os.urandom(3000)  # where a field is skipped, what is in it does not matter
    written(
        tmp_path, VERSION,
        record(double(1, 1.0) + message(4, noise)),  # a graph
        record(double(1, 1.0) + message(9, noise)),  # a graph with more
        record(event(1, value("image", message(4, noise)), value("old", message(3, noise)), simple("a", 1.0))),
        record(event(1, value("histogram", message(5, noise)), tensor("text", noise, b"text"))),
        record(double(1, 1.0) + message(7, b"")),
        record(b""),
        record(event(2, simple("b", 2.0), message(77, b"from a later version"), value("empty"))),
    )  # fmt: skip
    assert found(EventFiles(str(tmp_path)).new()) == [("a", 1, 1.0), ("b", 2, 2.0)]


def test_a_huge_record_is_not_read(tmp_path: Path):
    path = written(tmp_path, VERSION)
    length = struct.pack("<Q", 3 << 30)
    with open(path, "ab") as file:
        file.write(length + struct.pack("<I", masked(crc32c(memoryview(length)))))
        file.truncate(file.tell() + (3 << 30))  # a hole: not all of it is there yet
    files = EventFiles(str(tmp_path))
    assert files.new() == []
    with open(path, "ab") as file:
        file.write(b"crc.")
    written(tmp_path, record(event(1, simple("after", 1.0))))
    before = psutil.Process().io_counters().read_chars
    assert found(files.new()) == [("after", 1, 1.0)]
    assert psutil.Process().io_counters().read_chars - before < 10_000_000


# Files


def test_only_what_is_new_is_told_and_a_record_in_the_making_waits(tmp_path: Path):
    """Written a byte at a time."""
    whole = b"".join([VERSION, *(record(event(step, simple("x", step))) for step in range(5))])
    files = EventFiles(str(tmp_path))
    seen: list[Point] = []
    for at in range(len(whole)):
        written(tmp_path, whole[at : at + 1])
        seen += files.new()
    assert found(seen) == [("x", step, step) for step in range(5)]
    assert files.new() == []


def test_runs_are_folders(tmp_path: Path):
    for folder in ("", "train/", "a/b/"):
        written(tmp_path, VERSION, record(event(1, simple("loss/x", 1.0))), name=folder + NAME)
    written(tmp_path, b"no events", name="train/model.pt")
    os.mkfifo(tmp_path / "tfevents.pipe")
    (tmp_path / "tfevents.link").symlink_to(tmp_path / NAME)
    (tmp_path / "tfevents.folder").mkdir()
    files = EventFiles(str(tmp_path))
    assert [point.name for point in files.new()] == ["a/b/loss/x", "loss/x", "train/loss/x"]
    written(tmp_path, VERSION, record(event(2, simple("late", 1.0))), name="new/" + NAME)
    assert [point.name for point in files.new()] == ["new/late"]
    assert EventFiles(str(tmp_path / "none")).new() == []


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        flipped(0), flipped(5), flipped(9), flipped(20), flipped(-1),
        lambda data: bytes(len(data)),
        lambda data: os.urandom(len(data)),
        lambda data: record(b"\xff" * 20),
        lambda data: record(message(5, message(1, b"\x12\x80"))),
        lambda data: record(double(1, 1.0) + b"\x2a\x7f"),
        lambda data: record(event(1, tensor("x", number(1, DOUBLE) + message(4, b"123")))),
        lambda data: record(event(1, value("x", varint(2 << 3 | 3)))),
    ],
)  # fmt: skip
def test_a_damaged_record_ends_its_file_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[bytes], bytes]
):
    good = [record(event(step, simple("x", step))) for step in range(3)]
    written(tmp_path, good[0], damage(good[1]), good[2])
    written(tmp_path, *good, name="other/" + NAME)
    files = EventFiles(str(tmp_path))
    assert found(files.new()) == [("x", 0, 0.0), *(("other/x", step, step) for step in range(3))]
    written(tmp_path, good[2])
    written(tmp_path, good[2], name="other/" + NAME)
    assert found(files.new()) == [("other/x", 2, 2.0)]
    (told,) = caplog.records
    assert f"{NAME} is not read beyond byte {len(good[0])}" in told.message


def test_another_file_of_the_same_name_is_read_from_its_beginning(tmp_path: Path):
    path = written(tmp_path, VERSION, record(event(1, simple("x", 1.0))), record(event(2, simple("x", 2.0))))
    files = EventFiles(str(tmp_path))
    assert len(files.new()) == 2
    path.rename(tmp_path / "old")
    written(tmp_path, VERSION, *(record(event(step, simple("x", 3.0))) for step in range(3)))  # and longer
    assert found(files.new()) == [("x", step, 3.0) for step in range(3)]
    path.write_bytes(record(event(4, simple("x", 4.0))))  # shorter
    assert found(files.new()) == [("x", 4, 4.0)]
    path.unlink()
    assert files.new() == []


def test_much_comes_in_portions(tmp_path: Path):
    for name in (NAME, "b/" + NAME):
        written(tmp_path, *(record(event(step, simple("x", step))) for step in range(100)), name=name)
    files = EventFiles(str(tmp_path))
    seen: list[Point] = []
    sizes: list[int] = []
    while points := files.new(most=30):
        sizes.append(len(points))
        seen += points
    assert sizes == [30] * 6 + [20]
    assert sorted(found(seen)) == sorted((n, s, s) for n in ("x", "b/x") for s in range(100))


def test_another_process_goes_on_by_the_note(tmp_path: Path):
    for name in (NAME, "b/" + NAME):
        written(tmp_path, VERSION, record(event(1, simple("x", 1.0))), name=name)
    first = EventFiles(str(tmp_path))
    assert len(first.new()) == 2
    written(tmp_path, record(event(2, simple("x", 2.0))), name="b/" + NAME)
    second = EventFiles(str(tmp_path), first.note)
    assert found(second.new()) == [("b/x", 2, 2.0)]
    assert EventFiles(str(tmp_path), second.note).new() == []
