"""`Registry`: the models of a home, found by a name.

    <home>/models/<name>/<number>/…           the files of a version, as TensorFlow Serving lays them
                                  model.json  `headrace.models.card`
                                  COMMITTED   written last (`headrace.upload.commit`): the version exists now
                         aliases.json         `headrace.models.aliases`
                         .numbers/<number>    `headrace.models.numbers`

A number without ``COMMITTED`` is a publication that is under way, or never ended: nothing here finds it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.base.errors import CorruptError, HeadraceError, InputError, NotFoundError
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.base.threads import REQUESTS_AT_ONCE, Threads
from headrace.models import aliases
from headrace.models.aliases import MODELS, Aliases, Pointer
from headrace.models.card import CARD, ModelCard
from headrace.models.names import Reference, as_number, check_name, parse
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.upload import Publication, is_complete, published

if TYPE_CHECKING:
    from headrace.models.holding import LocalModel



@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One committed version. `path`: the URL of its folder; `publication`: what ``COMMITTED`` says of its objects."""

    name: str
    number: int
    path: str
    card: ModelCard = field(repr=False)
    publication: Publication = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        """``NAME@7``."""
        return f"{self.name}@{self.number}"


class Registry:
    """The models of one home. Any thread; nothing is kept between calls."""

    def __init__(self, namespace: Namespace, home: Home) -> None:
        """`namespace`: whose fetcher and cache are used; `home`: where models lie."""
        self.namespace = namespace
        self.home = home

    @staticmethod
    def load(settings: Settings | None = None, namespace: Namespace | None = None) -> Registry:
        """That of the settings' home (default: `Settings.load()`). Raises SettingError where none is set."""
        settings = settings or Settings.load()
        namespace = namespace or Namespace.load(settings)
        return Registry(namespace, Home.of(namespace, settings))

    def __repr__(self) -> str:
        return f"Registry({self.home.url(MODELS)!r})"

    # what there is

    def names(self) -> list[str]:
        """Of all models, sorted. One LIST."""
        return [one for one in self._folders(MODELS) if not one.startswith(".")]

    def numbers(self, name: str) -> list[int]:
        """Of folders of versions, committed or not, the highest first. One LIST."""
        found = (as_number(one) for one in self._folders(MODELS, check_name(name)))
        return sorted((number for number in found if number is not None), reverse=True)

    def versions(self, name: str, limit: int | None = None) -> list[ModelVersion]:
        """The committed versions, the newest first, up to `limit`; one that cannot be read is left out. One LIST, and
        two GETs for each.
        """
        numbers, found = self.numbers(name), list[ModelVersion]()
        with Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-models") as pool:
            while numbers and (limit is None or len(found) < limit):
                some, numbers = numbers[:REQUESTS_AT_ONCE], numbers[REQUESTS_AT_ONCE:]
                found += [one for one in pool.map(partial(self._readable, name), some) if one is not None]
        return found[:limit]

    def aliases(self, name: str) -> Aliases:
        """What aliases name, named before, and when that changed. One GET. Raises any store error."""
        return aliases.read(self.home, check_name(name))[0]

    def is_committed(self, name: str, number: int) -> bool:
        """Whether there is such a version. One HEAD."""
        return is_complete(self.home.store, self.prefix(name, number))

    def prefix(self, name: str, number: int) -> str:
        """The key of each object of a version begins so; ends in ``/``."""
        return self.home.key(MODELS, name, str(number), "")

    # one version

    def resolve(self, text: str | Reference) -> ModelVersion:
        """The version that ``NAME@7``, ``NAME@prod``, or ``NAME`` (the highest number that is committed) names now.

        Two GETs; one more for an alias, one LIST more for the highest.

        Raises:
            NotFoundError: there is none; names those that there are. InputError: no such name. CorruptError: what is
            recorded of it is damaged. UnsupportedError: a later headrace wrote it. Any store error.
        """
        wanted = parse(text) if isinstance(text, str) else text
        number = self.number(wanted)
        found = self.find(wanted.name, number)
        if found is None:
            raise self.not_found(Reference(wanted.name, number), named=str(wanted))
        return found

    def number(self, wanted: Reference) -> int:
        """Of the version that is meant. Raises NotFoundError."""
        if wanted.number is not None:
            return wanted.number
        if wanted.alias is not None:
            number = aliases.pointer(self.home, wanted.name).aliases.get(wanted.alias)
        else:
            number = next((one for one in self.numbers(wanted.name) if self.is_committed(wanted.name, one)), None)
        if number is None:
            raise self.not_found(wanted)
        return number

    def find(self, name: str, number: int) -> ModelVersion | None:
        """A version by its number; None: there is none, or it is not committed. Raises as `resolve`."""
        publication = published(self.home.store, self.prefix(name, number))
        if publication is None:
            return None
        where = self.home.url(MODELS, name, str(number), CARD)
        try:
            data = bytes(self.home.store.get(self.prefix(name, number) + CARD).data)
        except NotFoundError:
            raise CorruptError("is gone", path=where, hint=_AGAIN) from None
        if hashlib.sha256(data).hexdigest() != publication.note.get(CARD):
            raise CorruptError("is not what was committed", path=where, hint=_AGAIN)
        card = ModelCard.from_json(data, where)
        return ModelVersion(name, number, self.home.url(MODELS, name, str(number)), card, publication)

    # following

    def pointer(self, name: str) -> Pointer:
        """What the aliases of a model name now. One GET, whether or not there are any. Raises any store error."""
        return aliases.pointer(self.home, check_name(name))

    def newer(self, pointer: Pointer) -> Pointer | None:
        """What they name now, if they were written since `pointer`; None: they were not. Exactly one conditional GET,
        tried again as any request where the store fails. Raises any store error.
        """
        return aliases.newer(self.home, pointer)

    # its files

    def local(self, version: ModelVersion, *, progress: Progress = SILENT) -> LocalModel:
        """Every file of a version on this node, at its own name below one folder, through the node's cache.

        The files stay as they are while it is held: close it, or use it in a ``with`` block. `progress` is told files
        and bytes that had to be brought.

        Raises:
            CorruptError: a file is not what was published; names it. NoRoomError, DeniedError, any store error.
        """
        from headrace.models.holding import hold

        return hold(self, version, progress)

    def none_of(self, name: str) -> HeadraceError:
        """The error of a model that has no version, with those that have."""
        known = ", ".join(self.names()[:_SHOWN]) or "none yet"
        where, hint = self.home.url(MODELS), f"models with versions: {known}"
        return NotFoundError(f"no version of {name} is published", path=where, hint=hint)

    def not_found(self, wanted: Reference, named: str = "") -> HeadraceError:
        """The error of a name that leads to no version, with those that there are."""
        numbers = [one for one in self.numbers(wanted.name)[:_SHOWN] if self.is_committed(wanted.name, one)]
        if not numbers:
            return self.none_of(wanted.name)
        known = ", ".join(f"{alias} ({one})" for alias, one in self.aliases(wanted.name).aliases.items()) or "none"
        hint = f"versions: {', '.join(map(str, numbers))}; aliases: {known}"
        url = self.home.url(MODELS, wanted.name)
        return NotFoundError(f"there is no {named or wanted}", path=url, hint=hint)

    # inside

    def _readable(self, name: str, number: int) -> ModelVersion | None:
        try:
            return self.find(name, number)
        except InputError:  # damaged, or a later version's: `show` says what is wrong with it
            return None

    def _folders(self, *parts: str) -> list[str]:
        prefix = self.home.key(*parts, "")
        try:
            return sorted(folder[len(prefix) : -1] for folder in self.home.store.list_folder(prefix).folders)
        except NotFoundError:
            return []


_SHOWN: Final = 10  # names or numbers in a hint
_AGAIN: Final = "take another version, or publish this one again"
