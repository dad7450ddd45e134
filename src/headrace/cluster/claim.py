"""A run's id, taken on a cluster before anything of the run is sent: by its leader, an actor of that name."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import headrace
from headrace.base.errors import AlreadyExistsError, HeadraceError
from headrace.cluster.chief import HOLD_S, Chief
from headrace.cluster.connection import HEAD, translated
from headrace.tracking.runs import Run


class Claim:
    """One that was asked for. `confirm` before anything is sent. One thread.

    Args:
        ray: connected.
        run: whose id.
        address: of the cluster, for errors.
    """

    def __init__(self, ray: Any, run: Run, address: str) -> None:
        self._ray, self._run, self._address = ray, run, address
        kind: Any = ray.remote(Chief)
        self.chief = kind.options(
            name=run.id, lifetime="detached", num_cpus=0, max_concurrency=16, max_restarts=0, resources=HEAD
        ).remote(headrace.__version__)
        self._asked = self.chief.hold.remote()
        self._over = threading.Event()
        self._holding = threading.Thread(target=self._hold, name="headrace-hold", daemon=True)
        self._holding.start()

    def confirm(self) -> None:
        """Wait until the id is ours.

        Raises AlreadyExistsError: it is another's. TryAgainError: the cluster does not answer. UnsupportedError: it has
        another headrace.
        """
        try:
            self._ray.get(self._asked)
        except Exception as error:
            raise _translated(self._ray, error, self._run, self._address) from error
        if self._run.exists():  # it was over, and its leader gone, since somebody looked
            raise taken(self._run)

    def let_go(self) -> None:
        """The id is free again, if it was ours. What another has is left alone."""
        with suppress(Exception):
            self._ray.kill(self.chief)

    def close(self) -> None:
        """The run was handed over, or the claim let go."""
        self._over.set()
        self._holding.join()

    def _hold(self) -> None:
        while not self._over.wait(HOLD_S):
            with suppress(Exception):  # who waits for an answer says why
                self.chief.hold.remote()


@contextmanager
def claimed(ray: Any, run: Run, address: str) -> Generator[Claim]:
    """Have it; whatever fails meanwhile, the id is free again."""
    try:
        claim = Claim(ray, run, address)
    except Exception as error:
        raise _translated(ray, error, run, address) from error
    try:
        yield claim
    except BaseException:
        claim.let_go()
        raise
    finally:
        claim.close()


def _translated(ray: Any, error: Exception, run: Run, address: str) -> HeadraceError:
    if isinstance(error, (ValueError, ray.exceptions.ActorAlreadyExistsError)):
        hint = f"headrace logs -f {run.id}"
        return AlreadyExistsError("a run of this id is under way", path=run.id, hint=hint)
    return translated(error, address)


def taken(run: Run) -> AlreadyExistsError:
    """The error for an id that has a record."""
    return AlreadyExistsError("there is a run of this id", path=run.url, hint="take another --id, or none")
