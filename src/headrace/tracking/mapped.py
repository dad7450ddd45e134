"""A rollup in short, as files of this node that are mapped: whoever reads it again reads no more than it needs.

``<first:08d>-<last:08d>-<size>.npy`` holds an array of `headrace.tracking.blocks.BLOCK`, ``….json`` the names.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

import numpy as np

from headrace.tracking.blocks import BLOCK, Blocks
from headrace.tracking.rollups import Rollup
from headrace.tracking.segments import publishing


def mapped(one: Rollup, folder: str) -> Blocks:
    """Its blocks, from the local `folder` if they were read before. Where nothing can be written: in memory.

    Raises as `Rollup.blocks`. Any thread, and any number of processes.
    """
    path = os.path.join(folder, f"{one.first:08d}-{one.last:08d}-{one.size}")
    with suppress(OSError, ValueError, EOFError):
        return _load(path)
    made = one.blocks()
    with suppress(OSError, ValueError, EOFError):
        os.makedirs(folder, exist_ok=True)
        with publishing(f"{path}.json") as file:
            file.write(json.dumps(made.names).encode())
        with publishing(f"{path}.npy") as file:
            np.save(file, made.array)
        return _load(path)
    return made


def _load(path: str) -> Blocks:
    """Raises OSError, ValueError, EOFError: it is not there, or is something else."""
    with open(f"{path}.json", encoding="utf-8") as file:
        names = json.load(file)
    array = np.load(f"{path}.npy", mmap_mode="r")
    if array.dtype != BLOCK or not isinstance(names, list) or array["code"].max(initial=-1) >= len(names):
        raise ValueError("another version wrote it, or one of the two is damaged")
    return Blocks(tuple(names), array)
