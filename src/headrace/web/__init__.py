"""The page over the bucket: runs, data and files as one looks at them in a browser. Imported on first use (PEP 562)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

if TYPE_CHECKING:
    from headrace.web.export import export_run as export_run
    from headrace.web.extra import needed as needed
    from headrace.web.jupyter.opening import configure_lab as configure_lab
    from headrace.web.jupyter.opening import open_lab as open_lab
    from headrace.web.opening import open_page as open_page
    from headrace.web.options import Options as Options
    from headrace.web.server import Server as Server
    from headrace.web.world import World as World

__all__ = [
    "Options", "Server", "World", "configure_lab", "export_run", "needed", "open_lab", "open_page",
]  # fmt: skip

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(
        __name__,
        {
            "export": ("export_run",),
            "extra": ("needed",),
            "jupyter.opening": ("configure_lab", "open_lab"),
            "opening": ("open_page",),
            "options": ("Options",),
            "server": ("Server",),
            "world": ("World",),
        },
    )
