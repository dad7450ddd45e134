"""Checks that need TensorFlow, JAX or Lightning: functions of a module that one child process runs in `.tools/<group>`.

Importing them takes seconds, and none belongs into the process that runs the other tests.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.mount_rig import wait_for

ROOT = Path(__file__).parent.parent
TOOLS = ROOT / ".tools"
_TIMEOUT_S = 150


def names(module: ModuleType) -> list[str]:
    """The checks of a module."""
    return [name for name in vars(module) if name.startswith("check_")]


def outcomes(
    module: str, environment: Mapping[str, str], folder: Path, group: str = "frameworks"
) -> dict[str, str | None]:
    """Run the checks of `module` in a child whose working directory is `folder`. Name → None, or its traceback."""
    if not (TOOLS / group / ".headrace").exists():
        pytest.skip(f"what they need is not installed: scripts/framework-tools {group}")
    ended = subprocess.run(
        [TOOLS / group / "bin/python", "-m", module],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **environment},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    return json.loads(ended.stdout.splitlines()[-1])


def report(module: ModuleType, *arguments: Any) -> None:
    """In the child: run all, print what `outcomes` reads."""
    found: dict[str, str | None] = {}
    for name in names(module):
        try:
            getattr(module, name)(*arguments)
            found[name] = None
        except BaseException:
            found[name] = traceback.format_exc()
    sys.stdout.write("\n" + json.dumps(found) + "\n")


def run_blocks(page: str, mark: str) -> None:
    """The blocks of a guide that bear that mark, in its order, sharing names."""
    text = (ROOT / "docs/guides" / page).read_text()
    blocks = re.findall(rf"^```python {mark}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    names: dict[str, Any] = {"__name__": "guide"}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"{page}, block {number} of {mark}", "exec"), names)


def digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's handwritten digits: uint8[count, 64], and their labels. Without scikit-learn."""
    import sklearn

    path = Path(sklearn.__path__[0]) / "datasets/data/digits.csv.gz"
    with gzip.open(path) as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8, max_rows=count)
    return table[:, :64], table[:, 64]


def no_loader_runs() -> bool:
    """Whether all threads of headrace's loaders end, within seconds."""
    gc.collect()
    return wait_for(lambda: not any(one.name.startswith("headrace-loader") for one in threading.enumerate()), 10)


def raised(kind: type[BaseException], work: Callable[[], Any]) -> BaseException:
    """What `work` raises, which must be of that kind."""
    try:
        work()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
