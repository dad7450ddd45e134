"""What is counted of a version's requests, by Triton's names."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Reason: TypeAlias = Literal["REJECTED", "CANCELED", "BACKEND", "OTHER"]
"""Triton's reasons of a failure: not taken, given up by the client, the model's own, any other."""


@dataclass(slots=True)
class Counts:
    """Of one version of one model, since it was loaded. Times in seconds. Any thread."""

    success: int = 0
    failures: dict[str, int] = field(default_factory=lambda: defaultdict[str, int](int))
    rows: int = 0
    executions: int = 0
    request_s: float = 0.0
    queue_s: float = 0.0
    input_s: float = 0.0
    infer_s: float = 0.0
    output_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def failed(self, reason: Reason) -> None:
        """One request that got no outputs."""
        with self.lock:
            self.failures[reason] += 1

    def executed(self, rows: int, infer_s: float, input_s: float) -> None:
        """One batch was run."""
        with self.lock:
            self.executions += 1
            self.rows += rows
            self.infer_s += infer_s
            self.input_s += input_s

    def answered(self, count: int, request_s: float, queue_s: float, output_s: float) -> None:
        """So many requests of a batch; their times added up."""
        with self.lock:
            self.success += count
            self.request_s += request_s
            self.queue_s += queue_s
            self.output_s += output_s

    def sums(self) -> tuple[int, int]:
        """Requests that were answered, and those that were not."""
        with self.lock:
            return self.success, sum(self.failures.values())

    def told(self) -> dict[str, float]:
        """By Triton's names, as Prometheus has them; failures with their reason."""
        with self.lock:
            found = {name: float(getattr(self, own)) * scale for name, own, scale in _NAMES}
            return found | {f"nv_inference_request_failure:{why}": float(n) for why, n in self.failures.items()}


_NAMES: Final = (
    ("nv_inference_request_success", "success", 1), ("nv_inference_count", "rows", 1),
    ("nv_inference_exec_count", "executions", 1), ("nv_inference_request_duration_us", "request_s", 1e6),
    ("nv_inference_queue_duration_us", "queue_s", 1e6), ("nv_inference_compute_input_duration_us", "input_s", 1e6),
    ("nv_inference_compute_infer_duration_us", "infer_s", 1e6),
    ("nv_inference_compute_output_duration_us", "output_s", 1e6),
)  # fmt: skip
