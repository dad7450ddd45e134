"""``shuffle(block="auto")``: from everywhere or by blocks, chosen by what requests cost. See design/006.

The choice is made when ``shuffle`` is called and is an order like any other from then on. It must be the same for all
ranks and after a resume, so it is made once and kept: of a snapshot in the home, where the first rank to write decides
for all; of anything else on the node's shelf.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from headrace.base.errors import (
    AlreadyExistsError,
    CorruptError,
    DeniedError,
    InputError,
    NotFoundError,
    UnsupportedError,
)
from headrace.base.settings import Settings, environment
from headrace.base.units import format_bytes
from headrace.catalog import IndexFolder, SampleIndex, Shelf
from headrace.loader.order.store_rates import Cost, measure
from headrace.namespace.home import url_of

_LOG = logging.getLogger("headrace.dataset")
FORMAT = 1
AUTO = "auto"
WORTH = 0.6
"""Share of the rate by blocks at which samples from everywhere are worth more: they mix better."""
_REPAID = 4
"""A block takes so many times as long to bring as to ask for."""
_LEAST, _MOST = 1_000_000, 4_000_000
"""Bytes of a block. No read is larger, so a larger block saves no request, and only mixes worse."""
_SMALL = 250_000  # bytes
_ENOUGH_BLOCKS = 512
"""With fewer, fewer are mixed together: blocks of a small set are smaller, but not below `_SMALL` bytes."""
_TOGETHER = 4
"""Samples that a block holds at least, or two if they are large: a block of one sample saves nothing."""
_KEEP_S = 30 * 86400.0
"""Without use. Every use counts from anew, so that a run can be resumed for as long as it is worked on."""


_REACH = ("nowhere", "node", "home", "everyone")


@dataclass(frozen=True, slots=True)
class Choice:
    """What ``shuffle(block="auto")`` picked, and why.

    Args:
        block: bytes of a block; None: every sample from everywhere.
        requests_per_s: requests of one sample's size that the store answered, a second.
        bytes_per_s: bytes it sent a second when asked for large pieces.
        everywhere_per_s: samples a second that the store can give from everywhere; 0 where nothing was measured, as of
            single objects.
        blocked_per_s: the same by blocks.
        kept: who finds the same choice again: ``"home"``: everyone who opens the snapshot; ``"node"``: this node;
            ``"nowhere"``: nobody; ``"everyone"``: there was nothing to choose.
    """

    block: int | None
    requests_per_s: float = 0.0
    bytes_per_s: float = 0.0
    everywhere_per_s: float = 0.0
    blocked_per_s: float = 0.0
    kept: Literal["home", "node", "nowhere", "everyone"] = "everyone"

    def __str__(self) -> str:
        picked = "from everywhere" if self.block is None else f"by blocks of {format_bytes(self.block)}"
        if not self.everywhere_per_s:
            return f"{picked}: nothing here lies together"
        return (
            f"{picked}: the store gives {self.everywhere_per_s:,.0f} samples/s from everywhere "
            f"({self.requests_per_s:,.0f} requests/s), {self.blocked_per_s:,.0f} by blocks "
            f"({format_bytes(self.bytes_per_s)}/s)"
        )

    def check_ranks(self, world_size: int) -> None:
        """Raises InputError where `world_size` ranks might each make another choice."""
        if world_size == 1 or self.kept in ("home", "everyone"):
            return
        if self.kept == "node" and environment("LOCAL_WORLD_SIZE") == str(world_size):
            return
        block = None if self.block is None else f"{self.block // 1000}kB"
        raise InputError(
            f'{world_size} ranks and shuffle(block="auto"): each node measures for itself, and they may not agree',
            hint=f"open a snapshot: it keeps one choice for all, in a home that can be written; or say block={block!r}",
        )


def least_shared(choices: Sequence[Choice | None]) -> Choice | None:
    """Of datasets that are mixed, the choice that the fewest find again."""
    made = [choice for choice in choices if choice is not None]
    return min(made, key=lambda choice: _REACH.index(choice.kept), default=None)


def choose_order(index: SampleIndex, settings: Settings) -> Choice:
    """Measure (about three seconds) or remember. `index`: straight from ``open``.

    Raises:
        CorruptError: the choice kept in the home cannot be read. What reading from the store raises.
    """
    if index.abilities.blocks is None:
        return Choice(None)
    choice = _Choosing(index, settings).made()
    _LOG.info('shuffle(block="auto"): %s', choice)
    return choice


def decide_block(cost: Cost) -> Choice:
    """What to pick at that cost."""
    singly, blocks = cost.singly_per_s, cost.by_block_per_s
    rates = (cost.singly.requests_per_s, cost.by_block.bytes_per_s, singly, blocks)
    everywhere = Choice(None, *(rate if math.isfinite(rate) else 0.0 for rate in rates), kept="nowhere")
    if not singly < WORTH * blocks:
        return everywhere
    wanted = _REPAID * cost.by_block.bytes_per_s / cost.singly.requests_per_s
    size = min(max(_LEAST, 2 ** math.ceil(math.log2(wanted / _LEAST)) * _LEAST), _MOST)
    size = min(size, max(int(cost.bytes * cost.samples / _ENOUGH_BLOCKS), _SMALL))
    size = min(max(size, int(_TOGETHER * cost.bytes)), _MOST)
    return everywhere if size < 2 * cost.bytes else Choice(size, *rates, kept="nowhere")


class _Choosing:
    """One choice on its way. It is the home's if there is one, else the node's, else a new one."""

    def __init__(self, index: SampleIndex, settings: Settings) -> None:
        self._index, self._settings = index, settings
        self._home: IndexFolder | None = index.abilities.home
        digest = hashlib.blake2b(index.fingerprint.encode(), digest_size=8).hexdigest()
        self._key = "" if self._home is None else f"{self._home.prefix}order-{digest}.json"
        self._shelf = Shelf.of(settings)
        self._lasts = str(self._shelf.root).startswith(settings.cache.dir)
        home = "" if self._home is None else f"{self._home.store.identity}\n{self._key}"
        about = f"{index.store.identity}\n{index.fingerprint}\n{home}"
        self._name = f"order{FORMAT}-{hashlib.blake2b(about.encode(), digest_size=16).hexdigest()}"

    def made(self) -> Choice:
        with self._shelf.lock(self._name):
            known = self._recalled()
            if known is None or known.kept != "home":
                known = self._from_home() or self._to_home(known or decide_block(measure(self._index, self._settings)))
            self._shelf.note(self._name, dataclasses.asdict(known))
            return known

    def _recalled(self) -> Choice | None:
        noted = self._shelf.recall(self._name, _KEEP_S)
        try:
            return None if noted is None else _parsed(noted)
        except (TypeError, ValueError):
            return None

    def _from_home(self) -> Choice | None:
        if self._home is None:
            return None
        try:
            data = bytes(self._home.store.get(self._key).data)
        except (NotFoundError, DeniedError):
            return None
        try:
            return dataclasses.replace(_parsed(json.loads(data)), kept="home")
        except (TypeError, ValueError, RecursionError) as error:
            where = url_of(self._home.store, self._key)
            raise CorruptError(f"is no choice of an order: {error}", path=where, hint="delete it") from error

    def _to_home(self, choice: Choice) -> Choice:
        """The choice as it is kept. Another rank may have been quicker: then it is that one's."""
        local = dataclasses.replace(choice, kept="node" if self._lasts else "nowhere")
        if self._home is None or not self._home.writable:
            return local
        text = json.dumps({"format": FORMAT, **dataclasses.asdict(choice)}).encode()
        try:
            self._home.store.put(self._key, text, create=True)
        except AlreadyExistsError:
            return self._from_home() or local
        except (DeniedError, UnsupportedError):
            return local
        return dataclasses.replace(choice, kept="home")


def _parsed(noted: object) -> Choice:
    """Raises TypeError, ValueError."""
    if not isinstance(noted, dict):
        raise TypeError("no object")
    values = {name: value for name, value in cast("dict[str, Any]", noted).items() if name != "format"}
    choice = Choice(**values)
    block = choice.block
    numbers = (choice.requests_per_s, choice.bytes_per_s, choice.everywhere_per_s, choice.blocked_per_s)
    if cast("dict[str, Any]", noted).get("format", FORMAT) != FORMAT or choice.kept not in _REACH:
        raise ValueError(f"of another format: {noted}")
    if not (block is None or (type(block) is int and block > 0)) or any(
        type(one) not in (int, float) for one in numbers
    ):
        raise ValueError(f"no such order: {noted}")
    return choice
