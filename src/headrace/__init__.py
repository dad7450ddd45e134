"""headrace: training data from object storage to the GPUs that wait for it.

The public face. Everything is imported on first use, so ``import headrace`` is quick.
"""

from __future__ import annotations

__version__ = "0.1.0"
