"""What two versions do not have alike: metrics, where they come from, signatures and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, cast

from headrace.models.card import ModelCard, Signature

Part = Literal["model", "metric", "data", "code", "signature", "file"]
_FIELDS: Final = ("format", "entry", "runtime", "run", "checkpoint", "source", "gate", "note", "created", "by", "bytes")
_CODE: Final = ("commit", "branch", "remote", "digest", "dirty")
_DATA: Final = ("url", "snapshot", "objects", "bytes", "digest")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing. `a`, `b`: None, it has none. Metrics are told also where they are alike."""

    part: Part
    name: str
    a: Any
    b: Any

    @property
    def same(self) -> bool:
        """Whether it is told only to be seen side by side."""
        return self.a == self.b


def diff(a: ModelCard, b: ModelCard) -> Iterator[Difference]:
    """All of it, part by part. No request."""
    yield from _compared("metric", _metrics(a), _metrics(b), every=True)
    yield from _compared("model", _fields(a), _fields(b))
    yield from _compared("data", _nested(a.data, _DATA), _nested(b.data, _DATA))
    yield from _compared("code", _some(a.code, _CODE), _some(b.code, _CODE))
    yield from _compared("signature", _signatures(a.signatures), _signatures(b.signatures))
    files = ({one.path: f"{one.bytes:,} bytes, {one.sha256[:12]}" for one in card.files} for card in (a, b))
    yield from _compared("file", *files)


def _compared(part: Part, a: Mapping[str, Any], b: Mapping[str, Any], *, every: bool = False) -> Iterator[Difference]:
    for name in sorted({*a, *b}):
        one = Difference(part, name, a.get(name), b.get(name))
        if every or not one.same:
            yield one


def _metrics(card: ModelCard) -> dict[str, Any]:
    return {name: told.get("last") for name, told in card.metrics.items()}


def _fields(card: ModelCard) -> dict[str, Any]:
    return {name: getattr(card, name) for name in _FIELDS}


def _some(told: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: told[name] for name in names if told.get(name) is not None}


def _nested(told: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, one in told.items():
        inner: Mapping[str, Any] = cast("Mapping[str, Any]", one) if isinstance(one, Mapping) else {}
        found |= {f"{name}.{key}": value for key, value in _some(inner, names).items()}
    return found


def _signatures(told: Mapping[str, Signature]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, signature in told.items():
        for side in ("inputs", "outputs"):
            for tensor in asdict(signature)[side]:
                shape = "" if tensor["shape"] is None else list(tensor["shape"])
                found[f"{name}.{side}.{tensor['name']}"] = f"{tensor['dtype']} {shape}".rstrip()
    return found
