"""Which format files are in, told by their names and, of PyTorch's archives, by their tables of contents.

What servers look for by name is what a lone file is called in a version: TensorFlow Serving loads
``<number>/saved_model.pb``, Triton's ONNX Runtime ``<number>/model.onnx``, its PyTorch ``<number>/model.pt``, which is
TorchScript.

Sources: tensorflow/serving ``docs/serving_config.md``; Triton's ``docs/user_guide/model_repository.md``.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Final

from headrace.base.errors import HeadraceError, InputError
from headrace.models.card import FORMATS

Open = Callable[[str], "IO[bytes]"]
"""Opens one of the files by its name: seekable, so that the end of a large one is read without the rest."""
_SAVED: Final = ("saved_model.pb", "saved_model.pbtxt")
_ORBAX: Final = ("_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt")
_ARCHIVES: Final = (".pt", ".pth", ".bin", ".ckpt")
_LONE: Final = {"onnx": "model.onnx", "torch-export": "model.pt2", "torchscript": "model.pt"}


@dataclass(frozen=True, slots=True)
class Detected:
    """`entry`: the file that a runtime opens first, None for the folder as a whole; `called`: what it is called in the
    version, where that is not its own name.
    """

    format: str
    entry: str | None = None
    called: str | None = None


def detect(names: Sequence[str], read: Open, wanted: str | None = None) -> Detected:
    """The format of files with these names, below one folder. `wanted`: it is known to be this one.

    Raises:
        InputError: `wanted` is no format. Any store error.
    """
    if wanted is not None and wanted not in FORMATS:
        raise InputError(f"{wanted!r} is no format of a model", hint=f"one of {', '.join(FORMATS)}")
    found = _by_names(names) or _by_content(names, read) or Detected("files", names[0] if len(names) == 1 else None)
    if wanted not in (None, found.format):
        entry = found.entry if found.entry is not None else names[0] if len(names) == 1 else None
        return Detected(wanted or "files", entry)
    called = _LONE.get(found.format)
    if called is None or found.entry == called or called in names or "/" in (found.entry or "/"):
        return found
    return Detected(found.format, found.entry, called)


def _by_names(names: Sequence[str]) -> Detected | None:
    top = [one for one in names if "/" not in one]
    saved = [one for one in names if one.rpartition("/")[2] in _SAVED]
    if len(saved) == 1:
        return Detected("saved_model", saved[0])
    for format_, suffix in (("onnx", ".onnx"), ("torch-export", ".pt2")):
        some = [one for one in top if one.endswith(suffix)]
        entry = some[0] if len(some) == 1 else _LONE[format_]
        if entry in some:
            return Detected(format_, entry)
    tensors = [one for one in top if one.endswith(".safetensors")]
    if tensors:
        return Detected("safetensors", tensors[0] if len(tensors) == 1 else None)
    if any(one.rpartition("/")[2] in _ORBAX for one in names):
        return Detected("orbax")
    return None


def _by_content(names: Sequence[str], read: Open) -> Detected | None:
    some = [one for one in names if "/" not in one and one.endswith(_ARCHIVES)]
    if len(some) != 1:
        return None
    members = _members(some[0], read)
    if any(one.endswith("/constants.pkl") for one in members):
        return Detected("torchscript", some[0])
    if any(one.endswith(("serialized_exported_program.json", "/archive_format")) for one in members):
        return Detected("torch-export", some[0])
    if any(one.endswith("/data.pkl") for one in members):
        return Detected("state_dict", some[0])
    return None


def _members(name: str, read: Open) -> list[str]:
    """Of a zip archive; none: it is none."""
    try:
        with read(name) as file, zipfile.ZipFile(file) as archive:
            return [f"/{one}" for one in archive.namelist()]
    except (zipfile.BadZipFile, HeadraceError):
        return []
