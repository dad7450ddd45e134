"""A version of a model, from its number to what answers: its files on this node, its runtime, warm.

A version never changes, so what the registry says of it is kept on the node: it can be opened again while the store is
away, as far as its files are cached.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final

from headrace.base.errors import CorruptError, HeadraceError, NoRoomError, NotFoundError, TryAgainError
from headrace.models import LocalModel, ModelCard, ModelVersion, Registry
from headrace.models import Signature as CardSignature
from headrace.models import Tensor as CardTensor
from headrace.serving.batching import Lane
from headrace.serving.counts import Counts
from headrace.serving.model import Version
from headrace.serving.options import Options
from headrace.serving.runtimes.apart import Apart
from headrace.serving.runtimes.frames import Load
from headrace.serving.runtimes.runtime import Runtime
from headrace.serving.swapping import Open
from headrace.serving.tensors import Signature, Tensor, kind_named
from headrace.serving.warming import FILE, default_name, warm
from headrace.upload import Member, Publication

_log = logging.getLogger("headrace.serving")
_SMALL: Final = 32 << 20
"""An ONNX model up to this is prepacked before it serves: it takes milliseconds."""


class Opener:
    """Opens versions of the models of one registry. Any thread."""

    def __init__(self, registry: Registry, options: Options) -> None:
        self._registry, self._options = registry, options
        self._proved: dict[str, Mapping[str, bool]] = {}
        """By structure, of large ONNX models: whether their rows are independent, which weights do not change."""

    def of(self, name: str) -> Open:
        """What opens a version of this model by its number; see `open`."""
        return lambda number: self.open(name, number)

    def open(self, name: str, number: int) -> Version:
        """Bring, check, load and warm it. Waits.

        Raises NotFoundError, CorruptError, UnsupportedError: it cannot be served. NoRoomError: the disk is full. Any
        store error.
        """
        found = self._found(name, number)
        local = self._local(found)
        runtime: Runtime | None = None
        try:
            runtime = self._runtime(found.card, local)
            recorded = _recorded(local)
            structure = _structure(found.card, local)
            known = None if structure is None else self._proved.get(structure, dict.fromkeys(runtime.signatures, False))
            warmed = warm(runtime, recorded, known)
        except BaseException:
            if runtime is not None:
                runtime.close()
            local.close()
            raise
        counts = Counts()
        rules = replace(self._options.rules, limit=self._options.limit)
        lane = Lane(runtime, warmed.together, rules, counts)
        lane.measured(warmed.row_s)

        def close() -> None:
            lane.runtime.close()
            local.close()

        return Version(
            name, number, lane, counts, runtime.signatures, default_name(runtime.signatures), runtime.platform, close,
            self._improving(found.card, local, lane, recorded, structure),
        )  # fmt: skip

    def _local(self, found: ModelVersion) -> LocalModel:
        try:
            return self._registry.local(found)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            hint = "make room, or set HEADRACE_CACHE_DIR to another disk"
            raise NoRoomError("no room for the model's folder", path=error.filename, hint=hint) from error

    def _runtime(self, card: ModelCard, local: LocalModel) -> Runtime:
        if card.format == "onnx":
            return self._onnx(local, prepacked=card.bytes <= _SMALL)
        hints = {"class": card.runtime or "", **({"file": card.entry} if card.entry else {})}
        signatures = {name: _signature(one) for name, one in card.signatures.items()}
        return Apart(Load(card.format, str(local.folder), self._options.runtime_threads, hints, signatures))

    def _onnx(self, local: LocalModel, *, prepacked: bool) -> Runtime:
        from headrace.serving.runtimes.onnx import open_onnx

        if local.entry is None:
            raise CorruptError("model.json names no file to open", hint="publish the model again")
        return open_onnx(str(local.entry), threads=self._options.runtime_threads, prepacked=prepacked)

    def _improving(
        self, card: ModelCard, local: LocalModel, lane: Lane, recorded: bytes | None, structure: str | None
    ) -> Callable[[], bool] | None:
        """The mapped session answers at once, and is slow at batches; the prepacked one is made behind it, and whether
        rows are independent is tried with that: once for all versions that differ in weights alone.
        """
        if structure is None:
            return None
        done = False

        def improve() -> bool:
            nonlocal done
            if done:
                return False
            done = True
            better: Runtime | None = None
            try:
                better = self._onnx(local, prepacked=True)
                warmed = warm(better, recorded)
            except Exception as error:  # the mapped one goes on
                if better is not None:
                    better.close()
                told = None if isinstance(error, HeadraceError) else error
                _log.warning("%s@%d stays mapped: %s", card.name, card.number, error, exc_info=told)
                return False
            self._proved[structure] = warmed.together
            lane.runtime = better
            lane.measured(warmed.row_s, warmed.together)
            return True

        return improve

    # What a version is, known on this node

    def _found(self, name: str, number: int) -> ModelVersion:
        place = os.path.join(self._registry.namespace.fetcher.settings.cache.dir, "serving", "versions")
        home = self._registry.home
        tag = _tag(f"{home.store.identity}\n{home.url('models', name, str(number))}")
        try:
            found = self._registry.find(name, number)
        except TryAgainError:  # the store is away; else it is asked, since a home may have been made anew
            if (known := _read(os.path.join(place, tag))) is not None:
                return known
            raise
        if found is None:
            raise NotFoundError(f"{name}@{number} is not published", hint=f"headrace models show {name}")
        with suppress(OSError):
            _keep(place, tag, found)
        return found


def _structure(card: ModelCard, local: LocalModel) -> str | None:
    """Of an ONNX model that is large enough to be mapped first; None: of another."""
    if card.format != "onnx" or card.bytes <= _SMALL or local.entry is None:
        return None
    from headrace.serving.runtimes.onnx_graph import structure

    return structure(str(local.entry))


def _recorded(local: LocalModel) -> bytes | None:
    path = local.files.get(FILE)
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


def _signature(told: CardSignature) -> Signature:
    return Signature(tuple(map(_tensor, told.inputs)), tuple(map(_tensor, told.outputs)))


def _tensor(told: CardTensor) -> Tensor:
    shape = None
    if told.shape is not None:
        shape = tuple(one if isinstance(one, int) and one >= 0 else -1 for one in told.shape)
    return Tensor(told.name, kind_named(told.dtype), shape)


def _tag(told: str) -> str:
    import hashlib

    return hashlib.blake2b(told.encode(), digest_size=12).hexdigest() + ".json"


def _keep(place: str, tag: str, found: ModelVersion) -> None:
    os.makedirs(place, mode=0o700, exist_ok=True)
    told = {
        "name": found.name, "number": found.number, "path": found.path, "card": found.card.as_json().decode(),
        "publication": asdict(found.publication),
    }  # fmt: skip
    beside = os.path.join(place, f"{tag}.{os.getpid()}")
    with open(beside, "w") as file:
        json.dump(told, file)
    os.replace(beside, os.path.join(place, tag))


def _read(place: str) -> ModelVersion | None:
    try:
        with open(place) as file:
            told: Any = json.load(file)
        publication = told["publication"]
        members = tuple(Member(**one) for one in publication.pop("members"))
        card = ModelCard.from_json(told["card"].encode(), place)
        return ModelVersion(
            told["name"], told["number"], told["path"], card, Publication(members=members, **publication)
        )
    except (OSError, ValueError, TypeError, KeyError, HeadraceError):
        return None
