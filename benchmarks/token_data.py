"""The same tokens for all contenders of the benchmark of tokens: flat files, litdata's chunks, Mosaic's shards.

Tokens are GPT-2's kind, uint16, at random. Each format is written once, by its own project's writer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from data import index
from peers.mosaic import without_torchvision

BLOCK = 2049
FOLDERS = ("tokens", "tokens-litdata", "tokens-mds")
_FILES, _LARGEST = 4, 50257
_SHARD_BYTES = 64 << 20


def prepare(root: Path, tokens: int) -> None:
    """Make what is missing below ``root/bench``: `tokens` in all, and list it for the server."""
    bucket = root / "bench"
    for name, make in zip(FOLDERS, (_flat, _litdata, _mds), strict=True):
        folder, made = bucket / name, root / f"{name}.complete"
        if made.exists():
            continue
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        print(f"  writing {name} (once)", flush=True)
        make(folder, root, tokens)
        made.touch()
        (root / "complete-index").unlink(missing_ok=True)
    if not (root / "complete-index").exists():
        index(bucket, FOLDERS)
        (root / "complete-index").touch()


def flat(root: Path) -> list[npt.NDArray[np.uint16]]:
    """The flat files, mapped, in their order."""
    return [np.memmap(path, np.uint16, "r") for path in sorted((root / "bench" / "tokens").iterdir())]


def _flat(folder: Path, _root: Path, tokens: int) -> None:
    folder.mkdir()
    each = tokens // _FILES
    for number in range(_FILES):
        np.random.default_rng(number).integers(0, _LARGEST, each, np.uint16).tofile(folder / f"{number:05d}.bin")


def _blocks(root: Path) -> Iterator[npt.NDArray[np.uint16]]:
    for some in flat(root):
        for at in range(0, len(some) - BLOCK + 1, BLOCK):
            yield np.array(some[at : at + BLOCK])


def _litdata(folder: Path, root: Path, _tokens: int) -> None:
    from litdata.streaming.item_loader import TokensLoader
    from litdata.streaming.writer import BinaryWriter

    warnings.simplefilter("ignore")
    folder.mkdir()
    items = _SHARD_BYTES // (2 * BLOCK)
    writer = BinaryWriter(str(folder), chunk_size=items * BLOCK, item_loader=TokensLoader())
    for number, block in enumerate(_blocks(root)):
        writer[number] = block
    writer.done()
    writer.merge()
    for left in os.listdir(folder):
        if left.endswith(".tmp"):
            os.unlink(folder / left)


def _mds(folder: Path, root: Path, _tokens: int) -> None:
    """By Mosaic's own writer, in the interpreter that has it."""
    script = "import sys, token_data; token_data.write_mds(*map(token_data.Path, sys.argv[1:3]))"
    here = Path(__file__).resolve().parent
    python = here.parent / ".tools" / "peers" / "bin" / "python"
    environment = {**os.environ, "PYTHONPATH": str(here)}
    subprocess.run([python, "-c", script, folder, root], check=True, env=environment)


def write_mds(folder: Path, root: Path) -> None:
    """See `_mds`."""
    without_torchvision()
    from streaming import MDSWriter

    columns = {"tokens": f"ndarray:uint16:{BLOCK}"}
    with MDSWriter(out=str(folder), columns=columns, size_limit=_SHARD_BYTES) as writer:
        for block in _blocks(root):
            writer.write({"tokens": block})
