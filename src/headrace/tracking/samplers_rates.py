"""Counters that only grow, as what they grew by a second."""

from __future__ import annotations

from collections.abc import Mapping


class Rates:
    """One thread. The seconds since the counters before: None at the first time, 0 to leave them as they are."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}

    def grown(self, counters: Mapping[str, float], seconds: float | None) -> dict[str, float]:
        """What each grew by; one that is new, or fell since it counts from anew, is left out."""
        if seconds == 0:
            return {}
        before, self._before = self._before, dict(counters)
        return {name: now - before[name] for name, now in counters.items() if name in before and now >= before[name]}

    def of(self, counters: Mapping[str, float], seconds: float | None) -> dict[str, float]:
        """Likewise, a second."""
        grown = self.grown(counters, seconds)
        return {name: by / seconds for name, by in grown.items()} if seconds else {}
