"""Many machines: a job as a gang on a Ray cluster, and data work by its nodes. See README.md.

Imported on first use (PEP 562), and Ray when something is asked of it: a worker that does pieces needs no jobs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.cluster.submit import Following, submit

__all__ = ["Following", "submit"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.submit")
    globals().update({one: getattr(module, one) for one in __all__})  # the module itself goes by a name of theirs
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
