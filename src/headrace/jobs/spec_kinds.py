"""The fields of a job that take more than one kind: its command, processes and GPUs."""

from __future__ import annotations

import re
import shlex
from typing import Any, cast

from headrace.jobs import spec_checks as check
from headrace.jobs.spec_errors import FieldError
from headrace.jobs.spec_fields import declare
from headrace.jobs.spec_values import a_text, each, listed, whole, whole_text

_MARKS = re.compile(r"[^A-Za-z0-9._-]+")


def command(doc: str) -> Any:
    """A list of arguments, or one text for the shell; None: not given."""
    return declare(_command, doc, None, "list of texts, or text", flag=_command_flag)


def processes(doc: str) -> Any:
    """A whole number from 1, or ``auto``."""
    return declare(_processes, doc, 1, "whole number, or `auto`", unit="count", flag=whole_text)


def workers(doc: str) -> Any:
    """How many, or from how many to how many: ``4..32``; None: not given."""
    return declare(_workers, doc, None, "whole number, or a range like `4..32`", unit="count")


def gpus(doc: str) -> Any:
    """``all``, how many, or which."""
    return declare(_gpus, doc, "all", "`all`, whole number, or list of them", flag=_gpus_flag)


def title(command: tuple[str, ...] | str | None) -> str:
    """A name for a job from its command: of its script, its module, or its program."""
    words = _words(command)
    script = next((word for word in words if re.search(r"\w\.(py|sh)\Z", word)), None)
    if script is None and "-m" in words[1:-1]:
        script = words[words.index("-m", 1) + 1]
    last = (script or next(iter(words), "")).rstrip("/").rpartition("/")[2]
    return _MARKS.sub("-", re.sub(r"\.(py|sh)\Z", "", last)).strip("._-")[:100] or "job"


def _words(command: tuple[str, ...] | str | None) -> list[str]:
    if not isinstance(command, str):
        return list(command or ())
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return [word for word in words if not re.match(r"[A-Za-z_][A-Za-z0-9_]*=", word)]


def _command(value: object) -> tuple[str, ...] | str:
    if isinstance(value, str):
        check.filled(a_text(value))
        return value
    found = each(value, a_text)
    if not found:
        raise FieldError("is empty", hint='write it like ["python", "train.py"], or leave it out')
    if not found[0].strip():
        raise FieldError("is empty", 0, hint="the first item is the program")
    return found


def _command_flag(text: str) -> object:
    return listed(text) if text.lstrip().startswith("[") else text


def _processes(value: object) -> int | str:
    if isinstance(value, str):
        return _word(value, "auto")
    return whole(value, 1)


def _workers(value: object) -> tuple[int, int]:
    if isinstance(value, (tuple, list)):  # as it was read, or recorded
        least, most = each(cast("list[object]", value), lambda one: whole(one, 1))
    elif isinstance(value, str):
        first, dots, last = value.partition("..")
        least, most = (whole(whole_text(one.strip()), 1) for one in (first, last if dots else first))
    else:
        least = most = whole(value, 1)
    if least > most:
        raise FieldError(f"goes from {least} down to {most}", hint="write the smaller first: 4..32")
    return least, most


def _gpus(value: object) -> int | str | tuple[int, ...]:
    if isinstance(value, str):
        return _word(value, "all")
    if isinstance(value, int):
        return whole(value, 0)
    found = each(value, lambda one: whole(one, 0))
    if len(set(found)) < len(found):
        raise FieldError("names a GPU twice")
    return found


def _word(value: str, wanted: str) -> str:
    if value != wanted:
        raise FieldError(f"{value!r} is neither a number nor {wanted!r}")
    return value


def _gpus_flag(text: str) -> object:
    if text.lstrip().startswith("["):
        return listed(text)
    return [whole_text(one) for one in text.split(",")] if "," in text else whole_text(text)
