"""Data sets for the demonstration: each sample is two objects, ``N.image`` and ``N.label``."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from headrace.base.errors import InputError
from headrace.cli.target import target

if TYPE_CHECKING:
    from headrace.namespace import Namespace

_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_TEST_EVERY = 5
"""Every fifth sample is held out."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """Names of classes, the size images are scaled to, and how many samples there are."""

    classes: tuple[str, ...]
    side: int
    channels: int
    samples: int


@dataclass(frozen=True, slots=True)
class Raw:
    """One sample to upload, as ``<split>/<name>.image`` and ``.label``; `name` begins with its class's folder."""

    split: str
    name: str
    image: bytes
    label: int


def digits() -> tuple[DataSet, Iterator[Raw]]:
    """scikit-learn's 1,797 handwritten digits, 8 × 8 pixels of 17 greys, as PNG."""
    from sklearn.datasets import load_digits

    bunch = cast("Any", load_digits())
    images, labels = bunch["images"], bunch["target"]
    classes = tuple(str(name) for name in bunch["target_names"])

    def samples() -> Iterator[Raw]:
        from PIL import Image

        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            buffer = io.BytesIO()
            Image.fromarray((image * 15).astype("uint8")).save(buffer, "PNG")
            yield Raw(_split(number), f"{classes[label]}/{number:04d}", buffer.getvalue(), int(label))

    return DataSet(classes, side=8, channels=1, samples=len(images)), samples()


def class_folders(namespace: Namespace, text: str) -> tuple[DataSet, Iterator[Raw]]:
    """Images in a tree of folders; the folder an image is in is its class.

    Raises:
        NotFoundError: no such place. InputError: fewer than two folders of images.
    """
    root = target(namespace, text)
    files = [entry for entry in namespace.files(root) if entry.name.lower().endswith(_IMAGES)]
    folders = [entry.path.rsplit("/", 2)[-2] for entry in files]
    classes = tuple(sorted(set(folders)))
    if len(classes) < 2:
        raise InputError(
            f"{len(files)} images in {len(classes)} folders: nothing to tell apart",
            path=text,
            hint="give a folder that holds a folder of images for each class",
        )
    number_of = {name: number for number, name in enumerate(classes)}

    def samples() -> Iterator[Raw]:
        for number, (entry, folder) in enumerate(zip(files, folders, strict=True)):
            data = bytes(namespace.read(entry.path))
            yield Raw(_split(number), f"{folder}/{number:07d}", data, number_of[folder])

    return DataSet(classes, side=32, channels=3, samples=len(files)), samples()


def _split(number: int) -> str:
    return "test" if number % _TEST_EVERY == 0 else "train"
