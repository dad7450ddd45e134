"""safetensors in the bucket, as `hr.safetensors`: load, open, save.

Without a cache for the store, bytes are received by parallel range reads straight into the memory of the tensors: no
file, no copy. With the node's cache, its file is filled by parallel reads and mapped; a file of this machine is mapped.
What is mapped is shared by all processes that load it, and copied where one of them changes it.

What is verified: the format (lengths, offsets, dtypes), the version (one ETag for all of it), and each whole tensor
whose checksum is recorded, in the file (`save` does that) or in `checksums`, when its bytes come from the store; of a
file that the cache had already, the cache's own checksums answer for its bytes, unless ``verify=True``. Slices have no
checksum.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.base.errors import InputError
from headrace.models.loading import checksums as sums
from headrace.models.loading.arrays import Framework, check_framework, made
from headrace.models.loading.contents import Content, contents
from headrace.models.loading.files import File, Weights, open_weights, unknown
from headrace.models.loading.opened import Opened, Slice
from headrace.models.loading.saving import save
from headrace.models.loading.selecting import Index, Wanted
from headrace.namespace import Namespace

__all__ = ["Opened", "Slice", "load", "open", "save"]
_AHEAD = 2
"""Runs of 64 MiB that wait in memory on their way to another device."""


def load(
    where: str | os.PathLike[str],
    *,
    device: Any = "cpu",
    framework: Framework = "torch",
    only: Iterable[str] | Callable[[str], bool] | None = None,
    slices: Mapping[str, Index] | None = None,
    verify: bool | None = None,
    checksums: Mapping[str, str] | None = None,
    namespace: Namespace | None = None,
) -> dict[str, Any]:
    """The tensors of a safetensors file, or of the shards of a model, by name in the order of the file.

    Tensors that were received together share memory, which is free when the last of them is. Any thread.

    Args:
        where: a path, URL or local file; an index (``….index.json``) or a folder with one: the shards it names.
        device: where torch tensors should be. On their way to another device, 192 MiB are held at most, or three times
            the largest tensor.
        framework: ``torch``; or ``numpy``, whose bfloat16 and float8 need the package ml_dtypes.
        only: names of the tensors wanted, or a function that is asked for each; None: all. Of the shards of an index,
            those that hold none of them are not asked for.
        slices: name → index, as NumPy's with slices of step 1, integers and an ellipsis: of these tensors only that is
            read. What lies together is read alone; columns are cut from whole rows where less than 512 KiB lie between.
        verify: True: compare all tensors with their recorded checksums; False: none; None: those read from the store.
        checksums: name → XXH3-64 of its bytes, 16 hexadecimal digits, beside those the file records itself.
        namespace: where paths lead; default: `Namespace.load()`.

    Raises:
        NotFoundError: no such file. CorruptError: it is no safetensors file, or a checksum does not match. InputError:
        no such tensor, or an index that does not fit. UnsupportedError: the framework has no such dtype. ChangedError:
        the object was replaced while it was read. As `Fetcher.get`. MemoryError.
    """
    check_framework(framework)
    _device(device, framework)  # refused before anything is asked for
    slices = slices or {}
    names = None if only is None or callable(only) else list(dict.fromkeys(only))
    weights = open_weights(namespace or Namespace.load(), where, names)
    kept = _names(weights, only if callable(only) else None, names)
    for name in slices:
        if name not in kept:
            raise unknown(name, kept, weights.path)
    return loaded(weights, kept, device=device, framework=framework, slices=slices, verify=verify, checksums=checksums)


def loaded(
    weights: Weights,
    names: Iterable[str] | None = None,
    *,
    device: Any = "cpu",
    framework: Framework = "torch",
    slices: Mapping[str, Index] | None = None,
    verify: bool | None = None,
    checksums: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Tensors of files that are open: of just the versions that were opened. `names`: which; None: all. As `load`."""
    target = _device(device, framework)
    kept = list(weights.places if names is None else names)
    wanted = _selection(weights, kept, slices or {})
    found: dict[str, Any] = {}
    expected = {file.source.path: sums.recorded(file.header.metadata, file.source.path) for file, _ in wanted}
    for one in contents(wanted, ahead=None if target is None else _AHEAD):
        name = one.wanted.tensor.name
        if verify or (verify is None and (one.file.view is None or one.file.fresh)):
            _verify(one, {**expected[one.file.source.path], **(checksums or {})}.get(name))
        tensor = made(framework, one.data, one.wanted.tensor.dtype, one.wanted.shape, one.file.source.path)
        found[name] = tensor if target is None else tensor.to(target)
    return {name: found[name] for name in kept}


def open(  # noqa: A001 - as safetensors names it
    where: str | os.PathLike[str], *, framework: Framework = "torch", namespace: Namespace | None = None
) -> Opened:
    """What a file, or the shards of a model, hold: names, shapes, dtypes, metadata; single tensors and slices of them.

    Only headers are read. As `safetensors.safe_open`: ``keys()``, ``metadata()``, ``get_tensor(name)``,
    ``get_slice(name)[10:20]``. Any thread.

    Raises:
        NotFoundError, CorruptError, as `load`.
    """
    check_framework(framework)
    return Opened(open_weights(namespace or Namespace.load(), where), framework)


def _device(device: Any, framework: str) -> Any:
    """None: this machine's memory, where everything is first."""
    if framework == "numpy":
        if str(device) != "cpu":
            raise InputError(f"NumPy has no device {device!r}", hint="framework='torch'")
        return None
    import torch

    found = torch.device(device)
    return None if found.type == "cpu" else found


def _names(weights: Weights, asked: Callable[[str], bool] | None, names: list[str] | None) -> list[str]:
    if names is None:
        return [name for name in weights.places if asked is None or asked(name)]
    return [weights.tensor(name).name for name in names]


def _selection(weights: Weights, names: Iterable[str], slices: Mapping[str, Index]) -> list[tuple[File, list[Wanted]]]:
    wanted: dict[int, list[Wanted]] = {}
    for name in names:
        number = weights.places[name]
        path = weights.files[number].source.path
        wanted.setdefault(number, []).append(Wanted.of(weights.tensor(name), slices.get(name), path))
    return [(weights.files[number], of) for number, of in sorted(wanted.items())]


def _verify(one: Content, expected: str | None) -> None:
    if one.wanted.whole:
        sums.verify(one.wanted.tensor.name, one.data, expected, one.file.source.path)
