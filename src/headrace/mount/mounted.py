"""One mount from start to end: put together, served until it is unmounted or ended, taken apart in order."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError, InputError, NotFoundError, UnsupportedError
from headrace.mount import live_mounts
from headrace.mount.filesystem import FileSystem
from headrace.mount.kernel import mount_points
from headrace.mount.kernel.process_groups import ProcessGroups
from headrace.mount.kernel.session import FuseSession, Handler, Quick
from headrace.mount.live_mounts import LiveMount
from headrace.mount.mount_parts import MountParts, make_parts
from headrace.mount.mount_stats import MountStats
from headrace.mount.names.node_record import NodeRecord
from headrace.mount.writable_filesystem import WritableFileSystem
from headrace.mount.write_back.staging import Staging, StagingOptions

if TYPE_CHECKING:
    from headrace.base.settings import Settings
    from headrace.mount.kernel.holder import HeldMount
    from headrace.mount.mount_options import MountOptions
    from headrace.mount.read.neighbour_prefetch import NeighbourPrefetch
    from headrace.namespace import Namespace

_log = logging.getLogger("headrace.mount")
_SWEEP_S = 10.0  # seconds between sweeps: what the kernel has forgotten goes
_TICK_S = 0.25  # seconds between looks whether it is unmounted
_READAHEAD_KIB = 1024  # KiB that the kernel reads ahead of a file
_SETTLE_S = 5.0  # seconds in which files that are still open may be closed


class Mounted:
    """A mount that serves. Make one with `Mounted.open`; then `wait`, and `close`.

    Any thread may call `close` and `refresh`; only the thread that opened it calls the others.
    """

    def __init__(
        self, settings: Settings, namespace: Namespace, path: str, point: str, options: MountOptions,
        held: HeldMount | None = None,
    ) -> None:  # fmt: skip
        self.point = point
        self.path = path.rstrip("/") or "/"
        if not options.read_only and not _may_be_written(namespace, self.path):
            options = dataclasses.replace(options, read_only=True)
        if not options.open and not options.read_only:
            raise InputError("no_open is for read-only mounts", path=path, hint="-o ro,no_open")
        if not options.open and held is not None:
            raise InputError("no_open cannot be kept", path=path, hint="leave out no_open, or --keep")
        self.options = options
        self._held = held
        self._record = NodeRecord(held.record, fresh=held.fd < 0) if held is not None else None
        self._settings = settings
        self._namespace = namespace
        self._fetcher = namespace.fetcher
        self.metrics = self._fetcher.metrics
        self._groups = ProcessGroups(self.metrics)
        self._staging: Staging | None = None
        self.staging_folder = ""
        self._ending = threading.Event()
        self._closed = threading.Lock()
        self._note = ""
        self._prefetch: NeighbourPrefetch | None = None

    @staticmethod
    def open(
        settings: Settings, namespace: Namespace, path: str, mountpoint: str, options: MountOptions,
        held: HeldMount | None = None,
    ) -> Mounted:  # fmt: skip
        """Mount `path` of the namespace (or a URL) at `mountpoint`; returns once it answers. `held`: a holder has the
        kernel's descriptor, or is to get it; a mount that it has already is taken over, and `mountpoint` is its real
        path.

        Raises:
            NotFoundError: no such folder in the namespace, or here. InputError: the mount point is taken or not empty.
            UnsupportedError: no FUSE here. DeniedError: not allowed. TryAgainError: the store cannot be reached.
        """
        if held is None or held.fd < 0:
            mount_points.clear_leftover(os.path.realpath(mountpoint))
            point = mount_points.check_point(mountpoint)
            _check_folder(namespace, path, read_only=options.read_only)
        else:
            point = mountpoint  # nobody answers there now
        mounted = Mounted(settings, namespace, path, point, options, held)
        try:
            mounted._start()
        except BaseException:
            mounted._release()
            raise
        return mounted

    @property
    def passthrough(self) -> bool:
        """Whether the kernel reads cached files by itself."""
        return self._reads.backings.enabled

    @property
    def tells_opens(self) -> bool:
        """Whether the kernel sends a message for each open."""
        return self._reads.opens

    def wait(self) -> None:
        """Until it is unmounted, or `end` is called."""
        swept = time.monotonic()
        while not self._ending.wait(_TICK_S):
            if self._session.ended.is_set():
                return
            self._session.tend()
            if time.monotonic() - swept > _SWEEP_S:
                swept = time.monotonic()
                self._reads.sweep()
                self._session.expire(self._settings.fetch.deadline + _SWEEP_S)
                self._parts.notices.forget()
            # Files being written may fill the disk of the cache. Backing files kept for the next open hold room there.
            if self._staging is not None and self._fetcher.cache is not None and self._fetcher.cache.relieve():
                self._reads.backings.sweep()

    def end(self) -> None:
        """Let `wait` return. Safe in a signal handler."""
        self._ending.set()

    def refresh(self) -> None:
        """Look at the stores again: every name, listing and attribute is asked for when it is next used."""
        self._parts.names.refresh()
        self.metrics.add("mount.refreshes")
        self._parts.notices.refresh()

    def close(self) -> bool:
        """Unmount, publish what is not published yet, stop. Idempotent. False when something is left for later."""
        if not self._closed.acquire(blocking=False):
            return True
        self._ending.set()
        if not self._session.ended.is_set():
            with suppress(HeadraceError):
                mount_points.unmount(self.point, lazy=True)
            self._session.ended.wait(1.0 if self.open_count == 0 else _SETTLE_S)
        done = self._staging is None or self._staging.drain(self.options.drain)
        if not done:
            _log.warning("%s: not all is published; the next mount there goes on with it", self.point)
        self._session.close()
        self._reads.close()
        self._release()
        if self._record is not None:
            self._record.close()
        with suppress(OSError):
            os.unlink(self._note)
        return done

    @property
    def open_count(self) -> int:
        """Open files and folders."""
        return self._files.open_count

    def _release(self) -> None:
        if self._staging is not None:
            self._staging.close()
        if self._prefetch is not None:
            self._prefetch.close()
        self._fetcher.close()
        self._namespace.close()

    def _start(self) -> None:
        options = self.options
        if not options.read_only:
            self._staging = self._open_staging()
        fd = self._descriptor()
        wanted = options.passthrough and options.open and os.geteuid() == 0
        depth = mount_points.stack_depth(self._settings.cache.dir) if wanted else 0
        self._session = session = FuseSession(
            fd, threads=options.threads, depth=depth, metrics=self.metrics, groups=self._groups
        )
        try:
            self._agree(session)
            self._parts = parts = make_parts(
                session, self._namespace, self.path, options, self._groups, self._record
            )
            self._reads, self._prefetch = parts.reads, parts.prefetch
            session.serve(*self._operations(parts))
            self._check_answers()
            mount_points.set_readahead(self.point, _READAHEAD_KIB)
            self._note = live_mounts.note(self._settings, self._live())
        except BaseException:
            if self._held is None or self._held.fd < 0:  # else the next server may fare better
                with suppress(HeadraceError):
                    mount_points.unmount(self.point, lazy=True)
            session.close()
            raise

    def _descriptor(self) -> int:
        """The kernel's; a holder gets a copy."""
        options, held = self.options, self._held
        if held is not None and held.fd >= 0:
            return held.fd
        source = options.source or "headrace"
        fd = mount_points.mount(self.point, source=source, read_only=options.read_only, allow_other=options.allow_other)
        if held is not None:
            held.hand_over(fd, self.point)
        return fd

    def _agree(self, session: FuseSession) -> None:
        """Agree with the kernel, or take over what an earlier server agreed on."""
        record = self._record
        if record is None:
            session.greet()
            return
        agreed = session.greet() if record.agreed is None else session.take_over(record.agreed)
        if not agreed.resends:
            hint = "mount without --keep"
            raise UnsupportedError("a kept mount needs Linux 6.9 or later", path=self.point, hint=hint)
        record.begun(agreed)
        if record.agreed is not None:
            self.metrics.add("mount.taken_over")
            _log.warning("%s: taken over from a server that has died", self.point)

    def _open_staging(self) -> Staging:
        beside = os.path.dirname(os.path.abspath(self._settings.cache.dir))
        base = self.options.staging or os.path.join(beside, "staging")
        self.staging_folder = live_mounts.staging_folder(base, self.point)
        staging = Staging(self.staging_folder, self._namespace, StagingOptions(period_s=self.options.publish))
        try:
            recovered = staging.recover()
        except BaseException:
            staging.close()
            raise
        if recovered.pending or recovered.renames or recovered.orphans:
            _log.warning("%s: taken up from an earlier mount: %s", self.point, recovered)
        return staging

    def _operations(self, parts: MountParts) -> tuple[Mapping[int, Handler], Mapping[int, Quick]]:
        files = FileSystem(parts, self._stats(parts))
        self._files: FileSystem | WritableFileSystem = files
        if self._staging is not None:
            writable = WritableFileSystem(parts, files, self._staging, self._settings.fetch.deadline)
            parts.names.overlay = writable.overlay
            self._staging.renamed_late(parts.names.distrust)
            self._files = writable
        return self._files.handlers(), self._files.quick()

    def _check_answers(self) -> None:
        try:
            os.stat(self.point)
            os.statvfs(self.point)
        except OSError as error:
            raise HeadraceError(f"the mount does not answer: {error.strerror}", path=self.point) from error

    def _live(self) -> LiveMount:
        return LiveMount(
            self.point, self.path, os.getpid(), time.time(), self.options.read_only, self.passthrough,
            self.staging_folder,
        )  # fmt: skip

    def _stats(self, parts: MountParts) -> MountStats:
        about = {
            "mountpoint": self.point, "path": self.path, "pid": os.getpid(), "read_only": self.options.read_only,
            "ttl_seconds": self.options.ttl,
        }  # fmt: skip
        table, reads, prefetch = parts.table, parts.reads, parts.prefetch
        gauges: dict[str, Callable[[], float]] = {
            "open_files": lambda: self.open_count,
            "open_by_kernel": lambda: reads.backings.open_count,
            "backing_ids": lambda: len(reads.backings),
            "streams": lambda: len(reads.streams),
            "stream_bytes": lambda: reads.streams.budget.used,
            "prefetch_under_way": lambda: len(prefetch) if prefetch is not None else 0,
            "fills_under_way": lambda: self._fetcher.fills_under_way,
            "waiting_requests": lambda: self._session.waiting,
            "names": table.size,
            "nodes": lambda: len(table.nodes),
            "folders": lambda: len(table.folders),
            "passthrough": lambda: self.passthrough,
            "opens_told": lambda: reads.opens,
        }
        rows = {"pending": self._pending, "left": self._orphans, "readers": self._groups.rows}
        return MountStats(self.metrics, about, gauges, rows)

    def _pending(self) -> list[dict[str, object]]:
        if self._staging is None:
            return []
        return [
            {"path": each.path, "bytes": each.bytes, "age": each.age_s, "tries": each.tries, "error": each.error}
            for each in self._staging.backlog()
        ]

    def _orphans(self) -> list[dict[str, object]]:
        return [dataclasses.asdict(each) for each in self._staging.orphans()] if self._staging is not None else []


def _check_folder(namespace: Namespace, path: str, *, read_only: bool) -> None:
    """Where something can be written, a folder need not be there yet: its store is asked whether it is.

    Raises NotFoundError, InputError: not a folder of the namespace; any store error.
    """
    try:
        entry = namespace.stat(path.rstrip("/") or "/")
    except NotFoundError:
        if path.rstrip("/") == "":
            raise NotFoundError("nothing is attached", path="/", hint="headrace attach PATH URL") from None
        at = namespace.resolve(path)
        if read_only or at.read_only:
            raise
        at.store.list_folder(at.key if not at.key or at.key.endswith("/") else f"{at.key}/")
        return
    if entry.is_file:
        raise InputError("is a file", path=path, hint="mount a folder")


def _may_be_written(namespace: Namespace, path: str) -> bool:
    """Whether anything at or below `path` is attached for writing."""
    try:
        if not namespace.resolve(path).read_only:
            return True
    except NotFoundError:
        pass
    below = path.rstrip("/") + "/"
    return any(mount.path.startswith(below) and not mount.read_only for mount in namespace.mounts())
