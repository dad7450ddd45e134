"""How ``headrace models show`` puts a version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.base.units import format_bytes
from headrace.cli import run_shown

if TYPE_CHECKING:
    from headrace.models import ModelCard, Tensor


def more(card: ModelCard) -> dict[str, Any]:
    """Beside what lists show, in words."""
    return {
        "source": card.source,
        "runtime": card.runtime,
        "gate": card.gate,
        "data": run_shown.inputs(card.data) if card.data else None,
        "code": run_shown.code(card.code) if card.code else None,
        "metrics": metrics(card.metrics),
        "digest": card.digest,
    }


def metrics(told: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The last values."""
    known = [(name, one.get("last")) for name, one in told.items()]
    return ", ".join(f"{name} {'not finite' if last is None else f'{last:.4g}'}" for name, last in known) or None


def lines(card: ModelCard) -> Iterator[str]:
    """Signatures and files."""
    for name, signature in card.signatures.items():
        yield f"\nsignature {name}"
        yield from (f"  in   {_tensor(one)}" for one in signature.inputs)
        yield from (f"  out  {_tensor(one)}" for one in signature.outputs)
    yield "\nfiles"
    yield from (f"  {format_bytes(one.bytes):>10}  {one.sha256[:12]}  {one.path}" for one in card.files)


def _tensor(one: Tensor) -> str:
    shape = "" if one.shape is None else f"[{', '.join('?' if each is None else str(each) for each in one.shape)}]"
    return f"{one.name}  {one.dtype}{shape}"
