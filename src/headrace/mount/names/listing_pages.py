"""A page of a listing, packed: about 70 bytes a name instead of the thousand that Python objects take.

A name's number in its page, with the page's own, makes the node id that the kernel knows it by; how often the kernel
has looked it up is one small integer beside it. So a folder of a million keys costs arrays, not objects.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from headrace.mount.kernel.wire import LONGEST_NAME
from headrace.mount.write_back.object_metadata import LINK_SUFFIX
from headrace.store.protocol import ObjectInfo

FILE, FOLDER, LINK, HIDDEN = 0, 1, 2, 3
"""What a name is. HIDDEN: a file under a folder's name, which cannot be shown."""
SHIFT: Final = 12  # bits of a node's id that are its place in the page
MOST: Final = 1 << SHIFT
"""Most names in one page."""


class ListingPage:
    """Some names of a folder with their attributes. Contents never change but for `kinds` (to HIDDEN) and `counts`.

    `serial` << 12 | index is a name's node id, unless `ids` gives it an older one. Under the inode table's lock.
    """

    __slots__ = (
        "_etags", "_offsets", "_packed", "counts", "first", "ids", "kinds", "known", "last", "live", "mtimes",
        "names", "serial", "sizes",
    )  # fmt: skip

    def __init__(self, prefix: str, folders: Sequence[str], objects: Sequence[ObjectInfo]) -> None:
        cut = len(prefix)
        below = {name[cut:-1] for name in folders}
        entries = [(name, FOLDER, 0, 0, "") for name in sorted(below) if showable(name)]
        entries += [
            (name, FILE, info.size, info.mtime_us, info.etag)
            for info in objects
            if (name := info.key[cut:]) and name not in below and showable(name)
        ]
        self._set([_linked(*entry) if entry[0].endswith(LINK_SUFFIX) else entry for entry in entries])
        # In the order of keys, where a folder ends in a slash: by these the page that a name must be in is found.
        keys = [name[cut:] for name in (*folders, *(info.key for info in objects))]
        self.first = min(keys, default="").encode("utf-8", "surrogateescape")
        self.last = max(keys, default="").encode("utf-8", "surrogateescape")

    def _set(self, entries: Sequence[tuple[str, int, int, int, str | None]]) -> None:
        names = [name.encode("utf-8", "surrogateescape") for name, *_ in entries]
        self.serial = 0
        self.names = b"/" + b"/".join(names) + b"/"
        offsets = array("I", [0])
        at = 0
        for name in names:
            at += len(name) + 1
            offsets.append(at)
        self._offsets = offsets
        self.kinds = bytearray(entry[1] for entry in entries)
        self.sizes = array("q", [entry[2] for entry in entries])
        self.mtimes = array("q", [entry[3] for entry in entries])
        self._etags, self._packed = _packed([entry[4] for entry in entries])
        self.counts = array("I", bytes(4 * len(entries)))
        self.known = 0
        self.live = True
        self.ids: array[int] | None = None

    def __len__(self) -> int:
        return len(self.kinds)

    def find(self, name: bytes) -> int:
        """The index of a name; -1 when it is not here, or not to be shown."""
        at = self.names.find(b"/" + name + b"/")
        if at < 0:
            return -1
        index = bisect_left(self._offsets, at)
        return index if self.kinds[index] != HIDDEN else -1

    def name(self, index: int) -> bytes:
        """The name at `index`."""
        return self.names[self._offsets[index] + 1 : self._offsets[index + 1]]

    def node(self, index: int) -> int:
        """The node id at `index`."""
        return self.serial << SHIFT | index if self.ids is None else self.ids[index]

    def etag(self, index: int) -> str | None:
        """The ETag at `index`; None where the store has none."""
        if self._packed is not None:
            return self._packed[16 * index : 16 * index + 16].hex()
        return self._etags[index]

    def key(self, index: int) -> str:
        """The object's key below the folder's prefix."""
        name = self.name(index).decode("utf-8", "surrogateescape")
        return name + LINK_SUFFIX if self.kinds[index] == LINK else name

    def same(self, other: ListingPage) -> bool:
        """Whether both show the same names, versions and attributes."""
        return (
            self.names == other.names
            and self.sizes == other.sizes
            and self.mtimes == other.mtimes
            and self.kinds == other.kinds
            and self._packed == other._packed
            and self._etags == other._etags
        )

    def same_entry(self, index: int, other: ListingPage, at: int) -> bool:
        """Whether a name stands for the same object version in both."""
        if self.kinds[index] != other.kinds[at]:
            return False
        return self.kinds[index] == FOLDER or (
            self.sizes[index] == other.sizes[at]
            and self.mtimes[index] == other.mtimes[at]
            and self.etag(index) == other.etag(at)
        )

    def carry(self, index: int, node: int) -> None:
        """Let a name keep the node id that the kernel knows it by."""
        if self.ids is None:
            base = self.serial << SHIFT
            self.ids = array("Q", range(base, base + len(self)))
        self.ids[index] = node


def showable(name: str) -> bool:
    """Whether a folder can show this name: not empty, ``.`` or ``..``, no slash or NUL inside, at most 255 bytes."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    return len(name) * 4 <= LONGEST_NAME or len(name.encode("utf-8", "surrogateescape")) <= LONGEST_NAME


def _linked(name: str, kind: int, size: int, mtime: int, etag: str | None) -> tuple[str, int, int, int, str | None]:
    bare = name.removesuffix(LINK_SUFFIX)
    return (bare, LINK, size, mtime, etag) if kind == FILE and bare else (name, kind, size, mtime, etag)


def _packed(etags: Sequence[str | None]) -> tuple[tuple[str | None, ...], bytes | None]:
    """ETags that are all MD5 sums as 16 bytes each; others as they are."""
    plain = [etag or "" for etag in etags]
    if all(len(etag) in (0, 32) for etag in plain) and None not in etags:
        try:
            packed = bytes.fromhex("".join(etag or "0" * 32 for etag in plain))
        except ValueError:
            packed = b""
        if len(packed) == 16 * len(plain) and packed.hex() == "".join(etag or "0" * 32 for etag in plain):
            return (), packed
    return tuple(etags), None
