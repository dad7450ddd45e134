"""Listings over nested mounts: what the stores hold, with mount points put in and what they hide left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from headrace.namespace import paths
from headrace.namespace.entry import Entry, file_entry, folder_entry, is_marker
from headrace.store.protocol import Folder, ObjectInfo


def order(entry: Entry) -> tuple[str, str]:
    """By name, in UTF-8 byte order (which is that of code points); a file before the folder of its name."""
    return entry.name, entry.kind


def folder_entries(root: str, folder: Folder, attached: Mapping[str, bool], at: str) -> list[Entry]:
    """One level: the entries of `folder` in the store whose root is at `root`, and the names attached below path `at`.

    Where something is attached (True in `attached`), the name is that mount point, whatever the store holds under it.
    """
    parent = at if at.endswith("/") else at + "/"
    entries = [folder_entry(parent + name) for name in attached]
    entries.extend(
        folder_entry(paths.folder_path(root, prefix))
        for prefix in folder.folders
        if paths.base_name(prefix[:-1]) not in attached
    )
    entries.extend(
        file_entry(root, info)
        for info in folder.objects
        if not is_marker(info) and not attached.get(paths.base_name(info.key))
    )
    entries.sort(key=order)
    return entries


def files(root: str, pages: Iterable[Sequence[ObjectInfo]]) -> Iterator[Entry]:
    """Every object of `pages` as an entry, folder markers left out. Called for millions: about 1 µs each."""
    base = paths.plain_base(root)
    for page in pages:
        for info in page:
            key, size = info.key, info.size
            if size == 0 and key.endswith("/"):
                continue
            if base is None:
                yield file_entry(root, info)
            else:
                yield Entry(key[key.rfind("/") + 1 :], base + key, "file", size, info.mtime_us, info.etag)


def files_around(
    root: str,
    pages: Iterable[Sequence[ObjectInfo]],
    nested: Sequence[str],
    walk: Callable[[str], Iterator[Entry]],
) -> Iterator[Entry]:
    """As `files`, with the walk of each path of `nested` (sorted mount points) in its place and what it hides left out.

    A nested walk starts when the pages pass its place, so that nothing is asked of a store before it is needed.
    """
    waiting = list(nested)
    hidden = tuple(point + "/" for point in nested)
    for entry in files(root, pages):
        while waiting and entry.path > waiting[0] + "/":
            yield from walk(waiting.pop(0))
        if entry.path not in nested and not entry.path.startswith(hidden):
            yield entry
    for point in waiting:
        yield from walk(point)
