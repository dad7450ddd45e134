"""Folders of shells, made and ended while others sweep: no living one is ever taken for one that was left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MAKES = """
import os
from headrace.jobs.scratch import Scratch
for number in range(150):
    scratch = Scratch()
    inner = os.path.join(scratch.path, "run")
    os.mkdir(inner)
    with open(os.path.join(inner, "file"), "w") as file:
        file.write("mine")
    kept = number % 50 == 0
    if kept:
        scratch.keep()
    assert open(os.path.join(inner, "file")).read() == "mine"
    scratch.close(kept=kept)
    assert os.path.exists(scratch.path) == kept
    if kept:
        print(os.path.basename(scratch.path))
"""
SWEEPS = """
import os, sys
from headrace.jobs.scratch import sweep
while os.getppid() == int(sys.argv[1]):
    sweep(lambda told: print(told, flush=True))
"""


def test_sweeping_while_shells_begin_and_end(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}

    def started(program: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, str(os.getpid())]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    sweepers = [started(SWEEPS) for _ in range(2)]
    makers = [started(MAKES) for _ in range(3)]
    try:
        kept = [name for one in makers for name in one.communicate(timeout=120)[0].split()]
    finally:
        for one in (*makers, *sweepers):
            one.kill()
        told = [one.communicate(timeout=30)[0] for one in sweepers]
    assert [one.returncode for one in makers] == [0, 0, 0]
    assert "".join(told) == "", "there was nothing to sweep"
    assert sorted(kept) == sorted(os.listdir(tmp_path))
