"""Services on a cluster, from outside: begun and followed, told of, restarted, stopped."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import headrace
from headrace.base.errors import AlreadyExistsError, DeadlineError, NotFoundError, TryAgainError
from headrace.base.settings import Settings, environment
from headrace.cluster.connection import HEAD, NAMESPACE, connected, translated
from headrace.cluster.serving.fleet import actor_name
from headrace.cluster.serving.keeper import Keeper
from headrace.cluster.serving.listing import is_kept, read_listing
from headrace.cluster.serving.spec import ServiceSpec
from headrace.cluster.serving.told import HeardService, ServiceTold
from headrace.cluster.submission import Reach
from headrace.namespace.home import Home

_POLL_S: Final = 1.0  # seconds that a keeper waits for news before it answers, and between tries to reach it
_AWAY_S: Final = 60.0
"""How long a keeper that Ray starts again is waited for."""
SEND: Final = ("AWS_*", "AZURE_STORAGE_*")
"""Variables that the servers get to reach the stores."""
_TOKENS: Final = ("HEADRACE_SERVE_TOKEN", "HEADRACE_SERVE_ADMIN_TOKEN")


@dataclass(frozen=True, slots=True)
class FollowingService:
    """How a service is followed. `line`: gets each line; `stop`: asked every second whether it is to end."""

    line: Callable[[str], None] = field(default=lambda _line: None)
    stop: Callable[[], bool] = lambda: False


def serve(
    address: str,
    spec: ServiceSpec,
    settings: Settings | None = None,
    home: Home | None = None,
    *,
    send: tuple[str, ...] = SEND,
    token: str | None = None,
    begun: Callable[[str | None], None] = lambda _made: None,
    following: FollowingService | None = None,
) -> None:
    """Begin a service on the cluster, and follow it until it ends, as `headrace serve --on` does. Without `following`
    it goes on without this process. One thread.

    ``serve("ray://head:10001", ServiceSpec("digits", ("digits@prod",), Scale(2, 8)))``

    Args:
        address: of the cluster: ``ray://HOST:10001``.
        spec: of the service.
        settings: where the nodes reach the stores; None: `Settings.load`.
        home: where the service is told, and its models are; None: that of the settings.
        send: patterns of the variables that go to the nodes, by Ray.
        token: that clients must bring; None: ``HEADRACE_SERVE_TOKEN`` chooses it, else one is made.
        begun: called once the cluster has taken the service, with the token that was made; None: it was chosen.
        following: see there.

    Raises:
        AlreadyExistsError: there is a service of this name. TryAgainError: the cluster does not answer, or who keeps
        the service is gone. Any HeadraceError: it could not begin.
    """
    settings = settings or Settings.load()
    home = home or Home.of(settings=settings)
    chosen = token or environment("HEADRACE_SERVE_TOKEN")
    made = None if chosen else secrets.token_urlsafe(24)
    reach = Reach.from_here(settings, (*send, *_TOKENS))
    reach = replace(reach, variables={**reach.variables, "HEADRACE_SERVE_TOKEN": chosen or made or ""})
    home.check_writable()
    with connected(address) as ray:
        _check_new(ray, home, spec.name)
        try:
            kind: Any = ray.remote(Keeper)
            keeper = kind.options(
                name=actor_name(spec.name), lifetime="detached", num_cpus=0, max_concurrency=16, max_restarts=-1,
                resources=HEAD,
            ).remote(headrace.__version__, spec, reach)  # fmt: skip
            first: HeardService = ray.get(keeper.hear.remote(0, 0.0))
        except ValueError as error:
            raise _taken(spec.name) from error
        except Exception as error:
            raise translated(error, address) from error
        begun(made)
        if following is None:
            _wait_for_the_home(ray, keeper, spec.name)
        else:
            _follow(ray, keeper, spec.name, following, first)


def services(address: str) -> list[ServiceTold]:
    """The services of a cluster, by name. Raises TryAgainError: it does not answer."""
    with connected(address) as ray:
        names = [name for name in ray.util.list_named_actors() if name.startswith("serve:") and name.count(":") == 1]
        found: list[ServiceTold] = []
        for name in sorted(names):
            with suppress(ValueError):  # it has ended meanwhile
                found.append(_ask(ray, ray.get_actor(name, namespace=NAMESPACE), "told", name))
        return found


def restart(address: str, name: str) -> None:
    """Have all replicas replaced one by one, each once another one answers. Returns at once.

    Raises NotFoundError: there is no such service. TryAgainError: the cluster does not answer.
    """
    with _keeper(address, name) as (ray, keeper):
        _ask(ray, keeper, "restart", name)


def stop(address: str, name: str, *, wait: float = 120.0) -> None:
    """Drain and end a service; returns when nothing of it is left.

    Raises:
        NotFoundError: there is no such service. DeadlineError: it still ends after `wait` seconds. TryAgainError: the
        cluster does not answer.
    """
    with _keeper(address, name) as (ray, keeper):
        _ask(ray, keeper, "stop", name)
        after, until = 0, time.monotonic() + wait
        while time.monotonic() < until:
            heard: HeardService | None = _hear(ray, keeper, name, after)
            if heard is None or heard.over:
                return
            after = heard.next
    raise DeadlineError("still ends", path=name, hint="headrace serve --on … --list tells what it does")


@contextmanager
def _keeper(address: str, name: str) -> Generator[tuple[Any, Any]]:
    with connected(address) as ray:
        try:
            keeper = ray.get_actor(actor_name(name), namespace=NAMESPACE)
        except ValueError as error:
            hint = "headrace serve --on … --list tells which there are"
            raise NotFoundError("there is no service of this name", path=name, hint=hint) from error
        yield ray, keeper


def _check_new(ray: Any, home: Home, name: str) -> None:
    """Of another cluster there may be one in the same home."""
    if actor_name(name) in ray.util.list_named_actors():
        raise _taken(name)
    with suppress(NotFoundError):
        if is_kept(read_listing(home, name)):
            hint = "take another --name; one that was killed less than three minutes ago is forgotten then"
            raise AlreadyExistsError("a service of this name is told in the home", path=name, hint=hint)


def _taken(name: str) -> AlreadyExistsError:
    hint = f"headrace serve --on … --stop {name}, or take another --name"
    return AlreadyExistsError("the cluster has a service of this name", path=name, hint=hint)


def _wait_for_the_home(ray: Any, keeper: Any, name: str) -> None:
    """Until it has begun: what is wrong with its settings is raised here."""
    after = 0
    while not _ask(ray, keeper, "told", name).replicas:
        heard = _hear(ray, keeper, name, after)
        if heard is None or heard.over:
            return
        after = heard.next


def _follow(ray: Any, keeper: Any, name: str, following: FollowingService, heard: HeardService | None) -> None:
    after = 0
    while heard is not None and not heard.over:
        for line in heard.lines:
            following.line(line)
        after = heard.next
        if following.stop():
            _ask(ray, keeper, "stop", name)
        heard = _hear(ray, keeper, name, after)


def _hear(ray: Any, keeper: Any, name: str, after: int) -> HeardService | None:
    """None: it has ended, and nobody tells of it any more."""
    try:
        return _ask(ray, keeper, "hear", name, after, _POLL_S)
    except TryAgainError:
        if actor_name(name) in ray.util.list_named_actors():
            raise
        return None


def _ask(ray: Any, keeper: Any, what: str, name: str, *values: Any) -> Any:
    """Raises what it raised. TryAgainError: it is gone, and Ray has not started it again in time."""
    until = time.monotonic() + _AWAY_S
    while True:
        try:
            return ray.get(getattr(keeper, what).remote(*values))
        except Exception as error:
            if not isinstance(error, ray.exceptions.ActorUnavailableError) or time.monotonic() > until:
                if isinstance(error, ray.exceptions.RayActorError):
                    raise TryAgainError("who kept the service is gone", path=name) from error
                raise translated(error, name) from error
            time.sleep(_POLL_S)
