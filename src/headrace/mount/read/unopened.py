"""Reading without OPEN: the kernel opens files by itself, and asks for bytes of a node, not of a handle.

An OPEN that is answered ENOSYS is the last one that this kernel sends to this mount, and no RELEASE comes either (the
protocol calls it a zero-message open). So a file is got hold of at its first READ, and let go after one that reaches
its end, since the kernel keeps the pages; or once it has not been read for a while, or too many are kept. A node is
one object version (see `nodes`), so nothing is ever mixed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, ClassVar, Final

from headrace.mount.kernel import wire
from headrace.mount.read.read_handles import ReadHandle, ReadHandles

if TYPE_CHECKING:
    from headrace.fetch import Fetcher
    from headrace.mount.kernel.kernel_requests import Answer, Request
    from headrace.mount.kernel.process_groups import ProcessGroups
    from headrace.mount.read.neighbour_prefetch import NeighbourPrefetch
    from headrace.mount.read.passthrough import BackingFiles

_MOST: Final = 256
"""Files kept, each perhaps with a descriptor: a quarter of what a process may usually have open."""
_MOST_STREAMS: Final = 32
"""Of them, objects that are not complete yet: each holds up to 2 MiB of pieces."""


class _Kept:
    """One file. `users`: READs of it now; `idle`: none since the last sweep; `left`: to be closed by its last user."""

    __slots__ = ("handle", "idle", "left", "users")

    def __init__(self, handle: ReadHandle) -> None:
        self.handle = handle
        self.users = 1
        self.idle = False
        self.left = False


class UnopenedFiles(ReadHandles):
    """Reads files that nobody has opened. Any thread. For read-only mounts without passthrough; arguments as there."""

    opens: ClassVar[bool] = False

    def __init__(
        self, fetcher: Fetcher, backings: BackingFiles, prefetcher: NeighbourPrefetch | None, groups: ProcessGroups
    ) -> None:
        super().__init__(fetcher, backings, prefetcher, groups)
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    def read(self, request: Request) -> Answer:
        """The answer to READ of a file that is at hand.

        Raises:
            KeyError: it is not: see `open`. WouldBlock. HeadraceError, InterruptedError, OSError.
        """
        with self.lock:
            kept = self._kept[request.node]
            kept.users += 1
            kept.idle = False
            self._kept.move_to_end(request.node)
        return self._read(kept, request)

    def sweep(self) -> None:
        """Let go of what was not read since the last sweep."""
        super().sweep()
        with self.lock:
            idle = [node for node, kept in self._kept.items() if kept.idle and kept.users == 0]
            for kept in self._kept.values():
                kept.idle = True
            for node in idle:
                self._leave(node)

    def forget(self, node: int) -> None:
        """The kernel has forgotten the node."""
        with self.lock:
            if node in self._kept:
                self._leave(node)

    @property
    def open_count(self) -> int:
        """Files at hand: how many are open only the kernel knows."""
        return len(self._kept)

    def close(self) -> None:
        """Release everything."""
        with self.lock:
            for node in list(self._kept):
                self._leave(node)
        super().close()

    def _opened(self, request: Request, handle: ReadHandle) -> Answer:
        """A file is at hand: answers the READ that asked for it, and keeps it."""
        with self.lock:
            kept = self._kept.get(handle.node)
            if kept is None:
                kept = self._kept[handle.node] = _Kept(handle)
            else:  # another READ was quicker
                kept.users += 1
                self._discard(handle)
            self._make_room()
        return self._read(kept, request)

    def _undo(self, answer: Answer, node: int) -> None:
        """Nobody waits for this READ any more: what came for it is kept as any other."""

    def _read(self, kept: _Kept, request: Request) -> Answer:
        _, start, count, *_ = wire.READ_IN.unpack_from(request.body)
        ended = False
        try:
            answer = self.part(kept.handle, start, count, request)
            ended = start + count >= kept.handle.size
            return answer
        finally:
            with self.lock:
                kept.users -= 1
                if ended and self._kept.get(kept.handle.node) is kept:
                    self._leave(kept.handle.node)
                elif kept.left and kept.users == 0:
                    self._discard(kept.handle)

    def _make_room(self) -> None:
        """Let go of what was not read for longest; the lock is held."""
        streams = [node for node, kept in self._kept.items() if kept.handle.stream is not None]
        for node in streams[: max(len(streams) - _MOST_STREAMS, 0)]:
            self._leave(node)
        while len(self._kept) > _MOST:
            self._leave(next(iter(self._kept)))

    def _leave(self, node: int) -> None:
        """Keep a file no longer; the lock is held."""
        kept = self._kept.pop(node)
        kept.left = True
        if kept.users == 0:
            self._discard(kept.handle)
