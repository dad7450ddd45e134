"""What every runtime is to the rest of the room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from headrace.serving.tensors import Array, Signature

DEFAULT: Final = "serving_default"
"""The signature that a request means when it names none."""


class Runtime(Protocol):
    """A model that is loaded. `run` may be called from any thread, several at once."""

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """By name; never empty."""
        ...

    @property
    def platform(self) -> str:
        """What the protocols call it: ``onnxruntime_onnx``, ``pytorch_export``, …"""
        ...

    @property
    def in_process(self) -> bool:
        """Whether it computes in the server's own process, and so never waits for another."""
        ...

    @property
    def batched(self) -> bool | None:
        """Whether rows of several requests may be run together; None: to be found out by trying."""
        ...

    def run(self, signature: str, inputs: Mapping[str, Array], seconds: float | None = None) -> dict[str, Array]:
        """All outputs of the signature, by name. `inputs` fit the signature.

        Raises:
            InputError: the model itself refuses the values. DeadlineError: it took longer than `seconds`, where a
            runtime can be ended. TryAgainError: its process has ended; it is being started again.
        """
        ...

    def close(self) -> None:
        """Let the model go. Not while `run` is at work."""
        ...
