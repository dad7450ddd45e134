"""What a packing notes beside its shards, so that it can go on after any end, and proves what it has made.

    <destination>/<name of a shard>            the shards
                  _pack/plan.json              written first, once: what the shards follow from
                  _pack/shards/<number>.json   written after its shard: this one is finished
                  _pack/skipped.json          samples left out, and why; absent where there are none
                  _pack/index.json             written last: all shards, and the sums

Every object appears whole or not at all. A shard is finished exactly if its record is there and the store shows the
shard in the version that the record names. Readers of shards leave alone what begins with ``_``, as Spark's do.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    CorruptError,
    HeadraceError,
    InputError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedError,
)
from headrace.loader import Skipped
from headrace.namespace import Namespace
from headrace.store.protocol import ObjectInfo, Store

FOLDER = "_pack/"
PLAN, INDEX, SKIPPED = FOLDER + "plan.json", FOLDER + "index.json", FOLDER + "skipped.json"
_RECORDS = FOLDER + "shards/"
_READERS = 16
"""Records read side by side: they wait for the store, not for a core."""
_WORDS = {
    "fingerprint": "the samples or their order",
    "shuffle": "--shuffle",
    "shard_size": "--shard-size",
    "map": "--map",
    "name": "--name",
    "by": "--by",
    "layout": "--format",
    "where": "--where",
    "columns": "--columns",
    "writer": "the version of pyarrow, which writes other bytes,",
}


@dataclass(frozen=True, slots=True)
class LeftOut(Skipped):
    """A sample left out; of a record also the source's shard and its number there."""

    shard: str | None = None
    record: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One finished shard."""

    number: int
    name: str
    samples: int
    members: int
    size: int
    """Bytes of the shard."""
    digest: str
    """XXH3, 128 bits, of the shard's bytes."""
    version: str | None
    """The ETag; on a local disk size and time; None where the store tells nothing of the kind."""
    skipped: tuple[Skipped, ...] = ()
    dropped: int = 0
    """Samples that ``--where`` did not keep when they were read."""

    @property
    def empty(self) -> bool:
        """Nothing is left of it, so there is no such object."""
        return not self.samples

    def describes(self, store: Store, info: ObjectInfo) -> bool:
        """Whether `info` is the object that this record was written for."""
        return info.size == self.size and version_of(store, info) == self.version


