"""Which rank this process is, as launchers say it, and stripes that are made equally long."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import InputError
from headrace.loader import Dataset, Loader, Skip

NAMES = (
    "RANK", "WORLD_SIZE", "HOROVOD_RANK", "HOROVOD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
    "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "TF_CONFIG",
)  # fmt: skip
CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"], "evaluator": ["e:1"]}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("ranks")
    for number in range(11):
        (made / f"{number:02}.bin").write_bytes(b"x")
    return made


def of_tensorflow(kind: str, index: int = 0, cluster: dict[str, Any] | None = None) -> dict[str, str]:
    told = {"cluster": CLUSTER if cluster is None else cluster, "task": {"type": kind, "index": index}}
    return {"TF_CONFIG": json.dumps(told)}


@pytest.mark.parametrize(
    ("variables", "rank", "of", "by"),
    [
        ({}, 0, 1, ""),
        ({"RANK": "1", "WORLD_SIZE": "3"}, 1, 3, "torchrun"),
        ({"HOROVOD_RANK": "2", "HOROVOD_SIZE": "3"}, 2, 3, "Horovod"),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1, 2, "Open MPI"),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, 1, 2, "MPICH"),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2"}, 1, 2, "SLURM"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, 0, 1, ""),
        (of_tensorflow("chief"), 0, 3, "TF_CONFIG"),
        (of_tensorflow("worker", 1), 2, 3, "TF_CONFIG"),
        (of_tensorflow("worker", 1, {"worker": ["a", "b"]}), 1, 2, "TF_CONFIG"),
        (of_tensorflow("master", 0, {"master": ["a"], "worker": ["b"]}), 0, 2, "TF_CONFIG"),
        (of_tensorflow("evaluator"), 0, 1, ""),
        ({"TF_CONFIG": "{}"}, 0, 1, ""),
        ({"HOROVOD_RANK": "1"}, 0, 1, ""),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "RANK": "0", "WORLD_SIZE": "5"}, 0, 5, "torchrun"),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "2", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"},
            3,
            4,
            "Open MPI",
        ),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", **of_tensorflow("chief")}, 1, 2, "SLURM"),
    ],
)
def test_the_rank_is_as_who_started_the_process_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rank: int, of: int, by: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    dataset = Dataset.open(str(folder)).shard()
    assert (dataset.striping.rank, dataset.striping.world_size, dataset.striping.by) == (rank, of, by)
    loader = dataset.loader()
    assert len(list(loader)) == len(range(rank, 11, of))
    assert loader.stats().rank == (f"rank {rank} of {of}, as {by} says" if by else "")


def test_what_the_program_says_holds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    loader = Dataset.open(str(folder)).shard(0, 2).loader()
    assert loader.stats().rank == "rank 0 of 2, as shard() says"
    assert Dataset.open(str(folder)).shard(world_size=2).striping.rank == 1
    assert Dataset.open(str(folder)).loader().stats().rank == ""


def test_jax_is_asked_where_the_program_has_begun_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in: several processes of JAX would each need a device."""
    begun = SimpleNamespace(is_initialized=lambda: True)
    jax = SimpleNamespace(distributed=begun, process_index=lambda: 1, process_count=lambda: 4)
    monkeypatch.setitem(sys.modules, "jax", jax)  # pyright: ignore[reportArgumentType]
    assert Dataset.open(str(folder)).shard().striping.describe() == "rank 1 of 4, as jax.distributed says"
    begun.is_initialized = lambda: False
    assert not Dataset.open(str(folder)).shard().striping.told


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK='one' is not a number"),
        ({"WORLD_SIZE": "2"}, "nothing says which of them"),
        ({"PMI_RANK": "2", "PMI_SIZE": "2"}, "rank=2, world_size=2"),
        ({"SLURM_PROCID": "-1", "SLURM_STEP_NUM_TASKS": "2"}, "SLURM_PROCID='-1'"),
        ({"TF_CONFIG": "{"}, "TF_CONFIG is not"),
        ({"TF_CONFIG": "[1]"}, "TF_CONFIG is not"),
        (of_tensorflow("worker", 2), "rank=3, world_size=3"),
    ],
)
def test_what_makes_no_sense_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], says: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError) as told:
        Dataset.open(str(folder)).shard()
    assert says in str(told.value)


