"""Commands in images, under a real podman: exit codes, signals, terminal, files, variables; and what is left of them.

The image holds busybox and the Python that runs the tests. With HEADRACE_TEST_DEBOOTSTRAP=1 the same is done with a
Debian made by debootstrap, which takes a minute or more, and Debian's mirror.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pty
import shutil
import signal
import stat
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

import headrace
from headrace.base.errors import InputError, NotFoundError, UnsupportedError
from headrace.jobs import Exit, JobSpec, ShellRequest, shell
from headrace.jobs.environment import Bind, Environment, EnvironmentRequest, Node, Prepared, prepare, stop_container
from headrace.namespace.home import Home
from headrace.store import open_store
from headrace.testing.servers import EmbeddedS3
from headrace.tracking.record import RunRecord, now
from headrace.tracking.runs import Run
from tests.environment_kit import Podman, debian_tar, image_tar
from tests.mount_rig import need_fuse
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for

IMAGE = "localhost/headrace-test:1"
KINDS = ["small", "debian"] if os.environ.get("HEADRACE_TEST_DEBOOTSTRAP") else ["small"]


@pytest.fixture(scope="module", params=KINDS)
def podman(request: pytest.FixtureRequest) -> Iterator[Podman]:
    program, busybox = shutil.which("podman"), shutil.which("busybox")
    if program is None or busybox is None:
        pytest.skip("podman or busybox is not installed: apt install podman runc catatonit busybox-static")
    made = Podman.alone(program)
    tar = debian_tar() if request.param == "debian" else image_tar(busybox)
    odd = ["ENV=PYTHONPATH=/own", 'ENTRYPOINT=["/bin/false"]', "USER=1234", "WORKDIR=/etc"]
    made("import", *(word for one in odd for word in ("--change", one)), "-", IMAGE, given=tar)
    yield made
    made.close()


@pytest.fixture(scope="module")
def node(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(str(tmp_path_factory.mktemp("cache")), podman.environ, deadline=60.0)


@pytest.fixture(scope="module")
def image(node: Node) -> Iterator[Prepared]:
    with prepare(EnvironmentRequest(image=IMAGE), "/", node, run="one") as made:
        yield made
        made.stop()


def start(image: Prepared, *argv: str, binds: Sequence[Bind] = (), folder: str = "/", **variables: str):
    made = image.command(argv, folder=folder, variables=variables, binds=binds)
    return subprocess.Popen(
        made.argv, env=made.environment, cwd=made.folder,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(image: Prepared, *argv: str, given: str = "", **more):
    """(exit code, standard output, standard error) of a command in it."""
    process = start(image, *argv, **more)
    out, err = process.communicate(given, timeout=60)
    return process.returncode, out, err


def containers(podman: Podman) -> str:
    return podman("ps", "--all", "--quiet")


def test_it_starts_here_with_all_that_a_command_should_have(image: Prepared):
    assert image.notes == ()


def test_streams_and_exit_code_pass(image: Prepared, podman: Podman):
    code, out, err = run(image, "sh", "-c", "cat; echo err >&2; exit 7", given="in\n")
    assert (code, out, err) == (7, "in\n", "err\n")
    assert run(image, "sh", "-c", "kill -9 $$")[0] == 128 + 9
    assert containers(podman) == ""


def test_a_signal_reaches_the_command(image: Prepared):
    """As the first process of a container it would be spared by default."""
    for script, code in (("echo up; sleep 30", 128 + 15), ("trap 'exit 9' TERM; echo up; sleep 30 & wait", 9)):
        process = start(image, "sh", "-c", script)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        began = time.monotonic()
        image.send(signal.SIGTERM, process.send_signal)
        assert process.wait(20) == code
        assert time.monotonic() - began < 10
        process.communicate()


def test_files_are_the_callers_and_the_code_cannot_be_changed(image: Prepared, tmp_path: Path):
    code, outputs = tmp_path / "code", tmp_path / "out puts"
    code.mkdir()
    outputs.mkdir()
    (code / "file").write_text("from the code\n")
    binds = [Bind(str(code)), Bind(str(outputs), "/outputs", writable=True)]
    script = "cat file; pwd; echo made > /outputs/made; touch changed"
    status, out, err = run(image, "sh", "-c", script, folder=str(code), binds=binds)
    assert status != 0
    assert "Read-only" in err
    assert out == f"from the code\n{code}\n"
    assert (outputs / "made").read_text() == "made\n"
    made = (outputs / "made").stat()
    assert (made.st_uid, made.st_gid) == (os.getuid(), os.getgid())
    assert stat.S_ISREG(made.st_mode)
    for wrong, kind in ((Bind(str(tmp_path / "nowhere")), NotFoundError), (Bind(str(code), "/a,b"), InputError)):
        with pytest.raises(kind):
            image.command(["true"], folder="/", variables={}, binds=[wrong])


def test_variables_arrive_and_are_on_no_command_line(image: Prepared):
    secret = "s3cr3t value\nof 'two' lines"
    theirs = {"HOME": "/h", "PATH": "/bin:/p", "CONTAINERS_STORAGE_CONF": "/nowhere"}  # which podman heeds itself
    script = 'echo "$SECRET|$HOME|$PATH|$STAR|$CONTAINERS_STORAGE_CONF"; cat'
    process = start(image, "sh", "-c", script, SECRET=secret, STAR="*", **theirs)
    assert process.stdout is not None
    lines = process.stdout.readline() + process.stdout.readline()
    assert lines == f"{secret}|/h|/bin:/p|*|/nowhere\n"
    seen = [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]
    process.communicate("")
    assert any("--env=SECRET" in line for line in seen), "it was over already: this proves nothing"
    assert not any("s3cr3t" in line for line in seen)
    with pytest.raises(InputError):
        image.command(["true"], folder="/", variables={"A*": "1"})


def test_headrace_is_there_and_what_the_image_has_wins(image: Prepared, tmp_path: Path):
    script = "import sys, headrace, ofimage; print(headrace.__version__, ofimage.HERE, sys.own_site, sys.path[-1])"
    code, out, err = run(image, "python3", "-c", script)
    assert code == 0, err
    version, where, own, last = out.split()
    assert (version, where, own) == (headrace.__version__, "image", "True")
    assert last.endswith("/packages")
    (tmp_path / "headrace.py").write_text("OWN = 1\n")
    code, out, _ = run(
        image,
        "python3",
        "-c",
        "import headrace; print(headrace.OWN)",
        PYTHONPATH="/jobs",
        binds=[Bind(str(tmp_path), "/jobs")],
    )
    assert (code, out) == (0, "1\n")


def test_a_terminal_is_one_and_ctrl_c_works(image: Prepared):
    made = image.command(
        ["sh", "-c", "test -t 0 && test -t 1 && echo terminal; sleep 30"], folder="/", variables={}, terminal=True
    )
    ours, theirs = pty.openpty()

    def control() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        made.argv,
        env=made.environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=control,
    )
    os.close(theirs)
    seen = b""
    while b"terminal" not in seen:
        seen += os.read(ours, 1000)
    os.write(ours, b"\x03")
    assert process.wait(20) == 128 + 2
    os.close(ours)


def test_the_digest_is_kept_when_the_tag_moves(image: Prepared, node: Node, podman: Podman):
    told = image.environment
    assert told.kind == "image"
    assert told.image == f"localhost/headrace-test@{told.digest}"
    assert Environment.from_json(told.as_json()) == told
    podman("tag", IMAGE, "localhost/headrace-test:old")
    podman("import", "-", IMAGE, given=b"\0" * 1024)
    try:
        with prepare(EnvironmentRequest(image=told.image), "/", node, run="two") as again:
            assert again.environment == told
            assert run(again, "true")[0] == 0
    finally:
        podman("rmi", IMAGE)
        podman("tag", "localhost/headrace-test:old", IMAGE)


@pytest.mark.parametrize("by", ["the runner", "another"])
def test_nothing_is_left_after_its_client_was_killed(image: Prepared, node: Node, podman: Podman, by: str):
    process = start(image, "sh", "-c", "echo up; exec sleep 300")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.kill()
    process.communicate()
    assert containers(podman), "the container ended with its client: this proves nothing"
    image.stop() if by == "the runner" else stop_container("one", node.inherited)
    assert containers(podman) == ""
    assert wait_for(lambda: not _sleepers(), 10)
    image.stop()  # once more does no harm


def _sleepers() -> list[psutil.Process]:
    return [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", "300"]]


def with_configuration(node: Node, path: str) -> Node:
    return dataclasses.replace(node, inherited={**node.inherited, "CONTAINERS_CONF": path})


def test_what_this_machine_lacks_is_done_without(node: Node, podman: Podman):
    """No init program; a default runtime that does not work, beside one that does."""
    path = podman.configured(
        "lacking",
        containers='init_path = "/nowhere"',
        engine='runtime = "bad"\n[engine.runtimes]\nbad = ["/bin/false"]',
    )
    with prepare(EnvironmentRequest(image=IMAGE), "/", with_configuration(node, path), run="three") as made:
        assert len(made.notes) == 1
        assert "catatonit" in made.notes[0]
        assert run(made, "sh", "-c", "exit 3")[0] == 3


def test_containers_that_cannot_be_are_told_with_the_reason(node: Node, podman: Podman):
    engine = 'runtime = "runc"\n[engine.runtimes]\nrunc = ["/bin/false"]\ncrun = ["/bin/false"]'
    path = podman.configured("none", engine=engine)
    with pytest.raises(UnsupportedError, match="do not start here") as caught:
        prepare(EnvironmentRequest(image=IMAGE), "/", with_configuration(node, path), run="four")
    assert "rror" in caught.value.reason, "not what podman said"
    assert caught.value.hint


def test_images_and_engines_that_are_not_there(node: Node, tmp_path: Path):
    for name in ("localhost/nowhere:1", "nowhere"):
        with pytest.raises(NotFoundError) as caught:
            prepare(EnvironmentRequest(image=name), "/", node, run="five")
        assert (caught.value.path, bool(caught.value.hint)) == (name, True)
    with pytest.raises(UnsupportedError, match="podman or docker"):
        prepare(EnvironmentRequest(image=IMAGE), "/", Node(str(tmp_path), {"PATH": str(tmp_path)}), run="six")
    with pytest.raises(InputError):
        prepare(EnvironmentRequest(image=IMAGE), "/", node, run="a b")


def test_the_command_is_not_the_shells(image: Prepared):
    """Nothing of the image's own entry point, user or folder; and words stay words."""
    code, out, _ = run(
        image, "sh", "-c", 'id -u; pwd; for one in "$@"; do echo "<$one>"; done', "sh", "a b", "", "$HOME"
    )
    assert (code, out) == (0, f"{os.getuid()}\n/\n<a b>\n<>\n<$HOME>\n")


