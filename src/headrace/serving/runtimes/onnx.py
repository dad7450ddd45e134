"""ONNX Runtime, in the server's own process: a model is data to it, not a program. Why here: design/025-serving.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import numpy as np
import onnxruntime  # pyright: ignore[reportMissingTypeStubs]

from headrace.base.errors import HeadraceError, InputError
from headrace.models.loading.onnx_external import open_mapped, open_prepacked
from headrace.serving.runtimes.runtime import DEFAULT
from headrace.serving.tensors import BYTES, Array, Signature, Tensor, kind_named

_OPTIONS: Final = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}
"""Waiting threads do not spin, since that takes processors from other requests."""


class Onnx:
    """A session. Any thread, several at once: ONNX Runtime's own promise."""

    platform = "onnxruntime_onnx"
    in_process = True

    def __init__(self, session: Any, *, batched: bool | None = None) -> None:
        """`session`: an ``onnxruntime.InferenceSession``; it becomes this object's."""
        self._session: Any = session
        self._outputs: list[str] = [one.name for one in session.get_outputs()]
        self._texts = {one.name for one in session.get_inputs() if kind_named(one.type) == BYTES}
        self.batched = batched
        self.signatures: Mapping[str, Signature] = {
            DEFAULT: Signature(tuple(map(_tensor, session.get_inputs())), tuple(map(_tensor, session.get_outputs())))
        }

    def run(self, signature: str, inputs: Mapping[str, Array], seconds: float | None = None) -> dict[str, Array]:  # noqa: ARG002
        """See `Runtime.run`."""
        if self._texts:
            inputs = {name: _decoded(name, one) if name in self._texts else one for name, one in inputs.items()}
        try:
            made = cast("list[Array]", self._session.run(self._outputs, inputs))
        except HeadraceError:
            raise
        except Exception as error:  # one class an error of ONNX Runtime's: what the values led to
            raise InputError(f"the model refuses these inputs: {_first_line(error)}") from None
        return dict(zip(self._outputs, made, strict=True))

    def close(self) -> None:
        """See `Runtime.close`."""
        self._session = None


def providers() -> list[str]:
    """Those of this machine, its GPUs' first."""
    there = onnxruntime.get_available_providers()
    wanted = ("CUDAExecutionProvider", "ROCMExecutionProvider", "CPUExecutionProvider")
    return [name for name in wanted if name in there]


def _tensor(told: Any) -> Tensor:
    shape = tuple(one if isinstance(one, int) and one >= 0 else -1 for one in told.shape or ())
    return Tensor(told.name, kind_named(told.type), shape)


def _decoded(name: str, array: Array) -> Array:
    """Strings as ONNX Runtime has them: text. Raises InputError."""
    try:
        flat = [one.decode() if isinstance(one, bytes) else one for one in array.ravel().tolist()]
    except UnicodeDecodeError:
        raise InputError(f"{name!r}: a string is no UTF-8, which ONNX Runtime wants") from None
    made = np.empty(len(flat), object)
    made[:] = flat
    return made.reshape(array.shape)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:400]


def open_onnx(path: str, *, threads: int, prepacked: bool) -> Onnx:
    """A session over a file. Not prepacked: weights that lie beside it are mapped, which takes milliseconds, and is
    slower at batches.

    Raises CorruptError: it does not load; the reason is ONNX Runtime's.
    """
    if prepacked:
        return Onnx(open_prepacked(path, options=_OPTIONS, threads=threads, providers=providers()))
    return Onnx(open_mapped(path, options=_OPTIONS, threads=threads))
