"""Where sources are looked up. Apart from the rest, which is imported only by runs that have inputs."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.settings import Settings
from headrace.namespace import Namespace


@dataclass(frozen=True, slots=True)
class Site:
    """`namespace`: for sources; `settings`: for the home, the node's indices, and where copies are kept."""

    namespace: Namespace
    settings: Settings
