"""``headrace shell``: what a run had, again, and nothing recorded of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.environment_kit import uv_program, wheel
from tests.mount_rig import detach
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for

pytestmark = pytest.mark.server


@pytest.fixture
def rig(seaweedfs: EmbeddedS3, tmp_path: Path) -> Iterator[RunsRig]:
    (tmp_path / "tmp").mkdir()
    made = RunsRig(seaweedfs, tmp_path, {"TMPDIR": str(tmp_path / "tmp"), "SHELL": "/bin/bash", "HOME": str(tmp_path)})
    yield made
    made.close()


def left(rig: RunsRig) -> list[str]:
    """What shells have not removed."""
    return [path.name for path in (rig.scratch / "tmp").iterdir() if path.name.startswith("headrace-")]


def test_it_has_the_code_variables_and_checkpoint_of_the_run(rig: RunsRig):
    rig.script("import part\nprint(part.VALUE)\n")
    rig.script("VALUE = 'recorded'\n", "part.py")
    rig.script("""
        import os, pathlib
        saved = pathlib.Path(os.environ["HEADRACE_OUTPUTS"], "checkpoints", "7")
        saved.mkdir()
        (saved / "model.pt").write_text("weights")
    """, "save.py")  # fmt: skip
    options = ["--env", "LR=0.1", "--env", "TOKEN=hush", "--set", "environment.record=LR"]
    rig.headrace("run", "-q", "--name", "first", *options, "--", "python3", "save.py")
    shutil.rmtree(rig.work)
    rig.work.mkdir()
    recorded = rig.names(rig.only())
    line = "python3 train.py; echo $LR ${TOKEN-none} ${HEADRACE_RESUME-none}; touch x $HEADRACE_OUTPUTS/x; pwd; exit 5"
    ended = rig.headrace("shell", "first", "--", "sh", "-c", line, code=5)
    said = ended.stdout.splitlines()
    assert said[:2] == ["recorded", "0.1 none none"]
    assert "values not recorded, so not set: TOKEN" in ended.stderr
    assert not Path(said[2]).exists(), "it goes with the shell"
    line = "echo $TOKEN $(cat $HEADRACE_RESUME/model.pt)"
    given = rig.headrace("shell", "first", "-q", "--resume", "--env", "TOKEN=other", "--", "sh", "-c", line)
    assert (given.stdout, given.stderr) == ("other weights\n", "")
    assert rig.names(rig.only()) == recorded, "nothing of it is recorded"
    assert left(rig) == []
    assert list(rig.work.iterdir()) == []
    assert not rig.state.exists() or list(rig.state.iterdir()) == []


def test_it_is_kept_where_that_is_asked(rig: RunsRig):
    rig.script("print(1)\n")
    rig.headrace("run", "-q", "--", "python3", "train.py")
    told = rig.headrace("shell", "latest", "--keep", "--", "touch", "mine").stderr
    (path,) = [line.partition("kept: ")[2] for line in told.splitlines() if "kept: " in line]
    assert {"train.py", "mine"} == {one.name for one in Path(path, "work").iterdir()}


def test_it_has_the_inputs_and_cpus_of_the_run(rig: RunsRig):
    """In the versions that were pinned, though more is there by now."""
    store = rig.store()
    store.put("data/a.txt", b"a")
    rig.variables = {**rig.variables, "HEADRACE_CACHE_DIR": str(rig.scratch / "cache")}
    line = "ls $HEADRACE_INPUT_TRAIN; nproc"
    given = ["--set", f"inputs.train=s3://{rig.bucket}/data", "--set", "inputs.train.as=copy"]
    command = ["--", "sh", "-c", line]
    assert rig.headrace("run", "-q", *given, "--set", "resources.cpus=1", *command).stdout == "a.txt\n1\n"
    store.put("data/b.txt", b"b")
    assert rig.headrace("shell", "latest", *command).stdout == "a.txt\n1\n"


def test_it_says_what_is_not_as_it_was(rig: RunsRig):
    rig.variables = {**rig.variables, "ONCE": "1"}
    (rig.work / "sub").mkdir()
    assert rig.headrace("run", "-q", "--no-code", "--set", "folder=sub", "--", "pwd").stdout == f"{rig.work}/sub\n"
    assert rig.headrace("rerun", "-q", "latest").stdout == f"{rig.work}/sub\n"
    rig.variables = {name: value for name, value in rig.variables.items() if name != "ONCE"}
    ended = rig.headrace("shell", "latest", "--", "pwd")
    told = ended.stderr
    assert ended.stdout == f"{rig.work}/sub\n"
    assert "its code was not recorded" in told
    assert "variables that are not set here: ONCE\n" in told
    assert "there is no such command" in rig.headrace("shell", "latest", "--", "no-such-thing", code=3).stderr
    assert "no complete checkpoint" in rig.headrace("shell", "latest", "--resume", "--", "true", code=3).stderr
    (rig.work / "sub").rmdir()
    assert "go to the machine where it ran" in rig.headrace("shell", "latest", "--", "true", code=3).stderr
    assert left(rig) == []


def test_its_packages_are_those_of_the_lock_file(rig: RunsRig):
    if uv_program() is None:
        pytest.skip("the program uv is not installed: pip install uv")
    wheel(rig.work / "wheels", "tinydep", "1.0", {"tinydep.py": "VERSION = '1.0'\n"})
    (rig.work / "requirements.txt").write_text("--no-index\n--find-links wheels\ntinydep==1.0\n")
    rig.variables = {**rig.variables, "UV_CACHE_DIR": str(rig.scratch / "uv"), "UV_PYTHON_DOWNLOADS": "never"}
    line = "import sys, tinydep; print(sys.prefix, tinydep.VERSION)"
    first = rig.headrace("run", "-q", "--set", "environment.lock=requirements.txt", "--", "python", "-c", line).stdout
    assert first.endswith(" 1.0\n")
    shutil.rmtree(rig.work)
    rig.work.mkdir()
    (rig.scratch / ".bashrc").write_text("PATH=/usr/bin:/bin\nPS1='mine> '\n")
    assert rig.headrace("shell", "latest", "--", "python", "-c", line).stdout == first
    seen, code = at_a_terminal(rig, {b"mine> ": f"python -c '{line}'; exit\r".encode()})
    assert (first.strip().encode() in seen, code) == (True, 0), seen


def test_at_a_terminal_ctrl_c_is_for_what_runs_in_it(rig: RunsRig):
    """It outlives the two seconds in which commands of ours end."""
    rig.script("""
        import time
        try:
            print("re" + "ady", flush=True)
            for _ in range(600):  # a signal just before a sleep does not end it
                time.sleep(0.1)
        except KeyboardInterrupt:
            time.sleep(2.5)
            print("inter" + "rupted", flush=True)
            raise SystemExit(7)
    """)
    rig.headrace("run", "-q", "--name", "first", "--", "true")
    (rig.scratch / ".bashrc").write_text("PS1='mine> '\n")
    answers = {b"mine> ": b"python3 train.py\r", b"ready": b"\x03", b"interrupted": b"exit 6\r"}
    seen, code = at_a_terminal(rig, answers)
    assert code == 6, seen
    assert b"first-" in seen, "the prompt tells where one is"
    seen, code = at_a_terminal(rig, {b"ready": b"\x03"}, "--", "python3", "train.py")
    assert code == 7, seen
    assert b"interrupted" in seen
    assert left(rig) == []


def test_who_ends_it_ends_what_runs_in_it(rig: RunsRig):
    rig.headrace("run", "-q", "--", "true")
    (one,) = up(rig, ())
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(30) == 128 + signal.SIGTERM
    assert not Path(f"/proc/{one.child}").exists()
    assert left(rig) == []


@dataclass
class Up:
    """A shell that works until it is ended. `folder`: where it is laid out; `child`: the process in it."""

    process: subprocess.Popen[str]
    folder: Path
    child: int

    def kill(self) -> None:
        """-9, and not what it started."""
        self.process.kill()
        self.process.communicate(timeout=30)

    def kill_child(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGKILL)
        assert wait_for(lambda: not Path(f"/proc/{self.child}").exists())


def up(rig: RunsRig, *each: tuple[str, ...]) -> list[Up]:
    """Shells with these options, started side by side."""
    # the child leaves the pipes of the shell alone, so that nobody waits for it
    line = "echo $$ > up.tmp; mv up.tmp $NUMBER.up; exec sleep 120 > /dev/null 2>&1"
    processes = [
        rig.start("shell", "latest", *options, "--env", f"NUMBER={number}", "--", "sh", "-c", line)
        for number, options in enumerate(each)
    ]
    folder = rig.scratch / "tmp"

    def found() -> list[Path]:
        paths = folder.glob("headrace-shell-*/*/work/*.up")
        return sorted(paths, key=lambda path: path.name)

    assert wait_for(lambda: len(found()) == len(each), 60)
    return [
        Up(process, path.parents[2], int(path.read_text())) for process, path in zip(processes, found(), strict=True)
    ]


def test_what_a_killed_shell_has_left_goes_with_the_next_shell_or_run(rig: RunsRig):
    """Once nothing works there; and never what is a living one's, or was to be kept."""
    rig.headrace("run", "-q", "--", "true")
    living, kept, first, second = every = up(rig, (), ("--keep",), (), ())
    try:
        kept.kill()
        kept.kill_child()
        first.kill()
        second.kill()
        everything = sorted(one.folder.name for one in every)
        (rig.scratch / "tmp" / "headrace-shell-somebody").mkdir()  # killed before it had locked it
        assert "removed" not in rig.headrace("run", "--", "true").stderr
        assert sorted(left(rig)) == everything, "what they had started works there still"
        first.kill_child()
        assert f"has left: {first.folder}\n" in rig.headrace("run", "--", "true").stderr
        assert sorted(left(rig)) == sorted(one.folder.name for one in (living, kept, second))
        second.kill_child()
        assert f"has left: {second.folder}\n" in rig.headrace("shell", "latest", "--", "true").stderr
        assert sorted(left(rig)) == sorted((living.folder.name, kept.folder.name))
        assert (living.folder / "lock").exists()
        assert living.process.poll() is None
        living.process.send_signal(signal.SIGTERM)
        assert living.process.wait(30) == 128 + signal.SIGTERM
        assert left(rig) == [kept.folder.name]
    finally:
        for one in every:
            one.kill_child()


def test_what_is_mounted_in_what_a_killed_shell_has_left_is_not_deleted(rig: RunsRig):
    if os.geteuid() != 0:
        pytest.skip("only root may mount a folder in another place")
    rig.headrace("run", "-q", "--", "true")
    precious = rig.scratch / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (killed,) = up(rig, ())
    point = killed.folder / "mounted"
    point.mkdir()
    subprocess.run(["mount", "--bind", str(precious), str(point)], check=True, timeout=30)
    try:
        killed.kill()
        killed.kill_child()
        rig.headrace("run", "-q", "--", "true")
        assert (precious / "file").exists()
        assert left(rig) == [killed.folder.name]
    finally:
        detach(str(point))
        killed.kill_child()
    rig.headrace("run", "-q", "--", "true")
    assert (precious / "file").exists()
    assert left(rig) == []


def at_a_terminal(rig: RunsRig, answers: dict[bytes, bytes], *words: str) -> tuple[bytes, int]:
    """A shell of the latest run; each answer is typed once, when its question is seen. What was seen, and the code."""
    return rig.at_a_terminal("shell", "latest", *words, answers=answers, timeout=40)
