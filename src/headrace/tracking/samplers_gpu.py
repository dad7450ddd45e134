"""GPUs, through NVIDIA's management library (https://docs.nvidia.com/deploy/nvml-api/)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

_DEVICES: Final = ("/dev/nvidiactl", "/dev/dxg")
"""Of the driver, and of Windows' below Linux: without one there is no GPU, and no need of the library."""


class Gpus:
    """All GPUs that the driver shows. Opened when first asked; without a library, a driver or a GPU there are none.

    One thread. `nvml`: ``pynvml``, or what stands in for it.
    """

    def __init__(self, nvml: Any = None) -> None:
        self._nvml = nvml
        self._handles: list[Any] | None = None

    def sample(self) -> dict[str, float]:
        """Figures by name; what a GPU does not tell, or not any more, is left out."""
        if self._handles is None:
            self._handles = self._opened()
        found: dict[str, float] = {}
        for index, handle in enumerate(self._handles):
            for name, read in _FIGURES.items():
                try:
                    found[f"system/gpu/{index}/{name}"] = float(read(self._nvml, handle))
                except self._nvml.NVMLError:
                    continue
        return found

    def close(self) -> None:
        """Idempotent."""
        if self._handles and self._nvml is not None:
            self._handles = []
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError:
                pass

    def _opened(self) -> list[Any]:
        self._nvml = nvml = self._nvml or _pynvml()
        if nvml is None:
            return []
        try:
            nvml.nvmlInit()
            return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError:
            return []


def _pynvml() -> Any:
    if not any(os.path.exists(one) for one in _DEVICES):
        return None
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


_FIGURES: dict[str, Callable[[Any, Any], float]] = {
    "utilization": lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
    "memory_used": lambda nvml, handle: nvml.nvmlDeviceGetMemoryInfo(handle).used,
    "temperature": lambda nvml, handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
    "power": lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
}
