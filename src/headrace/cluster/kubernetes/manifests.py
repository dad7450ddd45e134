"""What is asked for as manifests, as a chart, and as files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace.base.errors import AlreadyExistsError, InputError
from headrace.cluster.kubernetes import jobs, services, yaml_text
from headrace.cluster.kubernetes.chart import chart
from headrace.cluster.kubernetes.csi import csi
from headrace.cluster.kubernetes.pods import config_map
from headrace.cluster.kubernetes.sidecar import beside, has_pods
from headrace.cluster.kubernetes.tree import Tree, When, filled
from headrace.cluster.kubernetes.wanted import Kind, Wanted

_MADE: Final[Mapping[Kind, Callable[[], list[Tree]]]] = {
    "job": jobs.job, "rayjob": jobs.rayjob, "trainjob": jobs.trainjob,
    "serve": services.serve, "web": services.web, "gateway": services.gateway,
    "mount": lambda: [When("settings", config_map("mount", {}))], "csi": csi,
}  # fmt: skip
"""What each kind is made of. A new kind is a function that makes trees, named here and in `Kind`."""


def manifests(wanted: Wanted) -> list[dict[str, Any]]:
    """The documents, in the order in which they are applied."""
    found = (filled(tree, wanted.values) for tree in _MADE[wanted.kind]())
    return [document for document in found if document is not None]


def with_mount(wanted: Wanted, path: str) -> list[dict[str, Any]]:
    """The documents of a file of anybody's, with the mount beside the containers of their pods.

    Raises:
        NotFoundError: no such file. InputError: it holds no manifests, or none with pods.
    """
    values, theirs = wanted.values, yaml_text.read(path)
    if not any(has_pods(document) for document in theirs):
        raise InputError("has no pods to put a mount into", path=path, hint="a Pod, a Deployment, a Job …")
    return [*manifests(wanted), *(beside(one, values) if has_pods(one) else one for one in theirs)]


def chart_files(wanted: Wanted) -> dict[str, str]:
    """The files of a chart, by their names below its folder. Raises InputError: there is none for a mount alone."""
    if wanted.kind == "mount":
        raise InputError("a chart is made of a job or a service", hint="headrace k8s render --mount … --beside FILE")
    trees = {_kind(tree): tree for tree in _MADE[wanted.kind]()}
    return chart(wanted, trees)


def files(documents: list[dict[str, Any]]) -> dict[str, str]:
    """A file for each document, by its name."""
    made: dict[str, str] = {}
    for document in documents:
        name = _kind(document)
        count = sum(known.startswith(name) for known in made)
        made[f"{name}{f'-{count + 1}' if count else ''}.yaml"] = yaml_text.one(document)
    return made


def write(folder: str, made: Mapping[str, str]) -> None:
    """Files into a folder, which is made. Raises AlreadyExistsError: something else is there already. Any OSError."""
    if os.path.isdir(folder) and (others := sorted(set(os.listdir(folder)) - {name.split("/")[0] for name in made})):
        hint = "name another folder, or a new one"
        raise AlreadyExistsError(f"holds something else already: {others[0]}", path=folder, hint=hint)
    for name, text in made.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def _kind(tree: Tree) -> str:
    document = tree.tree if isinstance(tree, When) else tree
    return str(document["kind"]).lower()
