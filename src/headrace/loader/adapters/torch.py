"""PyTorch: batches as tensors, on the GPU one step ahead; and datasets inside `torch.utils.data.DataLoader`.

torch is imported when something here is used, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from headrace.base.reporting import handed
from headrace.loader.adapters.torch_values import convert
from headrace.loader.dataset import Dataset
from headrace.loader.loader import Loader
from headrace.loader.order.progress_state import State
from headrace.loader.order.ranks import around
from headrace.loader.pipeline.stats import Stats

if TYPE_CHECKING:
    import torch

__all__ = ["Tensors", "tensors"]


def tensors(
    source: Loader | Dataset, device: str | torch.device | None = None, *, pin_memory: bool | None = None
) -> Tensors:
    """Iterate `source` with arrays as torch tensors, without copying them.

    Args:
        source: a loader, or a dataset (then with the default loader).
        device: where batches should be, ``"cuda"`` or ``"cuda:1"``; they are copied one batch ahead on a stream of
            their own while the training step runs. None: they stay where they are.
        pin_memory: copy into page-locked memory first; default: when `device` is a CUDA device.

    Raises:
        RuntimeError: CUDA was asked for and is not there (torch's own message).
        InputError: when it is iterated: torch.distributed runs with several ranks, and nothing says which of them reads
            what (`Dataset.shard`).
    """
    return Tensors(source if isinstance(source, Loader) else source.loader(), device, pin_memory)


class Tensors:
    """A loader whose batches are tensors. State and figures are the loader's, as of the batch last received.

    As there: one iterator at a time, and one that was ended early says so at its next step (InputError).

    Lightning, Hugging Face's Trainer and Accelerate take it as it is, and do not shard it: docs/guides/frameworks.md.
    """

    def __init__(self, loader: Loader, device: str | torch.device | None, pin_memory: bool | None) -> None:
        import torch

        self.loader = loader
        self._device = None if device is None else torch.device(device)
        is_cuda = self._device is not None and self._device.type == "cuda"
        if is_cuda:
            torch.cuda.init()
        self._pin = is_cuda if pin_memory is None else pin_memory and torch.cuda.is_available()
        self._state: State | None = None
        self._latest: object = None

    def __iter__(self) -> Iterator[Any]:
        dataset = self.loader.dataset
        around().check(dataset.striping, dataset.gives_batches)
        if self._device is None:
            return map(self._tensors, self.loader)
        return self._one_ahead()

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def epoch(self) -> int:
        return self.loader.epoch if self._state is None else int(self._state["epoch"])

    def set_epoch(self, epoch: int) -> None:
        """See `Loader.set_epoch`."""
        self._state = None
        self.loader.set_epoch(epoch)

    @property
    def batch_sampler(self) -> SimpleNamespace:
        """Where Lightning looks for a sampler, which is all that it tells of an epoch's beginning (`set_epoch`)."""
        return SimpleNamespace(sampler=self)

    def standing(self) -> tuple[int, int, int]:
        """See `headrace.base.reporting.Standing`."""
        return self.loader.standing() if self._state is None else self.loader.standing_at(self._state)

    def state_dict(self) -> State:
        """See `Loader.state_dict`; a batch copied ahead does not count."""
        return self.loader.state_dict() if self._state is None else self._state

    def load_state_dict(self, state: State | Sequence[State]) -> None:
        """See `Loader.load_state_dict`."""
        self._state = None
        self.loader.load_state_dict(state)

    def stats(self) -> Stats:
        """See `Loader.stats`."""
        return self.loader.stats()

    def close(self) -> None:
        """See `Loader.close`."""
        self.loader.close()

    def _tensors(self, batch: Any) -> Any:
        found = convert(batch)
        return _each(found, lambda one: one.pin_memory()) if self._pin else found

    def _one_ahead(self) -> Iterator[Any]:
        """While the loop works on one batch, the next is on its way to the device."""
        copy = _Copy(cast("torch.device", self._device))
        batches = self._latest = iter(self.loader)
        waiting: tuple[Any, State] | None = None
        try:
            for batch in batches:
                moved = copy.start(self._tensors(batch)), self.loader.state_dict()
                if waiting is not None:
                    self._state = waiting[1]
                    handed(self)
                    yield copy.finish(waiting[0])
                waiting = moved
            if waiting is not None:
                self._state = waiting[1]
                handed(self)
                yield copy.finish(waiting[0])
            if self._latest is batches:  # who began another with our last batch has its state
                self._state = None
        finally:
            cast("Any", batches).close()


class _Copy:
    """Copies to a device, on a stream of its own where the device has streams."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def start(self, batch: Any) -> tuple[Any, Any]:
        """(the batch on the device, what to wait for)."""
        import torch

        if self._stream is None:
            return _each(batch, lambda one: one.to(self._device)), None
        with torch.cuda.stream(self._stream):
            moved = _each(batch, lambda one: one.to(self._device, non_blocking=True))
            # The host copy must live until the device has read it: it travels with the event.
            return moved, (self._stream.record_event(), batch)

    def finish(self, moved: tuple[Any, Any]) -> Any:
        """Make the current stream wait for the copy, and the allocator know who uses the memory."""
        import torch

        batch, waiting = moved
        if waiting is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(waiting[0])
            _each(batch, lambda one: one.record_stream(current))
        return batch


def _each(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same structure with every tensor changed."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: _each(one, change) for name, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        kind = cast("type[Any]", type(value))
        return kind(_each(one, change) for one in cast("Sequence[Any]", value))
    return value
