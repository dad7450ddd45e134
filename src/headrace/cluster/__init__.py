"""Many machines: a job as a gang on a Ray cluster, and data work by its nodes. See README.md.

Imported on first use (PEP 562), and Ray when something is asked of it: a worker that does pieces needs no jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

if TYPE_CHECKING:
    from headrace.cluster.csi.program import serve_csi as serve_csi
    from headrace.cluster.data.caches import Checked as Checked
    from headrace.cluster.data.caches import verify_caches as verify_caches
    from headrace.cluster.data.indexing import scanning_on as scanning_on
    from headrace.cluster.data.listing import listing_on as listing_on
    from headrace.cluster.data.loading import ClusterWarmed as ClusterWarmed
    from headrace.cluster.data.loading import load_on as load_on
    from headrace.cluster.data.packing import pack_on as pack_on
    from headrace.cluster.data.unpacking import unpack_on as unpack_on
    from headrace.cluster.kubernetes.request import KubernetesRequest as KubernetesRequest
    from headrace.cluster.kubernetes.request import Rendered as Rendered
    from headrace.cluster.kubernetes.request import kubernetes_chart as kubernetes_chart
    from headrace.cluster.kubernetes.request import kubernetes_manifests as kubernetes_manifests
    from headrace.cluster.local import LocalCluster as LocalCluster
    from headrace.cluster.peers import PeerServer as PeerServer
    from headrace.cluster.pieces import Workers as Workers
    from headrace.cluster.pieces import workers as workers
    from headrace.cluster.run_there import run_on_cluster as run_on_cluster
    from headrace.cluster.sharing import share_cache as share_cache
    from headrace.cluster.shells.asking import ShellOptions as ShellOptions
    from headrace.cluster.shells.asking import shell as shell
    from headrace.cluster.submit import Following as Following
    from headrace.cluster.submit import submit as submit

__all__ = [
    "Checked", "ClusterWarmed", "Following", "KubernetesRequest", "LocalCluster", "PeerServer", "Rendered",
    "ShellOptions", "Workers", "kubernetes_chart", "kubernetes_manifests", "listing_on", "load_on", "pack_on",
    "run_on_cluster", "scanning_on", "serve_csi", "share_cache", "shell", "submit", "unpack_on", "verify_caches",
    "workers",
]  # fmt: skip

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(
        __name__,
        {
            "csi.program": ("serve_csi",),
            "data.caches": ("Checked", "verify_caches"),
            "data.indexing": ("scanning_on",),
            "data.listing": ("listing_on",),
            "data.loading": ("ClusterWarmed", "load_on"),
            "data.packing": ("pack_on",),
            "data.unpacking": ("unpack_on",),
            "kubernetes.request": ("KubernetesRequest", "Rendered", "kubernetes_chart", "kubernetes_manifests"),
            "local": ("LocalCluster",),
            "peers": ("PeerServer",),
            "pieces": ("Workers", "workers"),
            "run_there": ("run_on_cluster",),
            "sharing": ("share_cache",),
            "shells.asking": ("ShellOptions", "shell"),
            "submit": ("Following", "submit"),
        },
    )
