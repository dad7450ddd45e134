"""Models: published by a run, found by a name. See README.md in this folder.

Everything is imported on first use (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

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
    from headrace.models.lineage import models_of as models_of
    from headrace.models.loading.by_format import load as load
    from headrace.models.loading.export import export_onnx as export_onnx
    from headrace.models.loading.export import named as named
    from headrace.models.loading.onnx_external import open_mapped as open_mapped
    from headrace.models.loading.onnx_external import open_prepacked as open_prepacked
    from headrace.models.mirroring import Mirrored as Mirrored
    from headrace.models.overview import Overview as Overview
    from headrace.models.pointing import Moved as Moved
    from headrace.models.publishing import Told as Told
    from headrace.models.registry import ModelVersion as ModelVersion
    from headrace.models.registry import Registry as Registry
    from headrace.models.removing import Removed as Removed
    from headrace.models.signatures import from_file as from_file
    from headrace.models.verbs import alias as alias
    from headrace.models.verbs import diff as diff
    from headrace.models.verbs import follow as follow
    from headrace.models.verbs import gc as gc
    from headrace.models.verbs import list as list  # noqa: A004  the same word as the command's
    from headrace.models.verbs import mirror as mirror
    from headrace.models.verbs import promote as promote
    from headrace.models.verbs import publish as publish
    from headrace.models.verbs import pull as pull
    from headrace.models.verbs import resolve as resolve
    from headrace.models.verbs import rm as rm
    from headrace.models.verbs import rollback as rollback
    from headrace.models.verbs import show as show
    from headrace.models.verbs import unalias as unalias
    from headrace.models.verbs import versions as versions

__all__ = [
    "Aliases", "Difference", "Following", "LocalModel", "Mirrored", "ModelCard", "ModelFile", "ModelVersion",
    "Moved", "Overview", "Pointer", "Registry", "Removed", "Signature", "Step", "Tensor", "Told", "alias", "diff",
    "export_onnx", "follow", "from_file", "gc", "list", "load", "mirror", "models_of", "named", "open_mapped",
    "open_prepacked", "promote", "publish", "pull", "resolve", "rm", "rollback", "show", "unalias", "versions",
]  # fmt: skip

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(
        __name__,
        {
            "aliases": ("Aliases", "Pointer"),
            "card": ("ModelCard", "ModelFile", "Signature", "Tensor"),
            "differing": ("Difference",),
            "following": ("Following", "Step"),
            "holding": ("LocalModel",),
            "lineage": ("models_of",),
            "loading.by_format": ("load",),
            "loading.export": ("export_onnx", "named"),
            "loading.onnx_external": ("open_mapped", "open_prepacked"),
            "mirroring": ("Mirrored",),
            "overview": ("Overview",),
            "pointing": ("Moved",),
            "publishing": ("Told",),
            "registry": ("ModelVersion", "Registry"),
            "removing": ("Removed",),
            "signatures": ("from_file",),
            "verbs": (
                "alias", "diff", "follow", "gc", "list", "mirror", "promote", "publish", "pull", "resolve",
                "rm", "rollback", "show", "unalias", "versions",
            ),
        },
    )
