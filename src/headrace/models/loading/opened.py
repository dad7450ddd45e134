"""`hr.safetensors.open`: names, shapes and dtypes of what is there; single tensors, and slices of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from headrace.models.loading.arrays import Framework, made
from headrace.models.loading.contents import contents
from headrace.models.loading.files import File, Weights
from headrace.models.loading.header import Tensor
from headrace.models.loading.selecting import Index, Wanted


class Opened:
    """The tensors of a file or of a sharded model, none of them read yet. Any thread. From `hr.safetensors.open`."""

    def __init__(self, weights: Weights, framework: Framework) -> None:
        self._weights = weights
        self._framework = framework

    def keys(self) -> list[str]:
        """The names, in the order of the files."""
        return list(self._weights.places)

    def metadata(self) -> dict[str, str]:
        """What the files say of themselves."""
        return self._weights.metadata

    @property
    def files(self) -> Sequence[File]:
        """Those that were opened."""
        return self._weights.files

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """By name."""
        return {name: self._weights.tensor(name).shape for name in self._weights.places}

    @property
    def dtypes(self) -> Mapping[str, str]:
        """By name, as safetensors calls them: ``F32``, ``BF16`` …"""
        return {name: self._weights.tensor(name).dtype for name in self._weights.places}

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(self._weights.tensor(name).size for name in self._weights.places)

    def get_tensor(self, name: str) -> Any:
        """One tensor, read now. Raises InputError (no such name), and as `load`; no checksum is looked at."""
        return self._read(self._weights.tensor(name), None)

    def get_slice(self, name: str) -> Slice:
        """One tensor, to be indexed; only what the index names is read. Raises InputError: no such name."""
        return Slice(self, self._weights.tensor(name))

    def _read(self, tensor: Tensor, index: Index | None) -> Any:
        file = self._weights.files[self._weights.places[tensor.name]]
        wanted = Wanted.of(tensor, index, file.source.path)
        (one,) = contents([(file, [wanted])])
        return made(self._framework, one.data, tensor.dtype, wanted.shape, file.source.path)

    def __contains__(self, name: object) -> bool:
        return name in self._weights.places

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights.places)

    def __len__(self) -> int:
        return len(self._weights.places)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held but what its tensors hold."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._weights.path!r}, {len(self)} tensors, {self.size:,} bytes)"


class Slice:
    """One tensor of an `Opened`. ``[index]`` reads: slices of step 1, integers, an ellipsis. As safetensors' slices."""

    def __init__(self, of: Opened, tensor: Tensor) -> None:
        self._of = of
        self._tensor = tensor

    def get_shape(self) -> list[int]:
        """Of all of it."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """As safetensors calls it."""
        return self._tensor.dtype

    def __getitem__(self, index: Index) -> Any:
        return self._of._read(self._tensor, index)  # pyright: ignore[reportPrivateUsage]
