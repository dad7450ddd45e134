"""Arrow under one roof. pyarrow ships no types, so here its modules and what this room takes from them are named once.

`Batch`: a record batch; `Column`: an array, one buffer of it unless said otherwise; `Table`: chunked columns.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

pa: Any = pyarrow
csv: Any = pyarrow.csv
pc: Any = pyarrow.compute
pq: Any = pyarrow.parquet

Batch: TypeAlias = Any
Column: TypeAlias = Any
Table: TypeAlias = Any

__all__ = ["Batch", "Column", "Table", "csv", "pa", "pc", "pq"]
