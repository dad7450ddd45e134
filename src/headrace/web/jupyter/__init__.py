"""JupyterLab with the namespace in its file browser, and the page in its launcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

if TYPE_CHECKING:
    from headrace.web.jupyter.configured import Shown as Shown
    from headrace.web.jupyter.lab import Running as Running
    from headrace.web.jupyter.opening import configure_lab as configure_lab
    from headrace.web.jupyter.opening import open_lab as open_lab

__all__ = ["Running", "Shown", "configure_lab", "open_lab"]

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(
        __name__,
        {
            "configured": ("Shown",),
            "lab": ("Running",),
            "opening": ("configure_lab", "open_lab"),
        },
    )
