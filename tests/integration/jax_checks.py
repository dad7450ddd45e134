"""What `headrace.jax` promises, seen by JAX itself on four CPU devices. Runs in a child: see tests/frameworks_kit.py.

``python -m tests.integration.jax_checks PORT RANK`` is one of two processes that make one mesh of four devices.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from headrace.base.errors import BadSampleError, InputError
from headrace.base.ports import reserve_port
from tests.frameworks_kit import digits, no_loader_runs, raised, report, run_blocks
from tests.integration.examples_kit import BATCH as PICTURES
from tests.integration.examples_kit import (
    EPOCH,
    Notes,
    crashed_and_resumed,
    example,
    picture_orders,
    pictures,
    working_in,
)

COUNT, BATCH = 500, 16
Place = tuple[Any, str]
"""jax, and the URL of the digits."""


def decode(sample: Any) -> Any:
    image = np.frombuffer(sample["image"], np.uint8).astype(np.float32) / 16
    return {"__key__": sample["__key__"], "x": image, "y": np.int32(bytes(sample["label"]))}


def opened(place: Place) -> hr.Dataset:
    return hr.Dataset.open(place[1]).shuffle(0).map(decode)


def mesh_of(jax: Any, *spec: Any) -> Any:
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))


def everything() -> list[str]:
    return [f"{row:04d}" for row in range(COUNT)]


def check_arrays_on_the_device_strings_on_the_host(place: Place) -> None:
    jax = place[0]
    images, labels = digits(COUNT)
    source = hr.jax.arrays(opened(place).batch(BATCH))
    epochs: list[list[str]] = []
    for _ in range(2):
        epochs.append([])
        for batch in source:
            assert isinstance(batch["x"], jax.Array)
            assert isinstance(batch["y"], jax.Array)
            assert batch["x"].devices() == {jax.devices()[0]}
            rows = [int(key) for key in batch["__key__"]]
            assert np.array_equal(batch["x"], images[rows].astype(np.float32) / 16)
            assert np.array_equal(batch["y"], labels[rows])
            epochs[-1] += batch["__key__"]
    assert sorted(epochs[0]) == sorted(epochs[1]) == everything()
    assert epochs[0] != epochs[1]
    plain = opened(place).batch(BATCH).loader()
    assert epochs[0] == [key for batch in plain for key in batch["__key__"]]


def check_another_device(place: Place) -> None:
    jax = place[0]
    third = jax.devices()[2]
    batch = next(iter(hr.jax.arrays(opened(place).batch(BATCH), third)))
    assert batch["x"].devices() == {third}


def check_spread_over_four_devices(place: Place) -> None:
    jax = place[0]
    assert jax.device_count() == 4
    spread = mesh_of(jax, "data")
    seen: list[str] = []
    for batch in hr.jax.arrays(opened(place).batch(BATCH, drop_last=True), spread):
        assert batch["x"].sharding == spread
        assert batch["x"].shape == (BATCH, 64)
        assert [one.data.shape for one in batch["x"].addressable_shards] == [(BATCH // 4, 64)] * 4
        assert [one.data.shape for one in batch["y"].addressable_shards] == [(BATCH // 4,)] * 4
        seen += batch["__key__"]
    assert len(set(seen)) == len(seen) == COUNT // BATCH * BATCH


def check_a_batch_that_does_not_divide_is_refused_in_its_place(place: Place) -> None:
    seen: list[Any] = []
    ds = hr.Dataset.open(place[1]).take(50).map(decode).batch(24)  # 24, 24, 2
    source = hr.jax.arrays(ds, mesh_of(place[0], "data"), size=3)
    error = raised(InputError, lambda: seen.extend(source))
    assert "drop_last=True" in str(error)
    assert error.__cause__ is not None
    assert len(seen) == 2


def check_batches_ahead_and_the_state_without_them(place: Place) -> None:
    for size in (1, 3):
        source = hr.jax.arrays(opened(place).batch(10), size=size)
        epoch = iter(source)
        seen = [*next(epoch)["__key__"], *next(epoch)["__key__"]]
        assert source.loader.state_dict()["frontiers"] == [10 * (2 + size)]
        state = json.loads(json.dumps(source.state_dict()))
        assert state["frontiers"] == [20]
        epoch.close()
        again = hr.jax.arrays(opened(place).batch(7))
        again.load_state_dict(state)
        assert sorted(seen + [key for batch in again for key in batch["__key__"]]) == everything()
        assert (again.epoch, again.state_dict()["epoch"]) == (1, 1)
    assert "size=0" in str(raised(InputError, lambda: hr.jax.arrays(opened(place).batch(10), size=0)))


def check_an_error_comes_at_its_batch(place: Place) -> None:
    def fails(sample: Any) -> Any:
        if sample["__key__"] == "0100":
            raise ZeroDivisionError
        return decode(sample)

    seen: list[Any] = []
    source = hr.jax.arrays(hr.Dataset.open(place[1]).map(fails).batch(BATCH), size=4)
    error = raised(BadSampleError, lambda: seen.extend(source))
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert len(seen) == 100 // BATCH
    assert source.state_dict()["frontiers"] == [100 // BATCH * BATCH]
    assert no_loader_runs()


def check_a_loop_left_early_leaves_no_thread(place: Place) -> None:
    for _ in hr.jax.arrays(opened(place).batch(BATCH)):
        break
    assert no_loader_runs()


def check_a_second_iterator_ends_the_first_with_an_error(place: Place) -> None:
    for taken in (1, COUNT // BATCH):  # in the middle, and where the loader has given its last batch ahead
        source = hr.jax.arrays(opened(place).batch(BATCH), size=2)
        first = iter(source)
        for _ in range(taken):
            next(first)
        second = iter(source)
        next(second)
        error = raised(InputError, lambda first=first: list(first))
        assert "before this epoch ended" in str(error)
        assert (source.epoch, source.state_dict()["frontiers"]) == (1, [BATCH])
        assert sum(1 for _ in second) == -(-COUNT // BATCH) - 1


def check_the_example_goes_on_where_it_stopped(place: Place) -> None:
    """In the middle of an epoch, and from its very last batch."""
    folder = pictures(Path("pictures").resolve())
    for save, crash in ((5, 7), (EPOCH, EPOCH)):

        def run(notes: Notes, save: int = save) -> None:
            module = example("jax_train", SAVE=save)
            step = module.step

            def noted(params: Any, images: Any, labels: Any) -> Any:
                assert isinstance(images, place[0].Array)
                notes.note(np.asarray(images[:, 0, 0, 0]))
                return step(params, images, labels)

            module.step = noted
            module.main(folder, 2, PICTURES)

        with working_in(f"example-{save}"):
            found = crashed_and_resumed(run, crash, save)
        assert found == [row for order in picture_orders(folder, 2) for row in order], save


def check_the_guide(_: Place) -> None:
    pictures(Path("images"))
    run_blocks("frameworks.md", "jax")


def check_structures_and_types(place: Place) -> None:
    jax = place[0]
    from ml_dtypes import bfloat16

    made = lambda s: (np.ones(3, bfloat16), np.float64(2.5), {"n": 1, "s": "text"}, s["image"])  # noqa: E731
    ds = hr.Dataset.open(place[1]).take(8)
    x, half, inner, raw = next(iter(hr.jax.arrays(ds.map(made).batch(4))))
    assert (x.dtype, x.shape) == (bfloat16, (4, 3))
    assert (half.dtype, inner["n"].dtype) == (np.float32, np.int32)  # JAX's own rule: 64 bits only when asked for
    assert inner["s"] == ["text"] * 4
    assert [bytes(one) for one in raw] == [row.tobytes() for row in digits(4)[0]]
    single = next(iter(hr.jax.arrays(ds.map(decode))))
    assert isinstance(single["y"], jax.Array)
    assert single["__key__"] == "0000"
    frames = hr.Dataset.open(place[1]).windows(3).map(lambda s: {"x": [np.frombuffer(i, "u1") for i in s["image"]]})
    assert next(iter(hr.jax.arrays(frames.batch(2))))["x"].shape == (2, 3, 64)


def check_two_processes_make_one_mesh(place: Place) -> None:
    command = [sys.executable, "-m", "tests.integration.jax_checks", str(reserve_port())]
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    children = [subprocess.Popen([*command, rank], **pipes) for rank in "01"]
    try:
        ended = [child.communicate(timeout=60) for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0, 0], [err[-3000:] for _, err in ended]
    found = [json.loads(out.splitlines()[-1]) for out, _ in ended]
    assert [one["shape"] for one in found] == [[2 * BATCH, 64]] * 2
    assert found[0]["total"] == found[1]["total"]
    keys = found[0]["keys"] + found[1]["keys"]
    assert len(set(keys)) == len(keys) == COUNT // (2 * BATCH) * 2 * BATCH
    total = sum(int(image.sum()) for key in keys for image in [digits(COUNT)[0][int(key)]]) / 16
    assert abs(found[0]["total"] - total) < 1e-3 * total


def _one_of_two(port: str, rank: str) -> None:
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(rank))
    place = jax, os.environ["DIGITS_URL"]
    assert (jax.device_count(), jax.local_device_count()) == (4, 2)
    spread = mesh_of(jax, "data")
    uneven = raised(InputError, lambda: hr.jax.arrays(hr.jax.shard(opened(place)).batch(BATCH), spread))
    assert "drop_last=True" in str(uneven)
    source = hr.jax.arrays(hr.jax.shard(opened(place)).batch(BATCH, drop_last=True), spread)
    summed = jax.jit(lambda x: x.sum(), out_shardings=mesh_of(jax))
    keys: list[str] = []
    total, shape = 0.0, ()
    for batch in source:
        total += float(summed(batch["x"]))
        shape = batch["x"].shape
        keys += batch["__key__"]
    sys.stdout.write("\n" + json.dumps({"total": total, "shape": shape, "keys": keys}) + "\n")


if __name__ == "__main__":
    if sys.argv[1:]:
        _one_of_two(*sys.argv[1:])
    else:
        import jax

        from tests.integration import jax_checks

        report(jax_checks, (jax, os.environ["DIGITS_URL"]))
