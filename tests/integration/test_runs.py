"""``headrace run`` as users run it: a command, a real S3 server, and what other commands tell of it afterwards."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.jobs.resuming import lineage, resume
from headrace.namespace.home import Home
from headrace.store import open_store
from headrace.testing.servers import EmbeddedS3
from headrace.tracking.record import RunRecord, now
from headrace.tracking.runs import Run
from headrace.upload import commit
from tests.runs_rig import COMMAND, RunsRig
from tests.sync_rig import wait_for

pytestmark = pytest.mark.server


@pytest.fixture
def rig(seaweedfs: EmbeddedS3, tmp_path: Path) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path)
    yield made
    made.close()


def test_all_of_a_run_is_in_the_bucket(rig: RunsRig):
    rig.script("""
        import os, sys
        print("to stdout")
        print("to stderr", file=sys.stderr)
        out = os.environ["HEADRACE_OUTPUTS"]
        os.makedirs(f"{out}/deep")
        open(f"{out}/deep/result.json", "w").write("{}")
        os.makedirs(f"{out}/checkpoints/10")
        open(f"{out}/checkpoints/10/model.pt", "w").write("weights")
        print(os.environ["HEADRACE_RUN_ID"], os.environ["HEADRACE_ATTEMPT"])
    """)
    ended = rig.headrace("run", "--", "python3", "train.py")
    run = rig.only()
    assert ended.stdout == f"to stdout\n{run} 1\n"
    assert "to stderr\n" in ended.stderr
    assert re.fullmatch(r"\d{8}-\d{6}-train-[0-9a-f]{4}", run)
    assert rig.states(run) == ["starting", "running", "finishing", "finished"]
    assert rig.read(run, "outputs/deep/result.json") == b"{}"
    assert rig.read(run, "checkpoints/10/model.pt") == b"weights"
    assert rig.read(run, "checkpoints/10/COMMITTED"), "the job ended well, so what it wrote is whole"
    assert not any(name.startswith("outputs/checkpoints") for name in rig.names(run)), "once is enough"
    logged = rig.headrace("logs", run).stdout.splitlines()
    assert sorted(logged) == sorted(["to stdout", "to stderr", f"{run} 1"])
    assert rig.headrace("logs", "train", "--stream", "stderr").stdout == "to stderr\n"
    last = rig.headrace("logs", run[-4:], "--stream", "stdout", "--tail", "1")
    assert last.stdout == f"{run} 1\n"
    (row,) = rig.json("runs")
    assert (row["id"], row["state"], row["exit_code"], row["files_left"]) == (run, "finished", 0, 0)
    told = rig.headrace("runs", "show", "latest").stdout
    assert re.search(r"^code +a folder without git \(1 file, ", told, re.MULTILINE)
    assert re.search(r"^environment +the caller's \(cpython-3", told, re.MULTILINE)
    shown = rig.json("runs", "show", "latest")
    assert shown["record"]["command"] == ["python3", "train.py"]
    assert shown["record"]["folder"] == str(rig.work)
    assert "PATH" in shown["record"]["variables"]
    assert list(rig.state.iterdir()) == [], "nothing stays on the node"


def test_its_exit_code_is_the_commands(rig: RunsRig):
    rig.headrace("run", "--name", "code", "--", "sh", "-c", "exit 7", code=7)
    rig.headrace("run", "--name", "signal", "--", "sh", "-c", "kill -USR1 $$", code=-signal.SIGUSR1)
    rig.headrace("run", "--name", "killed", "--", "sh", "-c", "kill -9 $$", code=137)
    assert "there is no such command" in rig.headrace("run", "--name", "none", "--", "no-such-thing", code=127).stderr
    rows = {row["name"]: (row["state"], row["exit_code"], row["signal"]) for row in rig.json("runs")}
    assert rows == {
        "code": ("failed", 7, None),
        "signal": ("failed", None, signal.SIGUSR1),
        "killed": ("failed", None, signal.SIGKILL),
        "none": ("failed", 127, None),
    }


def test_it_stands_in_a_pipe_as_the_command_would(rig: RunsRig):
    """Standard input reaches it, its output comes out as it is, and who stops reading stops it."""
    line = f"{' '.join(COMMAND)} run -q --"
    through = subprocess.run(
        f"printf 'a\\0b\\377' | {line} cat; seq 1000000 | {line} cat | head -1; echo ${{PIPESTATUS[1]}}",
        shell=True, executable="/bin/bash", cwd=rig.work, env=rig.environment, capture_output=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert through.stdout == b"a\0b\xff1\n141\n"
    assert through.stderr == b""


def test_signals_reach_the_command(rig: RunsRig):
    rig.script("""
        import signal, sys, time
        signal.signal(signal.SIGUSR1, lambda *_: print("usr1", flush=True))
        signal.signal(signal.SIGTERM, lambda *_: (print("term", flush=True), sys.exit(3)))
        print("ready", flush=True)
        while True:
            time.sleep(0.05)
    """)
    process = rig.start("run", "-q", "--", "python3", "train.py")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "usr1\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.read() == "term\n"
    assert process.wait(60) == 3
    (row,) = rig.json("runs")
    assert (row["state"], row["reason"], row["exit_code"]) == ("stopped", "SIGTERM", 3)


def test_at_a_terminal_it_has_one(rig: RunsRig):
    """It is asked, answers, and Ctrl-C is its own to heed."""
    rig.script("""
        import os, sys, time
        print([os.isatty(fd) for fd in (0, 1, 2)], os.get_terminal_size().columns)
        print("hello", input("who? "))
        try:
            print("ready")
            for _ in range(600):  # a signal just before a sleep does not end it
                time.sleep(0.1)
        except KeyboardInterrupt:
            print("interrupted")
            sys.exit(4)
    """)
    answers = {b"who? ": b"me\r", b"ready": b"\x03"}
    seen, code = rig.at_a_terminal("run", "-q", "--", "python3", "train.py", answers=answers)
    assert code == 4, seen
    assert b"[True, True, True]" in seen
    assert b"interrupted" in seen
    logged = rig.headrace("logs", "latest").stdout
    assert "hello me\n" in logged
    assert "\r" not in logged


def test_in_the_background_it_is_followed_stopped_from_elsewhere_and_deleted(rig: RunsRig):
    """A run that heeds SIGTERM; and one beside it that does not, which is killed with all it started."""
    rig.script("""
        import itertools, time
        for number in itertools.count():
            print("line", number, flush=True)
            time.sleep(0.1)
    """)
    rig.script("""
        trap '' TERM
        sh -c 'trap "" TERM; echo $$ > child; while :; do sleep 0.1; done' &
        while :; do sleep 0.1; done
    """, "stubborn.sh")  # fmt: skip
    run = rig.headrace("run", "--detach", "--", "python3", "train.py").stdout.strip()
    stubborn = rig.headrace("run", "-d", "--", "sh", "stubborn.sh").stdout.strip()
    follower = rig.start("logs", "-f", run)
    assert follower.stdout is not None
    seen = [follower.stdout.readline() for _ in range(60)]
    assert seen == [f"line {number}\n" for number in range(60)], "more than one segment, while it runs"
    assert {row["id"] for row in rig.json("runs", "--state", "running")} == {run, stubborn}
    assert "is not over" in rig.headrace("runs", "rm", run, code=2).stderr
    killed = rig.start("stop", stubborn, "--grace", "500ms", "--wait", "60s")
    stopped = rig.json("stop", run, "--wait", "60s")
    assert stopped == {"id": run, "state": "stopped", "ordered": True}
    rest = follower.stdout.read()
    assert follower.wait(60) == 0, "it ends with the run"
    whole = "".join(seen) + rest
    assert whole == rig.headrace("logs", run).stdout
    assert killed.wait(90) == 0
    rows = {row["id"]: row for row in rig.json("runs")}
    assert rows[run]["signal"] == signal.SIGTERM
    assert rows[run]["reason"].startswith("ordered by ")
    assert (rows[stubborn]["state"], rows[stubborn]["signal"]) == ("stopped", signal.SIGKILL)
    child = int((rig.work / "child").read_text() or 0)
    assert child
    assert wait_for(lambda: not Path(f"/proc/{child}").exists())
    assert rig.json("stop", run)["state"] == "stopped", "once more changes nothing"
    assert rig.states(run)[-1] == "stopped"
    rig.headrace("runs", "rm", run, stubborn)
    assert rig.json("runs") == []
    assert rig.names(run) == []
    assert "there is no such run" in rig.headrace("logs", run, code=3).stderr


def test_a_time_limit(rig: RunsRig):
    rig.headrace("run", "--time-limit", "500ms", "--", "sleep", "60", code=-signal.SIGTERM)
    (row,) = rig.json("runs")
    assert (row["state"], row["reason"]) == ("stopped", "the time limit is over")


def test_it_is_tried_again_where_the_job_says_so(rig: RunsRig):
    (rig.work / "job.toml").write_text("""
        name = "flaky"
        command = "echo try $HEADRACE_ATTEMPT; echo 'CUDA error: 700' >&2; exit $((7 - HEADRACE_ATTEMPT))"
        [retry]
        attempts = 5
        exit_codes = [6]
        backoff = "100ms"
    """)
    ended = rig.headrace("run", "job.toml", code=5)
    assert ended.stdout == "try 1\ntry 2\n", "5 is no code to try again for"
    ended = rig.headrace("run", "--set", "retry.log_patterns=CUDA error", "--attempts", "3", "job.toml", code=4)
    assert ended.stdout == "try 1\ntry 2\ntry 3\n"
    assert rig.states(rig.ids()[0]) == ["starting", *["running", "retrying"] * 2, "running", "finishing", "failed"]


def test_the_next_attempt_goes_on_from_the_newest_complete_checkpoint(rig: RunsRig):
    rig.script("""
        import os, pathlib, sys, time
        saved = pathlib.Path(os.environ["HEADRACE_OUTPUTS"], "checkpoints")
        resume = os.environ.get("HEADRACE_RESUME")
        if resume:
            print(pathlib.Path(resume).name, pathlib.Path(resume, "model.pt").read_text())
            sys.exit(0)
        for step in (9, 10):
            (saved / str(step)).mkdir()
            (saved / str(step) / "model.pt").write_text(f"weights {step}")
            (saved / str(step) / "COMMITTED").touch()
        (saved / "11").mkdir()
        (saved / "11" / "model.pt").write_text("half")
        sys.exit(1)
    """)
    ended = rig.headrace("run", "--attempts", "2", "--set", "retry.backoff=10ms", "--", "python3", "train.py")
    assert ended.stdout == "10 weights 10\n"
    run = rig.only()
    assert rig.read(run, "checkpoints/11/model.pt") == b"half"


def git(rig: RunsRig, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *identity, *arguments], cwd=rig.work, check=True, capture_output=True, timeout=30)


def test_it_is_run_again_from_its_record_alone(rig: RunsRig):
    """Commit, staged, unstaged and new files; not what is ignored. The tree may be gone by then."""
    rig.script("import part, extra, staged\nprint(part.VALUE, extra.VALUE, staged.VALUE)\n")
    rig.script("VALUE = 'committed'\n", "part.py")
    (rig.work / ".gitignore").write_text("*.secret\n__pycache__\n")
    git(rig, "init")
    git(rig, "add", ".")
    git(rig, "commit", "-m", "one")
    rig.script("VALUE = 'changed'\n", "part.py")
    rig.script("VALUE = 'new'\n", "extra.py")
    rig.script("VALUE = 'staged'\n", "staged.py")
    git(rig, "add", "staged.py")
    (rig.work / "password.secret").write_text("hush")
    first = rig.headrace("run", "-q", "--name", "first", "--env", "LR=1", "--", "python3", "train.py")
    assert first.stdout == "changed new staged\n"
    code = rig.json("runs", "show", "first")["record"]["code"]
    assert code["dirty"]
    assert (code["unstaged"], code["staged"], code["untracked"], code["unpushed"]) == (1, 1, 1, 1)
    for path in rig.work.iterdir():
        subprocess.run(["rm", "-rf", str(path)], check=True)
    assert "LR" in rig.headrace("rerun", "first", code=2).stderr, "a value that was not recorded has to be given again"
    again = rig.headrace("rerun", "first", "--name", "again", "--env", "LR=1")
    assert again.stdout == first.stdout
    assert list(rig.work.iterdir()) == [], "nothing is laid out here"
    shown = rig.json("runs", "show", "again")["record"]
    assert shown["code"]["digest"] == code["digest"]
    assert shown["parent"]["as"] == "rerun"
    rig.headrace("runs", "rm", "first")
    assert rig.headrace("rerun", "again", "-q", "--env", "LR=1").stdout == first.stdout, "its record is whole by itself"


def test_a_tree_that_is_too_large_is_refused_and_named(rig: RunsRig):
    (rig.work / "weights.bin").write_bytes(bytes(3_000_000))
    told = rig.headrace("run", "--set", "code.limit=1MB", "--", "true", code=2).stderr
    assert "weights.bin" in told
    assert rig.ids() == []
    assert list(rig.state.iterdir()) == []
    rig.headrace("run", "--set", "code.limit=1MB", "--no-code", "--", "true")
    assert rig.json("runs", "show", "latest")["record"]["code"] is None


def test_a_run_goes_on_from_anothers_checkpoint(rig: RunsRig):
    """Or, where that has none, from that of the run which it was resumed from."""
    rig.script("""
        import os, pathlib, sys
        resume = os.environ.get("HEADRACE_RESUME")
        step = int(pathlib.Path(resume, "step").read_text()) if resume else 0
        print("from", step)
        if sys.argv[1:] != ["saves nothing"]:
            path = pathlib.Path(os.environ["HEADRACE_OUTPUTS"], "checkpoints", str(step + 1))
            path.mkdir()
            (path / "step").write_text(str(step + 1))
    """)
    assert rig.headrace("run", "-q", "--id", "a", "--", "python3", "train.py").stdout == "from 0\n"
    assert rig.headrace("run", "-q", "--id", "b", "--resume", "a").stdout == "from 1\n"
    assert rig.headrace("rerun", "-q", "--id", "c", "b", "--resume").stdout == "from 2\n"
    assert rig.headrace("rerun", "-q", "--id", "d", "c").stdout == "from 0\n"
    command = ("--", "python3", "train.py", "saves nothing")
    assert rig.headrace("run", "-q", "--id", "e", "--resume", "b", *command).stdout == "from 2\n"
    ended = rig.headrace("run", "--id", "f", "--resume", "e", *command)
    assert ended.stdout == "from 2\n"
    said = [line.removeprefix("headrace: ") for line in ended.stderr.splitlines() if "checkpoint" in line]
    assert said == ["e has no complete checkpoint", "goes on from checkpoint 2 of b"]
    assert rig.headrace("logs", "f", "--stream", "headrace").stdout.splitlines()[1:3] == said


def recorded(home: Home, name: str, parent: str = "", kind: str = "resume") -> Run:
    """A run in a home, of which nothing is told but where it began."""
    run = Run(home, name)
    before = {"run": parent, "as": kind} if parent else None
    run.create(RunRecord(name, name, now(), ("true",), "/", "host", "me", "0", parent=before))
    return run


def resumed(before: Run, started: str, folder: Path) -> tuple[str | None, list[str]]:
    """What a run `started` with ``--resume`` goes on from, and what is said of it."""
    said: list[str] = []
    found = resume(lineage(before, started, said.append), str(folder / started), said.append)
    return found and Path(found, "step").read_text(), said


def test_a_run_without_a_checkpoint_leads_to_the_one_that_it_was_resumed_from(tmp_path: Path):
    """And so on, past a checkpoint that is not complete; but not beyond a run that began at the beginning."""
    home = Home(open_store(f"file://{tmp_path}/store"), "home/")
    a, _, c = recorded(home, "a"), recorded(home, "b", "a"), recorded(home, "c", "b")
    folder = f"{a.prefix}checkpoints/5"
    commit(a.store, folder, [a.store.put(f"{folder}/step", b"5")])
    c.store.put(f"{c.prefix}checkpoints/9/step", b"9")
    looked = ["c has no complete checkpoint", "b has no complete checkpoint"]
    assert resumed(c, "d", tmp_path) == ("5", [*looked, "goes on from checkpoint 5 of a"])
    e = recorded(home, "e", "b", "rerun")
    assert resumed(e, "f", tmp_path) == (None, ["e has no complete checkpoint"])
    d = recorded(home, "d", "c")
    c.delete()
    found, said = resumed(d, "g", tmp_path)
    assert found is None
    assert said[0] == "d has no complete checkpoint"
    assert any("nobody knows what c was resumed from" in line for line in said)


def test_runs_that_were_resumed_from_one_another_end_the_search(tmp_path: Path):
    """An id that is deleted and given again closes the circle."""
    home = Home(open_store(f"file://{tmp_path}/store"), "home/")
    a, b = recorded(home, "a", "b"), recorded(home, "b", "a")
    for started, first, looked_at in (("b", a, ["a"]), ("c", b, ["b", "a"])):
        assert resumed(first, started, tmp_path) == (None, [f"{one} has no complete checkpoint" for one in looked_at])


def test_metrics_of_every_kind_are_read_back_from_the_bucket(rig: RunsRig):
    rig.script("""
        import headrace as hr, time
        for step in range(100):
            hr.log({"loss": 1 / (1 + step), "constant": 3}, step=step)
        time.sleep(1.5)
        for step in range(100, 200):
            hr.log({"loss": 1 / (1 + step)}, step=step)
    """)
    rig.headrace("run", "--", sys.executable, "train.py")
    rows = {row["name"]: row for row in rig.json("metrics", "latest")}
    assert set(rows) == {"loss", "constant"}
    assert rows["loss"]["values"] == [1 / (1 + step) for step in range(200)]
    assert rows["loss"]["steps"] == list(range(200))
    assert rows["constant"]["points"] == 100
    machine = {row["name"] for row in rig.json("metrics", "latest", "--name", "system/*", "--name", "job/*")}
    assert {"system/memory_used", "job/memory", "job/processes"} <= machine
    drawn = rig.headrace("metrics", "latest", "latest").stdout
    assert "loss" in drawn
    assert "constant" in drawn


def test_no_value_of_a_variable_is_recorded_or_told(rig: RunsRig):
    secret = "hush-1b2c3d4e5f"
    rig.variables = {"MY_TOKEN": secret}
    options = ["--env", f"OTHER_TOKEN={secret}", "--env", "LR=0.1", "--set", "environment.record=LR"]
    rig.headrace("run", *options, "--", "true")
    shown = rig.json("runs", "show", "latest")
    assert {"MY_TOKEN", "OTHER_TOKEN", "AWS_SECRET_ACCESS_KEY"} <= set(shown["record"]["variables"])
    assert shown["record"]["spec"]["environment"]["variables"] == {"OTHER_TOKEN": None, "LR": "0.1"}
    store, run = rig.store(), rig.only()
    for name in rig.names(run):
        body = bytes(store.get(f"home/runs/{run}/{name}").data)
        assert secret.encode() not in body
        assert rig.server.secret_key.encode() not in body


def test_the_command_may_be_given_less_than_the_runner_has(rig: RunsRig):
    ended = rig.headrace(
        "run", "-q", "--set", "environment.pass=PATH", "--env", "AWS_ACCESS_KEY_ID=narrow", "--",
        "sh", "-c", 'echo $AWS_ACCESS_KEY_ID; test -z "$AWS_SECRET_ACCESS_KEY"',
    )  # fmt: skip
    assert ended.stdout == "narrow\n"
    assert rig.states(rig.only())[-1] == "finished"


def test_a_closed_terminal_ends_the_command_and_the_run_has_an_end(rig: RunsRig):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(rig.work)
        os.execvpe(COMMAND[0], [*COMMAND, "run", "--", "sh", "-c", "echo up; sleep 60"], rig.environment)
    seen = b""
    while b"up" not in seen:
        seen += os.read(terminal, 4096)
    os.close(terminal)
    assert wait_for(lambda: os.waitpid(pid, os.WNOHANG)[0], 60)
    (row,) = rig.json("runs")
    assert (row["state"], row["reason"], row["signal"]) == ("stopped", "SIGHUP", signal.SIGHUP)
    assert list(rig.state.iterdir()) == []


def test_what_is_left_out_is_the_jobs_own(rig: RunsRig):
    """A pattern for outputs says nothing of logs and metrics."""
    rig.script("""
        echo hello
        for name in a.zst deep/b.zst c.txt checkpoints/1/d.zst; do
            mkdir -p $HEADRACE_OUTPUTS/$(dirname $name)
            echo $name > $HEADRACE_OUTPUTS/$name
        done
    """, "train.sh")  # fmt: skip
    rig.headrace("run", "-q", "--set", "outputs.exclude=*.zst", "--", "sh", "train.sh")
    assert rig.headrace("logs", "latest").stdout == "hello\n"
    names = [name for name in rig.names(rig.only()) if name.startswith(("outputs/", "checkpoints/"))]
    assert names == ["outputs/c.txt"]


def test_a_file_and_a_command(rig: RunsRig):
    (rig.work / "job.toml").write_text('name = "filed"\ncommand = "echo file"\n')
    assert rig.headrace("run", "-q", "job.toml").stdout == "file\n"
    assert rig.headrace("run", "-q", "job.toml", "--", "echo", "line").stdout == "line\n"
    words = ("run", "-q", "job.toml", "--name", "later", "--tag=a", "--", "echo", "--name", "x")
    assert rig.headrace(*words).stdout == "--name x\n", "options stand on either side of the file"
    assert [row["name"] for row in rig.json("runs")] == ["later", "filed", "filed"]
    assert "No such option" in rig.headrace("run", "job.toml", "--nam", "x", code=2).stderr


def test_mistakes_are_answered_in_a_line(rig: RunsRig):
    (rig.work / "job.toml").write_text('command = ["true"]\n\n[retry]\nattemps = 3\n')
    told = rig.headrace("run", "job.toml", code=2).stderr
    assert "job.toml:4" in told
    assert "'attempts'" in told
    assert "there is nothing to run" in rig.headrace("run", code=2).stderr
    rig.variables = {"HEADRACE_HOME": ""}
    assert "no home is set" in rig.headrace("run", "--", "true", code=2).stderr
    assert list(rig.scratch.glob("runs/*")) == []
