"""What a job is: read from a file, from flags, from a record; and every mistake with its file, line and field."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import InputError, NotFoundError, SettingError, UnsupportedError
from headrace.jobs.outputs import sync_options
from headrace.jobs.spec import (
    CodeSpec,
    EnvironmentSpec,
    InputSpec,
    JobSpec,
    OutputSpec,
    ResourceSpec,
    RetrySpec,
    override,
)
from headrace.jobs.spec_checks import input_variable
from headrace.jobs.spec_parts import ClassSpec

PAGE = Path(__file__).parents[2] / "docs/reference/job.md"
DIGEST = "a" * 64
FULL = """\
name = "digits"
command = ["python", "train.py", "--lr", "0.1"]
folder = "src"
time_limit = "2h"
grace = "5s"
tags = { team = "vision" }
processes = "auto"

[inputs]
train = "imagenet@v3"
valid = { source = "/training-data/valid", as = "mount" }

[inputs.extra]
source = "s3://bucket/prefix"
as = "copy"

[code]
path = ".."
limit = "1GiB"
capture = false

[environment]
lock = "uv.lock"
python = "3.11"
variables = { OMP_NUM_THREADS = "2", TOKEN = "hunter2" }
pass = ["WANDB_*", "HOME"]
record = ["OMP_*"]

[outputs]
checkpoints = ["ckpt/*"]
period = 2.5
bandwidth = "10MB"
exclude = ["*.bak"]
drain = "1min"
requests = 500

[outputs.classes]
pictures = "*.png"
weights = { patterns = ["*.w", "deep/*"], at_least = "1MB", period = "10min", when_closed = true }

[retry]
attempts = 3
exit_codes = [75, 137]
log_patterns = ["CUDA error"]
backoff = "2s"

