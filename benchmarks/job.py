"""What one measured process is told, and what it answers. Passed as JSON between `loader.py` and `child.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

BUCKET = "bench"
ACCESS_KEY = "benchmark"
SECRET_KEY = "benchmark-secret"  # the static server does not check it; clients sign all the same
REGION = "us-east-1"


@dataclass(frozen=True)
class Job:
    """One contender, once.

    `mode`: ``"steady"`` reads for ever and counts a window of `window_s` seconds, beginning `warm_s` after the first
    batch; ``"epoch"`` reads every sample once and counts all of it, from the first request on.
    """

    peer: str
    endpoint: str
    root: str
    dataset: str
    batch: int = 4
    mode: Literal["steady", "epoch"] = "steady"
    warm_s: float = 1.0
    window_s: float = 4.0
    scratch: str = ""
    seed: int = 7
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    python: str = ""
    """The interpreter; empty: this one."""

    @property
    def url(self) -> str:
        """The data set's prefix as an S3 URL, ending in a slash."""
        return f"s3://{BUCKET}/{self.dataset}/"

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Job:
        return Job(**json.loads(text))


@dataclass(frozen=True)
class Result:
    """What was measured. Times in seconds, sizes in bytes.

    `cpu_s` is user + system time of the client's whole process tree within the window, `rss` the peak resident memory
    of the tree (filled in by the parent). `wait_*` is how long the consumer waited for one batch, `ttfb` the time from
    opening the data set (listing and worker start included, imports not) to the first batch.
    """

    samples: int
    seconds: float
    bytes: int
    cpu_s: float
    wait_p50: float = 0.0
    wait_p99: float = 0.0
    ttfb: float = 0.0
    rss: int = 0
    checked: bool = False
    notes: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def rate(self) -> float:
        """Samples a second."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def cpu_us(self) -> float:
        """Client CPU a sample, microseconds."""
        return self.cpu_s / self.samples * 1e6 if self.samples else 0.0

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Result:
        return Result(**json.loads(text))
