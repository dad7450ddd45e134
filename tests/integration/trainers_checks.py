"""What Lightning, Hugging Face's Trainer and Accelerate do with a dataset. In a child: see tests/frameworks_kit.py."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import headrace as hr
from headrace.base.errors import InputError
from tests.frameworks_kit import report, run_blocks
from tests.integration.examples_kit import BATCH as PICTURES
from tests.integration.examples_kit import (
    COUNT,
    EPOCH,
    Notes,
    crashed_and_resumed,
    example,
    noted_by_torch,
    picture_orders,
    pictures,
    working_in,
)
from tests.integration.trainers_rows import flat, opened

BATCH, EVEN = 8, 96


@dataclass(frozen=True)
class Place:
    kit: ModuleType
    ranks: dict[str, list[Any]]
    """Of trainers_ranks: name → what each of the two ranks received."""
    pictures: Path

    @cached_property
    def picture_orders(self) -> list[list[int]]:
        return picture_orders(self.pictures, 2)

    @cached_property
    def orders(self) -> list[list[int]]:
        loader = opened().loader()
        return [[sample["row"] for sample in loader] for _ in range(4)]

    def each_once(self, name: str, count: int) -> None:
        assert sorted(self.rows(name)) == sorted(self.orders[0][:count]), self.ranks[name]
        sizes = [len(one) for one in self.ranks[name]]
        assert min(sizes) == max(sizes), sizes

    def rows(self, name: str) -> list[int]:
        assert not any(isinstance(one, str) for one in self.ranks[name]), "\n".join(map(str, self.ranks[name]))
        return [row for one in self.ranks[name] for row in one]

    def refused(self, name: str, *words: str) -> None:
        for kind, message, hint in self.ranks[name]:
            assert kind == "refused"
            assert all(word in f"{message} {hint}" for word in words), message


# -- two ranks ----


def check_what_accelerate_deals_out_comes_once(place: Place) -> None:
    names = "dispatches", "dispatches_with_workers", "splits", "samples_a_map"
    for name in (f"accelerate_{name}" for name in names):
        place.each_once(name, 96)


def check_accelerate_and_shard_together_are_refused(place: Place) -> None:
    place.refused("accelerate_dispatches_a_shard", "DataLoaderDispatcher", "leave out shard()", "hr.torch.tensors(")
    place.refused("accelerate_dispatches_a_shard_of_workers", "DataLoaderDispatcher", "leave out shard()")
    place.refused("accelerate_splits_a_shard", "IterableDatasetShard", "leave out shard()")
    place.refused("accelerate_splits_batches", "gives batches", "leave out batch()")


def check_accelerate_leaves_tensors_alone(place: Place) -> None:
    place.each_once("accelerate_leaves_tensors_alone", 100)


def check_accelerate_keeps_the_place_of_tensors(place: Place) -> None:
    place.each_once("accelerate_resumes", 100)


def check_ranks_that_would_all_see_everything_are_refused(place: Place) -> None:
    for name in ("loader_not_sharded", "tensors_not_sharded", "workers_not_sharded"):
        place.refused(name, "2 ranks, and each would see every sample")
    place.each_once("loader_sharded", 100)
    assert Counter(place.rows("tensors_for_all_on_purpose")) == dict.fromkeys(place.orders[0][:96], 2)


def check_trainer_with_two_ranks(place: Place) -> None:
    for name in ("trainer_samples_a_map", "trainer_dispatches"):
        place.each_once(name, 96)
    place.refused("trainer_fed_unevenly", "2 ranks", "drop_last=True")
    place.refused("trainer_dispatches_a_shard", "DataLoaderDispatcher", "leave out shard()")


def check_trainer_is_fed_on_two_ranks_and_goes_on_on_one(place: Place) -> None:
    """Trainer would reckon from step 9 that this is the first epoch yet: it has 12 steps on one rank."""
    seen = [sorted(row for rank in place.ranks["trainer_fed"] for row in rank[start : start + 48]) for start in (0, 48)]
    assert seen == [sorted(order[:EVEN]) for order in place.orders[:2]]
    rest = place.kit.hugging(
        place.kit.Model(), opened().batch(BATCH, drop_last=True), "more", "fed/checkpoint-9", max_steps=9 + 6 + 12
    )
    assert rest == place.orders[1][48:EVEN] + place.orders[2][:EVEN]


def check_lightning_with_two_ranks(place: Place) -> None:
    for name in ("lightning_with_tensors", "lightning_samples_a_map", "lightning_with_workers", "lightning_resumes"):
        place.each_once(name, 96)
    place.refused("lightning_not_sharded", "2 ranks, and each would see every sample")


# -- Lightning ----


def check_lightning_validates_in_the_middle_of_an_epoch(place: Place) -> None:
    for loader in (tensors, stateful):
        module = place.kit.Module()
        trainer = place.kit.lightning(max_epochs=2, val_check_interval=0.5, limit_val_batches=1, num_sanity_val_steps=0)
        trainer.fit(module, loader(place), loader(place))
        assert module.validated == [6, 12, 19, 25]
        assert fitted(place, module) == dict(enumerate(place.orders[:2]))


def check_lightning_takes_a_part_of_each_epoch(place: Place) -> None:
    module = place.kit.Module()
    place.kit.lightning(max_epochs=2, limit_train_batches=5).fit(module, tensors(place))
    assert fitted(place, module) == {epoch: place.orders[epoch][: 5 * BATCH] for epoch in range(2)}


def check_lightning_resumes_exactly(place: Place) -> None:
    """Stopped at the first batch of an epoch, and after its end; in its middle and at its last batch: the example."""
    for step in (14, None):
        assert resumed(place, tensors, step) == dict(enumerate(place.orders[:3])), step


def check_lightning_resumes_a_part_of_each_epoch(place: Place) -> None:
    found = resumed(place, tensors, None, limit_train_batches=5)
    assert found == {epoch: place.orders[epoch][: 5 * BATCH] for epoch in range(3)}


def check_lightning_resumes_a_stateful_data_loader(place: Place) -> None:
    for step in (5, 14, None):
        assert resumed(place, stateful, step) == dict(enumerate(place.orders[:3])), step


def check_lightning_resumes_a_stateful_data_loader_with_workers(place: Place) -> None:
    """In other turns: each of the two workers has batches of its own, 14 an epoch."""
    whole = place.kit.Module()
    place.kit.lightning(max_epochs=3).fit(whole, datamodule=data_module(place, lambda one: stateful(one, 2)))
    for step in (6, None):
        found = resumed(place, lambda one: stateful(one, 2), step)
        assert found == fitted(place, whole), step
        assert [sorted(one) for one in found.values()] == [sorted(place.orders[0])] * 3


def check_lightning_takes_a_map(place: Place) -> None:
    from torch.utils.data import DataLoader

    module = place.kit.Module()
    place.kit.lightning(max_epochs=1).fit(module, DataLoader(opened(), batch_size=BATCH, shuffle=True))
    assert sorted(fitted(place, module)[0]) == sorted(place.orders[0])


def tensors(place: Place) -> Any:
    return hr.torch.tensors(opened().batch(BATCH))


def stateful(place: Place, workers: int = 0) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    data = hr.torch.IterableDataset(opened().batch(BATCH))
    return StatefulDataLoader(data, batch_size=None, num_workers=workers)


def fitted(place: Place, *modules: Any) -> dict[int, list[int]]:
    return {epoch: flat(batches) for epoch, batches in place.kit.received(*modules).items()}


def data_module(place: Place, loader: Callable[[Place], Any]) -> Any:
    """As the guide has it: a StatefulDataLoader is told the epoch, which it does not learn from Lightning."""
    import pytorch_lightning

    class Data(pytorch_lightning.LightningDataModule):
        def train_dataloader(self) -> Any:
            found = loader(place)
            if not isinstance(found, hr.torch.Tensors):
                found.dataset.set_epoch(self.trainer.fit_loop.epoch_progress.current.processed)
            return found

    return Data()


def resumed(place: Place, loader: Callable[[Place], Any], step: int | None, **options: Any) -> dict[int, list[int]]:
    """Of a fit that is stopped after that step (None: when its first epoch has ended) and one that goes on."""
    first, second = place.kit.Module(), place.kit.Module()
    stopped = place.kit.stopped(first, step, datamodule=data_module(place, loader), max_epochs=3, **options)
    trainer = place.kit.lightning(max_epochs=3, **options)
    trainer.fit(second, datamodule=data_module(place, loader), ckpt_path=stopped, weights_only=True)
    return fitted(place, first, second)


# -- Trainer ----


def check_trainer_takes_epochs_and_steps(place: Place) -> None:
    orders, hugging = place.orders, place.kit.hugging
    assert hugging(place.kit.Model(), samples(place), num_train_epochs=2) == orders[0] + orders[1]
    assert hugging(place.kit.Model(), samples(place), max_steps=15) == orders[0] + orders[1][: 2 * BATCH]
    filtered = hr.torch.IterableDataset(opened().filter(bool))
    assert hugging(place.kit.Model(), filtered, max_steps=15) == orders[0] + orders[1][: 2 * BATCH]


def check_trainer_however_accelerate_is_told_to_deal_out(place: Place) -> None:
    for told in ({"dispatch_batches": False}, {"dispatch_batches": True}, {"split_batches": True}):
        assert place.kit.hugging(place.kit.Model(), samples(place), accelerator_config=told) == place.orders[0], told


def check_trainer_with_workers_loses_nothing(place: Place) -> None:
    """Trainer ends an epoch by the DataLoader's length: 14 batches of two workers, not 13."""
    found = place.kit.hugging(place.kit.Model(), samples(place), num_train_epochs=2, dataloader_num_workers=2)
    assert sorted(found) == sorted(place.orders[0] * 2)


