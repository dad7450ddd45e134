"""What the tests of tar shards share: tars made by Python's tarfile, and what tarfile itself sees in one."""

from __future__ import annotations

import io
import re
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from headrace.base.errors import CorruptError
from headrace.formats.index.shard_rows import RowsWriter
from headrace.formats.shard_format import Alike, Member
from headrace.formats.tar.tar import Tar

Files = Iterable[tuple[str, bytes]]
Seen = list[tuple[str, str, bytes]]
"""Key, part and content of each member that belongs to a sample, in order."""


class MemoryBytes:
    """A shard in memory; remembers what was read of it. `window`: bytes that are at hand behind any place."""

    def __init__(self, data: bytes, window: int = 1 << 30) -> None:
        self.path = "memory://shards/s.tar"
        self.window = window
        self.data = data
        self.turn = nullcontext()
        self.size = len(data)
        self.bytes_read = self.most_at_once = 0

    def read(self, start: int, stop: int) -> memoryview:
        part = memoryview(self.data)[start:stop]
        self.bytes_read += len(part)
        self.most_at_once = max(self.most_at_once, len(part))
        return part

    def at_hand(self, start: int) -> memoryview:
        return memoryview(self.data)[start : start + self.window]


def tar_of(files: Files, form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def scanned(data: bytes, window: int = 1 << 30) -> list[Member]:
    return list(Tar().scan(MemoryBytes(data, window)))


def seen(data: bytes) -> Seen:
    return [(m.key, m.name, data[m.start : m.stop]) for m in scanned(data)]


def as_tarfile_sees(data: bytes) -> Seen:
    """Regular members as tarfile reads them, named by WebDataset's rule in a regular expression of its own."""
    found: Seen = []
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for entry in tar:
            name = re.sub(r"^(\./)+", "", entry.name)
            match = re.fullmatch(r"((?:[^\n]*/)?[^./][^./]*)\.([^/]+)", name, re.DOTALL)
            meta = name.startswith("__") and name.endswith("__")
            if entry.isreg() and match and not meta:
                body = tar.extractfile(entry)
                assert body is not None
                found.append((match[1], match[2].lower(), body.read()))
    return found


def write_shards(folder: Path, samples: Mapping[str, Mapping[str, bytes]], per_shard: int) -> None:
    """`samples` by key, `per_shard` to a tar, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = list(samples)
    for number, first in enumerate(range(0, len(keys), per_shard)):
        some = [
            (f"{key}.{name}", data) for key in keys[first : first + per_shard] for name, data in samples[key].items()
        ]
        (folder / f"set-{number:03d}.tar").write_bytes(tar_of(some))


def parts_of(sample: Any) -> dict[str, bytes]:
    """A delivered sample's parts, as bytes."""
    return {name: bytes(value) for name, value in sample.items() if not name.startswith("__")}


def indexed(members: Iterable[Member | Alike]) -> Any:
    """The rows that are made of these, or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        writer = RowsWriter(Path(folder), "memory://s")
        try:
            writer.add(members)
        except CorruptError as error:
            return error.reason
        return (Path(folder) / "rows").read_bytes(), (Path(folder) / "at").read_bytes(), writer.meta()
