"""Bytes as tensors of a framework, without a copy, and back: which dtype of NumPy or torch a name of safetensors is."""

from __future__ import annotations

import importlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from headrace.base.errors import InputError, UnsupportedError

Framework: TypeAlias = Literal["torch", "numpy"]
_NUMPY: Final[Mapping[str, str]] = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "F16": "float16", "U32": "uint32",
    "I32": "int32", "F32": "float32", "U64": "uint64", "I64": "int64", "F64": "float64", "C64": "complex64",
}  # fmt: skip
_ML_DTYPES: Final[Mapping[str, str]] = {
    "BF16": "bfloat16", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip
_TORCH: Final[Mapping[str, str]] = {**_NUMPY, **_ML_DTYPES, "F4": "float4_e2m1fn_x2"}
_PAIRS: Final = "F4"
"""Two elements a byte: torch has them as one element of half as long a last axis."""


def check_framework(framework: str) -> None:
    """Refuse names that are none of `Framework`. Raises InputError."""
    if framework not in get_args(Framework):
        raise InputError(f"framework {framework!r} is unknown", hint="it is torch or numpy")


def numpy_dtype(name: str, path: str | None = None) -> np.dtype[Any]:
    """NumPy's dtype for a name of safetensors.

    Raises:
        UnsupportedError: NumPy has none; or the package ``ml_dtypes`` has it, and is not installed.
    """
    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    if name not in _ML_DTYPES:
        raise UnsupportedError(f"NumPy has no dtype {name}", path=path, hint="load it with framework='torch'")
    try:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), _ML_DTYPES[name]))
    except (ImportError, AttributeError) as error:
        hint = "pip install ml_dtypes, or load it with framework='torch'"
        raise UnsupportedError(f"NumPy has no dtype {name} of its own", path=path, hint=hint) from error


def as_array(data: memoryview, dtype: str, shape: tuple[int, ...], path: str | None = None) -> npt.NDArray[Any]:
    """An array over `data`, which it keeps alive; a copy where `data` does not begin at a multiple of its elements."""
    of = numpy_dtype(dtype, path)
    array = np.frombuffer(data, np.uint8)
    if array.size and array.ctypes.data % of.alignment:
        array = array.copy()
    return array.view(of).reshape(shape)


def as_tensor(data: memoryview, dtype: str, shape: tuple[int, ...], path: str | None = None) -> Any:
    """The same as a torch tensor with a storage of its own."""
    import torch

    of = getattr(torch, _TORCH.get(dtype, ""), None)
    if of is None:
        hint = "a newer torch may have it"
        raise UnsupportedError(f"torch {torch.__version__} has no dtype {dtype}", path=path, hint=hint)
    if dtype == _PAIRS:
        if not shape or shape[-1] % 2:
            raise UnsupportedError(f"torch has no tensor of dtype {dtype} and shape {list(shape)}", path=path)
        shape = (*shape[:-1], shape[-1] // 2)
    if not len(data):
        return torch.empty(shape, dtype=of)
    flat = torch.frombuffer(data, dtype=torch.uint8)
    if flat.data_ptr() % of.itemsize:
        flat = flat.clone()
    return flat.view(of).reshape(shape)


def made(framework: str, data: memoryview, dtype: str, shape: tuple[int, ...], path: str | None = None) -> Any:
    """A tensor of `framework` over writable `data`. Raises UnsupportedError: the framework has no such dtype."""
    return (as_tensor if framework == "torch" else as_array)(data, dtype, shape, path)


class Layout:
    """A tensor or array as a file holds it: row by row, little-endian. `size`: bytes. Any thread.

    Where it lies so in this machine's memory, `read` gives views. Else it is brought from its device as it is read; or
    copied whole (`Copies`).
    """

    def __init__(self, dtype: str, shape: tuple[int, ...], size: int, flat: Callable[[], Any]) -> None:
        self.dtype, self.shape, self.size = dtype, shape, size
        self._flat = flat

    def read(self, start: int, stop: int) -> memoryview:
        """Bytes [start, stop)."""
        piece = self._flat()[start:stop]
        return piece.data if isinstance(piece, np.ndarray) else piece.cpu().numpy().data


def laid_out(tensor: Any, copies: Copies) -> Layout:
    """How a file holds a tensor of torch, or anything that NumPy takes for an array. `copies`: where those are kept.

    Raises:
        UnsupportedError: safetensors has no such dtype.
    """
    return _of_torch(tensor, copies) if hasattr(tensor, "data_ptr") else _of_numpy(np.asarray(tensor), copies)


def _of_numpy(array: npt.NDArray[Any], copies: Copies) -> Layout:
    dtype = {one: name for name, one in (*_NUMPY.items(), *_ML_DTYPES.items())}.get(array.dtype.name)
    if dtype is None:
        raise UnsupportedError(f"safetensors has no dtype for NumPy's {array.dtype}", hint="convert it first")
    if array.dtype.isnative and array.flags.c_contiguous:
        flat = array.reshape(-1).view(np.uint8)
        return Layout(dtype, array.shape, array.nbytes, lambda: flat)
    return Layout(dtype, array.shape, array.nbytes, copies.of(lambda: _rows(array)))


def _rows(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(-1).view(np.uint8)


def _of_torch(tensor: Any, copies: Copies) -> Layout:
    import torch

    dtype = {getattr(torch, one): name for name, one in _TORCH.items() if hasattr(torch, one)}.get(tensor.dtype)
    if dtype is None or tensor.layout != torch.strided:
        kind = f"dtype {tensor.dtype}" if dtype is None else f"layout {tensor.layout}"
        raise UnsupportedError(f"safetensors has no {kind}", hint="convert it first")
    shape = tuple(tensor.shape)
    if dtype == _PAIRS and shape:
        shape = (*shape[:-1], shape[-1] * 2)
    tensor = tensor.detach()
    size = tensor.numel() * tensor.element_size()
    if not size:
        return Layout(dtype, shape, 0, lambda: np.empty(0, np.uint8))

    def flat() -> Any:
        whole = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
        whole = whole.as_strided(whole.shape, (1,)).view(torch.uint8)  # a single element may have any stride
        return whole.numpy() if whole.device.type == "cpu" else whole

    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        found = flat()
        return Layout(dtype, shape, size, lambda: found)
    return Layout(dtype, shape, size, copies.of(flat))


class Copies:
    """Copies of tensors that do not lie row by row, made when asked for; the latest few are kept. Any thread."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._latest: OrderedDict[int, Any] = OrderedDict()

    def of(self, make: Callable[[], Any]) -> Callable[[], Any]:
        """What gives the copy that `make` makes."""
        return lambda: self._get(id(make), make)

    def _get(self, token: int, make: Callable[[], Any]) -> Any:
        with self._lock:
            if token not in self._latest:
                while len(self._latest) >= self._keep:
                    self._latest.popitem(last=False)
                self._latest[token] = make()
            self._latest.move_to_end(token)
            return self._latest[token]
