"""Which reads of one object are sent as one request."""

from __future__ import annotations

GAP = 32 << 10
"""Bytes between two ranges (headers, a sample that is not wanted) that are rather read along than asked around."""
MOST_JOINED = 4 << 20
"""Bytes from which on a run takes no more: what a connection brings in a few of the store's answering times."""
