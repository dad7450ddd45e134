"""A mount as `headrace mount` opens it: `open_mount`."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import TYPE_CHECKING

from headrace.base.settings import Settings
from headrace.fetch import Fetcher
from headrace.mount.mount_options import MountOptions
from headrace.mount.mounted import Mounted
from headrace.namespace import Namespace, tell_hidden

if TYPE_CHECKING:
    from headrace.mount.kernel.holder import HeldMount


def open_mount(
    path: str, mountpoint: str, options: MountOptions | None = None, *, settings: Settings | None = None,
    held: HeldMount | None = None,
) -> Mounted:  # fmt: skip
    """Show `path`, or the whole namespace, as the folder `mountpoint`; returns once it answers. The caller then calls
    `Mounted.wait` and `Mounted.close`, on the same thread; `Mounted.end` has `wait` return.

    Args:
        path: of a folder of the namespace, or a URL; ``/``: all that is attached.
        mountpoint: an empty folder of this machine.
        options: None: those of the settings.
        settings: None: `Settings.load`.
        held: as `Mounted.open`.

    Raises:
        As `Mounted.open`.
    """
    found = settings or Settings.load()
    chosen = options or MountOptions.of(found, "")
    if not chosen.source:  # what `mount` and `df` show, and what `mount -a` knows it by
        chosen = dataclasses.replace(chosen, source="headrace" if path == "/" else path)
    with Namespace.load(found) as namespace:
        place = namespace.named(path)
    tell_hidden(place)
    own = functools.cache(lambda: Fetcher.open(found))  # a mount closes it, and the process's fetcher is for all
    space = Namespace.load(found, fetcher=own, local=False)
    return Mounted.open(found, space, place, os.path.abspath(mountpoint), chosen, held)
