"""The code of a run, captured from every state a working tree may be in, and laid out again."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    CorruptError,
    DeadlineError,
    DeniedError,
    InputError,
    NotFoundError,
)
from headrace.jobs import archive
from headrace.jobs.capture import capture
from headrace.jobs.code import Code
from headrace.jobs.git import Git
from headrace.jobs.restoring import restore
from headrace.jobs.tree import Tree
from tests.code_kit import Repo, again, own_settings, tree
from tests.rights import bound_by_modes

MB = 1_000_000


@pytest.fixture(autouse=True)
def gitconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return own_settings(monkeypatch, tmp_path / "home")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


def with_remote(repo: Repo, tmp_path: Path) -> Repo:
    """A bare repository that `repo` has pushed to."""
    bare = Repo(tmp_path / "remote.git", "--bare")
    repo.git("remote", "add", "origin", f"file://{bare.path}")
    repo.git("push", "-q", "-u", "origin", "HEAD")
    return bare


# What is captured of a working tree


def test_everything_but_what_is_ignored(repo: Repo, tmp_path: Path, scratch: Path):
    for name in ("same", "staged", "unstaged", "both", "deleted", "deleted too", "old name"):
        repo.write(name, f"{name} {'long ' * 20}")
    repo.write(".gitignore", "*.log\n/out/\n")
    commit = repo.commit()
    with_remote(repo, tmp_path)
    repo.write("staged", "s2")
    repo.write("both", "b2")
    repo.git("add", "staged", "both")
    repo.git("mv", "old name", "new name")
    repo.git("rm", "-q", "deleted")
    repo.write("unstaged", b"\0binary\xff")
    repo.write("both", "b3")
    repo.path.joinpath("deleted too").unlink()
    repo.write("new/file.py", "n", executable=True)
    repo.write("meant", "m")
    repo.git("add", "-N", "meant")
    repo.write("a.log", "ignored")
    repo.write("out/model", "ignored")
    code, found = again(repo.path, scratch)
    assert found == repo.listed()
    assert set(found) == {".gitignore", "same", "staged", "unstaged", "both", "new name", "new/file.py", "meant"}
    assert found["both"] == ("file", b"b3")
    assert found["new/file.py"] == ("exec", b"n")
    assert (code.kind, code.commit, code.branch, code.subfolder, code.dirty) == ("git", commit, "main", "", True)
    assert code.remote == f"file://{tmp_path}/remote.git"
    assert (code.staged, code.unstaged, code.untracked, code.unpushed) == (5, 4, 1, 0)
    assert (code.files, code.bytes) == (len(found), sum(len(body) for _, body in found.values()))
    assert code.notes == ()


def test_a_clean_tree_is_not_dirty_and_has_no_patches(repo: Repo, tmp_path: Path, scratch: Path):
    repo.write("a", "1")
    repo.commit()
    with_remote(repo, tmp_path)
    code, found = again(repo.path, scratch)
    assert (code.dirty, code.unpushed, found) == (False, 0, {"a": ("file", b"1")})
    assert os.listdir(scratch / "into") == ["tree.tar.zst"]


def test_the_patches_lead_from_the_commit_to_the_tree(repo: Repo, gitconfig: Path, scratch: Path):
    with open(gitconfig, "a") as file:
        file.write("[diff]\nnoprefix = true\nexternal = false\nrelative = true\n[color]\nui = always\n")
    repo.write("sub/text", "1\n2\n")
    repo.write("binary", bytes(range(256)) * 9)
    repo.commit()
    repo.write("sub/text", "1\n2\n3\n")
    repo.write("binary", bytes(range(255)) * 9)
    repo.git("add", "-A")
    repo.write("sub/text", "0\n2\n3\n")
    repo.write("binary", b"", executable=True)
    expected = repo.listed()
    code = capture(repo.path / "sub", str(scratch))
    assert (code.staged, code.unstaged, code.subfolder) == (2, 2, "sub")
    repo.git("reset", "-q", "--hard")
    repo.git("apply", str(scratch / "staged.patch"))
    repo.git("apply", str(scratch / "unstaged.patch"))
    assert repo.listed() == expected


def test_commits_that_were_never_pushed_are_there(repo: Repo, tmp_path: Path, scratch: Path):
    repo.write("a", os.urandom(9000))
    repo.commit()
    bare = with_remote(repo, tmp_path)
    repo.write("a", "2")
    repo.commit("two")
    last = repo.commit("three")
    code = capture(repo.path, str(scratch))
    assert (code.unpushed, code.dirty) == (2, False)
    bare.git("fetch", "-q", str(scratch / "commits.bundle"), "main:found")
    assert bare.git("rev-parse", "found").strip() == last
    assert os.path.getsize(scratch / "commits.bundle") < 1500, "what the remote has is not in it"


def test_without_a_remote_the_history_is_taken_up_to_the_limit(repo: Repo, tmp_path: Path, scratch: Path):
    repo.write("large", os.urandom(300_000))
    repo.commit()
    repo.write("large", "small now")
    last = repo.commit("two")
    code = capture(repo.path, str(scratch), limit=MB)
    assert (code.unpushed, code.remote, code.notes) == (2, None, ())
    other = Repo(tmp_path / "other")
    other.git("fetch", "-q", str(scratch / "commits.bundle"), "HEAD")
    assert other.git("rev-parse", "FETCH_HEAD").strip() == last
    code = capture(repo.path, str(scratch), limit=100_000)
    assert code.unpushed == 2
    assert code.notes == ("commits.bundle is left out: it is larger than 100 kB",)
    assert os.listdir(scratch) == ["tree.tar.zst"]


def test_too_large_is_refused_with_the_largest_files(repo: Repo, scratch: Path):
    repo.write("data/a.bin", bytes(80_000))
    repo.write("data/b.bin", bytes(30_000))
    repo.write("ignored.bin", bytes(200_000))
    repo.write(".gitignore", "ignored*\n")
    for number in range(9):
        repo.write(f"small{number}", bytes(10 + number))
    with pytest.raises(InputError) as caught:
        capture(repo.path, str(scratch), limit=100_000)
    text = str(caught.value)
    assert "110 kB in 12 files, more than the 100 kB of code.limit" in text
    assert "data/ alone 110 kB" in text
    assert "data/a.bin (80 kB), data/b.bin (30 kB)" in text
    assert ".gitignore" in text
    assert "ignored.bin" not in text
    assert "small0" not in text
    assert os.listdir(scratch) == []
    assert capture(repo.path, str(scratch), limit=100_000, ignore=["a.bin"]).bytes < 31_000
    assert capture(repo.path, str(scratch), limit=110_135).files == 12


def test_names_of_any_bytes_and_lengths(repo: Repo, scratch: Path):
    names = ["-rf", "a b", "new\nline", "tab\t", "ü", "\\", '"', " ", "a\udcff\udcfe", "*", "\x1b[31m", "é/\udce9\n"]
    names += ["x" * 255, "/".join(["y" * 200] * 6), "/".join(["z" * 99] * 3), "\udcff" * 150]
    for number, name in enumerate(names):
        repo.write(name, f"{number}")
        if number % 2:
            repo.git("add", "--", f":(literal){name}")
    os.symlink("to\n\udcff" + "l" * 200, repo.path / "link\udcfd")
    code, found = again(repo.path, scratch)
    assert len(found) == len(names) + 1
    assert found == repo.listed() == tree(repo.path)
    plain, _ = again(shutil.copytree(repo.path, scratch / "plain", symlinks=True), scratch / "2")
    assert plain.digest == code.digest
    json.dumps(code.as_json(), ensure_ascii=False).encode()


def test_links_stay_links_and_nothing_behind_them_is_taken(repo: Repo, tmp_path: Path, scratch: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.joinpath("secret").write_text("not ours")
    repo.write("folder/secret", "tracked")
    repo.write("was file", "1")
    repo.commit()
    shutil.rmtree(repo.path / "folder")
    repo.path.joinpath("was file").unlink()
    repo.write("was file/now folder", "2")
    for name, target in (("folder", str(outside)), ("in", "a/../was file"), ("dangling", "nowhere"), ("up", "../x")):
        os.symlink(target, repo.path / name)
    code, found = again(repo.path, scratch)
    assert found == {
        "folder": ("link", os.fsencode(outside)), "in": ("link", b"a/../was file"), "dangling": ("link", b"nowhere"),
        "up": ("link", b"../x"), "was file/now folder": ("file", b"2"),
    }  # fmt: skip
    assert code.outside == 2
    assert code.notes == ("links that lead out of the tree, kept, but not what they lead to: folder, up",)


def test_a_folder_without_git_is_taken_less_the_junk(tmp_path: Path, scratch: Path):
    plain = tmp_path / "plain"
    for name in ("train.py", "sub/x.bin", "sub/.hidden", "venv.py", ".gitignore", "data/big", "sub/data.csv", "a/b/c"):
        plain.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        plain.joinpath(name).write_text(name)
    kept = tree(plain)
    for name in (".venv/bin/python", "sub/__pycache__/x.pyc", ".git/broken", "node_modules/a/b", "sub/y.pyc"):
        plain.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        plain.joinpath(name).write_text(name)
    plain.joinpath("empty").mkdir()
    code, found = again(plain, scratch)
    assert found == kept
    assert (code.kind, code.commit, code.dirty, code.notes) == ("folder", None, False, ())
    _, found = again(plain, scratch / "2", ignore=["data", "*.csv", "a/b"])
    assert set(found) == {"train.py", "sub/x.bin", "sub/.hidden", "venv.py", ".gitignore"}
    with pytest.raises(InputError, match=r"code\.ignore"):
        capture(plain, str(scratch / "3"), limit=10)


def test_pipes_and_sockets_are_left_out_and_told(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch):
    plain = tmp_path / "plain"
    plain.mkdir()
    plain.joinpath("file").write_text("1")
    os.mkfifo(plain / "pi\npe")
    monkeypatch.chdir(plain)  # a socket's name must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        code, found = again(plain, scratch)
    assert set(found) == {"file"}
    assert code.notes == (r"neither files nor links, left out: pi\npe, socket",)


def test_what_is_written_may_lie_in_the_tree(repo: Repo):
    repo.write("a", "1")
    repo.write("runs/into/left over", "by another")
    first = capture(repo.path, str(repo.path / "runs/into"))
    second = capture(repo.path, str(repo.path / "runs/into"))
    assert (first.files, second.digest) == (1, first.digest)


@pytest.mark.parametrize("inside", ["store/home", ""])
def test_what_other_runs_have_recorded_is_no_code(repo: Repo, tmp_path: Path, scratch: Path, inside: str):
    """A home that is a folder may lie in the tree, or be the tree: no run holds all that were before it."""
    recorded = [os.path.join(inside, "runs/earlier/run.json"), os.path.join(inside, "datasets/d/v1/manifest")]
    for folder in (repo.path, tmp_path / "plain"):
        for name in ("train.py", "src/runs/x.py", *recorded):
            folder.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
            folder.joinpath(name).write_text(name)
        code = capture(folder, str(scratch), home=str(folder / inside))
        assert code.files == 2, "of which one only happens to lie in a folder of that name"
        assert capture(folder, str(scratch), home=str(tmp_path / "elsewhere")).files == 4


def test_a_folder_that_ignores_itself_is_no_code(repo: Repo, tmp_path: Path, scratch: Path):
    for folder in (repo.path, tmp_path / "plain"):
        for name in ("train.py", "headrace-s3/s3.json", "other/.gitignore", "other/x"):
            folder.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
            folder.joinpath(name).write_text("*.log")
        folder.joinpath("headrace-s3/.gitignore").write_text("# made by a tool\n*\n")
        assert capture(folder, str(scratch)).files == 3


def test_what_a_folder_ignores_only_in_part_is_code(tmp_path: Path, scratch: Path):
    """Nothing that a git would take may be missing where there is none."""
    plain = tmp_path / "plain"
    partly = {"allows": "*\n!*.py\n", "some": "*.log\n", "nothing": "#*\n", "long": "*\n" + "#\n" * 99_999}
    for name, ignores in partly.items():
        plain.joinpath(name).mkdir(parents=True)
        plain.joinpath(name, ".gitignore").write_text(ignores)
        plain.joinpath(name, "model.py").write_text(name)
    plain.joinpath("pipe").mkdir()
    os.mkfifo(plain / "pipe" / ".gitignore")
    plain.joinpath("pipe", "model.py").write_text("pipe")
    _, found = again(plain, scratch)
    assert {name for name in found if name.endswith(".py")} == {
        f"{name}/model.py" for name in (*partly, "pipe")
    }


# Repositories of many kinds


def test_submodules_and_repositories_inside_come_as_they_lie(
    repo: Repo, gitconfig: Path, tmp_path: Path, scratch: Path
):
    with open(gitconfig, "a") as file:
        file.write('[protocol "file"]\nallow = always\n')
    library = Repo(tmp_path / "library")
    library.write("lib.py", "1")
    library.write(".gitignore", "*.o\n")
    library.commit()
    repo.write("main.py", "1")
    repo.git("submodule", "--quiet", "add", str(library.path), "mod")
    repo.git("submodule", "--quiet", "add", str(library.path), "absent")
    repo.commit()
    repo.git("submodule", "--quiet", "deinit", "absent")
    clean = capture(repo.path, str(scratch / "clean"))
    assert (clean.dirty, clean.notes) == (False, ())
    repo.write("mod/lib.py", "changed")
    repo.write("mod/new.py", "new")
    repo.write("mod/x.o", "ignored by the submodule")
    repo.write("absent/stray.py", "stray")
    nested = Repo(repo.path / "third party/nested")
    nested.write("n.py", "1")
    commit = nested.commit()
    nested.write("n2.py", "2")
    repo.git("worktree", "add", "-q", "-b", "side", "other tree")
    code, found = again(repo.path, scratch)
    assert set(found) == {
        ".gitmodules", "main.py", "mod/lib.py", "mod/new.py", "mod/.gitignore", "third party/nested/n.py",
        "third party/nested/n2.py", "absent/stray.py",
    }  # fmt: skip
    assert found["mod/lib.py"] == ("file", b"changed")
    assert (code.dirty, code.staged, code.unstaged, code.untracked) == (True, 0, 1, 2)
    assert sorted(code.notes) == [
        "other tree: another working tree of this repository, left out",
        f"third party/nested: a repository of its own, at commit {commit}",
    ]
    repo.path.joinpath("absent/.git").mkdir()
    assert capture(repo.path, str(scratch / "broken")).digest == code.digest
    other, found = again(repo.path / "other tree", scratch / "2")
    assert (set(found), other.kind, other.branch, other.dirty) == ({".gitmodules", "main.py"}, "git", "side", False)


def test_a_repository_without_a_commit_and_a_detached_one(repo: Repo, scratch: Path):
    repo.write("a", "1")
    repo.git("add", "a")
    repo.write("b", "2")
    code, found = again(repo.path, scratch)
    assert (set(found), code.commit, code.branch) == ({"a", "b"}, None, "main")
    assert (code.staged, code.untracked, code.unpushed) == (1, 1, 0)
    assert sorted(os.listdir(scratch / "into")) == ["staged.patch", "tree.tar.zst"]
    first = repo.commit()
    repo.commit("two")
    repo.git("checkout", "-q", "--detach", first)
    code, _ = again(repo.path, scratch / "2")
    assert (code.commit, code.branch, code.unpushed) == (first, None, 1)


def test_without_an_index_everything_is_new(repo: Repo, scratch: Path):
    repo.write("a", "1")
    repo.commit()
    repo.path.joinpath(".git/index").unlink()
    code, found = again(repo.path, scratch)
    assert (code.staged, code.unstaged, code.untracked, found) == (1, 0, 1, {"a": ("file", b"1")})
    assert b"deleted file mode" in scratch.joinpath("into/staged.patch").read_bytes()
    assert not repo.path.joinpath(".git/index").exists()


def test_an_empty_repository_and_an_empty_folder(repo: Repo, tmp_path: Path, scratch: Path):
    code, found = again(repo.path, scratch)
    assert (code.kind, code.files, code.bytes, found) == ("git", 0, 0, {})
    tmp_path.joinpath("empty").mkdir()
    other, found = again(tmp_path / "empty", scratch / "2")
    assert (other.kind, other.digest, found) == ("folder", code.digest, {})


def test_a_merge_with_conflicts_is_taken_as_it_lies(repo: Repo, scratch: Path):
    repo.write("a", "1\n")
    repo.commit()
    repo.git("checkout", "-q", "-b", "other")
    repo.write("a", "2\n")
    repo.commit("two")
    repo.git("checkout", "-q", "main")
    repo.write("a", "3\n")
    repo.commit("three")
    repo.git("merge", "other", check=False)
    code, found = again(repo.path, scratch)
    assert b"<<<<<<<" in found["a"][1]
    assert (code.unstaged, code.dirty) == (1, True)


def test_a_tree_without_files_and_a_broken_one_are_refused(tmp_path: Path, repo: Repo, scratch: Path):
    bare = Repo(tmp_path / "bare.git", "--bare")
    for folder in (bare.path, repo.path / ".git"):
        with pytest.raises(InputError, match="without a working tree"):
            capture(folder, str(scratch))
    shutil.rmtree(repo.path / ".git")
    repo.path.joinpath(".git").write_text("gitdir: /nowhere/at/all\n")
    with pytest.raises(InputError, match="nowhere/at/all"):
        capture(repo.path, str(scratch))
    with pytest.raises(NotFoundError):
        capture(tmp_path / "missing", str(scratch))


def test_a_folder_of_a_repository_is_recorded_and_an_ignored_one_stands_alone(repo: Repo, scratch: Path):
    repo.write("top", "1")
    repo.write("deep/er/train.py", "2")
    repo.write("private/train.py", "3")
    repo.write(".gitignore", "private/\n")
    repo.commit()
    repo.write("new/train.py", "4")
    link = repo.path.parent / "link"
    link.symlink_to(repo.path / "deep")
    for folder, below in (("deep/er", "deep/er"), ("new", "new"), ("../link/er", "deep/er")):
        code, found = again(repo.path / folder, scratch / folder.replace("/", "-"))
        assert (code.kind, code.subfolder, len(found)) == ("git", below, 4)
    code, found = again(repo.path / "private", scratch / "private")
    assert (code.kind, code.subfolder, found) == ("folder", "", {"train.py": ("file", b"3")})
    assert "ignores this folder" in code.notes[0]
    odd = repo.write("odd\udcff/train.py").parent
    with pytest.raises(InputError, match="plain text"):
        capture(odd, str(scratch / "odd"))


def test_programs_that_settings_name_do_not_run_and_nothing_is_changed(
    repo: Repo, gitconfig: Path, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
):
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho ran >> {ran}\ncat\n")
    program.chmod(0o755)
    repo.write(".gitattributes", "*.bin filter=mine diff=mine\n")
    repo.write("a.bin", "1")
    repo.write("b.py", "1")
    repo.write("c")
    repo.write("d")
    repo.commit()
    with open(gitconfig, "a") as file:
        file.write(
            f'[core]\nfsmonitor = {program}\n[diff]\nexternal = {program}\n[diff "mine"]\ntextconv = {program}\n'
            f'[filter "mine"]\nclean = {program}\nprocess = {program}\nrequired = true\n'
        )
    repo.write("a.bin", "2")
    repo.write("b.py", "1")  # touched, so that git would like to refresh its index
    os.rename(repo.path / "c", repo.path / "d")  # and so that git diff does it
    hooks = repo.path / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction", "post-checkout"):
        shutil.copy(program, hooks / name)
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    before = repo.inside()
    code = capture(repo.path, str(scratch))
    assert (code.files, code.unstaged) == (4, 2)
    assert b"diff --git a/a.bin b/a.bin" in scratch.joinpath("unstaged.patch").read_bytes()
    assert repo.inside() == before
    assert not ran.exists()


def test_credentials_in_a_remote_are_recorded_nowhere(repo: Repo, scratch: Path):
    repo.write("a", "1")
    repo.commit()
    for url, bare in (
        ("https://user:s3cret@host.example:8443/x.git", "https://host.example:8443/x.git"),
        ("https://s3cret@host.example/x", "https://host.example/x"),
        ("ssh://git:s3cret@host.example/x", "ssh://git@host.example/x"),
        ("git@host.example:x/y.git", "git@host.example:x/y.git"),
    ):
        repo.git("config", "remote.other.url", url)
        code = capture(repo.path, str(scratch))
        assert code.remote == bare
        assert "s3cret" not in json.dumps(code.as_json()) + repr(code)
        assert not any(b"s3cret" in path.read_bytes() for path in scratch.iterdir())


def test_the_remote_is_that_of_the_branch(repo: Repo, scratch: Path):
    repo.commit()
    for name in ("another", "origin", "upstream"):
        repo.git("remote", "add", name, f"file:///{name}")
    assert capture(repo.path, str(scratch)).remote == "file:///origin"
    repo.git("config", "branch.main.remote", "upstream")
    assert capture(repo.path, str(scratch)).remote == "file:///upstream"
    repo.git("remote", "remove", "origin")
    repo.git("checkout", "-q", "-b", "other")
    assert capture(repo.path, str(scratch)).remote == "file:///another"


def test_a_repository_of_somebody_else_is_refused_with_what_to_do(
    repo: Repo, scratch: Path, monkeypatch: pytest.MonkeyPatch
):
    repo.write("a", "1")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(DeniedError, match=r"dubious ownership.*safe\.directory"):
        capture(repo.path, str(scratch))


def test_without_git_a_working_tree_is_a_folder(repo: Repo, scratch: Path, monkeypatch: pytest.MonkeyPatch):
    repo.write("a", "1")
    repo.write("sub/x.pyc", "junk")
    repo.write("sub/b", "2")
    monkeypatch.setenv("PATH", str(scratch))
    code, found = again(repo.path, scratch)
    assert (code.kind, set(found)) == ("folder", {"a", "sub/b"})
    code, found = again(repo.path / "sub", scratch / "2")
    assert "no git" in code.notes[0]
    assert set(found) == {"b"}


@pytest.mark.parametrize("git", [True, False])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_may_not_be_read_is_refused_by_name(repo: Repo, tmp_path: Path, git: bool, what: str):
    if not git:
        shutil.rmtree(repo.path / ".git")
    closed = repo.write("sub/closed", "1").parent
    closed = closed / "closed" if what == "file" else closed
    repo.write("open", "1")
    closed.chmod(0)
    into = tmp_path / "into"
    into.mkdir()
    with bound_by_modes(), pytest.raises(DeniedError) as caught:
        capture(repo.path, str(into))
    closed.chmod(0o755)
    assert f"sub{'/closed' if what == 'file' else ''}" in str(caught.value)
    assert "make it readable, or leave it out" in str(caught.value)
    assert os.listdir(into) == []


# A tree that is worked on


def test_a_file_that_is_written_to_all_the_time_is_refused(repo: Repo, scratch: Path):
    path = repo.write("busy", bytes(16 * MB))
    over = threading.Event()

    def work() -> None:
        number = 0
        with open(path, "r+b", buffering=0) as file:
            while not over.is_set():
                number += 1
                os.pwrite(file.fileno(), b"%09d" % number, 0)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        with pytest.raises(ChangedError, match=r"busy: changed each time.*\.gitignore"):
            capture(repo.path, str(scratch))
    finally:
        over.set()
        worker.join()
    assert os.listdir(scratch) == []


def test_a_log_that_only_grows_is_taken_as_far_as_it_was(repo: Repo, scratch: Path):
    lines = b"".join(b"%07d\n" % number for number in range(400_000))
    path = repo.write("nohup.out", lines)
    over = threading.Event()

    def work() -> None:
        with open(path, "ab", buffering=0) as file:
            while not over.is_set():
                file.write(b"more of it\n")

    worker = threading.Thread(target=work)
    worker.start()
    try:
        code, found = again(repo.path, scratch)
    finally:
        over.set()
        worker.join()
    assert path.stat().st_size > code.bytes, "nothing was written meanwhile: this proves nothing"
    assert path.read_bytes().startswith(found["nohup.out"][1])
    assert found["nohup.out"][1].startswith(lines)


@contextmanager
def meanwhile(into: Path, act: Callable[[], object]) -> Iterator[None]:
    """Do something once the first file is being read."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.001):
            if into.joinpath("tree.tar.zst").exists():
                act()
                return

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()


