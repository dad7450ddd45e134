"""What ``headrace doctor`` looks at, from Python `hr.doctor`: one module a subject, each gives findings. See README.md.

Imported on first use (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

if TYPE_CHECKING:
    from headrace.checkup.examining import doctor as doctor
    from headrace.checkup.finding import Finding as Finding
    from headrace.checkup.finding import Status as Status

__all__ = ["Finding", "Status", "doctor"]

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(__name__, {"finding": ("Finding", "Status"), "examining": ("doctor",)})
