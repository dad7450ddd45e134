"""What is measured and what it must reach: the table of the project's mount issue, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mount_clients import EACH, Files
from mount_data import Shape
from mount_peers import BUDGET_BYTES

NATIVE, OURS = "native disk", "headrace"
PLAIN, NO_OPEN = "headrace, no passthrough", "headrace, no_open"
PEERS = ("rclone", "s3fs", "weed mount")
THROUGH_S3 = ("rclone", "s3fs")
ALL = (OURS, PLAIN, NO_OPEN)
AGAIN = {"before": 1, "rounds": 4}
"""Warm: epoch after epoch. The first one after the cold one is not measured, for anyone."""
Phase = Literal["data", "keys", "tree", "out", "tar", "rsync", "pip", "git"]
"""Rows of one phase share one mount and its cache; each phase begins cold."""
READS: tuple[Phase, ...] = ("data", "keys", "tree")
PROGRAMS: tuple[Phase, ...] = ("tar", "rsync", "pip", "git")
PHASES: tuple[Phase, ...] = (*READS, "out", *PROGRAMS)
"""All but `READS` write, each into a bucket of its own. `PROGRAMS`: one each, since not every peer bears every one."""


@dataclass(frozen=True)
class Requirement:
    """`ratio`: ours over the best of `others`, at least `limit`; `rate`: ours at least; `rss`: ours at most (bytes)."""

    text: str
    kind: Literal["ratio", "rate", "rss"]
    limit: float
    ours: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One line of the table: what is run, in which phase, for whom.

    `needs`: rows that must have run in the same mount before (they warm it); run unmeasured if they were not chosen.
    `native`: whether the limit is measured too (native disk has no cold state here).
    """

    number: int
    title: str
    unit: str
    phase: Phase
    work: str
    task: Mapping[str, Any]
    requirements: tuple[Requirement, ...]
    needs: tuple[int, ...] = ()
    native: bool = True
    variants: tuple[str, ...] = field(default=(OURS,))
    """Which forms of headrace it is measured for."""


def rows(shape: Shape, digests: Mapping[str, str], many: Files, some: Files, *, window_s: float) -> list[Row]:
    """All rows. `digests`: path to SHA-256 of the files that are compared after the cold reads. `many`, `some`: what
    the programs that write small files are given.
    """
    return [
        *_small(shape, digests, window_s), *_big(shape, digests, window_s), *_folders(shape), *_writes(shape),
        *_clients(many, some),
    ]  # fmt: skip


def _checks(digests: Mapping[str, str], kind: str) -> dict[str, str]:
    return {path: digest for path, digest in digests.items() if path.startswith(kind)}


def _small(shape: Shape, digests: Mapping[str, str], window_s: float) -> list[Row]:
    task: dict[str, Any] = {"paths": shape.small_paths, "threads": 4, "buffer": 1 << 17, "unit": "files"}
    what = f"{shape.small:,} files of 110 kB, 4 threads"
    return [
        Row(
            1, f"cold, {what}", "files", "data", "read", {**task, "check": _checks(digests, "small")},
            (
                Requirement("2x s3fs", "ratio", 2, OURS, ("s3fs",)),
                Requirement("2x rclone", "ratio", 2, OURS, ("rclone",)),
                Requirement("1.2x weed mount", "ratio", 1.2, OURS, ("weed mount",)),
            ),
            native=False, variants=ALL,
        ),
        Row(
            2, f"warm, {what}", "files", "data", "read", {**task, "check": {}, **AGAIN},
            (
                Requirement("60 % of native", "ratio", 0.6, OURS, (NATIVE,)),
                Requirement("60 % of native, mounted -o ro,no_open", "ratio", 0.6, NO_OPEN, (NATIVE,)),
                Requirement("4x the best peer", "ratio", 4, OURS, PEERS),
            ),
            needs=(1,), variants=ALL,
        ),
        Row(
            3, "warm, stat of the small files, 1 thread", "stats", "data", "stat",
            {"paths": shape.small_paths, "window_s": window_s},
            (Requirement("200,000 stat/s", "rate", 200_000, OURS),),
            needs=(1,),
        ),
        Row(
            4, "warm, epochs of ImageFolder, DataLoader of 2 workers", "images", "data", "images",
            {"root": "small", "rounds": 3},
            (
                Requirement("90 % of native", "ratio", 0.9, OURS, (NATIVE,)),
                Requirement("90 % of native, mounted -o ro,no_open", "ratio", 0.9, NO_OPEN, (NATIVE,)),
            ),
            needs=(1,), variants=ALL,
        ),
    ]  # fmt: skip


