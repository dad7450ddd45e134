"""``/data``: snapshots; one of them with what is suspicious in it; its samples, as pictures and text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.dataset.quality import Group, Report, quality_report
from headrace.dataset.showing import PartShown, shown_part
from headrace.dataset.snapshot import Snapshot, list_snapshots, open_snapshot
from headrace.web.told import Page, Told
from headrace.web.world import World

COUNT: Final = 60
_MOST: Final = 200
_GROUPS: Final = 30


@dataclass(frozen=True, slots=True)
class AskedAll:
    """`q`: words that all must be in a snapshot's name or source."""

    q: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotShown:
    """`id`: ``name@version``; `created`: RFC 3339; `source`: the URL that it lists."""

    id: str
    name: str
    version: str
    created: str
    objects: int
    bytes: int
    source: str
    path: str | None
    digest: str
    parents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class All:
    """The newest first."""

    snapshots: tuple[SnapshotShown, ...]
    known: int
    asked: AskedAll


def every(world: World, asked: AskedAll) -> Told:
    """All of the home."""
    found = list_snapshots(None, namespace=world.namespace, settings=world.settings)
    words = asked.q.lower().split()
    wanted = [one for one in found if all(word in f"{one.id} {one.source}".lower() for word in words)]
    wanted.sort(key=lambda one: one.created, reverse=True)
    return Told(All(tuple(map(_shown, wanted)), len(found), asked), "headrace snapshots")


@dataclass(frozen=True, slots=True)
class AskedOne:
    """`report`: whether all its objects are looked through for what is suspicious: a minute for ten million."""

    name: str
    version: str
    report: bool = False


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that one would want to look at. `examples`: keys."""

    what: str
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class One:
    """`concerns`: None: not looked for; `suffixes`, `folders`: the largest."""

    snapshot: SnapshotShown
    concerns: tuple[Concern, ...] | None
    samples: int | None
    suffixes: tuple[Group, ...]
    folders: tuple[Group, ...]
    folder_count: int
    asked: AskedOne


def one(world: World, asked: AskedOne) -> Told:
    """What it is, and what is suspicious in it."""
    name = f"{asked.name}@{asked.version}"
    snapshot = _shown(open_snapshot(name, namespace=world.namespace, settings=world.settings))
    command = f"headrace snapshots {name}"
    if not asked.report:
        return Told(One(snapshot, None, None, (), (), 0, asked), command, f"hr.Dataset.open({name!r})")
    told = quality_report(name, namespace=world.namespace, settings=world.settings)
    suffixes, folders = told.suffixes[:_GROUPS], told.folders[:_GROUPS]
    shown = One(snapshot, _concerns(told), told.samples, suffixes, folders, told.folder_count, asked)
    return Told(shown, f"headrace snapshots report {name}", f"hr.Dataset.open({name!r})")


@dataclass(frozen=True, slots=True)
class AskedSamples:
    """`start`: the place of the first, in the order of keys."""

    name: str
    version: str
    start: int = 0
    count: int = COUNT


@dataclass(frozen=True, slots=True)
class SampleShown:
    """One sample, and where it stands in the order of keys."""

    place: int
    key: str
    parts: tuple[PartShown, ...]


@dataclass(frozen=True, slots=True)
class SamplesShown:
    """`total`: samples of the snapshot."""

    snapshot: str
    samples: tuple[SampleShown, ...]
    total: int
    asked: AskedSamples


def samples(world: World, asked: AskedSamples) -> Told:
    """A stretch of them, read side by side."""
    name = f"{asked.name}@{asked.version}"
    data = world.samples.open(name)
    start = max(0, asked.start)
    places = range(start, min(start + min(max(1, asked.count), _MOST), len(data)))
    read = world.samples.at(name, places) if places else []
    shown = tuple(SampleShown(place, str(one["__key__"]), _parts(one)) for place, one in zip(places, read, strict=True))
    python = f"hr.Dataset.open({name!r}).at(range({places.start}, {places.stop}))"
    return Told(SamplesShown(name, shown, len(data), asked), f"headrace ls {name}", python)


def _parts(sample: Mapping[str, Any]) -> tuple[PartShown, ...]:
    return tuple(shown_part(name, value) for name, value in sample.items() if name != "__key__")


def _shown(one: Snapshot) -> SnapshotShown:
    return SnapshotShown(
        one.id,
        one.name,
        one.version,
        one.created,
        one.objects,
        one.bytes,
        one.source,
        one.path,
        one.digest,
        one.parents,
    )


def _concerns(report: Report) -> tuple[Concern, ...]:
    found = [Concern(f"{gap.samples:,} samples lack .{gap.suffix}", gap.examples) for gap in report.missing]
    if report.empty:
        found.insert(0, Concern(f"{report.empty:,} objects are empty", report.empty_examples))
    if report.duplicates.copies:
        copies = report.duplicates
        examples = tuple(" = ".join(same[:3]) for same in copies.examples)
        found.append(Concern(f"{copies.copies:,} objects are copies of others", examples))
    return tuple(found)


ALL = Page("/data", "data", AskedAll, All, every, "The snapshots of the home, the newest first.")
ONE = Page("/data/{name}/{version}", "snapshot", AskedOne, One, one, "A snapshot, and what is suspicious in it.")
SAMPLES = Page(
    "/data/{name}/{version}/samples", "samples", AskedSamples, SamplesShown, samples,
    "Samples of a snapshot, as pictures and text.",
)  # fmt: skip
