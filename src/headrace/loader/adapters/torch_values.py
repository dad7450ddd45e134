"""Values of a batch as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np


def convert(value: Any) -> Any:
    """Arrays → tensors sharing their memory; lists of arrays → lists of tensors; tensors of one shape → one tensor.

    Bytes, strings and arrays of kinds torch does not know stay as they are. A read-only array is copied, and
    one in the other byte order.
    """
    import torch

    if isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, Any]", value)
        if array.dtype.kind not in "biufc" or array.dtype.itemsize > (16 if array.dtype.kind == "c" else 8):
            return array
        if not array.dtype.isnative:  # FITS, HDF5, some npy files: torch has this machine's order only
            array = array.astype(array.dtype.newbyteorder("="))
        writable = array if array.flags.writeable else array.copy()
        return torch.from_numpy(np.ascontiguousarray(writable) if any(s < 0 for s in array.strides) else writable)
    if isinstance(value, np.generic):
        return torch.as_tensor(value.item())
    if isinstance(value, Mapping):
        return {name: convert(one) for name, one in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, tuple):
        return tuple(convert(one) for one in cast("tuple[Any, ...]", value))
    if isinstance(value, list):
        parts = [convert(one) for one in cast("list[Any]", value)]
        alike = parts and all(isinstance(one, torch.Tensor) and one.shape == parts[0].shape for one in parts)
        return torch.stack(parts) if alike else parts
    return value
