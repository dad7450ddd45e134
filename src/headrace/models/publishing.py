"""A version is published: its number taken, its files sent, ``model.json`` says what they are, then ``COMMITTED``.

Until the last of these nothing resolves to it, whenever its publisher is killed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import headrace
from headrace.base.errors import ChangedError, HeadraceError, InputError
from headrace.base.progress import SILENT, Progress
from headrace.models import gates, lineage, numbers, sources
from headrace.models.card import CARD, ModelCard, Signature
from headrace.models.clearing import clear_below
from headrace.models.formats import Detected, detect
from headrace.models.loading.laying_out import laid_out
from headrace.models.mirroring import mirror_after
from headrace.models.names import check_name
from headrace.models.registry import ModelVersion, Registry
from headrace.models.sending import Sent, joined, send
from headrace.models.signatures import LARGEST, signatures
from headrace.models.sources import Given, Source
from headrace.tracking.record import now, user_here
from headrace.upload import commit, missing, retract

_RUNTIME: Final = ":"


@dataclass(frozen=True, slots=True)
class Told:
    """What the publisher says of a version beside its files.

    `format`: None, told by the files; `signatures`: None, read from the model where that is possible; `runtime`:
    ``module:Class`` of a model that is Python; `gate`: a condition on the run's metrics (`headrace.models.gates`);
    `note`: anything; `source`: where it comes from, if that is not where its files lie.
    """

    format: str | None = None
    signatures: Mapping[str, Signature] | None = None
    runtime: str | None = None
    gate: str | None = None
    note: str = ""
    source: str | None = None


def publish(
    registry: Registry, given: Given, name: str, told: Told | None = None, *, progress: Progress = SILENT
) -> ModelVersion:
    """Make the next version of `name` of what `given` names. Any thread.

    Files that lie in the home's store are copied there by the store itself.

    Raises:
        InputError: a name, a format or a condition that cannot be. NotFoundError: there is no such source.
        ChangedError: it changed meanwhile; the condition does not hold; what was sent was deleted meanwhile, by a `gc`
        that took this for dead. UnsupportedError: the store creates nothing only where there is none. ReadOnlyError,
        any store error. There is no version then, and what was sent is
        deleted, or left to `gc`.
    """
    told = told or Told()
    check_name(name)
    if told.runtime is not None and _RUNTIME not in told.runtime.strip(_RUNTIME):
        raise InputError(f"{told.runtime!r} names no class", hint="write it like module:Class")
    if told.gate is not None:
        gates.parse(told.gate)
    registry.home.check_writable()
    source = sources.find(registry, given)
    found = _detected(registry, source, told)
    card = _draft(registry, source, name, told, found)
    number = numbers.take(registry.home, name, source.url)
    prefix = registry.prefix(name, number)
    try:
        with laid_out(registry, source, found) as parts:
            files = [one.info.size for part in parts for one in part.source.files]
            progress.total(len(files), sum(files))
            sent = joined(send(registry, one.source, prefix, one.called, one.last, progress) for one in parts)
        made = _commit(registry, card, number, prefix, sent)
    except BaseException:
        _undo(registry, prefix)
        raise
    mirror_after(registry, name)
    return made


def _detected(registry: Registry, source: Source, told: Told) -> Detected:
    wanted = "python" if told.runtime is not None and told.format is None else told.format
    found = detect(source.names, sources.opener(registry, source), wanted)
    registry.home.store.check_key(registry.prefix("x", 10**9) + max(source.names, key=len))
    return found


def _draft(registry: Registry, source: Source, name: str, told: Told, found: Detected) -> ModelCard:
    """All of the card but the number and the files."""
    run = source.run
    made = lineage.of_run(run) if run is not None else lineage.Made()
    if told.gate is not None:
        if run is None:
            raise InputError("--if asks of a run's metrics, and this is no run's", path=source.url, hint="name a RUN")
        gates.check(told.gate, made.metrics, run.id)
    signed = told.signatures if told.signatures is not None else _signatures(registry, source, found)
    return ModelCard(
        name, 0, now(), user_here(), headrace.__version__, found.format, found.called or found.entry, (),
        signatures=signed, runtime=told.runtime, source=told.source or source.url,
        run=run.id if run is not None else None, checkpoint=source.checkpoint, data=made.data,
        code=made.code, metrics=made.metrics, gate=told.gate, note=told.note,
    )  # fmt: skip


def _signatures(registry: Registry, source: Source, found: Detected) -> Mapping[str, Signature]:
    if (
        found.entry is None
        or source.file(found.entry).info.size > LARGEST
        or found.format not in ("onnx", "saved_model")
    ):
        return {}
    with sources.opener(registry, source)(found.entry) as file:
        return signatures(found.format, file.read())


def _commit(registry: Registry, draft: ModelCard, number: int, prefix: str, sent: Sent) -> ModelVersion:
    card = dataclasses.replace(draft, number=number, files=sent.files)
    data = card.as_json()
    info = registry.home.store.put(prefix + CARD, data)
    if card.run is not None:
        lineage.note(registry, card)
    note = {CARD: hashlib.sha256(data).hexdigest(), "model": f"{card.name}@{number}"}
    publication = commit(registry.home.store, prefix, [*sent.infos, info], note=note)
    path = registry.home.url("models", card.name, str(number))
    if gone := missing(registry.home.store, publication):
        hint = "publish it again: a gc took for dead what had sent nothing for so long"
        raise ChangedError(f"lost {gone[0]} while it was published", path=path, hint=hint)
    return ModelVersion(card.name, number, path, card, publication)


def _undo(registry: Registry, prefix: str) -> None:
    """Whatever is not deleted now, `gc` deletes later."""
    with suppress(HeadraceError):
        retract(registry.home.store, prefix)  # its answer may have been lost, not the marker
        clear_below(registry.home.store, prefix)
