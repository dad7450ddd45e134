"""What `hr.ray` promises, seen by Ray Data and Ray Train on a cluster. Runs in a child: see tests/frameworks_kit.py.

The nodes have neither the caller's home nor its mounts, nor its keys of the store: all of that comes from here.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.base.settings import Settings
from headrace.catalog.snapshot import take_snapshot
from headrace.namespace import Namespace
from tests.frameworks_kit import raised, report
from tests.integration.examples_kit import BATCH as PICTURES
from tests.integration.examples_kit import (
    EPOCH,
    Notes,
    crashed_and_resumed,
    example,
    noted_by_torch,
    picture_orders,
    pictures,
)

COUNT, TASKS = 240, 6


def digits() -> hr.Dataset:
    return hr.Dataset.open("/digits").shuffle(seed=7)


def decode(sample: Any) -> Any:
    number = int(bytes(sample["txt"]))
    return {
        "__key__": sample["__key__"],
        "image": np.full((4, 3), number, np.float32),
        "ragged": np.arange(1 + number % 3),
        "note": None if number % 5 else f"n{number}",
        "late": None if number < 200 else b"late",
        "number": number,
        "about": {"half": number / 2, "odd": bool(number % 2)},
    }


def check_rows_come_once_and_in_order_when_asked(ray: Any) -> None:
    loader = digits().loader()
    loader.set_epoch(3)
    wanted = [(sample["__key__"], bytes(sample["txt"])) for sample in loader]
    first, folder = wanted[0][0], tempfile.mkdtemp(dir=Path.cwd())

    def overtaken(batch: Any) -> Any:  # the task that begins first ends after another
        if first not in batch["__key__"]:
            Path(folder, "done").touch()
        else:
            until = time.monotonic() + 60
            while not Path(folder, "done").exists() and time.monotonic() < until:
                time.sleep(0.02)
        return batch

    def rows(found: Any) -> list[tuple[str, bytes]]:
        return [(row["__key__"], row["txt"]) for row in found.iter_rows()]

    ordered = hr.ray.dataset(digits(), ordered=True, epoch=3, override_num_blocks=TASKS)
    assert ordered.count() == COUNT
    assert rows(ordered.map_batches(overtaken, batch_size=None)) == wanted
    assert not ray.data.DataContext.get_current().execution_options.preserve_order  # of other datasets: as it was
    free = hr.ray.dataset(digits(), epoch=3, override_num_blocks=TASKS)
    sent = ray.cloudpickle.loads(ray.cloudpickle.dumps(free))  # as to the actor of streaming_split
    assert sorted(rows(sent)) == sorted(wanted)


def check_what_a_map_makes_are_columns(ray: Any) -> None:
    import torch

    found = hr.ray.dataset(digits().map(decode), ordered=True, override_num_blocks=TASKS)
    wanted = list(digits().map(decode).loader())
    schema = found.schema().base_schema
    assert (schema.field("number").type, schema.field("note").type) == (pa.int64(), pa.string())
    batches = list(found.iter_batches(batch_size=64))
    assert [batch["image"].shape for batch in batches] == [(64, 4, 3)] * 3 + [(48, 4, 3)]
    assert np.concatenate([batch["image"] for batch in batches]).tolist() == [one["image"].tolist() for one in wanted]
    rows = found.take_all()
    for name in ("__key__", "number", "note", "late", "about"):
        assert [row[name] for row in rows] == [one[name] for one in wanted], name
    assert [row["ragged"].tolist() for row in rows] == [one["ragged"].tolist() for one in wanted]
    tensors = found.select_columns(["image", "number"]).iter_torch_batches(batch_size=100)
    assert sum(int(batch["number"].sum()) for batch in tensors if isinstance(batch["image"], torch.Tensor)) == sum(
        range(COUNT)
    )


def check_tables_keep_their_types(ray: Any) -> None:
    ds = hr.Dataset.open("/table")
    found = hr.ray.dataset(ds, ordered=True, override_num_blocks=5)
    schema = found.schema().base_schema
    types = [schema.field(name).type for name in ("x", "s", "when", "never")]
    assert types == [pa.int32(), pa.string(), pa.timestamp("ms"), pa.float32()]
    rows = found.take_all()
    assert [(row["__key__"], row["x"], row["s"]) for row in rows] == [
        (one["__key__"], one["x"], one["s"]) for one in ds.loader()
    ]
    chosen = hr.Dataset.open("/table", where=[("x", ">=", 90)], columns=["x"]).shuffle(seed=1)
    assert sorted(row["x"] for row in hr.ray.dataset(chosen).take_all()) == list(range(90, 100))
    mapped = hr.ray.dataset(chosen.map(lambda row: {"y": row["x"] + 1}))
    assert sorted(row["y"] for row in mapped.take_all()) == list(range(91, 101))


def check_nothing_left_is_an_empty_dataset(ray: Any) -> None:
    found = hr.ray.dataset(digits().filter(lambda sample: False))
    assert found.count() == 0
    assert found.take_all() == []
    assert list(found.iter_batches()) == []


def check_nodes_list_nothing_and_refuse_what_changed(ray: Any) -> None:
    space = Namespace.load()
    made = take_snapshot("/changing", "changing", None, namespace=space, settings=Settings.load())
    of_folder = hr.ray.dataset(hr.Dataset.open("/changing"), ordered=True)
    pinned = hr.ray.dataset(hr.Dataset.open(made.id), ordered=True)
    space.write("/changing/another.txt", b"0")
    space.write("/changing/3.txt", b"changed")
    error = raised(hr.errors.ChangedError, pinned.take_all)  # by nodes that have no home
    assert "changing/3.txt" in str(error)
    assert [row["__key__"] for row in of_folder.take_all()] == [str(row) for row in range(6)]


def check_what_fails_is_named(ray: Any) -> None:
    def fails(sample: Any) -> Any:
        if sample["__key__"] == "0123":
            raise ValueError("is no picture")
        return sample

    error = raised(hr.errors.BadSampleError, hr.ray.dataset(digits().map(fails)).take_all)
    assert "0123" in str(error)
    assert "is no picture" in str(error)
    some = hr.ray.dataset(digits().map(fails, on_error=hr.Skip(max_count=1)))
    assert len(some.take_all()) == COUNT - 1
    lock = threading.Lock()
    error = raised(hr.errors.InputError, lambda: hr.ray.dataset(digits().map(lambda sample: lock)))
    assert "map(" in str(error)
    for wrong in (digits().batch(4), digits().shard(0, 2), digits().repeat()):
        raised(hr.errors.InputError, lambda wrong=wrong: hr.ray.dataset(wrong))
    assert "Ray Train" in str(raised(hr.errors.InputError, lambda: hr.ray.shard(digits())))


def check_the_example_goes_on_where_it_stopped(ray: Any) -> None:
    """In Ray Train's local mode: the loop runs here, and what keeps its checkpoints is missing."""
    from ray.train import Checkpoint

    folder, kept = pictures(Path("pictures").resolve()), Path("kept").resolve()

    def report(metrics: Any, checkpoint: Any) -> None:
        shutil.copytree(checkpoint.path, kept, dirs_exist_ok=True)

    real = ray.train.report, ray.train.get_checkpoint
    ray.train.report = report
    ray.train.get_checkpoint = lambda: Checkpoint.from_directory(kept) if kept.exists() else None
    try:
        for save, crash in ((5, 7), (EPOCH, EPOCH)):

            def run(notes: Notes, save: int = save) -> None:
                with noted_by_torch(notes):
                    example("ray_train").main(str(folder), 2, 0, PICTURES, save)

            shutil.rmtree(kept, ignore_errors=True)
            found = crashed_and_resumed(run, crash, save)
            assert found == [row for order in picture_orders(folder, 2) for row in order], save
    finally:
        ray.train.report, ray.train.get_checkpoint = real


