"""The rows that tests/integration/trainers_checks.py trains on; light enough for a spawned worker to import."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

import headrace as hr


def opened() -> hr.Dataset:
    """Samples {"x": float32[4], "row": int}, shuffled."""
    return hr.Dataset.open(os.environ["ROWS"]).shuffle(1).map(decode, threads=1)


def decode(sample: Any) -> Any:
    row = int(bytes(sample["txt"]))
    return {"x": np.full(4, row, "f4"), "row": row}


def rows(loader: Iterable[Any]) -> list[int]:
    return flat(batch["row"].tolist() for batch in loader)


def flat(lists: Iterable[list[int]]) -> list[int]:
    return [row for some in lists for row in some]