[resources]
cpus = 4
memory = "8GB"
gpus = [0, 2]
"""
CLASSES = {"pictures": ClassSpec(("*.png",)), "weights": ClassSpec(("*.w", "deep/*"), 10**6, 600.0, when_closed=True)}
SPEC = JobSpec(
    name="digits",
    command=("python", "train.py", "--lr", "0.1"),
    folder="src",
    time_limit=7200.0,
    grace=5.0,
    tags={"team": "vision"},
    processes="auto",
    inputs={
        "train": InputSpec("imagenet@v3"),
        "valid": InputSpec("/training-data/valid", "mount"),
        "extra": InputSpec("s3://bucket/prefix", "copy"),
    },
    code=CodeSpec(path="..", limit=1 << 30, capture=False),
    environment=EnvironmentSpec(
        lock="uv.lock",
        python="3.11",
        variables={"OMP_NUM_THREADS": "2", "TOKEN": "hunter2"},
        pass_=("WANDB_*", "HOME"),
        record=("OMP_*",),
    ),
    outputs=OutputSpec(("ckpt/*",), 2.5, 10_000_000, ("*.bak",), 60.0, 500, CLASSES),
    retry=RetrySpec(3, (75, 137), ("CUDA error",), 2.0),
    resources=ResourceSpec(4, 8_000_000_000, (0, 2)),
)


def load(tmp_path: Path, text: str) -> JobSpec:
    path = tmp_path / "job.toml"
    path.write_bytes(text.encode())
    return JobSpec.load(path)


def test_every_field_is_read(tmp_path: Path):
    assert load(tmp_path, FULL) == SPEC


def test_classes_of_outputs_are_for_outputs_alone():
    options = sync_options(SPEC.outputs)
    named = {
        "outputs/a.png": "pictures", "outputs/in/a.png": "pictures", "checkpoints/7/a.png": "pictures",
        "outputs/deep/x": "small", "logs/stdout/a.png": "small", "metrics/x.w": "small",
    }  # fmt: skip
    assert {name: options.class_of(name, 10).name for name in named} == named
    large = ("outputs/a.w", "outputs/deep/x", "checkpoints/7/m.w")
    assert [options.class_of(name, 10**6).name for name in large] == ["weights"] * 3
    weights = options.class_of("outputs/a.w", 10**6)
    assert (weights.period, weights.when_closed, options.requests) == (600.0, True, 500)
    assert options.class_of("outputs/x.log", 1).period == 2.5
    assert options.class_of("outputs/x.pt", 1).period == 600.0, "of headrace's own, and of closed files"


def test_what_is_left_out_has_its_default(tmp_path: Path):
    assert load(tmp_path, "") == JobSpec()
    default = JobSpec()
    assert (default.folder, default.grace, default.time_limit, default.processes) == (".", 30.0, None, 1)
    assert default.environment.pass_ == ("*",)
    assert (default.outputs.period, default.outputs.drain, default.outputs.bandwidth) == (5.0, 600.0, 0)
    assert (default.code.folder, default.code.checkout, default.code.limit) == (".", None, 100_000_000)
    assert (default.retry.attempts, default.resources.gpus, default.resources.memory) == (1, "all", 0)


def test_the_pages_example_parses(tmp_path: Path):
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    spec = load(tmp_path, example).check()
    assert (spec.name, spec.retry.attempts, spec.resources.gpus) == ("digits", 3, (0, 1))


def test_a_job_is_frozen():
    with pytest.raises(AttributeError):
        SPEC.name = "x"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        SPEC.retry.attempts = 2  # type: ignore[misc]


def test_a_job_of_a_command():
    spec = JobSpec.from_command(["python", "a b.py", ""])
    assert spec == JobSpec(command=("python", "a b.py", ""))
    assert spec.argv == ("python", "a b.py", "")
    assert JobSpec(command="a | b").argv == ("sh", "-c", "a | b")
    for nothing in ([], [""], ["a\0b"]):
        with pytest.raises(InputError, match="command"):
            JobSpec.from_command(nothing)


@pytest.mark.parametrize(
    ("command", "title"),
    [
        (("python", "train.py", "--lr", "1"), "train"),
        (("/usr/bin/python3", "-u", "src/my train.py"), "my-train"),
        (("python", "-m", "pkg.train", "-m"), "pkg.train"),
        (("torchrun", "--nproc-per-node", "2", "train.py"), "train"),
        (("/opt/bin/simulate", "x"), "simulate"),
        ("A=1 python train.py | tee log", "train"),
        ("echo 'unclosed", "echo"),
        (("...",), "job"),
        (("x" * 300,), "x" * 100),
    ],
)
def test_a_name_from_the_command(command: Any, title: str):
    spec = JobSpec(command=command)
    assert spec.title == title
    assert JobSpec(name=title).title == title, "it is a name"
    assert JobSpec(name="mine", command=command).title == "mine"


MISTAKES = [
    # the line that is wrong, what the message must hold
    ("comand = 'x'", "comand: is not a known key (did you mean 'command'?)"),
    ("gpus = 1", "did you mean 'resources.gpus'?"),
    ("[retry]\n!atempts = 1", "retry.atempts: is not a known key (did you mean 'attempts'?)"),
    ("[inputs.x]\nsource = 'a'\n!kind = 'copy'", "inputs.x.kind: is not a known key"),
    ("command = []", "command: is empty"),
    ("command = ''", "command: is empty"),
    ("command = ' '", "command: is empty"),
    ("command = [\n'a',\n!3]", "command[1]: is a number, not text"),
    ("command = ['']", "command[0]: is empty"),
    ("command = ['a\\u0000b']".replace("'", '"'), "command[0]: holds a NUL"),
    ("name = 5", "name: is a number, not text"),
    ("name = 'a/b'", "name: 'a/b' is not a name"),
    ("name = ''", "name: '' is not a name"),
    ("name = '..'", "name: '..' is not a name"),
    ("folder = '/tmp'", "folder: '/tmp' leads out"),
    ("folder = 'a/../..'", "folder: 'a/../..' leads out"),
    ("folder = ''", "folder: is empty"),
    ("time_limit = '2 weeks'", "time_limit: '2 weeks' is not a duration"),
    ("time_limit = 0", "time_limit: is out of range"),
    ("time_limit = inf", "time_limit: is out of range"),
    ("time_limit = nan", "time_limit"),
    ("time_limit = true", "time_limit: is true or false, not a duration"),
    ("grace = -1", "grace: -1 is negative"),
    ("grace = 1979-05-27", "grace: is a date or a time"),
    ("tags = 'x'", "tags: is text, not a table"),
    ("tags = { team = 1 }", "tags.team: is a number, not text (put it in quotes)"),
    ("tags = { 'a b' = 'x' }", "tags.\"a b\": 'a b' is not a name"),
    ("processes = 0", "processes: is out of range: at least 1"),
    ("processes = 'two'", "processes: 'two' is neither a number nor 'auto'"),
    ("[[inputs]]\nx = 1", "inputs: is a list, not a table"),
    ("[inputs]\n!1st = 'a'", "inputs.1st: '1st' is not an input's name"),
    ("[inputs]\na-b = 'x'\n!A_B = 'y'", "inputs.A_B: shares its variable HEADRACE_INPUT_A_B with 'a-b'"),
    ("[inputs]\n!a = './data'", "inputs.a.source: './data' is not a snapshot's name"),
    ("[inputs]\n!a = 3", "inputs.a: is a number, not a table"),
    ("[inputs]\n!a = {as = 'copy'}", "inputs.a.source: is missing"),
    ("[inputs]\n!a = 's3://key:secret@bucket/x'", "holds credentials"),
    ("[inputs.a]\nsource = 'x'\n!as = 'link'", "inputs.a.as: 'link' is none of name, mount, copy"),
    ("[code]\npath = '.'\n!git = 'https://h/r@v1'", "code.git: excludes 'path'"),
    ("[code]\n!git = 'https://host/repo.git'", "code.git: is not URL@REF"),
    ("[code]\n!git = 'https://host/repo@-x'", "code.git: is not URL@REF"),
    ("[code]\n!git = '-u@x'", "code.git: is not URL@REF"),
    ("[code]\n!git = 'ext::sh@x'", "code.git: is not URL@REF"),
    ("[code]\n!git = 'https://token@host/repo@v1'", "code.git: holds credentials"),
    ("[code]\n!git = 'ssh://me:pw@host/repo@v1'", "code.git: holds a password"),
    ("[code]\n!limit = '5 apples'", "code.limit: '5 apples' is not a size"),
    ("[code]\n!limit = 1.5", "code.limit: is a number, not a size"),
    ("[code]\n!capture = 'no'", "code.capture: is text, not true or false"),
    ("[environment]\nlock = 'uv.lock'\n!image = 'a'", "environment.image: excludes 'lock'"),
    ("[environment]\n!lock = '../uv.lock'", "environment.lock: '../uv.lock' leads out"),
    ("[environment]\n!image = 'a@sha256:12'", "environment.image: 'a@sha256:12' is not an image"),
    ("[environment]\nlock = 'uv.lock'\n!python = 3.11", "environment.python: is a number, not text"),
    ("[environment]\nlock = 'uv.lock'\n!python = 'new'", "environment.python: 'new' is not a version"),
    ("[environment]\n!python = '3.11'", "environment.python: is for an environment made of a lock file"),
    ("[environment.variables]\n!A-B = 'x'", "environment.variables.A-B: 'A-B' is not a variable's name"),
    ("[environment]\n!pass = ['A=1']", "environment.pass[0]: has a value"),
    ("[environment]\n!record = ['A B']", "environment.record[0]: 'A B' is not a pattern"),
    ("[outputs]\n!checkpoints = ['/abs/*']", "outputs.checkpoints[0]: '/abs/*' leads out"),
    ("[outputs]\n!period = 0", "outputs.period: is out of range"),
    ("[outputs]\n!bandwidth = '-1'", "outputs.bandwidth: '-1' is not a size"),
    ("[retry]\n!attempts = 0", "retry.attempts: is out of range: at least 1"),
    ("[retry]\n!attempts = true", "retry.attempts: is true or false, not a whole number"),
    ("[retry]\nexit_codes = [\n1,\n!256]", "retry.exit_codes[1]: is out of range: at most 255"),
    ("[retry]\n!exit_codes = 75", "retry.exit_codes: is a number, not a list"),
    ("[retry]\n!log_patterns = ['a', '(']", "retry.log_patterns[1]: is no regular expression: missing ), "),
    ("[retry]\n!log_patterns = ['a{99999999999}']", "retry.log_patterns[0]: is no regular expression"),
    ("[resources]\n!cpus = 1.0", "resources.cpus: is a number, not a whole number"),
    ("[resources]\n!memory = 99999999999999999999999", "resources.memory: is out of range"),
    ("[resources]\n!gpus = 'some'", "resources.gpus: 'some' is neither a number nor 'all'"),
    ("[resources]\n!gpus = [0, 0]", "resources.gpus: names a GPU twice"),
    ("[resources]\n!gpus = -1", "resources.gpus: is out of range"),
    ("resources = []", "resources: is a list, not a table"),
]


@pytest.mark.parametrize(("text", "wanted"), MISTAKES, ids=[text[-40:] for text, _ in MISTAKES])
def test_a_mistake_is_answered_with_file_line_and_field(tmp_path: Path, text: str, wanted: str):
    body = f"# a job\n\n{text}"
    lines = body.split("\n")
    marked = [number for number, line in enumerate(lines, start=1) if line.startswith("!")]
    with pytest.raises(SettingError) as caught:
        load(tmp_path, "\n".join(line.removeprefix("!") for line in lines))
    assert caught.value.path == f"{tmp_path}/job.toml:{marked[0] if marked else 3}"
    assert wanted in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "wanted"),
    [
        ("name = 'a'\nname = 'b'\n", 2, "name: is written twice, first on line 1"),
        ("[retry]\nattempts = 1\n\n[code]\n[retry]\n", 5, "retry: is written twice, first on line 1"),
        ("tags = {a = '1'}\n\ntags.b = '2'\n", 3, "tags.b: is written twice, first on line 1"),
        ("tags = {a = '1',\n", 1, "is not valid TOML"),
        ("tags = {a = '1', a = '2'}\n", 1, "tags.a: is written twice, first on line 1"),
        ("a.b = '1'\n# x\na = 2\n", 3, "a: is written twice, first on line 1"),
        ("\nname = \n", 2, "is not valid TOML: Invalid value, column 8"),
        ("name = 'a'\n\ncommand = 'python\n", 3, "is not valid TOML"),
        ("name = 'a'\ncommand = ['python'\n\n\n", 2, "is not valid TOML"),
        ("name = 'a'\nfolder 'b'\n", 2, "is not valid TOML: Expected '='"),
        ("name = \\u00ff", 1, "is not valid TOML"),
    ],
)
def test_what_is_not_toml(tmp_path: Path, text: str, line: int, wanted: str):
    with pytest.raises(SettingError) as caught:
        load(tmp_path, text)
    assert caught.value.path == f"{tmp_path}/job.toml:{line}"
    assert wanted in str(caught.value)


def test_what_is_no_job_file(tmp_path: Path):
    with pytest.raises(NotFoundError, match="no such job file"):
        JobSpec.load(tmp_path / "missing.toml")
    with pytest.raises(SettingError, match="cannot be read: Is a directory"):
        JobSpec.load(tmp_path)
    path = tmp_path / "job.toml"
    path.write_bytes(b"name = 'a'\ntags = {}\n# \xff\n")
    with pytest.raises(SettingError, match="UTF-8") as caught:
        JobSpec.load(path)
    assert caught.value.path == f"{path}:3"
    for text, wanted in (("# " + "x" * (1 << 20), "1 MiB"), ("a = " + "[" * 20_000, "too deeply"),
                         ("cpus = " + "9" * 5000, "is not valid TOML")):  # fmt: skip
        with pytest.raises(SettingError, match=wanted):
            load(tmp_path, text)


def test_parts_are_checked_wherever_they_are_made():
    for make in (
        lambda: RetrySpec(attempts=0),
        lambda: InputSpec("no name"),
        lambda: CodeSpec(path=".", git="https://h/r@v"),
        lambda: ResourceSpec(gpus=(1, 1)),
        lambda: JobSpec(folder=".."),
        lambda: EnvironmentSpec(variables={"A": 1}),  # type: ignore[dict-item]
    ):
        with pytest.raises(SettingError):
            make()


def test_an_error_survives_pickling(tmp_path: Path):
    with pytest.raises(SettingError) as caught:
        load(tmp_path, "[retry]\nattempts = 0")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("git", "parts"),
    [
        ("https://host/repo.git@v1.2", ("https://host/repo.git", "v1.2")),
        ("ssh://git@host:22/repo@feature/x", ("ssh://git@host:22/repo", "feature/x")),
        ("git@host:team/repo.git@main", ("git@host:team/repo.git", "main")),
        ("file:///srv/repo@0123abc", ("file:///srv/repo", "0123abc")),
        ("/srv/repo@main", ("/srv/repo", "main")),
        ("https://host/a@b/repo@v1", ("https://host/a@b/repo", "v1")),
    ],
)
def test_a_checkout(git: str, parts: tuple[str, str]):
    assert CodeSpec(git=git).checkout == parts
    assert CodeSpec(git=git).folder is None


@pytest.mark.parametrize("git", ["ssh://git@host", "git@host:repo", "https://host@v1", "repo@v1", "https://h/r@a:b"])
def test_no_checkout(git: str):
    with pytest.raises(SettingError, match="URL@REF"):
        CodeSpec(git=git)


FLAGS: list[tuple[dict[str, object], str, object]] = [
    ({"retry.attempts": "5"}, "retry.attempts", 5),
    ({"retry.exit_codes": "1"}, "retry.exit_codes", (1,)),
    ({"retry.exit_codes": "[1, 2]"}, "retry.exit_codes", (1, 2)),
    ({"retry.log_patterns": "OOM, again"}, "retry.log_patterns", ("OOM, again",)),
    ({"retry.log_patterns": '["[a-z]", "b"]'}, "retry.log_patterns", ("[a-z]", "b")),
    ({"retry.backoff": ""}, "retry.backoff", 10.0),
    ({"time_limit": "30m"}, "time_limit", 1800.0),
    ({"time_limit": ""}, "time_limit", None),
    ({"command": "a | b"}, "command", "a | b"),
    ({"command": '["a", "b"]'}, "command", ("a", "b")),
    ({"command": ("x", "y")}, "command", ("x", "y")),
    ({"code.capture": "yes"}, "code.capture", True),
    ({"code.path": "", "code.git": "https://h/r@v1"}, "code.git", "https://h/r@v1"),
    ({"environment.lock": "", "environment.python": "", "environment.image": "a"}, "environment.image", "a"),
    ({"environment.variables.TOKEN": "new=1"}, "environment.variables.TOKEN", "new=1"),
    ({"environment.variables.TOKEN": ""}, "environment.variables.TOKEN", ""),
    ({"environment.pass": "[]"}, "environment.pass_", ()),
    ({"tags.a.b": "x"}, "tags", {"team": "vision", "a.b": "x"}),
    ({"inputs.valid": "imagenet@v9"}, "inputs.valid", InputSpec("imagenet@v9", "mount")),
    ({"inputs.valid.as": "copy"}, "inputs.valid", InputSpec("/training-data/valid", "copy")),
    ({"inputs.new": "/x"}, "inputs.new", InputSpec("/x")),
    ({"inputs.valid": "", "inputs.extra": ""}, "inputs", {"train": InputSpec("imagenet@v3")}),
    ({"resources.gpus": "0,3"}, "resources.gpus", (0, 3)),
    ({"resources.gpus": "2"}, "resources.gpus", 2),
    ({"resources.gpus": "[2]"}, "resources.gpus", (2,)),
    ({"resources.gpus": "all"}, "resources.gpus", "all"),
    ({"processes": "auto"}, "processes", "auto"),
    ({"processes": "4"}, "processes", 4),
    ({"resources.memory": "1GiB"}, "resources.memory", 1 << 30),
]


def walk(spec: object, name: str) -> object:
    for part in name.split("."):
        spec = spec[part] if isinstance(spec, Mapping) else getattr(spec, part)
    return spec


@pytest.mark.parametrize(("flags", "name", "wanted"), FLAGS, ids=[str(one[0]) for one in FLAGS])
def test_flags_replace_values_of_the_file(flags: dict[str, object], name: str, wanted: object):
    made = SPEC.with_flags(flags)
    assert walk(made, name) == wanted
    assert made == override(SPEC, flags)
    assert SPEC.retry.attempts == 3
    if list(flags) == ["retry.attempts"]:
        assert made == JobSpec.from_json({**SPEC.as_json(), "retry": {**SPEC.as_json()["retry"], "attempts": 5},
                                          "environment": {**SPEC.as_json()["environment"],
                                                          "variables": dict(SPEC.environment.variables)}})  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({"retry.attempt": "1"}, "retry.attempt: is not a known key (did you mean 'attempts'?)"),
        ({"attempts": "1"}, "did you mean 'retry.attempts'?"),
        ({"retry": "1"}, "retry: is a table"),
        ({"inputs": "1"}, "inputs: is a table"),
        ({"tags.": "1"}, "tags: is a table"),
        ({"name.x": "1"}, "name: is no table"),
        ({"retry.attempts": "many"}, "retry.attempts: is text, not a whole number"),
        ({"retry.exit_codes": "[1"}, "retry.exit_codes: is no list in TOML"),
        ({"inputs.a.b.c": "1"}, "inputs.a.b: is not a known key"),
        ({"inputs.a.as": "copy"}, "inputs.a.source: is missing"),
        ({"code.git": "https://h/r@v1"}, "code.git: excludes 'path'"),
        ({"code.capture": "perhaps"}, "code.capture: is text, not true or false"),
        ({"environment.variables.TOKEN": 5}, "environment.variables.TOKEN: is a number, not text"),
    ],
)
def test_mistakes_in_flags(flags: dict[str, object], wanted: str):
    with pytest.raises(SettingError) as caught:
        SPEC.with_flags(flags)
    assert wanted in str(caught.value)


def test_a_file_without_a_command_needs_one(tmp_path: Path):
    spec = load(tmp_path, "name = 'shared'")
    with pytest.raises(SettingError, match="command: is missing"):
        spec.check()
    assert (spec.argv, spec.title) == ((), "shared")
    assert spec.with_flags({"retry.attempts": "2"}).command is None
    assert spec.with_flags({"command": ["a"]}).check().argv == ("a",)


def test_secrets_are_in_no_record_and_no_repr(tmp_path: Path):
    assert SPEC.environment.variables["TOKEN"] == "hunter2"
    for told in (repr(SPEC), str(SPEC), f"{SPEC.environment!r}", json.dumps(SPEC.as_json())):
        assert "hunter2" not in told
        assert "TOKEN" in told
    assert SPEC.as_json()["environment"]["variables"] == {"OMP_NUM_THREADS": "2", "TOKEN": None}
    assert "OMP_NUM_THREADS': '2'" in repr(SPEC)
    for text in ("variables = { TOKEN = ['hunter2'] }", "variables = { TOKEN = 'hunter2', TOKEN = 'hunter3' }",
                 'variables = { TOKEN = "hunter2\\u0000" }', "variables = 'hunter2'"):  # fmt: skip
        with pytest.raises(SettingError) as caught:
            load(tmp_path, f"[environment]\n{text}")
        assert "hunter" not in str(caught.value)


def test_what_was_not_recorded_is_asked_for_again():
    again = JobSpec.from_json(json.loads(json.dumps(SPEC.as_json())))
    assert again.environment.missing == ("TOKEN",)
    assert again.environment.variables == {"OMP_NUM_THREADS": "2", "TOKEN": None}
    with pytest.raises(SettingError, match="TOKEN: not recorded"):
        again.check()
    assert again.with_flags({"environment.variables.TOKEN": "hunter2"}).check() == SPEC


def _holds(told: object, value: object) -> bool:
    """Whether it is the same, but for keys of tables that are told besides."""
    if isinstance(value, dict) and isinstance(told, dict):
        return all(name in told and _holds(told[name], one) for name, one in value.items())
    return told == value


def test_a_record_of_this_format_stays_readable():
    """As version 1 wrote it. Never to be changed."""
    record = {
        "format": 1, "name": None, "command": ["python", "train.py"], "folder": ".", "time_limit": 7200.0,
        "grace": 30.0, "tags": {"a": "b"}, "processes": 1, "inputs": {"train": {"source": "i@v3", "as": "name"}},
        "code": {"path": None, "git": None, "limit": 100000000, "ignore": [], "capture": True},
        "environment": {"lock": None, "image": None, "python": None, "variables": {"A": None}, "pass": ["*"],
                        "record": []},
        "outputs": {"checkpoints": ["checkpoints/*"], "period": 5.0, "bandwidth": 0, "exclude": [], "drain": 600.0},
        "retry": {"attempts": 1, "exit_codes": [75], "log_patterns": ["x"], "backoff": 10.0},
        "resources": {"cpus": 0, "memory": 0, "gpus": "all"},
    }  # fmt: skip
    spec = JobSpec.from_json(record)
    told = spec.as_json()
    for key, value in record.items():  # later fields have their defaults
        assert _holds(told[key], value), key
    assert (spec.command, spec.inputs["train"], spec.retry.exit_codes) == (
        ("python", "train.py"), InputSpec("i@v3"), (75,),
    )  # fmt: skip


def test_records_that_are_none(tmp_path: Path):
    good = SPEC.as_json()
    with pytest.raises(UnsupportedError, match="format 2"):
        JobSpec.from_json({**good, "format": 2, "new": 1}, path="s3://b/run.json")
    for bad in ({}, {**good, "format": "1"}, {**good, "format": True}, {**good, "new": 1}, {**good, "retry": None},
                {**good, "processes": 0}):  # fmt: skip
        with pytest.raises(SettingError) as caught:
            JobSpec.from_json(bad, path="s3://b/run.json")
        assert caught.value.path == "s3://b/run.json"


def test_when_it_is_tried_again():
    either = RetrySpec(attempts=9, exit_codes=(75,), log_patterns=("x",), backoff=10.0)
    assert [either.wants(*one, matched=found) for one, found in (((75,), False), ((1,), True), ((1,), False))] == [
        True, True, False,
    ]  # fmt: skip
    assert RetrySpec().wants(1, matched=False)
    assert not RetrySpec().wants(0, matched=True)
    assert not RetrySpec(log_patterns=("x",)).wants(1, matched=False)
    assert [either.pause(made) for made in (1, 2, 3, 7, 8, 10_000)] == [10, 20, 40, 600, 600, 600]
    assert RetrySpec(backoff=0.0).pause(5) == 0


def test_the_variable_of_an_input():
    assert input_variable("my-train_2") == "HEADRACE_INPUT_MY_TRAIN_2"
