"""What every `headrace.store.protocol.Store` must do, as pytest classes to subclass.

    class TestMyStore(StoreConformance):
        unsupported = frozenset({"double-slash"})       # kinds of keys it cannot hold, and refuses

        @pytest.fixture
        def store(self): ...

Reads are tried through `Store.get` and through a `Fetcher`, so `Store.wire` is tested too. Call
``pytest.register_assert_rewrite("headrace.testing.conformance")`` before importing it to see values in failures.
"""

from headrace.testing.conformance.keys import ODD_KEYS, OddKeys
from headrace.testing.conformance.listing import Listing
from headrace.testing.conformance.parts import Parts
from headrace.testing.conformance.reads import Reads
from headrace.testing.conformance.refusals import Refusals
from headrace.testing.conformance.sharing import Sharing
from headrace.testing.conformance.writes import Writes


class StoreConformance(Reads, Writes, Parts, Listing, OddKeys, Sharing):
    """The whole suite for any store."""


class RemoteConformance(StoreConformance, Refusals):
    """The whole suite for a store that has buckets and credentials."""


__all__ = ["ODD_KEYS", "RemoteConformance", "StoreConformance"]
