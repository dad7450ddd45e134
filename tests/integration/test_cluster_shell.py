"""``headrace shell RUN --rank N``: on the node of a cluster where that rank ran, at a terminal here."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.cluster_rig import PYTHON, SharedCluster
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def rig(
    seaweedfs: EmbeddedS3, ray_cluster: SharedCluster, tmp_path_factory: pytest.TempPathFactory
) -> Generator[RunsRig]:
    """With a run of two ranks, each on a node of its own, that is over."""
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("shell"), ray_cluster.variables)
    made.python = PYTHON
    made.script("print('code of the run')\n", "mine.py")
    words = ["run", "-q", "--id", "pair", "--on", ray_cluster.address, "--nodes", "2", "--", "echo", "its own"]
    ended = made.headrace(*words, timeout=200)
    assert (sorted(ended.stdout.splitlines()), ended.stderr) == (["[0] its own", "[1] its own"], ""), "-q adds nothing"
    yield made
    made.close()


def test_a_command_runs_where_the_rank_ran(rig: RunsRig) -> None:
    line = "echo $RANK of $WORLD_SIZE; python3 mine.py; pwd; cat; echo beside >&2; exit 5"
    words = [rig.python, "-m", "headrace.cli", "shell", "pair", "--rank", "1", "-q", "--", "sh", "-c", line]
    ended = subprocess.run(words, env=rig.environment, cwd=rig.work, input="typed\n", capture_output=True, text=True,
                           timeout=120, check=False)  # fmt: skip
    assert ended.returncode == 5, ended.stderr
    rank, code, folder, typed = ended.stdout.splitlines()
    assert (rank, code, typed, ended.stderr) == ("1 of 2", "code of the run", "typed", "beside\n")
    assert not Path(folder).exists(), "it goes with the shell"
    nodes = json.loads(rig.read("pair", "nodes/00001.json") or b"")["nodes"]
    said = rig.headrace("shell", "pair", "--rank", "1", "--", "true").stderr
    assert f"rank 1 of pair, on {nodes[1]['host']} ({nodes[1]['address']})" in said


def test_at_a_terminal_every_key_goes_there(rig: RunsRig) -> None:
    """Ctrl-C ends what runs in it, its size is that of the terminal here, and its exit code comes back."""
    line = b"sh -c \"trap 'echo inter''rupted; exit' INT; echo sta''rted; sleep 100\"\r"
    answers = {b"(pair) ": b"stty size\r", b"33 77": line, b"started": b"\x03", b"interrupted": b"exit 6\r"}
    seen, code = at_a_terminal(rig, answers)
    assert code == 6, seen


def test_it_ends_with_who_looks_at_it(rig: RunsRig) -> None:
    line = "echo $$ > $PID_FILE; exec sleep 300"
    file = rig.scratch / "pid"
    shell = rig.start("shell", "pair", "--rank", "0", "--env", f"PID_FILE={file}", "--", "sh", "-c", line)
    assert wait_for(lambda: file.exists() and file.read_text().strip(), 60)
    pid = int(file.read_text())
    shell.kill()
    assert wait_for(lambda: not Path(f"/proc/{pid}").exists(), 60)


def test_what_is_not_there_is_named(rig: RunsRig) -> None:
    assert "its ranks are 0 to 1" in rig.headrace("shell", "pair", "--rank", "2", "--", "true", code=3).stderr
    rig.headrace("run", "-q", "--id", "alone", "--", "true")
    assert "was on no cluster" in rig.headrace("shell", "alone", "--rank", "0", "--", "true", code=2).stderr
    told = json.loads(rig.read("pair", "nodes/00001.json") or b"")
    told["nodes"][0] |= {"id": "0" * 56, "address": "127.0.91.250"}
    rig.store().put("home/runs/pair/nodes/00002.json", json.dumps(told).encode())
    ended = rig.headrace("shell", "pair", "--rank", "0", "--", "true", code=3)
    assert "the node where rank 0 ran is gone" in ended.stderr
    assert "--anywhere" in ended.stderr
    assert rig.headrace("shell", "pair", "--rank", "0", "--anywhere", "-q", "--", "echo", "here").stdout == "here\n"


def at_a_terminal(rig: RunsRig, answers: dict[bytes, bytes]) -> tuple[bytes, int]:
    """Each answer is typed once, when its question is seen. What was seen, and the code."""
    rig.variables = {**rig.variables, "TERM": "xterm", "SHELL": "/bin/bash"}
    return rig.at_a_terminal("shell", "pair", "--rank", "0", answers=answers, size=(33, 77))
