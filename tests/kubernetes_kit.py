"""Manifests, judged as strictly as can be without a cluster: a field that nobody knows is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate
import pytest
import yaml

from tests.conftest import CI

CRDS = Path(os.environ.get("HEADRACE_TEST_CRDS") or Path(__file__).parents[1].parent / "shared/crds")
"""Definitions of the kinds that are not Kubernetes's own, as their projects publish them."""
OWN = {"ray.io": "rayjobs.yaml", "trainer.kubeflow.org": "trainjobs.yaml"}
VERSIONS = ("1.29", "1.37")
"""The first of Kubernetes that has native sidecars, and the latest that is known here."""
RESTRICTED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected",
                      "secret"}  # fmt: skip


def custom(*kinds: str) -> list[str]:
    """Those, where they can be checked; where they cannot, a test says so, but not to who allows no skips."""
    return list(kinds) if CRDS.is_dir() or not CI else []


class RefusedError(Exception):
    """Kubernetes would not take it."""


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.load_all(text, yaml.CSafeLoader))


def check(document: dict[str, Any]) -> None:
    """Raises RefusedError: a field that is unknown, missing, or of the wrong kind."""
    group = document["apiVersion"].partition("/")[0]
    if group not in OWN:
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                raise RefusedError(str(error.message)) from None
        return
    definition = CRDS / OWN[group]
    if not definition.is_file():
        pytest.skip(f"no definitions of custom resources in {CRDS}")
    found = _judge(definition, document).iter_errors(document)
    errors = [f"{list(one.instance_path)}: {one.message}" for one in found]
    if errors:
        raise RefusedError("; ".join(errors))


def accepted(document: dict[str, Any]) -> bool:
    """Whether Kubernetes would take it."""
    if not {"apiVersion", "kind"} <= document.keys():
        return False
    try:
        check(document)
    except RefusedError:
        return False
    return True


def _judge(definition: Path, document: dict[str, Any]) -> Any:
    versions = _definition(definition)["spec"]["versions"]
    version = document["apiVersion"].partition("/")[2]
    (schema,) = [one["schema"]["openAPIV3Schema"] for one in versions if one["name"] == version]
    told = _strict(schema, [document])
    text = {"type": "string"}
    texts = {"type": "object", "additionalProperties": text}
    told["properties"]["metadata"] = {
        "type": "object", "required": ["name"], "additionalProperties": False,
        "properties": {"name": text, "namespace": text, "labels": texts, "annotations": texts},
    }  # fmt: skip
    return jsonschema_rs.Draft202012Validator(told)


@cache
def _definition(path: Path) -> Any:
    return yaml.load(path.read_text(), yaml.CSafeLoader)


def _strict(schema: dict[str, Any], seen: list[Any]) -> dict[str, Any]:
    """The schema, as far as it is about `seen`: all of it would take a minute to compile.

    What a definition does not know the API server drops without a word; here it is an error.
    """
    made = {key: one for key, one in schema.items() if key not in ("properties", "items", "additionalProperties")}
    tables = [one for one in seen if isinstance(one, dict)]
    known = schema.get("properties", {})
    made["properties"] = {
        key: _strict(one, [table[key] for table in tables if key in table]) if any(key in table for table in tables)
        else {}
        for key, one in known.items()
    }  # fmt: skip
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        made["additionalProperties"] = _strict(more, [one for table in tables for one in table.values()])
    elif schema.get("type") == "object" and not schema.get("x-kubernetes-preserve-unknown-fields") and more is not True:
        made["additionalProperties"] = False
    if "items" in schema:
        items = [item for one in seen if isinstance(one, list) for item in one]
        made["items"] = _strict(schema["items"], items) if items else {}
    return made


def pods(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The specs of all pods in a document, wherever they are."""
    for value in document.values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                if "containers" in one and "replicatedJobs" not in one:
                    yield one
                else:
                    yield from pods(one)


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["containers"], *pod.get("initContainers", ())]


def privileged(document: dict[str, Any]) -> list[str]:
    """Names of what the pod security standard "restricted" would refuse.

    https://kubernetes.io/docs/concepts/security/pod-security-standards/
    """
    found: list[str] = []
    for pod in pods(document):
        found += [key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
        found += [one["name"] for one in pod.get("volumes", ()) if not set(one) - {"name"} <= RESTRICTED_VOLUMES]
        whole = pod.get("securityContext", {})
        for one in containers(pod):
            own = {**whole, **one.get("securityContext", {})}
            kept = (
                own.get("runAsNonRoot") is True,
                own.get("runAsUser", 1) != 0,
                own.get("seccompProfile", {}).get("type") == "RuntimeDefault",
                own.get("allowPrivilegeEscalation") is False,
                own.get("capabilities") == {"drop": ["ALL"]},
                not own.get("privileged"),
                own.get("readOnlyRootFilesystem") is True,
            )
            if not all(kept):
                found.append(one["name"])
    return found
