"""How much memory this process holds at most. The kernel's own figure, begun anew: a long run has had its peak."""

from __future__ import annotations

from pathlib import Path


def peak_kib(*, anew: bool = False) -> int:
    """The highest resident memory since it was last begun anew (VmHWM, proc(5): ``clear_refs``)."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
