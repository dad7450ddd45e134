"""Working trees made by random work: what comes back is what git says they hold, and nothing is changed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace.jobs.code import Code
from tests.code_kit import Repo, again, own_settings, tree

NAMES = ("a", "b.log", "sub/c", "sub/d\nü", "sub/sub/e", "a/under a file", "-x", "k\udcff", "sub")
PATTERNS = ("*.log", "sub/", "/a", "!b.log", "k*")

name = st.sampled_from(NAMES)
body = st.binary(max_size=40)
write = st.tuples(st.just("write"), name, body)
target = st.sampled_from(("a", "sub", "..", "/nowhere", "no\nwhere", "k\udcff"))
step = st.one_of(
    write,
    write,
    st.tuples(st.just("stage"), name),
    st.tuples(st.just("stage all")),
    st.tuples(st.just("commit")),
    st.tuples(st.just("delete"), name),
    st.tuples(st.just("untrack"), name),
    st.tuples(st.just("rename"), name, name),
    st.tuples(st.just("chmod"), name),
    st.tuples(st.just("link"), name, target),
    st.tuples(st.just("link"), name, target),
    st.tuples(st.just("ignore"), st.sampled_from(PATTERNS)),
    st.tuples(st.just("push")),
    st.tuples(st.just("detach")),
)
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""To make a failure smaller would take minutes: each try is a hundred processes."""
steps = st.tuples(st.lists(write, min_size=1, max_size=5), st.lists(step, min_size=5, max_size=25)).map(
    lambda two: [*two[0], ("stage all",), *two[1]]
)


@pytest.fixture(scope="module", autouse=True)
def _own_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        own_settings(patch, tmp_path_factory.mktemp("home"))
        yield


def work(repo: Repo, what: str, *how: str | bytes) -> None:
    """One step, if it can be done just then; never through a link."""
    path = Path(os.fsdecode(os.fsencode(str(repo.path)) + b"/" + os.fsencode(how[0]))) if how else repo.path
    beyond = os.path.realpath(path.parent) != str(path.parent)
    try:
        if what in ("stage", "stage all", "untrack", "commit", "push", "detach"):
            command = {
                "stage all": ("add", "-A"),
                "stage": ("add", "-A", "--", f":(literal){how[0] if how else ''}"),
                "untrack": ("rm", "-rq", "--cached", "--", f":(literal){how[0] if how else ''}"),
                "commit": ("commit", "-qm", "one"),
                "push": ("push", "-q", "origin", "HEAD:refs/heads/main"),
                "detach": ("checkout", "-q", "--detach"),
            }[what]
            repo.git(*command, check=False)
        elif what == "ignore":
            with open(repo.path / ".gitignore", "a") as file:
                file.write(f"{how[0]}\n")
        elif beyond:
            return
        elif what == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_symlink():
                path.write_bytes(how[1] if isinstance(how[1], bytes) else b"")
        elif what == "delete":
            path.unlink() if path.is_symlink() or not path.is_dir() else shutil.rmtree(path)
        elif what == "rename":
            new = repo.path / str(how[1])
            if os.path.realpath(new.parent) == str(new.parent):
                os.rename(path, new)
        elif what == "chmod":
            if not path.is_symlink():
                path.chmod(path.stat().st_mode ^ 0o111 if path.is_file() else path.stat().st_mode)
        elif what == "link":
            os.symlink(how[1], path)
    except OSError:  # a file where a folder should be, and the like
        return


@settings(max_examples=20, deadline=None, phases=PHASES, suppress_health_check=[HealthCheck.too_slow])
@given(done=steps)
def test_the_tree_comes_back_and_the_repository_is_untouched(done: list[tuple[str, ...]]):
    scratch = Path(os.path.realpath(tempfile.mkdtemp(prefix="headrace-test-code-")))
    try:
        Repo(scratch / "remote.git", "--bare")
        repo = Repo(scratch / "repo")
        repo.git("remote", "add", "origin", f"file://{scratch}/remote.git")
        for one in done:
            work(repo, *one)
        expected, before, mine = repo.listed(), repo.inside(), tree(repo.path)
        code, found = again(repo.path, scratch)
        assert found == expected
        assert (repo.inside(), tree(repo.path)) == (before, mine)
        told = repo.git("status", "--porcelain", "-z", "--no-renames", "-uall")
        status = [line[:2] for line in told.split("\0")[:-1]]
        assert code.dirty == bool(status)
        assert code.untracked == status.count("??")
        assert code.staged == sum(line[0] not in " ?" for line in status)
        assert code.unstaged == sum(line[1] not in " ?" for line in status)
        head = repo.git("rev-parse", "-q", "--verify", "HEAD", check=False).strip()
        assert (code.commit or "") == head
        if head:
            assert code.unpushed == int(repo.git("rev-list", "--count", "HEAD", "--not", "--remotes"))
        assert (scratch / "into/commits.bundle").exists() == (code.unpushed > 0)
        assert Code.from_json(code.as_json()) == code
    finally:
        shutil.rmtree(scratch)
