"""Manifests of what answers requests: ``headrace serve``, the page, the S3 door.

Probes ask what the program really answers: `headrace serve` its health, the page ``/healthz``; the S3 door answers
nothing to who brings no key, so it is only asked for a connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.cluster.kubernetes import pods
from headrace.cluster.kubernetes.tree import Each, Text, Tree, Value, When

_LISTEN: Final = ("--host", "0.0.0.0", "--port", Text("{service.port}"))  # noqa: S104
_KEYS: Final = "/keys/keys.toml"
_OWN_KEYS: Final = 'umask 077 && cp /keys/keys.toml /tmp/keys.toml && exec headrace gateway --keys /tmp/keys.toml "$@"'
"""The file of keys must be its reader's alone, which a file of a secret is not."""


def serve() -> list[Tree]:
    """Models behind HTTP; more pods when their CPUs are busy."""
    command = ("headrace", "serve", Each("service.models"), *_LISTEN, "--grace", Text("{service.grace}s"))
    container = _container("serve", command, _http("/v2/health/ready"), _http("/healthz"), _token("SERVE"))
    scaling = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": pods.metadata("serve"),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": Value("name")},
            "minReplicas": Value("service.replicas"),
            "maxReplicas": Value("service.most"),
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
                }
            ],
        },
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": pods.metadata("serve"),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": pods.labels("serve")}},
    }
    return [*_service("serve", container), When("service.most", scaling), budget]


def web() -> list[Tree]:
    """The page over the bucket."""
    command = ("headrace", "web", *_LISTEN, "--hosts", Text("{name},{service.hosts}"))
    return _service("web", _container("web", command, _http("/healthz"), _http("/healthz"), _token("WEB")))


def gateway() -> list[Tree]:
    """S3 over namespace and cache."""
    answers = {"tcpSocket": {"port": "http"}}
    container = _container("gateway", ("sh",), answers, answers) | {
        "args": ["-c", _OWN_KEYS, "gateway", *_LISTEN],
    }
    container["volumeMounts"].append({"name": "keys", "mountPath": "/keys", "readOnly": True})
    keys = {"name": "keys", "secret": {"secretName": Value("service.secret"), "defaultMode": 0o440}}
    return _service("gateway", container, [keys])


def _container(component: str, command: Sequence[Tree], ready: Tree, live: Tree, env: Sequence[Tree] = ()) -> Tree:
    return pods.container(
        component, command, env=env,
        ports=[{"name": "http", "containerPort": Value("service.port")}],
        readinessProbe=ready | {"periodSeconds": 5, "timeoutSeconds": 5},
        livenessProbe=live | {"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
        startupProbe=live | {"periodSeconds": 2, "failureThreshold": 60},
        lifecycle={"preStop": {"exec": {"command": ["sleep", Text("{service.drain}")]}}},
    )  # fmt: skip


def _http(path: str) -> Tree:
    return {"httpGet": {"path": path, "port": "http"}}


def _token(program: str) -> list[Tree]:
    source = {"secretKeyRef": {"name": Value("service.secret"), "key": "token"}}
    return [{"name": f"HEADRACE_{program}_TOKEN", "valueFrom": source}]


def _service(component: str, container: Tree, volumes: Sequence[Tree] = ()) -> list[Tree]:
    labels = pods.labels(component)
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": pods.metadata(component, queued=True),
        "spec": {
            "replicas": When("service.most", Value("service.replicas"), absent=True),
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": pods.pod(
                    [container], [*pods.files(always=False), *volumes],
                    terminationGracePeriodSeconds=Value("service.grace"),
                ),
            },
        },
    }  # fmt: skip
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": pods.metadata(component),
        "spec": {
            "selector": labels,
            "ports": [{"name": "http", "port": Value("service.port"), "targetPort": "http"}],
        },
    }
    settings = When("settings", pods.config_map(component, {}))
    return [pods.service_account(component), settings, deployment, service]
