"""What `Dataset.open` is given: a snapshot, an input of a run, or what the namespace makes of a name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.base.errors import NotFoundError, SettingError
from headrace.catalog.pins import is_pin_name
from headrace.catalog.snapshot import is_snapshot_name, open_snapshot
from headrace.namespace.naming import tell_hidden

if TYPE_CHECKING:
    from headrace.base.settings import Settings
    from headrace.namespace import Namespace

_WHERE = "/path/in/the/namespace, s3://bucket/prefix, ./folder, name@version, or run:<id>/<input>"


def target_of(name: str | os.PathLike[str], namespace: Namespace, settings: Settings) -> str:
    """What to open, so written that it means the same in every process and working folder.

    What is written like a snapshot (``pets@v1``, ``pets``) is one, unless something here has that name and no snapshot
    does. A path object is always a path. Requests are made only where both may be meant.

    Raises:
        NotFoundError: there is nothing of that name here. InputError: as `Namespace.named`.
    """
    if isinstance(name, str):
        if is_pin_name(name):
            return name
        if is_snapshot_name(name) and not (os.path.lexists(name) and _is_no_snapshot(name, namespace, settings)):
            return name
    target = namespace.named(name)
    text = os.fspath(name)
    if not text.startswith("/") and target.startswith("file://") and target != text:
        if not os.path.lexists(target.removeprefix("file://")):
            raise NotFoundError("no such file or folder on this machine", path=text, hint=_WHERE)
    else:
        tell_hidden(target)
    return target


def _is_no_snapshot(name: str, namespace: Namespace, settings: Settings) -> bool:
    try:
        open_snapshot(name, namespace=namespace, settings=settings)
    except (NotFoundError, SettingError):  # or no home, where any would be
        return True
    return False
