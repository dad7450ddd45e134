"""Tar shards in WebDataset's convention: where their members lie, found by reading headers alone.

A member's path up to the first dot of its base name is the sample's key (folders kept, a leading ``./`` dropped), what
follows is the part's name, in lower case: ``a/17.seg.PNG`` is part ``seg.png`` of sample ``a/17``. As in WebDataset,
members that are no regular files, base names without a suffix or beginning with a dot, and ``__…__`` belong to no
sample; the log says how many there were. Names: POSIX ustar, GNU long names, PAX records ``path`` and ``size``.

Stricter than tar programs are: a shard must end with a block of zeros, with nothing behind it, or else a shard cut off
between two members, or two archives one after the other, would be samples missing in silence.

Sources: `headrace.formats.tar.tar_header`; github.com/webdataset/webdataset, ``tariterators.py`` (keys).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from headrace.base.errors import CorruptError
from headrace.formats.shard_format import Alike, AtHand, Member, ShardBytes
from headrace.formats.tar.tar_header import BLOCK, Header, parse_header, parse_records
from headrace.formats.tar.tar_header_run import Run, plain_run
from headrace.formats.tar.tar_samples import alike_in

_LOG = logging.getLogger(__name__)
_tuple = tuple.__new__  # a NamedTuple without the Python frame of its constructor
_ZEROS = bytes(BLOCK)
_LEAST = 8 * BLOCK
_FEW, _MOST_ALONE = 16, 1024
"""Members from which on reading headers together pays; and headers that are read alone, at most, after it did not."""
_REGULAR = (b"0", b"\0", b"7")
_BODILESS = (b"1", b"2", b"3", b"4", b"5", b"6")
_LONG_NAME, _LONG_LINK, _SPARSE = b"L", b"K", b"S"
_PAX, _PAX_SUN, _PAX_GLOBAL = b"x", b"X", b"g"
_MOST_EXTENSION = 1 << 20
"""Bytes of one long name or PAX header; real ones have some hundreds."""
_AFTER = 1 << 20
"""Bytes looked at behind the end: the padding of a last record (10 KiB, or what tar's -b says), or another archive."""
_CUT = "is it cut short? Copy it again, and open the dataset again"
_NAMES = "extract it and pack it again with relative names"


@dataclass(frozen=True)
class Tar:
    """A `headrace.formats.shard_format.Format`."""

    name: str = "tar"
    version: int = 1
    suffixes: tuple[str, ...] = (".tar",)

    def recognise(self, head: memoryview) -> bool:
        """See `Format.recognise`."""
        block = bytes(head[:BLOCK])
        try:
            return len(block) == BLOCK and (block == _ZEROS or bool(parse_header(block).kind))
        except ValueError:
            return False

    def scan(self, shard: ShardBytes) -> Iterator[Member]:
        """See `Format.scan`."""
        for found in self.groups(shard):
            if isinstance(found, Member):
                yield found
                continue
            for key, bounds in zip(found.keys.tolist(), found.bounds.tolist(), strict=True):
                for place, name in enumerate(found.names):
                    yield Member(key.decode(), name, bounds[2 * place], bounds[2 * place + 1])

    def groups(self, shard: ShardBytes) -> Iterator[Member | Alike]:
        """See `Grouped.groups`."""
        left_out = 0
        for found in _Walk(shard).files():
            if isinstance(found, Alike):
                yield found
                continue
            offset, path, start, stop = found
            key, suffix = _split(shard, offset, path) if isinstance(path, bytes) else split_name(path)
            if suffix:
                yield _tuple(Member, (key, suffix, start, stop))
            else:
                left_out += 1
        if left_out:
            _LOG.warning("%s: %d files have no suffix, or are hidden, and belong to no sample", shard.path, left_out)


def files_of(shard: ShardBytes) -> Iterator[tuple[str, int, int]]:
    """(name, start, stop) of every regular file, whatever it is called; headers are read as these are taken.

    `shard` is no `AtHand`. Raises as `Format.scan`.
    """
    for found in _Walk(shard).files():
        assert not isinstance(found, Alike)
        _, path, start, stop = found
        yield path.decode("utf-8", "replace") if isinstance(path, bytes) else path, start, stop


def _split(shard: ShardBytes, offset: int, path: bytes) -> tuple[str, str]:
    """(key, part's name) of a member's path; no name where it belongs to no sample."""
    try:
        text = path.decode()
    except UnicodeDecodeError:
        raise _corrupt(shard, offset, f"the name {ascii(path)[1:]} is not UTF-8", _NAMES) from None
    if text.startswith("/"):
        raise _corrupt(shard, offset, f"{text[:200]!r} is an absolute name", _NAMES)
    if ".." in text and ".." in text.split("/"):
        raise _corrupt(shard, offset, f"{text[:200]!r} leads out of the shard", _NAMES)
    return split_name(text)


def split_name(text: str) -> tuple[str, str]:
    """(key, part's name) of a member of this name, which must be relative; no part's name where it belongs to no
    sample.
    """
    while text.startswith("./"):
        text = text[2:]
    base = text.rfind("/") + 1
    dot = text.find(".", base)
    if dot <= base or (text.startswith("__") and text.endswith("__")):
        return text, ""
    return text[:dot], text[dot + 1 :].lower()


class _Walk:
    """One walk through the headers of one shard."""

    def __init__(self, shard: ShardBytes) -> None:
        self._shard = shard
        self._reach = shard if isinstance(shard, AtHand) else None
        self._offset = 0
        self._global: dict[str, bytes] = {}
        self._special = 0
        self._alone = self._patience = 0

    def files(self) -> Iterator[tuple[int, bytes | str, int, int] | Alike]:
        """(offset of its header, path, start, stop) of every regular file, or of many plain ones at once the samples.
        A path that is text has been looked at.
        """
        shard = self._shard
        records: dict[str, bytes] = {}
        while True:
            if not records and not self._global and (run := self._run()) is not None:
                yield from run
                continue
            header = self._next()
            if header is None:
                break
            at, body = self._offset, self._offset + BLOCK
            name, kind, size = header
            if kind in _REGULAR and not records and not self._global:
                pass
            elif kind in (_LONG_NAME, _LONG_LINK, _PAX, _PAX_SUN, _PAX_GLOBAL):
                self._extend(kind, self._body(at, size), records)
                continue
            else:
                name, size, plain = self._extended(name, size, {**self._global, **records})
                kind = kind if plain else _SPARSE
                records = {}
                if kind == _SPARSE:
                    body = self._behind_sparse_map(header, body)
            if kind in _BODILESS or (kind == b"\0" and name.endswith(b"/")):
                self._offset = body
                continue
            if body + size > shard.size:
                raise self._bad(f"{ascii(name)[1:]} should have {size:,} bytes, {shard.size - body:,} are there", _CUT)
            self._offset = body + size + -size % BLOCK
            if kind in _REGULAR:
                yield at, name, body, body + size
            else:
                self._special += 1
        if self._special:
            _LOG.warning("%s: %d sparse or special members are left out", shard.path, self._special)

    def _run(self) -> Iterator[tuple[int, str, int, int] | Alike] | None:
        """The plain members that come next, where many are at hand; not looked for again at once where few were."""
        if self._alone:
            self._alone -= 1
            return None
        reach = self._reach
        if reach is None or len(data := reach.at_hand(self._offset)) < _LEAST:
            return None
        with reach.turn:
            run = plain_run(data, self._offset, self._shard.size)
            few = run is None or len(run.starts) < _FEW
            middle = alike_in(run, split_name) if run is not None and not few else None
        unfit = run is None or (middle is None and run.names() is None)
        self._patience = min(max(2 * self._patience, _FEW), _MOST_ALONE) if few or unfit else 0
        self._alone = self._patience
        if run is None or unfit:
            return None
        self._offset = run.end
        if middle is None:
            return _one_by_one(run)
        first, last = run.part(0, middle.start), run.part(middle.stop, len(run.starts))
        return chain(_one_by_one(first), (middle.samples,), _one_by_one(last))

    def _next(self) -> Header | None:
        """The header here; None at the end of the archive."""
        block = bytes(self._shard.read(self._offset, self._offset + BLOCK))
        if len(block) < BLOCK:
            raise self._bad("ends without an end mark (a block of zeros)", _CUT)
        if not block[0] and block == _ZEROS:
            self._refuse_more()
            return None
        try:
            return parse_header(block)
        except ValueError as error:
            raise self._bad(str(error), "is it damaged? Copy it again") from None

    def _body(self, at: int, size: int) -> bytes:
        """An extension's bytes, and on to the header it speaks of."""
        if size > _MOST_EXTENSION:
            raise self._bad(f"an extended header of {size:,} bytes", "real ones have some hundreds")
        data = bytes(self._shard.read(at + BLOCK, at + BLOCK + size))
        if len(data) < size:
            raise self._bad("ends within an extended header", _CUT)
        self._offset = at + BLOCK + size + -size % BLOCK
        return data

    def _extend(self, kind: bytes, data: bytes, records: dict[str, bytes]) -> None:
        if kind == _LONG_NAME:
            records["path"] = data.partition(b"\0")[0]
        elif kind != _LONG_LINK:
            try:
                (self._global if kind == _PAX_GLOBAL else records).update(parse_records(data))
            except ValueError as error:
                raise self._bad(str(error), "is it damaged? Copy it again") from None

    def _extended(self, name: bytes, size: int, records: dict[str, bytes]) -> tuple[bytes, int, bool]:
        """Name and size as the records have them, and whether the body is the file, not a sparse one's pieces."""
        name = records.get("path", name)
        text = records.get("size")
        if text is not None:
            if not text.isdigit() or len(text) > 19:
                raise self._bad(f"the size {ascii(text)[1:41]} is no number", "is it damaged? Copy it again")
            size = int(text)
        return name, size, not any(key.startswith("GNU.sparse.") for key in records)

    def _behind_sparse_map(self, header: Header, body: int) -> int:
        """Where the body of an old GNU sparse member begins: its map may go on in further blocks."""
        if header.kind != _SPARSE:
            return body
        more = bytes(self._shard.read(body - BLOCK + 482, body - BLOCK + 483))
        while more != b"\0":
            block = self._shard.read(body, body + BLOCK)
            if len(block) < BLOCK:
                raise self._bad("ends within a sparse member's map", _CUT)
            more, body = bytes(block[504:505]), body + BLOCK
        return body

    def _refuse_more(self) -> None:
        end = self._offset + BLOCK
        rest = bytes(self._shard.read(end, min(end + _AFTER, self._shard.size)))
        if rest.strip(b"\0"):
            at = end + len(rest) - len(rest.lstrip(b"\0"))
            raise _corrupt(self._shard, at, "goes on behind its end", "two archives in one? Make them two objects")

    def _bad(self, reason: str, hint: str) -> CorruptError:
        return _corrupt(self._shard, self._offset, reason, hint)


def _one_by_one(run: Run) -> Iterator[tuple[int, str, int, int]]:
    """As `_Walk.files`, of members whose names are fit."""
    for name, start, stop in zip(run.names() or (), run.starts.tolist(), run.stops.tolist(), strict=True):
        yield start - BLOCK, name, start, stop


def _corrupt(shard: ShardBytes, offset: int, reason: str, hint: str) -> CorruptError:
    return CorruptError(f"at byte {offset:,}: {reason}", path=shard.path, hint=hint)
