"""Where the ranks of an attempt run, as the run's record keeps it: ``nodes/<attempt>.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from headrace.base.errors import CorruptError, InputError, NotFoundError
from headrace.cluster.ranks import Rendezvous
from headrace.cluster.told import Machine
from headrace.jobs import RunFolder
from headrace.tracking.runs import Run

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """One rank's. `id`: Ray's of its node; `gpus`: those it has there, as CUDA knows them; `variables`: torchrun's that
    tell which rank it is, without those by which ranks meet.
    """

    id: str
    host: str
    address: str
    gpus: tuple[str, ...]
    variables: dict[str, str]


def write_nodes(folder: RunFolder, attempt: int, machines: Sequence[Machine], meeting: Rendezvous) -> None:
    """Have it sent with the run. Raises OSError: the disk."""
    nodes = [{**asdict(one), "first": meeting.first(number)} for number, one in enumerate(machines)]
    os.makedirs(folder.recorded("nodes"), exist_ok=True)
    path = folder.recorded("nodes", f"{attempt:05d}.json")
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, "attempt": attempt, "nodes": nodes}, file)
    os.rename(f"{path}.tmp", path)


def whereabouts(run: Run, rank: int) -> Whereabouts:
    """Of a rank, in the newest attempt that had so many.

    Raises InputError: the run was on no cluster. NotFoundError: it never had so many. Any store error.
    """
    keys = sorted((one.key for page in run.store.list(f"{run.prefix}nodes/") for one in page), reverse=True)
    if not keys:
        hint = "headrace shell without --rank lays it out here"
        raise InputError("was on no cluster, or has not begun there", path=run.id, hint=hint)
    most = 0
    for key in keys:
        nodes = _read(bytes(run.store.get(key).data), key)
        most = max(most, sum(node["processes"] for node in nodes))
        for number, node in enumerate(nodes):
            if node["first"] <= rank < node["first"] + node["processes"]:
                return _of(node, number, rank, nodes)
    raise NotFoundError(f"has no rank {rank}", path=run.id, hint=f"its ranks are 0 to {most - 1}")


def _read(data: bytes, key: str) -> list[dict[str, Any]]:
    told = json.loads(data)
    if told.get("format") != FORMAT:
        raise CorruptError(f"nodes of a run: format {told.get('format')!r} is not known", path=key)
    return list(told["nodes"])


def _of(node: dict[str, Any], number: int, rank: int, nodes: Sequence[dict[str, Any]]) -> Whereabouts:
    variables = {
        "RANK": rank, "LOCAL_RANK": rank - node["first"], "WORLD_SIZE": sum(one["processes"] for one in nodes),
        "LOCAL_WORLD_SIZE": node["processes"], "GROUP_RANK": number, "GROUP_WORLD_SIZE": len(nodes),
    }  # fmt: skip
    return Whereabouts(
        node["id"], node["host"], node["address"], tuple(node["gpus"]),
        {name: str(value) for name, value in variables.items()},
    )  # fmt: skip
