"""What a remote store says no to: a bucket that is not there, credentials that are wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.base.errors import DeniedError, NotFoundError, TryAgainError
from headrace.store.protocol import Store
from headrace.testing.conformance.base import Reader, Suite, listed_keys

WRONG_SECRET = "wrong-secret-0123456789abcdefghijklmnopq"


class Refusals(Suite):
    """Needs two or three more fixtures of the subclass."""

    @pytest.fixture
    def absent(self) -> Store:
        """A store at a bucket that does not exist, on the same server."""
        raise NotImplementedError("give the subclass a fixture named absent")

    @pytest.fixture
    def intruder(self) -> Store:
        """A store at the same bucket, whose secret is WRONG_SECRET (or derived from it)."""
        raise NotImplementedError("give the subclass a fixture named intruder")

    @pytest.fixture
    def unreachable(self) -> Store:
        """A store at an endpoint where nobody listens, with one retry and a deadline of a second or two."""
        raise NotImplementedError("give the subclass a fixture named unreachable")

    def test_a_missing_bucket(self, absent: Store, read: Reader) -> None:
        for call in self._calls(absent, read):
            with pytest.raises(NotFoundError) as caught:
                call()
            assert absent.url in str(caught.value)

    def test_wrong_credentials(self, store: Store, intruder: Store, folder: str, read: Reader) -> None:
        store.put(folder + "a", b"secret")
        for call in self._calls(intruder, read, folder + "a"):
            with pytest.raises(DeniedError) as caught:
                call()
            assert caught.value.hint, "say what to do"
            assert WRONG_SECRET not in f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"
        assert WRONG_SECRET not in repr(intruder) + intruder.identity + intruder.url
        assert bytes(store.get(folder + "a").data) == b"secret"

    def test_nobody_there(self, unreachable: Store, hasty_read: Reader) -> None:
        for call in self._calls(unreachable, hasty_read):
            with pytest.raises(TryAgainError) as caught:
                call()
            assert caught.value.hint, "say what to do"

    def _calls(self, store: Store, read: Reader, key: str = "a") -> list[Callable[[], object]]:
        return [
            lambda: read(store, key),
            lambda: store.head(key),
            lambda: listed_keys(store, key),
            store.list_folder,
            lambda: store.put(key, b"x"),
        ]
