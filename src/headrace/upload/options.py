"""How an uploader may spend memory, threads and bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.errors import InputError


@dataclass(frozen=True, slots=True)
class UploadOptions:
    """Bounds of one `headrace.upload.Uploader`.

    Raises:
        InputError: a value that makes no sense.
    """

    part: int = 16 << 20
    """Bytes of a part, and the most that goes in one request. Larger for objects of more than 160 GB."""
    threads: int = 6
    """Parts under way at once, over all files; as many small files at once in `put_many`."""
    memory: int = 128 << 20
    """Most bytes read and not yet acknowledged, for all that is under way. One part is always allowed."""
    bandwidth: float | None = None
    """Bytes a second to send on average, over all files; None: no limit. Parts get smaller under a low one."""
    tries: int = 3
    """How often a file that changes while it is read is begun anew before ChangedError."""

    def __post_init__(self) -> None:
        if self.part < 1 or self.threads < 1 or self.memory < 1 or self.tries < 1:
            raise InputError("part, threads, memory and tries are at least 1")
        if self.bandwidth is not None and self.bandwidth <= 0:
            raise InputError("a bandwidth is more than 0 bytes a second", hint="None is no limit")