def _big(shape: Shape, digests: Mapping[str, str], window_s: float) -> list[Row]:
    task: dict[str, Any] = {"paths": shape.big_paths, "threads": 2, "buffer": 1 << 20, "unit": "MB"}
    random: dict[str, Any] = {"paths": shape.big_paths, "window_s": window_s, "size": shape.big_bytes - 200_000}
    what = f"{shape.big} files of {shape.big_bytes // 1_000_000} MB, 2 threads"
    return [
        Row(
            5, f"cold, {what}", "MB", "data", "read", {**task, "check": _checks(digests, "big")},
            (Requirement("2x the best peer", "ratio", 2, OURS, PEERS),),
            native=False, variants=ALL,
        ),
        Row(
            6, f"warm, {what}", "MB", "data", "read", {**task, "check": {}, **AGAIN},
            (
                Requirement("90 % of native", "ratio", 0.9, OURS, (NATIVE,)),
                Requirement("without passthrough 2x rclone", "ratio", 2, PLAIN, ("rclone",)),
            ),
            needs=(5,), variants=ALL,
        ),
        Row(
            7, "warm, an epoch of tf.data TFRecord, 2 files at once", "records", "data", "records", {"root": "big"},
            (Requirement("90 % of native", "ratio", 0.9, OURS, (NATIVE,)),),
            needs=(5,), variants=ALL,
        ),
        *(
            Row(
                number, f"warm, fio random read 4 kB, {jobs} thread{'s' if jobs > 1 else ''}", "reads", "data", "fio",
                {**random, "jobs": jobs, "invalidate": True},
                (Requirement("5x the best peer", "ratio", 5, OURS, PEERS),),
                needs=(5,), variants=ALL,
            )
            for number, jobs in ((8, 1), (9, 16))
        ),
        *(
            Row(
                number, f"the same, {jobs} thread{'s' if jobs > 1 else ''}, all pages in the kernel's memory", "reads",
                "data", "fio", {**random, "jobs": jobs, "invalidate": False}, (), needs=(5, 6), variants=ALL,
            )
            for number, jobs in ((15, 1), (16, 16))
        ),
    ]  # fmt: skip


def _folders(shape: Shape) -> list[Row]:
    entries = shape.folders * (shape.per_folder + 1) + 1
    best = (Requirement("3x the best peer", "ratio", 3, OURS, PEERS),)
    return [
        Row(
            10, f"cold, ls -l of {shape.keys:,} keys", "keys", "keys", "ls",
            {"root": "keys", "expect": shape.keys}, best, native=False,
        ),
        Row(
            11, f"cold, find over {shape.folders} folders ({entries:,} entries)", "entries", "tree", "find",
            {"root": "tree", "expect": entries}, best, native=False,
        ),
    ]  # fmt: skip


def _writes(shape: Shape) -> list[Row]:
    best = (Requirement("the best peer", "ratio", 1, OURS, PEERS),)
    until = "until in the store"
    return [
        Row(
            12, f"write one file of {shape.write_bytes / 1e9:g} GB, {until}", "MB", "out", "write",
            {"root": "one", "count": 1, "each": shape.write_bytes, "threads": 1}, best,
        ),
        Row(
            13, f"write {shape.write_files:,} files of 100 kB, 4 threads, {until}", "files", "out", "write",
            {"root": "many", "count": shape.write_files, "each": shape.write_each, "threads": 4}, best,
        ),
    ]  # fmt: skip


def _clients(many: Files, some: Files) -> list[Row]:
    """Programs that write many small files, one after another. weed goes past S3, and is shown beside."""
    best = (Requirement("the best peer through S3", "ratio", 1, OURS, THROUGH_S3),)
    of = f"{some.count:,} files of 4 KiB"
    given: tuple[tuple[int, str, Phase, Files, Path], ...] = (
        (17, f"tar x of {many.count:,} files of 4 KiB", "tar", many, many.tar),
        (18, f"rsync -a of {of}", "rsync", some, some.tree),
        (19, f"pip install --target of a wheel of {of}", "pip", some, some.wheels),
        (20, f"git clone of {of}", "git", some, some.repository),
    )
    return [
        Row(
            number, f"{title}, until in the store", "files", program, "client",
            {"root": program, "program": program, "source": str(source), "count": files.count, "each": EACH}, best,
        )
        for number, title, program, files, source in given
    ]  # fmt: skip


MEMORY = Requirement("at most budget + 150 MB", "rss", BUDGET_BYTES + 150_000_000, OURS)
"""Judged over all rows measured, at the worst repetition."""
