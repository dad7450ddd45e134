"""`hr.ray.dataset`: a `ray.data.Dataset` whose tasks read stretches of an epoch through headrace.

The epoch is cut here, and each stretch put into Ray's object store with what it needs: keys, versions, places. A task
opens its stretch (nothing is listed), reads it through the cache of its node, and gives Arrow tables.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import headrace
from headrace.base.arrow import Schema
from headrace.base.errors import InputError, UnsupportedError
from headrace.base.settings import Settings
from headrace.base.units import parse_bytes
from headrace.cluster.connection import ray_module
from headrace.cluster.ray_data.blocks import block_of
from headrace.cluster.ray_data.cutting import Cut, cut
from headrace.cluster.submission import Reach
from headrace.formats import as_table
from headrace.loader import Dataset, Source, Stretch, mean_size

_LOG = logging.getLogger("headrace.cluster")
_SEND: Final = ("AWS_*", "AZURE_STORAGE_*")
_BLOCK_BYTES: Final = 8 << 20  # bytes that a task gives at a time, about
_MOST_ROWS, _MOST_TABLE_ROWS = 1024, 1 << 16
"""In what a task gives at a time; Ray puts several together."""
_MOST_WARNINGS: Final = 20  # lines in the log
_KEEP: Final = 4  # sources
_sources: OrderedDict[str, Source] = OrderedDict()
"""Of this process, those used last: their stores have connections."""
_lock = threading.Lock()


def dataset(
    ds: Dataset,
    *,
    ordered: bool = False,
    epoch: int = 0,
    send: Sequence[str] = _SEND,
    prefetch: str | int = "64MB",
    **options: Any,
) -> Any:
    """The samples of one epoch of `ds` as a `ray.data.Dataset`: a row a sample, a column a name (``__key__``, …).

    Each of Ray's tasks reads a stretch of the order through its node's cache, behind `map` and `filter`. What is
    read was found here: no node lists anything, and an object that has changed since is an error there as in a loader.
    Bytes are binary columns, arrays of one shape Ray's tensors; columns of tables keep their types. A sample that is
    no dict is in the column ``item``. Samples left out by ``on_error`` count for each task by itself, and are named in
    its log.

    Args:
        ds: not batched and not sharded: Ray makes batches (``iter_batches(batch_size=n)``) and splits
            (``streaming_split``) itself.
        ordered: rows come exactly in the order of ``ds.loader()``, also behind Ray's `map`, `map_batches` and `filter`.
            Else tasks that are done earlier come earlier.
        epoch: of a shuffled order.
        send: patterns of this process's variables that the tasks have, too. Settings of stores and mounts are sent
            anyway; what a function of yours opens by itself, and modules of yours, are not (Ray's ``runtime_env``).
        prefetch: bytes of samples under way in each task.
        options: for `ray.data.read_datasource`: ``concurrency``, ``num_cpus``, ``override_num_blocks``, …

    Raises:
        InputError: `ds` is batched, sharded or endless; or a function cannot be sent (its name is told).
        UnsupportedError: Ray, or what Ray Data needs, is not installed; or this program is connected by ``ray://``.
        ray.exceptions.RayTaskError: while rows are read; it is of the class of our error as well, so
            ``except hr.errors.BadSampleError`` works.

    Threads: as Ray's.
    """
    ray_data = _ray_data()
    ray: Any = ray_module()
    if ray.util.client.ray.is_connected():
        hint = "have the program run on the cluster: headrace run --on …, or ray job submit"
        raise UnsupportedError("Ray Data does not work through ray://, Ray's client", hint=hint)
    _check(ds, ray)
    variables = Reach.from_here(Settings.load(), tuple(send)).variables
    plan = _Plan(ds, epoch, variables, max(1, parse_bytes(prefetch, name="prefetch")))
    kind: Any = type("HeadraceDatasource", (_Reads, ray_data.Datasource), {})
    found = ray_data.read_datasource(kind(plan), **options)
    if ordered:
        found.context.execution_options.preserve_order = True
    return found


class _Plan:
    """What is read: cut once, and put where tasks find it."""

    def __init__(self, ds: Dataset, epoch: int, variables: Mapping[str, str], prefetch: int) -> None:
        self._ds, self._epoch, self._variables, self._prefetch = ds, epoch, variables, prefetch
        mean = mean_size(ds.leaves)
        self.bytes = mean * len(ds)
        tables = [as_table(leaf.index) for leaf in ds.leaves]
        most = _MOST_TABLE_ROWS if all(one is not None for one in tables) else _MOST_ROWS
        self._rows = max(1, min(most, _BLOCK_BYTES // mean))
        self._exact = ds.skip is None and not any(
            not stage.keeps_count for stages in (ds.stages, *(leaf.stages for leaf in ds.leaves)) for stage in stages
        )
        only = tables[0] if len(tables) == 1 and not ds.stages and ds.leaves[0].window is None else None
        self._schema = None if only is None else only.scheme.schema_out

    def made(self, tasks: int) -> list[tuple[Reading, Cut, int | None]]:
        """Each task's work, its place, and how many rows come of it, None where that shows only then."""
        ray: Any = ray_module()
        source = ray.put(Source.of(self._ds))
        return [
            (
                Reading(
                    headrace.__version__, source, ray.put(Stretch.of(self._ds, self._epoch, one.first, one.stop)),
                    self._variables, self._prefetch, self._rows, self._schema,
                ),
                one,
                one.stop - one.first if self._exact else None,
            )
            for one in cut(self._ds, self._epoch, tasks)
        ]  # fmt: skip


class _Reads:
    """What makes a `ray.data.Datasource` of a plan. Pickles by what was put for the tasks, which goes wherever Ray
    plans: the index stays here.
    """

    _projection_map: Any = None
    _predicate_expr: Any = None

    def __init__(self, plan: _Plan) -> None:
        self._plan: _Plan | None = plan
        self._bytes = plan.bytes
        self._made: list[tuple[Reading, Cut, int | None]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None, "_made": self._tasks(1)}

    def estimate_inmemory_data_size(self) -> int:
        """Stored bytes: what `map` makes of them is known to nobody yet."""
        return self._bytes

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: Any = None,  # noqa: ARG002
    ) -> list[Any]:
        """As Ray asks for them, several times: the same ones."""
        ray_data = _ray_data()
        return [
            ray_data.datasource.ReadTask(
                reading,
                ray_data.block.BlockMetadata(
                    num_rows=rows, size_bytes=max(1, place.bytes), exec_stats=None, input_files=None
                ),
                per_task_row_limit=per_task_row_limit,
            )
            for reading, place, rows in self._tasks(parallelism)
        ]

    def _tasks(self, parallelism: int) -> list[tuple[Reading, Cut, int | None]]:
        if self._made is None:
            assert self._plan is not None
            self._made = self._plan.made(parallelism)
        return self._made


