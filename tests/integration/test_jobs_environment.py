"""Environments as runs get them: real uv, no network; what is on disk, what commands find."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import headrace
from headrace.base.errors import DeadlineError, InputError, NotFoundError, UnreachableError, UnsupportedError
from headrace.jobs.environment import EnvironmentRequest, Node, prepare
from headrace.testing.servers import EmbeddedS3
from tests.children import running
from tests.environment_kit import Index, Project, driver, run, uv_program, wheel
from tests.runs_rig import RunsRig


@pytest.fixture(scope="module")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uv")


@pytest.fixture
def project(tmp_path: Path, uv_cache: Path) -> Project:
    if uv_program() is None:
        pytest.skip("the program uv is not installed: pip install uv")
    code = tmp_path / "code"
    code.mkdir()
    for version in ("1.0", "2.0"):
        body = f"VERSION = '{version}'\ndef main():\n    print('tiny', VERSION)\n"
        wheel(code / "wheels", "tinydep", version, {"tinydep.py": body}, script="tiny = tinydep:main")
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    inherited = {
        **kept,
        "PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin",
        "UV_CACHE_DIR": str(uv_cache),
        "UV_PYTHON_DOWNLOADS": "never",
    }
    return Project(code, Node(str(tmp_path / "cache"), inherited, deadline=60.0), [])


@pytest.fixture
def index(project: Project) -> Iterator[Index]:
    made = Index(project.code / "wheels")
    (project.code / "requirements.txt").write_text(f"--index-url {made.url}\ntinydep==1.0\n")
    yield made
    made.close()


def environments(project: Project) -> list[Path]:
    return sorted(path for path in Path(project.node.cache, "environments").glob("*") if path.is_dir())


def test_one_lock_is_built_once_and_another_lock_anew(project: Project):
    project.locked("tinydep==1.0")
    with project.prepare() as first:
        assert run(first, "tiny", folder=project.code) == "tiny 1.0"
        (folder,) = environments(project)
        assert run(first, "python", "-c", "import sys; print(sys.prefix)", folder=project.code) == str(folder)
        assert run(first, "sh", "-c", "echo $VIRTUAL_ENV $A", folder=project.code, A="b") == f"{folder} b"
    before = (os.stat(folder).st_ino, os.stat(folder).st_mtime_ns, os.stat(folder / "headrace.json").st_mtime_ns)
    with project.prepare() as again:
        assert again.environment == first.environment
    assert before == (
        os.stat(folder).st_ino,
        os.stat(folder).st_mtime_ns,
        os.stat(folder / "headrace.json").st_mtime_ns,
    )
    assert project.built() == 1
    project.locked("tinydep==2.0")
    with project.prepare() as other:
        assert run(other, "tiny", folder=project.code) == "tiny 2.0"
        assert other.environment.digest != first.environment.digest
    assert (project.built(), len(environments(project))) == (2, 2)
    assert first.environment.packages == ("tinydep==1.0",)
    assert (first.environment.kind, first.environment.lock) == ("venv", "uv.lock")
    assert first.environment.python is not None
    assert sys.implementation.name in first.environment.python


def test_a_requirements_file(project: Project):
    project.requires("tinydep==2.0")
    with project.prepare("requirements.txt") as made:
        assert run(made, "tiny", folder=project.code) == "tiny 2.0"
    (folder,) = environments(project)
    (folder / "bin/python").unlink()
    (folder / "bin/python").symlink_to("/nowhere/python")  # as when the one it was built on is removed
    with project.prepare("requirements.txt") as again:
        assert run(again, "tiny", folder=project.code) == "tiny 2.0"
    assert project.built() == 2


def test_what_a_requirements_file_cannot_say(project: Project):
    wheel(project.code / "wheels", "needy", "1.0", {"needy.py": ""}, needs="tinydep")
    for lines, told in (
        (["needy==1.0"], "does not name all"),
        (["nowhere==1.0"], "nowhere"),
        (["-r other.txt"], "line 3 reads another file"),
        (["-e ."], "line 3 installs a folder"),
    ):
        project.requires(*lines)
        with pytest.raises(InputError, match=told) as caught:
            project.prepare("requirements.txt")
        assert caught.value.hint
        assert caught.value.path == str(project.code / "requirements.txt")
    assert environments(project) == []


def test_lock_files_that_are_not_there_or_broken(project: Project):
    with pytest.raises(NotFoundError, match="lock file"):
        project.prepare()
    (project.code / "uv.lock").write_text("")
    with pytest.raises(NotFoundError, match=r"pyproject\.toml"):
        project.prepare()
    (project.code / "uv.lock").unlink()
    project.locked("tinydep==1.0")
    (project.code / "uv.lock").write_text("version = [")
    with pytest.raises(InputError, match="TOML"):
        project.prepare()
    (project.code / "uv.lock").unlink()
    project.locked("tinydep==1.0")
    with pytest.raises(NotFoundError, match=r"Python 3\.1"):
        project.prepare(python="3.1")


def test_two_at_once_build_once(project: Project):
    project.locked("tinydep==1.0")
    with driver(project, "uv.lock") as one, driver(project, "uv.lock") as two:
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        said = [process.communicate(timeout=60)[0].splitlines() for process in (one, two)]
    assert sum(line.startswith("said building") for lines in said for line in lines) == 1
    (folder,) = environments(project)
    assert [lines[-1].split()[:2] for lines in said] == [["ran", str(folder)]] * 2


def test_killed_half_way_nothing_is_left_that_counts(project: Project, index: Index):
    with driver(project, "requirements.txt") as process:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert index.asked.wait(60)
        children = psutil.Process(process.pid).children(recursive=True)
        for killed in (process, *children):
            killed.send_signal(signal.SIGKILL)
        process.wait()
        psutil.wait_procs(children, 10)
    assert children
    assert [path.name[:5] for path in environments(project)] == [".new-"], "it was not half-way: this proves nothing"
    index.open.set()
    with project.prepare("requirements.txt") as made:
        assert run(made, "tiny", folder=project.code) == "tiny 1.0"
    assert project.built() == 1
    assert [path.name for path in environments(project)] == [made.environment.digest.removeprefix("sha256:")]


def test_a_deadline_ends_it(project: Project, index: Index):
    project.node = dataclasses.replace(project.node, deadline=5.0)
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(DeadlineError):
        project.prepare("requirements.txt")
    assert index.asked.is_set()
    assert environments(project) == []
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_network_that_is_away_is_told_from_a_wrong_lock(project: Project, index: Index):
    index.close()
    project.node = dataclasses.replace(project.node, inherited={**project.node.inherited, "UV_HTTP_RETRIES": "0"})
    with pytest.raises(UnreachableError):
        project.prepare("requirements.txt")


def test_headrace_is_there_and_a_change_of_it_rebuilds_nothing(project: Project, tmp_path: Path):
    project.locked("tinydep==1.0")
    source = Path(headrace.__file__).parent
    ran: list[list[str]] = []
    present = headrace.__version__
    for version in (present, "77.0"):
        changed = tmp_path / version
        shutil.copytree(source, changed / "headrace", ignore=shutil.ignore_patterns("__pycache__"))
        face = changed / "headrace/__init__.py"
        face.write_text(face.read_text().replace(f'__version__ = "{present}"', f'__version__ = "{version}"'))
        with driver(project, "uv.lock", changed) as process:
            said = process.communicate("\n", timeout=60)[0].splitlines()
        ran.append(said[-1].split()[1:])
        assert any(line.startswith("said building") for line in said) == (version == present)
    (folder,) = environments(project)
    assert ran == [[str(folder), present], [str(folder), "77.0"]]


def test_what_the_environment_has_of_its_own_wins(project: Project):
    own = {"headrace.py": "OWN = True\n", "sitecustomize.py": "import sys\nsys.own_site = True\n"}
    wheel(project.code / "wheels", "own", "1.0", own)
    project.locked("own==1.0")
    told = "import sys, headrace; print(headrace.OWN, sys.own_site)"
    with project.prepare() as made:
        assert run(made, "python", "-c", told, folder=project.code) == "True True"


def test_nothing_else_comes_along(project: Project, tmp_path: Path):
    """Neither what headrace depends on, nor what the caller's own path has; but what the job asks for."""
    for name in ("callers", "jobs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.py").write_text("")
    project.requires()
    inherited = {**project.node.inherited, "PYTHONPATH": str(tmp_path / "callers"), "PYTHONHOME": "/nowhere"}
    project.node = dataclasses.replace(project.node, inherited=inherited)
    told = "import sys; from importlib.util import find_spec; "
    told += "print(sys.path[-1], *map(bool, map(find_spec, sys.argv[1:])))"
    with project.prepare("requirements.txt") as made:
        names = ("callers", "pyarrow", "jobs", "headrace")
        said = run(made, "python", "-c", told, *names, folder=project.code, PYTHONPATH=str(tmp_path / "jobs")).split()
        assert run(made, "python", "-c", told, "callers", folder=project.code).split()[1:] == ["False"]
        assert made.environment.packages == ()
    assert said[1:] == ["False", "False", "True", "True"]
    assert said[0].startswith(project.node.cache)
    assert os.listdir(said[0]) == ["headrace"]


