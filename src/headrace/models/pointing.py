"""Aliases set, moved on, moved back and taken away: each is one conditional write of the pointer."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.errors import ChangedError, InputError, NotFoundError
from headrace.models import aliases
from headrace.models.aliases import Aliases
from headrace.models.mirroring import mirror_after
from headrace.models.names import LATEST, check_alias, check_name, parse
from headrace.models.registry import Registry


@dataclass(frozen=True, slots=True)
class Moved:
    """What an alias names now, and what it named before; None: nothing."""

    name: str
    alias: str
    number: int | None
    before: int | None


def point(registry: Registry, name: str, alias: str, to: str, *, what: str = "alias") -> Moved:
    """Let `alias` name the version that `to` names now: a number, another alias, or ``latest``. Any thread.

    Of two writers that set the same alias at the same moment one is told; other aliases are not in each other's way.

    Raises:
        NotFoundError: there is no such version. ChangedError: somebody else moved this alias meanwhile, or the version
        is being deleted. InputError, UnsupportedError, any store error.
    """
    check_alias(alias)
    number = registry.number(parse(f"{check_name(name)}@{to}"))
    before = registry.aliases(name).aliases.get(alias)

    def how(found: Aliases) -> Aliases:
        _check_same(name, alias, before, found)
        _check_there(registry, name, number, found)
        return found.pointing(alias, number, what)

    aliases.change(registry.home, name, how)
    mirror_after(registry, name)
    return Moved(name, alias, number, before)


def promote(registry: Registry, text: str, alias: str = "prod") -> Moved:
    """Let `alias` name the version that ``NAME@staging``, ``NAME@7`` or ``NAME`` (the newest) names. As `point`."""
    wanted = parse(text)
    to = wanted.number if wanted.number is not None else wanted.alias or LATEST
    return point(registry, wanted.name, alias, str(to), what="promote")


def roll_back(registry: Registry, text: str) -> Moved:
    """Let the alias of ``NAME@prod`` name what it named before; again: what it named before that. Any thread.

    Versions that were deleted meanwhile are passed over.

    Raises:
        NotFoundError: there is no such alias, or it named nothing before. ChangedError: somebody else moved it
        meanwhile. InputError, UnsupportedError, any store error.
    """
    wanted = parse(text)
    if wanted.alias is None:
        raise InputError("an alias is rolled back, not a version", path=text, hint=f"like {wanted.name}@prod")
    name, alias = wanted.name, wanted.alias
    before = registry.aliases(name).aliases.get(alias)
    if before is None:
        raise registry.not_found(wanted)

    def how(found: Aliases) -> Aliases:
        _check_same(name, alias, before, found)
        earlier = (one for one in reversed(found.previous.get(alias, ())) if one not in found.removing)
        number = next((one for one in earlier if registry.is_committed(name, one)), None)
        if number is None:
            hint = f"headrace models list {name}, then headrace models alias {name}@{alias}=NUMBER"
            raise NotFoundError("it named no version before that is still there", path=text, hint=hint)
        return found.rolled_back(alias, number)

    changed = aliases.change(registry.home, name, how)
    mirror_after(registry, name)
    return Moved(name, alias, changed.aliases[alias], before)


def take_away(registry: Registry, text: str) -> Moved:
    """``NAME@prod`` names nothing any more; the version stays. As `roll_back`."""
    wanted = parse(text)
    if wanted.alias is None:
        raise InputError("is no alias", path=text, hint=f"like {wanted.name}@prod")
    alias = wanted.alias
    before = registry.aliases(wanted.name).aliases.get(alias)
    if before is None:
        raise registry.not_found(wanted)

    def how(found: Aliases) -> Aliases:
        _check_same(wanted.name, alias, before, found)
        return found.without(alias)

    aliases.change(registry.home, wanted.name, how)
    mirror_after(registry, wanted.name)
    return Moved(wanted.name, alias, None, before)


def _check_same(name: str, alias: str, before: int | None, found: Aliases) -> None:
    """Raises ChangedError: the alias names another version than when this was begun."""
    now = found.aliases.get(alias)
    if now != before:
        last = next((one for one in reversed(found.history) if one.alias == alias), None)
        who = f", set by {last.by}" if last is not None else ""
        what = f"names version {now} now{who}" if now is not None else f"was taken away{who.removeprefix(', set')}"
        hint = "nothing was written: look at it again, then say it again"
        raise ChangedError(f"was changed underneath: it {what}", path=f"{name}@{alias}", hint=hint)


def _check_there(registry: Registry, name: str, number: int, found: Aliases) -> None:
    if number in found.removing:
        raise ChangedError("is being deleted", path=f"{name}@{number}", hint=f"headrace models list {name}")
    if not registry.is_committed(name, number):
        raise registry.not_found(parse(f"{name}@{number}"))
