"""Which kind a file is, and its preview; what cannot be shown so is shown as text or bytes, and why."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from headrace.base.errors import HeadraceError
from headrace.web.previews.preview import Kind, Made, cut
from headrace.web.previews.source import Source
from headrace.web.previews.text import beginning

_WHERE: Final = (
    ("pictures", "KIND"), ("tables", "PARQUET"), ("tables", "DELIMITED"), ("tar", "KIND"), ("arrays", "KIND"),
    ("zip", "KIND"), ("safetensors", "KIND"), ("tables", "ARROW"), ("gzip", "KIND"), ("sounds", "KIND"),
)  # fmt: skip
"""Modules of this package, and what in them is a `Kind`."""
_HEAD: Final = 512  # bytes by which a kind is told


def kinds() -> list[Kind]:
    """All there are."""
    return [getattr(import_module(f"{__package__}.{module}"), name) for module, name in _WHERE]


def kind_of(source: Source) -> Kind | None:
    """By its suffix, else by how it begins. None: text, or bytes. Raises what reading raises."""
    every = kinds()
    named = next((one for one in every if source.name.endswith(one.suffixes)), None)
    if named is not None:
        return named
    head = bytes(source.read(0, _HEAD))
    return next((one for one in every if one.fits(head)), None)


def made(source: Source) -> Made:
    """The preview of a file. Raises what its first read raises."""
    kind = kind_of(source) if source.size else None
    if kind is None:
        return beginning(source)
    try:
        return kind.make(source)
    except HeadraceError as error:
        reason = error.reason
    except Exception as error:  # of a library, for bytes that nobody has thought of
        reason = f"{type(error).__name__}: {cut(str(error), 200)}"
    told = beginning(source)
    note = f"It is shown as {told.preview.kind}, for as {kind.name} it cannot be: {reason}."
    return replaced(told, note)


def replaced(told: Made, note: str) -> Made:
    """The same with one more note, before the others."""
    from dataclasses import replace

    return replace(told, preview=replace(told.preview, notes=(note, *told.preview.notes)))
