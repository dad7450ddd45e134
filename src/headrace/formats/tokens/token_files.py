"""Flat arrays of tokens: ``.bin`` files that are nothing but numbers, ``.npy`` files of one axis.

A document is one sample. It ends behind the token that `TokenFiles.end` names, and where its file ends; where no token
is named, a file is one document. `headrace.loader.tokens.flat_blocks` cuts blocks of tokens out of documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.base.errors import CorruptError, InputError, UnsupportedError
from headrace.formats.numpy_files.npy import NPY, header_of
from headrace.formats.shard_format import Alike, Member, ShardBytes

PART = "tokens"
"""The only part of a sample."""
_PIECE = 4 << 20  # bytes looked at together, a multiple of any item's size
_SPELLED = 'Dataset.open(path, format="tokens", dtype="uint16")'
_GUESS = "is dtype what the file was written with, and is the file whole?"


class _Array(NamedTuple):
    """What of a file is tokens."""

    dtype: np.dtype[Any]
    start: int
    stop: int


@dataclass(frozen=True)
class TokenFiles:
    """Documents of flat files. The part ``tokens``, its key the document's number in the file.

    Args:
        dtype: as NumPy writes it (``<u2``); empty: only ``.npy`` files say it themselves.
        end: the token behind which a document ends; None: where its file does.
    """

    dtype: str = ""
    end: int | None = None
    version: int = 1
    suffixes: tuple[str, ...] = (".bin", ".npy")
    may_be_empty: bool = True

    @property
    def name(self) -> str:
        """Of the format and of how it is read: what is kept of one is not taken for another's."""
        told = [self.dtype.replace("<", "").replace("|", "").replace(">", "be"), "" if self.end is None else self.end]
        return "-".join(["tokens", *(str(one) for one in told if one != "")])

    def recognise(self, head: memoryview) -> bool:  # noqa: ARG002
        """Any bytes may be tokens."""
        return True

    def scan(self, shard: ShardBytes) -> Iterator[Member]:
        """Every document. Reads the file where a token ends documents, else nothing but a header.

        Raises:
            InputError: nothing says of which type the tokens are, or two things do. CorruptError: the file is no whole
            number of them. UnsupportedError: an array of several axes, or of anything but integers.
        """
        for some in self.groups(shard):
            for number, key in enumerate(some.keys.tolist()):
                yield Member(key.decode(), PART, *some.bounds[number].tolist())

    def groups(self, shard: ShardBytes) -> Iterator[Alike]:
        """As `scan`, many at a time."""
        array, number = self._array(shard), 0
        begun = array.start
        for stops in self._ends(shard, array):
            starts = np.concatenate(([begun], stops[:-1]))
            keys = np.array([b"%08d" % one for one in range(number, number + len(stops))])
            yield Alike(keys, (PART,), np.stack([starts, stops], axis=1))
            number, begun = number + len(stops), int(stops[-1])

    def _ends(self, shard: ShardBytes, array: _Array) -> Iterator[npt.NDArray[np.int64]]:
        """The bytes behind documents, in their order, some at a time; none is empty."""
        begun, size = array.start, array.dtype.itemsize
        if self.end is not None:
            for at in range(array.start, array.stop, _PIECE):
                piece = np.frombuffer(shard.read(at, min(at + _PIECE, array.stop)), array.dtype)
                found = at + (np.flatnonzero(piece == self.end).astype(np.int64) + 1) * size
                if len(found):
                    begun = int(found[-1])
                    yield found
        if begun < array.stop:
            yield np.array([array.stop], np.int64)

    def preamble(self, shard: ShardBytes) -> bytes:
        """The type of the tokens. Raises as `scan`."""
        return self._array(shard).dtype.str.encode()

    def decoder(self, preamble: bytes) -> Mapping[str, Callable[[memoryview], npt.NDArray[Any]]]:
        """What makes an array of a document's bytes, a view of them."""
        return {PART: TokenDecoder(preamble.decode())}

    def _array(self, shard: ShardBytes) -> _Array:
        if bytes(shard.read(0, 6)) == b"\x93NUMPY":
            return self._npy(shard)
        if not self.dtype:
            raise InputError("nothing says of which type its tokens are", path=shard.path, hint=_SPELLED)
        dtype = np.dtype(self.dtype)
        if shard.size % dtype.itemsize:
            raise CorruptError(
                f"{shard.size:,} bytes are no whole number of {dtype.name} tokens of {dtype.itemsize} bytes",
                path=shard.path,
                hint=_GUESS,
            )
        return _Array(dtype, 0, shard.size)

    def _npy(self, shard: ShardBytes) -> _Array:
        header = header_of(NPY.preamble(shard), shard.path)
        if len(header.shape) != 1:
            hint = 'format="npy" gives its rows'
            raise UnsupportedError(f"an array of shape {header.shape}, not of one axis", path=shard.path, hint=hint)
        try:
            dtype = dtype_of(header.dtype)
        except InputError as error:
            raise error.at(shard.path) from None
        if self.dtype and dtype != np.dtype(self.dtype):
            reason = f"holds {dtype.name} tokens, and dtype says {np.dtype(self.dtype).name}"
            raise InputError(reason, path=shard.path, hint="leave dtype out: .npy files say it themselves")
        if shard.size != header.size + header.shape[0] * dtype.itemsize:
            reason = f"{shard.size - header.size:,} bytes after its header, meant for {header.shape[0]:,} tokens"
            raise CorruptError(reason, path=shard.path, hint="it is cut off, or holds more than one array")
        return _Array(dtype, header.size, shard.size)


@dataclass(frozen=True)
class TokenDecoder:
    """Decodes tokens of one type. A class, so that it can be pickled."""

    dtype: str

    def __call__(self, data: memoryview) -> npt.NDArray[Any]:
        try:
            return np.frombuffer(data, self.dtype)
        except ValueError as error:
            reason = f"{len(data)} bytes are no whole number of {np.dtype(self.dtype).name} tokens"
            raise CorruptError(reason, hint=_GUESS) from error


TOKENS = TokenFiles()


def tokens_as(dtype: str | np.dtype[Any] | None, end: int | None) -> TokenFiles:
    """Flat files of that type. Raises InputError: it is none for tokens, or `end` is not of it."""
    if dtype is None:
        return TokenFiles(end=end)
    kind = dtype_of(dtype)
    if end is not None:
        check_fits(end, kind, "end")
    return TokenFiles(kind.str, end)


def dtype_of(dtype: Any) -> np.dtype[Any]:
    """The type of tokens that is meant. Raises InputError: it is none of integers."""
    try:
        kind = np.dtype(dtype)
    except (TypeError, ValueError):
        raise InputError(f"dtype={dtype!r} is not known", hint='as NumPy writes it: "uint16", "int32"') from None
    if kind.kind not in "iu":
        raise InputError(f"dtype={kind.name!r}, and tokens are integers", hint='as NumPy writes it: "uint16", "int32"')
    return kind


def check_fits(token: int, dtype: np.dtype[Any], what: str) -> None:
    """Raises InputError: it is no token of that type."""
    range_ = np.iinfo(dtype)
    if not range_.min <= token <= range_.max:
        raise InputError(
            f"{what}={token} is no {dtype.name}, which reaches from {range_.min} to {range_.max}",
            hint="a token id of that type",
        )
