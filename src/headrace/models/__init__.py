"""Models: published by a run, found by a name. See README.md in this folder.

Everything is imported on first use (PEP 562).
"""

from __future__ import annotations

import builtins
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.models.aliases import Aliases as Aliases
    from headrace.models.aliases import Pointer as Pointer
    from headrace.models.card import ModelCard as ModelCard
    from headrace.models.card import ModelFile as ModelFile
    from headrace.models.card import Signature as Signature
    from headrace.models.card import Tensor as Tensor
    from headrace.models.differing import Difference as Difference
    from headrace.models.following import Following as Following
    from headrace.models.following import Step as Step
    from headrace.models.holding import LocalModel as LocalModel
    from headrace.models.loading.by_format import load as load
    from headrace.models.loading.export import export_onnx as export_onnx
    from headrace.models.loading.onnx_external import open_mapped as open_mapped
    from headrace.models.loading.onnx_external import open_prepacked as open_prepacked
    from headrace.models.pointing import Moved as Moved
    from headrace.models.publishing import Told as Told
    from headrace.models.registry import ModelVersion as ModelVersion
    from headrace.models.registry import Registry as Registry
    from headrace.models.removing import Removed as Removed
    from headrace.models.verbs import alias as alias
    from headrace.models.verbs import diff as diff
    from headrace.models.verbs import follow as follow
    from headrace.models.verbs import gc as gc
    from headrace.models.verbs import list as list  # noqa: A004  the same word as the command's
    from headrace.models.verbs import promote as promote
    from headrace.models.verbs import publish as publish
    from headrace.models.verbs import pull as pull
    from headrace.models.verbs import resolve as resolve
    from headrace.models.verbs import rm as rm
    from headrace.models.verbs import rollback as rollback
    from headrace.models.verbs import show as show
    from headrace.models.verbs import versions as versions

_FACE = {
    "follow": "verbs", "list": "verbs", "show": "verbs",
    "Aliases": "aliases", "Difference": "differing", "Following": "following", "LocalModel": "holding",
    "ModelCard": "card", "ModelFile": "card", "ModelVersion": "registry", "Moved": "pointing", "Pointer": "aliases",
    "Registry": "registry", "Removed": "removing", "Signature": "card", "Step": "following", "Tensor": "card",
    "Told": "publishing", "alias": "verbs", "diff": "verbs", "export_onnx": "loading.export", "gc": "verbs",
    "load": "loading.by_format", "open_mapped": "loading.onnx_external", "open_prepacked": "loading.onnx_external",
    "promote": "verbs", "publish": "verbs", "pull": "verbs", "resolve": "verbs", "rm": "verbs", "rollback": "verbs",
    "versions": "verbs",
}  # fmt: skip
"""Name → the module of this room that has it."""
__all__ = [
    "Aliases",
    "Difference",
    "Following",
    "LocalModel",
    "ModelCard",
    "ModelFile",
    "ModelVersion",
    "Moved",
    "Pointer",
    "Registry",
    "Removed",
    "Signature",
    "Step",
    "Tensor",
    "Told",
    "alias",
    "diff",
    "export_onnx",
    "follow",
    "gc",
    "list",
    "load",
    "open_mapped",
    "open_prepacked",
    "promote",
    "publish",
    "pull",
    "resolve",
    "rm",
    "rollback",
    "show",
    "versions",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module 'headrace.models' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"headrace.models.{_FACE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> builtins.list[str]:
    return sorted({*globals(), *_FACE})
