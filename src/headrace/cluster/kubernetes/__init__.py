"""Manifests for Kubernetes: jobs, services, the mount; as YAML and as a chart for Helm. See README.md."""

from headrace.cluster.kubernetes.asking import for_csi, for_job, for_mount, for_service, needs
from headrace.cluster.kubernetes.manifests import chart_files, files, manifests, with_mount, write
from headrace.cluster.kubernetes.wanted import CsiPart, JobPart, Kind, MountPart, ServicePart, Wanted, quantity
from headrace.cluster.kubernetes.yaml_text import stream

__all__ = [
    "CsiPart",
    "JobPart",
    "Kind",
    "MountPart",
    "ServicePart",
    "Wanted",
    "chart_files",
    "files",
    "for_csi",
    "for_job",
    "for_mount",
    "for_service",
    "manifests",
    "needs",
    "quantity",
    "stream",
    "with_mount",
    "write",
]
