"""A CSI plugin: volumes of Kubernetes that are mounts of headrace. See README.md. Needs the extra ``csi``."""

from headrace.cluster.csi.volumes import DRIVER, Volumes

__all__ = ["DRIVER", "Volumes"]