def test_a_file_that_vanishes_meanwhile_is_not_missed(repo: Repo, scratch: Path):
    repo.write("a", os.urandom(30 * MB))
    gone = repo.write("z", "1")
    with meanwhile(scratch / "into", gone.unlink):
        code, found = again(repo.path, scratch)
    assert not gone.exists()
    assert set(found) == {"a"}
    assert code.untracked == 1


def test_a_file_that_becomes_a_program_meanwhile_is_one(repo: Repo, scratch: Path):
    path = repo.write("a", os.urandom(30 * MB))
    with meanwhile(scratch / "into", lambda: path.chmod(0o755)):
        _, found = again(repo.path, scratch)
    assert os.access(path, os.X_OK)
    assert found["a"][0] == "exec"


def test_a_commit_meanwhile_is_the_commit_of_the_tree(repo: Repo, scratch: Path):
    repo.commit()
    repo.write("a", os.urandom(30 * MB))
    ended = 0.0

    def commit() -> None:
        nonlocal ended
        repo.git("commit", "-q", "--allow-empty", "-m", "meanwhile")
        ended = time.monotonic()

    for count in range(5):
        ended = 0.0
        with meanwhile(scratch / f"{count}", commit):
            code = capture(repo.path, str(scratch / f"{count}"))
            captured = time.monotonic()
        if 0 < ended < captured:
            assert code.commit == repo.git("rev-parse", "HEAD").strip()
            return
    pytest.fail("no commit was in time: this proves nothing")


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: shutil.rmtree(path.parent),
    ],
)
def test_what_is_no_file_any_more_is_looked_at_again(repo: Repo, scratch: Path, change: Callable[[Path], object]):
    path = repo.write("sub/file", "1")
    found = Tree(str(repo.path))
    assert found.add("sub/file")
    change(path)
    scratch.mkdir()
    with pytest.raises(archive.MovedError, match="sub/file"):
        archive.write(str(scratch / "x"), found)


