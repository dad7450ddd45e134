"""Samples of snapshots, for pages: data sets that were opened, what is said of samples, and small pictures of them."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from headrace.base.errors import CorruptError, NotFoundError
from headrace.base.settings import Settings
from headrace.catalog import (
    KEY,
    LATEST,
    Classes,
    Differing,
    Objects,
    ObjectSamples,
    Part,
    Snapshot,
    kept_diff,
    open_classes,
    open_snapshot,
    snapshot_objects,
    snapshot_place,
)
from headrace.formats import ShardSamples, open_source
from headrace.loader import LARGEST_SHOWN, Dataset, PartShown, dataset_of, open_column_classes, picture_of, shown_part
from headrace.namespace import Namespace
from headrace.web.behind import PATIENCE_S, Behind, Underway
from headrace.web.pictures import Pictures
from headrace.web.pieces import Piece, Stored, Valued, looked_at

_OPENED_S: Final = 30.0  # seconds that a page waits for what it can show nothing without
_BESIDE_S: Final = 0.2
"""How long a page waits for what it can be shown without."""
_SNAPSHOTS: Final = 256  # remembered: they never change
Shown: TypeAlias = "tuple[str, tuple[PartShown, ...]]"
"""A sample's key, and what is said of its parts."""


class Samples:
    """Any thread. What is shown of a snapshot does not change, so it is kept as long as there is room.

    What of a snapshot takes looking at all its objects is done behind the page: see `Underway`.
    """

    def __init__(self, namespace: Namespace, settings: Settings, behind: Behind, pictures: Pictures) -> None:
        self._namespace, self._settings = namespace, settings
        self._behind, self._pictures = behind, pictures
        self._lock = threading.Lock()
        self._snapshots: OrderedDict[str, Snapshot] = OrderedDict()

    def snapshot(self, name: str) -> Snapshot:
        """``name@version``, or the newest of a name. Raises as `open_snapshot`."""
        with self._lock:
            known = self._snapshots.get(name)
        if known is not None:
            return known
        found = open_snapshot(name, namespace=self._namespace, settings=self._settings)
        if name == found.id and found.version != LATEST:
            with self._lock:
                self._snapshots[name] = found
                while len(self._snapshots) > _SNAPSHOTS:
                    self._snapshots.popitem(last=False)
        return found

    def ask(self, name: str, *, wait_s: float = PATIENCE_S) -> Dataset | Underway:
        """The samples of ``name@version``. Raises as `Dataset.open`."""
        snapshot = self.snapshot(name)

        def work(progress: Any) -> Dataset:
            space, settings = self._namespace, self._settings
            index = open_source(snapshot.id, namespace=space, settings=settings, progress=progress)
            return Dataset.of(index, snapshot.id)

        what = f"The index of {snapshot.id} is being built on this node"
        return self._behind.ask(f"open {snapshot.id} {snapshot.digest}", what, work, wait_s=wait_s)

    def open(self, name: str) -> Dataset:
        """The same for who can do nothing without. Raises TryAgainError: its index is being built."""
        found = self.ask(name, wait_s=_OPENED_S)
        if isinstance(found, Underway):
            raise found.error()
        return found

    def made(self, recipe: Mapping[str, Any]) -> Dataset:
        """What a loader of a run said that it handed out.

        Raises as `headrace.loader.recipe.dataset_of`; TryAgainError: it is being opened.
        """
        what = "The data set is being opened on this node"
        key = f"recipe {json.dumps(recipe, sort_keys=True)}"
        return self._behind.get(
            key, what, lambda _: dataset_of(recipe, self._namespace, self._settings), wait_s=_OPENED_S
        )

    def classes(self, name: str, data: Dataset) -> Classes | Underway | None:
        """Its samples by class; None: keys tell no classes."""
        index = data.leaves[0].index

        def work(progress: Any) -> Classes | None:
            return open_classes(index, settings=self._settings, progress=progress)

        what = f"The classes of {name} are being counted"
        return self._behind.ask(f"classes {index.fingerprint}", what, work, wait_s=_BESIDE_S)

    def column_classes(self, name: str, data: Dataset, column: str) -> Classes | Underway | None:
        """Rows of its tables by the values of a column; None: there are too many different ones."""

        def work(progress: Any) -> Classes | None:
            space, settings = self._namespace, self._settings
            return open_column_classes(
                name, column, namespace=space, settings=settings, fetcher=space.fetcher, progress=progress
            )

        what = f"The values of {column} in {name} are being counted"
        return self._behind.ask(f"column {data.leaves[0].index.fingerprint} {column}", what, work, heavy=True)

    def differing(self, a: Snapshot, b: Snapshot) -> Differing | Underway:
        """What leads from `a` to `b`."""

        def work(progress: Any) -> Differing:
            return kept_diff(a, b, settings=self._settings, progress=progress)

        return self._behind.ask(f"diff {a.digest} {b.digest}", f"{a.id} and {b.id} are being compared", work)

    def at(self, name: str, places: Sequence[int]) -> list[dict[str, Any]]:
        """Samples as the loader gives them, without any decoding. Raises IndexError, as the loader."""
        return self.open(name).at(places, fetcher=self._namespace.fetcher)

    def shown(self, name: str, places: Sequence[int]) -> list[Shown]:
        """What is said of samples. Of single objects and tar shards no more is read than that takes: the beginnings of
        all parts, side by side; records and rows are read whole.
        """
        found = self._stored(name, places)
        if found is None:
            return [of_values(sample) for sample in self.at(name, places)]
        parts = iter(looked_at([piece for _, pieces in found for piece in pieces]))
        return [(key, tuple(next(parts) for _ in pieces)) for key, pieces in found]

    def piece(self, name: str, place: int, part: str) -> Piece:
        """One part of a sample. Raises NotFoundError: there is none; TryAgainError, as the loader."""
        where = f"{name}/{place}/{part}"
        try:
            found = self._stored(name, [place])
            if found is not None:
                return next(piece for piece in found[0][1] if piece.name == part)
            value = self.at(name, [place])[0][part]
        except (IndexError, KeyError, StopIteration):
            raise NotFoundError("there is no such part", path=where) from None
        return Valued(where, part, self.snapshot(name).digest, value)

    def objects(self, snapshot: Snapshot) -> Objects:
        """All objects of a snapshot. Raises TryAgainError: their index is being built; as `snapshot_objects`."""
        what = f"The index of {snapshot.id} is being built on this node"

        def work(progress: Any) -> Objects:
            return snapshot_objects(snapshot, self._settings, progress)

        return self._behind.get(f"objects {snapshot.digest}", what, work, wait_s=_OPENED_S)

    def object_pieces(self, snapshot: Snapshot, rows: Sequence[int]) -> list[Stored]:
        """Whole objects of a snapshot, by their rows. Raises NotFoundError: there is no such row."""
        objects = self.objects(snapshot)
        numbers = np.asarray(rows, np.int64)
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(objects)):
            raise NotFoundError("there is no such object", path=f"{snapshot.id}/object/{numbers.max()}")
        place = snapshot_place(snapshot, self._namespace)
        return [
            Stored.of(
                place.store, Part(key[stem + 1 :] or "data", place.prefix + key, size, version),
                f"{snapshot.id}/{key}", self._namespace.fetcher,
            )
            for key, stem, size, version in objects.read(numbers)
        ]  # fmt: skip

    def kept(self, piece: Piece) -> bool:
        """Whether there is a small picture of it already."""
        return self._pictures.get(piece.id) is not None

    def picture(self, piece: Piece) -> bytes:
        """A small JPEG of an image, an array or a sound, made here: no byte of the original is in it. One that was made
        before asks no store.

        Raises:
            CorruptError: it is no picture, or one too large. UnsupportedError: Pillow is not installed. As the loader.
        """
        dataset_of = self._pictures.get(piece.id)
        if dataset_of is None:
            if (piece.size or 0) > LARGEST_SHOWN:
                raise CorruptError(f"{piece.size:,} bytes are too many for a small picture", path=piece.where)
            data = piece.load()
            dataset_of = picture_of(shown_part(piece.name, data), data, piece.where)
            self._pictures.keep(piece.id, dataset_of)
        return dataset_of

    def _stored(self, name: str, places: Sequence[int]) -> list[tuple[str, list[Stored]]] | None:
        """Keys and parts; None: what is shown is not what is stored. Raises IndexError."""
        index = self.open(name).leaves[0].index
        whole = isinstance(index, ObjectSamples)
        if not whole and (type(index) is not ShardSamples or self.open(name).leaves[0].stages):
            return None
        rows = np.asarray(places, np.int64)
        fetcher, store = self._namespace.fetcher, index.store
        return [
            (key, [Stored.of(store, part, f"{name}/{place}/{part.name}", fetcher) for part in parts])
            for place, (key, parts, _) in zip(places, index.specs(rows), strict=True)
        ]


def of_values(sample: dict[str, Any]) -> Shown:
    """Of a sample as the loader gives it."""
    return str(sample[KEY]), tuple(shown_part(name, value) for name, value in sample.items() if name != KEY)
