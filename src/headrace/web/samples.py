"""Samples of snapshots, for pages: data sets that were opened, and the small pictures that were made."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from headrace.base.errors import NotFoundError
from headrace.base.settings import Settings
from headrace.dataset import Dataset
from headrace.dataset.showing import small_picture
from headrace.dataset.source import open_source
from headrace.namespace import Namespace

_SETS: Final = 8
_PICTURES: Final = 2000


class Samples:
    """Any thread. What is shown of a snapshot does not change, so it is kept as long as there is room."""

    def __init__(self, namespace: Namespace, settings: Settings) -> None:
        self._namespace, self._settings = namespace, settings
        self._lock = threading.Lock()
        self._sets: OrderedDict[str, Dataset] = OrderedDict()
        self._pictures: OrderedDict[tuple[str, int, str], bytes] = OrderedDict()

    def open(self, snapshot: str) -> Dataset:
        """The samples of ``name@version``. Raises as `Dataset.open`."""
        with self._lock:
            if snapshot not in self._sets:
                index = open_source(snapshot, by="stem", namespace=self._namespace, settings=self._settings)
                self._sets[snapshot] = Dataset.of(index, snapshot)
                while len(self._sets) > _SETS:
                    self._sets.popitem(last=False)
            self._sets.move_to_end(snapshot)
            return self._sets[snapshot]

    def at(self, snapshot: str, places: Sequence[int]) -> list[dict[str, Any]]:
        """Samples as the loader gives them, without any decoding. Raises IndexError, as the loader."""
        return self.open(snapshot).at(places, fetcher=self._namespace.fetcher)

    def picture(self, snapshot: str, place: int, part: str) -> bytes:
        """A part as a small JPEG, made here: no byte of the original is in it.

        Raises:
            NotFoundError: there is no such sample, or part. CorruptError: it is no picture, or one too large.
            UnsupportedError: Pillow is not installed. As the loader.
        """
        key = snapshot, place, part
        with self._lock:
            if (kept := self._pictures.get(key)) is not None:
                self._pictures.move_to_end(key)
                return kept
        try:
            sample = self.at(snapshot, [place])[0]
            data = sample[part]
        except (IndexError, KeyError):
            raise NotFoundError("there is no such part", path=f"{snapshot}/{place}/{part}") from None
        made = small_picture(data, f"{snapshot}/{place}/{part}")
        with self._lock:
            self._pictures[key] = made
            while len(self._pictures) > _PICTURES:
                self._pictures.popitem(last=False)
        return made
