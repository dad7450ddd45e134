"""``.npy`` and ``.npz`` files whose rows have no place of their own, made anew: in C order, nothing packed.

A ``.npy`` in Fortran order becomes one in C order. A ``.npz`` that is compressed, or holds such an array, becomes what
only `headrace.formats.numpy_files.npz` reads: `MAGIC`, the length of a list (uint32), the list as JSON (name, where its
``.npy`` begins, its header), then the ``.npy`` files. All of the stored file, and one array in Fortran order, are in
memory meanwhile.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np

from headrace.base.errors import CorruptError, HeadraceError, UnsupportedError
from headrace.formats.numpy_files.npy import LONGEST, NPY, Header, header_of

MAGIC = b"HRARRAYS"
MOST = 4 << 30
"""Bytes of all arrays of a file: whoever reads a row of it holds all of them."""
_PIECE = 1 << 20  # bytes handed on at a time
_ORDER = re.compile(rb"('fortran_order':\s*)True")


def npy_in_order(data: memoryview, path: str) -> Iterator[bytes]:
    """A ``.npy`` file in C order, some rows at a time.

    Raises:
        CorruptError, UnsupportedError: as `headrace.formats.numpy_files.npy.Npy.scan`.
    """
    preamble = NPY.preamble(_Memory(path, data))
    header = header_of(preamble, path, any_order=True)
    yield in_c_order(preamble)
    yield from _rows(header, data[header.size :], path)


def npz_in_order(data: memoryview, path: str) -> Iterator[bytes]:
    """The arrays of an archive: the list of them, then each, some rows at a time. Their checksums are verified.

    Raises:
        CorruptError: the archive or an array is damaged. UnsupportedError: as `formats.numpy_files.npz.Npz.scan`.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if sum(one.file_size for one in members) > MOST:
                raise UnsupportedError(f"decompresses to more than {MOST:,} bytes", hint="save smaller files")
            found = [_found(archive, one, path) for one in members]
            yield _listed(found)
            for one in found:
                yield in_c_order(one.preamble)
                with archive.open(one.info) as file:
                    file.read(one.header.size)
                    if one.header.fortran:
                        yield from _rows(one.header, memoryview(file.read()), path)
                    else:
                        yield from iter(lambda file=file: file.read(_PIECE), b"")
    except HeadraceError as error:
        raise error.at(path) from None
    except Exception as error:  # whatever zipfile and zlib make of hostile bytes
        raise CorruptError(
            f"the archive cannot be read: {type(error).__name__}: {error}", path=path, hint="is it damaged?"
        ) from None


def in_c_order(preamble: bytes) -> bytes:
    """A ``.npy`` header, of the same length or a byte longer, that says C order."""
    start = 10 if preamble[6] == 1 else 12
    text = _ORDER.sub(rb"\1False", preamble[start:], count=1)
    if len(text) > len(preamble) - start and text.endswith(b" \n"):
        text = text[:-2] + b"\n"
    return preamble[:8] + len(text).to_bytes(start - 8, "little") + text


class _Found(NamedTuple):
    info: zipfile.ZipInfo
    preamble: bytes
    header: Header


def _found(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str) -> _Found:
    if info.flag_bits & 1:
        raise UnsupportedError(f"{info.filename[:200]!r} is encrypted")
    if not info.filename.endswith(".npy"):
        raise UnsupportedError(f"{info.filename[:200]!r} is no array", hint="np.savez writes none such")
    with archive.open(info) as file:
        head = _Memory(path, memoryview(file.read(LONGEST + 12)))
    preamble = NPY.preamble(head)
    header = header_of(preamble, path, any_order=True)
    if header.size + header.shape[0] * header.row != info.file_size:
        raise CorruptError(f"array {info.filename[:200]!r} has {info.file_size} bytes, which its header denies")
    return _Found(info, preamble, header)


def _listed(found: list[_Found]) -> bytes:
    """What stands before the arrays. Where they begin is told from the end of it."""
    at, said = 0, list[tuple[str, int, str]]()
    for one in found:
        preamble = in_c_order(one.preamble)
        said.append((one.info.filename.removesuffix(".npy"), at, preamble.hex()))
        at += len(preamble) + one.info.file_size - one.header.size
    text = json.dumps(said).encode()
    return MAGIC + len(text).to_bytes(4, "little") + text


def _rows(header: Header, data: memoryview, path: str) -> Iterator[bytes]:
    if header.shape[0] * header.row != len(data):
        raise CorruptError(f"{len(data)} bytes are no array of shape {header.shape}", path=path, hint="is it cut off?")
    array = np.frombuffer(data, header.dtype).reshape(header.shape, order="F")
    step = max(1, _PIECE // max(1, header.row))
    for first in range(0, header.shape[0], step):
        yield cast("Any", np.ascontiguousarray(array[first : first + step])).tobytes()


class _Memory:
    """A `headrace.formats.shard_format.ShardBytes` in memory."""

    def __init__(self, path: str, data: memoryview) -> None:
        self.path, self.size, self._data = path, len(data), data

    def read(self, start: int, stop: int) -> memoryview:
        """See `ShardBytes.read`."""
        return self._data[start:stop]
