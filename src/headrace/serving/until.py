"""Models served until somebody asks for the end: answered to the last, and drained."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from headrace.base.settings import environment
from headrace.models import Registry
from headrace.serving.options import Options
from headrace.serving.server import Supervisor

_LOOK_S = 1.0  # seconds


class Ending:
    """When a server is to end, and how patiently. Any thread, and signal handlers, may ask; the last word counts."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self.grace_s = 0.0
        self._linger_s = 0.0

    def ask(self, grace_s: float, *, linger_s: float = 0.0) -> None:
        """End. Asked again, it lingers no longer.

        Args:
            grace_s: for requests under way.
            linger_s: how long before that all is answered as before, while readiness says no.
        """
        self.grace_s, self._linger_s = grace_s, linger_s
        self._asked.set()

    def wait(self) -> None:
        """Until it is asked for."""
        while not self._asked.wait(_LOOK_S):  # a signal that comes just before a wait is heard when it is over
            pass

    def linger(self) -> None:
        """As long as was said, or until it is asked for once more."""
        if self._linger_s:
            self._asked.clear()
            self._asked.wait(self._linger_s)


def serve(
    options: Options,
    ending: Ending,
    *,
    begun: Callable[[Supervisor], object] = lambda _server: None,
    stopping: Callable[[], object] = lambda: None,
    registry: Registry | None = None,
) -> None:
    """Serve models, as `headrace serve` does, in processes of their own, until `ending` is asked for. One thread.

    Within a program, `Server` serves from this process. ``HEADRACE_SERVE_TOKEN`` and ``HEADRACE_SERVE_ADMIN_TOKEN``,
    where they are set, are the tokens that clients must bring, unless `options` say that theirs are known.

    Args:
        options: what, and how.
        ending: readiness says no then, all is answered for its linger, and what is under way has its grace.
        begun: called once it answers; its `options` hold the tokens.
        stopping: called once the end is asked for.
        registry: of the models; None: that of the settings.

    Raises:
        InputError: the address cannot be listened on, or the processes do not start; a token that can be guessed.
        SettingError: no home is set.
    """
    with Supervisor(_with_tokens(options), registry) as server:
        begun(server)
        ending.wait()
        stopping()
        server.leave()
        ending.linger()
        server.drain(ending.grace_s)


def _with_tokens(options: Options) -> Options:
    """Those that the environment chooses."""
    token, admin_token = environment("HEADRACE_SERVE_TOKEN"), environment("HEADRACE_SERVE_ADMIN_TOKEN")
    if token is not None and not options.known:
        options = replace(options, token=token, known=True)
    if admin_token is not None and not options.admin_known:
        options = replace(options, admin_token=admin_token, admin_known=True)
    return options