def check_trainer_takes_a_map_and_resumes(place: Place) -> None:
    trains_on(place, opened)


def check_trainer_resumes_exactly(place: Place) -> None:
    trains_on(place, lambda: samples(place))


def check_trainer_is_fed_with_batches(place: Place) -> None:
    import pytest
    import transformers

    with tempfile.TemporaryDirectory(dir=".") as folder:
        place.kit.hugging(place.kit.Model(), samples(place), folder, max_steps=2, save_steps=2, save_strategy="steps")
        with pytest.raises(InputError, match="step 2 was saved without"):
            place.kit.hugging(place.kit.Model(), opened().batch(BATCH), folder, f"{folder}/checkpoint-2")
    filtered = opened().filter(bool).batch(BATCH)  # has no length: by steps
    assert place.kit.hugging(place.kit.Model(), filtered, max_steps=15) == flat(place.orders[:2])[: 100 + 2 * BATCH]
    with pytest.raises(ValueError, match="max_steps"):
        place.kit.hugging(place.kit.Model(), filtered)
    bare = transformers.Trainer(place.kit.Model(), transformers.TrainingArguments("fed", use_cpu=True))
    with pytest.raises(InputError, match="single samples"):
        hr.torch.feed(bare, opened())


def trains_on(place: Place, data: Callable[[], Any]) -> None:
    """Resumed from each of the checkpoints of one training: in the first epoch, at its end, in the second."""
    kit = place.kit
    with tempfile.TemporaryDirectory(dir=".") as folder:
        whole = kit.Model()
        kit.hugging(whole, data(), folder, num_train_epochs=2, save_strategy="steps", save_steps=6.5 / 13)
        every = flat(whole.noted)
        assert Counter(every) == dict.fromkeys(place.orders[0], 2)
        checkpoints = sorted(int(one.name.split("-")[1]) for one in Path(folder).glob("checkpoint-*"))
        for step in checkpoints[:-1]:
            rest = kit.hugging(kit.Model(), data(), folder, f"{folder}/checkpoint-{step}", num_train_epochs=2)
            assert rest == flat(whole.noted[step:]), step


