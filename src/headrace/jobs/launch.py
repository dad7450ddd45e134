"""Several processes of one command on this node: by torchrun's own launcher, with its own variables.

https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from typing import Final

_PYTHON: Final = re.compile(r"python(\d+(\.\d+)?)?")
_DIES_WITH_IT: Final = ("setpriv", "--pdeathsig", "KILL", "--")


def launch(argv: Sequence[str], processes: int, *, here: bool) -> tuple[str, ...]:
    """`argv`, as often as that. `here`: on this machine, in no container, whose end would end them all.

    The launcher is that of the Python which `argv` names; for another program the ``torchrun`` on the search path. Each
    process is in a session of its own, so what kills the launcher would leave them; util-linux's ``setpriv`` sees to it
    that they go too.
    """
    if processes == 1:
        return tuple(argv)
    python = bool(argv) and _PYTHON.fullmatch(os.path.basename(argv[0])) is not None
    launcher = (argv[0], "-m", "torch.distributed.run") if python else ("torchrun",)
    bound = _DIES_WITH_IT if here and shutil.which(_DIES_WITH_IT[0]) else ()
    return (*launcher, "--standalone", f"--nproc-per-node={processes}", "--no-python", *bound, *argv)
