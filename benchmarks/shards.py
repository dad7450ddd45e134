"""The benchmark of shards: ``python benchmarks/shards.py``. Contenders and method as in ``benchmarks/loader.py``.

Results go to ``benchmarks/results/shards/``.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import data
import memory
import packed
import report
from job import Job
from loader import CACHE, DATA, RESULTS, Bench, how_long, repeat
from rows import CACHE as CACHE_ENV
from rows import Contender, Requirement, Row, ours
from servers import StaticServer

_BATCH = {"large": 4, "tenk": 64}
_TOOLS = Path(__file__).resolve().parent.parent / ".tools"


class ShardBench(Bench):
    """Batches as large as the samples suggest."""

    def job(self, contender: Contender, row: Row, cache: Path) -> Job:
        python = str(_TOOLS / contender.tools / "bin" / "python") if contender.tools else ""
        return dataclasses.replace(super().job(contender, row, cache), batch=_BATCH.get(row.dataset, 64), python=python)


def _row(number: int, title: str, dataset: str) -> Row:
    ordered = {order: f"headrace, {order}" for order in ("sequential", "blocked", "global")}
    contenders = [
        *(ours(name, "headrace_shards", options={"order": order}, kept=True) for order, name in ordered.items()),
        Contender("webdataset, in process", "webdataset_shards"),
        Contender("webdataset, DataLoader, 2 workers", "webdataset_shards", options={"workers": 2}),
    ]
    of, inside, workers = ordered["blocked"], contenders[3].name, contenders[4].name
    requirements = [
        Requirement("≥ 4x webdataset in DataLoader workers", "ratio", 4.0, of, (workers,)),
        Requirement("≥ 2x webdataset in process", "ratio", 2.0, of, (inside,)),
    ]
    if dataset == "large":
        contenders.append(Contender("wrk (C) over single objects", "wrk"))
        requirements.append(Requirement("≥ 80 % of the C client's byte rate", "ratio", 0.8, of, (contenders[5].name,)))
    text, told = "global shuffle ≥ 60 % of the blocked rate", dataset != "large"
    requirements.append(Requirement(text, "ratio", 0.6, ordered["global"], (of,), reported=told))
    return Row(number, title, dataset, tuple(contenders), tuple(requirements))


def _index(number: int, size: str, dataset: str) -> Row:
    ours_, client, python = "headrace, index", "wrk (C) over the shards", "obstore, 4 threads, over the shards"
    return Row(
        number, f"Index of tar shards, samples of {size}", dataset,
        (
            ours(ours_, "shards_index"),
            Contender(client, "wrk", options={"shards": True, "threads": 2, "connections": 8}),
            Contender(python, "shards_read"),
        ),
        (
            Requirement("≥ 80 % of the store's sequential byte rate", "ratio", 0.8, ours_, (client,),
                        note="What the C client gets of whole shards, its bytes thrown away."),
            Requirement("the same by a client in Python", "ratio", 0.8, ours_, (python,), reported=True),
        ),
    )  # fmt: skip


def _tfrecords() -> tuple[Row, Row]:
    raw = {"folder": "tenk-tfrecord"}
    parsed = {"folder": "tenk-examples"}
    arrays = {**parsed, "example": True, "parts": ["data"]}
    disk, store, theirs = "headrace, local disk", "headrace, store", "tf.data.TFRecordDataset, local disk"
    python = ("tfrecord, in process", "tfrecord, DataLoader, 2 workers")
    first = Row(
        5, "TFRecord, raw records of 10 kB", "tenk",
        (
            ours(disk, "headrace_packed", options={**raw, "local": True}, kept=True),
            ours(f"{disk}, blocked", "headrace_packed", options={**raw, "local": True, "order": "blocked"}, kept=True),
            ours(store, "headrace_packed", options=raw, kept=True),
            ours(f"{store}, global", "headrace_packed", options={**raw, "order": "global"}, kept=True),
            Contender(theirs, "tfrecord_tf", options=raw, tools="frameworks"),
        ),
        (
            Requirement("≥ 2x tf.data.TFRecordDataset on local disk", "ratio", 2.0, disk, (theirs,)),
            Requirement("the same from the store", "ratio", 2.0, store, (theirs,), reported=True),
        ),
    )  # fmt: skip
    second = Row(
        6, "TFRecord, parsed Examples of 10 kB", "tenk",
        (
            ours(disk, "headrace_packed", options={**arrays, "local": True}, kept=True),
            ours(store, "headrace_packed", options=arrays, kept=True),
            Contender(python[0], "tfrecord_python", options=parsed, tools="peers"),
            Contender(python[1], "tfrecord_python", options={**parsed, "workers": 2}, patience=2, tools="peers"),
        ),
        (Requirement("≥ 3x Python's tfrecord", "ratio", 3.0, disk, python),),
    )  # fmt: skip
    return first, second


def _parquet() -> Row:
    deep = {"depth": {"batch_readahead": 64, "fragment_readahead": 8}}
    tables, disk = "headrace, Arrow tables, store", "headrace, Arrow tables, local disk"
    stored = ("pyarrow, store", "pyarrow, store, deeper read-ahead")
    local = ("pyarrow, local disk", "pyarrow, local disk, deeper read-ahead")
    return Row(
        7, "Parquet, 3 of 40 columns", "columns",
        (
            ours(tables, "headrace_parquet", options={"as": "tables"}, kept=True),
            ours("headrace, arrays, store", "headrace_parquet", options={"as": "arrays"}, kept=True),
            ours(disk, "headrace_parquet", options={"as": "tables", "local": True}, kept=True),
            Contender(stored[0], "parquet_scan"),
            Contender(stored[1], "parquet_scan", options=deep),
            Contender(local[0], "parquet_scan", options={"local": True}),
            Contender(local[1], "parquet_scan", options={**deep, "local": True}),
        ),
        (
            Requirement("≥ 90 % of pyarrow's dataset scan, from the store", "ratio", 0.9, tables, stored),
            Requirement("≥ 90 % of pyarrow's dataset scan, from the disk", "ratio", 0.9, disk, local),
        ),
        unit="rows",
    )  # fmt: skip


def _packed(number: int, dataset: str, size: str, *, second: bool) -> Row:
    which = "second" if second else "first"
    names = {kind: f"headrace over {kind}" for kind in ("MDS", "litdata", "tar")}
    folders = {"MDS": ("mds", "mds"), "litdata": ("litdata", "litdata"), "tar": ("shards", None)}

    def theirs(name: str, peer: str, **options: Any) -> tuple[Contender, ...]:
        common: Any = {"mode": "epoch", "prime": second, "tools": "peers"}
        return tuple(
            Contender(f"{name}, {how}", peer, options={"workers": workers, **options}, **common)
            for how, workers in (("in process", 0), ("DataLoader, 2 workers", 2))
        )

    def named(contenders: tuple[Contender, ...]) -> tuple[str, ...]:
        return tuple(one.name for one in contenders)

    mosaic = theirs("Mosaic StreamingDataset", "mosaic_packed")
    litdata = theirs("litdata", "litdata_packed", stack=True)
    loose = theirs("litdata, nothing stacked", "litdata_packed")
    mine = [
        ours(
            name,
            "headrace_packed",
            env=CACHE_ENV,
            options={"folder": f"{dataset}-{folders[kind][0]}", "format": folders[kind][1]},
            mode="epoch",
            prime=second,
        )
        for kind, name in names.items()
    ]
    return Row(
        number, f"Mosaic's and litdata's own formats, {size}, {which} epoch", dataset,
        (*mine, *mosaic, *litdata, *loose),
        (
            Requirement("≥ 1.5x Mosaic, its format", "ratio", 1.5, names["MDS"], named(mosaic)),
            Requirement(
                "≥ 1.5x litdata, its format", "ratio", 1.5, names["litdata"], named(litdata),
                note="Both stack a batch's arrays to one, which is what litdata's loader does unless told otherwise.",
            ),
            Requirement(
                "the same, nothing stacked by litdata", "ratio", 1.5, names["litdata"], named(loose), reported=True
            ),
        ),
    )  # fmt: skip


def _pack() -> Row:
    found = packed.pictures()
    told = {"expect": len(found), "bytes": sum(path.stat().st_size for path in found)}
    theirs = "webdataset's writer, s5cmd around it"
    title = f"Packing {len(found):,} PNGs ({told['bytes'] / 1e6:,.0f} MB) to tars of 100 MB, SeaweedFS to SeaweedFS"
    return Row(
        12, title, "pictures",
        (
            ours("headrace pack", "headrace_pack", server="real", options=told),
            Contender(theirs, "webdataset_pack", "real", options=told),
        ),
        (Requirement("≥ 2x webdataset's writer with s5cmd", "ratio", 2.0, "headrace pack", (theirs,)),),
        unit="pictures",
    )  # fmt: skip


_OTHER_FORMATS = frozenset(range(5, 12))
_PACKING = 12


def _rows(*, packing: bool) -> tuple[Row, ...]:
    """`packing`: also the row that needs wesnoth's pictures."""
    return (
        _row(1, "Tar shards, samples of 4.2 MB", "large"),
        _row(2, "Tar shards, samples of 10 kB", "tenk"),
        _index(3, "4.2 MB", "large"),
        _index(4, "10 kB", "many"),
        *_tfrecords(),
        _parquet(),
        _packed(8, "tenk", "10 kB", second=False),
        _packed(9, "tenk", "10 kB", second=True),
        _packed(10, "large", "4.2 MB", second=False),
        _packed(11, "large", "4.2 MB", second=True),
        *((_pack(),) if packing else ()),
    )


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", default="", help="which rows, comma-separated (default: all)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, interleaved (default: 3)")
    parser.add_argument("--window", type=float, default=4.0, help="seconds measured each time (default: 4)")
    parser.add_argument("--only", default="", help="only contenders whose name contains this; headrace stays")
    out = RESULTS / "shards"
    parser.add_argument("--out", type=Path, default=out, help="folder for the results (default: %(default)s)")
    options = parser.parse_args(given)
    wanted = {int(number) for number in options.rows.split(",") if number} or set(range(1, _PACKING + 1))
    table = _rows(packing=_PACKING in wanted)
    DATA.mkdir(exist_ok=True)
    root = DATA / "shards"
    data.prepare_shards(root)
    if wanted & _OTHER_FORMATS:
        packed.prepare(root)
    data.prepare_many(root)
    data.warm(root / "bench")
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    done: list[report.RowResult] = []
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        stack.callback(shutil.rmtree, CACHE, ignore_errors=True)
        static = stack.enter_context(StaticServer(root, scratch / "nginx"))
        real = stack.enter_context(packed.store(DATA / "seaweedfs-shards")) if _PACKING in wanted else None
        ballast = stack.enter_context(memory.ballast(DATA))
        bench: Any = ShardBench(root, static, real, 1.0, options.window, 120.0, ballast)
        for row in (one for one in table if one.number in wanted):
            contenders = [c for c in row.contenders if options.only in c.name or "headrace" in c.name]
            results = repeat(bench, row, contenders, options.repeat)
            done.append(report.RowResult.of(row, results, how_long(contenders, options.repeat, options.window)))
    print(report.write(options.out, done))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
