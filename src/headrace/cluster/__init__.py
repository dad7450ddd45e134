"""Many machines: a job as a gang on a Ray cluster, and data work by its nodes. See README.md.

Imported on first use (PEP 562), and Ray when something is asked of it: a worker that does pieces needs no jobs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.cluster.shells.here import RankShell, rank_shell
    from headrace.cluster.submit import Following, submit

__all__ = ["Following", "RankShell", "rank_shell", "submit"]
_FACE = {
    "headrace.cluster.shells.here": ("RankShell", "rank_shell"),
    "headrace.cluster.submit": ("Following", "submit"),
}


def __getattr__(name: str) -> Any:
    for where, names in _FACE.items():
        if name in names:
            module = importlib.import_module(where)
            globals().update({one: getattr(module, one) for one in names})  # a module goes by a name of theirs
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
