"""What is counted, as Prometheus reads it (text format 0.0.4): Triton's names for requests, our own for versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

Row: TypeAlias = "tuple[str, dict[str, str], float]"
"""A name, its labels, a value."""
METRICS: Final[dict[str, tuple[str, str]]] = {
    "nv_inference_request_success": ("counter", "Requests that were answered with outputs"),
    "nv_inference_request_failure": ("counter", "Requests that were not, by reason"),
    "nv_inference_count": ("counter", "Rows that were run"),
    "nv_inference_exec_count": ("counter", "Batches that were run"),
    "nv_inference_request_duration_us": ("counter", "From arrival to answer, microseconds, added up"),
    "nv_inference_queue_duration_us": ("counter", "From arrival to the batch's begin, microseconds, added up"),
    "nv_inference_compute_input_duration_us": ("counter", "Putting batches together, microseconds, added up"),
    "nv_inference_compute_infer_duration_us": ("counter", "In the model, microseconds, added up"),
    "nv_inference_compute_output_duration_us": ("counter", "Writing answers, microseconds, added up"),
    "nv_inference_pending_request_count": ("gauge", "Requests that have no answer yet"),
    "headrace_serving_version_info": ("gauge", "1 for each version that an alias leads to"),
    "headrace_serving_swaps_total": ("counter", "Versions that took the place of another"),
    "headrace_serving_refused_versions_total": ("counter", "Versions that did not load or did not warm up"),
    "headrace_serving_runtime_restarts_total": ("counter", "Runtimes' processes that were started again"),
    "headrace_serving_pointer_requests_total": ("counter", "Requests to the store for models' pointers"),
    "headrace_serving_store_away": ("gauge", "1 while a model's pointer cannot be had"),
    "headrace_serving_processes": ("gauge", "Processes that answer"),
}
_HIGHEST: Final = frozenset({"headrace_serving_version_info", "headrace_serving_store_away"})
"""Of these all processes say the same; the others are added up."""


def merged(rows: Iterable[Row]) -> list[Row]:
    """What several processes count, as one."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for name, labels, value in rows:
        key = (name, tuple(sorted(labels.items())))
        found[key] = max(found.get(key, 0.0), value) if name in _HIGHEST else found.get(key, 0.0) + value
    return [(name, dict(labels), value) for (name, labels), value in found.items()]


def text(rows: Sequence[Row]) -> bytes:
    """Rows of one name together, each name with what it is."""
    lines: list[str] = []
    for name, (kind, told) in METRICS.items():
        of_it = [(labels, value) for one, labels, value in rows if one == name]
        if of_it:
            lines += (f"# HELP {name} {told}", f"# TYPE {name} {kind}")
        lines += [f"{name}{_labels(labels)} {value:.15g}" for labels, value in of_it]
    return ("\n".join(lines) + "\n").encode()


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + told + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