@pytest.mark.server
def test_a_run_in_an_image_is_recorded_like_any_other(podman: Podman, seaweedfs: EmbeddedS3, tmp_path: Path):
    rig = RunsRig(seaweedfs, tmp_path, podman.environ)
    script = (
        "import headrace as hr, ofimage, os, sys\n"
        "hr.log({'loss': 0.25}, step=3)\n"
        "folder = os.environ['HEADRACE_OUTPUTS']\n"
        "open(folder + '/made.txt', 'w').write(ofimage.HERE)\n"
        "os.makedirs(folder + '/checkpoints/1')\n"
        "open(folder + '/checkpoints/1/model', 'w').write('weights')\n"
        "open(folder + '/checkpoints/1/COMMITTED', 'w')\n"
        "print('in', os.environ['HEADRACE_RUN_ID'], len(os.sched_getaffinity(0)), os.environ.get('HEADRACE_RESUME'))\n"
        "sys.exit(4)\n"
    )
    rig.script(script)
    inside = ["--env", "PYTHONPATH=/own", "--set", "environment.record=PYTHONPATH"]
    inside += ["--set", f"environment.image={IMAGE}", "--set", "resources.cpus=1", "--set", "resources.memory=500MB"]
    ended = rig.headrace("run", *inside, "--id", "1", "--", "python3", "train.py", code=4)
    assert ended.stdout == "in 1 1 None\n"
    assert rig.states("1")[-1] == "failed"
    assert rig.read("1", "outputs/made.txt") == b"image"
    assert [one["last"] for one in rig.json("metrics", "1")] == [0.25]
    assert rig.headrace("logs", "1").stdout == ended.stdout
    recorded = rig.json("runs", "show", "1")["record"]["environment"]
    assert recorded["image"].startswith("sha256:") or "@sha256:" in recorded["image"]
    resumed = rig.headrace("rerun", "1", "--resume", "--id", "2", code=4)
    assert resumed.stdout.startswith("in 2 1 /")
    process = rig.start("run", *inside, "--id", "3", "--", "sh", "-c", "echo up; sleep 300")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert rig.states("3")[-1] == "stopped"
    assert containers(podman) == ""
    rig.close()
