"""What every epoch's pipeline of a loader has in common: sources, stages, batches, limits."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.catalog import Stage
from headrace.formats import Forms
from headrace.loader.pipeline.bad_samples import Skip
from headrace.loader.pipeline.batch_builder import Builder
from headrace.loader.pipeline.feeder import Course, Leaf
from headrace.loader.pipeline.packed_batches import PackedBuilder
from headrace.loader.pipeline.packing import Packing, one_by_one
from headrace.loader.pipeline.run_stages import is_flat
from headrace.loader.pipeline.sequences import SequenceBuilder, Sequences


@dataclass(frozen=True)
class Plan:
    """What every epoch's pipeline has in common. `prefetch`: bytes. `window`: None for the exact order."""

    leaves: tuple[Leaf, ...]
    stages: tuple[Stage, ...]
    batch: int | None
    drop_last: bool
    skip: Skip | None
    prefetch: int
    window: int | None
    forms: Forms | None = None
    """What columns are in batches, where that does not follow from their values."""
    packing: Packing | None = None
    """How samples become batches, where those are not the next `batch` samples, stacked."""
    after: tuple[Stage, ...] = ()
    """What sees whole batches."""

    @property
    def stages_by_leaf(self) -> list[tuple[Stage, ...]]:
        return [(*leaf.stages, *self.stages) for leaf in self.leaves]

    @property
    def is_steady(self) -> bool:
        """Whether every batch is made of the samples that come next: none is left out, and none overtakes."""
        kinds = {stage.kind for stages in (*self.stages_by_leaf, self.after) for stage in stages}
        even = self.packing is None or self.packing.is_even
        return self.window is None and self.skip is None and kinds <= {"map"} and even

    @property
    def is_flat(self) -> bool:
        """Whether one sample may become several."""
        return is_flat(self.stages_by_leaf)

    @property
    def finds_threads(self) -> bool:
        """Whether decode threads are found while they run: a function leaves that open, and none says how many."""
        given = [stage for leaf in self.leaves for stage in leaf.stages[len(leaf.index.abilities.stages) :]]
        given += self.stages
        return bool(given) and not any(stage.threads or stage.processes for stage in given)

    def builder(self, course: Course) -> Builder | PackedBuilder:
        """What makes the batches of a course."""
        if self.packing is None and not self.is_flat:
            return Builder(self.batch, course.progress, drop_last=self.drop_last, forms=self.forms)
        packing = (self.packing or one_by_one(self.batch)).typed(self.forms)
        given = course.given() if self.is_flat or packing.is_taken_apart else None
        if isinstance(packing, Sequences):
            return SequenceBuilder(packing, course.progress, drop_last=self.drop_last, given=given)
        return PackedBuilder(packing, course.progress, drop_last=self.drop_last, flat=self.is_flat, given=given)
