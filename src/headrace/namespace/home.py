"""The home: the bucket prefix where snapshots and runs are recorded, and how a record is created only once."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    NotFoundError,
    ReadOnlyError,
    SettingError,
    UnsupportedError,
)
from headrace.base.settings import Settings
from headrace.namespace.namespace import Namespace
from headrace.store.protocol import Buffer, ObjectInfo, Store


@dataclass(frozen=True, slots=True)
class Home:
    """A store and the key prefix of everything recorded (empty, or ending in ``/``). Any thread."""

    store: Store
    prefix: str = ""
    read_only: bool = False

    @staticmethod
    def of(namespace: Namespace | None = None, settings: Settings | None = None) -> Home:
        """The home of the settings; None: `Settings.load`, and its namespace.

        Raises SettingError where none is set, and what resolving its URL raises.
        """
        settings = settings or Settings.load()
        if not settings.home:
            raise SettingError(
                "no home is set, so there is nowhere to keep snapshots and runs",
                hint='set HEADRACE_HOME, or home = "s3://bucket/prefix" in headrace.toml',
            )
        place = (namespace or Namespace.load(settings)).resolve(settings.home)
        return Home(place.store, as_prefix(place.key), place.read_only)

    def key(self, *parts: str) -> str:
        """The store's key of a record."""
        return self.prefix + "/".join(parts)

    def url(self, *parts: str) -> str:
        """The URL of a record, for messages."""
        return url_of(self.store, self.key(*parts))

    def check_writable(self) -> None:
        """Raises ReadOnlyError before any request."""
        if self.read_only:
            raise ReadOnlyError(
                "the home is attached read-only", path=self.url(), hint="attach it again without --read-only"
            )

    def create(self, data: Buffer, *parts: str) -> ObjectInfo:
        """Write a record that must not exist yet.

        Where the store cannot promise that, it is asked first, and two writers at the same instant may both succeed.

        Raises AlreadyExistsError.
        """
        key = self.key(*parts)
        try:
            return self.store.put(key, data, create=True)
        except UnsupportedError:
            try:
                self.store.head(key)
            except NotFoundError:
                return self.store.put(key, data)
            raise AlreadyExistsError("is there already", path=self.url(*parts)) from None

    def replace(self, data: Buffer, over: str | None, *parts: str) -> ObjectInfo:
        """Write a record in the place of the version that was seen (`ObjectInfo.version`); None: there was none.

        Where the store cannot promise that, it is asked first, and two writers at the same instant may both succeed.

        Raises ChangedError: another version is there, or none.
        """
        key = self.key(*parts)
        if over is None:
            return self.create(data, *parts)
        try:
            return self.store.put(key, data, if_match=over)
        except NotFoundError:
            raise ChangedError("is gone", path=self.url(*parts)) from None
        except UnsupportedError:
            if self.store.head(key).version != over:
                raise ChangedError("is another version now", path=self.url(*parts)) from None
            return self.store.put(key, data)


def url_of(store: Store, key: str) -> str:
    """The URL of a key. One ``/`` before it, also where the store is this machine's root, ``file:///``."""
    return f"{store.url.removesuffix('/')}/{key}"


def as_prefix(key: str) -> str:
    """The prefix of everything below `key`: empty, or ending in ``/``."""
    return key if not key or key.endswith("/") else key + "/"
