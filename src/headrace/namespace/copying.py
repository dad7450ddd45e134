"""Copying many files: what goes where, then a bounded number of copies at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from headrace.base.each import for_each
from headrace.base.errors import InputError, NotFoundError
from headrace.base.progress import SILENT, Progress
from headrace.namespace.entry import Entry
from headrace.namespace.left_out import LeftOut
from headrace.namespace.naming import tell_hidden
from headrace.namespace.paths import base_name

if TYPE_CHECKING:
    from headrace.fetch import Read
    from headrace.namespace.namespace import Namespace

Existing: TypeAlias = Literal["overwrite", "keep", "resume", "checksum"]
"""What becomes of a file that is there already. ``resume``: it is left alone if it is as large and no older;
``checksum``: if it holds the same bytes.
"""
Versions: TypeAlias = Callable[[str], Iterator[tuple[str, "Read"]] | None]
"""Of a name that stands for recorded object versions, such as a snapshot: key and read of each; else None."""


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How many files are copied.

    Args:
        recursive: whole trees too.
        existing: what becomes of files that are there.
        follow: of a tree of this machine, also what links lead to that point out of it.
        jobs: copies at a time.
        progress: told of files and bytes.
        tell: called with a line for each thing in a tree of this machine that is left out.
    """

    recursive: bool = False
    existing: Existing = "overwrite"
    follow: bool = False
    jobs: int = 16
    progress: Progress = SILENT
    tell: Callable[[str], object] = lambda _line: None


class _Pair(NamedTuple):
    """One file to copy, as a listing tells of it. `pinned`: the version that is meant; None: the one that is there."""

    source: Entry
    destination: str
    pinned: Read | None = None


def copy_many(
    namespace: Namespace,
    sources: Sequence[str],
    target: str,
    options: CopyOptions,
    versions: Versions = lambda _: None,
) -> None:
    """Copy files and trees. One source lands at `target`: a file under that name, a tree with its files directly below
    it. Where `target` ends in ``/`` or is a folder, or there are several sources, each file lands in it under its own
    name; several trees each in a folder of their own.

    Each file appears whole or not at all. The first error ends it, when the copies under way have ended. One thread.

    Raises:
        NotFoundError: a source is not there. InputError: it is a folder or names `versions`, and `options.recursive`
        is not set. HeadraceError: of the first copy that failed.
    """
    goal = _named(namespace, target)
    into = len(sources) > 1 or goal.endswith("/") or _is_folder(namespace, goal)
    goal = goal.rstrip("/") if goal != "/" else goal

    def pairs() -> Iterator[_Pair]:
        for text in sources:
            found = versions(text)
            if found is None:
                yield from _below(namespace, text, goal, options, into=into, several=len(sources) > 1)
                continue
            if not options.recursive:
                raise InputError("is a snapshot", path=text, hint="cp -r copies its objects")
            root = f"{goal}/{text}" if len(sources) > 1 else goal
            for key, read in found:
                yield _Pair(Entry(base_name(key), read.path, "file", read.size or 0), f"{root}/{key}", read)

    def copy(pair: _Pair) -> None:
        if _is_done(namespace, pair, options.existing):
            return
        if pair.pinned is None:
            namespace.copy(pair.source, pair.destination, progress=options.progress)
        else:
            namespace.copy_version(pair.pinned, pair.destination, progress=options.progress)

    for_each(copy, pairs(), jobs=options.jobs)


def _below(
    namespace: Namespace, text: str, goal: str, options: CopyOptions, *, into: bool, several: bool
) -> Iterator[_Pair]:
    """Pairs of one source; a tree is walked while they are taken."""
    source = _named(namespace, text)
    entry = namespace.stat(source)
    name = base_name(source.rstrip("/"))
    if entry.is_file:
        yield _Pair(entry, f"{goal}/{name}" if into else goal)
        return
    if not options.recursive:
        raise InputError("is a folder", path=text, hint="cp -r copies everything below it")
    root = f"{goal}/{name}" if several else goal
    folder = _local(namespace, source)
    skipped = LeftOut(folder, options.tell, follow=options.follow) if folder is not None else None
    for file in namespace.walk(source):
        local = _local(namespace, file.path) if skipped is not None else None
        if skipped is None or local is None or local not in skipped:
            yield _Pair(file, root + file.path[len(source.rstrip("/")) :])


def _named(namespace: Namespace, text: str) -> str:
    found = namespace.named(text)
    tell_hidden(found)
    return found


def _local(namespace: Namespace, path: str) -> str | None:
    """Where it lies on this machine, if it does."""
    at = namespace.resolve(path)
    return os.path.join(at.store.local_root, at.key) if at.store.local_root is not None else None


def _is_done(namespace: Namespace, pair: _Pair, existing: Existing) -> bool:
    """Whether there is nothing to copy."""
    if existing == "overwrite":
        return False
    try:
        found = namespace.stat(pair.destination)
    except NotFoundError:
        return False
    if existing == "keep":
        return True
    if not found.is_file or found.size != pair.source.size:
        return False
    if existing == "resume":
        return found.mtime_us >= pair.source.mtime_us
    return namespace.same(pair.source.path, pair.destination)


def _is_folder(namespace: Namespace, path: str) -> bool:
    try:
        return namespace.stat(path).kind == "folder"
    except NotFoundError:
        return False
