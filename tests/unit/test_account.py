"""Who pays for a request, whatever thread it is made on, and how much."""

from __future__ import annotations

import secrets
import threading

import pytest

from headrace.base.account import Account, account, carried, count, on
from headrace.base.errors import SettingError
from headrace.base.settings import Settings
from headrace.base.threads import Threads
from headrace.store import open_store
from headrace.store.http1.request import kind_of
from headrace.store.wrappers import OnAccount
from headrace.web.cost import Cost


def test_each_block_has_its_own() -> None:
    outer, inner = Account(), Account()
    count("get")
    with on(outer):
        count("get")
        with on(inner):
            count("list", 2)
        with on(None):
            count("put")
        count("get")
    assert account() is None
    assert (outer.counts(), inner.counts()) == ({"get": 2}, {"list": 2})


def test_pools_take_it_along_and_leave_it() -> None:
    paying = Account()
    with Threads(1) as pool:
        with on(paying):
            list(pool.map(count, ["get", "head"]))
            pool.submit(count, "get").result()
        pool.submit(count, "put").result()
    assert paying.counts() == {"get": 2, "head": 1}


def test_work_behind_goes_on_until_it_is_over() -> None:
    paying, go = Account(), threading.Event()

    def work() -> None:
        go.wait(10)
        count("get")

    with on(paying):
        thread = threading.Thread(target=carried(work))
    thread.start()
    assert paying.goes_on
    go.set()
    thread.join()
    assert not paying.goes_on
    assert paying.counts() == {"get": 1}


def test_work_that_fails_is_over_too() -> None:
    paying = Account()
    with on(paying):
        failing = carried(lambda: 1 / 0)
    try:
        failing()
    except ZeroDivisionError:
        assert not paying.goes_on
    else:
        raise AssertionError


def test_calls_of_a_store_whose_requests_nobody_sees() -> None:
    store, paying = OnAccount(open_store(f"memory://account-{secrets.token_hex(8)}")), Account()
    with on(paying):
        store.put("a", b"1")
        store.copy("a", "b")
        store.get("a")
        store.head("a")
        assert [one.key for page in store.list() for one in page] == ["a", "b"]
        store.list_folder()
        store.delete(["a", "b"])
    assert paying.counts() == {"put": 2, "get": 1, "head": 1, "list": 2, "delete": 2}


@pytest.mark.parametrize(
    ("asked", "kind"),
    [("GET /b/k HTTP/1.1", "get"), ("GET /b/?list-type=2&prefix=a HTTP/1.1", "list"),
     ("GET /b/?uploads= HTTP/1.1", "list"), ("HEAD /b/k HTTP/1.1", "head"),
     ("PUT /b/k HTTP/1.1", "put"), ("POST /b/k?uploads= HTTP/1.1", "put"),
     ("POST /b/?delete= HTTP/1.1", "delete"), ("DELETE /b/k HTTP/1.1", "delete"),
     ("GET /b/list-type%3D2 HTTP/1.1", "get")],
)  # fmt: skip
def test_requests_are_of_the_kind_that_is_charged_for(asked: str, kind: str) -> None:
    assert kind_of(asked.encode() + b"\r\nhost: x\r\n\r\n") == kind


def test_prices_are_settings() -> None:
    paying = Account()
    paying.count("get", 500)
    paying.count("head", 500)
    paying.count("list", 1000)
    paying.count("delete", 7)
    example = Cost.of(paying, Settings.load(environ={}).prices)
    assert (example.usd, example.prices_set) == (pytest.approx(0.0054), False)
    assert (example.kinds, example.price) == ("500 GET, 500 HEAD, 1,000 LIST, 7 DELETE", "0.0054")
    ours = Settings.load(environ={"HEADRACE_PRICES_WRITE": "2", "HEADRACE_PRICES_READ": "0"}).prices
    assert (Cost.of(paying, ours).price, Cost.of(paying, ours).prices_set) == ("2.00", True)
    assert Cost.of(Account(), ours).price == "0"
    for wrong in ("free", "-1", "inf", "nan"):
        with pytest.raises(SettingError, match="price"):
            Settings.load(environ={"HEADRACE_PRICES_READ": wrong})
