"""A gateway as `headrace gateway` starts it: `open_gateway`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.base.errors import InputError
from headrace.gateway.extra import needed

if TYPE_CHECKING:
    from headrace.base.settings import Settings
    from headrace.gateway.options import GatewayOptions
    from headrace.gateway.server import Gateway


def open_gateway(
    options: GatewayOptions | None = None, *, keys: str | None = None, write: bool = False,
    settings: Settings | None = None,
) -> Gateway:  # fmt: skip
    """A gateway that listens. It answers from `Gateway.start` on, or in a ``with`` block, which ends it.

    ``with hr.gateway.open_gateway() as gateway: print(gateway.url, gateway.keys[0].access_key)``

    The gateway answers on threads, or processes, of its own; only the thread that opened it calls its methods.

    Args:
        options: where it listens, and what it shows; None: on loopback, each attached store is a bucket.
        keys: path of a file of keys, which take the place of those of `options`. Where there are none, one is made.
        write: let the key that is made write, too.
        settings: with the mounts; None: `Settings.load`.

    Raises:
        UnsupportedError: a library of the extra ``gateway`` is missing. InputError: `write`, and there are keys.
        NotFoundError, DeniedError, SettingError: the file of keys, as `load`. As `Gateway`.
    """
    needed()
    from headrace.gateway.keys import load, made
    from headrace.gateway.options import GatewayOptions
    from headrace.gateway.server import Gateway

    chosen = options or GatewayOptions()
    if keys is None and not chosen.keys:
        return Gateway(replace(chosen, keys=(made(write=write),)), settings)
    if write:
        raise InputError("--write is for the key that is made without --keys", hint="write = true in the file")
    return Gateway(chosen if keys is None else replace(chosen, keys=tuple(load(keys))), settings)
