"""What the training process is told, as one JSON argument."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Plan:
    """One training job. `side`: images are scaled to side × side pixels; `channels` 1 (grey) or 3 (RGB)."""

    train: str
    test: str
    checkpoints: str
    classes: tuple[str, ...]
    side: int
    channels: int
    epochs: int
    checkpoint_epoch: int
    batch: int = 32
    seed: int = 7
    resume: str | None = None

    def dump(self) -> str:
        """As JSON."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def parse(text: str) -> Plan:
        """From JSON."""
        fields: dict[str, Any] = json.loads(text)
        fields["classes"] = tuple(fields["classes"])
        return Plan(**fields)
