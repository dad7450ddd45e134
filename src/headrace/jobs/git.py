"""Running git: no hook and no prompt of the user's comes up, and every call has an end.

git is a program here, not a library: it alone knows all the rules by which files are ignored, and the user's
credentials.
Sources: git(1), git-config(1), gitcredentials(7).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Final, NamedTuple

from headrace.base.errors import (
    CredentialsError,
    DeadlineError,
    DeniedError,
    HeadraceError,
    InputError,
    NoRoomError,
    NotFoundError,
    UnreachableError,
)
from headrace.base.places import temporary_folder
from headrace.base.settings import whole_environment

LOCAL_S: Final = 120.0
"""Seconds a git that needs no network may take."""

_SAFE = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "maintenance.auto=false", "gc.auto=0",
    "advice.detachedHead=false", "fetch.writeCommitGraph=false", "trace2.eventTarget=",
)  # fmt: skip
_SET = {
    "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1",
    "SSH_ASKPASS_REQUIRE": "never",
}  # fmt: skip
_UNSET = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
    "GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS",
    "GIT_IMPLICIT_WORK_TREE", "GIT_INTERNAL_SUPER_PREFIX", "GIT_QUARANTINE_PATH", "GIT_TRACE", "GIT_TRACE2",
)  # fmt: skip
"""What a hook, or an outer git, would have us work on instead. See ``git rev-parse --local-env-vars``."""

_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/\s'\"]*)@")
_NO_REPOSITORY = "not a git repository (or any"

_TRUST = "it belongs to another user; if you trust it: git config --global --add safe.directory <its path>"
_MEANINGS: Final[Sequence[tuple[str, type[HeadraceError], str]]] = (
    ("dubious ownership", DeniedError, _TRUST),
    ("could not read Username", CredentialsError, "set up git's credentials for it, as for git fetch"),
    ("could not read Password", CredentialsError, "set up git's credentials for it, as for git fetch"),
    ("Authentication failed", CredentialsError, "set up git's credentials for it, as for git fetch"),
    ("Permission denied (publickey", CredentialsError, "set up git's credentials for it, as for git fetch"),
    ("Host key verification failed", CredentialsError, "connect to it by hand once, and accept its key"),
    ("couldn't find remote ref", NotFoundError, "check the name of the branch, tag or commit"),
    ("not our ref", NotFoundError, "check the commit; the server may give only what branches and tags reach"),
    ("does not appear to be a git repository", NotFoundError, "check the URL"),
    ("not found", NotFoundError, "check the URL, and whether the credentials may see it"),
    ("Could not resolve host", UnreachableError, "check the network and the URL"),
    ("Connection refused", UnreachableError, "check the network and the URL"),
    ("Connection timed out", UnreachableError, "check the network and the URL"),
    ("Failed to connect", UnreachableError, "check the network and the URL"),
    ("unable to access 'http", UnreachableError, "check the network and the URL"),
    ("Could not read from remote repository", UnreachableError, "check the URL, and the access to it"),
    ("No space left on device", NoRoomError, "free some room there"),
    ("Permission denied", DeniedError, "make it readable for this user"),
)  # fmt: skip


class Answer(NamedTuple):
    """What a git said. `code`: its exit code."""

    out: bytes
    err: str
    code: int


class NoGitError(NotFoundError):
    """This machine has no git."""


class NoRepositoryError(InputError):
    """The folder is in no git repository."""


class Git:
    """git, run in one folder. Any thread.

    `settings`: git settings that count above all others, as ``name=value``; `variables`: more for its environment.

    Raises:
        NoGitError.
    """

    def __init__(self, folder: str, settings: Sequence[str] = (), variables: Mapping[str, str] | None = None) -> None:
        program = shutil.which("git")
        if program is None:
            raise NoGitError("this machine has no git", path=folder, hint="install git, or put it on the PATH")
        self.folder, self.settings = folder, (*_SAFE, *settings)
        self._program, self._variables = program, dict(variables or {})

    def run(self, *arguments: str, timeout: float = LOCAL_S, allow: Sequence[int] = (0,)) -> Answer:
        """Run one command to its end, at most `timeout` seconds.

        Raises:
            NoRepositoryError, DeniedError, DeadlineError, …: an exit code not in `allow`, as it is understood.
        """
        with tempfile.TemporaryFile(dir=temporary_folder()) as out:
            code, err = self._execute(arguments, out, timeout, None)
            if code not in allow:
                raise translated(arguments[0], err, self.folder)
            out.seek(0)
            return Answer(out.read(), err, code)

    def write(self, path: str, limit: int, *arguments: str) -> bool:
        """Write what a command tells into a new file; False, and no file: that would be more than `limit` bytes.

        Raises:
            as `run`.
        """
        try:
            with open(path, "xb") as out:
                code, err = self._execute(arguments, out, LOCAL_S, limit)
                fits = os.fstat(out.fileno()).st_size <= limit
            if fits and code != 0:
                raise translated(arguments[0], err, self.folder)
        except BaseException:
            _remove(path)
            raise
        if not fits:
            _remove(path)
        return fits

    def _execute(self, arguments: Sequence[str], out: IO[bytes], timeout: float, limit: int | None) -> tuple[int, str]:
        options = [word for setting in self.settings for word in ("-c", setting)]
        # not a setting of ours that is read here: git gets the user's own environment, less what would mislead it
        kept = {name: value for name, value in whole_environment().items() if name not in _UNSET}
        variables = kept | _SET | self._variables
        with tempfile.TemporaryFile(dir=temporary_folder()) as errors:
            process = subprocess.Popen(
                [self._program, "--no-pager", *options, *arguments], cwd=self.folder, env=variables,
                stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True,
            )  # fmt: skip
            try:
                self._wait(process, arguments[0], out, timeout, limit)
            finally:
                _end(process)
            errors.seek(0)
            return process.returncode, errors.read(1 << 20).decode("utf-8", "replace")

    def _wait(
        self, process: subprocess.Popen[bytes], verb: str, out: IO[bytes], timeout: float, limit: int | None
    ) -> None:
        until = time.monotonic() + timeout
        while (left := until - time.monotonic()) > 0:
            with suppress(subprocess.TimeoutExpired):
                process.wait(left if limit is None else min(left, 0.05))
                return
            if limit is not None and os.fstat(out.fileno()).st_size > limit:
                return
        hint = "is the disk or the network slow? Try again"
        raise DeadlineError(f"git {verb} took more than {timeout:.0f} s", path=self.folder, hint=hint)


def _end(process: subprocess.Popen[bytes]) -> None:
    """It, and what it started: a session of their own, so that Ctrl-C reaches us alone, and no prompt a terminal."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def translated(verb: str, err: str, where: str) -> HeadraceError:
    """What a git that failed meant. Credentials in URLs are taken out."""
    err = without_userinfo(err)
    lines = [line for line in err.splitlines() if line.startswith(("fatal:", "error:", "ERROR:"))]
    line = (lines or err.splitlines() or ["it failed, and did not say why"])[0]
    reason = f"git {verb}: {line.partition(': ')[2] or line}"
    if _NO_REPOSITORY in err:
        return NoRepositoryError("is in no git repository", path=where)
    for needle, kind, hint in _MEANINGS:
        if needle in err:
            return kind(reason, path=where, hint=hint)
    return InputError(reason, path=where, hint="try the same git command by hand")


def without_userinfo(text: str) -> str:
    """A URL, or a text with URLs, without passwords, and without user names but those of ssh, which say where to go.

    ``git@host:path`` holds no credentials, and stays.
    """
    return _USERINFO.sub(_bare, text)


def _bare(found: re.Match[str]) -> str:
    scheme, info = found[1], found[2]
    user = info.partition(":")[0] if scheme.lower() in ("ssh", "git+ssh", "ssh+git") else ""
    return f"{scheme}://{user}@" if user else f"{scheme}://"
