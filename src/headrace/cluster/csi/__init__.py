"""A CSI plugin: volumes of Kubernetes that are mounts of headrace. See README.md. Needs the extra ``csi``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

if TYPE_CHECKING:
    from headrace.cluster.csi.attendant import attend as attend
    from headrace.cluster.csi.plugin import Plugin as Plugin
    from headrace.cluster.csi.program import serve_csi as serve_csi
    from headrace.cluster.csi.volumes import DRIVER as DRIVER
    from headrace.cluster.csi.volumes import Volumes as Volumes

__all__ = ["DRIVER", "Plugin", "Volumes", "attend", "serve_csi"]

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(
        __name__,
        {
            "attendant": ("attend",),
            "plugin": ("Plugin",),
            "program": ("serve_csi",),
            "volumes": ("DRIVER", "Volumes"),
        },
    )
