"""Programs of ``torch.export`` (``.pt2``) and TorchScript (``.pt``), inside a runtime's process.

What they take and give is said by the model's card: the files do not name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from headrace.base.errors import InputError, UnsupportedError
from headrace.serving.runtimes.frames import Load
from headrace.serving.runtimes.inner import Inner, named
from headrace.serving.runtimes.runtime import DEFAULT
from headrace.serving.tensors import BYTES, Array

_SUFFIXES = {"torch-export": (".pt2",), "torchscript": (".pt", ".ts", ".pth", ".torchscript")}


def load_pytorch(load: Load) -> Inner:
    """Raises InputError: no such file, or no signature. What PyTorch raises."""
    if not load.signatures:
        raise InputError("model.json tells no signature", hint="publish the model with the inputs and outputs it has")
    signature = load.signatures.get(DEFAULT) or next(iter(load.signatures.values()))
    if any(one.kind == BYTES for one in (*signature.inputs, *signature.outputs)):
        raise UnsupportedError("PyTorch has no tensors of byte strings")
    torch.set_num_threads(max(1, load.threads))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    module = _module(load.format, _file(load), device)

    def run(_: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        given = [torch.as_tensor(inputs[one.name]).to(device) for one in signature.inputs]
        with torch.inference_mode():
            made = module(*given)
        return {name: _array(value) for name, value in named(signature, made).items()}

    platform = "pytorch_export" if load.format == "torch-export" else "pytorch_libtorch"
    return Inner({DEFAULT: signature}, platform, run)


def _file(load: Load) -> Path:
    told = load.hints.get("file")
    if told:
        return Path(load.folder, told)
    wanted = _SUFFIXES[load.format]
    found = sorted(one for one in Path(load.folder).rglob("*") if one.suffix in wanted)
    if len(found) != 1:
        names = ", ".join(one.name for one in found) or "none"
        raise InputError(f"one file {' or '.join(wanted)} is wanted; there: {names}")
    return found[0]


def _module(kind: str, file: Path, device: torch.device) -> Any:
    if kind == "torch-export":
        return torch.export.load(str(file)).module().to(device)
    return torch.jit.load(str(file), map_location=device).eval()


def _array(value: object) -> Array:
    if not isinstance(value, torch.Tensor):
        raise InputError(f"the model gave a {type(value).__name__}, which is no tensor")
    return value.detach().cpu().numpy()
