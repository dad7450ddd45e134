"""A server asked over HTTP on its own node: whether it is ready, and what it counts."""

from __future__ import annotations

import time
from http.client import HTTPConnection, HTTPException
from typing import Final

from headrace.cluster.serving.told import Figures

_PENDING: Final = "nv_inference_pending_request_count"
_ANSWERED: Final = "nv_inference_request_success"
_FAILED: Final = "nv_inference_request_failure"
_SPENT: Final = "nv_inference_request_duration_us"


def ask_ready(host: str, port: int, timeout: float) -> bool | None:
    """Whether it is ready; None: it does not answer."""
    answer = _get(host, port, "/v2/health/ready", timeout, None)
    return None if answer is None else answer[0] == 200


def ask_figures(host: str, port: int, timeout: float, token: str | None) -> Figures | None:
    """What it counts, over all models; None: it does not answer."""
    begun = time.monotonic()
    answer = _get(host, port, "/metrics", timeout, token)
    at = (begun + time.monotonic()) / 2
    return figures_of(answer[1].decode(), at) if answer is not None and answer[0] == 200 else None


def figures_of(text: str, at: float) -> Figures:
    """Of its metrics in Prometheus's text form. https://prometheus.io/docs/instrumenting/exposition_formats/"""
    sums = dict.fromkeys((_PENDING, _ANSWERED, _FAILED, _SPENT), 0.0)
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in sums:
            sums[name] += float(line.rpartition(" ")[2])
    return Figures(at, sums[_PENDING], sums[_ANSWERED], sums[_FAILED], sums[_SPENT] / 1e6)


def under_way(before: Figures | None, now: Figures) -> float:
    """How many requests were under way between two looks, on average; at least as many as are now.

    By Little's law, https://en.wikipedia.org/wiki/Little%27s_law: the time that requests have spent, by the time that
    has passed. A look alone would miss requests that are quicker than looks are frequent. A version that is swapped
    begins to count anew.
    """
    if before is None or now.at <= before.at:
        return now.pending
    return max(now.pending, (now.spent - before.spent) / (now.at - before.at))


def requests_a_second(before: Figures | None, now: Figures) -> float:
    """Between two looks, failed ones among them."""
    if before is None or now.at <= before.at:
        return 0.0
    return max(0.0, now.answered + now.failed - before.answered - before.failed) / (now.at - before.at)


def _get(host: str, port: int, path: str, timeout: float, token: str | None) -> tuple[int, bytes] | None:
    connection = HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
