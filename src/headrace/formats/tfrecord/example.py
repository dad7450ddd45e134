"""``tf.train.Example`` to arrays, with neither TensorFlow nor protobuf.

Messages and field numbers: TensorFlow's ``core/example/example.proto`` and ``feature.proto``. Their bytes: *Encoding*
in protobuf's documentation. Where a message occurs twice the two are merged, where a name does the last one counts,
and unknown fields are skipped, all as protobuf has it. Any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from headrace.base.errors import CorruptError
from headrace.formats.columns.buffer_slices import Pieces, Weighed
from headrace.store.protocol import Buffer

Value: TypeAlias = "npt.NDArray[np.int64] | npt.NDArray[np.float32] | list[bytes]"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3  # fields of Feature
_FIRST, _SECOND, _THIRD = (number << 3 | _BYTES for number in (1, 2, 3))  # tags of such fields
_FEW = 24  # bytes of varints that a Python loop reads faster than NumPy
_TOO_LONG = 10  # bytes of the longest varint
_ALL = (1 << 64) - 1  # 64 bits
_MOST_LAYOUTS = 1024  # layouts remembered; then all are forgotten

_Field: TypeAlias = "tuple[int, int, int, int]"
"""Field number, wire type, start, stop; of a varint: its value in place of start."""


def example(data: Buffer) -> dict[str, Value]:
    """The features of a serialised ``tf.train.Example``, by name, in the order in which they were written.

    int64 lists → int64 [n], float lists → float32 [n], bytes lists → list of n bytes. A feature whose kind is not set
    (TensorFlow calls it missing) is an empty list. Nothing in the result refers to `data`.

    Raises:
        CorruptError: the bytes are no such message, or are cut off.
    """
    view = memoryview(data).cast("B")
    try:
        return _example(view)
    except (IndexError, struct.error):  # a varint or a fixed value that runs off the end
        raise CorruptError("the Example is cut off", hint="is it a serialised tf.train.Example?") from None


def examples(data: Sequence[Buffer]) -> dict[str, Sequence[Value]] | None:
    """`example` of several, by columns; None where they do not all have the same names in the same order. Raises as
    `example`, for any of them.
    """
    several = _InOneBuffer(data) if isinstance(data, Pieces) else _Apart([memoryview(one).cast("B") for one in data])
    layout = _shared(several)
    if layout is not None:
        return {spot.name: _column(several, spot) for spot in layout.spots}
    rows = [example(one) for one in several.views()]
    names = list(rows[0]) if rows else []
    if any(list(row) != names for row in rows):
        return None
    return {name: [row[name] for row in rows] for name in names}


class _Spot(NamedTuple):
    """Where the values of a feature lie. `ranges`: of bytes, of each value; else one, of all values packed."""

    name: str
    kind: int
    ranges: tuple[tuple[int, int], ...]


class _Layout(NamedTuple):
    """Of an Example all of whose features are `_spot`s: these, and every byte around their values: (start, stop,
    bytes).
    """

    spots: tuple[_Spot, ...]
    around: tuple[tuple[int, int, memoryview], ...]


_layouts: dict[int, _Layout | None] = {}
"""By the length of the Example; None: one of that length was seen. Writers repeat themselves: records of one size
mostly differ in nothing but values, which is told by comparing a few bytes.
"""


def _example(view: memoryview) -> dict[str, Value]:
    layout = _layouts.get(len(view))
    if layout is not None and all(view[start:stop] == same for start, stop, same in layout.around):
        return {spot.name: _value(view, spot) for spot in layout.spots}
    features: dict[str, Value] = {}
    spots: list[_Spot] | None = []
    for number, wire, start, stop in fields_in(view, 0, len(view)):
        if number == 1 and wire == _BYTES:
            for inner, kind, begin, end in fields_in(view, start, stop):
                if inner == 1 and kind == _BYTES:
                    spot = _usual(view, begin, end)
                    if spot is None:
                        spots = None
                        name, value = entry_of(view, begin, end)
                    else:
                        name, value = spot.name, _value(view, spot)
                        if spots is not None:
                            spots.append(spot)
                    features[name] = value
    if spots:
        _learn(view, spots)
    return features


class _Apart:
    """Several Examples, wherever they are."""

    def __init__(self, views: list[memoryview]) -> None:
        self._views = views

    def size(self) -> int | None:
        """Bytes of each of them; None where they differ."""
        sizes = {len(view) for view in self._views}
        return sizes.pop() if len(sizes) == 1 else None

    def views(self) -> list[memoryview]:
        """All bytes of each."""
        return self._views

    def texts(self, start: int, stop: int) -> list[list[bytes]]:
        """The same stretch of each, copied, as a list of one: [n]."""
        return [[bytes(view[start:stop])] for view in self._views]

    def rows(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """The same as an array: [n, stop - start]."""
        found = np.frombuffer(b"".join([view[start:stop] for view in self._views]), np.uint8)
        return found.reshape(len(self._views), stop - start)


class _InOneBuffer:
    """As `_Apart`, of Examples in one buffer: no view is made of what nobody looks at."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces

    def size(self) -> int | None:
        return self._pieces.size()

    def views(self) -> list[memoryview]:
        return self._pieces.views()

    def texts(self, start: int, stop: int) -> list[list[bytes]]:
        data, copy = self._pieces.data, struct.Struct(f"{stop - start}s").unpack_from
        return [list(copy(data, at)) for at in (self._pieces.start + start).tolist()]

    def rows(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        rows = self._pieces.part(start, stop).matrix()
        if rows is not None:
            return rows
        places = self._pieces.start[:, None] + np.arange(start, stop)
        return np.frombuffer(self._pieces.data, np.uint8)[places]


def _shared(several: _Apart | _InOneBuffer) -> _Layout | None:
    """The layout that all of them have, if it is known."""
    size = several.size()
    layout = None if size is None else _layouts.get(size)
    if layout is None:
        return None
    for start, stop, same in layout.around:
        if (several.rows(start, stop) != np.frombuffer(same, np.uint8)).any():
            return None
    return layout


def _column(several: _Apart | _InOneBuffer, spot: _Spot) -> Sequence[Value]:
    """The feature of each of them. Numbers become rows of one array."""
    if spot.kind == _FIRST and len(spot.ranges) == 1:
        ((start, stop),) = spot.ranges
        texts = several.texts(start, stop)
        return Weighed(texts, len(texts) * (stop - start))
    if spot.kind != _FIRST:
        packed = several.rows(*spot.ranges[0])
        if spot.kind == _SECOND:
            return cast("Sequence[Value]", packed.view("<f4").astype(np.float32))
        if (packed < 0x80).all():
            return cast("Sequence[Value]", packed.astype(np.int64))
    return [_value(view, spot) for view in several.views()]


def _learn(view: memoryview, spots: list[_Spot]) -> None:
    """Remember the layout, the second time that an Example has this length."""
    if len(view) not in _layouts:
        if len(_layouts) >= _MOST_LAYOUTS:
            _layouts.clear()
        _layouts[len(view)] = None
        return
    inside = [one for spot in spots for one in spot.ranges]
    starts, stops = [0, *(stop for _, stop in inside)], [*(start for start, _ in inside), len(view)]
    around = tuple((a, b, memoryview(bytes(view[a:b]))) for a, b in zip(starts, stops, strict=True) if a < b)
    _layouts[len(view)] = _Layout(tuple(spots), around)


def _value(view: memoryview, spot: _Spot) -> Value:
    if spot.kind == _FIRST:
        return [bytes(view[start:stop]) for start, stop in spot.ranges]
    ((start, stop),) = spot.ranges
    if spot.kind == _THIRD:
        return varints(view[start:stop])
    return np.frombuffer(view[start:stop], "<f4").astype(np.float32)


def _usual(view: memoryview, start: int, stop: int) -> _Spot | None:
    """One entry of the map the way every current writer has it: name, then a Feature that holds nothing but one list,
    numbers packed. Twice as fast as `entry_of`, which takes whatever is not like that (None).
    """
    if start == stop or view[start] != _FIRST:
        return None
    size, start = _length(view, start + 1, stop)
    end = start + size
    if end >= stop or view[end] != _SECOND:
        return None
    name = name_at(view, start, end)
    size, start = _length(view, end + 1, stop)
    if start + size != stop or not size:
        return None
    kind = view[start]
    if kind not in (_FIRST, _SECOND, _THIRD):
        return None
    size, start = _length(view, start + 1, stop)
    if start + size != stop:
        return None
    if kind == _FIRST:
        texts: list[tuple[int, int]] = []
        while start < stop:
            if view[start] != _FIRST:
                return None
            size, start = _length(view, start + 1, stop)
            end = start + size
            if end > stop:
                return None
            texts.append((start, end))
            start = end
        return _Spot(name, kind, tuple(texts))
    if start == stop or view[start] != _FIRST:
        return None
    size, start = _length(view, start + 1, stop)
    if start + size != stop or (kind == _SECOND and size % 4):
        return None
    return _Spot(name, kind, ((start, stop),))


def entry_of(view: memoryview, start: int, stop: int) -> tuple[str, Value]:
    """One entry of the map: its key, and its Feature."""
    name, parts = "", list[tuple[int, int]]()
    for number, wire, begin, end in fields_in(view, start, stop):
        if wire == _BYTES and number == 1:
            name = name_at(view, begin, end)
        elif wire == _BYTES and number == 2:
            parts.append((begin, end))
    return name, feature_of(view, parts)


def name_at(view: memoryview, start: int, stop: int) -> str:
    """A feature's name. Raises CorruptError."""
    try:
        return str(view[start:stop], "utf-8")
    except UnicodeDecodeError:
        raise CorruptError(f"a feature's name, at byte {start}, is not UTF-8") from None


def feature_of(view: memoryview, parts: list[tuple[int, int]]) -> Value:
    """The list that is set last counts; of one kind, all occurrences are joined."""
    kind, lists = 0, list[tuple[int, int]]()
    for part in parts:
        for number, wire, begin, end in fields_in(view, *part):
            if wire == _BYTES and _BYTES_LIST <= number <= _INT64_LIST:
                if number != kind:
                    kind, lists = number, []
                lists.append((begin, end))
    if kind == _INT64_LIST:
        return _joined([piece for one in lists for piece in _int64s(view, *one)], np.int64)
    if kind == _FLOAT_LIST:
        return _joined([piece for one in lists for piece in _floats(view, *one)], np.float32)
    return [piece for one in lists for piece in _bytes(view, *one)]


def _joined(pieces: list[npt.NDArray[Any]], kind: type[np.generic]) -> Any:
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces) if pieces else np.empty(0, kind)