# Even


def seen(loader: Loader, most: int | None = None) -> list[str]:
    found: list[str] = []
    epoch = iter(loader)
    while most is None or len(found) < most:
        sample = next(epoch, None)
        if sample is None:
            break
        found.append(sample["__key__"])
    return found


@given(world=st.integers(1, 14), seed=st.sampled_from([None, 1]), even=st.sampled_from(["repeat", "short"]))
@settings(max_examples=30)
def test_even_ranks_have_as_many(folder: Path, world: int, seed: int | None, even: str) -> None:
    dataset = Dataset.open(str(folder))
    dataset = dataset if seed is None else dataset.shuffle(seed)
    plain = [seen(dataset.shard(rank, world).loader()) for rank in range(world)]
    made = [seen(dataset.shard(rank, world, even=even).loader()) for rank in range(world)]
    count = max(map(len, plain)) if even == "repeat" else min(map(len, plain))
    assert {len(one) for one in made} == {count}
    assert [len(dataset.shard(rank, world, even=even).batch(2).loader()) for rank in range(world)] == [
        -(-count // 2)
    ] * world
    for one, whole in zip(made, plain, strict=True):
        assert one[: len(whole)] == whole[:count]
    if even == "repeat":
        assert {key for one in made for key in one} == {key for one in plain for key in one}


@given(
    before=st.integers(1, 5), after=st.integers(1, 5), stops=st.lists(st.integers(0, 12), min_size=5, max_size=5),
    even=st.sampled_from(["repeat", "short", None]), other=st.sampled_from(["repeat", None]),
)  # fmt: skip
@settings(max_examples=60)
def test_a_resume_on_other_ranks_loses_nothing(
    folder: Path, before: int, after: int, stops: list[int], even: str | None, other: str | None
) -> None:
    """What came twice to make ranks even does not come a third time, and nothing else is left out."""
    dataset = Dataset.open(str(folder)).shuffle(3)
    first = [dataset.shard(rank, before, even=even).loader() for rank in range(before)]
    had = [key for loader, stop in zip(first, stops, strict=False) for key in seen(loader, stop)]
    states = [loader.state_dict() for loader in first]
    if len({state["epoch"] for state in states}) > 1 or states[0]["epoch"]:
        return
    rest: list[str] = []
    for rank in range(after):
        loader = dataset.shard(rank, after, even=other).loader()
        loader.load_state_dict(states)
        rest += seen(loader)
    assert set(had) | set(rest) == {f"{number:02}" for number in range(11)}
    if other is None:
        assert len(rest) == len(set(rest))
        assert not set(had) & set(rest)


def test_even_is_refused_where_it_cannot_hold(folder: Path) -> None:
    dataset = Dataset.open(str(folder)).shard(0, 2, even="short")
    for wrong in (
        dataset.filter(bool), dataset.flat_map(lambda one: [one]), dataset.map(dict, on_error=Skip(max_count=1)),
        dataset.batch(cost=len, limit=9), dataset.batch(2).filter(bool),
    ):  # fmt: skip
        with pytest.raises(InputError, match="even='short'"):
            wrong.loader()
    with pytest.raises(InputError, match="even='more'"):
        Dataset.open(str(folder)).shard(0, 2, even="more")


def test_rows_of_tables_are_made_even_too(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": list(range(11))}), tmp_path / "rows.parquet", row_group_size=4)
    dataset = Dataset.open(str(tmp_path)).shuffle(1)
    for even, count in (("repeat", 4), ("short", 3)):
        ranks = [dataset.shard(rank, 3, even=even).batch(2).loader() for rank in range(3)]
        made = [[int(x) for batch in loader for x in batch["x"]] for loader in ranks]
        assert {len(one) for one in made} == {count}
        assert len({x for one in made for x in one}) == (11 if even == "repeat" else 9)
