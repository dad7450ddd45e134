"""A document as the pieces that sequences can hold: what `Dataset.pack_documents` does to each before it packs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.base.errors import InputError
from headrace.loader.tokens.token_values import column_of, place_of, tokens_in

SPLIT, REFUSE = "split", "refuse"


@dataclass(frozen=True)
class DocumentPieces:
    """A ``flat_map``. Pickles; any thread. `dtype`: of the tokens; None: as they are. `long`: what becomes of a
    document of more than `size` tokens.
    """

    size: int
    column: str | None
    dtype: str | None
    long: str

    def __call__(self, sample: Any) -> list[dict[str, Any]]:
        """Its tokens, `size` at a time; none where it has none.

        Raises:
            InputError: it holds no tokens, some that are not of `dtype`, or more than may be.
        """
        name = column_of(sample, self.column)
        key = sample.get("__key__", "")
        try:
            tokens = tokens_in(sample[name], None if self.dtype is None else np.dtype(self.dtype), name)
            if len(tokens) > self.size and self.long == REFUSE:
                reason = f"has {len(tokens):,} tokens, and a sequence {self.size:,}"
                raise InputError(reason, hint='longer sequences, or long="split"')
        except InputError as error:
            raise error.at(place_of(sample)) from None
        return [{"__key__": key, "tokens": tokens[at : at + self.size]} for at in range(0, len(tokens), self.size)]
