"""A worker process of Ray's that does pieces of work: set up once, with the caller's stores, mounts and home."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import headrace
from headrace.base.errors import UnsupportedError
from headrace.base.settings import Settings
from headrace.cluster.submission import Reach
from headrace.fetch import Fetcher
from headrace.namespace import Namespace


@dataclass(frozen=True)
class Site:
    """Where a piece is worked on: the caller's stores, mounts and home, and this node's own cache and limits.

    What works there takes them from here: they lie in no file, so `Settings.load()` does not find them.
    """

    namespace: Namespace
    settings: Settings
    host: str

    @cached_property
    def fetcher(self) -> Fetcher:
        """One for all pieces of the process; it lasts as long as that. Nobody closes it."""
        return Fetcher.open(self.settings)


@dataclass(frozen=True, slots=True)
class Asked:
    """What all pieces have in common. `work`: called with the site and a piece; `version`: of who asks."""

    work: Callable[[Site, Any], Any]
    reach: Reach
    version: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a piece came to, and the host that did it."""

    result: Any
    host: str


_set_up: list[tuple[Reach, Site]] = []
"""The last that this process was set up for."""


def do(asked: Asked, piece: Any) -> Answer:
    """Work on one piece, as a task of Ray's. Raises UnsupportedError: another version; and what the work raises."""
    if asked.version != headrace.__version__:
        hint = "have the same headrace here as on the nodes"
        raise UnsupportedError(f"the cluster has headrace {headrace.__version__}, here is {asked.version}", hint=hint)
    site = _site(asked.reach)
    return Answer(asked.work(site, piece), site.host)


def _site(reach: Reach) -> Site:
    """That of this process. Ray gives a process to one caller only, who seldom reaches his stores in two ways."""
    if _set_up and _set_up[0][0] == reach:
        return _set_up[0][1]
    logging.basicConfig(format="headrace: %(message)s", level=logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="headrace-worker-") as folder:  # its file is gone before anything is done
        settings, namespace = reach.apply(folder)
        os.chdir("/")
    _set_up[:] = [(reach, Site(namespace, settings, socket.gethostname()))]
    return _set_up[0][1]
