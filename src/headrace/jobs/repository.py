"""A git repository, looked at: which files its working tree has, how it stands, and what no remote has of it.

Nothing here changes it: git runs without optional locks, and the filters that its settings name (git LFS, for one) are
not run, since they may write into it; a file that was touched, and that a filter would change, may count as changed.

Sources: git-ls-files(1), git-status(1) ("Porcelain Format Version 2"), git-config(1), git-bundle(1), gitattributes(5).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field

from headrace.base.errors import DeniedError, InputError
from headrace.base.places import temporary_folder
from headrace.jobs.git import Git, NoRepositoryError, without_userinfo
from headrace.jobs.tree import Tree, shown

_DIFF = (
    "diff", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-relative",
    "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--ignore-submodules=dirty",
)  # fmt: skip
_LINK = b"160000"


@dataclass(frozen=True, slots=True)
class Standing:
    """How a working tree stands. `commit` None: there is none yet; `branch` None: HEAD is detached."""

    commit: str | None
    branch: str | None
    staged: int
    unstaged: int


@dataclass(slots=True)
class Names:
    """What of a tree came from git, its submodules and the repositories inside it taken together.

    `foreign`: repositories inside it that are no submodules.
    """

    untracked: int = 0
    foreign: int = 0
    staged: int = 0
    unstaged: int = 0
    notes: list[str] = field(default_factory=list)


class Repository:
    """The repository whose working tree has its root at `root`. One thread."""

    def __init__(self, root: str) -> None:
        self.root = root
        listing = Git(root).run("config", "--list", "-z").out
        self._config: dict[str, str] = {}
        for entry in listing.split(b"\0"):
            key, _, value = os.fsdecode(entry).partition("\n")
            self._config[key] = value
        self._git = Git(root, _no_filters(self._config))

    @classmethod
    def find(cls, folder: str) -> Repository | None:
        """That which a folder is in; None: it is in none.

        Raises:
            NoGitError. DeniedError: git refuses, since it belongs to somebody else. InputError: it is
            bare, or broken.
        """
        try:
            found = Git(folder).run("rev-parse", "--show-toplevel")
        except NoRepositoryError:
            return None
        except InputError as error:
            if "work tree" not in error.reason:
                raise
            hint = "give a folder with files checked out, or URL@REF"
            raise InputError("is a repository without a working tree", path=shown(folder), hint=hint) from error
        return cls(os.fsdecode(found.out.removesuffix(b"\n")))

    def standing(self) -> Standing:
        """How it stands; what is in submodules does not count."""
        options = ("--porcelain=v2", "--branch", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
        told = os.fsdecode(self._git.run("status", "-z", *options).out).split("\0")
        head = {line.split(" ", 2)[1]: line.split(" ", 2)[2] for line in told if line.startswith("# ")}
        changed = [line.split(" ", 2)[1] if line[0] == "1" else ".U" for line in told if line[:2] in ("1 ", "u ")]
        commit, branch = head.get("branch.oid", "(initial)"), head.get("branch.head", "(detached)")
        return Standing(
            None if commit == "(initial)" else commit,
            None if branch == "(detached)" else branch,
            sum(states[0] != "." for states in changed),
            sum(states[1] != "." for states in changed),
        )

    def remote(self, branch: str | None) -> str | None:
        """The URL of the remote this branch follows, else of ``origin``, else of any; without credentials."""
        urls = {
            key.removeprefix("remote.").removesuffix(".url"): url
            for key, url in self._config.items()
            if key.startswith("remote.") and key.endswith(".url")
        }
        for name in (self._config.get(f"branch.{branch}.remote"), "origin", *sorted(urls)):
            if name in urls:
                return without_userinfo(urls[name])
        return None

    def ignored(self, folder: str) -> bool:
        """Whether a folder below the root is ignored, and none of its files is tracked."""
        known = self._git.run("ls-files", "-z", "--", f":(literal){folder}").out
        return not known and self._git.run("check-ignore", "-q", "--", folder, allow=(0, 1)).code == 0

    def fill(self, tree: Tree, below: str, names: Names) -> None:
        """Take the files of the working tree into `tree`, whose folder `below` is the root of this repository.

        Submodules, and repositories that lie in the tree, come with the files that they do not ignore. Working trees of
        this very repository (``git worktree``) are left out, and told.

        Raises:
            DeniedError: a folder may not be read.
        """
        prefix = f"{below}/" if below else ""
        inner: list[str] = []
        for entry in self._git.run("ls-files", "-z", "--stage").out.split(b"\0")[:-1]:
            about, _, raw = entry.partition(b"\t")
            name = prefix + os.fsdecode(raw)
            if about.startswith(_LINK):
                inner.append(name)
            if not about.startswith(_LINK) or not tree.is_folder(name):
                tree.add(name)
        modules = len(inner)
        for raw in self._untracked():
            name = prefix + os.fsdecode(raw)
            if name.endswith("/"):
                inner.append(name[:-1])
            elif name not in tree.files:
                names.untracked += tree.add(name)
        for count, name in enumerate(inner):
            if not tree.ignores(name) and tree.is_folder(name):
                self._inner(tree, name, names, module=count < modules)

    def unpushed(self, commit: str | None) -> int:
        """How many commits reachable from HEAD are on no remote-tracking branch."""
        return 0 if commit is None else int(self._git.run("rev-list", "--count", "HEAD", "--not", "--remotes").out)

    def patch(self, path: str, limit: int, *, staged: bool) -> bool:
        """Write what is staged, or what is not, into a new file; False: more than `limit` bytes. For people to read."""
        index = os.fsdecode(self._git.run("rev-parse", "--git-path", "index").out.removesuffix(b"\n"))
        # git diff locks, and may write, its index
        with tempfile.TemporaryDirectory(prefix="headrace-", dir=temporary_folder()) as own:
            copy = os.path.join(own, "index")
            with suppress(FileNotFoundError):  # as of an empty one
                shutil.copy2(os.path.join(self.root, index), copy)  # with its time: git compares it
            git = Git(self.root, _no_filters(self._config), {"GIT_INDEX_FILE": copy})
            return git.write(path, limit, *_DIFF, *(("--cached",) if staged else ()))

    def bundle(self, path: str, limit: int, branch: str | None) -> bool:
        """Write the unpushed commits into a new file that ``git fetch`` reads; False: more than `limit` bytes."""
        heads = ("HEAD", *([f"refs/heads/{branch}"] if branch else []))
        return self._git.write(path, limit, "bundle", "create", "--quiet", "-", *heads, "--not", "--remotes")

    def _untracked(self) -> list[bytes]:
        answer = self._git.run("ls-files", "-z", "--others", "--exclude-standard")
        for line in answer.err.splitlines():
            if "could not open directory" in line:
                hint = "make it readable, or leave it out: name it in .gitignore"
                raise DeniedError(f"a folder may not be read: {line}", path=shown(self.root), hint=hint)
        return answer.out.split(b"\0")[:-1]

    def _inner(self, tree: Tree, name: str, names: Names, *, module: bool) -> None:
        dot = tree.path(name) + "/.git"
        if not os.path.lexists(dot):  # a submodule that is not checked out
            return tree.walk(name)
        if not module and _common(tree.path(name)) == _common(self.root):
            names.notes.append(f"{shown(name)}: another working tree of this repository, left out")
            return None
        repository = Repository.find(tree.path(name))
        if repository is None or repository.root != os.path.realpath(tree.path(name)):  # its .git is none
            return tree.walk(name)
        standing = repository.standing()
        if not module:
            names.foreign += 1
            names.notes.append(f"{shown(name)}: a repository of its own, at commit {standing.commit or '(none)'}")
        names.staged += standing.staged
        names.unstaged += standing.unstaged
        return repository.fill(tree, name, names)


def _common(folder: str) -> str:
    """Where the repository of a working tree lies, which linked working trees share."""
    found = Git(folder).run("rev-parse", "--git-common-dir").out.removesuffix(b"\n")
    return os.path.realpath(os.path.join(folder, os.fsdecode(found)))


def _no_filters(config: dict[str, str]) -> list[str]:
    """Settings by which no filter is run: an empty program is none."""
    names = {key.rpartition(".")[0] for key in config if key.startswith("filter.") and "=" not in key}
    ends = ("clean=", "smudge=", "process=", "required=false")
    return [f"{name}.{end}" for name in sorted(names) for end in ends]