def check_training_goes_on_with_another_number_of_workers(ray: Any) -> None:
    from ray.train import Checkpoint, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    storage = tempfile.mkdtemp(dir=Path.cwd())
    ds = digits().batch(8)

    def train(state: Any) -> None:
        loader = hr.ray.shard(ds)
        loader.load_state_dict(state)
        rank = ray.train.get_context().get_world_rank()
        Path(storage, f"{rank}.json").write_text(json.dumps(taken(loader, 5)))
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "loader.json").write_text(json.dumps(loader.state_dict()))
            ray.train.report({}, checkpoint=Checkpoint.from_directory(folder) if rank == 0 else None)

    def taken(loader: Any, batches: int | None) -> list[str]:
        return [key for batch in itertools.islice(loader, batches) for key in batch["__key__"]]

    loaders = [ds.shard(rank, 3).loader() for rank in range(3)]
    seen = [key for loader in loaders for key in taken(loader, 2)]
    keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    trainer = DataParallelTrainer(
        train,
        train_loop_config=loaders[0].state_dict(),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="resumed", storage_path=storage, worker_runtime_env={"env_vars": keys}),
    )
    checkpoint = trainer.fit().checkpoint
    parts = [json.loads(Path(storage, f"{rank}.json").read_text()) for rank in range(2)]
    assert list(map(len, parts)) == [40, 40]
    rest = ds.loader()
    with checkpoint.as_directory() as folder:
        rest.load_state_dict(json.loads(Path(folder, "loader.json").read_text()))
    wanted = [sample["__key__"] for sample in digits().loader()]
    assert sorted(seen + parts[0] + parts[1]) == sorted(wanted[: 48 + 80])
    assert taken(rest, None) == wanted[48 + 80 :]


if __name__ == "__main__":
    import ray

    from tests.integration import ray_data_checks

    ray.cloudpickle.register_pickle_by_value(ray_data_checks)
    ray.init(address=os.environ["CLUSTER"], log_to_driver=False, logging_level="ERROR")
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.target_max_block_size = 1 << 20  # or tasks come one by one: the cluster's object store has little room
    context.execution_options.resource_limits = ray.data.ExecutionResources(cpu=2)  # a process each, to be started
    try:
        report(ray_data_checks, ray)
    finally:
        ray.shutdown()
