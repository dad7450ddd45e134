"""Copying many files: what goes where, then a bounded number of copies at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from headrace.base.errors import InputError, NotFoundError
from headrace.base.progress import Progress
from headrace.cli.left_out import LeftOut
from headrace.cli.target import base_name, is_snapshot, target, walk

if TYPE_CHECKING:
    from headrace.fetch import Read
    from headrace.namespace import Entry, Namespace

_Item = TypeVar("_Item")


class There(Enum):
    """What becomes of a file that is there already. `RESUME`: it is left alone if it is as large and no older;
    `CHECKSUM`: if it holds the same bytes.
    """

    OVERWRITE = auto()
    KEEP = auto()
    RESUME = auto()
    CHECKSUM = auto()


@dataclass(frozen=True, slots=True)
class Pair:
    """One file to copy, as a listing tells of it. `pinned`: the version that is meant; None: the one that is there."""

    source: Entry
    destination: str
    pinned: Read | None = None


def plan(
    namespace: Namespace,
    sources: Sequence[str],
    destination: str,
    *,
    recursive: bool,
    follow: bool,
    tell: Callable[[str], object],
) -> Iterator[Pair]:
    """Pairs for ``cp``, as its help states the rules; trees are walked while pairs are taken. `follow`: also links that
    lead out of a tree of this machine; `tell` gets a line for each thing there that is left out.

    Raises:
        NotFoundError: a source is not there.
        InputError: a source is a folder or a snapshot and `recursive` is not set.
    """
    goal = target(namespace, destination)
    several = len(sources) > 1
    into = several or goal.endswith("/") or _is_folder(namespace, goal)
    goal = goal.rstrip("/") if goal != "/" else goal
    for text in sources:
        if is_snapshot(text):
            if not recursive:
                raise InputError("is a snapshot", path=text, hint="cp -r copies its objects")
            yield from _of_snapshot(namespace, text, f"{goal}/{text}" if several else goal)
            continue
        source = target(namespace, text)
        entry = namespace.stat(source)
        if entry.kind == "file":
            yield Pair(entry, f"{goal}/{base_name(source)}" if into else goal)
            continue
        if not recursive:
            raise InputError("is a folder", path=text, hint="cp -r copies everything below it")
        root = f"{goal}/{base_name(source)}" if several else goal
        skipped = _left_out(namespace, source, tell, follow=follow)
        for file in walk(namespace, source):
            local = _local(namespace, file.path) if skipped is not None else None
            if skipped is not None and local is not None and local in skipped:
                continue
            yield Pair(file, root + file.path[len(source.rstrip("/")) :])


def _left_out(namespace: Namespace, source: str, tell: Callable[[str], object], *, follow: bool) -> LeftOut | None:
    local = _local(namespace, source)
    return LeftOut(local, tell, follow=follow) if local is not None else None


def _local(namespace: Namespace, path: str) -> str | None:
    """Where it lies on this machine, if it does."""
    at = namespace.resolve(path)
    return os.path.join(at.store.local_root, at.key) if at.store.local_root is not None else None


def _of_snapshot(namespace: Namespace, name: str, root: str) -> Iterator[Pair]:
    from headrace.cli.snapshot_tree import open_objects, reads
    from headrace.namespace import Entry

    for key, read in reads(open_objects(namespace, name)):
        yield Pair(Entry(base_name(key), read.path, "file", read.size or 0), f"{root}/{key}", read)


def copy_all(
    namespace: Namespace, pairs: Iterable[Pair], progress: Progress, *, jobs: int, there: There = There.OVERWRITE
) -> None:
    """Copy every pair, `jobs` at a time. The first error ends it, when the copies under way have ended. `there`: what
    becomes of files that are there.

    Raises:
        HeadraceError: of the first copy that failed.
    """

    def one(pair: Pair) -> None:
        if not _done(namespace, pair, there):
            if pair.pinned is None:
                namespace.copy(pair.source, pair.destination, progress=progress)
            else:
                namespace.copy_version(pair.pinned, pair.destination, progress=progress)

    for_each(one, pairs, jobs=jobs)


def _done(namespace: Namespace, pair: Pair, there: There) -> bool:
    """Whether there is nothing to copy."""
    if there is There.OVERWRITE:
        return False
    try:
        found = namespace.stat(pair.destination)
    except NotFoundError:
        return False
    if there is There.KEEP:
        return True
    if found.kind != "file" or found.size != pair.source.size:
        return False
    if there is There.RESUME:
        return found.mtime_us >= pair.source.mtime_us
    return namespace.same(pair.source.path, pair.destination)


def for_each(work: Callable[[_Item], None], items: Iterable[_Item], *, jobs: int) -> None:
    """Call `work` on every item from `jobs` threads; at most twice as many items are waiting at any time.

    Raises:
        Exception: the first that `work` raised; nothing new is started after it.
    """
    stopped = threading.Event()

    def guarded(item: _Item) -> None:
        if not stopped.is_set():
            work(item)

    rest = iter(items)
    waiting: set[Future[None]] = set()
    with ThreadPoolExecutor(jobs, thread_name_prefix="headrace-cli") as pool:
        try:
            while True:
                waiting |= {pool.submit(guarded, item) for item in islice(rest, 2 * jobs - len(waiting))}
                if not waiting:
                    return
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _is_folder(namespace: Namespace, path: str) -> bool:
    try:
        return namespace.stat(path).kind == "folder"
    except NotFoundError:
        return False
