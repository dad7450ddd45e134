"""Writing a file: collected aside, published whole when it is closed, or not at all."""

from __future__ import annotations

import io
import mmap
import os
import tempfile
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any

from headrace.base.places import temporary_folder

_MEMORY_BYTES = 64 * 1024 * 1024
"""Of one writer, before it goes to a file: most objects that programs write are smaller."""


class Spool:
    """Bytes on their way to one put: in memory up to `memory` bytes, then in an unnamed temporary file."""

    def __init__(self, memory: int = _MEMORY_BYTES) -> None:
        self._memory = memory
        self._on_disk = False
        self.file: IO[bytes] = io.BytesIO()

    def write(self, data: Any) -> int:
        """Append at the file's position."""
        view = memoryview(data).cast("B")
        if not self._on_disk and self.file.tell() + len(view) > self._memory:
            self._move()
        return self.file.write(view)

    def view(self) -> memoryview:
        """All bytes; write no more after this. From disk they are mapped, not read.

        The view stays good for as long as someone holds it: some stores keep what they were given.
        """
        if isinstance(self.file, io.BytesIO):
            return self.file.getbuffer()
        self.file.flush()
        if os.fstat(self.file.fileno()).st_size == 0:  # which cannot be mapped
            return memoryview(b"")
        return memoryview(mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ))

    def close(self) -> None:
        """Give memory and disk back, once no view is left."""
        if self._on_disk:
            self.file.close()
        self.file = io.BytesIO()

    def _move(self) -> None:
        position = self.file.tell()
        self.file.seek(0)
        disk = tempfile.TemporaryFile(prefix="headrace-", dir=temporary_folder())  # noqa: SIM115 - closed by `close`
        while block := self.file.read(1 << 20):
            disk.write(block)
        disk.seek(position)
        self.file.close()
        self.file, self._on_disk = disk, True


class Writer(io.BufferedIOBase):
    """A seekable file for writing; `publish` gets all of it when it is closed. One thread at a time.

    Leaving a `with` block by an exception, `discard`, or losing the handle without closing it publishes nothing.
    """

    def __init__(self, publish: Callable[[memoryview], object], path: str) -> None:
        super().__init__()
        self._publish = publish
        self._spool = Spool()
        self._discarded = False
        self.name = path

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._check_open()
        return self._spool.write(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check_open()
        return self._spool.file.seek(offset, whence)

    def tell(self) -> int:
        self._check_open()
        return self._spool.file.tell()

    def truncate(self, size: int | None = None, /) -> int:
        self._check_open()
        return self._spool.file.truncate(size)

    def discard(self) -> None:
        """Close without publishing."""
        self._discarded = True
        self.close()

    def close(self) -> None:
        """Publish and close. Idempotent.

        Raises:
            what the put raises; the bytes are then lost with the handle, the object is untouched.
        """
        if self.closed:
            return
        try:
            if not self._discarded:
                self._publish(self._spool.view())
        finally:
            self._spool.close()
            super().close()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.discard()
        super().__exit__(kind, value, trace)

    def __del__(self) -> None:
        if not self.closed:
            warnings.warn(f"{self.name}: never closed, so not written", ResourceWarning, stacklevel=2)
            self.discard()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


class TextWriter(io.TextIOWrapper):
    """Text over `Writer`, with its rule: an exception in the `with` block publishes nothing."""

    def __init__(
        self, writer: Writer, encoding: str | None = None, newline: str | None = None, errors: str | None = None
    ) -> None:
        super().__init__(writer, encoding or "utf-8", errors, newline)
        self._writer = writer

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._writer.discard()
            return
        self.close()
