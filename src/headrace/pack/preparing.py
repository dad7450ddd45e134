"""Between plan and work: the format of a source of text, the columns, and who fills the shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from headrace.base.errors import BadSampleError, InputError
from headrace.loader import Take
from headrace.namespace import Namespace
from headrace.pack.filling import Filler, Means, TextFiller, is_text
from headrace.pack.layouts import fields_of
from headrace.pack.objects import ObjectFiller, takes
from headrace.pack.options import PackOptions
from headrace.pack.parquet import WRITER
from headrace.pack.plan import Plan, where_of
from headrace.pack.schema import Schema
from headrace.pack.values import infer

_FIRST, _FIRST_BYTES = 256, 64 << 20  # samples, and bytes of them, by which types are told
_TEXT = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_LOOKED_AT = 1000  # names by which it is told what a source is


def source_format(source: str, options: PackOptions, namespace: Namespace) -> str | None:
    """With columns, files of text are read line by line: which format is told by the names in the source.

    Raises:
        InputError: both are there, or the source is a snapshot of which names tell nothing yet.
    """
    if options.columns is None:
        return None
    if not source.startswith("/") and "://" not in source:
        return None
    if namespace.stat(source).kind == "file":
        names = [source]
    else:
        names = [entry.path for entry in islice(namespace.walk(source), _LOOKED_AT)]
    found = {form for name in names for suffix, form in _TEXT.items() if name.lower().endswith(suffix)}
    if len(found) > 1:
        raise InputError("holds CSV and JSON lines", path=source, hint="--from csv, or --from jsonl")
    return next(iter(found), None)


def prepared(
    plan: Plan,
    options: PackOptions,
    means: Means,
    function: Callable[[Any], Any] | None,
    known: Schema | None = None,
) -> tuple[Plan, Schema | None, Filler | TextFiller | ObjectFiller]:
    """The plan with what the columns add to its terms, the columns, and who fills shards.

    `known`: the columns that were told from the first samples, here or in another process.

    Raises:
        InputError: (BadSampleError) columns that do not go with the source.
    """
    where = where_of(options, plan.dataset)
    schema = Schema.parse(options.columns) if options.columns else None
    if schema is not None and function is None and is_text(plan.dataset):
        filler = TextFiller(means, schema, where, plan.dataset)
        schema = schema.keyed() if filler.keyed else schema
        return _noted(plan, options, schema), schema, filler
    if function is None and options.layout == "webdataset" and (where is None or where.planned) and takes(plan.dataset):
        return _noted(plan, options, schema), schema, ObjectFiller(means)
    filler = Filler(means, function, where)
    if schema is not None:
        schema = schema.keyed()
    elif options.layout == "parquet":
        schema = known or _inferred(plan, filler)
    return _noted(plan, options, schema), schema, filler


def _noted(plan: Plan, options: PackOptions, schema: Schema | None) -> Plan:
    columns = None if schema is None else str(schema)
    writer = WRITER if options.layout == "parquet" else None
    return dataclasses.replace(plan, terms={**plan.terms, "columns": columns, "writer": writer})


def _inferred(plan: Plan, filler: Filler) -> Schema:
    """The columns of the first samples: 256 of them, or as many as make 64 MB."""
    dataset = plan.dataset
    positions = np.arange(min(_FIRST, plan.samples), dtype=np.int64)
    sizes = dataset.leaves[0].index.sizes(dataset.stream.locate(0, positions)[1])
    count = max(1, int(np.searchsorted(np.cumsum(sizes), _FIRST_BYTES)))
    first = dataclasses.replace(dataset, stream=Take(dataset.stream, min(count, len(positions))))
    samples: list[dict[str, Any]] = []
    for sample in filler.first(first):
        try:
            samples.append(fields_of(sample))
        except BadSampleError:  # it is met again when it is packed, and named then
            continue
    fields = infer(samples)
    if not fields:
        raise InputError("the columns cannot be told from the first samples", hint='say what they are: --columns "…"')
    return Schema(tuple(fields), inferred=True)
