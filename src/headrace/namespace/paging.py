"""The names of a folder, so many at a time: each page with one listing request, where the store lists by pages.

Names come in the store's order, so that a page goes on where the one before ended. That is UTF-8 byte order, in which
``a-b`` comes before the folder ``a/``; or, on servers that keep folders as folders (SeaweedFS), the folder comes first.
Which of both it is shows in no listing, so it is asked once, when it matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from headrace.namespace import paths
from headrace.namespace.entry import Entry, file_entry, folder_entry, is_marker
from headrace.namespace.stores import Opened
from headrace.store.protocol import Folder, ObjectInfo, Store

_LAST: Final = "\U0010ffff"
"""Sorts behind all that a name goes on with."""
_BEFORE_SLASH: Final = "."


@dataclass(frozen=True, slots=True)
class FolderPage:
    """A page of a folder. `after`: what the next page is asked for with; None: there are no more names."""

    entries: tuple[Entry, ...]
    after: str | None


class Name(NamedTuple):
    """One name in a folder, with ``/`` behind that of a folder, which has no `info`."""

    text: str
    info: ObjectInfo | None


class Paging:
    """Lists folders by pages. Any thread; remembers in which order stores list."""

    def __init__(self) -> None:
        self._folders_first: dict[str, bool] = {}

    def names(self, opened: Opened, prefix: str, after: str) -> Iterator[Name]:
        """The names below `prefix` that come after `after` in the store's order. Asks as they are taken."""
        for folder in _pages(opened, prefix, after):
            for name in self._ordered(opened.store, prefix, folder):
                if name.text != after:  # a folder may come again for what is in it
                    yield name

    def _ordered(self, store: Store, prefix: str, folder: Folder) -> list[Name]:
        start = len(prefix)
        names = [Name(one[start:], None) for one in folder.folders]
        names += [Name(info.key[start:], info) for info in folder.objects if not is_marker(info)]
        names.sort(key=_as_text)
        other = sorted(names, key=_as_folders)
        if names == other:
            return names
        doubtful = next(one for one, two in zip(other, names, strict=True) if one != two)
        return other if self._puts_folders_first(store, prefix + doubtful.text) else names

    def _puts_folders_first(self, store: Store, folder: str) -> bool:
        """Whether the folder comes before names that begin as it does and go on with what sorts before a slash."""
        if store.capabilities.start_after:
            return False
        known = self._folders_first.get(store.identity)
        if known is None:
            behind = folder[:-1] + _BEFORE_SLASH + _LAST
            page = next(store.list_pages(folder[: folder.rfind("/", 0, -1) + 1], start_after=behind), None)
            known = self._folders_first[store.identity] = page is None or folder not in page.folders
        return known


def entries(root: str, prefix: str, names: Iterable[Name], attached: Mapping[str, bool]) -> Iterator[tuple[str, Entry]]:
    """Each name and its entry; what something `attached` there hides is left out (see `listing.folder_entries`)."""
    for name, info in names:
        if info is not None and not attached.get(name):
            yield name, file_entry(root, info)
        elif info is None and name[:-1] not in attached:
            yield name, folder_entry(paths.folder_path(root, prefix + name))


def _pages(opened: Opened, prefix: str, after: str) -> Iterator[Folder]:
    store = opened.store
    start = prefix + after if after else None
    if store.lists_by_pages:
        yield from store.list_pages(prefix, start_after=start)
        return
    whole = opened.metadata.folder(prefix) if after else None
    if whole is None:
        whole = store.list_folder(prefix)
        opened.metadata.keep_folder(prefix, whole)
    folders = tuple(one for one in whole.folders if start is None or one > start)
    yield Folder(folders, tuple(one for one in whole.objects if start is None or one.key > start))


def _as_text(name: Name) -> str:
    return name.text


def _as_folders(name: Name) -> tuple[str, bool]:
    return (name.text, False) if name.info is not None else (name.text[:-1], True)
