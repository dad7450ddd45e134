"""Samples of a tar that are all alike, put together by arrays: the members of one key, and their parts' names.

The rule is `headrace.dataset.shards.tar.split_name`. Only names of ASCII that need no cleaning are taken, of samples
that all have the same suffixes in the same order, as whoever writes shards leaves them. All else is put together member
by member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.dataset.shards.format import Alike
from headrace.dataset.shards.tar_run import Run

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
    names = np.ascontiguousarray(run.field)
    lengths = np.char.str_len(names.view(f"S{names.shape[1]}")[:, 0])
    width = int(lengths.max())
    names = names[:, :width]
    columns = np.arange(width)
    if ((names != 0) != (columns < lengths[:, None])).any() or int(names.max()) >= _ASCII:
        return None
    dots, slashes = names == _DOT, names == _SLASH
    # No name, hidden, ``./``, absolute, ``__…__``, ``..``: to be looked at one by one.
    first = names[:, 0]
    odd = (first == 0) | dots[:, 0] | slashes[:, 0] | (first == _UNDERSCORE)
    if odd.any() or (dots[:, 1:] & dots[:, :-1]).any():
        return None
    base = np.where(slashes.any(axis=1), width - slashes[:, ::-1].argmax(axis=1), 0)
    dots &= columns >= base[:, None]
    dot = dots.argmax(axis=1)
    if not dots.any(axis=1).all() or (dot <= base).any():
        return None
    keys = np.where(columns < dot[:, None], names, np.uint8(0))
    firsts = np.flatnonzero(np.append(True, (keys[1:] != keys[:-1]).any(axis=1)))
    if len(firsts) < 3:
        return None
    start, stop, parts = int(firsts[1]), int(firsts[-1]), int(firsts[2] - firsts[1])
    if (np.diff(firsts[1:]) != parts).any():
        return None
    suffixes = _suffixes(names[start:stop], dot[start:stop] + 1, int((lengths - dot).max()) - 1)
    if (suffixes.reshape(len(firsts) - 2, parts, suffixes.shape[1]) != suffixes[:parts]).any():
        return None
    layout = tuple(split(names[at, : lengths[at]].tobytes().decode())[1] for at in range(start, start + parts))
    if "" in layout:
        return None
    found: list[bytes] = np.ascontiguousarray(keys[firsts[1:-1]]).view(f"S{width}")[:, 0].tolist()
    bounds = np.stack([run.starts[start:stop], run.stops[start:stop]], axis=1).reshape(-1, 2 * parts)
    return Middle(start, stop, Alike(found, layout, bounds))


def _suffixes(names: npt.NDArray[np.uint8], begin: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.uint8]:
    """What stands from `begin` on in each, followed by zeros."""
    if (begin == begin[0]).all():  # keys of one length, as numbers with leading zeros are
        return names[:, begin[0] :]
    padded = np.pad(names, ((0, 0), (0, most)))
    return np.take_along_axis(padded, begin[:, None] + np.arange(most), axis=1)
