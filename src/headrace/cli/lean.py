"""What NumPy and the collector of cycles prepare for others, a program that runs only our code does without."""

from __future__ import annotations

import gc
import os

from headrace.base.settings import environment

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_BETWEEN = 50_000


def lean() -> None:
    """Call it once, before NumPy is imported. For programs that multiply no matrices, start no others, and leave few
    cycles behind.

    NumPy's OpenBLAS starts a thread for each further core when it is imported, and these spin for a tenth of a second
    in case there is work: on two cores, time that a store on the same machine wants. And the collector would go
    through all modules several times while they are imported, and through what is under way whenever 700 objects more
    are: here that are tens of thousands, of which none is in a cycle.
    """
    if environment(_BLAS_THREADS) is None:
        os.environ[_BLAS_THREADS] = "1"
    gc.set_threshold(_BETWEEN, 50, 50)
