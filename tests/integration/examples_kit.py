"""The scripts of examples/, as their users run them, on a folder of tiny pictures; what their models received."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import headrace as hr
from tests.frameworks_kit import ROOT

COUNT, BATCH, EPOCH = 96, 8, 12
"""Pictures, those of a batch, and batches of an epoch."""


class Crashed(Exception):
    """As a machine does, between two steps."""


def pictures(folder: Path) -> Path:
    """A folder for each of two classes. Picture n is of colour (n, n, n), or grey, in files of two kinds."""
    from PIL import Image

    for number in range(COUNT):
        path = folder / ("cat" if number % 2 else "dog") / f"{number:02d}.{'bmp' if number % 3 else 'png'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        mode, colour = ("RGB", (number,) * 3) if number % 5 else ("L", number)
        Image.new(mode, (12, 8), colour).save(path)
    return folder


def picture_orders(folder: Path, epochs: int) -> list[list[int]]:
    """The pictures of each epoch, as the examples shuffle them."""
    loader = hr.Dataset.open(folder, by="class").shuffle(seed=7).loader()
    return [[int(sample["__key__"][-2:]) for sample in loader] for _ in range(epochs)]


def example(name: str, **constants: Any) -> ModuleType:
    """Of examples/, loaded anew: as another process would."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for constant, value in constants.items():
        assert hasattr(module, constant)
        setattr(module, constant, value)
    return module


@contextmanager
def working_in(name: str) -> Iterator[None]:
    """As working directory: what an example saves there is its own."""
    before = Path.cwd()
    shutil.rmtree(name, ignore_errors=True)
    Path(name).mkdir()
    os.chdir(name)
    try:
        yield
    finally:
        os.chdir(before)


class Notes:
    """The pictures of each batch that a model got. It crashes before the batch that is one too many."""

    def __init__(self, crash: int | None = None) -> None:
        self.batches: list[list[int]] = []
        self._crash = crash

    def note(self, images: Any) -> None:
        """`images`: numbers of colours, one a picture."""
        if len(self.batches) == self._crash:
            raise Crashed
        self.batches.append([round(float(one)) for one in images])


def crashed_and_resumed(run: Callable[[Notes], Any], crash: int, saved: int) -> list[int]:
    """The pictures that a model learned from in two runs of one example: the first ends before step `crash` + 1, and
    has saved after step `saved`.
    """
    first, rest = Notes(crash), Notes()
    with suppress(Crashed):
        run(first)
    run(rest)
    assert len(first.batches) == crash
    return [row for batch in first.batches[:saved] + rest.batches for row in batch]


@contextmanager
def noted_by_torch(notes: Notes) -> Iterator[None]:
    """What goes into any model's first layer."""
    import torch

    def note(module: Any, given: Any) -> None:
        if isinstance(module, torch.nn.Conv2d) and module.in_channels == 3:
            notes.note(given[0][:, 0, 0, 0] * 255)

    hook = torch.nn.modules.module.register_module_forward_pre_hook(note)
    try:
        yield
    finally:
        hook.remove()