def _bytes(view: memoryview, start: int, stop: int) -> Iterator[bytes]:
    for number, wire, begin, end in fields_in(view, start, stop):
        if number == 1 and wire == _BYTES:
            yield bytes(view[begin:end])


def _floats(view: memoryview, start: int, stop: int) -> Iterator[npt.NDArray[np.float32]]:
    """Packed lists whole; values written one by one, as old writers do, as few arrays as they have interruptions."""
    loose: list[float] = []
    for number, wire, begin, end in fields_in(view, start, stop):
        if number == 1 and wire == _FIXED32:
            loose.extend(struct.unpack_from("<f", view, begin))
        elif number == 1 and wire == _BYTES:
            if loose:
                yield np.array(loose, np.float32)
                loose = []
            if (end - begin) % 4:
                raise CorruptError(f"the float list at byte {begin} is not a multiple of 4 bytes long")
            yield np.frombuffer(view[begin:end], "<f4").astype(np.float32)
    if loose:
        yield np.array(loose, np.float32)


def _int64s(view: memoryview, start: int, stop: int) -> Iterator[npt.NDArray[np.int64]]:
    """As `_floats`."""
    loose: list[int] = []
    for number, wire, begin, end in fields_in(view, start, stop):
        if number == 1 and wire == _VARINT:
            loose.append(begin)
        elif number == 1 and wire == _BYTES:
            if loose:
                yield np.array(loose, np.uint64).view(np.int64)
                loose = []
            yield varints(view[begin:end])
    if loose:
        yield np.array(loose, np.uint64).view(np.int64)


