"""Records into values, where a format has types of its own: what `Dataset.open` puts before the user's stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from headrace.base.errors import HeadraceError, InputError
from headrace.catalog import KEY, OWN_KEY, RESERVED_FIELDS, GivesKeys, TakesColumns, key_of, keys_of
from headrace.formats.columns.typed_columns import Forms
from headrace.formats.shard_format import Decode


@dataclass(frozen=True)
class Records(TakesColumns, GivesKeys):
    """Decodes the only part of a sample, ``data``, or each of several parts. Pickles; any thread.

    `decoders`: one for each kind of shard; `kind_of`: which one by the shard's name, empty where there is only one.
    """

    decoders: tuple[Decode | Mapping[str, Decode], ...]
    kind_of: Mapping[str, int]

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """The sample with values for bytes; where ``data`` is a dict (a line of JSON, a record of columns), with its
        items, and its key where it has one of its own (`headrace.catalog.record_keys`).

        Of a window, lists: of an item that some records lack, with None in their places.

        Raises:
            CorruptError: a record is not what it should be; with its shard and key.
        """
        shard, key = sample["__shard__"], sample["__key__"]
        if not isinstance(shard, list):
            value = self._one(sample, shard, key)
            return {KEY: key_of(value.get(KEY), key), **_items(value), "__shard__": shard}
        parts = {name: value for name, value in sample.items() if name not in RESERVED_FIELDS}
        rows = zip(*parts.values(), strict=True)
        values = [
            self._one(dict(zip(parts, row, strict=True)), where, key)
            for row, where in zip(rows, cast("list[str]", shard), strict=True)
        ]
        names = dict.fromkeys(name for value in values for name in _items(value))
        found = {name: [value.get(name) for value in values] for name in names}
        return {KEY: key_of(values[0].get(KEY), key), **found, "__shard__": shard}

    def columns(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]] | None:
        """The same for several samples with the same parts: a list of values for each name. None where that cannot be:
        records of several names, or more kinds of shards than one. Raises as for one.
        """
        if len(self.decoders) > 1:
            return None
        values = self._columns({name: values for name, values in columns.items() if name not in RESERVED_FIELDS})
        if values is None:
            return None
        keys = columns[KEY] if KEY not in values else keys_of(values[KEY], columns[KEY])
        return {KEY: keys, **_items(values), "__shard__": columns["__shard__"]}

    @property
    def forms(self) -> Forms | None:
        """What columns are in batches, where the format says so for all records."""
        return getattr(self.decoders[0], "forms", None) if len(self.decoders) == 1 else None

    @property
    def keyed(self) -> bool:
        """Whether records have keys of their own, as their header, or their first lines, tell: what a decoder says by
        ``keyed``, or by the name of a part.
        """
        return any(
            OWN_KEY in one if isinstance(one, Mapping) else getattr(one, "keyed", False) for one in self.decoders
        )

    def may_name(self) -> bool:
        """See `GivesKeys.may_name`: also where no header tells (``may_be_keyed``)."""
        return self.keyed or any(getattr(one, "may_be_keyed", False) for one in self.decoders)

    def _columns(self, parts: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]] | None:
        decode = self.decoders[0]
        if isinstance(decode, Mapping):
            return {_field(name): [decode[name](one) for one in values] for name, values in parts.items()}
        data = parts["data"]
        at_once = getattr(decode, "all", None)
        if at_once is not None and (made := at_once(data)) is not None:
            return made if isinstance(made, dict) else {"data": made}
        values = list(map(decode, data))
        if not any(isinstance(one, dict) for one in values):
            return {"data": values}
        names = list(values[0])
        if not all(isinstance(one, dict) and list(one) == names for one in values):  # lines of JSON may be like that
            return None
        return {name: [one[name] for one in values] for name in names}

    def _one(self, parts: Mapping[str, Any], shard: str, key: str) -> dict[str, Any]:
        """All fields of a record, its own key among them."""
        decode = self.decoders[self.kind_of[shard] if self.kind_of else 0]
        try:
            if isinstance(decode, Mapping):
                return {_field(name): decode[name](data) for name, data in parts.items() if name not in RESERVED_FIELDS}
            value = decode(parts["data"])
            return cast("dict[str, Any]", value) if isinstance(value, dict) else {"data": value}
        except HeadraceError as error:
            raise error.at(f"{shard}: record {key}") from None


def _items(value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that become parts of a sample."""
    return {name: item for name, item in value.items() if name not in RESERVED_FIELDS}


def _field(part: str) -> str:
    """What the record itself calls a part."""
    return KEY if part == OWN_KEY else part


def records(
    decoder: Callable[[bytes], Decode | Mapping[str, Decode]], preambles: Sequence[tuple[str, bytes]]
) -> Records:
    """For shards given by name and preamble. Raises whatever `decoder` raises, with the shard's name."""
    kinds: dict[bytes, int] = {}
    decoders: list[Decode | Mapping[str, Decode]] = []
    for shard, preamble in preambles:
        if preamble not in kinds:
            kinds[preamble] = len(kinds)
            try:
                decoders.append(decoder(preamble))
            except HeadraceError as error:
                raise error.at(shard) from None
    several = len(kinds) > 1
    return Records(tuple(decoders), {shard: kinds[preamble] for shard, preamble in preambles} if several else {})


def typed(records: Records | None, types: Mapping[str, str], path: str) -> Records:
    """With these types for columns. Raises InputError: records of that format have types already, or one is none."""
    retyped = [getattr(one, "typed", None) for one in records.decoders] if records is not None else []
    if records is None or any(one is None for one in retyped):
        hint = "columns={…} is for JSON lines; of tables columns=[…] says which are read"
        raise InputError("its columns have types already", path=path, hint=hint)
    return replace(records, decoders=tuple(cast("Any", one)(types) for one in retyped))
