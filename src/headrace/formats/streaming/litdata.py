"""litdata's chunks (``chunk-0-0.bin``), uncompressed: one item is one sample.

A chunk is how many items there are (uint32 n), where each begins and the last ends (uint32 [n+1]), the items. An item
is the length of each leaf (uint32), then all leaves. What the leaves are, and the tree they hang in, stands in
``index.json`` beside the chunks, which also lists them. Read from ``litdata/streaming`` of litdata 0.2.76 (`writer.py`,
`serializers.py`, `item_loader.py`), and from older ones where they wrote otherwise.

Leaves that are files (``jpeg``, ``image``, ``audio`` …) stay bytes, for `headrace.decode.image`; tensors come as NumPy
arrays. Nothing is ever unpickled. What else is not read is in `_config` and `_decode`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from headrace.base.errors import CorruptError, HeadraceError, NotFoundError, UnsupportedError
from headrace.catalog import KEY
from headrace.formats.columns.buffer_slices import Pieces
from headrace.formats.index.record_offsets import members, table_of
from headrace.formats.shard_format import Decode, Member, ShardBytes
from headrace.formats.streaming import stored_values as values
from headrace.formats.streaming.litdata_nested import nested
from headrace.formats.streaming.litdata_tree import Tree, build, leaves_of, parse
from headrace.formats.streaming.stored_values import Flat, Number, Several

_INDEX = "index.json"
_LONGEST = 16 << 20  # bytes of index.json: a hundred thousand chunks
_LEAVES = 4096  # of an item, at most
_ARROW = b"LDARW01\0"
_PLAIN = ("PyTreeLoader", "TokensLoader", None)
_HINT = "write it again with litdata.optimize, without compression= and encryption="
_FRAMED = b"LDFZ01\0\0"
_ZSTD = b"\x28\xb5\x2f\xfd"
_NUMPY = ("i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16", "?")
_TORCH = {
    **dict.fromkeys((0, 1), "<f4"),
    **dict.fromkeys((2, 3), "<f8"),
    **dict.fromkeys((4, 5), "<c8"),
    **dict.fromkeys((6, 7), "<c16"),
    **dict.fromkeys((8, 9), "<f2"),
    11: "u1",
    12: "i1",
    **dict.fromkeys((13, 14), "<i2"),
    **dict.fromkeys((15, 16), "<i4"),
    **dict.fromkeys((17, 18), "<i8"),
    19: "?",
    20: "<u2",
}
_FILES = ("bytes", "file", "image", "jpeg", "audio", "video", "nifti", "mesh", "pdf", "tiff", "tifffile")


class _Config(NamedTuple):
    """What ``index.json`` says: what `preamble` keeps of it, and the bytes of each chunk."""

    path: str
    kept: bytes
    chunks: dict[str, int]


@dataclass(frozen=True)
class LitData:
    """Items of leaves in a tree. A sample's parts are the items of the tree where it is a dict; else it is ``data``.

    A sample's key is the item's number in the chunk.
    """

    name: str = "litdata"
    version: int = 1
    suffixes: tuple[str, ...] = (".bin",)
    beside: str = _INDEX

    def recognise(self, head: memoryview) -> bool:
        """Whether there are bytes enough. The format has no magic: `preamble` looks closer."""
        return len(head) >= 8

    def scan(self, shard: ShardBytes) -> Iterator[Member]:
        """Every item. Reads the table of offsets only, in pieces of 1 MiB at most.

        Raises:
            CorruptError: the offsets do not rise, or the chunk does not end where the last item does.
        """
        return members(shard, table_of(shard, "litdata chunk"), shard.size)

    def decode(self, data: memoryview) -> memoryview:
        """The item's bytes; `decoder` makes leaves of them."""
        return data

    def about(self, beside: ShardBytes, shards: Sequence[str]) -> _Config:
        """What the index says. See `Accompanied.about`.

        Raises:
            CorruptError: it cannot be read, or lists chunks that are not there.
            UnsupportedError: compressed or encrypted chunks, another layout, leaves of a kind not read here.
        """
        try:
            config = _config(beside)
        except HeadraceError as error:
            raise error.at(beside.path) from None
        missing = config.chunks.keys() - set(shards)
        if missing:
            raise CorruptError(
                f"lists {len(missing):,} chunks that are not there, such as {min(missing)[:200]!r}", path=beside.path
            )
        return config

    def preamble(self, shard: ShardBytes, about: _Config | None = None, /) -> bytes:
        """Leaves and tree, as JSON: the same for all chunks of a folder.

        Raises:
            NotFoundError: there is no index. CorruptError: the chunk is none, or not the one that the index lists.
            UnsupportedError: its items are compressed, or rows of an Arrow table.
        """
        if about is None:
            raise NotFoundError(
                f"no {_INDEX} lies beside it, which says what its items are",
                path=shard.path,
                hint="open the folder that litdata wrote, with its index",
            )
        head = bytes(shard.read(0, len(_FRAMED)))
        if head == _FRAMED or head.startswith(_ZSTD):
            raise UnsupportedError("at byte 0: the chunk is compressed", path=shard.path, hint=_HINT)
        size = about.chunks.get(shard.path.rpartition("/")[2])
        if size != shard.size:
            what = "does not list it" if size is None else f"says it has {size} bytes, not {shard.size}"
            raise CorruptError(f"the {_INDEX} beside it {what}", path=shard.path, hint="is it left from another run?")
        if bytes(shard.read(max(0, shard.size - len(_ARROW)), shard.size)) == _ARROW:
            raise UnsupportedError(
                f"at byte {shard.size - len(_ARROW)}: its items are rows of an Arrow table, which is how litdata keeps "
                "dicts of nothing but numbers, text, bytes and lists",
                path=shard.path,
                hint="write an array, a tensor or an image in each, or Parquet instead",
            )
        return about.kept

    def decoder(self, preamble: bytes) -> Callable[[memoryview], Any]:
        """What turns an item's bytes into its tree.

        Raises:
            CorruptError, UnsupportedError: as `about`. The function it returns: CorruptError for bytes that are no such
                item, with the leaf's number.
        """
        found = cast("dict[str, Any]", values.json_value(memoryview(preamble)))
        decoders = tuple(_decode(one) for one in found["leaves"])
        return _Tokens(decoders[0]) if found["bare"] else _Item(decoders, parse(found["tree"]))


