"""``/data``: snapshots; one of them with what is suspicious in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.base.progress import Progress
from headrace.catalog import Report, SampleGroup, Snapshot, list_snapshots, open_snapshot, quality_report
from headrace.web.behind import Underway
from headrace.web.told import Page, Told
from headrace.web.world import World

_GROUPS: Final = 30  # suffixes, and folders, on a page


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
    return Told(All(tuple(map(shown_snapshot, wanted)), len(found), asked), "headrace snapshots")


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
    """`concerns`: None: not looked for, or `underway`; `suffixes`, `folders`: the largest."""

    snapshot: SnapshotShown
    concerns: tuple[Concern, ...] | None
    samples: int | None
    suffixes: tuple[SampleGroup, ...]
    folders: tuple[SampleGroup, ...]
    folder_count: int
    underway: Underway | None
    asked: AskedOne


def one(world: World, asked: AskedOne) -> Told:
    """What it is, and what is suspicious in it."""
    name = f"{asked.name}@{asked.version}"
    snapshot = shown_snapshot(open_snapshot(name, namespace=world.namespace, settings=world.settings))
    command = f"headrace snapshots {name}"
    told = _reported(world, snapshot) if asked.report else None
    if told is None or isinstance(told, Underway):
        return Told(One(snapshot, None, None, (), (), 0, told, asked), command, f"hr.Dataset.open({name!r})")
    suffixes, folders = told.suffixes[:_GROUPS], told.folders[:_GROUPS]
    shown = One(snapshot, _concerns(told), told.samples, suffixes, folders, told.folder_count, None, asked)
    return Told(shown, f"headrace snapshots report {name}", f"hr.Dataset.open({name!r})")


def _reported(world: World, snapshot: SnapshotShown) -> Report | Underway:
    """All its objects are looked through behind the page, once for all who ask."""

    def work(progress: Progress) -> Report:
        return quality_report(snapshot.id, namespace=world.namespace, settings=world.settings, progress=progress)

    what = f"All objects of {snapshot.id} are being looked through"
    return world.behind.ask(f"report {snapshot.digest}", what, work, heavy=True)


def shown_snapshot(one: Snapshot) -> SnapshotShown:
    """What pages show of a snapshot."""
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
