"""The code of a run: the tree it is started from, captured so that the run's record alone gives the same tree again.

Written into ``code/`` of the run::

    tree.tar.zst      every file as it lay: tracked, changed and new; not what is ignored (archive.py has the format)
    staged.patch      what was staged, and
    unstaged.patch    what was not, as ``git diff --binary`` tells it: for people, nothing is restored from them
    commits.bundle    commits that no remote has, for ``git fetch``

A patch or bundle that would be empty, or larger than the limit, is not written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from headrace.base.errors import DeniedError, InputError, NotFoundError, TryAgainError
from headrace.base.units import format_bytes
from headrace.jobs import archive
from headrace.jobs.archive import NAME, MovedError
from headrace.jobs.code import Code, is_below
from headrace.jobs.git import NoGitError
from headrace.jobs.repository import Names, Repository, Standing
from headrace.jobs.restoring import disk
from headrace.jobs.tree import SETTING, Tree, listed, shown

LIMIT: Final = 100_000_000
"""Bytes a tree may hold."""
STAGED, UNSTAGED, COMMITS = "staged.patch", "unstaged.patch", "commits.bundle"
_TRIES = 5
"""A tree that changes each time while it is captured is being worked on."""
_PAUSE_S = 0.05  # seconds before the second try; then twice as many each time
_LEAVE_OUT = "name what the run does not need in .gitignore, or in code.ignore"
_NO_GIT = "but this machine has no git: captured as a plain folder, with what git would ignore, and without commits"


def capture(
    folder: str | os.PathLike[str],
    into: str,
    *,
    limit: int = LIMIT,
    ignore: Sequence[str] = (),
    home: str | None = None,
) -> Code:
    """Capture the tree that a folder is part of, into the folder `into`, made if need be.

    In a git working tree: all of it, from its root, as it lies there; elsewhere: the folder, less
    `headrace.jobs.tree.JUNK`. `ignore`: patterns of what is left out besides; one without ``/`` is for every part of
    a name. `limit`: bytes of the files, and of each patch and bundle. `home`: a folder with what runs have recorded,
    left out where it is part of the tree. Nothing of the tree or its repository is changed.
    Any thread; it takes as long as reading the files does, and git, which is given two minutes a call.

    Raises:
        InputError: the tree is larger than `limit`, or a repository that git cannot read. NotFoundError: no folder.
        DeniedError: a file may not be read, or the repository belongs to somebody else. ChangedError: a file changed
        each time it was read. DeadlineError: git took too long. NoRoomError, TryAgainError: the disk.
    """
    folder = os.path.realpath(folder)
    if not os.path.isdir(folder):
        raise NotFoundError("is no folder", path=shown(folder), hint="give the folder that the command runs in")
    with disk(into):
        os.makedirs(into, exist_ok=True)
        into = os.path.realpath(into)
        for attempt in range(_TRIES):
            try:
                return _captured(folder, (into, *_records(home)), limit, ignore)
            except MovedError:
                if attempt == _TRIES - 1:
                    raise
                time.sleep(_PAUSE_S * 2**attempt)
    raise AssertionError


def of_checkout(folder: str, into: str, limit: int) -> Code:
    """Capture a clean checkout, as `headrace.jobs.checkout` has made it, into the folder `into`. As `capture`."""
    with disk(into):
        os.makedirs(into, exist_ok=True)
        repository, names, notes = Repository(os.path.realpath(folder)), Names(), list[str]()
        tree = Tree(repository.root, (), (os.path.realpath(into),))
        repository.fill(tree, "", names)
        written = _archived(tree, into, limit, "check out something smaller", notes)
    outside, notes = len(written.outside), [*notes, *names.notes]
    commit = repository.standing().commit
    return Code("checkout", written.digest, written.files, written.bytes, commit, outside=outside, notes=tuple(notes))


def _records(home: str | None) -> tuple[str, ...]:
    """The folders of a home, which may be the tree itself."""
    return () if home is None else tuple(os.path.realpath(os.path.join(home, one)) for one in ("runs", "datasets"))


def _captured(folder: str, skip: Sequence[str], limit: int, ignore: Sequence[str]) -> Code:
    into = skip[0]
    for name in (NAME, STAGED, UNSTAGED, COMMITS):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(into, name))
    notes: list[str] = []
    repository = _repository(folder, notes)
    if repository is not None:
        return _of_git(repository, folder, skip, limit, ignore, notes)
    tree = Tree(folder, ignore, skip)
    tree.walk("")
    written = _archived(tree, into, limit, "name what the run does not need in code.ignore", notes)
    outside = len(written.outside)
    return Code("folder", written.digest, written.files, written.bytes, outside=outside, notes=tuple(notes))


def _repository(folder: str, notes: list[str]) -> Repository | None:
    """The repository whose working tree is captured; None: the folder alone is."""
    try:
        repository = Repository.find(folder)
    except NoGitError:
        if (root := _dot_git(folder)) is not None:
            notes.append(f"{shown(root)} is a git working tree, {_NO_GIT}")
        return None
    if repository is None or folder == repository.root:
        return repository
    if repository.ignored(os.path.relpath(folder, repository.root)):
        notes.append(f"the repository at {shown(repository.root)} ignores this folder: captured as a plain folder")
        return None
    return repository


def _dot_git(folder: str) -> str | None:
    while not os.path.lexists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def _of_git(
    repository: Repository, folder: str, skip: Sequence[str], limit: int, ignore: Sequence[str], notes: list[str]
) -> Code:
    into = skip[0]
    standing, names = repository.standing(), Names()
    tree = Tree(repository.root, ignore, skip)
    repository.fill(tree, "", names)
    subfolder = _subfolder(folder, repository.root)
    written = _archived(tree, into, limit, _LEAVE_OUT, notes)
    unpushed = _for_people(repository, standing, into, limit, notes)
    if repository.standing().commit != standing.commit:
        hint = "start the run when no git works there"
        raise MovedError("another commit was checked out meanwhile", path=shown(repository.root), hint=hint)
    staged, unstaged = standing.staged + names.staged, standing.unstaged + names.unstaged
    return Code(
        "git", written.digest, written.files, written.bytes, standing.commit,
        standing.branch and shown(standing.branch), repository.remote(standing.branch), subfolder=subfolder,
        dirty=bool(staged + unstaged + names.untracked + names.foreign), staged=staged, unstaged=unstaged,
        untracked=names.untracked, unpushed=unpushed, outside=len(written.outside), notes=(*notes, *names.notes),
    )  # fmt: skip


def _archived(tree: Tree, into: str, limit: int, hint: str, notes: list[str]) -> archive.Written:
    tree.check(limit, f"{hint}, or raise {SETTING}")
    path = os.path.join(into, NAME)
    try:
        written = archive.write(path, tree)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(path)
        raise
    if tree.odd:
        notes.append(f"neither files nor links, left out: {listed(tree.odd)}")
    if written.outside:
        notes.append(f"links that lead out of the tree, kept, but not what they lead to: {listed(written.outside)}")
    return written


def _for_people(repository: Repository, standing: Standing, into: str, limit: int, notes: list[str]) -> int:
    """The patches and the bundle. Nothing is restored from them: what fails is told. Returns the commits unpushed."""
    unpushed = repository.unpushed(standing.commit)
    for name, count in ((STAGED, standing.staged), (UNSTAGED, standing.unstaged), (COMMITS, unpushed)):
        path = os.path.join(into, name)
        try:
            if not count:
                continue
            if name == COMMITS:
                fits = repository.bundle(path, limit, standing.branch)
            else:
                fits = repository.patch(path, limit, staged=name == STAGED)
        except (InputError, NotFoundError, DeniedError, TryAgainError) as error:
            notes.append(f"{name} is left out: {error.reason}")
        else:
            if not fits:
                notes.append(f"{name} is left out: it is larger than {format_bytes(limit)}")
    return unpushed


def _subfolder(folder: str, root: str) -> str:
    below = os.path.relpath(folder, root)
    if not is_below(below):
        hint = "start the run from another folder of the repository"
        raise InputError("its name is no plain text, and cannot be recorded", path=shown(folder), hint=hint)
    return "" if below == "." else below
