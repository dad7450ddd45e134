"""The page as `headrace web` starts it: `open_page`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.base.settings import environment
from headrace.web.extra import needed

if TYPE_CHECKING:
    from headrace.web.options import Options
    from headrace.web.server import Server


def open_page(options: Options | None = None) -> Server:
    """The page over the home of the settings, which listens. `Server.run` answers on this thread; in a ``with`` block
    the page answers on one of its own, and ends with the block.

    ``with hr.web.open_page() as page: print(page.entry)``. ``HEADRACE_WEB_TOKEN``, where it is set, is the token that a
    viewer must bring, unless `options` say that theirs is known.

    Args:
        options: where it listens, and what viewers may do; None: on loopback, and nothing.

    Raises:
        UnsupportedError: a library of the extra ``web`` is missing. InputError: a token that can be guessed.
        SettingError: of the settings. As `Server`.
    """
    needed()
    from headrace.web.options import Options
    from headrace.web.server import Server
    from headrace.web.world import World

    chosen = options or Options()
    token = environment("HEADRACE_WEB_TOKEN")
    if token is not None and not chosen.known:
        chosen = replace(chosen, token=token, known=True)
    return Server(World.load(chosen))