def test_a_git_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nsleep 60 & echo $! > {tmp_path}/pid; wait\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(DeadlineError, match="git status took more than"):
        Git(str(tmp_path)).run("status", timeout=0.5)
    child = int(tmp_path.joinpath("pid").read_text())
    until = time.monotonic() + 10
    while os.path.exists(f"/proc/{child}/exe") and time.monotonic() < until:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{child}/exe")


def test_a_git_that_tells_too_much_is_ended_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nhead -c 100000 /dev/zero; exec sleep 30\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    begun = time.monotonic()
    assert not Git(str(tmp_path)).write(str(tmp_path / "out"), 50_000, "diff")
    assert time.monotonic() - begun < 20
    assert not tmp_path.joinpath("out").exists()


# Laid out again


def test_the_same_tree_gives_the_same_bytes(repo: Repo, tmp_path: Path, scratch: Path):
    for number in range(20):
        repo.write(f"{number}/{number}", os.urandom(number * 1000), executable=number % 3 == 0)
    os.symlink("1/1", repo.path / "link")
    repo.commit()
    first = capture(repo.path, str(scratch / "1"))
    other = shutil.copytree(repo.path, tmp_path / "copy", symlinks=True)
    for number in reversed(range(20)):
        path = other / f"{number}/{number}"
        os.utime(path, (1, 1))
        path.chmod(0o700 if number % 3 == 0 else 0o600)
    second = capture(other, str(scratch / "2"))
    shutil.rmtree(other / ".git")
    third = capture(other, str(scratch / "3"))
    bodies = {(scratch / name / "tree.tar.zst").read_bytes() for name in "123"}
    assert (len(bodies), len({first.digest, second.digest, third.digest})) == (1, 1)
    digests = {first.digest}
    for change in (
        lambda: (other / "1/1").chmod(0o755),
        lambda: (other / "2/2").rename(other / "2/3"),
        lambda: ((other / "link").unlink(), (other / "link").write_text("1/1")),
        lambda: (other / "4/4").write_bytes(bytes(4000)),
    ):
        change()
        digests.add(capture(other, str(scratch / "4")).digest)
    assert len(digests) == 5


