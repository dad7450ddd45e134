"""The machine: CPU, load, memory, disks, network."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

from headrace.tracking.samplers_limits import Limits
from headrace.tracking.samplers_rates import Rates

_log = logging.getLogger("headrace.tracking")
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
_IDLE = ("idle", "iowait")


class Machine:
    """One thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._psutil = _psutil()
        self._cpu, self._traffic = Rates(), Rates()

    def sample(self, seconds: float | None) -> dict[str, float]:
        """Figures by name. `seconds`: since the call before; None: there was none; 0: too few to count."""
        found = {"system/load": os.getloadavg()[0], **_memory(self._limits)}
        if self._psutil is not None:
            found.update(_cpu(self._cpu.grown(dict(_times(self._psutil)), seconds)))
            found.update(self._traffic.of(dict(_traffic(self._psutil)), seconds))
        return found


@cache
def _psutil() -> Any:
    """None: there is none, which is told once."""
    try:
        import psutil
    except ImportError:
        hint = 'pip install "headrace[runs]"'
        _log.warning("no figures of CPU, disks and network: psutil is not installed (%s)", hint)
        return None
    return psutil


def _times(psutil: Any) -> Iterator[tuple[str, float]]:
    """Seconds that each core was busy and idle. Time that a hypervisor took counts as busy: nobody here had it."""
    for core, told in enumerate(psutil.cpu_times(percpu=True)):
        for state, names in (("busy", _BUSY), ("idle", _IDLE)):
            yield f"{core}/{state}", sum(getattr(told, name, 0.0) for name in names)


def _cpu(grown: dict[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    sums = [0.0, 0.0]
    for name, busy in grown.items():
        core, _, state = name.partition("/")
        if state == "busy" and (total := busy + grown.get(f"{core}/idle", 0.0)) > 0:
            found[f"system/cpu/{core}"] = 100 * busy / total
            sums = [sums[0] + busy, sums[1] + total]
    return {"system/cpu": 100 * sums[0] / sums[1], **found} if found else {}


def _traffic(psutil: Any) -> Iterator[tuple[str, float]]:
    """Bytes since the machine came up."""
    disks = psutil.disk_io_counters(nowrap=False)
    if disks is not None:
        yield "system/disk_read", disks.read_bytes
        yield "system/disk_written", disks.write_bytes
    told = psutil.net_io_counters(pernic=True, nowrap=False)
    interfaces = [one for name, one in told.items() if name != "lo"]
    if interfaces:
        yield "system/net_received", sum(one.bytes_recv for one in interfaces)
        yield "system/net_sent", sum(one.bytes_sent for one in interfaces)


def _memory(limits: Limits) -> dict[str, float]:
    """See ``proc_meminfo(5)``."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            told = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in file)}
        total, available = told["MemTotal"], told["MemAvailable"]
    except (OSError, KeyError):
        return {}
    used, allowed = total - available, limits.memory_used()
    if allowed is not None and allowed[0] < total:
        total, used = allowed
        available = min(available, max(0, total - used))
    return {"system/memory_total": total, "system/memory_used": used, "system/memory_available": available}
