"""Did the resumed run see exactly the samples that were left?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Proof:
    """Counts of sample keys in the interrupted epoch."""

    before: int
    """Trained on when the checkpoint was written."""
    after: int
    """Seen by the resumed run."""
    missing: int
    repeated: int

    @property
    def holds(self) -> bool:
        """Every sample exactly once."""
        return not self.missing and not self.repeated

    def __str__(self) -> str:
        verdict = "every sample exactly once" if self.holds else f"{self.missing} MISSING, {self.repeated} REPEATED"
        return f"{self.before:,} samples before the checkpoint + {self.after:,} after the resume: {verdict}"


def compare(everything: Collection[str], before: Sequence[str], after: Sequence[str]) -> Proof:
    """Compare the keys seen up to the checkpoint and after the resume with all keys of an epoch."""
    seen = set(before) | set(after)
    return Proof(
        before=len(before),
        after=len(after),
        missing=len(set(everything) - seen),
        repeated=len(before) + len(after) - len(seen),
    )