LITDATA = LitData()


@dataclass(frozen=True)
class _Item:
    """Decodes items. A class, so that it can be pickled."""

    leaves: tuple[Decode, ...]
    tree: Tree

    @property
    def keyed(self) -> bool:
        """Whether items have keys of their own."""
        return self.tree is not None and self.tree.kind == "dict" and KEY in self.tree.keys

    def __call__(self, data: memoryview) -> Any:
        count = len(self.leaves)
        at = 4 * count
        if len(data) < at:
            raise CorruptError(f"the item has {len(data)} bytes, too few for the lengths of {count} leaves")
        found: list[Any] = []
        for decode, length in zip(self.leaves, struct.unpack_from(f"<{count}I", data), strict=True):
            try:
                if at + length > len(data):
                    raise CorruptError(f"ends at byte {at + length} of the item, which has {len(data)}")
                found.append(decode(data[at : at + length]))
            except HeadraceError as error:
                error.reason = f"leaf {len(found)}: {error.reason}"
                raise
            at += length
        if at != len(data):
            raise CorruptError(f"the leaves end at byte {at} of the item, which has {len(data)}")
        return build(self.tree, iter(found))

    def all(self, data: Sequence[memoryview]) -> dict[str, Sequence[Any]] | None:
        """The same for several items that are plain dicts and whose leaves have the same lengths, by columns; None for
        any others. Raises as for one.
        """
        tree = self.tree
        if tree is None or tree.kind != "dict" or any(tree.children):
            return None
        lengths = values.same_lengths(data, len(self.leaves))
        if lengths is None or 4 * len(lengths) + sum(lengths) != values.length(data):
            return None
        found: dict[str, Sequence[Any]] = {}
        at = 4 * len(lengths)
        for name, decode, length in zip(tree.keys, self.leaves, lengths, strict=True):
            found[name] = values.decode_all(decode, values.cut(data, at, at + length))
            at += length
        return found


@dataclass(frozen=True)
class _Tokens:
    """Decodes items that were written for litdata's TokensLoader: one array, without its length."""

    leaf: Decode

    def __call__(self, data: memoryview) -> Any:
        return self.leaf(data)


