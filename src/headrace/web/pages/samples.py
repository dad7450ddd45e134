"""``/data/N/V/samples``: samples of a snapshot, as pictures, text and sounds; all of them, or those of one class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from headrace.base.errors import InputError
from headrace.catalog import LAST_ROW, Class, Classes, Places
from headrace.loader import Dataset, PartShown, class_columns
from headrace.web.behind import Underway
from headrace.web.media import DIGITS
from headrace.web.told import Page, Told
from headrace.web.world import World

COUNT: Final = 60  # samples on a page
_MOST: Final = 200  # samples on a page, whatever is asked for
_CLASSES: Final = 40  # classes listed; the others are found by a part of their name


class Asked(msgspec.Struct, frozen=True, rename={"class_": "class"}):
    """`class`: of the samples, "." for those in no folder or without a value, empty for all; `level`: the folder by
    which classes are told apart, 1 the uppermost, 0 the one that a sample lies in; `column`: of tables, the one that
    tells classes. `find`: what names of the classes that are listed contain. `start`: the first sample, counted in the
    order of keys among those that are asked for.
    """

    name: str
    version: str
    class_: str = ""
    level: int = LAST_ROW
    column: str = ""
    find: str = ""
    start: int = 0
    count: int = COUNT


@dataclass(frozen=True, slots=True)
class SampleShown:
    """One sample, and where it stands among all, in the order of keys."""

    place: int
    key: str
    parts: tuple[PartShown, ...]


@dataclass(frozen=True, slots=True)
class ClassesShown:
    """The largest `classes` of those that are like what was asked for (`alike`), of `known` in all; `largest`: samples
    of the largest. `levels`: how deep folders lie; `depth`: as `Classes.depth`.
    """

    classes: tuple[Class, ...]
    alike: int
    known: int
    largest: int
    levels: int
    depth: int | None


@dataclass(frozen=True, slots=True)
class Shown:
    """`total`: samples that are asked for, `all` of the snapshot. `classes` None: keys tell none, or they are being
    counted. `columns`: of tables, those that may tell classes. `underway`: what is still to be done before all of it
    can be shown. `of`: for URLs of pictures.
    """

    snapshot: str
    of: str
    samples: tuple[SampleShown, ...]
    total: int
    all: int
    classes: ClassesShown | None
    columns: tuple[str, ...]
    underway: Underway | None
    asked: Asked


def view(world: World, asked: Asked) -> Told:
    """A stretch of them, read side by side."""
    if asked.level < 0:
        raise InputError(f"level={asked.level}", hint="1 is the uppermost folder, 0 the one that a sample lies in")
    name = f"{asked.name}@{asked.version}"
    command = f"headrace ls {name}"
    of = world.samples.snapshot(name).digest[:DIGITS]
    data = world.samples.ask(name)
    if isinstance(data, Underway):
        return Told(Shown(name, of, (), 0, 0, None, (), data, asked), command)
    columns = class_columns(data.leaves[0].index)
    classes = _classes(world, name, data, asked)
    underway = classes if isinstance(classes, Underway) else None
    known = None if isinstance(classes, Underway) else classes
    if asked.class_ and underway is not None:
        return Told(Shown(name, of, (), 0, len(data), None, columns, underway, asked), command)
    wanted = _wanted(data, known, asked)
    start = max(0, asked.start)
    stop = min(start + min(max(1, asked.count), _MOST), len(wanted))
    places = [int(place) for place in (wanted[start:stop] if isinstance(wanted, range) else wanted.at(start, stop))]
    read = world.samples.shown(name, places) if places else []
    samples = tuple(SampleShown(place, *one) for place, one in zip(places, read, strict=True))
    listed = _listed(known, asked) if known is not None and (asked.column or known.levels) else None
    shown = Shown(name, of, samples, len(wanted), len(data), listed, columns, underway, asked)
    return Told(shown, command, f"hr.Dataset.open({name!r}).at({_written(places)})")


def _classes(world: World, name: str, data: Dataset, asked: Asked) -> Classes | Underway | None:
    if not asked.column:
        return world.samples.classes(name, data)
    return world.samples.column_classes(name, data, asked.column)


def _wanted(data: Dataset, classes: Classes | None, asked: Asked) -> range | Places:
    if not asked.class_:
        return range(len(data))
    if classes is None:
        hint = "of tables a column does (column=label), unless it has too many values; samples of shards have none here"
        raise InputError("nothing tells its classes", path=asked.name, hint=hint)
    return classes.places(asked.class_, asked.level)


def _listed(classes: Classes, asked: Asked) -> ClassesShown:
    found = classes.by_level(asked.level)
    alike = [one for one in found if asked.find.lower() in one.name.lower()]
    some = alike[:_CLASSES]
    if asked.class_ and all(one.name != asked.class_ for one in some):
        some += [one for one in found if one.name == asked.class_]
    return ClassesShown(
        tuple(some), len(alike), len(found), found[0].samples if found else 0, classes.levels, classes.depth
    )


def _written(places: list[int]) -> str:
    """As Python has it."""
    if places and places == list(range(places[0], places[-1] + 1)):
        return f"range({places[0]}, {places[-1] + 1})"
    return str(places)


PAGE = Page(
    "/data/{name}/{version}/samples", "samples", Asked, Shown, view,
    "Samples of a snapshot, all or of one class, as pictures, text and sounds.",
)  # fmt: skip
