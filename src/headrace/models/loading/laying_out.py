"""What is sent of a model that is published: its files as they lie; of ONNX, the weights beside the model file."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.base.errors import UnsupportedError
from headrace.base.places import temporary_folder
from headrace.models import sources
from headrace.models.bringing import Wanted, bring, path_below
from headrace.models.loading.onnx_external import externalize, names_beside
from headrace.models.sources import Source, SourceFile

if TYPE_CHECKING:
    from headrace.models.formats import Detected
    from headrace.models.registry import Registry

_log = logging.getLogger("headrace.models")
_WORTH: Final = 1 << 20
"""Bytes of a model file from which on it is written anew: a smaller one is read in no time."""


class Part(NamedTuple):
    """Files of one store to be sent. `called`: what one is called in the version, where that is not its own name;
    `last`: which of them goes last.
    """

    source: Source
    called: Mapping[str, str]
    last: str | None


@contextmanager
def laid_out(registry: Registry, source: Source, found: Detected) -> Generator[Sequence[Part]]:
    """What is to be sent, in order, for as long as the block lasts.

    An ONNX model file of 1 MiB and more is brought here, with the files that it names, and becomes ``NAME`` and
    ``NAME.data`` (`onnx_external`). One whose weights lie beside it stays as it is, as does any other format.

    Raises:
        CorruptError: it is no ONNX model. NoRoomError. Any store error.
    """
    entry = found.entry
    as_it_lies = [Part(source, {entry: found.called} if entry and found.called else {}, entry)]
    if found.format != "onnx" or entry is None or source.file(entry).info.size < _WORTH:
        yield as_it_lies
        return
    with tempfile.TemporaryDirectory(prefix="headrace-", dir=temporary_folder()) as work:
        try:
            taken = _externalized(registry, source, entry, found.called or entry, Path(work))
        except UnsupportedError as error:
            _log.warning("the ONNX model is published as it lies: %s (%s)", error.reason, error.hint)
            yield as_it_lies
            return
        rest = tuple(one for one in source.files if one.name not in taken)
        made = dataclasses.replace(sources.find(registry, f"file://{work}/out"), run=source.run)
        parts = [Part(dataclasses.replace(source, files=rest), {}, None)] if rest else []
        yield [*parts, Part(made, {}, found.called or entry)]


def _externalized(registry: Registry, source: Source, entry: str, name: str, work: Path) -> set[str]:
    """Write the model into ``work/out``; which files of the source it has taken up."""
    here = _bring(registry, source, [source.file(entry)], work)[0]
    folder = entry.rpartition("/")[0]
    beside = {f"{folder}/{one}" if folder else one for one in names_beside(here)}
    weights = [one for one in source.files if one.name in beside]
    _bring(registry, source, weights, work)
    target = Path(path_below(str(work / "out"), name))
    target.parent.mkdir(parents=True)
    externalize(here, target.parent, name=target.name)
    return {entry, *(one.name for one in weights)}


def _bring(registry: Registry, source: Source, files: Sequence[SourceFile], work: Path) -> list[Path]:
    """Files of the source on this machine: where they lie, if that is here."""
    root = source.store.local_root
    if root is not None:
        return [Path(root, one.info.key) for one in files]
    paths = [path_below(str(work / "in"), one.name) for one in files]
    wanted = [Wanted(one.info, path) for one, path in zip(files, paths, strict=True)]
    bring(source.store, registry.namespace.fetcher, wanted)
    return [Path(path) for path in paths]
