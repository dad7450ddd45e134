"""A PyTorch module as an ONNX model, which is checked against the module's own outputs before anybody gets it."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.base.errors import CorruptError, InputError, UnsupportedError
from headrace.base.places import temporary_folder
from headrace.models.loading.onnx_external import externalize, open_prepacked

if TYPE_CHECKING:
    from collections.abc import Generator

    import torch

MODEL: Final = "model.onnx"
_SAMPLES: Final = 2
"""Of a batch whose length is to be free: of one alone, torch.export takes it to be always one."""


class Exported(NamedTuple):
    """`model`, `data`: the files; `difference`: the largest between its outputs and the module's, absolute."""

    model: Path
    data: Path | None
    difference: float


def export_onnx(
    module: torch.nn.Module,
    example: Sequence[Any] | Mapping[str, Any],
    into: str | os.PathLike[str],
    *,
    batch: bool = True,
    dynamic_shapes: Any = None,
    rtol: float = 1e-3,
    atol: float = 1e-5,
) -> Exported:
    """Write `module` into the folder `into` as ``model.onnx``, its weights beside it (`onnx_external`).

    Export, and both runs that are compared, are in eval mode and without gradients, on the module's own device; ONNX
    Runtime runs on the CPU. The module is as before afterwards.

    Args:
        module: what `torch.onnx.export(dynamo=True)` takes: its forward has no control flow that depends on values.
        example: the arguments of one call: a sequence of them, or by name.
        into: a folder that is there.
        batch: the first axis of every tensor of `example` may have any length; it is named ``batch``. False: shapes are
            those of `example`.
        dynamic_shapes: which axes are free, as `torch.export.export` takes it, instead of `batch`.
        rtol: relative difference of outputs that is allowed.
        atol: absolute difference of outputs that is allowed beside.

    Raises:
        InputError: it cannot be exported; torch's own words. CorruptError: its outputs differ from the module's.
        UnsupportedError: torch, onnx, onnxscript or onnxruntime is not installed.
    """
    arguments, names = _example(example)
    if batch and dynamic_shapes is None:
        arguments, dynamic_shapes = _free_batch(arguments, names)
    with _still(module), tempfile.TemporaryDirectory(prefix="headrace-", dir=temporary_folder()) as work:
        written = Path(work) / MODEL
        expected = _flat(_call(module, arguments, names))
        _export(module, arguments, names, dynamic_shapes, written)
        found = externalize(written, into)
        difference = _compare(found.model, _feeds(arguments, names), expected, rtol, atol)
    return Exported(found.model, found.data, difference)


@contextmanager
def exported(module: Any, example: Sequence[Any] | Mapping[str, Any] | None) -> Generator[tuple[str, str]]:
    """The URL of a folder that holds a module as ONNX, for as long as the block lasts; and what says where it is from.

    Raises as `export_onnx`; InputError: it is no module, or there is no example.
    """
    if not callable(getattr(module, "state_dict", None)):
        raise InputError(f"{type(module).__name__} is neither a place of files nor a torch.nn.Module")
    if example is None:
        raise InputError("a module is exported with an example of its arguments", hint="publish(…, example=(x,))")
    with tempfile.TemporaryDirectory(prefix="headrace-", dir=temporary_folder()) as folder:
        export_onnx(module, example, folder)
        yield f"file://{folder}", f"python:{type(module).__module__}:{type(module).__qualname__}"


def named(text: str, what: str) -> Any:
    """What ``pkg.module:name`` names, called if it is a function (or a class): found as ``python -m`` finds it.

    Raises:
        InputError: there is no such thing.
    """
    module, _, inside = text.partition(":")
    if not module or not inside:
        raise InputError(f"{what}: {text!r} names nothing in a module", hint="write it like package.module:name")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), inside)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"{what}: there is no {text!r}: {error}", hint="is its folder the working directory?"
        ) from error
    return found() if isinstance(found, (FunctionType, type)) else found


def _example(example: Sequence[Any] | Mapping[str, Any]) -> tuple[list[Any], list[str] | None]:
    """Values, and their names where they have such."""
    values = list(example.values() if isinstance(example, Mapping) else example)
    if not values or isinstance(example, (str, bytes)) or hasattr(example, "data_ptr"):
        hint = "a tuple, (x,), or a dict, {'x': x}"
        raise InputError("the example is no sequence of arguments", hint=hint)
    return values, list(example) if isinstance(example, Mapping) else None


