"""Which bucket is which part of the namespace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.base.errors import InputError, NotFoundError
from headrace.gateway.failures import S3Failure
from headrace.namespace import Namespace, paths
from headrace.namespace.location import Location

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]\Z")


@dataclass(frozen=True)
class Bucket:
    """A bucket. `root`: the path whose folder it is. `nested`: something else is attached below."""

    name: str
    root: str
    nested: bool

    def path(self, key: str) -> str:
        """The namespace's name of an object."""
        return paths.join(self.root, key)

    def key(self, path: str) -> str:
        """The inverse, of a path in it."""
        return paths.key_below(self.root, path)


class Buckets:
    """All of them. Immutable.

    Args:
        namespace: what they are parts of.
        tree: the name of one bucket that is all of it; else each attached store is one, named by its path with ``-``
            for ``/``.
        named: further ones, or others for these: name to path.

    Raises:
        InputError: two of one name, or a name that no bucket can have.
    """

    def __init__(self, namespace: Namespace, tree: str = "", named: Mapping[str, str] | None = None) -> None:
        mounts = [mount.path for mount in namespace.mounts()]
        chosen = dict(named or {})
        roots: list[tuple[str, str]] = [(name, paths.check_mount_path(path)) for name, path in chosen.items()]
        if tree:
            roots.append((tree, "/"))
        elif not chosen:
            roots += [(mount[1:].replace("/", "-") or "root", mount) for mount in mounts]
        self._namespace = namespace
        self._all: dict[str, Bucket] = {}
        for name, root in roots:
            self._add(name, root, mounts)

    def _add(self, name: str, root: str, mounts: Iterable[str]) -> None:
        if not _NAME.match(name):
            hint = "name it by --bucket NAME=/path: letters, digits, and . _ - between them"
            raise InputError(f"{name!r} is no name for a bucket", path=root, hint=hint)
        if name in self._all:
            hint = "name them by --bucket NAME=/path"
            raise InputError(f"{self._all[name].root} and {root} would both be the bucket {name}", hint=hint)
        below = root if root == "/" else root + "/"
        nested = any(mount != root and mount.startswith(below) for mount in mounts)
        self._all[name] = Bucket(name, root, nested)

    def __iter__(self) -> Iterable[Bucket]:
        return iter(sorted(self._all.values(), key=lambda one: one.name))

    @property
    def names(self) -> list[str]:
        """In order."""
        return sorted(self._all)

    def get(self, name: str) -> Bucket:
        """The bucket of that name. Raises S3Failure."""
        found = self._all.get(name)
        if found is None:
            raise S3Failure("NoSuchBucket", "The specified bucket does not exist")
        return found

    def locate(self, bucket: Bucket, key: str) -> Location:
        """Where an object is. No request.

        Raises:
            S3Failure: NoSuchKey, where no store is.
        """
        try:
            location = self._namespace.resolve(bucket.path(key))
        except NotFoundError:
            location = None
        if location is None or not location.key:
            raise S3Failure("NoSuchKey", "The specified key does not exist.")
        return location
