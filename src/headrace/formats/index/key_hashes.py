"""Hashes of keys, to find out whether any key is there twice: of one, or of many at once by arrays.

Hashing libraries do not do the latter. Two keys may have one hash, by chance or because somebody wants it: who finds
one twice looks at the keys.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MODULI = (4_294_967_291, 4_294_967_279)
"""The largest primes below 2**32: a remainder and the next four bytes behind it fit in 64 bits."""
_WORD = 4  # bytes of a key taken in at a time


def hash_of(key: bytes) -> int:
    """64 bits: the key as one little-endian number, modulo two primes. Zeros at the end count for nothing."""
    whole = int.from_bytes(key, "little")
    return whole % _MODULI[0] << 32 | whole % _MODULI[1]


def hashes_of(keys: npt.NDArray[np.bytes_]) -> npt.NDArray[np.uint64]:
    """As `hash_of`, of each: [n] keys to uint64 [n]. Keys of at least one byte."""
    width = keys.dtype.itemsize
    padded = np.ascontiguousarray(keys.astype(f"S{width + -width % _WORD}"))
    words = padded[:, None].view("<u4").T.astype(np.uint64)
    first, second = (_remainders(words, np.uint64(modulus)) for modulus in _MODULI)
    return first << np.uint64(32) | second


def _remainders(words: npt.NDArray[np.uint64], modulus: np.uint64) -> npt.NDArray[np.uint64]:
    rest = words[-1] % modulus
    for word in words[-2::-1]:
        rest = (rest << np.uint64(32) | word) % modulus
    return rest
