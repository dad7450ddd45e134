"""A job sent to a cluster, and followed from here."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.errors import TryAgainError
from headrace.base.settings import Settings
from headrace.base.threads import REQUESTS_AT_ONCE, Threads
from headrace.cluster.chief import Heard
from headrace.cluster.claim import Claim, claimed, taken
from headrace.cluster.connection import connected, translated
from headrace.cluster.submission import Reach, Submission
from headrace.jobs import Code, JobSpec, Outcome, capture, local_home
from headrace.tracking.record import user_here
from headrace.tracking.runs import Run
from headrace.upload import Uploader

_POLL_S: Final = 1.0  # seconds that the chief waits for news before it answers


def submit(
    spec: JobSpec,
    run: Run,
    settings: Settings,
    *,
    folder: str,
    parent: Mapping[str, str] | None = None,
    resumes: str | None = None,
    repeats: str | None = None,
    following: Following | None = None,
    quiet: bool = False,
) -> Outcome | None:
    """Run a job on the cluster that it names, and follow it. Returns how it ended; without `following`: None, as soon
    as it is recorded; it goes on without this process.

    Args:
        spec: the job; `spec.cluster.on` is set.
        run: the run that it becomes; its record must not be there.
        settings: those of the caller: where the nodes reach the stores.
        folder: where the caller is: the code is seen from there.
        parent: as `Job` has it.
        resumes: as `Job` has it, by its id.
        repeats: likewise.
        following: see there.
        quiet: nothing of our own is passed on.

    Raises:
        AlreadyExistsError: there is a run of this id. TryAgainError: the cluster does not answer; or who led the run is
        gone, and what it wrote is in the bucket. Any HeadraceError: the run could not be recorded.
    """
    if run.exists():
        raise taken(run)
    address = spec.cluster.on or ""
    with connected(address) as ray:
        with claimed(ray, run, address) as claim:
            chief, code = claim.chief, None
            if spec.code.git is None and spec.code.capture and repeats is None:
                code = _send_code(os.path.join(folder, spec.code.path or "."), spec, run, claim)
            else:
                claim.confirm()
            reach = Reach.from_here(settings, spec.cluster.send)
            submission = Submission(run.id, spec, reach, folder, user_here(), code, parent, resumes, repeats, quiet)
            try:
                chief.run.remote(submission)
            except Exception as error:
                raise translated(error, address) from error
        return _follow(ray, chief, run.id, following)


@dataclass(frozen=True, slots=True)
class Following:
    """How a run is followed. `passing`: descriptors that get what it writes; `recorded`: called once it is; `stop`:
    asked every second whether it is to end, and how: reason, and grace, None for the job's.
    """

    passing: tuple[int, int] = (1, 2)
    recorded: Callable[[], None] = lambda: None
    stop: Callable[[], tuple[str, float | None] | None] = lambda: None


def _send_code(tree: str, spec: JobSpec, run: Run, claim: Claim) -> Code:
    """Capture the tree, and put its parts where the run keeps them: the nodes bring them from there. What one that was
    never recorded has left there is removed.
    """
    folder = tempfile.mkdtemp(prefix="headrace-code-")
    try:
        code = capture(tree, folder, limit=spec.code.limit, ignore=spec.code.ignore, home=local_home(run.url))
        claim.confirm()
        wanted = [(name, f"{run.prefix}code/{os.path.relpath(name, folder)}") for name in _files(folder)]
        keys = {key for _, key in wanted}
        if left := [one.key for page in run.store.list(f"{run.prefix}code/") for one in page if one.key not in keys]:
            run.store.delete(left)
        with Uploader() as uploader, Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-code") as pool:
            for one in [pool.submit(uploader.put_file, run.store, key, name) for name, key in wanted]:
                one.result()
        return code
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _files(folder: str) -> list[str]:
    return [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names]


def _follow(ray: Any, chief: Any, run: str, following: Following | None) -> Outcome | None:
    after, told, asked = 0, False, False
    while True:
        try:
            heard: Heard = ray.get(chief.hear.remote(after, _POLL_S))
        except Exception as error:
            found = translated(error, run)
            if isinstance(error, ray.exceptions.RayActorError):
                found = _lost("who led the run is gone", run)
            elif isinstance(error, ConnectionError):
                found = _lost("the cluster does not answer any more", run)
            raise found from error
        after = heard.next
        if following is None:
            if heard.recorded or heard.outcome is not None:
                return None
            continue
        if heard.recorded and not told:
            told = True
            following.recorded()
        for fd, data in heard.pieces:
            _write(following.passing[fd - 1], data)
        if heard.outcome is not None and not heard.pieces:
            return heard.outcome
        if not asked and (order := following.stop()) is not None:
            asked = True
            chief.stop.remote(*order)


def _lost(reason: str, run: str) -> TryAgainError:
    hint = f"if headrace runs shows it as lost a minute from now, go on: headrace rerun --resume {run}"
    return TryAgainError(reason, path=run, hint=hint)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
