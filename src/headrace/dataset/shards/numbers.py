"""A number for every key, the same for the same key: to find out whether any key is there twice.

Of one key, or of many at once by arrays, which hashing libraries do not do. Two keys may have one number, by chance or
because somebody wants it: who finds a number twice looks at the keys.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MODULI = (4_294_967_291, 4_294_967_279)
"""The largest primes below 2**32: a remainder and the next four bytes behind it fit in 64 bits."""
_WORD = 4


def number_of(key: bytes) -> int:
    """The key as one little-endian number, modulo two primes: 64 bits. Zeros at the end count for nothing."""
    whole = int.from_bytes(key, "little")
    return whole % _MODULI[0] << 32 | whole % _MODULI[1]


def numbers_of(keys: npt.NDArray[np.bytes_]) -> npt.NDArray[np.uint64]:
    """As `number_of`, of each of [n]."""
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