class Journal:
    """The notes of one packing, below `prefix` (empty, or ending in ``/``) of `store`. Any thread."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.store = store
        self.prefix = prefix
        self.url = f"{store.url}/{prefix}".rstrip("/")

    def begin(self, terms: Mapping[str, Any], source: str) -> None:
        """Note the plan, or find it noted.

        Raises:
            ChangedError: another plan is there. InputError: something else is. CorruptError: the plan cannot be read.
        """
        if self._agrees(terms):
            return
        page = next(iter(self.store.list(self.prefix)), ())
        if page and not self._agrees(terms):
            raise InputError(
                f"holds other objects already, such as {page[0].key[len(self.prefix) :]}",
                path=self.url,
                hint="choose an empty place for the shards",
            )
        text = _json({**terms, "source": source})
        try:
            self.store.put(self.prefix + PLAN, text, create=True)
        except UnsupportedError:
            self.store.put(self.prefix + PLAN, text)
        except AlreadyExistsError:
            self._agrees(terms)

    def _agrees(self, terms: Mapping[str, Any]) -> bool:
        """Whether the same plan is there; False: none is."""
        noted = self._read(PLAN)
        if noted is None:
            return False
        other = [name for name, value in terms.items() if noted.get(name) != value]
        if other:
            words = [_WORDS[name] for name in other if name in _WORDS] or ["the version of headrace"]
            raise ChangedError(
                f"shards of another packing are here: {', '.join(words)} differ",
                path=self.url,
                hint="choose another place, or delete what is here; a source that changes is best packed from a "
                "snapshot: name@version",
            )
        return True

    def finished(self) -> dict[int, Record]:
        """The finished shards by number; one listing, and a read for each."""
        found = self.listing()
        keys = [key for key in found if key.startswith(_RECORDS)]
        with ThreadPoolExecutor(_READERS, thread_name_prefix="headrace-pack-journal") as pool:
            records = pool.map(self._record, keys)
            return {
                record.number: record
                for record in records
                if record is not None
                and (record.empty or (record.name in found and record.describes(self.store, found[record.name])))
            }

    def finished_one(self, number: int) -> Record | None:
        """Shard `number`, if it is finished; two small requests."""
        record = self._record(f"{_RECORDS}{number:06d}.json")
        if record is None or record.empty:
            return record
        try:
            info = self.store.head(self.prefix + record.name)
        except NotFoundError:
            return None
        return record if record.describes(self.store, info) else None

    def listing(self) -> dict[str, ObjectInfo]:
        """What the store shows here now, by the name below the prefix."""
        pages = self.store.list(self.prefix)
        return {info.key[len(self.prefix) :]: info for page in pages for info in page}

    def note(self, record: Record) -> None:
        """`record`'s shard is finished."""
        self.store.put(f"{self.prefix}{_RECORDS}{record.number:06d}.json", _json(dataclasses.asdict(record)))

    def end(self, records: list[Record], terms: Mapping[str, Any]) -> None:
        """Note what was left out, then the sums."""
        skipped = [one for record in records for one in record.skipped]
        if skipped:
            rows = [_row(one) for one in skipped]
            self._replace(SKIPPED, _json(rows))
        index = {
            "format": terms["format"],
            "layout": terms["layout"],
            "samples": sum(record.samples for record in records),
            "skipped": len(skipped),
            "dropped": sum(record.dropped for record in records),
            "members": sum(record.members for record in records),
            "bytes": sum(record.size for record in records),
            "digest": "xxh3_128",
            "shards": [
                {
                    key: value
                    for key, value in dataclasses.asdict(record).items()
                    if key not in ("skipped", "dropped", "number")
                }
                for record in records
                if not record.empty
            ],
        }
        self._replace(INDEX, _json(index))

    def _replace(self, name: str, data: bytes) -> None:
        """Write, unless these bytes are there: who looks on sees no change where there is none."""
        try:
            if bytes(self.store.get(self.prefix + name).data) == data:
                return
        except NotFoundError:
            pass
        self.store.put(self.prefix + name, data)

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            data = self.store.get(self.prefix + name).data
        except NotFoundError:
            return None
        try:
            noted = json.loads(bytes(data))
        except ValueError as error:
            raise self._corrupt(name, str(error)) from error
        if not isinstance(noted, dict):
            raise self._corrupt(name, "not an object")
        return noted

    def _record(self, name: str) -> Record | None:
        """What is noted under `name`; None where it makes no sense: its shard is made again."""
        try:
            noted = self._read(name)
            if noted is None:
                return None
            skipped = tuple(LeftOut(**one) for one in noted.pop("skipped"))
            record = Record(**noted, skipped=skipped)
        except (HeadraceError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, HeadraceError) and not isinstance(error, CorruptError):
                raise
            return None
        return record if name == f"{_RECORDS}{record.number:06d}.json" else None

    def _corrupt(self, name: str, reason: str) -> CorruptError:
        hint = "delete all that is here, and pack again"
        return CorruptError(f"cannot be read: {reason}", path=f"{self.url}/{name}", hint=hint)


def journal_of(namespace: Namespace, destination: str) -> Journal:
    """The notes of a packing into `destination`. Raises ReadOnlyError: nobody may write there."""
    location = namespace.resolve(destination)
    if location.read_only:
        raise ReadOnlyError("is read-only", path=destination, hint="attach it again without read_only to write there")
    return Journal(location.store, location.key.strip("/") + "/" if location.key.strip("/") else "")


def version_of(store: Store, info: ObjectInfo) -> str | None:
    """What tells one write of an object from the next, where this store has it."""
    return info.version if info.etag is not None or store.local_root is not None else None


def _row(one: Skipped) -> dict[str, Any]:
    row: dict[str, Any] = {"key": one.key, "stage": one.stage, "reason": one.reason}
    if isinstance(one, LeftOut) and one.shard is not None:
        row |= {"shard": one.shard, "record": one.record}
    return row


def _json(value: Mapping[str, Any] | list[dict[str, Any]]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
