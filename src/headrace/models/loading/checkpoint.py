"""torch.distributed.checkpoint straight to the bucket and back, as `hr.torch.checkpoint`: `Writer` and `Reader`.

    <folder>/__<rank>_<n>.distcp    what a rank saves: sent in parts while it is written
             .metadata              torch's own: which bytes of which file are which part of which tensor
             COMMITTED              written last (`headrace.upload.commit`)

torch's file-system writer and reader do what is torch's: plans, formats, extensions. Only where bytes go to and come
from is ours. torch reads ``.metadata`` by pickle: load checkpoints of those you trust.
"""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import IO, Any, Final

from torch.distributed.checkpoint.filesystem import FileSystemBase, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from headrace.base.errors import AlreadyExistsError, InputError, NotFoundError, ReadOnlyError, UnsupportedError
from headrace.base.threads import Threads
from headrace.models.loading.objects import Source
from headrace.models.loading.runs import Run, contiguous, received
from headrace.namespace import Namespace
from headrace.upload import MARKER, Outgoing, Uploader, UploadOptions, commit, is_complete, retract

_METADATA: Final = ".metadata"
_OURS: Final = re.compile(r"__\d+_\d+\.distcp")
_TOGETHER: Final = 64 << 20
"""Bytes of one run from which on the next saved item begins another."""
_BETWEEN: Final = 128 << 10  # bytes between two items that are rather read along than asked around
_AHEAD: Final = 2  # runs received while one is handed out
_AT_ONCE: Final = 16  # files looked up side by side
_PART: Final = 16 << 20  # bytes of a part; four are in memory


