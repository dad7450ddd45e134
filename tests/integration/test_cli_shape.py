"""The command line as a program: help, start-up time, exit codes, signals, pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import click
import pytest

from headrace.cli.app import SUMMARIES, app
from tests.integration.cli_kit import PROGRAM, Shell, shell  # noqa: F401


def test_every_command_says_in_the_list_what_it_says_itself() -> None:
    context = click.Context(app)
    for name, summary in SUMMARIES.items():
        command = app.get_command(context, name)
        assert command is not None
        assert command.help
        assert summary.endswith(".")


def test_help_imports_nothing_slow(shell: Shell) -> None:  # noqa: F811
    listing = subprocess.run(
        [PROGRAM[0], "-X", "importtime", "-m", "headrace.cli", "--help"],
        cwd=shell.folder,
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    for package in ("numpy", "pyarrow", "rich", "obstore", "botocore", "headrace.namespace"):
        assert f" {package}\n" not in listing


@pytest.mark.parametrize("line", ["runs", "stop nothing", "mounts"])
def test_small_commands_import_no_numpy(shell: Shell, line: str) -> None:  # noqa: F811
    """Theirs would be most of the time."""
    listing = subprocess.run(
        [PROGRAM[0], "-X", "importtime", "-m", "headrace.cli", *line.split()],
        cwd=shell.folder, env={**shell.environment, "HEADRACE_HOME": str(shell.folder / "home")}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert listing.returncode in (0, 3), listing.stderr[-500:]
    assert " numpy\n" not in listing.stderr


def test_a_misspelt_command_names_the_nearest(shell: Shell) -> None:  # noqa: F811
    result = shell.run("snapshto", code=2)
    assert "Did you mean 'snapshot'?" in result.err


def test_a_bad_setting_names_file_key_and_nearest_name(shell: Shell) -> None:  # noqa: F811
    shell.file("headrace.toml", "[cache]\nsiez = '1GB'\n")
    shell.fails("mounts", code=2, says="headrace.toml: [cache] unknown key 'siez'", hint="did you mean 'size'?")
    shell.file("headrace.toml", "[cache]\nsize = 'much'\n")
    shell.fails("mounts", code=2, says="'much' is not a size")


def test_debug_shows_where_an_error_came_from(shell: Shell) -> None:  # noqa: F811
    command = [*PROGRAM, "ls", "./nowhere"]
    environment = {**shell.environment, "HEADRACE_DEBUG": "1"}
    ended = subprocess.run(command, cwd=shell.folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 3
    assert "Traceback" in ended.stderr


def test_a_reader_that_goes_away_is_no_error_message(shell: Shell) -> None:  # noqa: F811
    for number in range(3000):
        shell.file(f"tree/{number:05d}-a-rather-long-name-to-fill-the-pipe", "")
    pipe = subprocess.PIPE
    command = [*PROGRAM, "ls", "tree"]
    writer = subprocess.Popen(command, cwd=shell.folder, env=shell.environment, stdout=pipe, stderr=pipe)
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.readline()
    writer.stdout.close()
    assert writer.stderr.read() == b""
    assert writer.wait(10) != 0
    writer.stderr.close()


def test_ctrl_c_ends_the_server_within_two_seconds_with_130_or_0(shell: Shell) -> None:  # noqa: F811
    server = subprocess.Popen(
        [*PROGRAM, "s3", "--dir", "data", "--json"],
        cwd=shell.folder,
        env=shell.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
    try:
        text = ""
        while not text.rstrip().endswith("}"):
            text += server.stdout.readline()
        seen = json.loads(text)
        variables = {
            "AWS_ENDPOINT_URL_S3": seen["endpoint"],
            "AWS_ACCESS_KEY_ID": seen["access_key"],
            "AWS_SECRET_ACCESS_KEY": seen["secret_key"],
            "AWS_REGION": "us-east-1",
        }
        assert shell.run("ls", "s3://data", **variables).out == ""
        assert (shell.folder / "data/.gitignore").read_text() == "*\n", "its keys are not committed, or captured"
        started = time.monotonic()
        server.send_signal(signal.SIGINT)
        assert server.wait(10) in (0, 130)
        assert time.monotonic() - started < 2.5
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def test_ctrl_c_ends_a_command_that_waits_in_native_code(shell: Shell) -> None:  # noqa: F811
    """A lock that is never released, taken where Python looks at no signal: the watch ends the process."""
    script = (
        "import ctypes, sys; from headrace.cli import run_guarded\n"
        "def stuck():\n    print('ready', flush=True)\n"
        "    libc = ctypes.CDLL(None)\n    [libc.sleep(60) for _ in range(9)]\n"
        "import signal; sys.exit(run_guarded(stuck))"
    )
    process = subprocess.Popen(
        [PROGRAM[0], "-c", script], cwd=shell.folder, env=dict(os.environ), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    assert time.monotonic() - started < 2.5
    process.stdout.close()
