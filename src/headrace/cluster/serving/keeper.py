"""Who keeps a service: an actor on the head, without a CPU of its own, that has as many replicas as are wanted.

It is named by the service in the namespace ``headrace``: Ray refuses a second of that name. Once a second it hears how
its replicas are, and has the home tell who is to be asked. Should it die, Ray starts it again, and it finds its
replicas by their names.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any, Final

import headrace
from headrace.base.errors import HeadraceError, InternalError, UnsupportedError
from headrace.cluster.connection import ray_module
from headrace.cluster.serving.fleet import Fleet
from headrace.cluster.serving.listing import Listing
from headrace.cluster.serving.scaling import wanted
from headrace.cluster.serving.spec import ServiceSpec
from headrace.cluster.serving.told import HeardService, ServiceTold
from headrace.cluster.submission import Reach
from headrace.namespace.home import Home

_log = logging.getLogger("headrace.cluster")
_TICK_S: Final = 1.0  # seconds between looks, unless something happens
_LINGER_S: Final = 30.0
"""How long the end is there to be asked for."""
_KEPT: Final = 5000
"""Lines that wait for who follows; then the oldest go."""


class Keeper:
    """See above; it begins when it is made. Any thread.

    Args:
        version: of who asks. Raises UnsupportedError: another.
        spec: of the service.
        reach: how its servers, and this, reach the stores; and their token.
    """

    def __init__(self, version: str, spec: ServiceSpec, reach: Reach) -> None:
        if version != headrace.__version__:
            hint = "have the same headrace here as on the nodes"
            raise UnsupportedError(f"the cluster has headrace {headrace.__version__}, here is {version}", hint=hint)
        logging.basicConfig(format="headrace: %(message)s", level=logging.WARNING)
        self._ray: Any = ray_module()
        self._spec, self._reach = spec, reach
        self._fleet = Fleet(self._ray, spec, reach, self._say)
        self._looks: deque[tuple[float, float]] = deque()
        self._wanted = spec.scale.least
        self._stopping, self._problem = False, ""
        self._changed = threading.Condition()
        self._lines: deque[tuple[int, str]] = deque(maxlen=_KEPT)
        self._count, self._over, self._heard_end = 0, False, False
        self._error: HeadraceError | None = None
        self._told = ServiceTold(spec.name, spec.models, str(spec.scale), self._wanted, ())
        self._wake = threading.Event()
        threading.Thread(target=self._run, name="headrace-keeper", daemon=True).start()

    def hear(self, after: int, timeout: float) -> HeardService:
        """Lines after number `after`, once there are any, or nothing after `timeout` seconds.

        Raises any HeadraceError: the service could not go on.
        """
        with self._changed:
            after = after if after <= self._count else 0  # told by a keeper before this one
            self._changed.wait_for(lambda: self._count > after or self._over, timeout)
            lines = tuple(line for number, line in self._lines if number > after)
            over = self._over and not lines
            if over:
                self._heard_end = True
                self._changed.notify_all()
                if self._error is not None:
                    raise self._error
            return HeardService(self._count, lines, over)

    def told(self) -> ServiceTold:
        """How the service is."""
        return self._told

    def stop(self) -> None:
        """Drain and end all of it."""
        self._stopping = True
        self._wake.set()

    def restart(self) -> None:
        """Replace all replicas one by one, each once another one is ready."""
        self._fleet.renew()
        self._wake.set()

    # its own thread

    def _run(self) -> None:
        listing: Listing | None = None
        try:
            with tempfile.TemporaryDirectory(prefix="headrace-service-") as folder:
                settings, namespace = self._reach.apply(folder)
                os.chdir("/")
            home = Home.of(namespace, settings)
            home.check_writable()
            # Of this actor, also once Ray has started it again.
            listing = Listing(home, self._spec.name, self._ray.get_runtime_context().get_actor_id())
            self._fleet.adopt()
            while not (self._stopping and self._fleet.is_empty):
                self._try(listing)
                self._wake.wait(_TICK_S)
                self._wake.clear()
        except HeadraceError as error:
            self._error = error
        except Exception as error:
            self._error = InternalError(f"{type(error).__name__}: {error}", path=self._spec.name)
        self._fleet.close()
        if listing is not None:
            listing.close()
        self._end()

    def _try(self, listing: Listing) -> None:
        """What goes wrong once, such as a question to Ray, ends no service."""
        problem = listing.problem and f"the home does not say who is to be asked: {listing.problem}"
        try:
            self._tick(listing)
        except Exception as error:
            _log.exception("the service %s goes on", self._spec.name)
            problem = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        if problem and problem != self._problem:
            self._say(f"headrace: {problem}")
        self._problem = problem

    def _tick(self, listing: Listing) -> None:
        now = time.monotonic()
        self._looks.append((now, self._fleet.look()))
        while self._looks[0][0] < now - self._spec.scale.down_after:
            self._looks.popleft()
        count = 0 if self._stopping else wanted(self._spec.scale, self._looks, now)
        if count != self._wanted and count:
            under_way = self._looks[-1][1]
            why = f"{under_way:.0f} requests are under way"
            self._say(f"headrace: {count} replicas are wanted instead of {self._wanted}: {why}")
        self._wanted = count
        self._fleet.adjust(count)
        self._told = ServiceTold(
            self._spec.name, self._spec.models, str(self._spec.scale), count, self._fleet.told(), time=""
        )
        listing.tell(self._told)
        self._fleet.see_out(listing.without, linger=not self._stopping)

    def _end(self) -> None:
        """Once the end was heard, or nobody asks for it."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._heard_end, _LINGER_S)
        time.sleep(0.5)  # the last answer is on its way
        with suppress(Exception):
            self._ray.kill(self._ray.get_runtime_context().current_actor)

    def _say(self, line: str) -> None:
        with self._changed:
            self._count += 1
            self._lines.append((self._count, line))
            self._changed.notify_all()