class Writer(FileSystemWriter):
    """`torch.distributed.checkpoint.StorageWriter` into a folder of a bucket: ``dcp.save(state, storage_writer=…)``.

    The coordinator takes an earlier ``COMMITTED`` away before any rank writes, and writes the new one after all have:
    whoever finds it has the whole checkpoint. Each rank's memory: 64 MiB on their way, beside what torch copies.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = True,
        thread_count: int = 1,
        namespace: Namespace | None = None,
        **options: Any,
    ) -> None:
        """`path`: a folder: a path, URL or local one; `overwrite`: False: AlreadyExistsError where one is committed;
        `thread_count`: files a rank writes side by side; `options`: torch's (``per_thread_copy_ahead``, …).
        """
        super().__init__(os.fspath(path), sync_files=False, thread_count=thread_count, overwrite=overwrite, **options)
        self.fs = _Files(namespace or Namespace.load())
        self.path = self.fs.init_path(path)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("use_collectives", True):
            hint = "save with the ranks' collectives, or to a folder of each rank's own"
            raise UnsupportedError(
                "ranks that do not coordinate cannot commit together", path=str(self.path), hint=hint
            )
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        if not self.overwrite and self.fs.is_committed(self.path):
            hint = "name another folder, or overwrite=True"
            raise AlreadyExistsError("holds a checkpoint already", path=str(self.path), hint=hint)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is one, which is what `overwrite` is about
            return super().prepare_local_plan(plan)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        self.fs.retract(self.path)
        return super().prepare_global_plan(plans)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)
        names = {one.storage_data.relative_path for each in results for one in each}
        self.fs.commit(self.path, {*names, _METADATA})

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return _Files.validate_checkpoint_id(checkpoint_id)


class Reader(FileSystemReader):
    """`torch.distributed.checkpoint.StorageReader` of a folder of a bucket: ``dcp.load(state, storage_reader=…)``.

    A rank reads the saved pieces that it needs a part of, whole, by parallel range reads, and through the node's cache
    where there is one. In memory are 192 MiB at most, or three times the largest piece.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        committed: bool = True,
        namespace: Namespace | None = None,
        **options: Any,
    ) -> None:
        """`path`: as `Writer`'s; `committed`: False: read a folder without ``COMMITTED`` too, as torch's own writers
        leave; `options`: torch's.
        """
        super().__init__(os.fspath(path), **options)
        self._namespace = namespace or Namespace.load()
        self._committed = committed
        self._here: dict[tuple[str, int], memoryview] = {}
        self.fs = _Files(self._namespace)
        self.path = self.fs.init_path(path)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        if self._committed and not self.fs.is_committed(self.path):
            there = self.fs.exists(self.fs.concat_path(self.path, _METADATA))
            hint = (
                "read it with committed=False, if whoever wrote it writes none" if there else "look one folder deeper"
            )
            raise NotFoundError(f"has no {MARKER}: the checkpoint is not complete", path=str(self.path), hint=hint)
        return super().read_metadata(*args, **kwargs)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        done: Future[None] = Future()
        runs = self._runs(plan.items)
        if runs:
            for run, memory in received(runs[0].source.fetcher, runs, ahead=_AHEAD):
                self._hand_out(run, memory, plan, planner)
        done.set_result(None)
        return done

    def _hand_out(self, run: Run, memory: memoryview, plan: LoadPlan, planner: LoadPlanner) -> None:
        """What a run brought, to torch, which asks for it by `_slice_file`."""
        items: Sequence[_Item] = run.tag  # pyright: ignore[reportAssignmentType]
        first = items[0].start
        self._here = {(one.path, one.start): memory[one.start - first : one.stop - first] for one in items}
        super().read_data(replace(plan, items=[each for one in items for each in one.asked]), planner)
        self._here.clear()

    def _slice_file(self, file: Any, sinfo: Any) -> IO[bytes]:  # noqa: ARG002
        return io.BytesIO(self._here[sinfo.relative_path, sinfo.offset])

    def _runs(self, items: Sequence[ReadItem]) -> list[Run]:
        found: dict[tuple[str, int], _Item] = {}
        for item in items:
            info = self.storage_data[item.storage_index]
            key = (info.relative_path, info.offset)
            found.setdefault(key, _Item(info.relative_path, info.offset, info.offset + info.length, [])).asked.append(
                item
            )
        paths = sorted({path for path, _ in found})
        with Threads(max(1, min(_AT_ONCE, len(paths))), "headrace-load-checkpoint") as pool:
            sources = dict(zip(paths, pool.map(self._source, paths), strict=True))
        return [
            Run(sources[group[0].path], group[-1].stop - group[0].start,
                contiguous(group[0].start, group[-1].stop), group)
            for group in _groups(sorted(found.values(), key=lambda one: (one.path, one.start)))
        ]  # fmt: skip

    def _source(self, name: str) -> Source:
        if name.startswith("/") or {"", ".", ".."} & set(name.split("/")):
            raise InputError(f"names a file {name!r} that is not in its folder", path=str(self.path))
        return Source.find(self._namespace, self.fs.concat_path(self.path, name), refresh=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return _Files.validate_checkpoint_id(checkpoint_id)


class _Item:
    """Bytes [start, stop) of a file: one saved item, and the parts of it that were asked for."""

    __slots__ = ("asked", "path", "start", "stop")

    def __init__(self, path: str, start: int, stop: int, asked: list[ReadItem]) -> None:
        self.path, self.start, self.stop, self.asked = path, start, stop, asked


def _groups(items: Sequence[_Item]) -> list[list[_Item]]:
    """Neighbours, which are received together up to a size."""
    groups: list[list[_Item]] = []
    for one in items:
        last = groups[-1] if groups else None
        near = last is not None and last[-1].path == one.path and one.start - last[-1].stop <= _BETWEEN
        if last is not None and near and last[-1].stop - last[0].start < _TOGETHER:
            last.append(one)
        else:
            groups.append([one])
    return groups


class _Files(FileSystemBase):
    """What torch's writer and reader ask of a file system, over a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[Any]:
        """Written: whole when the block ends well, else not at all."""
        if "w" not in mode:
            with self._namespace.open(path) as file:
                yield file
            return
        location = self._namespace.resolve(path)
        with Uploader(UploadOptions(part=_PART, memory=4 * _PART)) as uploader:
            outgoing = uploader.outgoing(location.store, location.key)
            stream = _Stream(outgoing)
            try:
                yield stream
                info = outgoing.finish()
            finally:
                outgoing.abort()
        self._namespace.remember(location.path, info)

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str:
        return f"{os.fspath(path).rstrip('/')}/{suffix}"

    def init_path(self, path: str | os.PathLike[str]) -> str:
        return os.fspath(path)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        self._namespace.copy(path, new_path)
        self._namespace.delete(path)

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """There are no folders to be made. Raises ReadOnlyError before any rank writes."""
        if self._namespace.resolve(path).read_only:
            hint = "attach it again without read_only to write there"
            raise ReadOnlyError("is read-only", path=os.fspath(path), hint=hint)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return bool(os.fspath(checkpoint_id))

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return self._namespace.exists(path, refresh=True)

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        self._namespace.delete(path)

    def is_committed(self, folder: str | os.PathLike[str]) -> bool:
        location = self._namespace.resolve(folder)
        return is_complete(location.store, location.key)

    def retract(self, folder: str | os.PathLike[str]) -> None:
        location = self._namespace.resolve(folder)
        retract(location.store, location.key)

    def commit(self, folder: str | os.PathLike[str], names: set[str]) -> None:
        """Write the marker over files of these names, and delete those of an earlier save with more ranks."""
        location = self._namespace.resolve(folder)
        prefix = f"{location.key.rstrip('/')}/" if location.key.strip("/") else ""
        found = {info.key[len(prefix) :]: info for page in location.store.list(prefix) for info in page}
        missing = names - found.keys()
        if missing:
            raise NotFoundError(f"{min(missing)} is gone before it was committed", path=os.fspath(folder))
        with suppress(NotFoundError):
            location.store.delete([found[one].key for one in found if _OURS.fullmatch(one) and one not in names])
        commit(location.store, prefix, [found[one] for one in names])


class _Stream(io.RawIOBase):
    """A file that is sent while it is written."""

    def __init__(self, outgoing: Outgoing) -> None:
        super().__init__()
        self._outgoing = outgoing

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._outgoing.write(data)
        return memoryview(data).nbytes

    def tell(self) -> int:
        return self._outgoing.size
