"""What a PATH on the command line names: a path of the namespace, a URL, a file on this machine, or a snapshot."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.namespace import Namespace

_FORMAT = re.compile(r'format="(\w+)"')


@contextmanager
def from_option() -> Generator[None]:
    """Hints that name Python's ``format=…`` name the option ``--from …`` instead. Also a decorator of commands."""
    try:
        yield
    except HeadraceError as error:
        if error.hint is not None:
            error.hint = _FORMAT.sub(r"--from \1", error.hint)
        raise


def open_namespace() -> Namespace:
    """The namespace of the settings that apply here."""
    from headrace.namespace import Namespace

    return Namespace.load()


def target(namespace: Namespace, text: str) -> str:
    """The path or URL that `text` names: see `Namespace.named`, which says what is raised."""
    from headrace.namespace import tell_hidden

    found = namespace.named(text)
    tell_hidden(found)
    return found


def is_snapshot(text: str) -> bool:
    """Whether `text` is written like a snapshot, ``name@version``, and no file here has that name."""
    from headrace.namespace import is_snapshot_text

    return is_snapshot_text(text)
