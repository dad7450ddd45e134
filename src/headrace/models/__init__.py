"""Models: published by a run, found by a name. See README.md in this folder.

Everything is imported on first use (PEP 562).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.models.aliases import Aliases as Aliases
    from headrace.models.aliases import Pointer as Pointer
    from headrace.models.card import ModelCard as ModelCard
    from headrace.models.card import ModelFile as ModelFile
    from headrace.models.card import Signature as Signature
    from headrace.models.card import Tensor as Tensor
    from headrace.models.holding import LocalModel as LocalModel
    from headrace.models.pointing import Moved as Moved
    from headrace.models.publishing import Told as Told
    from headrace.models.registry import ModelVersion as ModelVersion
    from headrace.models.registry import Registry as Registry
    from headrace.models.verbs import alias as alias
    from headrace.models.verbs import promote as promote
    from headrace.models.verbs import publish as publish
    from headrace.models.verbs import rollback as rollback

_FACE = {
    "Aliases": "aliases", "Pointer": "aliases", "ModelCard": "card", "ModelFile": "card", "Signature": "card",
    "Tensor": "card", "LocalModel": "holding", "Told": "publishing", "ModelVersion": "registry", "Registry": "registry",
    "Moved": "pointing", "alias": "verbs", "promote": "verbs", "publish": "verbs", "rollback": "verbs",
}  # fmt: skip
"""Name → the module of this room that has it."""
__all__ = [
    "Aliases",
    "LocalModel",
    "ModelCard",
    "ModelFile",
    "ModelVersion",
    "Moved",
    "Pointer",
    "Registry",
    "Signature",
    "Tensor",
    "Told",
    "alias",
    "promote",
    "publish",
    "rollback",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module 'headrace.models' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"headrace.models.{_FACE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_FACE})
