"""What a tree of this machine holds that is not copied: links that lead out of it or nowhere, pipes, devices."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class LeftOut:
    """Of the tree below `root`. `tell` gets a line for each thing that is left out, at once. One thread.

    Args:
        follow: links that lead out of the tree are followed.
    """

    def __init__(self, root: str, tell: Callable[[str], object], *, follow: bool) -> None:
        self._root = os.path.realpath(root)
        self._leads_out = False
        for path, why, out in self._odd(root):
            if not out:
                tell(f"left out: {path}: {why}")
            elif not follow:
                self._leads_out = True
                tell(f"left out: {path}: {why}; --follow copies what it leads to")

    def __contains__(self, path: str) -> bool:
        """Whether a file that was found by following links is not to be copied."""
        return self._leads_out and not _below(self._root, os.path.realpath(path))

    def _odd(self, root: str) -> Iterator[tuple[str, str, bool]]:
        """Paths, what they are, and whether that is a link out. What cannot be looked at is for who copies."""
        for folder, folders, files in os.walk(root):
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                try:
                    mode = os.lstat(path).st_mode
                    if stat.S_ISLNK(mode):
                        yield from self._link(path)
                    elif kind := _KINDS.get(stat.S_IFMT(mode)):
                        yield path, f"is {kind}", False
                except OSError:
                    continue

    def _link(self, path: str) -> Iterator[tuple[str, str, bool]]:
        to = os.readlink(path)
        try:
            mode = os.stat(path).st_mode
        except OSError as error:  # there is nothing, or a loop
            yield path, f"is a link to {to}: {(error.strerror or str(error)).lower()}", False
            return
        if kind := _KINDS.get(stat.S_IFMT(mode)):
            yield path, f"is a link to {kind}", False
        elif not _below(self._root, os.path.realpath(path)):
            yield path, f"is a link out of the tree, to {to}", True


def _below(root: str, path: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
