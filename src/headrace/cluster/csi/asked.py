"""What a NodePublishVolume asks for, checked: a `Volume`, and the credentials for its mount alone.

What cannot be done is refused before anything is: who writes a volume may not do all that the plugin may.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.errors import InputError
from headrace.base.settings import Settings
from headrace.cluster.csi.messages import MODES, READ_ONLY_MODES
from headrace.mount import MountOptions, parse_options

SECRETS: Final = frozenset({
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_REGION",
    "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY",
})  # fmt: skip
"""Keys that the secret of a volume may have. All others could make the privileged process do something else."""
_ATTRIBUTES: Final[Mapping[str, str]] = {"path": "", "endpoint": "AWS_ENDPOINT_URL_S3", "region": "AWS_REGION"}
"""Keys of ``volumeAttributes``, and the variable that each becomes."""
_OWN: Final = "csi.storage.k8s.io/"
"""What Kubernetes itself adds to the attributes."""
_SCHEMES: Final = ("s3", "gs", "az", "http", "https")
_REFUSED: Final = frozenset({"staging", "fsname", "no_open", "threads"})
"""Mount options that are not the volume's to choose."""
_MOST: Final = 128
"""Bytes of an identifier: https://github.com/container-storage-interface/spec/blob/master/spec.md#size-limits."""


@dataclass(frozen=True, slots=True)
class Volume:
    """One volume at one place. `path`: of the namespace, or a URL. `options`: as `headrace mount -o` takes them."""

    id: str
    target: str
    path: str
    options: str
    endpoint: str = ""
    region: str = ""


def volume_of(request: Any, settings: Settings) -> Volume:
    """What is to be published. `settings`: the plugin's, which say what is attached.

    Raises:
        InputError: a field is missing, or cannot be had.
    """
    identity, target = where(request)
    if not request.HasField("volume_capability"):
        raise InputError("volume_capability is missing")
    capability = request.volume_capability
    if capability.HasField("block"):
        raise InputError("a bucket is no block device", hint="volumeMode: Filesystem")
    mode = capability.access_mode.mode
    if mode not in MODES:
        raise InputError(f"access mode {mode} is unknown")
    attributes = {key: value for key, value in request.volume_context.items() if not key.startswith(_OWN)}
    if unknown := sorted(set(attributes) - set(_ATTRIBUTES)):
        raise InputError(f"volumeAttributes.{unknown[0]} is unknown", hint=f"known: {', '.join(_ATTRIBUTES)}")
    path = _path(attributes.get("path", ""), settings)
    flags = [one for one in capability.mount.mount_flags if one]
    options = _options(flags, read_only=request.readonly or mode in READ_ONLY_MODES)
    return Volume(identity, target, path, options, attributes.get("endpoint", ""), attributes.get("region", ""))


def where(request: Any) -> tuple[str, str]:
    """Volume and target of a request. Raises InputError: one is missing, or the target is no place of its own."""
    identity, target = request.volume_id, request.target_path
    if not identity:
        raise InputError("volume_id is missing")
    if len(identity.encode()) > _MOST:
        raise InputError(f"volume_id is longer than {_MOST} bytes")
    if not target:
        raise InputError("target_path is missing")
    if not os.path.isabs(target) or os.path.normpath(target) != target.rstrip("/") or "\0" in target:
        raise InputError("target_path is not an absolute path without '..'", path=target)
    return identity, target.rstrip("/")


def credentials(request: Any) -> dict[str, str]:
    """What stands in the volume's secret. Raises InputError: a key that is none of `SECRETS`; its value is not told."""
    if unknown := sorted(set(request.secrets) - SECRETS):
        raise InputError(f"the secret's key {unknown[0]!r} is unknown", hint=f"known: {', '.join(sorted(SECRETS))}")
    return dict(request.secrets)


def _path(path: str, settings: Settings) -> str:
    """Never a folder of the node's, which a path that is not attached would be taken for."""
    if not path:
        raise InputError("volumeAttributes.path is missing", hint="s3://bucket/prefix, or what is attached")
    scheme, is_url, rest = path.partition("://")
    if is_url and scheme in _SCHEMES and rest:
        return path
    if is_url or not path.startswith("/") or os.path.normpath(path) != path.rstrip("/"):
        raise InputError("is neither a URL of a store nor a path that is attached", path=path, hint="s3://bucket/prefix")
    if not any(f"{path.rstrip('/')}/".startswith(f"{point.rstrip('/')}/") for point in settings.mounts):
        raise InputError("is not attached for the plugin", path=path, hint="give it a headrace.toml, or name a URL")
    return path


def _options(flags: list[str], *, read_only: bool) -> str:
    names = [one.partition("=")[0].strip() for flag in flags for one in flag.split(",")]
    if refused := sorted(_REFUSED.intersection(names)):
        raise InputError(f"mount option {refused[0]!r} cannot be chosen by a volume")
    if read_only and "rw" in names:
        raise InputError("mount option 'rw' of a volume that is read-only", hint="leave one of both out")
    parse_options(",".join(flags), MountOptions())
    return ",".join(dict.fromkeys(["allow_other", *flags, *(["ro"] if read_only else [])]))
