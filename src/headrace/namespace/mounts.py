"""The mount table: which store is at which path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from headrace.base.errors import AlreadyExistsError, InputError, NotFoundError, SettingError
from headrace.namespace import paths
from headrace.store import StoreOptions, parse_options
from headrace.store.url import parse_url


@dataclass(frozen=True, slots=True)
class Mount:
    """A store attached at a path. `options` are `StoreOptions` fields, hidden from ``repr``: they may hold secrets."""

    path: str
    url: str
    read_only: bool = False
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, hash=False)
    parsed: StoreOptions | None = field(default=None, repr=False)

    @staticmethod
    def make(path: paths.PathLike, url: str, options: Mapping[str, Any], *, read_only: bool = False) -> Mount:
        """A mount, its path and URL in their one spelling and its options checked.

        Raises:
            InputError: a bad path or URL. SettingError: an unknown option, or a value of the wrong kind.
        """
        where = paths.check_mount_path(path)
        if not paths.is_url(url):
            raise InputError(f"{url!r} is not a URL", path=where, hint="such as s3://bucket/prefix or file:///folder")
        url = paths.trim_url(url)
        paths.refuse_escapes(url)
        parsed = parse_options(options, scheme=parse_url(url).scheme, where=where) if options else None
        return Mount(where, url, read_only, MappingProxyType(dict(options)), parsed)

    @staticmethod
    def from_table(path: str, table: Mapping[str, Any]) -> Mount:
        """A mount from a ``[mounts."/path"]`` table of the settings.

        Raises:
            SettingError: no `url`, or as `make`. InputError: as `make`.
        """
        options = dict(table)
        url, read_only = options.pop("url", None), options.pop("read_only", False)
        if not isinstance(url, str):
            raise SettingError("has no url", path=path, hint=f'write url = "s3://…" under [mounts."{path}"]')
        if not isinstance(read_only, bool):
            raise SettingError("read_only is neither true nor false", path=path, hint="write read_only = true")
        return Mount.make(path, url, options, read_only=read_only)


class MountTable:
    """Mounts by path. Immutable: `adding` and `dropping` give a new table, so readers never need a lock."""

    __slots__ = ("_by_path",)

    def __init__(self, mounts: Iterable[Mount] = ()) -> None:
        self._by_path = {mount.path: mount for mount in mounts}

    def __iter__(self) -> Iterator[Mount]:
        return iter(self._by_path.values())

    def adding(self, mount: Mount) -> MountTable:
        """Attach.

        Raises:
            AlreadyExistsError: something else is attached at this very path.
        """
        known = self._by_path.get(mount.path)
        if known is not None and known != mount:
            raise AlreadyExistsError(f"{known.url} is attached here", path=mount.path, hint="detach it first")
        return MountTable([*self, mount])

    def dropping(self, path: str) -> MountTable:
        """Detach.

        Raises:
            NotFoundError: nothing is attached at this very path.
        """
        if path not in self._by_path:
            hint = f"attached: {', '.join(sorted(self._by_path)) or 'nothing'}"
            raise NotFoundError("nothing is attached here", path=path, hint=hint)
        return MountTable(mount for mount in self if mount.path != path)

    def holding(self, path: str) -> Mount | None:
        """The mount `path` is under: the longest that is `path` or an ancestor of it."""
        for candidate in paths.ancestors(path):
            mount = self._by_path.get(candidate)
            if mount is not None:
                return mount
        return None

    def holding_url(self, url: str) -> Mount | None:
        """The mount whose store holds `url`: the longest attached URL, the first attached among equals."""
        holding = [mount for mount in self if paths.is_below(url, mount.url)]
        return max(holding, key=lambda mount: len(mount.url), default=None)

    def under(self, folder: str) -> list[Mount]:
        """All mounts strictly below `folder`, by path."""
        prefix = folder if folder == "/" else folder + "/"
        return [self._by_path[path] for path in sorted(self._by_path) if path.startswith(prefix) and path != folder]

    def below(self, folder: str) -> list[Mount]:
        """The mounts strictly below `folder` that are under no other such mount, by path."""
        found: list[Mount] = []
        for mount in self.under(folder):
            if not found or not mount.path.startswith(found[-1].path + "/"):
                found.append(mount)
        return found

    def children(self, folder: str) -> dict[str, bool]:
        """Names in `folder` that exist because something is attached there (True) or only deeper (False)."""
        prefix = folder if folder == "/" else folder + "/"
        names = sorted({mount.path[len(prefix) :].partition("/")[0] for mount in self.below(folder)})
        return {name: prefix + name in self._by_path for name in names}
