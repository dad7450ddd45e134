"""What a source in a call of fsspec's means: the name that it is, or a pattern; and what each file is copied to.

fsspec takes every source that holds ``*``, ``?`` or ``[`` for a pattern, also where a file has just that name. Here a
name is literal: it is a pattern only for calls that fsspec promises one to, and only where nothing has that name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from glob import has_magic
from typing import Any

from fsspec.implementations.local import trailing_sep
from fsspec.spec import AbstractFileSystem
from fsspec.utils import other_paths


def is_pattern(system: AbstractFileSystem, name: Any, *, literal: bool) -> bool:
    """Whether a name is to be expanded: it looks like a pattern, and nothing is called so. `literal`: never."""
    return not literal and has_magic(os.fspath(name)) and not system.exists(name)


def expand(
    system: AbstractFileSystem, path: Any, recursive: bool, maxdepth: int | None, *, literal: bool, **kwargs: Any
) -> list[str]:
    """Names of `system`, of one source or several, sorted. `recursive`: and all that is below them.

    Raises FileNotFoundError: none of them leads anywhere.
    """
    found: set[str] = set()
    for name in several(path):
        exact = not is_pattern(system, name, literal=literal)
        with suppress(FileNotFoundError):
            found.update(
                AbstractFileSystem.expand_path(system, [name], recursive, maxdepth, assume_literal=exact, **kwargs)
            )
    if not found:
        raise FileNotFoundError(path)
    return sorted(found)


def pairs(
    system: AbstractFileSystem, source: Any, there: AbstractFileSystem, target: Any,
    *, recursive: bool, maxdepth: int | None, literal: bool, **kwargs: Any,
) -> tuple[list[str], list[str]]:  # fmt: skip
    """What is copied, in `system`, and to which names of `there`: fsspec's rules, of names that are taken as they are.

    See https://filesystem-spec.readthedocs.io/en/latest/copying.html. Nothing: a folder was named, and not `recursive`.

    Raises FileNotFoundError: the source leads nowhere.
    """
    if isinstance(source, list) and isinstance(target, list):
        return source, target
    one = isinstance(source, str)
    pattern = one and is_pattern(system, source, literal=literal)
    sources = expand(system, source, recursive, maxdepth, literal=literal, **kwargs)
    if one and (not recursive or maxdepth is not None):
        sources = [name for name in sources if not (trailing_sep(name) or system.isdir(name))]
        if not sources:
            return [], []
    into = isinstance(target, str) and (trailing_sep(target) or there.isdir(target))
    beside = one and (len(sources) == 1 if pattern else into and not trailing_sep(source))
    return sources, other_paths(sources, _spelt(there, target), exists=beside, flatten=not one)


def several(path: Any) -> Iterable[Any]:
    """What one argument of fsspec's names."""
    return [path] if isinstance(path, (str, os.PathLike)) else path


def check_below(folder: str, names: Iterable[str]) -> None:
    """Raises ValueError: a local name leads out of a local folder, by a ``..`` in the name of an object."""
    top = os.path.abspath(folder)
    for name in names:
        path = os.path.abspath(name)
        if path != top and not path.startswith(top.rstrip(os.sep) + os.sep):
            raise ValueError(f"{name!r} leads out of {folder!r}")


def _spelt(there: AbstractFileSystem, target: Any) -> Any:
    """A target as `there` spells it."""
    if not isinstance(target, str):
        return target
    return there._strip_protocol(target)  # pyright: ignore[reportPrivateUsage] - there is no other
