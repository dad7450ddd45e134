"""Attached for good, as `headrace attach` and `detach` do: the store is looked at, and the settings file written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.base.settings import FILE_NAME, config_files, user_file
from headrace.namespace.namespace import Namespace
from headrace.namespace.persist import remove_mount, write_mount


@dataclass(frozen=True, slots=True)
class Attached:
    """`file`: the settings file that has it now; `empty`: there is nothing below it yet, False where nobody looked."""

    file: str
    empty: bool


def attach(
    path: str, url: str, *, read_only: bool = False, file: str | None = None, check: bool = True, **options: Any
) -> Attached:
    """Put the store at `url` at `path` of the namespace, and keep that in a settings file. Any thread.

    Args:
        path: of the namespace.
        url: of the store.
        read_only: every write and delete below `path` is refused.
        file: the settings file to write; None: the nearest ``headrace.toml``, else one in the working folder.
        check: look whether the store answers.
        options: how the store is reached, as in ``[stores]``: ``profile="team"``. None: not said.

    Raises:
        InputError: `path` is no mount path, the URL or an option cannot be, or holds a secret. SettingError: an unknown
        option, or `file` is not valid TOML. DeniedError: `file` cannot be written. With `check`, any store error.
    """
    given = {name: value for name, value in options.items() if value is not None}
    with Namespace.load() as namespace:
        namespace.attach(path, url, read_only=read_only, **given)
        namespace.resolve(path)  # opens the store, which refuses a URL or option that cannot be; asks it nothing
        empty = check and not namespace.list(path)
    written = file or _nearest_file()
    write_mount(path, url, given, written, read_only=read_only)
    return Attached(written, empty)


def detach(path: str, *, file: str | None = None) -> str:
    """Take the store off `path` in a settings file: `file`, or the nearest. Nothing in the store changes. Any thread.

    Returns:
        The path of the file that was written.

    Raises:
        NotFoundError: the file has nothing at `path`. SettingError, DeniedError: as `attach`.
    """
    written = file or _nearest_file()
    remove_mount(path, written)
    return written


def _nearest_file() -> str:
    """The settings file attachments are kept in: the nearest upward, else one to be made here."""
    near = [path for path in config_files() if path != user_file()]
    return str(near[-1]) if near else FILE_NAME
