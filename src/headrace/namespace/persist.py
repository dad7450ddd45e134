"""Attachments kept in ``headrace.toml``: written with tomlkit, so that comments and order survive."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.base.errors import DeniedError, InputError, NotFoundError, SettingError
from headrace.base.user_files import replace_file
from headrace.namespace import paths
from headrace.namespace.mounts import Mount

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_SECRET = ("secret", "token", "password", "passphrase", "credential", "_key", "sas", "sse_c")
_NO_SECRET = ("access_key_id", "sse_kms_key_id", "federated_token_file", "application_credentials", "service_account")
"""Names that look like a secret's but hold a public id or a file's name."""


def write_mount(
    path: str, url: str, options: Mapping[str, Any], file: str | os.PathLike[str], *, read_only: bool = False
) -> None:
    """Record an attachment in `file`, replacing one at the same path; everything else in the file stays as it is.

    Raises:
        InputError: `path` is no mount path, or an option holds a secret, or the URL does.
        SettingError: an unknown option, or `file` is not valid TOML.
        DeniedError: `file` cannot be written.
    """
    import tomlkit

    mount = Mount.make(path, url, options, read_only=read_only)
    _refuse_secrets(mount)
    document = _read(file)
    table = tomlkit.table()
    table["url"] = mount.url + "/" if mount.url.endswith("://") else mount.url
    if read_only:
        table["read_only"] = True
    for name, value in options.items():
        if value is not None:
            table[name] = value
    mounts = document.setdefault("mounts", tomlkit.table(is_super_table=True))
    mounts[mount.path] = table
    replace_file(file, document.as_string())


def remove_mount(path: str, file: str | os.PathLike[str]) -> None:
    """Take an attachment out of `file`.

    Raises:
        NotFoundError: `file` holds none at `path`.
        SettingError, DeniedError: as `write_mount`.
    """
    path = paths.check_mount_path(path)
    document = _read(file)
    mounts = document.get("mounts", {})
    if path not in mounts:
        raise NotFoundError(f"not attached in {os.fspath(file)}", path=path, hint="see: headrace mounts")
    del mounts[path]
    if not mounts:
        del document["mounts"]
    replace_file(file, document.as_string())


def _refuse_secrets(mount: Mount) -> None:
    names = [name for name in mount.options if name not in _NO_SECRET and any(word in name for word in _SECRET)]
    if names:
        raise InputError(
            f"{', '.join(names)}: a secret is not written to a file",
            path=mount.path,
            hint="name a profile of your credentials file (profile=…), or set the standard environment variables",
        )


def _read(file: str | os.PathLike[str]) -> TOMLDocument:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        with open(file, encoding="utf-8") as stream:
            return tomlkit.parse(stream.read())
    except FileNotFoundError:
        return tomlkit.document()
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise SettingError(f"is not valid TOML: {error}", path=os.fspath(file), hint="mend it first") from error
    except OSError as error:
        raise DeniedError(f"cannot be read: {error.strerror}", path=os.fspath(file)) from error
