"""The numbers of a model's versions: each is taken once, by an object that is created only where there is none.

    <home>/models/<name>/.numbers/<number>    {"format_version": 1, "time", "by", "source"}

They lie beside the versions and not in them, so that a version's folder holds files of the model from the first moment
on, and they stay when a version is deleted, so that its number is never another's.
"""

from __future__ import annotations

import json
from typing import Final

from headrace.base.errors import AlreadyExistsError, ChangedError, UnsupportedError
from headrace.models.aliases import MODELS, refused
from headrace.models.names import as_number
from headrace.namespace.home import Home
from headrace.store.protocol import ObjectInfo
from headrace.tracking.record import now, user_here

NUMBERS: Final = ".numbers"
_TRIES: Final = 50  # numbers that others may take before us, one after the other


def take(home: Home, name: str, source: str) -> int:
    """The next number that nobody has: two LISTs and one create-only PUT, again where somebody else was quicker.

    Raises:
        UnsupportedError: the store creates nothing only where there is none. ChangedError: others were quicker each
        time. ReadOnlyError, any store error.
    """
    home.check_writable()
    told = {"format_version": 1, "time": now(), "by": user_here(), "source": source}
    data = json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogateescape")
    folders = home.store.list_folder(home.key(MODELS, name, "")).folders
    there = (as_number(one.rstrip("/").rpartition("/")[2]) for one in folders)
    last = max((0, *taken(home, name), *(one for one in there if one is not None)))
    for number in range(last + 1, last + 1 + _TRIES):
        try:
            home.store.put(home.key(MODELS, name, NUMBERS, str(number)), data, create=True)
            return number
        except AlreadyExistsError:
            continue
        except UnsupportedError as error:
            raise refused(error, home.url(MODELS, name)) from error
    raise ChangedError("others publish it again and again", path=home.url(MODELS, name), hint="try again later")


def taken(home: Home, name: str) -> dict[int, ObjectInfo]:
    """All that were ever taken and are still remembered; the object of each tells when, by the store's clock."""
    prefix = home.key(MODELS, name, NUMBERS, "")
    found = {as_number(info.key[len(prefix) :]): info for page in home.store.list(prefix) for info in page}
    return {number: info for number, info in found.items() if number is not None}


def forget(home: Home, name: str, numbers: set[int]) -> int:
    """Of these, all but the highest ever taken are forgotten. Returns how many."""
    highest = max(taken(home, name), default=0)
    gone = sorted(numbers - {highest})
    home.store.delete([home.key(MODELS, name, NUMBERS, str(number)) for number in gone])
    return len(gone)
