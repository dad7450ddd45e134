"""What the mount shows beside the bucket: files being written, folders that no object holds, and names that are gone
though their objects are still there.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from headrace.mount.write_back.object_metadata import Attributes
from headrace.mount.write_back.staged_file import StagedFile


@dataclass(frozen=True, slots=True)
class MadeFolder:
    """A folder that exists in this mount. `number`: its record in the journal; 0: it lasts as long as the mount."""

    path: str
    attrs: Attributes
    number: int = 0


Node = StagedFile | MadeFolder


class StagedTree:
    """By path, without a trailing ``/``. Any thread; `lock` makes several calls one step."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._nodes: dict[str, dict[str, Node]] = {}  # folder → name → node
        self._hidden: frozenset[str] = frozenset()

    def get(self, path: str) -> Node | None:
        """The node at `path`."""
        folder, name = split(path)
        with self.lock:
            return self._nodes.get(folder, {}).get(name)

    def put(self, path: str, node: Node) -> None:
        """Show `node` at `path`."""
        folder, name = split(path)
        with self.lock:
            self._nodes.setdefault(folder, {})[name] = node

    def drop(self, path: str, node: Node | None = None) -> None:
        """Show nothing there any more; if `node` is given, only where it is this one."""
        folder, name = split(path)
        with self.lock:
            names = self._nodes.get(folder)
            if names is None or name not in names or (node is not None and names[name] is not node):
                return
            del names[name]
            if not names:
                del self._nodes[folder]

    def children(self, folder: str) -> list[Node]:
        """Directly in `folder`."""
        with self.lock:
            return list(self._nodes.get(folder, {}).values())

    def below(self, folder: str) -> list[tuple[str, Node]]:
        """All in `folder`, at any depth, with their paths. Looks at every node."""
        prefix = folder if folder == "/" else folder + "/"
        with self.lock:
            return [
                (join(parent, name), node)
                for parent, names in self._nodes.items()
                if parent == folder or parent.startswith(prefix)
                for name, node in names.items()
            ]

    def files(self) -> list[StagedFile]:
        """All staged files."""
        with self.lock:
            return [node for names in self._nodes.values() for node in names.values() if isinstance(node, StagedFile)]

    def move(self, old: str, new: str) -> list[Node]:
        """Show at `new`, and below it, what was at `old`. Returns what has moved."""
        moved: list[Node] = []
        with self.lock:
            node = self.get(old)
            found = [*([(old, node)] if node is not None else ()), *self.below(old)]
            for path, _ in found:
                self.drop(path)
            for path, each in found:
                there = new + path[len(old) :]
                if isinstance(each, StagedFile):
                    each.path = there
                else:
                    each = MadeFolder(there, each.attrs, each.number)
                self.put(there, each)
                moved.append(each)
        return moved

    # names that are gone

    def hide(self, path: str) -> None:
        """`path`, and all below it, is not to be seen, whatever the bucket holds."""
        with self.lock:
            self._hidden |= {path}

    def show(self, path: str) -> None:
        """Undo `hide`."""
        with self.lock:
            self._hidden -= {path}

    @property
    def hides_any(self) -> bool:
        """Whether anything is hidden."""
        return bool(self._hidden)

    def hides(self, path: str) -> bool:
        """Whether `path` is gone for this mount though its object may still be there. Cheap: asked at every lookup."""
        hidden = self._hidden
        if not hidden:
            return False
        return any(path == each or path.startswith(each + "/") for each in hidden)


def split(path: str) -> tuple[str, str]:
    """Folder and name."""
    folder, _, name = path.rpartition("/")
    return folder or "/", name


def join(folder: str, name: str) -> str:
    """The path of `name` in `folder`."""
    return f"/{name}" if folder == "/" else f"{folder}/{name}"


def overlap(one: str, other: str) -> bool:
    """Whether one of two paths is the other, or above it."""
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")
