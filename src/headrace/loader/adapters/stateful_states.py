"""What torchdata's StatefulDataLoader saves, as the states of the loaders in its workers.

Its own format has no description: the names are those of torchdata 0.11, ``stateful_dataloader.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from headrace.base.errors import InputError
from headrace.loader.order.progress_state import State, beginning

_HINT = "pass what its state_dict() returned, with an hr.torch.IterableDataset in it"


def workers_states(state: State | Sequence[State]) -> State | list[State]:
    """The states of all workers; what is no StatefulDataLoader's state comes back as it is.

    Raises:
        InputError: it does not say where each worker stands.
    """
    if not isinstance(state, Mapping):
        found = [workers_states(one) for one in state]
        return [one for some in found for one in (some if isinstance(some, list) else [some])]
    if "_snapshot" in state:
        return _of_workers(state)
    return _dataset_state(state) if "dataset_state" in state else state


def _of_workers(state: Mapping[str, Any]) -> list[State]:
    if state.get("_steps_since_snapshot"):
        raise InputError(
            f"this state is {state['_steps_since_snapshot']} batches older than the one that came last",
            hint="StatefulDataLoader(snapshot_every_n_steps=1), or load it into one of as many workers",
        )
    workers = state["_snapshot"].get("_worker_snapshots")
    if not workers:
        raise InputError("this state of a StatefulDataLoader tells of no worker", hint=_HINT)
    states = [_dataset_state(one) for one in workers.values()]
    if not state.get("_iterator_finished"):
        return states
    # Its loop has ended, but nobody asked the workers again since their last batches.
    epoch = max(int(one["epoch"]) for one in states)
    begun = any(int(one["epoch"]) == epoch and (any(one["frontiers"]) or one["start"]) for one in states)
    return [beginning(one, epoch + begun) for one in states]


def _dataset_state(worker: Mapping[str, Any]) -> State:
    found = worker.get("dataset_state")
    if not isinstance(found, dict) or "epoch" not in found:
        raise InputError("this state of a StatefulDataLoader has no place of a data set of headrace", hint=_HINT)
    return cast("State", found)
