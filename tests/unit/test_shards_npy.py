"""Rows of .npy files: those that numpy.load sees."""

import ast
import io
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.base.errors import CorruptError, UnsupportedError
from headrace.formats.numpy_files.npy import NPY, header_of
from tests.shard_formats_kit import Shard, ranges, values


def saved(array: Any, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about versions that old NumPy cannot read
        np.lib.format.write_array(file, np.asanyarray(array), version=version)
    return file.getvalue()


def headed(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin-1")


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype="<f4").reshape(4, 3, 2),
        np.arange(5, dtype=">i8"),
        np.array(["größe", "✓"]),
        np.array([True, False]),
        np.array(["2020-01-01", "NaT"], "M8[D]"),
        np.array([(1, 2.5), (3, 4.5)], [("a", "u1"), ("b", "<f8", (1,))]),
        np.zeros((0, 3)),
        np.arange(6).reshape(1, 6).T,
    ],
)
def test_rows(array: Any, version: tuple[int, int]) -> None:
    array = np.ascontiguousarray(array)
    data = saved(array, version)
    assert NPY.recognise(memoryview(data)[:4096])
    rows = values(NPY, data)
    assert len(rows) == len(array)
    for row, expected in zip(rows, array, strict=True):
        assert (row.dtype, row.shape) == (array.dtype, array.shape[1:])
        np.testing.assert_array_equal(row, expected)


def test_names_beyond_latin_1() -> None:
    array = np.zeros(3, [("größe", "i4"), ("名前", "f4")])
    assert [row.dtype.names for row in values(NPY, saved(array))] == [("größe", "名前")] * 3


def test_only_the_header_is_read() -> None:
    shard = Shard(saved(np.zeros((100, 1000))))
    assert sum(1 for _ in NPY.scan(shard)) == 100
    assert shard.bytes_read < 200


def test_python_objects_are_never_unpickled() -> None:
    data = saved(np.array([{"a": 1}, None], dtype=object))
    with pytest.raises(UnsupportedError, match="pickled"):
        list(NPY.scan(Shard(data)))
    with pytest.raises(UnsupportedError, match="pickled"):
        NPY.decoder(NPY.preamble(Shard(data)))


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.asfortranarray(np.ones((2, 3))), "Fortran"),
        (np.array(1.0), "no axis"),
        (np.zeros((5, 0)), "no bytes"),
        (np.zeros(5, "V0"), "no bytes"),
    ],
)
def test_arrays_that_have_no_rows_to_serve(array: Any, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason) as caught:
        list(NPY.scan(Shard(saved(array))))
    assert caught.value.path == Shard.path


@pytest.mark.parametrize("change", [-1, -100, 1])
def test_a_shard_of_another_length_is_noticed(change: int) -> None:
    data = saved(np.arange(100))
    with pytest.raises(CorruptError, match="100 rows of 8"):
        list(NPY.scan(Shard(data[:change] if change < 0 else data + bytes(change))))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY\x01",
        b"\x93NUMPY\x09\x00" + bytes(100),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(100),
        saved(np.arange(3))[:60],
        headed(""),
        headed("[1]"),
        headed("{'descr': '<f8', 'fortran_order': False}"),
        headed("{'descr': '<f8', 'fortran_order': 0, 'shape': (1,)}"),
        headed("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}"),
        headed("{'descr': '<f8', 'fortran_order': False, 'shape': (True,)}") + bytes(8),
        headed("{'descr': '<f8', 'fortran_order': False, 'shape': [1]}"),
        headed("{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976,)}"),
        headed("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9999999999999," * 400 + ")}"),
        headed("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 4000 + ",)}"),
        headed("{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,)}"),
        headed("{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (1,)}") + bytes(8),
        headed("{'descr': [('a', '<f4', (1152921504606846976,))], 'fortran_order': False, 'shape': (1,)}"),
        headed("__import__('os').abort()"),
        headed("-" * 9000 + "1"),
        headed("(" * 9000),
    ],
)
def test_damaged_headers(data: bytes) -> None:
    with pytest.raises(CorruptError):
        list(NPY.scan(Shard(data)))


def test_a_header_that_claims_megabytes_is_not_read() -> None:
    shard = Shard(b"\x93NUMPY\x02\x00" + (1 << 20).to_bytes(4, "little") + b" " * (2 << 20))
    with pytest.raises(CorruptError, match="a header of 1048588 bytes") as caught:
        list(NPY.scan(shard))
    assert caught.value.path == Shard.path
    assert shard.bytes_read < 100


def test_headers_of_python_2() -> None:
    data = headed("{'descr': '|u1', 'fortran_order': False, 'shape': (2L, 3L), }\n") + bytes(range(6))
    assert [row.tolist() for row in values(NPY, data)] == [[0, 1, 2], [3, 4, 5]]


def test_bytes_that_are_no_row() -> None:
    decode = NPY.decoder(NPY.preamble(Shard(saved(np.zeros((4, 3))))))
    for count in (0, 23, 25, 48):
        with pytest.raises(CorruptError, match="no float64"):
            decode(memoryview(bytes(count)))


def test_decoders_travel_between_processes() -> None:
    array = np.arange(6.0).reshape(2, 3)
    decode = pickle.loads(pickle.dumps(NPY.decoder(NPY.preamble(Shard(saved(array))))))
    assert [decode(row).tolist() for row in ranges(NPY, saved(array))] == array.tolist()


@pytest.mark.parametrize("times", [1, 5])
def test_a_parser_disturbed_by_other_threads_is_asked_again(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    file = saved(np.arange(6).reshape(2, 3))
    left = [times]
    real = ast.literal_eval

    def disturbed(text: str) -> object:
        if left[0]:
            left[0] -= 1
            raise SystemError("AST constructor recursion depth mismatch (before=51, after=47)")
        return real(text)

    monkeypatch.setattr(ast, "literal_eval", disturbed)
    assert (hr.decode.npy("x")({"x": file})["x"] == np.arange(6).reshape(2, 3)).all()
    assert left == [0]
    left[0] = times
    assert header_of(file[: -6 * 8], None).shape == (2, 3)
    assert left == [0]
