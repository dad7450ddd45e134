"""`Namespace`: one tree of paths over many stores."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from headrace.base.errors import AlreadyExistsError, InputError, NotFoundError, ReadOnlyError, UnsupportedError
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.namespace import listing, paths
from headrace.namespace.comparing import same_bytes
from headrace.namespace.copying import CopyOptions, Existing, copy_many
from headrace.namespace.entry import Entry, file_entry, folder_entry
from headrace.namespace.listed import Listing
from headrace.namespace.location import Location, Place, find
from headrace.namespace.mounts import Mount, MountTable
from headrace.namespace.naming import named
from headrace.namespace.objects import Objects
from headrace.namespace.paging import FolderPage, Paging, entries
from headrace.namespace.paths import PathLike
from headrace.namespace.persist import remove_mount, write_mount
from headrace.namespace.stores import Opener, Stores
from headrace.namespace.usage import Usage, add_up
from headrace.namespace.writer import TextWriter, Writer
from headrace.store.protocol import Assembly, Buffer, ObjectInfo, Unfinished
from headrace.upload.leftovers import OLD_S, leftovers

if TYPE_CHECKING:
    from headrace.fetch import Fetcher, Read


_DELETED_AT_ONCE = 1000  # keys: as many as S3 deletes in one request
_REMEMBERED = 64
"""Paths whose places are kept."""


class Namespace:
    """The one door to bytes. Every method takes a path, a URL, or a file of this machine (`named`), and may be called
    from any thread.

    Safe to fork and to pickle: a child opens its own connections. All methods raise only `headrace.base.errors`:
    NotFoundError, DeniedError (ReadOnlyError before any request where the attachment is read-only), ChangedError,
    TryAgainError, InputError; each names the path.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        fetcher: Callable[[], Fetcher] | None = None,
        opener: Opener | None = None,
        local: bool = True,
        read_only: bool = False,
    ) -> None:
        """`local`: files and folders of this machine are taken by their own names (`named`), too. `read_only`: nothing
        is written, wherever it lies.
        """
        settings = settings or Settings()
        self._local = local
        self._read_only = read_only
        mounts = [Mount.from_table(path, table) for path, table in settings.mounts.items()]
        self._set(settings, fetcher, opener, MountTable(mounts))

    def _set(
        self, settings: Settings, fetcher: Callable[[], Fetcher] | None, opener: Opener | None, table: MountTable
    ) -> None:
        self._settings = settings
        self._given = (fetcher, opener)
        self._table = self._loaded = table
        self._found: tuple[MountTable, dict[str, Place]] = (table, {})
        self._stores = Stores(settings, opener)
        self._objects = Objects(self._stores, self._fetcher)
        self._paging = Paging()

    @staticmethod
    def load(settings: Settings | None = None, **seams: Any) -> Namespace:
        """A namespace with the mounts of `settings` (default: `Settings.load()`: ``headrace.toml``, environment).

        No request is made. `seams`: `fetcher`, giving what reads the bytes (default: the process's own), `opener`,
        opening stores (default: `headrace.store.open_store`), `local`, False for the tree of mounts alone, and
        `read_only`.

        Raises:
            SettingError, InputError: a mount that cannot be; names it.
        """
        return Namespace(Settings.load() if settings is None else settings, **seams)

    # mounts

    def attach(self, path: PathLike, url: str, *, read_only: bool = False, **options: Any) -> Mount:
        """Put the store at `url` at `path`. `options` are fields of `StoreOptions` (endpoint, profile, …). No request.

        Raises:
            InputError: bad path or URL. SettingError: unknown option. AlreadyExistsError: another store is there.
        """
        mount = Mount.make(path, url, options, read_only=read_only)
        self._table = self._table.adding(mount)
        return mount

    def detach(self, path: PathLike) -> None:
        """Take an attachment away; nothing in the store changes. Raises NotFoundError."""
        self._table = self._table.dropping(paths.check_mount_path(path))

    def mounts(self) -> list[Mount]:
        """All attachments, by path."""
        return sorted(self._table, key=lambda mount: mount.path)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write what was attached and detached since this namespace was made to `file` (a ``headrace.toml``).

        Raises:
            InputError: an option holds a secret, which no file gets. SettingError, DeniedError: as `write_mount`.
        """
        before = {mount.path: mount for mount in self._loaded}
        after = {mount.path: mount for mount in self._table}
        for path, mount in after.items():
            if before.get(path) != mount:
                write_mount(path, mount.url, mount.options, file, read_only=mount.read_only)
        for path in before.keys() - after.keys():
            remove_mount(path, file)
        self._loaded = self._table

    def named(self, name: PathLike) -> str:
        """The path or URL that a name stands for. No request; nothing need exist.

        What is attached comes first; a name under which nothing is attached is a file or folder of this machine, and
        becomes ``file://…``.

        Raises:
            NotFoundError: there can be nothing under that name. InputError: it was meant to be a URL, or is no text.
        """
        return named(self._table, name) if self._local else paths.check_path(name)

    def resolve(self, path: PathLike) -> Location:
        """The store and key a path or URL leads to. No request; the object need not exist.

        Raises:
            NotFoundError: no store is attached there. InputError: neither path nor URL.
        """
        place = self._place(path)
        store = place.open(self._stores).store
        read_only = self._read_only or (place.mount is not None and place.mount.read_only)
        return Location(store, place.key, place.path, read_only, place.mount, place.root)

    # reading

    def read(self, path: PathLike, start: int = 0, stop: int | None = None) -> memoryview:
        """Bytes [start, stop) of an object; `stop` None or past the end: to the end.

        All of one version, the present one or one seen within ``cache.ttl``.
        """
        if start < 0 or (stop is not None and stop < start):
            raise InputError(f"bytes [{start}, {stop}) are no range", path=str(path))
        place = self._place(path)
        try:
            return self._objects.read(place, start, stop)
        except NotFoundError as error:
            raise _told_where_to_look(error, place) from error.__cause__

    def open(self, path: PathLike, mode: str = "rb", *, encoding: str | None = None, newline: str | None = None) -> Any:
        """A file. Reading (``r``): seekable, of one version, reading ahead. Writing (``w``, ``x`` for create only):
        published whole when closed; not at all when left by an exception.

        Text modes decode as UTF-8 unless `encoding` says otherwise. Appending and updating are not supported.

        Raises:
            NotFoundError: no such object, when reading.
            AlreadyExistsError: opening with ``x``, or closing, when another was quicker.
            UnsupportedError: another mode.
        """
        kind = mode.replace("b", "").replace("t", "")
        if kind not in ("r", "w", "x") or ("b" in mode and "t" in mode):
            raise UnsupportedError(f"mode {mode!r}", path=str(path), hint="modes are r, w and x, each with b or t")
        if kind == "r":
            place = self._place(path)
            try:
                file = self._objects.open(place)
            except NotFoundError as error:
                raise _told_where_to_look(error, place) from error.__cause__
            return file if "b" in mode else io.TextIOWrapper(file, encoding or "utf-8", newline=newline)
        place = self._writable(path)
        if kind == "x":
            self._check_absent(place)
        writer = Writer(lambda data: self._objects.put(place, data, create=kind == "x"), place.path)
        return writer if "b" in mode else TextWriter(writer, encoding, newline)

    def stat(self, path: PathLike, *, refresh: bool = False) -> Entry:
        """One file or folder. Where both have this name, the file; with a trailing ``/``, the folder.

        Trusts what was seen within ``cache.ttl``, unless `refresh`.

        Raises:
            NotFoundError: neither.
        """
        place = self._place(path)
        if self._always_folder(place):
            return folder_entry(place.path)
        if not place.key.endswith("/"):
            try:
                return file_entry(place.root, self._objects.info(place, refresh=refresh))
            except NotFoundError:
                pass
        prefix = paths.as_prefix(place.key)
        if self._leads_to_mount(place) or self._objects.is_folder(place, prefix):
            return folder_entry(paths.folder_path(place.root, prefix))
        raise _told_where_to_look(NotFoundError("no such file or folder", path=place.path), place)

    def exists(self, path: PathLike, *, refresh: bool = False) -> bool:
        """Whether `stat` finds something."""
        try:
            self.stat(path, refresh=refresh)
        except NotFoundError:
            return False
        return True

    def list(self, path: PathLike, *, refresh: bool = False) -> Listing:
        """What is in a folder, sorted by name; of a file, the file itself: a list, which notebooks show as a table.
        `refresh` as in `stat`.

        Raises:
            NotFoundError: neither.
        """
        place = self._place(path)
        attached = self._table.children(place.folder) if place.in_tree else {}
        if place.url is None:
            if not attached and place.path != "/":
                raise place.unattached()
            return Listing(folder_entry(paths.join(place.folder, name)) for name in attached)
        opened = place.open(self._stores)
        prefix = paths.as_prefix(place.key)
        folder = None if refresh else opened.metadata.folder(prefix)
        if folder is None:
            folder = opened.store.list_folder(prefix)
            opened.metadata.keep_folder(prefix, folder)
        entries = listing.folder_entries(place.root, folder, attached, place.folder)
        if not entries and place.key:
            found = self.stat(place.path, refresh=refresh)
            return Listing([found] if found.is_file else [])
        return Listing(entries)

    def page(self, path: PathLike, *, after: str = "", count: int = 1000) -> FolderPage:
        """Up to `count` names of a folder, in the store's order, however many there are; of a file, the file itself.

        One listing request, where the store lists by pages; else the whole folder is listed once within ``cache.ttl``.
        What is attached in the folder comes first, all of it with the first page. `after`: `FolderPage.after` of the
        page before, or any name to begin behind.

        Raises:
            NotFoundError: neither.
        """
        place = self._place(path)
        attached = self._table.children(place.folder) if place.in_tree else {}
        if place.url is None and not attached and place.path != "/":
            raise place.unattached()
        first = [] if after else [folder_entry(paths.join(place.folder, name)) for name in attached]
        if place.url is None:
            return FolderPage(tuple(first), None)
        prefix = paths.as_prefix(place.key)
        names = self._paging.names(place.open(self._stores), prefix, after)
        found = list(islice(entries(place.root, prefix, names, attached), count + 1))
        if not found and not first and not after and place.key:
            file = self.stat(place.path)
            return FolderPage((file,) if file.is_file else (), None)
        some = (*first, *(entry for _, entry in found[:count]))
        return FolderPage(some, found[count - 1][0] if len(found) > count else None)

    def walk(self, path: PathLike) -> Iterator[Entry]:
        """Every file below a folder, across nested mounts; of a file, the file itself. Streams, and is never cached.

        In UTF-8 byte order of paths wherever the stores keep to it.

        Raises, at the first step:
            NotFoundError: neither file nor folder.
        """
        place = self._place(path)
        entries = self._walk(place)
        first = next(entries, None)
        if first is not None:
            yield first
            yield from entries
        elif not self._always_folder(place) and not self._leads_to_mount(place):
            found = self.stat(place.path)
            if found.is_file:
                yield found

    def files(self, path: PathLike) -> Iterator[Entry]:
        """Every file at or below `path`: as `walk`, but where a file and a folder have this name, it is the file.

        Raises, at the first step:
            NotFoundError: neither file nor folder.
        """
        entry = self.stat(path)
        if entry.is_file:
            yield entry
        else:
            yield from self.walk(path)

    def usage(self, path: PathLike, depth: int = 1) -> list[Usage]:
        """How many files, of how many bytes, lie at or below `path` and each folder down to `depth` levels below it, as
        `headrace du` shows; `path` itself comes last. Walks all of it.

        Raises:
            NotFoundError: neither file nor folder.
        """
        root = self.named(path)
        return add_up(root, self.files(root), depth)

    # writing

    def write(self, path: PathLike, data: Buffer, *, if_match: str | None = None, create: bool = False) -> Entry:
        """Write a whole object, atomically. `create`: only if absent. `if_match`: only over that ETag.

        Raises:
            AlreadyExistsError, ChangedError: the condition failed. UnsupportedError: the store cannot promise it.
        """
        place = self._writable(path)
        return file_entry(place.root, self._objects.put(place, data, if_match=if_match, create=create))

    def assemble(self, path: PathLike, *, create: bool = False) -> Assembly:
        """Begin a large object whose parts come one by one. `create` as in `write`, kept when it is completed.

        Who completes it says so by `remember`.

        Raises:
            UnsupportedError: the store takes whole objects only, or cannot promise `create`. As `Store.assemble`.
        """
        place = self._writable(path)
        return place.open(self._stores).store.assemble(place.key, create=create)

    def copy(self, source: PathLike | Entry, target: PathLike, *, progress: Progress = SILENT) -> None:
        """Copy one object to exactly the path `target`: by the store itself inside one store, else through here.

        Of an entry of a listing the version is known, which saves a request. What changed since is copied as it is now.
        Large ones go in parts, several at once, past the cache unless it holds them. `progress` is told the bytes as
        they arrive, and one item at the end.

        Raises:
            NotFoundError: no such source. ChangedError: it changed while it was copied, and nothing was written.
        """
        there = self._writable(target)
        if isinstance(source, Entry):
            listed = ObjectInfo("", source.size, source.etag, source.mtime_us)
            self._objects.copy(self._place(source.path), there, listed=listed, progress=progress)
        else:
            self._objects.copy(self._place(source), there, progress=progress)

    def copy_version(self, read: Read, target: PathLike, *, progress: Progress = SILENT) -> None:
        """The same for the whole of one object version, as a snapshot names it; never by the store itself, as none
        promises to copy exactly the version that is meant.

        Raises:
            ChangedError: it is no longer there, and nothing was written. InputError: onto itself.
        """
        self._objects.copy_version(read, self._writable(target), progress=progress)

    def copy_tree(
        self,
        source: PathLike,
        target: PathLike,
        *,
        existing: Existing = "overwrite",
        follow: bool = False,
        jobs: int = 16,
        progress: Progress = SILENT,
        tell: Callable[[str], object] = lambda _line: None,
    ) -> None:
        """Copy a file, or every file below a folder, as ``headrace cp -r`` does. Each appears whole or not at all, so a
        copy that was interrupted goes on with ``existing="resume"``. Of a snapshot: `headrace.copy`.

        Args:
            source: the files of a folder land directly below `target`, a file at or in it.
            target: where; a file that ends in ``/`` or is a folder takes a file in.
            existing: what becomes of a file that is there: ``overwrite``; ``keep`` it; ``resume``: leave it alone if it
                is as large and no older; ``checksum``: if it holds the same bytes.
            follow: of a tree of this machine, also what links lead to that point out of it.
            jobs: copies at a time.
            progress: told of files and bytes.
            tell: called with a line for each thing in a tree of this machine that is left out.

        Raises:
            NotFoundError: no such source. Of the first copy that failed, as `copy`; those under way have ended then.
        """
        options = CopyOptions(
            recursive=True, existing=existing, follow=follow, jobs=jobs, progress=progress, tell=tell
        )
        copy_many(self, [os.fspath(source)], os.fspath(target), options)

    def same(self, one: PathLike, other: PathLike) -> bool:
        """Whether two objects hold the same bytes now: by size and ETag where these tell, else by reading both.

        Raises:
            NotFoundError: one is not there. As `open`.
        """
        first, second = self.stat(one, refresh=True), self.stat(other, refresh=True)

        def local(path: str) -> bool:
            return self.resolve(path).store.local_root is not None

        return same_bytes(first, second, self.open, local=local)

    def delete(self, path: PathLike | Iterable[PathLike], *, recursive: bool = False) -> None:
        """Delete one object, or many. An absent one is no error. `recursive`: and all below a folder of that name.

        Raises:
            ReadOnlyError: one of them is under a read-only attachment; then none is deleted.
        """
        wanted = [path] if isinstance(path, (str, os.PathLike)) else path
        if not recursive:
            self._objects.delete([self._writable(each) for each in wanted])
            return
        for place in [place for each in wanted for place in self._deletable(each)]:
            points = self._table.below(place.folder) if place.in_tree else []
            hidden = [paths.key_below(place.root, point.path) for point in points]
            self._objects.delete_below(place, hidden)

    def delete_files(self, entries: Iterable[Entry], *, progress: Progress = SILENT) -> None:
        """Delete files as `files` gives them, a thousand at a time, while they are listed. `progress`: told of files
        and bytes. Raises as `delete`, of each thousand.
        """
        rest = iter(entries)
        while group := list(islice(rest, _DELETED_AT_ONCE)):
            self.delete([entry.path for entry in group])
            progress.advance(len(group), sum(entry.size for entry in group))

    def unfinished(self, path: PathLike, *, older_than_s: float = OLD_S, discard: bool = False) -> list[Unfinished]:
        """Uploads at or below `path` that were begun so long ago and never ended; their parts cost money, and no
        listing shows them. Younger ones may be under way, here or elsewhere. `discard`: they are thrown away.

        Raises:
            ReadOnlyError: `discard`, and it is attached read-only; nothing is asked of the store. As `list`.
        """
        place = self._place(path)
        if discard:
            self._check_writable(place, root=True)
        store, whole = place.open(self._stores).store, paths.as_prefix(place.key)
        found = leftovers(store, place.key, older_than_s=older_than_s)
        below = [one for one in found if f"{one.key}/".startswith(whole)]
        for one in below if discard else ():
            store.discard(one)
        return below

    # for rooms that read and write through a `Location`

    @property
    def fetcher(self) -> Fetcher:
        """What reads the bytes, through the cache."""
        return self._fetcher()

    def remember(self, path: PathLike, info: ObjectInfo) -> None:
        """An object was written past this namespace: this is it now. Listings that show it are forgotten."""
        self._objects.remember(self._place(path), info)

    def forget(self, path: PathLike) -> None:
        """An object was written or deleted past this namespace: nothing is known of it any more."""
        self._objects.forget(self._place(path))

    # the rest

    def refresh(self) -> None:
        """Forget every listing and version seen: the next question is asked of the stores."""
        self._stores.refresh()

    def close(self) -> None:
        """Release connections; a later call opens them again. Also at the end of a ``with`` block."""
        self._stores.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Namespace({', '.join(f'{mount.path} → {mount.url}' for mount in self.mounts())})"

    def __getstate__(self) -> Mapping[str, Any]:
        mounts = [(m.path, m.url, dict(m.options), m.read_only) for m in self._table]
        given = {"fetcher": self._given[0], "opener": self._given[1]}
        told = {"settings": self._settings, "mounts": mounts, "local": self._local, "read_only": self._read_only}
        return {**told, **given}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        mounts = [Mount.make(path, url, options, read_only=ro) for path, url, options, ro in state["mounts"]]
        self._local, self._read_only = state["local"], state["read_only"]
        self._set(state["settings"], state["fetcher"], state["opener"], MountTable(mounts))

    def _fetcher(self) -> Fetcher:
        given = self._given[0]
        if given is not None:
            return given()
        from headrace.fetch import default_fetcher

        return default_fetcher(self._settings)

    def _place(self, path: PathLike) -> Place:
        """As `find`, which whoever writes a file asks several times for one path: the latest are remembered."""
        if not isinstance(path, str):
            path = os.fspath(path)
        table, places = self._found
        if table is not self._table:
            table, places = self._found = (self._table, {})
        place = places.get(path)
        if place is None:
            name = self.named(path)
            place = find(table, self._settings.stores, name)
            if name != path and not path.startswith("/"):
                return place  # it stands for another file once the process works in another folder
            if len(places) >= _REMEMBERED:
                places.clear()
            places[path] = place
        return place

    def _writable(self, path: PathLike) -> Place:
        place = self._place(path)
        self._check_writable(place)
        return place

    def _check_writable(self, place: Place, *, root: bool = False) -> None:
        if self._read_only:
            raise ReadOnlyError("is read-only", path=place.path, hint="this namespace was opened with read_only=True")
        place.check_writable(root=root)

    def _deletable(self, path: PathLike) -> list[Place]:
        """The place and every mount point below it, once all of them are known to be writable."""
        place = self._place(path)
        if place.in_tree:
            nested = [self._place(mount.path) for mount in self._table.under(place.folder)]
        else:
            url = paths.trim_url(place.path)
            nested = [self._place(mount.url) for mount in self._table if paths.is_below(mount.url, url)]
        for each in (place, *nested):
            if each.url is not None or not nested:
                self._check_writable(each, root=True)
        return [each for each in (place, *(nested if place.in_tree else ())) if each.url is not None]

    def _check_absent(self, place: Place) -> None:
        try:
            self._objects.head(place)
        except NotFoundError:
            return
        raise AlreadyExistsError("exists already", path=place.path, hint="open it with w to overwrite it")

    def _always_folder(self, place: Place) -> bool:
        """Roots of stores, and what is no store but leads to one, are folders whatever the stores hold."""
        if place.url is None:
            return place.path == "/" or self._leads_to_mount(place)
        return place.key == ""

    def _leads_to_mount(self, place: Place) -> bool:
        return place.in_tree and bool(self._table.below(place.folder))

    def _walk(self, place: Place) -> Iterator[Entry]:
        nested = [mount.path for mount in self._table.below(place.folder)] if place.in_tree else []

        def walk_mount(path: str) -> Iterator[Entry]:
            return self._walk(self._place(path))

        if place.url is None:
            if not nested and place.path != "/":
                raise place.unattached()
            for path in nested:
                yield from walk_mount(path)
            return
        pages = place.open(self._stores).store.list(paths.as_prefix(place.key))
        if nested:
            yield from listing.files_around(place.root, pages, nested, walk_mount)
        else:
            yield from listing.files(place.root, pages)


def _told_where_to_look(error: NotFoundError, place: Place) -> NotFoundError:
    """The same error with a next step, where it has none."""
    above = place.path.rstrip("/").rpartition("/")[0] + "/"
    error.hint = error.hint or f"what there is: headrace ls {above}"
    return error
