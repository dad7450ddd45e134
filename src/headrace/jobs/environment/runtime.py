"""headrace's own package, laid over an environment at start: ``import headrace`` works where it is not installed.

A copy of the package, by the digest of its files, in a folder of its own::

    <cache>/runtime/<digest>/packages/headrace/…       at the end of the module search path
                             site/sitecustomize.py     what puts it there

Python imports ``sitecustomize`` at start, found through ``PYTHONPATH``. A folder on ``PYTHONPATH`` itself would come
before what is installed; so ours takes itself off the path and puts the copy at the very end. What the environment has
of its own wins, headrace included. Nothing that headrace depends on is brought along. ``python -I``, ``-E`` and ``-S``
go without.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.jobs.environment.kept import KeptFolders

SOURCES: Final = "HEADRACE_SOURCES"
"""Variable: folders with the job's own packages, put at the end too, before headrace's."""

_SITE: Final = '''"""headrace's: adds to the end of the module search path, then lets another sitecustomize run."""
import os
import sys


def _lay_over():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [one for one in sys.path if os.path.abspath(one) != here]
    sys.path.extend(one for one in os.environ.get("HEADRACE_SOURCES", "").split(os.pathsep) if one)
    sys.path.append(os.path.join(os.path.dirname(here), "packages"))
    from importlib import machinery, util
    found = machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if found is not None and found.loader is not None:
        module = util.module_from_spec(found)
        sys.modules["sitecustomize"] = module
        found.loader.exec_module(module)


_lay_over()
'''


class Runtime:
    """The copy, held for as long as this object is: `close` it. `folder`: where it lies."""

    def __init__(self, cache: str, *, keep: int = 4) -> None:
        """Raises: NoRoomError, TryAgainError: as `KeptFolders.get`."""
        package = Path(__file__).resolve().parents[2]
        self.digest = _digest(package)
        folders = KeptFolders(os.path.join(cache, "runtime"), keep)
        self._held = folders.get(self.digest, lambda folder: _copy(package, folder), deadline=60.0)
        self.folder = self._held.folder

    def variables(self, variables: Mapping[str, str], sources: tuple[str, ...] = ()) -> dict[str, str]:
        """`variables`, and what lays headrace over; `sources`: the job's own package folders."""
        path = [os.path.join(self.folder, "site"), *filter(None, [variables.get("PYTHONPATH")])]
        laid = {**variables, "PYTHONPATH": os.pathsep.join(path)}
        return {**laid, SOURCES: os.pathsep.join(sources)} if sources else laid

    def close(self) -> None:
        """Idempotent."""
        self._held.close()


def _files(package: Path) -> list[Path]:
    return sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _digest(package: Path) -> str:
    total = hashlib.sha256(_SITE.encode())
    for path in _files(package):
        body = path.read_bytes()
        total.update(f"{path.relative_to(package)}\0{len(body)}\0".encode())
        total.update(body)
    return total.hexdigest()


def _copy(package: Path, folder: str) -> None:
    shutil.copytree(package, os.path.join(folder, "packages", "headrace"), ignore=shutil.ignore_patterns("__pycache__"))
    os.mkdir(os.path.join(folder, "site"))
    Path(folder, "site", "sitecustomize.py").write_text(_SITE, encoding="utf-8")
