"""JAX: batches on the device, or spread over a mesh of devices, ahead of their use; and striping by process.

jax is imported when something here is used, not before.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from headrace.base.errors import InputError, UnsupportedError
from headrace.base.reporting import handed
from headrace.loader.dataset import Dataset
from headrace.loader.loader import Loader, cut_short
from headrace.loader.order.progress_state import State
from headrace.loader.pipeline.stats import Stats

__all__ = ["Arrays", "arrays", "shard"]


def arrays(source: Loader | Dataset, sharding: Any = None, *, size: int = 2) -> Arrays:
    """Iterate `source` with arrays as jax arrays, already on their device when the loop gets them.

    Args:
        source: a loader, or a dataset (then with the default loader).
        sharding: a `jax.Device`, or a `jax.sharding.Sharding` over which each array is spread. Where it spans several
            processes, each process's batch is its part of the global one (`jax.make_array_from_process_local_data`),
            and the dataset is one of `shard(ds)`. None: JAX's default device.
        size: batches on their way to the device behind the one the loop has; at least 1.

    Raises:
        InputError: `size`; or processes that could make unequal batches: ``batch(n, drop_last=True)`` is needed there.
        UnsupportedError: jax is not installed.
    """
    return Arrays(source if isinstance(source, Loader) else source.loader(), sharding, size)


def shard(dataset: Dataset) -> Dataset:
    """This process's stripe, `jax.process_index()` of `jax.process_count()`: after `jax.distributed.initialize`."""
    jax = _jax()
    return dataset.shard(jax.process_index(), jax.process_count())


class Arrays:
    """A loader whose batches are jax arrays. State and figures are the loader's, as of the batch last received.

    Strings, bytes and arrays of kinds JAX does not know stay on the host. 64-bit numbers become 32-bit ones unless
    ``jax_enable_x64`` is set: that is JAX's rule.

    One iterator at a time, as with a loader: one that was ended early says so at its next step (InputError).

    Threads: as `Loader`; it has none of its own, as JAX copies in the background.
    """

    def __init__(self, loader: Loader, sharding: Any, size: int) -> None:
        jax = _jax()
        if size < 1:
            raise InputError(f"size={size}", hint="at least 1")
        self.loader = loader
        self._size, self._sharding, self._jax = size, sharding, jax
        self._spread = isinstance(sharding, jax.sharding.Sharding)
        even = loader.dataset.drop_last and loader.dataset.has_even_batches
        if self._spread and not sharding.is_fully_addressable and not even:
            raise InputError("the sharding spans processes, whose batches may differ", hint="batch(n, drop_last=True)")
        self._state: State | None = None
        self._latest: object = None

    def __iter__(self) -> Iterator[Any]:
        """One epoch. An error comes in the place of its batch, after those before it.

        Raises:
            InputError: an array does not divide over the sharding. Whatever the loader raises.
        """
        batches = self._latest = iter(self.loader)
        ahead: deque[tuple[Any, State]] = deque()
        failed: Exception | None = None
        more = True
        try:
            while True:
                while more and len(ahead) <= self._size:
                    try:
                        ahead.append((self._put(next(batches)), self.loader.state_dict()))
                    except StopIteration:
                        more = False
                    except Exception as error:
                        more, failed = False, error
                if not ahead:
                    break
                batch, self._state = ahead.popleft()
                handed(self)
                yield batch
                del batch  # or the device would hold one more while we wait for the next
                if ahead and self._latest is not batches:  # the state is no longer ours to tell
                    raise cut_short("the loader was begun anew, or moved,")
            if failed is not None:
                raise failed
            if self._latest is batches:
                self._state = None
        finally:
            cast("Any", batches).close()

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def epoch(self) -> int:
        return self.loader.epoch if self._state is None else int(self._state["epoch"])

    def set_epoch(self, epoch: int) -> None:
        """See `Loader.set_epoch`."""
        if epoch != self.epoch:
            self._latest = None
        self._state = None
        self.loader.set_epoch(epoch)

    def standing(self) -> tuple[int, int, int]:
        """See `headrace.base.reporting.Standing`."""
        return self.loader.standing() if self._state is None else self.loader.standing_at(self._state)

    def state_dict(self) -> State:
        """See `Loader.state_dict`; batches put on the device ahead do not count."""
        return self.loader.state_dict() if self._state is None else self._state

    def load_state_dict(self, state: State | Sequence[State]) -> None:
        """See `Loader.load_state_dict`."""
        self.loader.load_state_dict(state)
        self._state = self._latest = None

    def stats(self) -> Stats:
        """See `Loader.stats`."""
        return self.loader.stats()

    def close(self) -> None:
        """See `Loader.close`."""
        self.loader.close()

    def _put(self, value: Any) -> Any:
        """The same structure with every array of numbers on its way to the device."""
        if isinstance(value, np.ndarray):
            array = cast("np.ndarray[Any, Any]", value)
            return self._placed(array) if _is_numeric(array) else array
        if isinstance(value, np.generic):
            return self._put(np.asarray(value))
        if isinstance(value, Mapping):
            return {name: self._put(one) for name, one in cast("Mapping[str, Any]", value).items()}
        if isinstance(value, tuple):
            return tuple(self._put(one) for one in cast("tuple[Any, ...]", value))
        if isinstance(value, list):
            found = _gathered(cast("list[Any]", value))
            return [self._put(one) for one in found] if isinstance(found, list) else self._put(found)
        return value

    def _placed(self, array: np.ndarray[Any, Any]) -> Any:
        try:
            if self._spread:
                return self._jax.make_array_from_process_local_data(self._sharding, array)
            return self._jax.device_put(array, self._sharding)
        except (ValueError, TypeError) as error:
            raise InputError(
                f"an array of shape {array.shape} and {array.dtype} cannot be put there: {error}",
                hint="batch(n, drop_last=True) with n a multiple of the devices, and arrays of the sharding's axes",
            ) from error


def _gathered(values: list[Any]) -> list[Any] | np.ndarray[Any, Any]:
    """Lists of arrays of one shape and type (windows are such) → one array."""
    parts = [_gathered(cast("list[Any]", one)) if isinstance(one, list) else one for one in values]
    arrays = [one for one in parts if isinstance(one, np.ndarray) and _is_numeric(cast("np.ndarray[Any, Any]", one))]
    alike = len(arrays) == len(parts) and len({(one.shape, one.dtype) for one in arrays}) == 1
    return np.stack(arrays) if alike else parts


def _is_numeric(array: np.ndarray[Any, Any]) -> bool:
    """Numbers, and types that libraries such as ml_dtypes add (bfloat16)."""
    return array.dtype.kind in "biufc" or array.dtype.isbuiltin == 2


def _jax() -> Any:
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        raise UnsupportedError("jax is not installed", hint="pip install 'headrace[jax]'") from error
