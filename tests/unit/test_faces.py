"""Faces of rooms: every name is to be had, whatever was imported before it."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

FACES = (
    "headrace.catalog", "headrace.checkup", "headrace.cluster", "headrace.cluster.csi", "headrace.formats",
    "headrace.gateway", "headrace.loader", "headrace.models", "headrace.mount", "headrace.serving",
    "headrace.tracking", "headrace.web", "headrace.web.jupyter",
)  # fmt: skip
MODULES_OF_THAT_NAME = {"submit"}
"""`headrace.cluster.submit` is the function once somebody asked the face for any name of its module."""


@pytest.mark.parametrize("name", FACES)
def test_no_module_hides_a_name_of_a_face(name: str) -> None:
    package = importlib.import_module(name)
    beside = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not beside & set(package.__all__) - MODULES_OF_THAT_NAME


@pytest.mark.parametrize("name", FACES)
def test_every_name_of_a_face_is_there(name: str) -> None:
    package = importlib.import_module(name)
    assert set(package.__all__) <= set(dir(package))
    for one in package.__all__:
        if (name, one) != ("headrace.cluster.csi", "Plugin"):  # needs gRPC, an extra
            assert getattr(package, one) is not None
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = package.nothing_like_it


def test_importing_a_face_imports_nothing_of_its_room() -> None:
    loaded = "print([m for m in sys.modules if m.startswith('headrace.') and m.count('.') > 1])"
    code = f"import sys, {', '.join(FACES)}\n{loaded}"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    kept = [name for name in eval(seen) if not name.startswith("headrace.base.")]
    assert sorted(kept) == sorted(name for name in FACES if name.count(".") > 1)
