"""``/node``: this machine: stores and how far they are, cache, mounts, servers, claims, what is being sent."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Final

from headrace.web.node import LOOK_S, Look
from headrace.web.told import Page, Told
from headrace.web.world import World


@dataclass(frozen=True, slots=True)
class Asked:
    """Nothing."""


@dataclass(frozen=True, slots=True)
class Shown:
    """`every_s`: seconds for which a look is shown to all who ask."""

    host: str
    look: Look
    cache_folder: str
    every_s: float


def view(world: World, asked: Asked) -> Told:  # noqa: ARG001
    """As it was looked at lately."""
    shown = Shown(socket.gethostname(), world.node.look(), world.settings.cache.dir, LOOK_S)
    command = "headrace doctor && headrace cache status && headrace mounts --live && headrace sync --status"
    return Told(shown, command, "hr.Namespace.load().mounts()")


_WHAT: Final = "This machine: stores, cache, mounts, servers of models, claims, what is being sent."
PAGE = Page("/node", "node", Asked, Shown, view, _WHAT)
