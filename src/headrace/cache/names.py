"""Names of object versions, and where each thing lies below the cache's folder.

```
<dir>/v1/objects/ab/<30 hex>-<size hex>        one object version, complete; the file's bytes are the object's
         blocks/ab/<30 hex>-<size hex>/data    a large object, partly there: sparse, with the map of its blocks
                                       map
         labels/ab/…                           what an entry holds, where the file system has no extended attributes
         pins/ab/…                             empty files: names that eviction leaves alone
         tmp/<node>/ab/…                       what this machine is writing just now
                    owners                     the locks on names: who is fetching which
         usage                                 entries and bytes held: a hint, rebuilt from the names at will
         evict.lock                            held by the one process that evicts
```
"""

from __future__ import annotations

import hashlib
import os
from enum import Enum

from headrace.base.memory import PAGE

VERSION = "v1"
DIGEST = 16
"""Bytes of a digest."""
SHARDS = tuple(f"{number:02x}" for number in range(256))
_HEX = frozenset("0123456789abcdef")


def digest_of(identity: str, key: str, version: str) -> bytes:
    """What an object version's name begins with, in every cache: `DIGEST` bytes. About 1 µs.

    A cryptographic digest, so that nobody who may write to one bucket can craft a key that collides with another's.
    The lengths keep ``("a", "bc")`` apart from ``("ab", "c")``.
    """
    text = f"{len(identity)} {len(key)} {identity}{key}{version}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST).digest()


def object_name(identity: str, key: str, version: str, size: int) -> str:
    """One object version's name in every cache: 32 hex digits, ``-``, the size in hex."""
    return f"{digest_of(identity, key, version).hex()}-{size:x}"


def size_of(name: str) -> int:
    """Bytes of the object that `name` stands for."""
    return int(name[33:], 16)


def is_name(text: str) -> bool:
    """Whether `text` has the form that `object_name` gives: foreign files in the folders are left alone."""
    return len(text) > 33 and text[32] == "-" and _HEX.issuperset(text[:32]) and _HEX.issuperset(text[33:])


def charge_of(size: int) -> int:
    """Bytes that a complete entry counts for: whole pages, and one page for its label. Never less than it takes."""
    return (size + PAGE - 1) // PAGE * PAGE + PAGE


class First(Enum):
    """Whether a cache folder is used for the first time: ever, by this machine since it booted, or not."""

    EVER = "ever"
    SINCE_BOOT = "since boot"
    NOT = "not"


class Layout:
    """Paths below one cache folder. Holds no state; any thread, any process."""

    def __init__(self, folder: str, node: str) -> None:
        self.folder = folder
        self.root = os.path.join(os.path.abspath(folder), VERSION)
        self.objects = f"{self.root}/objects/"
        self.blocks = f"{self.root}/blocks/"
        self.labels = f"{self.root}/labels/"
        self.pins = f"{self.root}/pins/"
        self.tmp = f"{self.root}/tmp/"  # noqa: S108
        self.claims = f"{self.tmp}{node}/"
        self.owners = f"{self.claims}owners"
        self.usage = f"{self.root}/usage"
        self.evict_lock = f"{self.root}/evict.lock"

    def create(self) -> First:
        """Make the folders, mode 0700, and tell whether this is the first use of them.

        Raises:
            OSError: as the system calls give it.
        """
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        _make(self.root)
        if os.stat(self.root).st_mode & 0o077:
            os.chmod(self.root, 0o700)
        ever = _make(self.objects)
        for folder in (self.blocks, self.pins, self.tmp):
            _make(folder)
        booted = _make(self.claims)
        return First.EVER if ever else First.SINCE_BOOT if booted else First.NOT

    def entry(self, name: str) -> str:
        """File of a complete entry."""
        return f"{self.objects}{name[:2]}/{name[2:]}"

    def holds(self, name: str) -> bool:
        """Whether a complete entry is there, of the size that its name says."""
        try:
            return os.stat(self.entry(name)).st_size == size_of(name)
        except OSError:
            return False

    def partial(self, name: str) -> str:
        """Folder of a block entry."""
        return f"{self.blocks}{name[:2]}/{name[2:]}"

    def label(self, name: str) -> str:
        """Label beside an entry, where attributes do not work."""
        return f"{self.labels}{name[:2]}/{name[2:]}"

    def pin(self, name: str) -> str:
        """Marker of a pinned name."""
        return f"{self.pins}{name[:2]}/{name[2:]}"

    def claim(self, name: str) -> str:
        """Temporary file of the one who writes `name`.

        In one of 256 folders: a file system that looks for a free inode near the file's folder (ext4) took 0.4 ms a
        file once the neighbourhood of a single one was full, and 25 µs with many.
        """
        return f"{self.claims}{name[:2]}/{name}"


def _make(folder: str) -> bool:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return False
    return True


def rename_into(source: str, target: str, source_folder: int | None = None) -> None:
    """Rename, making the target's folder (a shard, made on first use) where it is missing.

    `source_folder`: an open folder that `source` is relative to.

    Raises:
        OSError: as rename gives it.
    """
    try:
        os.rename(source, target, src_dir_fd=source_folder)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        os.rename(source, target, src_dir_fd=source_folder)