def test_the_jobs_own_packages_are_found_but_not_installed(project: Project):
    for place, module in (("src/mine", "mine"), ("libs/flat/flat", "flat")):
        (project.code / place).mkdir(parents=True)
        (project.code / place / "__init__.py").write_text(f"NAME = '{module}'\n")
    system = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
    about = '[project]\nname = "flat"\nversion = "1"\nrequires-python = ">=3.9"\n'
    (project.code / "libs/flat/pyproject.toml").write_text(about + system)
    project.locked("flat", "tinydep==1.0", more=f'[tool.uv.sources]\nflat = {{ path = "libs/flat" }}\n{system}')
    told = "import mine, flat, tinydep, headrace; print(mine.NAME, flat.NAME, mine.__file__)"
    with project.prepare() as made:
        where = str(project.code / "src/mine/__init__.py")
        assert run(made, "python", "-c", told, folder=Path("/")) == f"mine flat {where}"
        assert made.environment.packages == ("tinydep==1.0",)


def test_without_uv_it_says_where_to_get_it(project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    project.locked()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda *_: str(tmp_path))
    project.node = dataclasses.replace(project.node, inherited={"PATH": str(tmp_path)})
    with pytest.raises(UnsupportedError, match="pip install uv"):
        project.prepare()


# headrace's own


