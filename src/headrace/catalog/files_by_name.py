"""Files by a path, a URL, or the name of a snapshot: listed, added up, copied. `hr.copy`, `hr.usage`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from headrace.base.progress import SILENT, Progress
from headrace.catalog.snapshot_files import open_objects, reads, snapshot_entries
from headrace.fetch import Read
from headrace.namespace import CopyOptions, Entry, Existing, Namespace, PathLike, Usage, is_snapshot_text, tell_hidden
from headrace.namespace.copying import copy_many
from headrace.namespace.usage import add_up


def files_named(text: PathLike, *, namespace: Namespace | None = None) -> Iterator[Entry]:
    """Every file at or below `text`, or in the snapshot ``NAME@VERSION`` of that name; streamed. One thread.

    Raises:
        NotFoundError: nothing there. CorruptError: the snapshot's manifest is damaged. Any store error.
    """
    return _listed(namespace or Namespace.load(), os.fspath(text))[1]


def usage(text: PathLike, depth: int = 1, *, namespace: Namespace | None = None) -> list[Usage]:
    """``usage("imagenet@v3")``: files and bytes below each folder, as `headrace du` shows; all of it comes last.

    Args:
        text: a path, a URL, or a snapshot.
        depth: so many levels of folders.
        namespace: where paths are resolved; None: that of the settings.

    Raises:
        As `files_named`.
    """
    root, entries = _listed(namespace or Namespace.load(), os.fspath(text))
    return add_up(root, entries, depth)


def copy(
    sources: PathLike | Sequence[PathLike],
    target: PathLike,
    *,
    recursive: bool = False,
    existing: Existing = "overwrite",
    follow: bool = False,
    jobs: int = 16,
    namespace: Namespace | None = None,
    progress: Progress = SILENT,
    tell: Callable[[str], object] = lambda _line: None,
) -> None:
    """``copy("imagenet@v3", "/scratch/imagenet", recursive=True)``: files, trees and snapshots, as `headrace cp`.

    One source lands at `target`: a file under that name, a tree with its files directly below it. Where `target` ends
    in ``/`` or is a folder, or there are several sources, each file lands in it under its own name; several trees each
    in a folder of their own. Of a snapshot exactly the recorded versions are copied. Each file appears whole or not at
    all, so a copy that was interrupted goes on with ``existing="resume"``. One thread; it waits for the last byte.

    Args:
        sources: paths, URLs, files of this machine, snapshots; one or several.
        target: a path, a URL, or a place on this machine.
        recursive: whole trees and snapshots too.
        existing: what becomes of a file that is there: ``overwrite``; ``keep`` it; ``resume``: leave it alone if it is
            as large and no older; ``checksum``: if it holds the same bytes.
        follow: of a tree of this machine, also what links lead to that point out of it.
        jobs: copies at a time.
        namespace: where paths are resolved; None: that of the settings.
        progress: told of files and bytes.
        tell: called with a line for each thing in a tree of this machine that is left out.

    Raises:
        NotFoundError: a source is not there. InputError: it is a folder or a snapshot, and `recursive` is not set.
        ChangedError: a version that the snapshot records is no more. HeadraceError: of the first copy that failed.
    """
    space = namespace or Namespace.load()

    def versions(text: str) -> Iterator[tuple[str, Read]] | None:
        return reads(open_objects(space, text)) if is_snapshot_text(text) else None

    options = CopyOptions(recursive, existing, follow, jobs, progress, tell)
    several = [sources] if isinstance(sources, (str, os.PathLike)) else sources
    copy_many(space, [os.fspath(one) for one in several], os.fspath(target), options, versions)


def _listed(namespace: Namespace, text: str) -> tuple[str, Iterator[Entry]]:
    """Where the files lie, and the files."""
    if is_snapshot_text(text):
        return open_objects(namespace, text).store.url, snapshot_entries(namespace, text)
    root = namespace.named(text)
    tell_hidden(root)
    return root, namespace.files(root)
