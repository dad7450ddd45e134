"""Records into values, where a format has types of its own: what `Dataset.open` puts before the user's stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from headrace.base.errors import HeadraceError

_OURS = ("__key__", "__shard__")


@dataclass(frozen=True)
class Records:
    """Decodes the only part of a sample, ``data``. Pickles; any thread.

    `decoders`: one for each kind of shard; `kind_of`: which one by the shard's name, empty where there is only one.
    """

    decoders: tuple[Callable[[memoryview], Any], ...]
    kind_of: Mapping[str, int]

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """The sample with the record's value as ``data``; where that is a dict (a line of JSON or CSV), with its items.

        Of a window, lists: of an item that some records lack, with None in their places.

        Raises:
            CorruptError: a record is not what it should be; with its shard and key.
        """
        data, shard, key = sample["data"], sample["__shard__"], sample["__key__"]
        if not isinstance(data, list):
            value = self._one(data, shard, key)
            return {"__key__": key, **_items(value), "__shard__": shard}
        records = zip(cast("list[Any]", data), shard, strict=True)
        values = [_items(self._one(each, where, key)) for each, where in records]
        names = dict.fromkeys(name for value in values for name in value)
        found = {name: [value.get(name) for value in values] for name in names}
        return {"__key__": key, **found, "__shard__": shard}

    def _one(self, data: Any, shard: str, key: str) -> Any:
        try:
            return self.decoders[self.kind_of.get(shard, 0)](data)
        except HeadraceError as error:
            raise error.at(f"{shard}: record {key}") from None


def _items(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {name: item for name, item in cast("dict[str, Any]", value).items() if name not in _OURS}
    return {"data": value}


def records(decoder: Callable[[bytes], Callable[[memoryview], Any]], preambles: Sequence[tuple[str, bytes]]) -> Records:
    """For shards given by name and preamble. Raises whatever `decoder` raises, with the shard's name."""
    kinds: dict[bytes, int] = {}
    decoders: list[Callable[[memoryview], Any]] = []
    for shard, preamble in preambles:
        if preamble not in kinds:
            kinds[preamble] = len(kinds)
            try:
                decoders.append(decoder(preamble))
            except HeadraceError as error:
                raise error.at(shard) from None
    several = len(kinds) > 1
    return Records(tuple(decoders), {shard: kinds[preamble] for shard, preamble in preambles} if several else {})
