"""safetensors files, opened: one, or the shards that an index names (``model.safetensors.index.json``)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.base.errors import ChangedError, CorruptError, InputError, NotFoundError
from headrace.base.threads import Threads
from headrace.models.loading.header import LENGTH, Header, Tensor, header_length, parse
from headrace.models.loading.objects import Source, mapped

if TYPE_CHECKING:
    from headrace.namespace import Namespace

INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"
_SUFFIX: Final = ".index.json"
_FIRST: Final = 256 << 10
"""Bytes that hold most headers."""
_AT_ONCE: Final = 16
"""Headers read side by side."""


@dataclass(frozen=True)
class File:
    """One file. `view`: all of its bytes, mapped, where this machine has it as a file; `fresh`: its bytes came from the
    store just now.
    """

    source: Source
    header: Header
    view: memoryview | None = None
    fresh: bool = False

    @staticmethod
    def open(namespace: Namespace, path: str | os.PathLike[str]) -> File:
        """Read the header of the present version, or of one seen within ``cache.ttl`` that is still there.

        Raises:
            NotFoundError: no such object. CorruptError: it is no safetensors file. As `Fetcher.get`.
        """
        try:
            return File._of(Source.find(namespace, path))
        except (ChangedError, NotFoundError):  # it changed since it was seen, and nothing was handed out yet
            return File._of(Source.find(namespace, path, refresh=True))

    @staticmethod
    def _of(source: Source) -> File:
        descriptor = source.file()
        view = None if descriptor is None else mapped(descriptor)
        size, path = source.size, source.path
        first = source.get(0, min(size, _FIRST)) if view is None else view[:_FIRST]
        stop = LENGTH + header_length(bytes(first[:LENGTH]), size, path)
        rest = b"" if stop <= len(first) else source.get(len(first), stop) if view is None else view[len(first) : stop]
        return File(source, parse(bytes(first[LENGTH:stop]) + bytes(rest), size, path), view)

    def brought(self) -> File:
        """The same with all of its bytes in the node's cache, and mapped; as it is where there is no cache for it."""
        if self.view is not None or (descriptor := self.source.bring()) is None:
            return self
        return replace(self, view=mapped(descriptor), fresh=True)


@dataclass(frozen=True)
class Weights:
    """The tensors of a model. `files`: those opened; `places`: name → which of them has it."""

    path: str
    files: Sequence[File]
    places: Mapping[str, int]

    @staticmethod
    def of(file: File) -> Weights:
        """All of one file."""
        return Weights(file.source.path, (file,), dict.fromkeys(file.header.tensors, 0))

    @property
    def metadata(self) -> dict[str, str]:
        """Of all files, the first's where several tell the same."""
        return {name: text for file in reversed(self.files) for name, text in file.header.metadata.items()}

    def tensor(self, name: str) -> Tensor:
        """Raises InputError: there is none of that name."""
        if name not in self.places:
            raise unknown(name, self.places, self.path)
        return self.files[self.places[name]].header.tensors[name]


def unknown(name: str, known: Iterable[str], path: str) -> InputError:
    """The error for a tensor that is not there."""
    close = get_close_matches(name, known, 3)
    hint = f"did you mean {', '.join(close)}?" if close else "headrace.safetensors.open(…).keys() names them"
    return InputError(f"has no tensor {name!r}", path=path, hint=hint)


def open_weights(namespace: Namespace, path: str | os.PathLike[str], names: Iterable[str] | None = None) -> Weights:
    """A file, an index, or a folder that has an index or ``model.safetensors``. Of an index, the shards that hold
    `names` (None: all) are opened.

    Raises:
        NotFoundError: nothing there, or no such file in the folder. InputError: no such name. CorruptError.
    """
    text = os.fspath(path)
    if not text.endswith((_SUFFIX, ".safetensors")) and namespace.stat(text).kind == "folder":
        text = _in_folder(namespace, text)
    if not text.endswith(_SUFFIX):
        return Weights.of(File.open(namespace, text))
    folder, shards = text.rpartition("/")[0], _shards(namespace, text)
    wanted = shards if names is None else {name: _shard(shards, name, text) for name in names}
    found = list(dict.fromkeys(wanted.values()))
    paths = [f"{folder}/{shard}" if folder else shard for shard in found]
    with Threads(max(1, min(_AT_ONCE, len(paths))), "headrace-load-header") as pool:
        files = tuple(pool.map(partial(File.open, namespace), paths))
    for name, shard in wanted.items():
        if name not in files[found.index(shard)].header.tensors:
            raise CorruptError(f"has no tensor {name!r}, though the index says so", path=f"{folder}/{shard}")
    return Weights(text, files, {name: found.index(shard) for name, shard in wanted.items()})


def _in_folder(namespace: Namespace, folder: str) -> str:
    names = {entry.name for entry in namespace.list(folder) if entry.is_file}
    weights = sorted(name for name in names if name.endswith(".safetensors"))
    for name in (INDEX, SINGLE):
        if name in names:
            return f"{folder.rstrip('/')}/{name}"
    if len(weights) == 1:
        return f"{folder.rstrip('/')}/{weights[0]}"
    hint = f"it has {', '.join(weights)}: name one" if weights else f"what there is: headrace ls {folder}"
    raise NotFoundError(f"has neither {INDEX} nor {SINGLE}", path=folder, hint=hint)


def _shards(namespace: Namespace, path: str) -> dict[str, str]:
    """Name of a tensor → name of its file, by an index."""
    try:
        told: Any = json.loads(bytes(namespace.read(path)))
        shards = told["weight_map"]
        assert isinstance(shards, dict)
        assert all(isinstance(one, str) for one in shards.values())
    except (ValueError, RecursionError, KeyError, TypeError, AssertionError):
        hint = 'it should be JSON: {"weight_map": {name of a tensor: name of a file}}'
        raise CorruptError("is no index of safetensors files", path=path, hint=hint) from None
    for shard in set(shards.values()):
        if not shard.endswith(".safetensors") or "\\" in shard or {"", ".", ".."} & set(shard.split("/")):
            hint = "names in an index are those of files beside it"
            raise CorruptError(f"names a file {shard!r}", path=path, hint=hint)
    return shards


def _shard(shards: Mapping[str, str], name: str, path: str) -> str:
    if name not in shards:
        raise unknown(name, shards, path)
    return shards[name]