def samples(_: Place) -> Any:
    return hr.torch.IterableDataset(opened())


# -- examples and guides ----


def check_examples_go_on_where_they_stopped(place: Place) -> None:
    """In the middle of an epoch, and from its very last batch."""
    small = {"imagenet": {"SIDE": 32}}
    for name in ("imagenet", "lightning_train", "hf_trainer", "accelerate_train"):
        for save, crash in ((5, 7), (EPOCH, EPOCH)):

            def run(notes: Notes, name: str = name, save: int = save) -> None:
                module = example(name, SAVE=save, **small.get(name, {}))
                with noted_by_torch(notes):
                    module.main(place.pictures, 2, PICTURES)

            with working_in(f"{name}-{save}"):
                assert crashed_and_resumed(run, crash, save) == flat(place.picture_orders), (name, save)


def check_the_example_of_workers_goes_on_with_others(place: Place) -> None:
    for save, crash, counts in ((5, 7, [2, 3]), (5, 7, [0, 2]), (EPOCH, EPOCH, [2, 0])):
        workers = iter(counts)

        def run(notes: Notes, workers: Iterator[int] = workers, save: int = save) -> None:
            with noted_by_torch(notes):
                example("stateful_dataloader", SAVE=save).main(place.pictures, 2, PICTURES, next(workers))

        with working_in("stateful_dataloader"):
            found = crashed_and_resumed(run, crash, save)
        first, second = found[:COUNT], found[COUNT:]
        assert [sorted(first), sorted(second)] == [sorted(one) for one in place.picture_orders], counts
        assert first != second, counts


def check_the_guides(place: Place) -> None:
    os.symlink(place.pictures, "images")
    run_blocks("frameworks.md", "trainers")
    run_blocks("trainers.md", "trainers")


if __name__ == "__main__":
    from tests.integration import trainers_kit, trainers_ranks

    trainers_kit.be_quiet()
    place = Place(trainers_kit, trainers_ranks.seen(Path.cwd()), pictures(Path("pictures").resolve()))
    report(sys.modules["__main__"], place)
    sys.stdout.flush()
    os._exit(0)  # nothing that a framework has left running holds this up
