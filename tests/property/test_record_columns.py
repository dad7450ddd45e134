"""Records made by columns are those made one by one, and bad ones are left to be found one by one."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.errors import HeadraceError
from headrace.formats.columns.buffer_slices import Pieces
from headrace.formats.record_decoding import records
from headrace.formats.streaming.litdata import LITDATA
from headrace.formats.streaming.mds import MDS
from headrace.formats.tfrecord.tfrecord import TFRECORD
from tests.shard_formats_kit import record

LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
LEAVES = ["no_header_numpy:1", "numpy", "int", "bytes"]
KEYS = ["a", "b", "c", "d"]
DICT = {"type": "builtins.dict", "context": json.dumps(KEYS), "children_spec": [LEAF] * 4}
LITDATA_SAYS = json.dumps({"leaves": LEAVES, "tree": json.dumps([1, DICT]), "bare": False}).encode()
COLUMNS = [["a", "bytes", None], ["n", "int", 8], ["v", "ndarray:int16", None], ["t", "str", None]]
MDS_SAYS = json.dumps(COLUMNS).encode()


def lengths(parts: list[bytes]) -> bytes:
    return struct.pack(f"<{len(parts)}I", *map(len, parts))


@st.composite
def litdata_items(draw: st.DrawFn) -> bytes:
    flat = np.arange(draw(st.sampled_from([2, 2, 2, 3])), dtype=np.int16).tobytes()
    shape = draw(st.sampled_from([(2,), (2,), (1, 2), ()]))
    array = struct.pack(f"<{2 + len(shape)}I", 4, len(shape), *shape) + draw(st.binary(min_size=2, max_size=2))
    number = draw(st.integers(-(2**63), 2**63 - 1)).to_bytes(8, "little", signed=True)
    parts = [flat, array, number, draw(st.sampled_from([b"x", b"y", b""]))]
    return lengths(parts) + b"".join(parts)


@st.composite
def mds_items(draw: st.DrawFn) -> bytes:
    count = draw(st.sampled_from([2, 2, 3]))
    array = bytes([4, count]) + np.arange(count, dtype=np.int16).tobytes()
    a, t = draw(st.binary(min_size=1, max_size=2)), draw(st.sampled_from([b"hi", b"\xff\xff", "é".encode()]))
    variable = [a, array, t]
    return lengths(variable) + variable[0] + bytes(8) + b"".join(variable[1:])


def tfrecords() -> st.SearchStrategy[bytes]:
    def made(payload: bytes, spoil: bool) -> bytes:
        data = record(payload)[12:]
        return data[:-1] + bytes([data[-1] ^ 1]) if spoil else data

    return st.builds(made, st.binary(max_size=9), st.sampled_from([False] * 9 + [True]))


def plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return str(value.dtype), value.shape, value.tobytes()
    return bytes(value) if isinstance(value, memoryview) else value


def placed(data: list[bytes], gap: int, *, uneven: bool = False, turned: bool = False) -> Pieces:
    """In one buffer, with so many bytes before each, the second farther from the first; or in another order."""
    order = list(reversed(range(len(data)))) if turned else list(range(len(data)))
    buffer, start = bytearray(), [0] * len(data)
    for place, number in enumerate(order):
        buffer += b"\xff" * (gap + (uneven and place == 1))
        start[number] = len(buffer)
        buffer += data[number]
    begins = np.array(start, np.int64)
    return Pieces(memoryview(bytes(buffer)), begins, begins + np.array([len(one) for one in data], np.int64))


def same(decoder: Any, preamble: bytes, data: list[bytes]) -> None:
    found = records(decoder, [("s", preamble)])
    views = [memoryview(one) for one in data]
    together = (placed(data, 0), placed(data, 3), placed(data, 3, uneven=True), placed(data, 0, turned=True))
    for one in (views, *together):
        alike(found, one, views)


def alike(found: Any, given: Any, views: list[memoryview]) -> None:
    keys = [str(number) for number in range(len(views))]
    bad: HeadraceError | None = None
    columns = None
    try:
        columns = found.columns({"__key__": keys, "data": given, "__shard__": ["s"] * len(views)})
    except HeadraceError as error:
        bad = error
    try:
        rows = [found({"__key__": key, "data": view, "__shard__": "s"}) for key, view in zip(keys, views, strict=True)]
    except HeadraceError:
        assert columns is None
        return
    assert bad is None
    if columns is None:
        return
    assert list(columns) == list(rows[0])
    again = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert [{k: plain(v) for k, v in one.items()} for one in again] == [
        {k: plain(v) for k, v in one.items()} for one in rows
    ]


def damaged(items: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    """A few; sometimes one of them is cut off, or a byte of it is another."""

    def spoilt(data: list[bytes], which: int, how: int) -> list[bytes]:
        which %= len(data)
        one = data[which]
        if how == 1:
            one = one[:-1]
        elif how > 1 and one:
            one = one[: how % len(one)] + bytes([one[how % len(one)] ^ 3]) + one[how % len(one) + 1 :]
        return [*data[:which], one, *data[which + 1 :]]

    several = st.lists(items, min_size=1, max_size=6) | items.map(lambda one: [one] * 4)
    return st.builds(spoilt, several, st.integers(0, 9), st.integers(-200, 60).map(lambda how: max(how, 0)))


@given(damaged(litdata_items()))
def test_litdata(data: list[bytes]) -> None:
    same(LITDATA.decoder, LITDATA_SAYS, data)


@given(damaged(mds_items()))
def test_mds(data: list[bytes]) -> None:
    same(MDS.decoder, MDS_SAYS, data)


@given(damaged(tfrecords()))
def test_tfrecord(data: list[bytes]) -> None:
    same(TFRECORD.decoder, b"", data)


def test_what_is_alike_goes_by_columns() -> None:
    """Or nothing above would have been tried."""
    parts = [np.arange(2, dtype=np.int16).tobytes(), struct.pack("<3I", 4, 1, 2) + b"\x01\x02", bytes(8), b"x"]
    item = memoryview(lengths(parts) + b"".join(parts))
    litdata: Any = LITDATA.decoder(LITDATA_SAYS)
    assert list(litdata.all([item] * 3)) == KEYS
    variable = [b"a", bytes([4, 2]) + bytes(4), b"hi"]
    row = memoryview(lengths(variable) + variable[0] + bytes(8) + b"".join(variable[1:]))
    mds: Any = MDS.decoder(MDS_SAYS)
    found = mds.all([row] * 3)
    assert (list(found), found["n"], found["t"]) == (["a", "n", "v", "t"], [0] * 3, ["hi"] * 3)


def test_arrays_in_even_steps_are_rows_of_one() -> None:
    """Or the quickest way would not have been tried."""
    shape = struct.pack("<4I", 1, 2, 1, 1)
    leaves = ([bytes([n, 0]), shape + bytes([n, 1]), bytes(8), b"x"] for n in range(5))
    items = [lengths(some) + b"".join(some) for some in leaves]
    litdata: Any = LITDATA.decoder(LITDATA_SAYS)
    for gap in (0, 5):
        found = litdata.all(placed(items, gap))
        assert [type(one) for one in found.values()] == [np.ndarray, np.ndarray, list, list]
        assert (found["a"].dtype, found["a"].tolist()) == (np.int16, [[n] for n in range(5)])
        assert found["b"].tolist() == [[[256 + n]] for n in range(5)]
