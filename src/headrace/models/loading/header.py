"""The header of a safetensors file: what is where. Reading it believes nothing; writing it is what the library reads.

    8 bytes   N, the header's length, little-endian
    N bytes   JSON: {"name": {"dtype", "shape", "data_offsets": [start, stop]}, …, "__metadata__": {text: text}}
    the rest  the tensors' bytes, little-endian and row by row; offsets count from here, without holes

Format: https://huggingface.co/docs/safetensors. Nothing is sliced by what the header says before all of it is checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, NoReturn

from headrace.base.errors import CorruptError

LENGTH: Final = 8
"""Bytes before the header that tell how long it is."""
MOST: Final = 100_000_000
"""Bytes of the longest header that is read, as in the library."""
BITS: Final[Mapping[str, int]] = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
"""Bits of one element, by dtype."""
_METADATA: Final = "__metadata__"
_ALIGNED: Final = 8  # bytes: tensors of any dtype can be mapped where they lie
_LARGEST: Final = 2**63  # int64 ends here
_AXES: Final = 64
"""Of one tensor, at most: as in NumPy and torch."""
_HINT: Final = "it is damaged, or no safetensors file"


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a file. `start`, `stop`: its bytes, counted from the beginning of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.stop - self.start


@dataclass(frozen=True)
class Header:
    """What a file holds. `tensors`: by name, in the order of their bytes; `begin`: where the first byte of data is."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    begin: int = LENGTH


def header_length(first: bytes, size: int, path: str) -> int:
    """Bytes of the header of a file of `size` bytes that begins with `first`, 8 bytes at least.

    Raises:
        CorruptError: there is no room for it, or it is longer than any may be.
    """
    if size < LENGTH or len(first) < LENGTH:
        _refuse("is too short for a safetensors file", path)
    length = int.from_bytes(first[:LENGTH], "little")
    if length > MOST:
        _refuse(f"says that its header has {length:,} bytes; at most {MOST:,} are read", path)
    if LENGTH + length > size:
        _refuse(f"says that its header has {length:,} bytes, but ends after {size:,}", path)
    return length


def parse(text: bytes, size: int, path: str) -> Header:
    """The header whose JSON is `text`, of a file of `size` bytes.

    Raises:
        CorruptError: it is no such JSON; tensors overlap, leave holes, or are not as long as dtype and shape say.
    """
    try:
        told = json.loads(text.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        _refuse(f"has a header that is no JSON: {error}", path)
    if not isinstance(told, dict):
        _refuse("has a header that is no JSON object", path)
    metadata = _metadata(told.pop(_METADATA, None), path)
    begin = LENGTH + len(text)
    tensors = sorted((_tensor(name, one, begin, path) for name, one in told.items()), key=lambda t: (t.start, t.stop))
    at = begin
    for tensor in tensors:
        if tensor.start != at:
            what = "overlaps the one before" if tensor.start < at else f"leaves a hole of {tensor.start - at:,} bytes"
            _refuse(f"has a tensor {tensor.name!r} that {what}", path)
        at = tensor.stop
    if at != size:
        _refuse(f"has {size - begin:,} bytes of data, but its header tells of {at - begin:,}", path)
    return Header({tensor.name: tensor for tensor in tensors}, metadata, begin)


def encode(parts: Iterable[tuple[str, str, tuple[int, ...], int]], metadata: Mapping[str, str]) -> bytes:
    """The first bytes of a file, up to its data: tensors are (name, dtype, shape, bytes) and follow in this order.

    Data begins at a multiple of 8 bytes.
    """
    told: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name, dtype, shape, size in parts:
        told[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return len(text).to_bytes(LENGTH, "little") + text


def _tensor(name: str, told: Any, begin: int, path: str) -> Tensor:
    if not isinstance(told, dict) or not isinstance(dtype := told.get("dtype"), str):
        _refuse(f"has a header that does not describe {name!r}", path)
    shape, offsets = _numbers(told.get("shape")), _numbers(told.get("data_offsets"))
    if shape is None or offsets is None or len(offsets) != 2:
        _refuse(f"has no shape or no offsets for {name!r}", path)
    if dtype not in BITS:
        raise CorruptError(
            f"has a tensor {name!r} of the unknown dtype {dtype!r}", path=path, hint=f"known are {', '.join(BITS)}"
        )
    if len(shape) > _AXES:
        _refuse(f"has a tensor {name!r} of {len(shape):,} axes; at most {_AXES} are read", path)
    if prod(extent for extent in shape if extent) * BITS[dtype] >= _LARGEST:  # NumPy has no such shape, however empty
        _refuse(f"has a tensor {name!r} of the shape {list(shape)}, which no memory holds", path)
    bits = prod(shape) * BITS[dtype]
    start, stop = offsets
    if bits % 8 or stop - start != bits // 8:
        has = f"{bits // 8:,} bytes" if not bits % 8 else f"{bits:,} bits, which are no whole bytes"
        _refuse(f"gives {name!r} {stop - start:,} bytes; {dtype} of shape {list(shape)} has {has}", path)
    return Tensor(name, dtype, shape, begin + start, begin + stop)


def _numbers(told: Any) -> tuple[int, ...] | None:
    """A list of whole numbers that are not negative."""
    if not isinstance(told, list):
        return None
    numbers = [one for one in told if type(one) is int and 0 <= one < _LARGEST]
    return tuple(numbers) if len(numbers) == len(told) else None


def _metadata(told: Any, path: str) -> dict[str, str]:
    if told is None:
        return {}
    if not isinstance(told, dict) or not all(isinstance(one, str) for one in told.values()):
        _refuse("has metadata that is not text by name", path)
    return told


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    told = dict(pairs)
    if len(told) != len(pairs):
        raise ValueError("a name comes twice")
    return told


def _refuse(reason: str, path: str) -> NoReturn:
    raise CorruptError(reason, path=path, hint=_HINT)
