"""What the training scripts of the demonstration are told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """One training. `train`, `test`: what `Dataset.open` takes; images are scaled to `side` × `side` pixels, of 1 or 3
    `channels` (grey, RGB); `samples`: of one epoch.
    """

    train: str
    test: str
    classes: int
    side: int
    channels: int
    samples: int
    epochs: int
    batch: int = 32

    @property
    def steps(self) -> int:
        """Of all epochs."""
        return self.epochs * -(-self.samples // self.batch)

    def flags(self, **changed: object) -> list[str]:
        """As arguments of the scripts; `changed`: some with other values."""
        told = {"epochs": self.epochs, "classes": self.classes, "side": self.side, "channels": self.channels}
        every = {**told, "batch": self.batch, **changed}
        return [word for name, value in every.items() for word in (f"--{name}", str(value))]
