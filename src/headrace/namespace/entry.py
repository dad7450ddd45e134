"""What a listing tells of one name."""

from __future__ import annotations

from typing import Literal, NamedTuple

from headrace.namespace import paths
from headrace.store.protocol import ObjectInfo


class Entry(NamedTuple):
    """A file (an object) or a folder (a prefix of keys, or a mount point).

    A named tuple because walks make millions of them. `path` resolves back to this very entry; `name` is its last
    part. `size` in bytes, 0 for a folder; `mtime_us` microseconds since the epoch, 0 for a folder; `etag` None for a
    folder and where the store has none.
    """

    name: str
    path: str
    kind: Literal["file", "folder"]
    size: int = 0
    mtime_us: int = 0
    etag: str | None = None

    @property
    def is_file(self) -> bool:
        """True for an object."""
        return self.kind == "file"

    @property
    def version(self) -> str:
        """Identity of a file's bytes, as `write` takes it for `if_match`: the ETag, or size and time without one."""
        return self.etag if self.etag is not None else f"{self.size}-{self.mtime_us}"


def file_entry(root: str, info: ObjectInfo) -> Entry:
    """The entry of an object in the store whose root is at `root`."""
    path = paths.join(root, info.key)
    return Entry(paths.base_name(info.key), path, "file", info.size, info.mtime_us, info.etag)


def folder_entry(path: str) -> Entry:
    """The entry of a folder at `path`."""
    return Entry(paths.base_name(path), path, "folder")


def is_marker(info: ObjectInfo) -> bool:
    """An empty object whose key ends in ``/``: other tools' way to make a folder. It is one, and no file."""
    return info.size == 0 and info.key.endswith("/")
