"""Models behind HTTP: TensorFlow Serving's REST and the Open Inference Protocol. Needs the extra ``serving``.

See README.md in this folder. Everything is imported on first use (PEP 562), so that a runtime's process brings no more
than it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.serving.batching import Rules as Rules
    from headrace.serving.options import Options as Options
    from headrace.serving.options import Route as Route
    from headrace.serving.options import Way as Way
    from headrace.serving.server import Server as Server
    from headrace.serving.server import Supervisor as Supervisor

_FACE = {
    "Options": "options", "Route": "options", "Rules": "batching", "Server": "server", "Supervisor": "server",
    "Way": "options",
}  # fmt: skip
"""Name → the module of this room that has it."""
__all__ = ["Options", "Route", "Rules", "Server", "Supervisor", "Way"]


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module 'headrace.serving' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"headrace.serving.{_FACE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_FACE})