def test_a_shell_of_a_run_is_one_of_its_image(
    podman: Podman, node: Node, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """What lies in the folder where the run ran, for it recorded no code."""
    (tmp_path / "train.sh").write_text("echo here $LR; test -e /own/ofimage.py && echo inside\n")
    run = Run(Home(open_store(f"file://{tmp_path}"), "home/"), "20260101-000000-job-0000")
    settings = {"image": IMAGE, "variables": {"LR": "1"}, "record": ["LR"]}
    spec = JobSpec.from_json({"format": 1, "command": ["true"], "code": {"capture": False}, "environment": settings})
    run.create(RunRecord(run.id, "job", now(), ("true",), str(tmp_path), "host", "me", "0", spec.as_json()))
    said: list[str] = []
    line = "sh train.sh; exit 9"
    assert shell(ShellRequest(run, command=("sh", "-c", line)), podman.environ, node.cache, said.append) == Exit(9)
    assert capfd.readouterr().out == "here 1\ninside\n"
    (tmp_path / "typed").write_text("sh train.sh\nexit 4\n")
    before = os.dup(0)
    with open(tmp_path / "typed") as typed:
        os.dup2(typed.fileno(), 0)
    try:
        assert shell(ShellRequest(run), podman.environ, node.cache, said.append) == Exit(4)
    finally:
        os.dup2(before, 0)
        os.close(before)
    assert capfd.readouterr().out == "here 1\ninside\n"
    assert podman("ps", "--all", "--quiet") == ""
def test_it_sees_the_inputs_of_its_run_read_only(seaweedfs: EmbeddedS3, podman: Podman, tmp_path: Path):
    need_fuse()
    folders = {"HEADRACE_CACHE_DIR": str(tmp_path / "cache"), "HEADRACE_MOUNT_RUN_DIR": str(tmp_path / "live")}
    storage = {name: podman.environ[name] for name in ("CONTAINERS_STORAGE_CONF", "CONTAINERS_CONF")}
    rig = RunsRig(seaweedfs, tmp_path, {**folders, **storage})
    rig.store().put("data/a.txt", b"sample\n")
    (rig.work / "job.toml").write_text(f"""
        command = "for x in $HEADRACE_INPUT_A $HEADRACE_INPUT_B; do cat $x/a.txt; touch $x/n; done; ls $HEADRACE_INPUTS"
        environment.image = "{IMAGE}"
        [inputs]
        a = {{ source = "s3://{rig.bucket}/data", as = "mount" }}
        b = {{ source = "s3://{rig.bucket}/data", as = "copy" }}
    """)
    ended = rig.headrace("run", "job.toml")
    assert ended.stdout == "sample\nsample\na\nb\n"
    assert ended.stderr.count("Read-only file system") == 2
