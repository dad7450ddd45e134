"""Manifests of a job: a Job of Kubernetes's own, a RayJob of KubeRay's, a TrainJob of Kubeflow's.

https://kubernetes.io/docs/concepts/workloads/controllers/job/, https://docs.ray.io/en/latest/cluster/kubernetes/,
https://www.kubeflow.org/docs/components/trainer/. A pod that takes the place of another goes on from the newest
complete checkpoint: ``--go-on``.
"""

from __future__ import annotations

import shlex
from typing import Final

from headrace.cluster.kubernetes import pods, sidecar
from headrace.cluster.kubernetes.tree import Text, Tree, Value, When

_RUN: Final = ("headrace", "run", "--go-on", pods.JOB)
_HEAD: Final[Tree] = {"requests": {"cpu": "1", "memory": "4G"}, "limits": {"memory": "4G"}}
"""Of the head, which leads the run and does none of its work."""
_SUBMITTER: Final[Tree] = {"requests": {"cpu": "100m", "memory": "500M"}, "limits": {"memory": "1G"}}


def job() -> list[Tree]:
    """One pod. A disrupted one is replaced, as often as that happens; what the command does wrong ends the job."""
    main = pods.container("headrace", _RUN, mounts=[pods.job_mount(), sidecar.seen()])
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"containerName": "headrace", "operator": "NotIn", "values": [0]}},
    ]
    made = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": pods.metadata("job", queued=True),
        "spec": {
            "suspend": When("queue", tree=True),
            "backoffLimit": Value("job.restarts"),
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": rules},
            "template": {"metadata": {"labels": pods.labels("job")}, "spec": _worker(main, restartPolicy="Never")},
        },
    }
    return [pods.service_account("job"), _files("job"), made]


def rayjob() -> list[Tree]:
    """A Ray cluster of one head and the nodes, for as long as the job takes. KubeRay needs no rights of its pods."""
    head = pods.pod(
        [pods.container("ray-head", (), mounts=[pods.job_mount()]) | {"resources": _HEAD}], pods.files(always=True)
    )
    worker = _worker(pods.container("ray-worker", (), mounts=[sidecar.seen()]))
    submitter = pods.pod(
        [pods.container("ray-job-submitter", ()) | {"resources": _SUBMITTER}], pods.files(always=True),
        restartPolicy="Never",
    )  # fmt: skip
    labels = {"labels": pods.labels("rayjob")}
    cluster = {
        "rayVersion": Value("job.ray"),
        "authOptions": {"mode": "token"},
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"},  # noqa: S104
            "template": {"metadata": labels, "spec": head},
        },
        "workerGroupSpecs": [
            {
                "groupName": "nodes",
                "replicas": Value("job.nodes"),
                "minReplicas": Value("job.least"),
                "maxReplicas": Value("job.nodes"),
                "rayStartParams": {"num-cpus": Text("{cpus}")},
                "template": {"metadata": labels, "spec": worker},
            }
        ],
    }
    made = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": pods.metadata("rayjob", queued=True),
        "spec": {
            "suspend": When("queue", tree=True),
            "entrypoint": shlex.join(_RUN),
            "submissionMode": "K8sJobMode",
            "backoffLimit": 0,
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": cluster,
            "submitterPodTemplate": {"metadata": labels, "spec": submitter},
        },
    }
    return [pods.service_account("rayjob"), _files("rayjob"), made]


def trainjob() -> list[Tree]:
    """The pods of a runtime that the cluster has. Each node is a run of its own, all of them one torchrun."""
    name = Text("node$(JOB_COMPLETION_INDEX)-{name}")
    secret = [
        When("secret", {"name": key, "valueFrom": {
            "secretKeyRef": {"name": Value("secret"), "key": key, "optional": True}}})
        for key in pods.CREDENTIALS
    ]  # fmt: skip
    patch = {
        "serviceAccountName": Value("service_account"),
        "securityContext": pods.RIGHTS,
        "terminationGracePeriodSeconds": Value("job.grace"),
        "containers": [
            {
                "name": "node",
                "securityContext": pods.NO_RIGHTS,
                "volumeMounts": [*pods.own_mounts(), pods.job_mount()],
            }
        ],
        "volumes": [*pods.own_volumes(), *pods.files(always=True)],
    }
    inner = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": patch}}}}]}
    made = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": pods.metadata("trainjob", queued=True),
        "spec": {
            "suspend": When("queue", tree=True),
            "runtimeRef": {"name": Value("job.runtime")},
            "trainer": {
                "image": Value("image"),
                "command": list(_RUN[:1]),
                "args": ["run", "--go-on", "--name", name, pods.JOB],
                "numNodes": Value("job.nodes"),
                "numProcPerNode": Value("job.processes"),
                "resourcesPerNode": pods.resources(),
                "env": [*pods.variables(), *secret],
            },
            "runtimePatches": [
                {"manager": "headrace.dev/k8s", "trainingRuntimeSpec": {"template": {"spec": inner}}}
            ],
        },
    }  # fmt: skip
    return [pods.service_account("trainjob"), _files("trainjob"), made]


def _worker(main: Tree, **more: Tree) -> Tree:
    """A pod that the command runs in, with the mount beside it where one is asked for."""
    return pods.pod(
        [main], [*pods.files(always=True), *(When("mount.path", one) for one in sidecar.volumes())],
        terminationGracePeriodSeconds=Value("job.grace"), initContainers=When("mount.path", [sidecar.container()]),
        **more,
    )  # fmt: skip


def _files(component: str) -> Tree:
    return pods.config_map(component, {"job.toml": Value("job.file")})