def test_the_hosts_environment(tmp_path: Path):
    node = Node(
        str(tmp_path / "cache"), {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    )
    with prepare(EnvironmentRequest(), str(tmp_path), node, run="r") as made:
        told = made.environment
        assert run(made, "python", "-c", "import sys; print(sys.prefix)", folder=tmp_path) == sys.prefix
        with running(made.command(["sleep", "60"], folder="/", variables={}).argv) as sleeper:
            made.send(signal.SIGTERM, sleeper.send_signal)
        assert sleeper.returncode == -signal.SIGTERM
        made.stop()
    assert told.kind == "host"
    assert f"pytest=={pytest.__version__}" in told.packages
    assert not (tmp_path / "cache").exists()
    with prepare(EnvironmentRequest(), str(tmp_path), node, run="r") as again:
        assert again.environment == told
    with pytest.raises(InputError, match=r"Python 3\.1 is asked for"):
        prepare(EnvironmentRequest(python="3.1"), str(tmp_path), node, run="r")
    version = ".".join(map(str, sys.version_info[:2]))
    prepare(EnvironmentRequest(python=version), str(tmp_path), node, run="r").close()


def test_an_activated_environment_that_lacks_headrace(project: Project):
    project.locked("tinydep==1.0")
    with project.prepare() as other:
        activated = other.command(["true"], folder="/", variables={}).environment
    inherited = {name: value for name, value in activated.items() if name != "PYTHONPATH"}
    project.node = dataclasses.replace(project.node, inherited=inherited)
    with project.prepare(None) as made:
        assert (made.environment.kind, made.environment.packages) == ("host", ("tinydep==1.0",))
        told = "import headrace, tinydep; print(headrace.__version__, tinydep.VERSION)"
        assert run(made, "python", "-c", told, folder=project.code) == f"{headrace.__version__} 1.0"


@pytest.mark.server
def test_a_run_has_its_own_packages_and_headrace_only_laid_over(
    project: Project, seaweedfs: EmbeddedS3, tmp_path: Path
):
    """Its packages are the lock's alone: nothing that headrace depends on is there, and yet what it logs is kept."""
    rig = RunsRig(seaweedfs, tmp_path / "rig", {**project.node.inherited})
    project.locked("tinydep==1.0")
    shutil.rmtree(rig.work)
    shutil.copytree(project.code, rig.work)
    rig.script("""
        import importlib.util, sys, tinydep
        import headrace as hr
        for step in range(10):
            hr.log({"loss": 1 / (step + 1)}, step=step)
        print(tinydep.VERSION, importlib.util.find_spec("pyarrow"), sys.prefix)
    """)
    lock = ["--set", "environment.lock=uv.lock"]
    first = rig.headrace("run", *lock, "--id", "1", "--", "python", "train.py")
    assert first.stdout.startswith(f"1.0 None {rig.scratch / 'kept'}")
    assert "Traceback" not in first.stderr
    (loss,) = rig.json("metrics", "1")
    assert (loss["name"], loss["points"], loss["last"]) == ("loss", 10, 0.1)
    record = rig.json("runs", "show", "1")["record"]
    assert record["environment"]["packages"] == ["tinydep==1.0"]
    shutil.rmtree(rig.work)
    rig.work.mkdir()
    again = rig.headrace("rerun", "1", "--id", "2")
    assert again.stdout == first.stdout, "from the record alone, in the environment that was kept"
    assert "not as before: packages" not in again.stderr
    rig.close()
