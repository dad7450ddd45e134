"""JupyterLab with the namespace in its file browser, and the page in its launcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

if TYPE_CHECKING:
    from headrace.web.jupyter.configured import Shown as Shown
    from headrace.web.jupyter.configured import user_folder as user_folder
    from headrace.web.jupyter.configured import write as write
    from headrace.web.jupyter.lab import Running as Running
    from headrace.web.jupyter.lab import running_lab as running_lab

__all__ = ["Running", "Shown", "running_lab", "user_folder", "write"]

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(
        __name__,
        {
            "configured": ("Shown", "user_folder", "write"),
            "lab": ("Running", "running_lab"),
        },
    )
