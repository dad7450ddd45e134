"""S3 over the namespace and the node's cache. Needs the extra `gateway`. Imported on first use (PEP 562)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

if TYPE_CHECKING:
    from headrace.gateway.extra import needed as needed
    from headrace.gateway.keys import Key as Key
    from headrace.gateway.keys import Keyring as Keyring
    from headrace.gateway.keys import load as load
    from headrace.gateway.keys import made as made
    from headrace.gateway.opening import open_gateway as open_gateway
    from headrace.gateway.options import GatewayOptions as GatewayOptions
    from headrace.gateway.server import Gateway as Gateway

__all__ = ["Gateway", "GatewayOptions", "Key", "Keyring", "load", "made", "needed", "open_gateway"]

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(
        __name__,
        {
            "extra": ("needed",),
            "keys": ("Key", "Keyring", "load", "made"),
            "opening": ("open_gateway",),
            "options": ("GatewayOptions",),
            "server": ("Gateway",),
        },
    )
