"""Settings files of the user's, ours and other programs': replaced whole or not at all."""

from __future__ import annotations

import os
import tempfile

from headrace.base.errors import DeniedError


def replace_file(file: str | os.PathLike[str], text: str) -> None:
    """Replace `file`, or what it is a link to, in one step, keeping its mode; its folder is made where it is missing.

    Raises DeniedError: that cannot be done, and all is as before.
    """
    target = os.path.realpath(file)
    try:
        mode = os.stat(target).st_mode & 0o777 if os.path.exists(target) else 0o644
        os.makedirs(os.path.dirname(target), exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".headrace-")
        try:
            with open(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
            os.chmod(temporary, mode)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise DeniedError(f"cannot be written: {error.strerror}", path=os.fspath(file)) from error
