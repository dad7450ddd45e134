"""What all pages of one server read from: opened once, closed with it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property

from headrace.base.settings import Settings
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.tracking.runs import Runs
from headrace.web.behind import Behind
from headrace.web.followers import Follower, Followers
from headrace.web.index import RunIndex
from headrace.web.options import Options
from headrace.web.pictures import Pictures
from headrace.web.samples import Samples
from headrace.web.verdicts import columns


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
    def folder(self) -> str | None:
        """Where what can be made anew is kept: in the node's cache. None: there is none."""
        settings = self.settings.cache
        return os.path.join(settings.dir, "web") if settings.size else None

    @cached_property
    def index(self) -> RunIndex:
        """The home's runs, as rows."""
        return RunIndex(self.runs, self.folder, lambda name: columns(Follower(self.runs.run(name))))

    @cached_property
    def followers(self) -> Followers:
        """Of the runs that are looked at."""
        return Followers(self.runs)

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

    def close(self) -> None:
        """End what works behind. Idempotent."""
        for one in ("index", "pictures"):
            if one in self.__dict__:
                getattr(self, one).close()
