"""What crashed runs have left on this machine, sent: their files, and that they are over."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from headrace.base.errors import HeadraceError, NotFoundError, TryAgainError
from headrace.base.settings import Settings, whole_environment
from headrace.jobs.environment import stop_container
from headrace.jobs.folder import Left, left
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.sync import TAKEN, Report, State, Sync, SyncOptions, statuses
from headrace.tracking.logs import salvage
from headrace.tracking.record import FINAL, RUNS, Lease, Status, now
from headrace.tracking.runs import Run
from headrace.tracking.segments import Merger


@dataclass(frozen=True, slots=True)
class Recovered:
    """One run's folder. `state`: the run's in the bucket; `error`: why something is left, if it is."""

    id: str
    folder: str
    url: str
    state: str
    files: int
    bytes: int
    error: HeadraceError | None


def recover(
    drain_s: float | None = None, *, namespace: Namespace | None = None, settings: Settings | None = None
) -> Iterator[Recovered]:
    """Send what runners that are gone have left on this machine, as `headrace sync --recover` does beside what syncs
    have left (`headrace.sync.recover_syncs`). One thread.

    A run whose end nobody has told is told to be lost. Folders of which nothing is left are removed. It goes on after
    one that fails, whose `Recovered.error` says why.

    Args:
        drain_s: seconds for each run; None: ``sync.drain``.
        namespace: where homes are reached; None: that of the settings.
        settings: where runs have their folders; None: `Settings.load`.
    """
    found = settings or Settings.load()
    space = namespace or Namespace.load(found)
    seconds = found.sync.drain if drain_s is None else drain_s
    for one in left(found.run.state):
        try:
            yield _recover(one, space, seconds)
        except HeadraceError as error:
            yield Recovered(one.id, one.path, one.url, "unknown", 0, 0, error)


def _recover(one: Left, namespace: Namespace, timeout: float) -> Recovered:
    from headrace.jobs.inputs.mounting import clear_mounts

    clear_mounts(one.path)
    place = namespace.resolve(one.url.removesuffix(f"/{RUNS}/{one.id}"))
    prefix = place.key.strip("/")
    run = Run(Home(place.store, f"{prefix}/" if prefix else ""), one.id)
    if not run.exists() and not _has_outputs(one.path):  # its runner died before it was recorded
        shutil.rmtree(one.path, ignore_errors=True)
        return Recovered(one.id, one.path, run.url, "never started", 0, 0, None)
    try:
        record = run.record()
    except NotFoundError:  # it was deleted: there is nowhere to send the rest to
        return Recovered(one.id, one.path, run.url, "record gone, left as it is", 0, 0, None)
    if record.environment.get("kind") == "image":  # whose container did not end with its client
        stop_container(one.id, whole_environment())
    if one.part:
        return _recover_part(one, run, timeout)
    report = _send(one, run, timeout)
    waiting = _waiting(one.path)
    for status in waiting:
        run.put_status(status)
        with suppress(OSError):
            os.unlink(os.path.join(one.path, "status", status.name))
    last = (run.statuses()[-1:] or [Status(-1, "starting", now())])[0]
    names = tuple(file.path for file in report.left)
    if last.state not in FINAL:
        reason = "its runner died; what it had written was sent later"
        last = Status(last.seq + 1, "lost", now(), last.attempt, reason=reason, left=names[:100],
                      files=report.files, bytes=report.bytes)  # fmt: skip
        run.put_status(last)
    elif last.left and not names:
        last = replace(last, seq=last.seq + 1, time=now(), left=(), files=last.files + report.files,
                       bytes=last.bytes + report.bytes)  # fmt: skip
        run.put_status(last)
    run.put_lease(Lease(last.seq, last.state, now(), os.getpid(), socket.gethostname(), last.attempt,
                        last=asdict(last)))  # fmt: skip
    return _recovered(one, run, last.state, report, names)


def _recover_part(one: Left, run: Run, timeout: float) -> Recovered:
    """Of one node of a gang. How the run ended is told by who led it; while it goes on, nothing old comes between."""
    view = run.look()
    if not view.over:
        return Recovered(one.id, one.path, run.url, view.state, 0, 0, None)
    report = _send(one, run, timeout)
    # What a later attempt, or another node, has written instead is not wanted any more.
    names = tuple(file.path for file in report.left if TAKEN not in file.error)
    return _recovered(one, run, view.state, report, names)


def _recovered(one: Left, run: Run, state: str, report: Report, names: tuple[str, ...]) -> Recovered:
    error = TryAgainError(f"{len(names)} files are not sent", path=one.path) if names else None
    if error is None:
        shutil.rmtree(one.path, ignore_errors=True)
    return Recovered(one.id, one.path, run.url, state, report.files, report.bytes, error)


def _send(one: Left, run: Run, timeout: float) -> Report:
    with suppress(HeadraceError, OSError):  # the disk: then they stay where they are
        salvage(os.path.join(one.path, "record", "logs"))
        Merger(os.path.join(one.path, "spool"), os.path.join(one.path, "record", "metrics")).collect()
    folder, root = os.path.join(one.path, "record"), os.path.join(one.path, "sync")
    selection = next((status.options for status in statuses(root)), {})
    options = SyncOptions().recovering(selection)
    if one.part:  # those that are complete are there; of others nobody has the rest
        options = replace(options, ignore=(*options.ignore, "checkpoints/*"))
    state = State(root, folder, run.url, run.url, options.selection())
    with Sync(folder, run.store, run.prefix, state, options) as sync:
        return sync.finish(timeout, complete=False)


def _has_outputs(path: str) -> bool:
    folders = (os.path.join(path, "record", name) for name in ("outputs", "checkpoints", "logs", "metrics"))
    return any(files for folder in folders for _, _, files in os.walk(folder))


def _waiting(path: str) -> list[Status]:
    """Transitions that the bucket may not have."""
    folder = os.path.join(path, "status")
    found: list[Status] = []
    with suppress(OSError):
        for name in sorted(os.listdir(folder)):
            if name.endswith(".json"):
                with open(os.path.join(folder, name), "rb") as file:
                    found.append(Status.from_json(file.read(), name))
    return found
