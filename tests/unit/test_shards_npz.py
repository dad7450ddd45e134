"""Rows of .npz files: those that numpy.load sees."""

import io
import struct
import tracemalloc
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.errors import CorruptError, UnsupportedError
from headrace.formats.numpy_files.npz import NPZ
from tests.shard_formats_kit import Shard


def saved(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def zipped(members: dict[str, bytes], **options: Any) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def read(data: bytes) -> list[dict[str, Any]]:
    """Every row of every array, by the row's key."""
    decoders = NPZ.decoder(NPZ.preamble(Shard(data)))
    found: dict[str, dict[str, Any]] = {}
    for key, name, start, stop in NPZ.scan(Shard(data)):
        assert 0 <= start < stop <= len(data)
        found.setdefault(key, {})[name] = decoders[name](memoryview(data)[start:stop])
    assert list(found) == [f"{n:08d}" for n in range(len(found))]
    return list(found.values())


ARRAYS = {
    "image": np.arange(24, dtype=np.uint8).reshape(4, 3, 2),
    "label": np.arange(4, dtype=">i2"),
    "größe": np.array(["a", "ß", "", "✓"]),
    "pair": np.array([(n, n / 2) for n in range(4)], [("a", "u1"), ("b", "<f8")]),
}


def test_rows() -> None:
    data = saved(**ARRAYS)
    assert NPZ.recognise(memoryview(data)[:4096])
    rows = read(data)
    assert len(rows) == 4
    for number, row in enumerate(rows):
        assert row.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            assert (row[name].dtype, row[name].shape) == (array.dtype, array.shape[1:])
            np.testing.assert_array_equal(row[name], array[number])


def test_an_archive_written_to_a_pipe() -> None:
    class Pipe(io.RawIOBase):
        data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.data += data
            return len(data)

    np.savez(Pipe(), **ARRAYS)
    assert [row["label"] for row in read(bytes(Pipe.data))] == [0, 1, 2, 3]


def test_archives_without_rows() -> None:
    for data in (saved(), saved(x=np.zeros((0, 3)))):
        assert NPZ.recognise(memoryview(data))
        assert list(NPZ.scan(Shard(data))) == []


def test_only_headers_are_read() -> None:
    shard = Shard(saved(a=np.zeros((100, 1000)), b=np.zeros(100)))
    NPZ.preamble(shard)
    assert sum(1 for _ in NPZ.scan(shard)) == 200
    assert shard.bytes_read < 4000


def compressed() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, x=np.zeros(100))
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (compressed(), r"'x.npy' is compressed.*np.savez, not"),
        (saved(a=np.zeros(3), b=np.zeros(4)), "'a' has 3 rows, 'b' 4"),
        (saved(x=np.array([{}, None], dtype=object)), "array 'x.npy': .*pickled"),
        (saved(x=np.float64(1)), "no axis"),
        (saved(x=np.asfortranarray(np.ones((2, 3)))), "Fortran"),
        (zipped({"notes.txt": b"text"}), "'notes.txt' is no array"),
        (zipped({f"{n}.npy": b"" for n in range(1100)}), "1,100 arrays"),
    ],
)
def test_what_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason) as caught:
        NPZ.preamble(Shard(data))
    assert caught.value.path == Shard.path
    with pytest.raises(UnsupportedError):
        list(NPZ.scan(Shard(data)))


GOOD = saved(x=np.arange(100), y=np.arange(100.0))
DIRECTORY = GOOD.rindex(b"PK\x05\x06")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (GOOD[:-30], r"at byte \d+: the archive's list cannot be read"),
        (GOOD[:200], "the archive's list cannot be read"),
        (GOOD[100:], "at byte -100|at byte 0: the archive has no member|cannot be read"),
        (b"PK\x03\x04" + bytes(100), "the archive's list cannot be read"),
        (b"XX" + GOOD[2:], "at byte 0: the archive has no member 'x.npy' here"),
        (GOOD.replace(b"\x93NUMPY", b"\x93NAMPY"), r"at byte \d+: array 'x.npy': no .npy file"),
        (zipped({"x.npy": npy(np.arange(9))[:-1]}), r"71 bytes after the header, meant for 9 rows of 8"),
        (zipped({"x.npy": npy(np.arange(9)) + b"more"}), r"76 bytes after the header"),
        (zipped({"x.npy": b""}), "no .npy file"),
    ],
)
def test_damaged_archives(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptError, match=reason) as caught:
        list(NPZ.scan(Shard(data)))
    assert caught.value.path == Shard.path


def test_encrypted_members_are_refused() -> None:
    data = bytearray(saved(x=np.arange(3)))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(UnsupportedError, match="encrypted"):
        list(NPZ.scan(Shard(bytes(data))))


def read_all(data: bytes) -> None:
    try:
        NPZ.recognise(memoryview(data)[:4096])
        read(data)
    except (CorruptError, UnsupportedError):
        pass


SMALL = saved(a=np.arange(3, dtype=np.uint8), b=np.ones((3, 2), np.float32))


@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_archive_is_corrupt_or_read_and_nothing_else(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SMALL)
    for at, value in changes:
        data[at] = value
    read_all(bytes(data))


@given(st.integers(SMALL.index(b"PK\x01\x02"), len(SMALL) - 1), st.binary(min_size=1, max_size=8))
def test_a_damaged_list_is_corrupt_or_read_and_nothing_else(at: int, data: bytes) -> None:
    read_all(SMALL[:at] + data + SMALL[at + len(data) :])


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    read_all(b"PK\x03\x04" + data)


def test_a_list_that_claims_megabytes_is_not_read() -> None:
    size = 8 << 20
    end = b"PK\x05\x06" + struct.pack("<4H2LH", 0, 0, 1, 1, size, 4, 0)
    shard = Shard(b"PK\x03\x04" + bytes(size) + end)
    tracemalloc.start()
    with pytest.raises(CorruptError, match="8388608 bytes, 1048576 are the most"):
        list(NPZ.scan(shard))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
