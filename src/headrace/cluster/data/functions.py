"""A function of the user's, sent to nodes that do not have its module: modules of the working folder come along."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from headrace.base.errors import InputError
from headrace.cluster.connection import ray_module


def as_bytes(function: Callable[[Any], Any], name: str) -> bytes:
    """A function, with what it takes of the modules that lie below the working folder; others are imported by who
    receives it. `name`: for people. Raises InputError: it cannot be sent.
    """
    cloud: Any = ray_module().cloudpickle
    own = _own_modules()
    for module in own:
        cloud.register_pickle_by_value(module)
    try:
        return cloud.dumps(function)
    except Exception as error:  # whatever what it refers to raises
        raise InputError(
            f"cannot be sent to the nodes: {type(error).__name__}: {error}",
            path=name,
            hint="open files, locks and connections inside the function, or install its module on the nodes",
        ) from error
    finally:
        for module in own:
            cloud.unregister_pickle_by_value(module)


def from_bytes(data: bytes, name: str) -> Callable[[Any], Any]:
    """What `as_bytes` was given. Raises InputError: something it imports is not here."""
    try:
        return pickle.loads(data)  # noqa: S301 - of who has called us, and may run anything here
    except ImportError as error:
        raise InputError(
            f"the nodes cannot import what it needs: {error}",
            path=name,
            hint="install that on the nodes; only modules of the working folder come along",
        ) from error


def _own_modules() -> list[ModuleType]:
    """The modules of the working folder, which the nodes do not have; headrace they have."""
    here = os.path.join(os.getcwd(), "")
    found = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] != "headrace"]
    return [module for module in found if _lies_below(here, getattr(module, "__file__", None))]


def _lies_below(folder: str, file: str | None) -> bool:
    """Whether a module's file is the user's own, and no environment's that lies there too."""
    if file is None:
        return False
    path = os.path.abspath(file)
    environment = os.path.join(os.path.abspath(sys.prefix), "")
    return path.startswith(folder) and not path.startswith(environment) and "site-packages" not in path
