"""Versions deleted: by name, all but the newest, and what publishers that died have left.

A version that goes is put on the pointer's list `removing` first, by the same conditional write that sets aliases, so
no alias names it from then on; then its marker is deleted, so that nothing resolves to it; then its files; then it
leaves the list. Killed in between, the list says what `gc` has to finish.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from headrace.base.errors import InputError
from headrace.models import aliases, lineage, numbers
from headrace.models.aliases import Aliases
from headrace.models.clearing import clear_below
from headrace.models.mirroring import mirror_after
from headrace.models.names import check_name, parse
from headrace.models.registry import Registry
from headrace.tracking.runs import StoreClock
from headrace.upload import clear, retract

OLD_S: Final = 24 * 3600.0
"""Seconds after which a publication that has not ended is taken for dead."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What was deleted of a model. `left`: numbers of publications that never ended; `bytes`: in all."""

    name: str
    versions: tuple[int, ...]
    left: tuple[int, ...] = ()
    objects: int = 0
    bytes: int = 0


def remove(registry: Registry, text: str) -> Removed:
    """Delete the version ``NAME@7``. Any thread.

    Raises:
        InputError: an alias names it; or no number is given. NotFoundError: there is no such version.
        UnsupportedError, any store error.
    """
    wanted = parse(text)
    if wanted.number is None:
        hint = f"name the version by its number, like {wanted.name}@7; headrace models list {wanted.name}"
        raise InputError("says not which version", path=text, hint=hint)
    if not registry.is_committed(wanted.name, wanted.number):
        raise registry.not_found(wanted)
    return _remove(registry, wanted.name, [wanted.number])


def collect(registry: Registry, name: str, *, keep: int | None = None, old_s: float = OLD_S) -> Removed:
    """Delete what publishers that died have left of a model, and what deletions that died have.

    Args:
        registry: whose models.
        name: the model's.
        keep: also all committed versions but the newest so many and those that an alias names, or named before and
            would be rolled back to; None: none.
        old_s: seconds after which a publication that has not ended is taken for dead, by the store's clock.

    Raises InputError: `keep` below 1. UnsupportedError, any store error.
    """
    if keep is not None and keep < 1:
        raise InputError(f"--keep {keep} keeps nothing", hint="1 or more")
    registry.home.check_writable()
    found = registry.aliases(check_name(name))
    committed = [one for one in registry.numbers(name) if registry.is_committed(name, one)]
    spared = {*found.aliases.values(), *(some[-1] for some in found.previous.values() if some)}
    more = [one for one in committed[keep:] if one not in spared] if keep is not None else []
    gone = _remove(registry, name, [*more, *found.removing]) if more or found.removing else Removed(name, ())
    left, empty = _left(registry, name, {*committed, *found.removing}, old_s)
    objects, size = _delete(registry, name, left)
    for number in left:
        # Its publisher may live, and have committed just now: what has lost its files is no version.
        retract(registry.home.store, registry.prefix(name, number))
        clear(registry.home.store, registry.prefix(name, number), older_than_s=old_s)
    numbers.forget(registry.home, name, {*left, *empty, *gone.versions})
    return Removed(name, gone.versions, tuple(left), gone.objects + objects, gone.bytes + size)


def _remove(registry: Registry, name: str, wanted: Iterable[int]) -> Removed:
    going = tuple(sorted(set(wanted)))
    aliases.change(registry.home, name, lambda found: _going(name, found, going))
    for number in going:
        lineage.forget(registry, name, number)
        retract(registry.home.store, registry.prefix(name, number))
    objects, size = _delete(registry, name, going)
    aliases.change(registry.home, name, lambda found: _gone(found, going))
    mirror_after(registry, name)
    return Removed(name, going, (), objects + len(going), size)


def _going(name: str, found: Aliases, going: tuple[int, ...]) -> Aliases:
    for number in going:
        if named := found.names_of(number):
            hint = f"move the alias first: headrace models promote {name}@… {named[0]}"
            raise InputError(f"is what {', '.join(named)} names", path=f"{name}@{number}", hint=hint)
    return replace(found, removing=tuple(sorted({*found.removing, *going})))


def _gone(found: Aliases, going: tuple[int, ...]) -> Aliases:
    previous = {alias: tuple(one for one in some if one not in going) for alias, some in found.previous.items()}
    return replace(found, previous=previous, removing=tuple(one for one in found.removing if one not in going))


def _left(registry: Registry, name: str, known: set[int], old_s: float) -> tuple[list[int], list[int]]:
    """Numbers without a marker whose publishers sent nothing for so long: those that have objects, those without."""
    taken = numbers.taken(registry.home, name)
    store, clock = registry.home.store, StoreClock(registry.home)
    left: list[int] = []
    empty: list[int] = []
    for number in sorted({*taken, *registry.numbers(name)} - known):
        times = [info.mtime_us for page in store.list(registry.prefix(name, number)) for info in page]
        last = max([taken[number].mtime_us if number in taken else 0, *times])
        if clock.age(last) > old_s and not registry.is_committed(name, number):
            (left if times else empty).append(number)
    return left, empty


def _delete(registry: Registry, name: str, going: Iterable[int]) -> tuple[int, int]:
    """All objects of these versions; how many, and their bytes."""
    cleared = [clear_below(registry.home.store, registry.prefix(name, number)) for number in going]
    return sum(objects for objects, _ in cleared), sum(size for _, size in cleared)