def _free_batch(arguments: list[Any], names: list[str] | None) -> tuple[list[Any], Any]:
    """The example with more than one sample, and that the first axes are free together."""
    import torch

    free = torch.export.Dim("batch")
    tensors = [one for one in arguments if isinstance(one, torch.Tensor) and one.dim()]
    lengths = {int(one.shape[0]) for one in tensors}
    if len(lengths) != 1 or not all(isinstance(one, torch.Tensor) for one in arguments):
        hint = "give batch=False, or say which axes are free by dynamic_shapes"
        raise InputError(f"the example's tensors have first axes of {sorted(lengths)}: which is the batch?", hint=hint)
    if lengths == {1}:
        arguments = [one.repeat(_SAMPLES, *[1] * (one.dim() - 1)) if one.dim() else one for one in arguments]
    shapes = [{0: free} if one.dim() else None for one in arguments]
    return arguments, tuple(shapes) if names is None else dict(zip(names, shapes, strict=True))


@contextmanager
def _still(module: torch.nn.Module) -> Generator[None]:
    """In eval mode, without gradients; as before afterwards."""
    import torch

    were = {one: one.training for one in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for one, training in were.items():
            one.training = training


def _call(module: Any, arguments: list[Any], names: list[str] | None) -> Any:
    try:
        return module(*arguments) if names is None else module(**dict(zip(names, arguments, strict=True)))
    except Exception as error:
        raise InputError(f"the module does not take the example: {type(error).__name__}: {error}") from error


def _export(module: Any, arguments: list[Any], names: list[str] | None, dynamic_shapes: Any, path: Path) -> None:
    import torch

    by_name: dict[str, Any] = dict(zip(names, arguments, strict=True)) if names is not None else {}
    by_place: tuple[Any, ...] = tuple(arguments) if names is None else ()
    try:
        program = torch.onnx.export(
            module, by_place, kwargs=by_name, dynamo=True, dynamic_shapes=dynamic_shapes, verbose=False
        )
        assert program is not None
        program.save(str(path), external_data=True)
    except ImportError as error:
        hint = "pip install headrace[models] onnxscript"
        raise UnsupportedError(f"a package that torch.onnx needs is not installed: {error}", hint=hint) from error
    except Exception as error:  # torch's exporter raises many kinds
        cause = error
        while isinstance(cause.__cause__, Exception):
            cause = cause.__cause__
        reason = f"{type(cause).__name__}: {str(cause).strip().partition(chr(10))[0]}"
        hint = "batch=False where shapes are fixed; torch.onnx.export(module, example, dynamo=True) tells more"
        raise InputError(f"cannot be exported to ONNX: {reason}", hint=hint) from error


def _feeds(arguments: list[Any], names: list[str] | None) -> list[tuple[str | None, npt.NDArray[Any]]]:
    """What the graph is given: the arguments that are tensors, with their names where they have such."""
    import torch

    named = zip(names or [None] * len(arguments), arguments, strict=True)
    return [(name, one.detach().cpu().numpy()) for name, one in named if isinstance(one, torch.Tensor)]


def _flat(outputs: Any) -> list[npt.NDArray[Any]]:
    """All tensors of what a module returns, in the order in which torch.export has them."""
    import torch
    from torch.utils import _pytree as pytree  # by which torch.export itself goes

    leaves = pytree.tree_leaves(outputs)
    return [one.detach().cpu().numpy() for one in leaves if isinstance(one, torch.Tensor)]


def _compare(
    model: Path,
    given: Sequence[tuple[str | None, npt.NDArray[Any]]],
    expected: list[npt.NDArray[Any]],
    rtol: float,
    atol: float,
) -> float:
    """The largest difference. Raises CorruptError: it is more than is allowed."""
    session = open_prepacked(model)
    inputs = [one.name for one in session.get_inputs()]
    if len(inputs) != len(given):
        reason = f"takes {len(inputs)} tensors as ONNX ({', '.join(inputs)}), the module {len(given)}"
        raise CorruptError(reason, path=str(model), hint="leave out of forward what has no part in the outputs")
    by_name = {name for name, _ in given} == set(inputs)
    feeds = {name if by_name and name else other: one for (name, one), other in zip(given, inputs, strict=True)}
    found = session.run(None, feeds)
    if len(found) != len(expected):
        raise CorruptError(f"has {len(found)} outputs as ONNX, the module {len(expected)}", path=str(model))
    largest = 0.0
    for output, one, other in zip(session.get_outputs(), found, expected, strict=True):
        one = np.asarray(one)
        if one.shape != other.shape or not np.allclose(one, other, rtol, atol, equal_nan=True):
            off = _difference(one, other) if one.shape == other.shape else f"{one.shape} instead of {other.shape}"
            hint = "rtol and atol say what is allowed; float16 and reductions differ most"
            raise CorruptError(f"output {output.name!r} differs from the module's: {off}", path=str(model), hint=hint)
        largest = max(largest, _difference(one, other))
    return largest


def _difference(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """The largest, absolute."""
    return float(np.nanmax(np.abs(one.astype("f8") - other.astype("f8")), initial=0.0))