def varints(data: memoryview) -> npt.NDArray[np.int64]:
    """The varints that fill `data`: [n]. Raises CorruptError for one that is cut off or longer than ten bytes."""
    if len(data) <= _FEW:
        values: list[int] = []
        at = 0
        while at < len(data):
            value, at = _varint(data, at, len(data))
            values.append(value)
        return np.array(values, np.uint64).view(np.int64)
    raw = np.frombuffer(data, np.uint8)
    last = (raw < 0x80).nonzero()[0]  # the byte that ends each
    if len(last) == len(raw):
        return raw.astype(np.int64)
    if not len(last) or last[-1] != len(raw) - 1:
        raise CorruptError("a varint is cut off")
    first = np.empty_like(last)
    first[0] = 0
    first[1:] = last[:-1] + 1
    lengths = last - first + 1
    longest = int(lengths.max())
    if longest > _TOO_LONG:
        raise CorruptError("a varint is longer than ten bytes")
    bits = (raw & 0x7F).astype(np.int64)
    numbers = bits[first]
    for place in range(1, longest):
        longer = (lengths > place).nonzero()[0]
        numbers[longer] |= bits[first[longer] + place] << (7 * place)
    return numbers


def fields_in(view: memoryview, start: int, stop: int) -> Iterator[_Field]:
    """The fields of the message in [start, stop); every range handed out lies within it."""
    while start < stop:
        tag = view[start]
        start += 1
        if tag > 0x7F:
            tag, start = _varint(view, start - 1, stop)
        wire = tag & 7
        if tag < 8 or tag > 0xFFFFFFFF:
            raise CorruptError(f"no valid field before byte {start}", hint="is it a serialised tf.train.Example?")
        if wire == _VARINT:
            value, start = _varint(view, start, stop)
            yield tag >> 3, wire, value, start
            continue
        if wire == _BYTES:
            length, start = _length(view, start, stop)
        elif wire == _FIXED32:
            length = 4
        elif wire == _FIXED64:
            length = 8
        else:  # groups, which no Example has and protobuf has given up
            raise CorruptError(f"wire type {wire} before byte {start}", hint="is it a serialised tf.train.Example?")
        end = start + length
        if end > stop:
            raise CorruptError(f"a field of {length} bytes at byte {start} runs past the end of its message, {stop}")
        yield tag >> 3, wire, start, end
        start = end


def _length(view: memoryview, at: int, stop: int) -> tuple[int, int]:
    """A varint that is mostly one byte. Raises IndexError at the end of the data; what it gives may exceed `stop`."""
    byte = view[at]
    return (byte, at + 1) if byte < 0x80 else _varint(view, at, stop)


def _varint(view: memoryview, at: int, stop: int) -> tuple[int, int]:
    """The varint at `at`, as 64 unsigned bits, and where it ends."""
    value = 0
    for place in range(at, min(at + _TOO_LONG, stop)):
        byte = view[place]
        value |= (byte & 0x7F) << (7 * (place - at))
        if byte < 0x80:
            return value & _ALL, place + 1
    raise CorruptError(f"the varint at byte {at} is cut off or longer than ten bytes")
