"""Tasks in a job's file: what is refused, and where; what becomes of commands; how many fit on a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.base.errors import SettingError
from headrace.jobs import JobSpec, swept
from headrace.jobs.resources import Machine
from headrace.jobs.spec_parts import ResourceSpec
from headrace.jobs.task_graph import plan
from headrace.jobs.tasks.room import Room

JOB = """\
name = "digits"

[[task]]
name = "prepare"
command = ["python", "prepare.py"]

[[task]]
name = "train"
after = ["prepare"]
command = ["python", "train.py", "--lr={lr}", "{{lr}}", "{"]
[task.parameters]
lr = 0.1
"""


def job(tmp_path: Path, text: str = JOB) -> JobSpec:
    path = tmp_path / "job.toml"
    path.write_text(text)
    return JobSpec.load(path)


def test_it_is_read_recorded_and_read_again(tmp_path: Path) -> None:
    spec = job(tmp_path).check()
    assert [one.name for one in spec.task] == ["prepare", "train"]
    assert JobSpec.from_json(spec.as_json()) == spec
    prepare, train = plan(spec.task)
    assert (prepare.command, prepare.after) == (("python", "prepare.py"), ())
    assert (train.command, train.after) == (("python", "train.py", "--lr=0.1", "{lr}", "{"), (0,))


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('after = ["prepare"]', 'after = ["prepared"]', 9, "task[1].after[0]: 'prepared' is no task"),
        ('after = ["prepare"]', 'after = ["train"]', 9, "task[1].after: goes in a circle: train after train"),
        ('name = "prepare"\n', 'name = "prepare"\nafter = ["train"]\n', (5, 10), "goes in a circle"),
        ('name = "train"', 'name = "Prepare"', 8, "task[1].name: 'Prepare' is too much like 'prepare'"),
        ('name = "train"', "", 7, "task[1].name: is missing"),
        ("--lr={lr}", "--lr={rl}", 10, "task[1].command[2]: {rl} is no parameter of the task"),
        ("--lr={lr}", "--lr=1", 12, "task[1].parameters.lr: is not used"),
        ("lr = 0.1", "lr = []", 12, "task[1].parameters.lr: is empty"),
        ("lr = 0.1", "lr = [1, 1]", 12, "task[1].parameters.lr: names 1 twice"),
        ("lr = 0.1", "lr = 1979-05-27", 12, "task[1].parameters.lr: is a date or a time, not text"),
        ('after = ["prepare"]', 'inputs = ["no"]', 9, "task[1].inputs[0]: 'no' is no input of the job"),
        ('name = "digits"', 'command = "true"', 1, "command: is said of each task"),
        ('name = "digits"', "retry = { attempts = 2 }", 1, "retry: is said of each task"),
    ],
)
def test_a_mistake_is_answered_with_its_line(
    tmp_path: Path, old: str, new: str, line: int | tuple[int, ...], said: str
) -> None:
    assert JOB.count(old) == 1
    with pytest.raises(SettingError) as caught:
        job(tmp_path, JOB.replace(old, new))
    assert said in str(caught.value)
    lines = [line] if isinstance(line, int) else line
    assert caught.value.path in [f"{tmp_path}/job.toml:{one}" for one in lines]


def test_a_sweep_gives_parameters_their_values(tmp_path: Path) -> None:
    spec = swept(job(tmp_path), [("lr", "1,2")])
    assert [one.label for one in plan(spec.task)] == ["prepare", "train lr=1", "train lr=2"]
    for sweeps, said in (
        ([("rl", "1")], "no task has such a parameter"),
        ([("lr", "1"), ("lr", "2")], "is given twice"),
        ([("lr", "3..1")], "holds nothing"),
        ([("lr", "0.1..0.5")], "is no range"),
        ([("lr", "1..100000")], "more than 1000 values"),
        ([("lr", "1,,2")], "has an empty value"),
    ):
        with pytest.raises(SettingError, match=said):
            swept(job(tmp_path), sweeps)


def test_a_command_is_swept_without_a_file() -> None:
    one = JobSpec.from_command(["sh", "-c", "echo {lr} ${x}"]).with_flags({"retry.attempts": 3, "time_limit": "1h"})
    assert swept(one, []) == one, "without parameters it stays as it is"
    with pytest.raises(SettingError, match=r"\{x\} is no parameter"):
        swept(one, [("lr", "1")])
    spec = swept(JobSpec(command="train --lr {lr} '{{}}'", retry=one.retry, time_limit=5.0), [("lr", "1,a b")])
    assert [one.command for one in plan(spec.task)] == ["train --lr 1 '{}'", "train --lr 'a b' '{}'"]
    (task,) = spec.task
    assert (task.retry, task.time_limit) == (one.retry, 5.0), "what is said of the command is said of the task"
    assert (spec.retry.attempts, spec.time_limit, spec.name) == (1, None, "train")


def test_a_command_without_parameters_stays_as_it_is(tmp_path: Path) -> None:
    spec = job(tmp_path, JOB.replace("prepare.py", "{x} {{ }}"))
    assert plan(spec.task)[0].command == ("python", "{x} {{ }}")


def test_as_many_fit_as_the_machine_allows() -> None:
    machine = Machine((0, 1, 2, 3), ("0", "1"))
    nothing, two, gpu = ResourceSpec(), ResourceSpec(cpus=2), ResourceSpec(gpus=1)
    alone = Room(machine, None)
    assert alone.fits(nothing, [])
    assert not alone.fits(nothing, [two])
    assert not alone.fits(two, [nothing])
    assert alone.fits(two, [two])
    assert not alone.fits(two, [two, two])
    assert alone.fits(gpu, [gpu, two])
    assert not alone.fits(gpu, [gpu, gpu])
    assert not alone.fits(ResourceSpec(gpus=(0,)), [ResourceSpec(gpus=(0,))])
    assert alone.fits(ResourceSpec(gpus=(0,)), [ResourceSpec(gpus=(1,))])
    most = Room(machine, 2)
    assert most.fits(nothing, [nothing])
    assert not most.fits(nothing, [nothing, nothing])
    assert not most.fits(two, [ResourceSpec(cpus=3)])
    assert Room(None, 3).fits(ResourceSpec(cpus=100), [ResourceSpec(cpus=100)] * 2)
