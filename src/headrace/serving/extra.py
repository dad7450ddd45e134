"""The libraries of the extra ``serving``, looked for before anything of this room that needs them is imported."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from headrace.base.errors import UnsupportedError

_LIBRARIES: Final = ("httptools", "msgspec", "onnx", "onnxruntime")


def needed() -> None:
    """Raises UnsupportedError: one is missing."""
    if missing := [name for name in _LIBRARIES if find_spec(name) is None]:
        raise UnsupportedError(f"serving needs {', '.join(missing)}", hint="pip install 'headrace[serving]'")