def test_restoring_touches_no_folder_that_is_not_empty(repo: Repo, tmp_path: Path, scratch: Path):
    repo.write("a", "1")
    code = capture(repo.path, str(scratch))
    tmp_path.joinpath("full").mkdir()
    tmp_path.joinpath("full/mine").write_text("1")
    with pytest.raises(AlreadyExistsError):
        restore(code, str(scratch), str(tmp_path / "full"))
    assert set(tree(tmp_path / "full")) == {"mine"}
    tmp_path.joinpath("empty").mkdir()
    restore(code, str(scratch), str(tmp_path / "empty"))
    assert tree(tmp_path / "empty") == {"a": ("file", b"1")}
    with pytest.raises(NotFoundError, match="bucket"):
        restore(code, str(tmp_path / "missing"), str(tmp_path / "new"))
    assert not tmp_path.joinpath("new").exists()


def test_the_record_is_read_as_it_was_written(repo: Repo, scratch: Path):
    repo.write("sub/a", "1")
    code = capture(repo.path / "sub", str(scratch))
    told = json.loads(json.dumps(code.as_json()))
    assert Code.from_json(told) == code
    assert Code.from_json(told | {"of a later minor version": 1}) == code
    wrong = ({"format": 2}, {"files": "1"}, {"files": -1}, {"bytes": True}, {"subfolder": "../x"}, {"subfolder": "/x"},
             {"notes": "x"}, {"notes": [1]}, {"commit": 1}, {"dirty": 1}, {"digest": None}, {"kind": None})  # fmt: skip
    for one in wrong:
        with pytest.raises(CorruptError):
            Code.from_json(told | one)
    with pytest.raises(CorruptError, match="digest"):
        Code.from_json({name: value for name, value in told.items() if name != "digest"})
