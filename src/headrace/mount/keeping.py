"""What keeps a mount while its servers come and go, as `headrace mount --keep`: `holder_of_mount`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from headrace.base.settings import Settings
from headrace.mount.kernel.holder import Holder
from headrace.mount.live_mounts import record_file


def holder_of_mount(path: str, mountpoint: str, options: Sequence[str], *, settings: Settings | None = None) -> Holder:
    """A holder whose servers are a ``headrace mount`` each. Nothing is mounted before `Holder.open`. Main thread.

    `path`, `mountpoint`: as `open_mount`; `options`: texts, as ``-o`` takes them; `settings`: None: `Settings.load`.
    """
    point = os.path.abspath(mountpoint)
    given = [word for option in options for word in ("-o", option)]
    server = [sys.executable, "-P", "-m", "headrace.cli", "mount", path, point, "--foreground", *given]
    return Holder(server, folder=os.getcwd(), record=record_file(settings or Settings.load(), point))
