"""A decoder of plain Python on local files: each contender gives batches for ever, decoded by the same function.

`threads`, `processes`: headrace. `torch`: PyTorch's DataLoader over a map-style data set, two persistent workers, as
its documentation shows. `grain`: Grain's `mp_prefetch` with two workers. `litdata`: its StreamingDataLoader with two
workers, over the data set as its `optimize` wrote it. All have two processes for decoding, and their own read-ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

SHAPE = (128, 128, 3)
WORKERS = 2


class Decode:
    """So many turns of a loop that holds the GIL, then an array of `SHAPE`, 48 KiB."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def array(self, data: Any) -> np.ndarray[Any, Any]:
        for _ in range(self.turns):
            pass
        return np.resize(np.frombuffer(data, np.uint8), SHAPE)

    def __call__(self, sample: Any) -> Any:
        """As headrace calls it."""
        return {"image": self.array(sample["bin"])}


def paths_in(folder: str) -> list[str]:
    return sorted(map(str, Path(folder, "files").iterdir()))


def threads(folder: str, batch: int, turns: int) -> Iterator[Any]:
    from headrace import Dataset

    return iter(Dataset.open(f"{folder}/files").repeat().map(Decode(turns), threads=WORKERS).batch(batch).loader())


def processes(folder: str, batch: int, turns: int) -> Iterator[Any]:
    from headrace import Dataset

    return iter(Dataset.open(f"{folder}/files").repeat().map(Decode(turns), processes=WORKERS).batch(batch).loader())


class Files:
    """Map-style: by number."""

    def __init__(self, folder: str, decode: Decode) -> None:
        self.paths, self.decode = paths_in(folder), decode

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> Any:
        return {"image": self.decode.array(Path(self.paths[number]).read_bytes())}


def torch(folder: str, batch: int, turns: int) -> Iterator[Any]:
    from torch.utils.data import DataLoader

    files: Any = Files(folder, Decode(turns))
    loader = DataLoader(files, batch_size=batch, num_workers=WORKERS, persistent_workers=True, shuffle=True)
    while True:
        yield from loader


def grain(folder: str, batch: int, turns: int) -> Iterator[Any]:
    import grain

    source: Any = grain.MapDataset.source(Files(folder, Decode(turns))).shuffle(seed=7).repeat().batch(batch)
    options = grain.MultiprocessingOptions(num_workers=WORKERS)
    return iter(source.to_iter_dataset().mp_prefetch(options))


def litdata(folder: str, batch: int, turns: int) -> Iterator[Any]:
    from litdata import StreamingDataLoader, StreamingDataset

    decode = Decode(turns)

    class Decoded(StreamingDataset):
        def __getitem__(self, index: Any) -> Any:
            return {"image": decode.array(super().__getitem__(index)["bin"])}

    loader = StreamingDataLoader(
        Decoded(f"{folder}/litdata", shuffle=True), batch_size=batch, num_workers=WORKERS, persistent_workers=True
    )
    while True:
        yield from loader


def _read(path: str) -> Any:
    return {"bin": Path(path).read_bytes()}


def prepare(folder: str, count: int, size: int) -> None:
    """Files of random bytes, and the same as litdata has them, where that is installed."""
    made = Path(folder, "files")
    made.mkdir()
    rng = np.random.default_rng(1)
    for number in range(count):
        (made / f"{number:05d}.bin").write_bytes(rng.bytes(size))
    try:
        from litdata import optimize
    except ImportError:
        return
    optimize(_read, paths_in(folder), output_dir=f"{folder}/litdata", chunk_bytes="4MB", num_workers=1)


CONTENDERS: Mapping[str, Callable[[str, int, int], Iterator[Any]]] = {
    "headrace, processes=2": processes,
    "headrace, threads=2": threads,
    "PyTorch DataLoader, 2 workers": torch,
    "Grain mp_prefetch, 2 workers": grain,
    "litdata StreamingDataLoader, 2 workers": litdata,
}
