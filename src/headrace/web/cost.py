"""What a page has cost the bucket: for its footer, and its JSON twin."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.account import Account
from headrace.base.settings import PriceSettings


@dataclass(frozen=True, slots=True)
class Cost:
    """Requests that were made for one answer, and what they cost. `put`: copies too. `usd`: US$, at the prices that are
    set, which are examples unless they were (`prices_set`). `goes_on`: work was begun that goes on behind the page:
    then this is so far.
    """

    get: int
    head: int
    list: int
    put: int
    delete: int
    usd: float
    prices_set: bool
    goes_on: bool

    @staticmethod
    def of(account: Account, prices: PriceSettings) -> Cost:
        """Up to now. Deleting costs nothing."""
        goes_on = account.goes_on  # before it is counted: else what came between would be neither
        counts = account.counts()
        get, head, listed, put, deleted = (counts.get(kind, 0) for kind in ("get", "head", "list", "put", "delete"))
        usd = (prices.read * (get + head) + prices.write * (listed + put)) / 1000
        return Cost(get, head, listed, put, deleted, usd, prices != PriceSettings(), goes_on)

    @property
    def requests(self) -> int:
        """All of them."""
        return self.get + self.head + self.list + self.put + self.delete

    @property
    def kinds(self) -> str:
        """How many of each kind there were, like ``3 GET, 1 LIST``."""
        named = ("GET", self.get), ("HEAD", self.head), ("LIST", self.list), ("PUT", self.put), ("DELETE", self.delete)
        return ", ".join(f"{count:,} {name}" for name, count in named if count)

    @property
    def price(self) -> str:
        """As it is written: two digits that count, however little it is."""
        return f"{self.usd:.2f}" if self.usd >= 1 else f"{self.usd:.12f}".rstrip("0") if self.usd else "0"
