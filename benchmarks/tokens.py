"""The benchmark of token blocks: ``python benchmarks/tokens.py``. Method as in ``benchmarks/loader.py``.

Blocks of 2,049 tokens (uint16), in batches of 64, headrace over flat files, litdata and Mosaic over their own formats,
with the same tokens, which are counted in thousands. Results go to ``benchmarks/results/tokens/``.
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
import report
import token_data
from job import Job
from loader import CACHE, DATA, RESULTS, Bench, how_long, repeat
from rows import CACHE as CACHE_ENV
from rows import Contender, Requirement, Row, ours
from servers import StaticServer

_BATCH = 64
_QUICK = 4_000_000
_TOOLS = Path(__file__).resolve().parent.parent / ".tools"


class TokenBench(Bench):
    """Batches of a training step."""

    def job(self, contender: Contender, row: Row, cache: Path) -> Job:
        python = str(_TOOLS / contender.tools / "bin" / "python") if contender.tools else ""
        return dataclasses.replace(super().job(contender, row, cache), batch=_BATCH, python=python)


class NoBallast:
    """For a look whether all of it runs."""

    def fill(self) -> None:
        """Nothing."""


def _row(number: int, title: str, names: Sequence[tuple[str, dict[str, Any]]], **common: Any) -> Row:
    """`names`: headrace's, with their options; the first is held against the best of the others."""
    options = {**common.pop("options")}
    theirs = tuple(
        Contender(f"{name}, {how}", peer, options={**options, "workers": workers}, tools="peers", **common)
        for name, peer in (("litdata, TokensLoader", "litdata_tokens"), ("Mosaic StreamingDataset", "mosaic_tokens"))
        for how, workers in (("in process", 0), ("DataLoader, 2 workers", 2))
    )
    env = {"env": CACHE_ENV} if common.get("mode") == "epoch" else {"kept": True}
    mine = tuple(ours(name, "headrace_tokens", options={**options, **more}, **env, **common) for name, more in names)
    others = {name: tuple(one.name for one in theirs if one.name.startswith(name)) for name in ("litdata", "Mosaic")}
    requirements = tuple(
        Requirement(f"≥ 1.0x {name}", "ratio", 1.0, mine[0].name, which) for name, which in others.items()
    )
    return Row(number, title, "tokens", (*mine, *theirs), requirements, unit="thousand tokens")


def _rows() -> tuple[Row, ...]:
    plain = [("headrace", dict[str, Any]())]
    mixed = [("headrace", {"order": "global"}), ("headrace, blocked", {"order": "blocked"})]
    return (
        _row(1, "Token blocks, local disk, in order", plain, options={"local": True}),
        _row(2, "Token blocks, local disk, shuffled", mixed, options={"local": True, "order": "global"}),
        _row(3, "Token blocks, store, first epoch", plain, options={}, mode="epoch"),
        _row(4, "Token blocks, store, second epoch", plain, options={}, mode="epoch", prime=True),
        _row(5, "Token blocks, store, second epoch, shuffled", mixed, options={"order": "global"}, mode="epoch",
             prime=True),
    )  # fmt: skip


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", default="", help="which rows, comma-separated (default: all)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, interleaved (default: 3)")
    parser.add_argument("--window", type=float, default=4.0, help="seconds measured each time (default: 4)")
    parser.add_argument("--only", default="", help="only contenders whose name contains this; headrace stays")
    parser.add_argument("--tokens", type=int, default=200_000_000, help="in all (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one short run of few tokens, into benchmarks/data/")
    parser.add_argument("--out", type=Path, help="folder for the results (default: benchmarks/results/tokens)")
    options = parser.parse_args(given)
    tokens, times, window = options.tokens, options.repeat, options.window
    if options.quick:
        tokens, times, window = _QUICK, 1, 1.0
    wanted = {int(number) for number in options.rows.split(",") if number}
    out = options.out or (DATA / "quick-tokens" if options.quick else RESULTS / "tokens")
    DATA.mkdir(exist_ok=True)
    root = DATA / f"tokens-{tokens}"
    token_data.prepare(root, tokens)
    data.warm(root / "bench")
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    done: list[report.RowResult] = []
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        stack.callback(shutil.rmtree, CACHE, ignore_errors=True)
        static = stack.enter_context(StaticServer(root, scratch / "nginx"))
        ballast: Any = NoBallast() if options.quick else stack.enter_context(memory.ballast(DATA))
        bench = TokenBench(root, static, None, 0.3 if options.quick else 1.0, window, 120.0, ballast)
        for row in (one for one in _rows() if not wanted or one.number in wanted):
            print(f"{row.number}. {row.title}", flush=True)
            contenders = [c for c in row.contenders if options.only in c.name or "headrace" in c.name]
            results = repeat(bench, row, contenders, times)
            done.append(report.RowResult.of(row, results, how_long(contenders, times, window)))
    print(report.write(out, done))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