@dataclass(frozen=True)
class Reading:
    """A task. `source`, `stretch`: where they are in Ray's object store. `rows`: of a block."""

    version: str
    source: Any
    stretch: Any
    variables: Mapping[str, str] = field(repr=False)
    prefetch: int
    rows: int
    schema: Schema | None = None

    @property
    def __name__(self) -> str:
        return "headrace"

    def __call__(self) -> Iterator[Any]:
        """Arrow tables, in order, the same ones whenever it is done again. Raises as the loader."""
        if self.version != headrace.__version__:
            reason = f"this node has headrace {headrace.__version__}, not {self.version}"
            raise UnsupportedError(reason, hint="have the same version on all nodes")
        os.environ.update(self.variables)
        ray: Any = ray_module()
        ray_data = _ray_data()
        samples = self._opened(ray).open(ray.get(self.stretch)).batch(self.rows)
        with samples.loader(prefetch=self.prefetch) as loader:
            for batch in loader:
                yield block_of(ray_data, batch, self.schema)
            for one in loader.ledger[:_MOST_WARNINGS]:
                _LOG.warning("%s is left out: %s: %s", one.key, one.stage, one.reason)

    def _opened(self, ray: Any) -> Source:
        name = self.source.hex()
        with _lock:
            found = _sources.get(name)
            if found is None:
                found = _sources[name] = ray.get(self.source)
                while len(_sources) > _KEEP:
                    _sources.popitem(last=False)
            else:
                _sources.move_to_end(name)
        return found


def _check(ds: Dataset, ray: Any) -> None:
    """Raises InputError where it cannot be read so."""
    if ds.batch_size is not None:
        hint = "leave out batch(): iter_batches(batch_size=n) makes them"
        raise InputError("hr.ray.dataset takes samples", hint=hint)
    if ds.striping.world_size > 1:
        raise InputError("hr.ray.dataset takes all samples", hint="leave out shard(): streaming_split divides them")
    if ds.stream.size is None:
        raise InputError("hr.ray.dataset takes an epoch that ends", hint="repeat(n), or none and one dataset an epoch")
    for stage in (*(one for leaf in ds.leaves for one in leaf.stages), *ds.stages):
        try:
            ray.cloudpickle.dumps(stage.function)
        except Exception as error:
            hint = "locks, open files and connections do not travel: have the function make them, where it runs"
            raise InputError(f"{stage.name} cannot be sent to the nodes: {error}", hint=hint) from error


def _ray_data() -> Any:
    """Raises UnsupportedError: it is not installed, or what it needs."""
    ray_module()
    try:
        importlib.import_module("pandas")
        return importlib.import_module("ray.data")
    except ImportError as error:
        raise UnsupportedError("Ray Data is not installed", hint='pip install "headrace[ray]" "ray[data]"') from error
