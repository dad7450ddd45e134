"""How the page is served: what is taken, and what is refused."""

from __future__ import annotations

import pytest

from headrace.base.errors import InputError
from headrace.web import Options


@pytest.mark.parametrize(
    "base", ["", "/a", "/user/ann/headrace", "/user/ann@x.org/a", "/user/ann%40x.org/a", "/a.b~c_d-e"]
)
def test_a_base_is_what_a_proxy_puts_before_a_path(base: str) -> None:
    assert Options(base=base).base == base


@pytest.mark.parametrize(
    "base", ["a", "/", "/a/", "//a", "/a;b", "/a,b", "/a b", "/a%4", '/a"b', "/<a>", "/a\nb", "/é"]
)
def test_what_is_no_base_is_refused(base: str) -> None:
    with pytest.raises(InputError):
        Options(base=base)
