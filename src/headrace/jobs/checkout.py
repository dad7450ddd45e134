"""A clean checkout of URL@REF, as the code of a run.

Only what is needed is fetched, one commit deep; a server that cannot do that is asked for all of it. Credentials in
a URL reach git through its environment and a credential helper of ours, for that server alone: they are in no argument,
no file and no log.

Sources: git-fetch(1), gitcredentials(7), gitrevisions(7).
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote, urlsplit

from headrace.base.errors import (
    CredentialsError,
    DeadlineError,
    HeadraceError,
    InputError,
    NoRoomError,
    NotFoundError,
    UnreachableError,
)
from headrace.jobs.capture import LIMIT, of_checkout
from headrace.jobs.code import Code
from headrace.jobs.git import Git, without_userinfo
from headrace.jobs.restoring import disk, emptied_if_failed
from headrace.jobs.tree import shown

FETCH_S: Final = 600.0
"""Seconds one fetch may take."""
_REF = re.compile(r"(?![-+^])[^\x00-\x20\x7f:*?\[\\~^]*\Z")
"""What git lets a ref be called, roughly (git-check-ref-format(1)): a refspec, an option or an expression is none."""
_COMMIT = re.compile(r"[0-9a-fA-F]{4,64}\Z")
_SLOW = ("http.lowSpeedLimit=1000", "http.lowSpeedTime=60")
"""Under 1,000 bytes a second for a minute is no connection."""
_ALL = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
_USER, _WORD = "HEADRACE_GIT_USER", "HEADRACE_GIT_WORD"
_HELPER = f"""!f() {{ test "$1" = get && printf 'username=%s\\npassword=%s\\n' "${_USER}" "${_WORD}"; }}; f"""


@dataclass(frozen=True, slots=True)
class Source:
    """What to check out. `url`: without credentials; `ref`: a branch, tag or commit; ``HEAD``: the default branch."""

    url: str
    ref: str
    user: str | None = None
    word: str | None = None

    def __repr__(self) -> str:
        return f"Source({self.url}@{self.ref})"

    @classmethod
    def parse(cls, source: str) -> Source:
        """``URL``, ``URL@REF``, also ``git@host:path@REF`` or a local folder.

        Raises:
            InputError: it is neither.
        """
        head, separator, ref = _split(source)
        bare = without_userinfo(head)
        hint = "write it like https://host/repository.git@main"
        if not head or (separator and not ref) or head.startswith("-") or "::" in head.partition("/")[0]:
            raise InputError("is no URL@REF", path=without_userinfo(source), hint=hint)
        if not _REF.match(ref):
            raise InputError(f"{ref!r} is no name of a branch, tag or commit", path=bare, hint=hint)
        user, word = _credentials(head)
        if "://" not in bare and ":" not in bare.partition("/")[0]:
            bare = os.path.abspath(bare)
        return cls(bare, ref or "HEAD", user, word)


def checkout(source: str, into: str, folder: str, *, limit: int = LIMIT) -> Code:
    """Check `source` (``URL@REF``) out into `folder`, new or empty, submodules too, and capture it into `into`.

    The folder stays a git repository, one commit deep, with the URL, less its credentials, as ``origin``. git uses the
    user's own credentials and settings, but no hooks and no prompts. Any thread; each git that fetches gets 10 minutes.

    Raises:
        InputError: no such source, or larger than `limit`. NotFoundError: no such repository or ref, or no git.
        CredentialsError, UnreachableError, DeadlineError: the fetch. AlreadyExistsError: `folder` is not empty.
    """
    wanted = Source.parse(source)
    with disk(folder), emptied_if_failed(folder):
        folder = os.path.realpath(folder)
        _fetched(wanted, folder)
        code = of_checkout(folder, into, limit)
    return replace(code, remote=wanted.url, ref=wanted.ref)


def _split(source: str) -> tuple[str, str, str]:
    """URL, ``@``, ref. Refs and paths may hold ``/`` and ``@``: ``.git`` ends a URL, else the last ``@``"""
    start = source.find("://") + 3 if "://" in source else 0
    authority = re.match(r"[^/]*@[^/:]*:" if not start else r"[^/]*", source[start:])
    start += authority.end() if authority else 0
    path = source[start:]
    at = path.find(".git@") + 4 if ".git@" in path else -1 if path.endswith(".git") else path.rfind("@")
    return (source, "", "") if at < 0 else (source[: start + at], "@", path[at + 1 :])


def _credentials(url: str) -> tuple[str | None, str | None]:
    parts = urlsplit(url) if url.startswith(("http://", "https://")) else None
    if parts is None or "@" not in parts.netloc:
        return None, None
    user, _, word = parts.netloc.rpartition("@")[0].partition(":")
    found = unquote(user), unquote(word)
    if any("\n" in one or "\0" in one for one in found):
        raise InputError("its credentials hold a line break", path=without_userinfo(url), hint="check the URL")
    return found


def _git(wanted: Source, folder: str) -> Git:
    if wanted.user is None:
        return Git(folder, _SLOW)
    parts = urlsplit(wanted.url)
    context = f"credential.{parts.scheme}://{parts.netloc}.helper"
    settings = (*_SLOW, f"{context}=", f"{context}={_HELPER}")
    return Git(folder, settings, {_USER: wanted.user, _WORD: wanted.word or ""})


def _fetched(wanted: Source, folder: str) -> None:
    git = _git(wanted, folder)
    git.run("init", "--quiet", "--template=")
    git.run("remote", "add", "origin", wanted.url)
    try:
        git.run("fetch", "--quiet", "--depth=1", "--no-tags", "--", wanted.url, wanted.ref, timeout=FETCH_S)
        commit = "FETCH_HEAD"
    except (CredentialsError, DeadlineError, NoRoomError, UnreachableError) as error:
        raise _named(error, wanted) from None
    except HeadraceError as error:
        commit = _found_in_all(git, wanted, error)
    git.run("checkout", "--quiet", "--detach", f"{commit}^{{commit}}", timeout=FETCH_S)
    with suppress(HeadraceError):  # where it came from, for those who look
        git.run("update-ref", "refs/remotes/origin/HEAD", "HEAD")
    if os.path.lexists(os.path.join(folder, ".gitmodules")):
        modules = ("submodule", "--quiet", "update", "--init", "--recursive", "--depth=1")
        git.run(*modules, timeout=FETCH_S)


def _found_in_all(git: Git, wanted: Source, error: HeadraceError) -> str:
    """Fetch all, and look there: for a commit given in short, and servers that give no single commit, or none alone."""
    if not isinstance(error, InputError) and not _COMMIT.match(wanted.ref):
        raise _named(error, wanted) from None
    try:
        git.run("fetch", "--quiet", "--no-tags", "--", wanted.url, *_ALL, "HEAD", timeout=FETCH_S)
    except HeadraceError as second:
        raise _named(second, wanted) from None
    if wanted.ref == "HEAD":
        return "FETCH_HEAD"
    for name in (f"refs/tags/{wanted.ref}", f"refs/remotes/origin/{wanted.ref}", wanted.ref):
        if git.run("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}", allow=(0, 1, 128)).code == 0:
            return name
    hint = "check its name"
    raise _named(NotFoundError("has no such branch, tag or commit", hint=hint), wanted)


def _named(error: HeadraceError, wanted: Source) -> HeadraceError:
    """The same, about the URL rather than our folder."""
    error.path = f"{shown(wanted.url)}@{wanted.ref}"
    return error
