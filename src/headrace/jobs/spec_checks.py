"""What a text in a spec must be: names, paths that stay inside, patterns, references. Each raises FieldError."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from headrace.base.errors import InputError
from headrace.jobs.spec_errors import FieldError
from headrace.store.url import parse_url

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_INPUT = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_SNAPSHOT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(@[A-Za-z0-9][A-Za-z0-9._-]{0,99})?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLES = re.compile(r"[A-Za-z0-9_*?\[\]!-]+")
_GIT = re.compile(
    r"((?:https?|ssh|git|file)://[^\s/]*/\S*"  # a URL,
    r"|(?:[^\s/:@-][^\s/:@]*@)?[^\s/:@-][^\s/:@]*:(?!//)[^\s:]\S*"  # SSH in short: user@host:path,
    r"|/\S*)"  # or a folder of this machine;
    r"@([^\s@:-][^\s@:]*)"  # and the ref
)
_IMAGE = re.compile(r"[A-Za-z0-9][^\s@]*(@sha256:[0-9a-f]{64})?")
_PYTHON = re.compile(r"(cpython|pypy)?@?3(\.[0-9]+){0,2}")
_CLUSTER = re.compile(r"ray://[^\s/@]+")
_MARKS = "letters, digits, '.', '_' and '-', at most 100, beginning with a letter or a digit"


def name(value: str) -> None:
    """The name of a job, or of a tag."""
    _match(_NAME, value, "a name", _MARKS)


def cluster(value: str) -> None:
    """The address of a Ray cluster, as Ray's client takes it."""
    _match(_CLUSTER, value, "a cluster's address", "ray://HOST:10001; ray://auto is the one that this machine is of")


def input_name(value: str) -> None:
    """The name of an input: a part of a variable's name."""
    _match(_INPUT, value, "an input's name", "letters, digits, '_' and '-', beginning with a letter")


def task_name(value: str) -> None:
    """The name of a task: a part of a variable's name."""
    if not value:
        raise FieldError("is missing", hint='write name = "train"')
    _match(_INPUT, value, "a task's name", "letters, digits, '_' and '-', beginning with a letter")


def parameter(value: str) -> None:
    """The name of a task's parameter: a tag, and what stands in braces in a command."""
    _match(_INPUT, value, "a parameter's name", "letters, digits, '_' and '-', beginning with a letter")


def input_variable(value: str) -> str:
    """The variable by which the command finds an input: ``train`` → ``HEADRACE_INPUT_TRAIN``."""
    return "HEADRACE_INPUT_" + value.upper().replace("-", "_")


def input_names(values: Iterable[str]) -> None:
    """Names of inputs whose variables differ."""
    seen: dict[str, str] = {}
    for value in values:
        variable = input_variable(value)
        if variable in seen:
            raise FieldError(f"shares its variable {variable} with {seen[variable]!r}", value, hint="rename one")
        seen[variable] = value


def source(value: str) -> None:
    """A snapshot's name, a path of the namespace, or a URL without credentials."""
    if not value:
        raise FieldError("is missing", hint="a snapshot's name, a path or a URL")
    if "://" in value:
        try:
            parse_url(value)
        except InputError as error:
            raise FieldError(f"{error.path}: {error.reason}", hint=error.hint) from None
    elif not value.startswith("/"):
        hint = "a snapshot is written name@version, a path starts with /, a folder of this machine is file:///folder"
        _match(_SNAPSHOT, value, "a snapshot's name, a path or a URL", hint)


def inside(value: str) -> None:
    """A path, or a pattern of paths, that stays below where it starts."""
    if not value:
        raise FieldError("is empty", hint="'.' is the folder itself")
    if value.startswith("/") or ".." in value.split("/"):
        raise FieldError(f"{value!r} leads out of the folder", hint="write a relative path without '..'")


def pattern(value: str) -> None:
    """A regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        place = "" if error.pos is None else f", at character {error.pos + 1}"
        raise FieldError(f"is no regular expression: {error.msg}{place}", hint="a literal is escaped by \\") from None
    except (OverflowError, RecursionError):
        raise FieldError("is no regular expression: too large") from None


def variable(value: str) -> None:
    """The name of an environment variable."""
    _match(_VARIABLE, value, "a variable's name", "letters, digits and '_', not beginning with a digit")


def variables(value: str) -> None:
    """The name of a variable, or a pattern of names."""
    if "=" in value:
        raise FieldError("has a value", hint="only the name stands here; values are set in environment.variables")
    _match(_VARIABLES, value, "a pattern of variables' names", "write it like WANDB_*")


def git(value: str) -> None:
    """``URL@REF``, without a password."""
    url, _ = git_parts(value)
    if url.startswith(("http://", "https://")) and "@" in url.partition("://")[2].partition("/")[0]:
        raise FieldError("holds credentials", hint="leave them to git: a credential helper, or an SSH key")
    if re.match(r"[a-z]+://[^/@]*:[^/@]*@", url):
        raise FieldError("holds a password", hint="leave it to git: a credential helper, or an SSH key")


def git_parts(value: str) -> tuple[str, str]:
    """The URL and the ref."""
    match = _GIT.fullmatch(value)
    if match is None or "::" in value:
        raise FieldError("is not URL@REF", hint="write it like https://host/repo.git@v1.2: a tag, a branch or a commit")
    return match[1], match[2]


def image(value: str) -> None:
    """An OCI image: name, name and tag, or name and digest."""
    _match(_IMAGE, value, "an image", "write it like registry/name@sha256:…, with all 64 digits")


def python(value: str) -> None:
    """A version of Python."""
    _match(_PYTHON, value, "a version of Python", "write it like 3.11 or 3.11.9")


def filled(value: str) -> None:
    """Any text but none."""
    if not value.strip():
        raise FieldError("is empty")


def choice(*known: str) -> Callable[[str], None]:
    """One of a few words."""

    def check(value: str) -> None:
        if value not in known:
            raise FieldError(f"{value!r} is none of {', '.join(known)}")

    return check


def _match(wanted: re.Pattern[str], value: str, what: str, hint: str) -> None:
    if not wanted.fullmatch(value):
        raise FieldError(f"{value!r} is not {what}", hint=hint)
