"""Where a command runs, and the code that is there: the caller's own tree, a clean checkout, or a recorded tree."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

from headrace.base.errors import NotFoundError
from headrace.jobs.bring import Wanted, bring
from headrace.jobs.capture import capture
from headrace.jobs.checkout import checkout
from headrace.jobs.code import Code
from headrace.jobs.folder import RunFolder
from headrace.jobs.restoring import restore
from headrace.jobs.spec import JobSpec
from headrace.tracking.runs import Run


@dataclass(frozen=True, slots=True)
class Place:
    """`folder`: absolute, where the command starts; `code`: what was recorded of the tree, None: nothing."""

    folder: str
    code: Code | None


class Source(Protocol):
    """Where the code of a run comes from."""

    def prepare(self, spec: JobSpec, folder: RunFolder) -> Place:
        """Have the code there, and in ``record/code``. Raises any HeadraceError."""
        ...


@dataclass(frozen=True, slots=True)
class Here:
    """The tree that the spec names, seen from the folder `base`, or a checkout. A tree runs as it lies there."""

    base: str

    def prepare(self, spec: JobSpec, folder: RunFolder) -> Place:
        """As `Source.prepare`."""
        into = folder.recorded("code")
        if spec.code.git is not None:
            work = folder.at("work")
            return _placed(work, spec, checkout(spec.code.git, into, work, limit=spec.code.limit))
        tree = os.path.join(os.path.realpath(self.base), spec.code.path or ".")
        return _placed(tree, spec, _captured(tree, spec, folder))


@dataclass(frozen=True, slots=True)
class Sent:
    """The tree of a run that is being submitted: its parts are in the bucket already, where the run keeps them."""

    run: Run
    code: Code

    def prepare(self, spec: JobSpec, folder: RunFolder) -> Place:
        """As `Source.prepare`."""
        work = folder.at("work")
        _lay_out(self.run, self.code, folder.recorded("code"), work)
        return _placed(os.path.join(work, self.code.subfolder), spec, self.code)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The tree that an earlier run has recorded, laid out anew."""

    run: Run

    def prepare(self, spec: JobSpec, folder: RunFolder) -> Place:
        """As `Source.prepare`."""
        work = folder.at("work")
        code = lay_out(self.run, folder.recorded("code"), work)
        return _placed(os.path.join(work, code.subfolder), spec, code)


def lay_out(run: Run, parts: str, work: str) -> Code:
    """The recorded tree of `run` in the new folder `work`; `parts`: a new folder for what was recorded of it.

    Raises NotFoundError: none was. And as `bring` and `restore`.
    """
    told = run.record().code
    if told is None:
        hint = "headrace run it from a tree, or rerun another run"
        raise NotFoundError("has recorded no code", path=run.id, hint=hint)
    code = Code.from_json(told)
    _lay_out(run, code, parts, work)
    return code


def _lay_out(run: Run, code: Code, parts: str, work: str) -> None:
    prefix = f"{run.prefix}code/"
    there = [info for page in run.store.list(prefix) for info in page]
    bring(run.store, [Wanted(one.key, one.key[len(prefix) :], one.size, one.etag) for one in there], parts)
    restore(code, parts, work)


@dataclass(frozen=True, slots=True)
class AsItLies:
    """The folder where a run ran of whose code nothing was recorded, as that folder is now."""

    folder: str

    def prepare(self, spec: JobSpec, folder: RunFolder) -> Place:
        """As `Source.prepare`. Raises NotFoundError: it is not on this machine."""
        if not os.path.isdir(self.folder):
            hint = "the run recorded no code: go to the machine where it ran"
            raise NotFoundError("there is no such folder here", path=self.folder, hint=hint)
        return Place(self.folder, _captured(self.folder, spec, folder))  # a rerun may ask for it


def _captured(tree: str, spec: JobSpec, folder: RunFolder) -> Code | None:
    if not spec.code.capture:
        return None
    into, wanted = folder.recorded("code"), spec.code
    return capture(tree, into, limit=wanted.limit, ignore=wanted.ignore, home=folder.home)


def _placed(tree: str, spec: JobSpec, code: Code | None) -> Place:
    return Place(os.path.normpath(os.path.join(tree, spec.folder)), code)
