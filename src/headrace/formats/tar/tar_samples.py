"""Samples of a tar that are all alike, put together by arrays: the members of one key, and their parts' names.

The rule is `headrace.formats.tar.tar.split_name`. Only names of ASCII that need no cleaning are taken, of samples
that all have the same suffixes in the same order, as whoever writes shards leaves them. All else is put together member
by member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.formats.shard_format import Alike
from headrace.formats.tar.tar_header_run import Run

_SLASH, _DOT, _UNDERSCORE, _ASCII = ord("/"), ord("."), ord("_"), 0x80


class Middle(NamedTuple):
    """Members [start, stop) of a run, as samples. Those before and after may belong to what lies around the run."""

    start: int
    stop: int
    samples: Alike


def alike_in(run: Run, split: Callable[[str], tuple[str, str]]) -> Middle | None:
    """The samples of a run but for the first and the last; None where they are not all alike.

    `split`: (key, part's name) of a member's path.
    """
    width = run.width
    names = np.ascontiguousarray(run.field[:, :width].T)  # a column each: NumPy is quick along many, slow along few
    columns = np.arange(width, dtype=np.uint8)[:, None]
    there = names != 0
    if (there[1:] > there[:-1]).any() or int(names.max()) >= _ASCII:
        return None
    dots, slashes = names == _DOT, names == _SLASH
    # No name, hidden, ``./``, absolute, ``__…__``, ``..``: to be looked at one by one.
    first = names[0]
    odd = (first == 0) | dots[0] | slashes[0] | (first == _UNDERSCORE)
    if odd.any() or (dots[1:] & dots[:-1]).any():
        return None
    base = (slashes * (columns + 1)).max(axis=0)
    from_end = ((dots & (columns >= base)) * (width - columns)).max(axis=0)
    dot = width - from_end
    if not from_end.all() or (dot <= base).any():
        return None
    keys = names * (columns < dot)
    firsts = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)))
    if len(firsts) < 3:
        return None
    start, stop, parts = int(firsts[1]), int(firsts[-1]), int(firsts[2] - firsts[1])
    if (firsts[2:] - firsts[1:-1] != parts).any():
        return None
    suffixes = _suffixes(names[:, start:stop], dot[start:stop] + 1)
    if (suffixes[:, parts:] != suffixes[:, :-parts]).any():
        return None
    one = (names[:, at].tobytes().rstrip(b"\0").decode() for at in range(start, start + parts))
    layout = tuple(split(name)[1] for name in one)
    if "" in layout:
        return None
    longest = int(dot.max())
    found = np.ascontiguousarray(keys[:longest, firsts[1:-1]].T).view(f"S{longest}")[:, 0]
    bounds = np.stack([run.starts[start:stop], run.stops[start:stop]], axis=1).reshape(-1, 2 * parts)
    return Middle(start, stop, Alike(found, layout, bounds))


def _suffixes(names: npt.NDArray[np.uint8], begin: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """What stands from `begin` [n] on in each of `names` [width, n], followed by zeros: a column each."""
    if (begin == begin[0]).all():  # keys of one length, as numbers with leading zeros are
        return names[int(begin[0]) :]
    rows = np.arange(len(names) - int(begin.min()))[:, None] + begin
    padded = np.pad(names, ((0, 1), (0, 0)))
    return np.take_along_axis(padded, np.minimum(rows, len(names)), axis=0)
