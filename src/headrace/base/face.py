"""A package's face whose names are imported when somebody first asks for them (PEP 562), so that importing it is quick.

All names of a module are set at once. A name should not be that of a module beside it: whoever imports that module sets
the name to the module.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def face(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package: ``__getattr__, __dir__ = face(__name__, {...})``.

    Args:
        package: its ``__name__``.
        modules: module below the package → the names that it gives to the face.

    Any thread may ask for a name.
    """
    where = {name: module for module, names in modules.items() for name in names}
    space = vars(sys.modules[package])

    def find(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{where[name]}")
        space.update({one: getattr(module, one) for one in modules[where[name]]})
        return space[name]

    def names() -> list[str]:
        return sorted({*space, *where})

    return find, names
