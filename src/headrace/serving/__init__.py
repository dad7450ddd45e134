"""Models behind HTTP: TensorFlow Serving's REST and the Open Inference Protocol. Needs the extra ``serving``.

See README.md in this folder. Everything is imported on first use (PEP 562), so that a runtime's process brings no more
than it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

if TYPE_CHECKING:
    from headrace.serving.batching import Rules as Rules
    from headrace.serving.extra import needed as needed
    from headrace.serving.options import Options as Options
    from headrace.serving.options import Route as Route
    from headrace.serving.options import Way as Way
    from headrace.serving.server import Server as Server
    from headrace.serving.server import Supervisor as Supervisor
    from headrace.serving.until import Ending as Ending
    from headrace.serving.until import serve as serve

__all__ = ["Ending", "Options", "Route", "Rules", "Server", "Supervisor", "Way", "needed", "serve"]

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(
        __name__,
        {
            "batching": ("Rules",),
            "extra": ("needed",),
            "options": ("Options", "Route", "Way"),
            "server": ("Server", "Supervisor"),
            "until": ("Ending", "serve"),
        },
    )
