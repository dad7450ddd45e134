"""The bytes of the tensors that are wanted, one by one: views of a mapped file, or memory they are received in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from headrace.base.memory import copy
from headrace.base.memory import mapped as fresh_memory
from headrace.models.loading.files import File
from headrace.models.loading.objects import announce
from headrace.models.loading.runs import Run, contiguous, received
from headrace.models.loading.selecting import Wanted

_TOGETHER: Final = 64 << 20
"""Bytes of one run from which on the next tensor begins another: it is given back when its tensors are gone."""
_BETWEEN: Final = 128 << 10
"""Bytes that nobody wants and that are read all the same: less than another request costs."""
_NEARLY_ALL: Final = 0.9
"""The part of a file from which on all of it is brought into the cache, and mapped."""


class Content(NamedTuple):
    """What is wanted of one tensor, and its bytes: writable, this process's own."""

    file: File
    wanted: Wanted
    data: memoryview


class _Placed(NamedTuple):
    """Where something wanted lies in the memory of a run."""

    file: File
    wanted: Wanted
    at: int


def contents(selection: Sequence[tuple[File, Sequence[Wanted]]], *, ahead: int | None = None) -> Iterator[Content]:
    """The bytes of everything wanted, in the order of files and of bytes in them, as they come.

    `ahead`: of what is received in memory, so many times 64 MiB (or the largest tensor) are held before they are taken.
    Raises as `runs.received`.
    """
    runs: list[Run] = []
    mapped: list[tuple[File, Sequence[Wanted]]] = []
    for file, wanted in selection:
        if sum(one.size for one in wanted) >= _NEARLY_ALL * file.source.size:
            file = file.brought()
        if file.view is None:
            runs.extend(_runs(file, wanted))
        else:
            mapped.append((file, wanted))
    for file, wanted in mapped:
        yield from _of_view(file, wanted)
    if runs:
        for run, memory in received(runs[0].source.fetcher, runs, ahead=ahead):
            placed: Sequence[_Placed] = run.tag  # pyright: ignore[reportAssignmentType]
            for file, wanted, at in placed:
                yield Content(file, wanted, memory[at : at + wanted.size])


def _of_view(file: File, wanted: Sequence[Wanted]) -> Iterator[Content]:
    assert file.view is not None
    for one in wanted:
        if (span := one.together()) is not None:
            announce(file.view, *span)
    for one in wanted:
        span = one.together()
        if span is not None:
            yield Content(file, one, file.view[span[0] : span[1]])
            continue
        memory = fresh_memory(one.size).data
        for piece in one.pieces():
            data = file.view[piece.start : piece.stop]
            if piece.put is None:
                copy(memory[piece.at : piece.at + len(data)], data)
            else:
                piece.put(memory, data)
        yield Content(file, one, memory)


def _runs(file: File, wanted: Sequence[Wanted]) -> Iterator[Run]:
    """What lies together is received together, up to a size; what must be cut out of rows has memory of its own."""
    spans = [(one.together(), one) for one in wanted]
    together = sorted(((*span, one) for span, one in spans if span is not None), key=lambda each: each[:2])
    group: list[tuple[int, int, Wanted]] = []
    for each in together:
        if group and (each[0] - group[-1][1] > _BETWEEN or group[-1][1] - group[0][0] >= _TOGETHER):
            yield _run(file, group)
            group = []
        group.append(each)
    if group:
        yield _run(file, group)
    for span, one in spans:
        if span is None:
            yield Run(file.source, one.size, list(one.pieces()), [_Placed(file, one, 0)])


def _run(file: File, group: Sequence[tuple[int, int, Wanted]]) -> Run:
    start, stop = group[0][0], max(last for _, last, _ in group)
    tag = [_Placed(file, one, first - start) for first, _, one in group]
    return Run(file.source, stop - start, contiguous(start, stop), tag)
