"""Which node keeps what: evenly, the same wherever it is asked, and little moves when a node goes."""

from __future__ import annotations

import stat
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import SettingError
from headrace.cache.names import object_name
from headrace.fetch import Keepers

TOKEN = "a token that nodes have"
NAMES = [object_name("s3://bucket", f"train/{number:05}.jpg", "etag", 1000) for number in range(4000)]


def keepers(names: list[str], here: str = "") -> Keepers:
    return Keepers(here or names[0], {name: f"http://{name}.example:7070" for name in names}, TOKEN)


node_names = st.lists(st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True), min_size=2, max_size=40, unique=True)


@settings(max_examples=30)
@given(node_names, st.data())
def test_all_nodes_agree_and_only_what_a_lost_node_kept_moves(names: list[str], data: st.DataObject) -> None:
    some = NAMES[:50]
    before = [keepers(names).of(name) for name in some]
    assert before == [keepers(names[::-1], data.draw(st.sampled_from(names))).of(name) for name in some]
    lost = data.draw(st.sampled_from(names))
    after = [keepers([name for name in names if name != lost]).of(name) for name in some]
    assert all(old in (new, lost) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("count", [2, 3, 16])
def test_every_node_keeps_about_as_much(count: int) -> None:
    nodes = keepers([f"node-{number}" for number in range(count)])
    expected = len(NAMES) / count
    objects = Counter(nodes.of(name) for name in NAMES)
    pieces = Counter(nodes.of(NAMES[0], piece) for piece in range(len(NAMES)))
    for found in (objects, pieces):
        assert len(found) == count
        assert all(abs(kept - expected) < 5 * expected**0.5 for kept in found.values())  # five standard deviations


def test_the_file_is_read_as_it_was_written_and_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "peers.toml"
    nodes = keepers(["a", "b"], "b")
    nodes.save(str(path))
    assert Keepers.load(str(path)) == nodes
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["peers.toml"]
    assert TOKEN not in repr(nodes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("here = ", "TOML"),
        ("token = 1", "needs here"),
        (f"here = 'c'\ntoken = '{TOKEN}'\nnodes.a = 'http://a:1'", "none of the nodes"),
        (f"here = 'a'\ntoken = '{TOKEN}'\nnodes.a = 'a:1'", "no address"),
        (f"here = 'a'\ntoken = '{TOKEN}'\nnodes.a = 'http://a:99999'", "no address"),
        ("here = 'a'\ntoken = 'short'\nnodes.a = 'http://a:1'", "token"),
        (f"here = 'a'\ntoken = '{TOKEN}'\nnodez.a = 'http://a:1'", "'nodez'"),
    ],
)
def test_a_file_that_says_something_else_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "peers.toml"
    path.write_text(text)
    with pytest.raises(SettingError) as caught:
        Keepers.load(str(path))
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.hint
