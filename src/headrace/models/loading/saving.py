"""`hr.safetensors.save`: tensors straight into the bucket, in parts, from where they lie; whole, or not at all."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from headrace.base.errors import InputError, ReadOnlyError
from headrace.base.progress import SILENT, Progress
from headrace.models.loading.arrays import Copies, Layout, laid_out
from headrace.models.loading.checksums import RECORDED, Checksum
from headrace.models.loading.header import BITS, encode
from headrace.namespace import Namespace
from headrace.store.protocol import Buffer
from headrace.upload import Uploader, UploadOptions

_STEP: Final = 16 << 20
"""Bytes of a part, and of what is brought from another device at a time."""
_THREADS: Final = 4  # parts under way, 64 MiB in memory


def save(
    tensors: Mapping[str, Any],
    where: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    checksums: bool = True,
    progress: Progress = SILENT,
    namespace: Namespace | None = None,
) -> None:
    """Write tensors or arrays as one safetensors object, in parts of 16 MiB, four at once; visible when all is there.

    Nothing is copied of tensors that lie in this machine's memory row by row. Of others, 64 MiB at most are copied at a
    time; or four tensors, where they do not lie row by row. Tensors that share memory are written each for itself. Do
    not change them meanwhile.

    Args:
        tensors: by name; torch's, on any device, or NumPy's.
        where: a path, URL or local file. What is there is replaced.
        metadata: texts for the file.
        checksums: record each tensor's XXH3-64 in the metadata, for `load` to verify. All tensors are read once more
            for that.
        progress: told the bytes as they arrive.
        namespace: where paths lead; default: `Namespace.load()`.

    Raises:
        UnsupportedError: safetensors has no such dtype; the store takes no parts. InputError: names or metadata that
        are no text. ReadOnlyError, DeniedError, TryAgainError.
    """
    namespace = namespace or Namespace.load()
    location = namespace.resolve(where)
    if location.read_only:
        raise ReadOnlyError("is read-only", path=location.path, hint="attach it again without read_only to write there")
    if not location.key or location.key.endswith("/"):
        raise InputError("is a folder", path=location.path, hint="name a file in it")
    layouts = _ordered(tensors)
    told = _texts(metadata or {})
    if checksums:
        told[RECORDED] = json.dumps({name: _checksum(one) for name, one in layouts.items()}, separators=(",", ":"))
    described = [(name, one.dtype, one.shape, one.size) for name, one in layouts.items()]
    object_bytes = _Bytes(encode(described, told), list(layouts.values()))
    with Uploader(UploadOptions(part=_STEP, threads=_THREADS, memory=_THREADS * _STEP)) as uploader:
        store, key, size = location.store, location.key, object_bytes.size
        info = uploader.put_from(store, key, size, object_bytes.read, progress=progress)
    namespace.remember(location.path, info)


def _ordered(tensors: Mapping[str, Any]) -> dict[str, Layout]:
    """The widest elements first, so that all of them are aligned; as the library does."""
    for name in tensors:
        if not isinstance(name, str) or name == "__metadata__":
            raise InputError(f"{name!r} cannot be the name of a tensor", hint="names are texts but __metadata__")
    copies = Copies(_THREADS)
    layouts = {name: laid_out(tensor, copies) for name, tensor in tensors.items()}
    return dict(sorted(layouts.items(), key=lambda pair: -BITS[pair[1].dtype]))


def _texts(metadata: Mapping[str, str]) -> dict[str, str]:
    if not all(isinstance(one, str) for pair in metadata.items() for one in pair):
        raise InputError("metadata are texts by name", hint="json.dumps makes texts of other values")
    return {name: text for name, text in metadata.items() if name != RECORDED}


def _checksum(layout: Layout) -> str:
    whole = Checksum()
    for at in range(0, layout.size, _STEP):
        whole.update(layout.read(at, min(at + _STEP, layout.size)))
    return whole.text


class _Bytes:
    """The file that is to be, of which any stretch is had at once. Any thread."""

    def __init__(self, head: bytes, layouts: Sequence[Layout]) -> None:
        self._head = memoryview(head)
        self._layouts = [one for one in layouts if one.size]
        self._ends = list(accumulate((one.size for one in self._layouts), initial=len(head)))
        self.size = self._ends[-1]

    def read(self, start: int, stop: int) -> Buffer:
        """Bytes [start, stop); a view where they are of one tensor."""
        pieces: list[Buffer] = [self._head[start:stop]] if start < len(self._head) else []
        at = max(start, len(self._head))
        while at < stop:
            number = bisect_right(self._ends, at) - 1
            begin, end = self._ends[number], min(stop, self._ends[number + 1])
            pieces.append(self._layouts[number].read(at - begin, end - begin))
            at = end
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