def _config(beside: ShardBytes) -> _Config:
    if beside.size > _LONGEST:
        raise CorruptError(f"{beside.size} bytes, {_LONGEST} are the most")
    found = values.json_value(beside.read(0, beside.size))
    try:
        config = cast("dict[str, Any]", found["config"])
        chunks = {str(one["filename"]): int(one["chunk_bytes"]) for one in found["chunks"]}
        leaves, tree, loader = config["data_format"], config["data_spec"], config.get("item_loader")
        packed, secret = config.get("compression"), config.get("encryption")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptError(f"is no index of litdata: {type(error).__name__}: {error}") from None
    if packed is not None or secret is not None:
        raise UnsupportedError(f"its chunks are {'compressed' if packed is not None else 'encrypted'}", hint=_HINT)
    if loader not in _PLAIN:
        raise UnsupportedError(f"its chunks are written for {str(loader)[:80]}, not for PyTreeLoader")
    if not isinstance(leaves, list) or not 0 < len(cast("list[Any]", leaves)) <= _LEAVES:
        raise CorruptError(f"its items have no leaves, or more than {_LEAVES}")
    kinds = [str(one) for one in cast("list[Any]", leaves)]
    for number, kind in enumerate(kinds):
        try:
            _decode(kind)
        except HeadraceError as error:
            error.reason = f"leaf {number} of its items: {error.reason}"
            raise
    count = leaves_of(parse(tree))
    bare = loader == "TokensLoader"
    if count != len(kinds) or (bare and count > 1):
        raise CorruptError(f"its items have {len(kinds)} leaves, their tree {count}")
    kept = json.dumps({"leaves": kinds, "tree": tree, "bare": bare}).encode()
    return _Config(beside.path, kept, chunks)


def _decode(kind: str) -> Decode:
    """What decodes a leaf of that kind."""
    name, _, rest = kind.partition(":")
    if name in _FILES:
        return values.raw
    if name in _OTHERS:
        return _OTHERS[name]
    if name in ("no_header_tensor", "no_header_numpy"):
        number = int(rest) if rest.isdecimal() and len(rest) < 4 else -1
        return Flat(_numpy(number) if name == "no_header_numpy" else _torch(number))
    if name in ("pickle", "graph"):
        raise UnsupportedError("pickled, which could run any code", hint="write arrays, tensors, text or bytes")
    raise UnsupportedError(f"of kind {kind[:80]!r}, which is not known")


def _numpy(number: int) -> str:
    if not 0 <= number < len(_NUMPY):
        raise UnsupportedError(f"an array of NumPy type {number}, which has no numbers")
    return _NUMPY[number]


def _torch(number: int) -> str:
    if number == 10:
        raise UnsupportedError("a tensor of bfloat16, which NumPy has not", hint="write it as float32 or float16")
    if number not in _TORCH:
        raise CorruptError(f"a tensor of type {number}, which is none")
    return _TORCH[number]


@dataclass(frozen=True)
class _Headed:
    """An array behind its type, its axes and its shape (uint32 each). `tensor`: of PyTorch's types, in big endian;
    older litdata wrote little endian. The type is never 0, so the first byte tells.
    """

    tensor: bool

    def __call__(self, data: memoryview) -> npt.NDArray[Any]:
        """The array, a view. Raises CorruptError, UnsupportedError."""
        stop, dtype, shape = self._head(data)
        return values.shaped(data[stop:], dtype, shape)

    def all(self, data: Sequence[memoryview]) -> Sequence[npt.NDArray[Any]]:
        """The same for several of one length; where they lie in even steps, rows of one array."""
        stop, dtype, shape = self._head(data[0])
        values.shaped(data[0][stop:], dtype, shape)
        rows = data.matrix() if shape and isinstance(data, Pieces) else None
        if rows is not None and (rows[:, :stop] == rows[0, :stop]).all():
            of_kind = rows[:, stop:].view(dtype)
            return cast("Sequence[npt.NDArray[Any]]", of_kind.reshape(len(rows), *shape))
        if b"".join([one[:stop] for one in data]) != bytes(data[0][:stop]) * len(data):
            return [self(one) for one in data]
        return [np.frombuffer(one, dtype, -1, stop).reshape(shape) for one in data]

    def _head(self, data: memoryview) -> tuple[int, np.dtype[Any], tuple[int, ...]]:
        """Where the numbers begin, of which type they are, and of what shape. Raises CorruptError, UnsupportedError."""
        if len(data) < 8:
            raise CorruptError(f"{len(data)} bytes are no array")
        order = ">" if self.tensor and not data[0] else "<"
        number, axes = struct.unpack_from(f"{order}2I", data)
        stop = 8 + 4 * axes
        if stop > len(data):
            raise CorruptError(f"{len(data)} bytes are no array of {axes} axes")
        dtype = _torch(number) if self.tensor else _numpy(number)
        return stop, np.dtype(dtype), struct.unpack_from(f"{order}{axes}I", data, 8)


_OTHERS: dict[str, Decode] = {
    "str": values.text,
    "text": values.text,
    "bool": values.boolean,
    "int": Number("<i8", plain=True),
    "float": Number("<f8", plain=True),
    "pil": values.pixels,
    "jpeg_array": Several(values.raw),
    "json": nested,
    "numpy": _Headed(tensor=False),
    "tensor": _Headed(tensor=True),
}
