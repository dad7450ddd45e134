"""When, and as which machine, this system was booted.

Entries are published without waiting for the disk (an fsync per small file would cost more than fetching it again).
A crash of a *process* loses nothing, because the kernel still holds the bytes. A crash of the *machine* may leave a
file short, empty or full of zeros. So an entry last changed before the present boot is a suspect: its checksum is
compared once, on first use, and its change time then moves past the boot.
"""

from __future__ import annotations

import time
import uuid
from functools import cache


@cache
def boot_id() -> str:
    """Twelve hex digits that change with every boot and differ between machines (containers on one host share them)."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().replace("-", "").strip()[:12]
    except OSError:
        return f"{uuid.getnode():012x}"[:12]


def boot_time() -> float:
    """When this machine booted, in seconds since the epoch, by the present wall clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.time() - time.clock_gettime(clock)
