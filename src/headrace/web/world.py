"""What all pages of one server read from: opened once, closed with it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import Any, Final

from headrace.base.errors import HeadraceError
from headrace.base.settings import Settings
from headrace.models import Registry
from headrace.models.lineage import models_of
from headrace.models.names import Reference
from headrace.models.overview import Overview, overview
from headrace.namespace import Entry, FolderPage, Namespace
from headrace.namespace.home import Home
from headrace.serving.live import all_live, mark_of
from headrace.tracking.runs import Runs
from headrace.web.behind import Behind
from headrace.web.followers import Followers
from headrace.web.index import RunIndex
from headrace.web.lately import Lately
from headrace.web.node import Node
from headrace.web.options import Options
from headrace.web.pictures import Pictures
from headrace.web.previews import Previews
from headrace.web.samples import Samples
from headrace.web.servers import ServerHere, server_here
from headrace.web.uploads import Uploads
from headrace.web.verdicts import columns, of_summary

LISTING_S: Final = 2.0  # seconds for which listings are trusted
_LISTINGS: Final = 100  # pages of folders in memory
_MODELS_S: Final = 5.0  # seconds for which it is trusted which models there are
_MADE_S: Final = 30.0  # seconds for which it is trusted what was made of a run
_SERVERS_S: Final = 2.0  # seconds for which it is trusted which servers of models there are


@dataclass(frozen=True)
class World:
    """Any thread. What is opened when a page asks for it raises there what is wrong with it (SettingError: no home)."""

    settings: Settings
    namespace: Namespace
    options: Options = field(default_factory=Options)

    @staticmethod
    def load(options: Options) -> World:
        """Of the settings that apply here. Raises SettingError."""
        settings = Settings.load()
        return World(settings, Namespace.load(), options)

    @cached_property
    def home(self) -> Home:
        """Where runs and snapshots are recorded."""
        return Home.of(self.namespace, self.settings)

    @cached_property
    def runs(self) -> Runs:
        """Those of the home."""
        return Runs(self.home)

    @cached_property
    def registry(self) -> Registry:
        """Models of the home."""
        return Registry(self.namespace, self.home)

    @cached_property
    def _models(self) -> Lately[str, list[Overview]]:
        return Lately(_MODELS_S, most=1)

    def models_known(self) -> list[Overview]:
        """All models, as they were seconds ago. Raises any store error."""
        return self._models.get("", lambda: overview(self.registry))

    @cached_property
    def _made_of(self) -> Lately[str, list[Reference]]:
        return Lately(_MADE_S, most=_LISTINGS)

    def made_of(self, run: str) -> list[Reference]:
        """The models that were made of a run, as they were half a minute ago. Raises any store error."""
        return self._made_of.get(run, lambda: models_of(self.registry, run))

    @cached_property
    def _servers(self) -> Lately[str, tuple[ServerHere, ...]]:
        return Lately(_SERVERS_S, most=1)

    def servers(self) -> tuple[ServerHere, ...]:
        """Of models, on this node, as they were two seconds ago. No store is asked."""
        return self._servers.get("", self._live)

    def _live(self) -> tuple[ServerHere, ...]:
        try:
            mark = mark_of(self.home)
        except HeadraceError:  # there is no home, so none of them is ours
            mark = None
        return tuple(server_here(one, mark) for one in all_live(self.settings.cache.dir))

    @cached_property
    def folder(self) -> str | None:
        """Where what can be made anew is kept: in the node's cache. None: there is none."""
        settings = self.settings.cache
        return os.path.join(settings.dir, "web") if settings.size else None

    @cached_property
    def index(self) -> RunIndex:
        """The home's runs, as rows."""
        return RunIndex(self.runs, self.folder, self._columns)

    @cached_property
    def followers(self) -> Followers:
        """Of the runs that are looked at."""
        home = hashlib.sha256(self.runs.home.url().encode()).hexdigest()[:16]
        return Followers(self.runs, os.path.join(self.folder or self._kept.name, "metrics", home))

    @cached_property
    def behind(self) -> Behind:
        """What is done behind pages."""
        return Behind()

    @cached_property
    def pictures(self) -> Pictures:
        """Small ones, kept."""
        return Pictures(self.folder)

    @cached_property
    def samples(self) -> Samples:
        """Of the snapshots that are looked at."""
        return Samples(self.namespace, self.settings, self.behind, self.pictures)

    def renew(self, run: str) -> None:
        """It was changed from here: what is known of it is asked for again. Raises any store error."""
        self.runs.notes.renew()
        self.followers.forget(run)
        self.index.renew(run)

    def forget(self, run: str) -> None:
        """It was deleted from here."""
        self.runs.notes.renew()
        self.followers.forget(run)
        self.index.forget(run)

    @cached_property
    def _kept(self) -> TemporaryDirectory[str]:
        """Where that lies that can be made anew and is too much for memory, without a cache."""
        return TemporaryDirectory(prefix="headrace-web-")

    def _columns(self, name: str, thoroughly: bool) -> Mapping[str, Any]:
        summary = self.runs.run(name).summary()
        if summary is not None:
            return of_summary(summary)
        return columns(self.followers.new(name)) if thoroughly else {"verdict": ""}

    @cached_property
    def tree(self) -> Namespace:
        """What is attached, and nothing else: no file of this machine, no other URL."""
        return Namespace.load(self.settings, local=False)

    @cached_property
    def listings(self) -> Lately[tuple[str, str, int], FolderPage]:
        """Pages of folders, by path, the name before the first, and how many."""
        return Lately(LISTING_S, most=_LISTINGS)

    def names(self, path: str, after: str, count: int) -> FolderPage:
        """A page of a folder of the tree. Raises as `Namespace.page`."""
        return self.listings.get((path, after, count), lambda: self.tree.page(path, after=after, count=count))

    @cached_property
    def stats(self) -> Lately[str, Entry]:
        """Files and folders of the tree, by path."""
        return Lately(LISTING_S, most=_LISTINGS)

    def stat(self, path: str) -> Entry:
        """A file or folder of the tree. Raises as `Namespace.stat`."""
        return self.stats.get(path, lambda: self.tree.stat(path))

    def forget_listings(self) -> None:
        """Something in the tree was changed from here."""
        self.listings.clear()
        self.stats.clear()

    @cached_property
    def uploads(self) -> Uploads:
        """What viewers send."""
        return Uploads(self.tree)

    @cached_property
    def previews(self) -> Previews:
        """Of the files that are looked at."""
        return Previews(self.tree)

    @cached_property
    def node(self) -> Node:
        """This machine."""
        return Node(self.settings, self.tree, self.servers)

    def close(self) -> None:
        """End what works behind. Idempotent."""
        for one in ("index", "pictures", "uploads"):
            if one in self.__dict__:
                getattr(self, one).close()
        if "_kept" in self.__dict__:
            self._kept.cleanup()
