"""A version's files on their way into the home: copied by the store itself if they lie in it, else sent from here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final

from headrace.base.errors import ChangedError, TryAgainError
from headrace.base.progress import SILENT, Progress
from headrace.base.threads import REQUESTS_AT_ONCE, Threads
from headrace.fetch import Read
from headrace.models.bringing import digest_of, digests
from headrace.models.card import ModelFile
from headrace.models.registry import Registry
from headrace.models.sources import Source, SourceFile
from headrace.namespace.transfer import Transfers
from headrace.store.protocol import ObjectInfo, Store
from headrace.upload import Item, Uploader, put_many


@dataclass(frozen=True, slots=True)
class Sent:
    """What lies in the home now. `infos`: its objects; `files`: their names, sizes and digests."""

    infos: tuple[ObjectInfo, ...]
    files: tuple[ModelFile, ...]


def send(
    registry: Registry,
    source: Source,
    prefix: str,
    called: Mapping[str, str],
    last: str | None,
    progress: Progress = SILENT,
) -> Sent:
    """Bring the files of `source` under `prefix` of the home.

    Args:
        registry: whose home.
        source: what is sent.
        prefix: ends in ``/``.
        called: what a file is called there, where that is not its own name.
        last: the name of the file that goes after all others, so that a server which looks at the folder without
            looking for ``COMMITTED`` does not find half a model.
        progress: told files and bytes; not how many there are.

    Raises:
        ChangedError: a file changed meanwhile. Any store error. What was sent stays.
    """
    first = [one for one in source.files if one.name != last]
    some = [_send(registry, source, group, prefix, called, progress) for group in (first, _rest(source, last)) if group]
    pairs = sorted((pair for group in some for pair in group), key=lambda pair: pair[1].path)
    return Sent(tuple(info for info, _ in pairs), tuple(file for _, file in pairs))


def joined(parts: Iterable[Sent]) -> Sent:
    """What was sent one after the other, as one."""
    pairs = [pair for one in parts for pair in zip(one.infos, one.files, strict=True)]
    pairs.sort(key=lambda pair: pair[1].path)
    return Sent(tuple(info for info, _ in pairs), tuple(file for _, file in pairs))


def _rest(source: Source, last: str | None) -> list[SourceFile]:
    return [one for one in source.files if one.name == last]


def _send(
    registry: Registry, source: Source, files: Sequence[SourceFile], prefix: str, called: Mapping[str, str],
    progress: Progress,
) -> list[tuple[ObjectInfo, ModelFile]]:  # fmt: skip
    home = registry.home.store
    targets = [prefix + called.get(one.name, one.name) for one in files]
    if source.store.identity != home.identity and source.store.local_root is not None:
        return _upload(source, files, home, targets, prefix, progress)
    if source.store.identity == home.identity:
        act: Callable[[SourceFile, str], object] = partial(_copy, home, progress)
    else:
        transfers = Transfers(lambda: registry.namespace.fetcher)
        act = partial(_transfer, transfers, source.store, home, progress)
    _each(act, files, targets)
    # What is described is what lies there now: a store's own copy is of whatever the key held at that moment.
    found = {info.key: info for page in home.list(prefix) for info in page}
    infos = [_copied(found.get(target), one) for one, target in zip(files, targets, strict=True)]
    sums = digests(home, registry.namespace.fetcher, infos)
    return [(info, ModelFile(info.key[len(prefix) :], info.size, one)) for info, one in zip(infos, sums, strict=True)]


def _upload(
    source: Source, files: Sequence[SourceFile], home: Store, targets: Sequence[str], prefix: str, progress: Progress
) -> list[tuple[ObjectInfo, ModelFile]]:
    paths = [os.path.join(source.store.local_root or "/", one.info.key) for one in files]
    found: dict[str, ObjectInfo] = {}
    with Uploader() as uploader, Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-models") as pool:
        sums = [pool.submit(_digest, source.store, one) for one in files]
        items = [Item(target, path) for target, path in zip(targets, paths, strict=True)]
        try:
            with closing(put_many(uploader, home, items, progress=progress)) as outcomes:
                for outcome in outcomes:
                    if outcome.error is not None:
                        raise outcome.error
                    if outcome.info is not None:
                        found[outcome.item.key] = outcome.info
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        if len(found) < len(files):
            raise TryAgainError("stopped before it was all sent", path=source.url)
        told = [one.result() for one in sums]
    for one, target in zip(files, targets, strict=True):
        if source.store.head(one.info.key).version != one.info.version or found[target].size != one.info.size:
            raise ChangedError("changed while it was published", path=f"{source.store.url}/{one.info.key}", hint=_STILL)
    pairs = zip(targets, told, strict=True)
    return [(found[key], ModelFile(key[len(prefix) :], found[key].size, digest)) for key, digest in pairs]


_STILL: Final = "publish it once nothing writes to it any more"


def _digest(store: Store, one: SourceFile) -> str:
    return digest_of(store.open_file(one.info.key, one.info.version))


def _copy(home: Store, progress: Progress, one: SourceFile, target: str) -> None:
    home.copy(one.info.key, target)
    progress.advance(1, one.info.size)


def _transfer(
    transfers: Transfers, store: Store, home: Store, progress: Progress, one: SourceFile, target: str
) -> None:
    info = one.info
    transfers.copy(Read(store, info.key, info.size, info.version), home, target, progress=progress)


def _copied(info: ObjectInfo | None, one: SourceFile) -> ObjectInfo:
    if info is None or info.size != one.info.size:
        raise ChangedError("changed while it was published", path=one.name, hint=_STILL)
    return info


def _each(act: Callable[[SourceFile, str], object], files: Sequence[SourceFile], targets: Sequence[str]) -> None:
    pool = Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-models")
    try:
        for future in [pool.submit(act, one, target) for one, target in zip(files, targets, strict=True)]:
            future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
