"""An index kept in a store: written where shards are made or a snapshot is taken, adopted by who opens them.

    <place>/rows, at, first     the set's files, as `headrace.formats.index.shard_rows` puts them on the shelf
            meta.json           written last: which shards in which versions, the files' sizes and digests

``pack`` keeps it in `INDEX_BESIDE` below the shards. Who opens the set asks for ``meta.json`` once; if it names these
very shards, the files are fetched and no shard is read. Anything else means a scan, as if there were no index: other
shards or versions (a set copied elsewhere has other ETags), damage, another version of the format, no permission.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from headrace.base.errors import CorruptError, HeadraceError, NotFoundError
from headrace.base.metrics import Metrics
from headrace.catalog import IndexFolder
from headrace.fetch import Fetcher, Read
from headrace.formats.codecs.decompressed_stream import MOST_DECOMPRESSED
from headrace.formats.codecs.known_codecs import is_codec
from headrace.formats.index.index_job import Job
from headrace.namespace.home import url_of
from headrace.upload import Uploader

_LOG = logging.getLogger(__name__)
INDEX_BESIDE = "_pack/index/"
"""Where `pack` keeps the index, below the shards' folder."""
FORMAT = 1
_META = "meta.json"
_FILES = ("rows", "at", "first")
_PIECE = 16 << 20  # bytes asked for at a time
_MOST_META = 64 << 20  # bytes: a larger one is none of ours


def export_index(found: tuple[Path, Mapping[str, Any]], job: Job, kept: IndexFolder) -> None:
    """Write the index of ``job.shards`` to `kept`, unless it is there.

    `found`: the set's folder on the shelf and its meta data, as `formats.index.shard_index.find_set` gives them.
    Two writers at once write the same. Names of shards are kept below ``job.root``, so the set may be seen from another
    attachment; not from another store.

    Raises:
        Any store error; the index is then not adopted by anyone.
    """
    folder, meta = found
    own = {name: value for name, value in meta.items() if name not in ("files", "boot")}
    files = {name: [(folder / name).stat().st_size, _digest(folder / name)] for name in _FILES}
    noted = {"format": FORMAT, **_about(job), "files": files, "meta": own}
    text = (json.dumps(noted, ensure_ascii=False) + "\n").encode()
    if _is_there(kept, text, files):
        return
    with Uploader() as uploader:
        for name in _FILES:
            with (folder / name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                uploader.put_file(kept.store, kept.prefix + name, file.fileno(), size)
    kept.store.put(kept.prefix + _META, text)


def adopt(job: Job, folder: Path) -> dict[str, Any] | None:
    """Fetch the index of ``job.shards`` into `folder`, from the first of ``job.kept`` that has it.

    None where nobody has it, or what is there cannot be trusted; `folder` is then as empty as before. Raises nothing of
    the store's: a scan will meet the same error, and say it better.
    """
    for kept in job.kept:
        try:
            return _fetched(job, kept, folder)
        except NotFoundError:
            pass
        except HeadraceError as error:
            _LOG.info("the index kept in %s is not used: %s", url_of(kept.store, kept.prefix), error)
        for name in _FILES:
            with contextlib.suppress(FileNotFoundError):
                (folder / name).unlink()
    return None


def _fetched(job: Job, kept: IndexFolder, folder: Path) -> dict[str, Any]:
    """Raises CorruptError: damaged, or of other shards. Any store error."""
    fetcher = Fetcher(job.settings, None, Metrics())
    try:
        info = kept.store.head(kept.prefix + _META)
        if info.size > _MOST_META:
            raise CorruptError(f"a {_META} of {info.size:,} bytes")
        noted = _parsed(bytes(kept.store.get(info.key).data))
        about = _about(job)
        other = next((name for name, value in {"format": FORMAT, **about}.items() if noted.get(name) != value), None)
        if other is not None:
            raise CorruptError(f"it is of another {other}: {noted.get(other)!r}, not {about.get(other, FORMAT)!r}")
        files, meta = noted["files"], noted["meta"]
        job.progress.total(len(job.shards), sum(size for size, _ in files.values()))
        for name in _FILES:
            size, digest = files[name]
            _fetch(job, fetcher, kept, name, size, folder / name)
            if _digest(folder / name) != digest:
                raise CorruptError(f"{name} is damaged")
        _check(job, folder, meta)
        job.progress.advance(len(job.shards))
        return dict(meta)
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise CorruptError(f"cannot be used: {type(error).__name__}: {error}") from error
    finally:
        fetcher.close()


def _fetch(job: Job, fetcher: Fetcher, kept: IndexFolder, name: str, size: int, path: Path) -> None:
    with path.open("wb") as file:
        for start in range(0, size, _PIECE):
            stop = min(start + _PIECE, size)
            data = fetcher.get(Read(kept.store, kept.prefix + name, None, None, start, stop)).data
            if len(data) != stop - start:
                raise CorruptError(f"{name} is cut short")
            file.write(data)
            job.progress.advance(0, len(data))


def _check(job: Job, folder: Path, meta: Mapping[str, Any]) -> None:
    """That the files fit together, so that no row leads outside them. Raises CorruptError, ValueError, KeyError."""
    at = np.fromfile(folder / "at", "<i8")
    first = np.fromfile(folder / "first", "<i8")
    whole = (
        len(first) == len(job.shards) + 1
        and len(at) >= 1
        and at[0] == 0 == first[0]
        and first[-1] == len(at) - 1 == meta["samples"]
        and at[-1] == (folder / "rows").stat().st_size
        and bool((np.diff(at) >= 4).all())
        and bool((np.diff(first) >= 0).all())
        and all(isinstance(name, str) for layout in meta["layouts"] for name in layout)
    )
    kinds = [bytes.fromhex(one) for one in meta["preambles"]]
    numbers = meta["preamble_of"]
    packed = meta.get("packed", {})
    known = all(
        0 <= int(one) < len(job.shards) and is_codec(job.format.name, codec) and 0 <= size <= MOST_DECOMPRESSED
        for one, (codec, size) in packed.items()
    )
    if (
        not (whole and known)
        or len(numbers) != len(job.shards)
        or not all(0 <= number < len(kinds) for number in numbers)
    ):
        raise CorruptError("its files do not fit together")


def _about(job: Job) -> dict[str, Any]:
    """What an index must be of, to be adopted: the format, and the shards' names below the root, sizes and versions."""
    digest = xxhash.xxh3_128()
    for shard in [*job.shards, *(near for _, near in sorted((job.beside or {}).items()))]:
        name = shard.key.removeprefix(job.root)
        digest.update(f"{len(name)}\n{name}\n{shard.size}\n{shard.version}\n".encode())
    form = job.format
    return {"shards": form.name, "version": form.version, "count": len(job.shards), "set": digest.hexdigest()}


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        noted: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{_META} is no JSON: {error}") from error
    if not isinstance(noted, dict):
        raise CorruptError(f"{_META} is no object")
    return noted


def _is_there(kept: IndexFolder, text: bytes, files: Mapping[str, list[Any]]) -> bool:
    try:
        if bytes(kept.store.get(kept.prefix + _META).data) != text:
            return False
        return all(kept.store.head(kept.prefix + name).size == files[name][0] for name in _FILES)
    except NotFoundError:
        return False


def _digest(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
