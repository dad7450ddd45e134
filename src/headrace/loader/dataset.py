"""`Dataset`: an immutable description of what a model is to see. Nothing runs before `loader()` is iterated."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from headrace.base import cards
from headrace.base.drawing import Tally, drawn
from headrace.base.errors import InputError
from headrace.base.progress import Progress
from headrace.base.settings import Settings
from headrace.base.units import parse_bytes
from headrace.catalog import ANY_NUMBER, SampleIndex, Stage, target_of
from headrace.formats import (
    Columns,
    Format,
    Forms,
    OpenOptions,
    Records,
    check_fits,
    csv_as,
    open_source,
    tokens_as,
)
from headrace.loader.order.auto_block import AUTO, Choice, choose_order, least_shared
from headrace.loader.order.blocked_order import Blocked, Mixing, blocked
from headrace.loader.order.order import Repeat, Rows, Shuffle, Slice, Stream, Take
from headrace.loader.order.ranks import WHOLE, Shard, stripe_of
from headrace.loader.order.shard_order import wholes
from headrace.loader.order.weighted_mix import Join, Mix, block_counts
from headrace.loader.order.windows import GRAIN, cut
from headrace.loader.pipeline.after_batch import UNBATCH
from headrace.loader.pipeline.bad_samples import Skip
from headrace.loader.pipeline.epoch_plan import Plan
from headrace.loader.pipeline.feeder import Leaf
from headrace.loader.pipeline.packing import Collate, Measure, Packing, one_by_one, packing_of
from headrace.loader.pipeline.sequences import sequences
from headrace.loader.reopening import Reopened
from headrace.loader.tokens.document_pieces import REFUSE, SPLIT, DocumentPieces
from headrace.loader.tokens.token_spans import CROSS, Cutting
from headrace.loader.tokens.token_values import native
from headrace.namespace import Namespace

if TYPE_CHECKING:
    from headrace.fetch import Fetcher
    from headrace.loader.loader import Loader
    from headrace.loader.shown.showing import Grid


_LOG = logging.getLogger(__name__)
_SILENT_S = 1.0
"""Of indexing, before a bar is drawn."""
_BY_SHARDS = (
    "%s: compressed shards are shuffled by whole shards, %d of %d mixed at a time (Dataset.mixing); "
    "for a shuffle over everything, decompress them"
)
_AGAIN_AND_AGAIN = (
    "%s: compressed shards shuffled over everything are decompressed again and again: shuffle() straight after open(), "
    "or decompress them"
)


def _together(leaf: Leaf) -> int | None:
    """How many compressed shards are mixed at a time; None where the source is no set of such."""
    return leaf.index.abilities.together


@dataclass(frozen=True, eq=False)
class Dataset:
    """What to train on, in which order, and what happens to each sample. Every method returns a new Dataset.

    Threads: immutable, share freely. Pickles where its sources and functions do.
    """

    stream: Stream
    leaves: tuple[Leaf, ...]
    stages: tuple[Stage, ...] = ()
    striping: Shard = WHOLE
    skip: Skip | None = None
    batch_size: int | None = None
    drop_last: bool = False
    arrow: bool = False
    packing: Packing | None = None
    """How batches are made that are not the next `batch_size` samples, stacked."""
    after: tuple[Stage, ...] = ()
    """`map` and `filter` behind `batch`."""
    choice: Choice | None = None
    """What ``shuffle(block="auto")`` picked, and why; None where it was not asked."""

    # -- where samples come from -----------------------------------------------------------------------------------

    @staticmethod
    def open(
        target: str | os.PathLike[str],
        by: str = "stem",
        namespace: Namespace | None = None,
        *,
        on_change: str = "refuse",
        format: str | None = None,  # noqa: A002
        columns: Columns | None = None,
        where: Sequence[Any] | None = None,
        delimiter: str | None = None,
        encoding: str | None = None,
        dtype: str | None = None,
        end: int | None = None,
        lazy: Sequence[str] = (),
        progress: Progress | None = None,
        refresh: bool = False,
    ) -> Dataset:
        """The samples of a namespace path, a URL, a folder or file of this machine (``./images``), a snapshot
        (``imagenet@v3``), an input of a run (``run:<id>/train``) or a table with a ``path`` column.

        What is opened may hold single objects or shards, and shards are indexed when a node opens them first.

        Args:
            target: what to open.
            by: what makes a sample: ``"stem"`` (``17.image`` + ``17.label``), ``"object"`` or ``"class"`` (folders).
            namespace: where paths are looked up; default: the one the settings describe.
            on_change: objects that changed after their snapshot: ``"refuse"`` them (`ChangedError`), or ``"report"``:
                read them as they are now and name them, in `Loader.changed` and by a warning. Changed shards are always
                refused.
            format: ``"tar"``: shards in WebDataset's convention; ``"tfrecord"``, ``"jsonl"``, ``"csv"``, ``"npy"``,
                ``"npz"``, ``"mds"``, ``"litdata"``: records of such files; ``"parquet"``, ``"arrow"``: rows of tables;
                ``"tokens"``: documents of flat files of tokens, ``.bin`` or ``.npy`` of one axis, for `blocks`;
                ``"megatron"``: likewise, with an ``.idx`` beside each ``.bin``;
                ``"objects"``: every object as it is; None: tar, TFRecord and Parquet are found by names, and refused
                where they are ambiguous.
            columns: of tables, the names of those that are read; None: all, folders such as ``month=1`` included. Of
                JSON lines, types by name, ``{"x": "float64", "note": "object"}``, where the beginning of the files does
                not tell them.
            where: of tables, which rows: ``[("day", ">=", 3), ("site", "in", ["a"])]``, or a list of such lists, any of
                which is enough. Files and row groups that cannot hold any are not read, nor counted by ``len``.
            delimiter: of CSV, what separates fields: ``";"``, a tab (then ``.tsv`` files are read, too); None: a comma.
            encoding: of CSV, as Python names it: ``"latin-1"``, ``"utf-16"``; None: UTF-8.
            dtype: of tokens in ``.bin`` files, as NumPy names it: ``"uint16"``.
            end: the token that ends documents in flat files, which are read once for it; None: a file is one document.
            lazy: suffixes of parts that are not read: ``("mp4", "wav")``. In their place samples have a
                `headrace.catalog.StoredObject`, whose ``open()`` gives a seekable file; `hr.decode.video` and
                `hr.decode.audio` read of it what they need. Of single objects only.
            progress: told of shards and bytes while they are indexed. None: a bar on standard error, if that is a
                terminal, the index takes more than a second, and the setting ``progress`` allows it.
            refresh: list now, though this node has a listing that is younger than ``cache.ttl``.

        Raises:
            InputError, NotFoundError, CorruptError, ChangedError, DeniedError, TryAgainError.
        """
        settings = Settings.load()
        form: str | Format | None = format
        if delimiter is not None or encoding is not None:
            if format != "csv":
                raise InputError("delimiter and encoding are of CSV", path=str(target), hint='format="csv"')
            form = csv_as(delimiter, encoding)
        if dtype is not None or end is not None:
            if format != "tokens":
                raise InputError("dtype and end are of flat files", path=str(target), hint='format="tokens"')
            form = tokens_as(dtype, end)
        suffixes = (lazy,) if isinstance(lazy, str) else tuple(lazy)
        options = OpenOptions(by, form, columns, where, on_change, tuple(one.lower() for one in suffixes))
        if refresh:
            settings = dataclasses.replace(settings, cache=dataclasses.replace(settings.cache, ttl=0))
        space = namespace if namespace is not None else Namespace.load(settings)
        target = target_of(target, space, settings)
        bar = drawn(Tally("indexed"), after=_SILENT_S, allowed=settings.progress and progress is None)
        with bar as shown:
            index = open_source(target, options, namespace=space, settings=settings, indexing=progress or shown)
        return Dataset.of(Reopened(index, target, options, space), name=target)

    @staticmethod
    def of(index: SampleIndex, name: str = "samples") -> Dataset:
        """All samples of an index, in key order.

        Raises:
            InputError: it is empty.
        """
        if not len(index):
            raise InputError("holds no samples", path=name, hint="check the path, and `by`")
        return Dataset(Rows(len(index), name), (Leaf(index, stages=index.abilities.stages),))

    @staticmethod
    def mix(datasets: Sequence[Dataset], weights: Sequence[float] | None = None, *, seed: int = 0) -> Dataset:
        """Several datasets, interleaved.

        With `weights`, every block of positions holds them in that proportion, and an epoch ends where the first one
        would run out (`.repeat(None)` keeps a small one going). Without, every sample of all of them comes exactly
        once an epoch, interleaved evenly. Each keeps its own map and filter.

        Raises:
            InputError: no datasets, weights that do not fit, or one of them is batched or sharded already.
        """
        if not datasets or (weights is not None and len(weights) != len(datasets)):
            raise InputError(
                f"mix of {len(datasets)} datasets", hint="one weight for each dataset, at least one dataset"
            )
        for one in datasets:
            one._refuse(one.batch_size is not None, "mix", "batch after mixing")
            one._refuse(one.striping != WHOLE, "mix", "shard after mixing")
        leaves = tuple(
            dataclasses.replace(leaf, stages=(*leaf.stages, *one.stages)) for one in datasets for leaf in one.leaves
        )
        children = tuple(one.stream for one in datasets)
        counts = tuple(len(one.leaves) for one in datasets)
        stream = Join(children, counts, seed) if weights is None else Mix(children, counts, block_counts(weights), seed)
        skip = next((one.skip for one in datasets if one.skip is not None), None)
        return Dataset(stream, leaves, skip=skip, choice=least_shared([one.choice for one in datasets]))

    # -- order -----------------------------------------------------------------------------------------------------

    def shuffle(self, seed: int = 0, *, block: str | int | None = None) -> Dataset:
        """Another order in every epoch, a pure function of (seed, epoch, position). Windows move in blocks of 64.

        Args:
            seed: of the order.
            block: None: every sample may come anywhere. A size (``"4MB"``, bytes): samples of shards are read in blocks
                of about that size, and those of 16 blocks from anywhere are mixed, which takes far fewer requests;
                `mixing` says how well that mixes. ``"auto"``: the one or the other, by what requests to this store cost
                for these samples; it is measured once (about three seconds), `choice` says what was picked, and a
                snapshot keeps it in the home for all ranks and later runs. Compressed shards are always shuffled by
                blocks, whole shards each, whatever is given here: see `mixing`, and the guide *Training from shards*.

        Raises:
            InputError: blocks of anything but shards straight after `open`; ``"auto"`` for several ranks that may not
            come to the same choice. ``"auto"`` reads from the store, and raises what that raises.
        """
        self._unbatched("shuffle")
        if block == AUTO:
            return self._shuffle_as_measured(seed)
        rows, leaf = self.stream, self.leaves[0]
        cut_blocks = leaf.index.abilities.blocks
        together = _together(leaf)
        if together is not None and cut_blocks is not None and isinstance(rows, Rows) and leaf.window is None:
            stream = wholes(rows, seed, cut_blocks(0), together)
            if block is None:
                _LOG.warning(_BY_SHARDS, rows.name, stream.together, len(stream.starts))
            return dataclasses.replace(self, stream=stream)
        if block is None:
            if any(_together(one) is not None for one in self.leaves):
                _LOG.warning(_AGAIN_AND_AGAIN, self.stream.describe())
            return dataclasses.replace(self, stream=Shuffle(self.stream, seed))
        if not isinstance(rows, Rows) or leaf.window is not None or cut_blocks is None:
            raise InputError(
                "only samples of shards can be shuffled by blocks, straight after open()",
                hint="leave out `block`: single objects lose nothing by coming from anywhere",
            )
        size = parse_bytes(block, name="block")
        if size < 1:
            raise InputError(f"shuffle(block={block!r})", hint="bytes of a block, for example 4MB")
        return dataclasses.replace(self, stream=blocked(rows, seed, cut_blocks(size), size))

    def _shuffle_as_measured(self, seed: int) -> Dataset:
        leaf = self.leaves[0]
        plain = isinstance(self.stream, Rows) and leaf.window is None and _together(leaf) is None
        choice = choose_order(leaf.index, Settings.load()) if plain else Choice(None)
        choice.check_ranks(self.striping.world_size)
        return dataclasses.replace(self.shuffle(seed, block=choice.block), choice=choice)

    @property
    def mixing(self) -> Mixing | None:
        """How well a shuffle by blocks mixes (of compressed shards it always is one); None for any other order."""
        return self.stream.mixing if isinstance(self.stream, Blocked) else None

    def take(self, n: int) -> Dataset:
        """The first `n` samples of this order (after a shuffle: others in every epoch)."""
        self._unbatched("take")
        uneven = [stage.kind for stage in self._all_stages() if not stage.keeps_count]
        self._refuse(bool(uneven), "take", f"take before the {uneven[0]}" if uneven else "")
        if n < 1:
            raise InputError(f"take({n})", hint="at least 1")
        return dataclasses.replace(self, stream=Take(self.stream, n))

    def repeat(self, n: int | None = None) -> Dataset:
        """`n` passes (None: without end) as one epoch, each pass in its own shuffled order."""
        self._unbatched("repeat")
        if n is not None and n < 1:
            raise InputError(f"repeat({n})", hint="at least 1, or None for no end")
        return dataclasses.replace(self, stream=Repeat(self.stream, n))

    def windows(self, n: int, stride: int = 1) -> Dataset:
        """Samples of `n` consecutive samples (key order, one folder), `stride` apart; every name holds n values.

        Each frame is fetched once as long as windows stay together (see docs/understanding/order.md).

        Raises:
            InputError: not straight after `open`, or no folder is long enough.
        """
        self._refuse(
            not isinstance(self.stream, Rows) or bool(self.stages) or self.leaves[0].window is not None,
            "windows",
            "use it straight after open()",
        )
        from headrace.loader.tokens.block_source import holds_blocks

        leaf = self.leaves[0]
        self._refuse(holds_blocks(leaf.index), "windows", "blocks() gives consecutive tokens: ask for longer ones")
        window = cut(leaf.index, n, stride)
        rows = Rows(window.size, f"windows({n}, {stride}, {self.stream.describe()})", GRAIN)
        return dataclasses.replace(self, stream=rows, leaves=(dataclasses.replace(leaf, window=window),))

    def blocks(
        self,
        length: int,
        *,
        documents: str = CROSS,
        pad: int | None = None,
        column: str | None = None,
        dtype: str | None = None,
    ) -> Dataset:
        """Samples of `length` consecutive tokens. Sample i has those from i · (length - 1) on, so that each token is
        once what is to be predicted. A batch's ``tokens`` is of shape (n, length).

            Dataset.open("s3://b/tokens/", format="tokens", dtype="uint16").blocks(2049)
            Dataset.open("s3://b/parquet/", columns=["input_ids"]).blocks(2049)

        Files follow one another as they are listed. Documents of anything but flat files are read once, to count their
        tokens; the index cache keeps the counts.

        Args:
            length: tokens of a block: the context, and one more.
            documents: ``"cross"``: blocks go on over the ends of documents and files; the last tokens, too few for a
                block, are left out. ``"keep"``: each document is cut by itself, and what is left of it is left out.
            pad: the token that fills up what would be left out. None: nothing does.
            column: which part of a sample holds its tokens; None: ``tokens``, ``input_ids``, or the only one.
            dtype: of the arrays, as NumPy names it, or of the tokens in a part that is bytes; None: as they are stored.

        Raises:
            InputError: not straight after `open`, no document is long enough, or samples hold no tokens.
        """
        from headrace.fetch import default_fetcher
        from headrace.loader.tokens.block_source import Wanted, blocks_of, holds_blocks

        cutting, leaf = Cutting(length, documents, pad), self.leaves[0]
        plain = isinstance(self.stream, Rows) and leaf.window is None and not holds_blocks(leaf.index)
        plain = plain and not self.stages
        self._refuse(not plain, "blocks", "use it straight after open(); pack_documents takes what map makes")
        self._unbatched("blocks")
        name = self.stream.name if isinstance(self.stream, Rows) else ""
        allowed = Settings.load().progress
        with drawn(Tally("counted"), after=_SILENT_S, allowed=allowed) as bar:
            index = blocks_of(leaf, Wanted(cutting, column, dtype, name, bar), default_fetcher())
        found = Dataset.of(index, f"blocks({length}, {self.stream.describe()})")
        return dataclasses.replace(found, striping=self.striping)

    def shard(
        self, rank: int | None = None, world_size: int | None = None, *, even: str | None = None
    ) -> Dataset:
        """This process's stripe: position p goes to rank p mod world_size, nothing is padded or repeated.

        What is not given is torch.distributed's, where the program has begun it, else what the variables of torchrun,
        Horovod, Open MPI, MPICH, SLURM or TF_CONFIG say, in this order, else JAX's, where that was begun; without those
        there is one rank. ``Loader.stats().rank`` says whose word was taken. ``shard(0, 1)`` says that every rank is to
        see all of it.

        Args:
            rank: of this process.
            world_size: how many there are.
            even: ranks that wait for each other need as many samples each. ``"repeat"``: those with fewer have some
                from the epoch's beginning once more; ``"short"``: those with more leave some out. None: neither.

        Raises:
            InputError: no such rank, several ranks and nothing that says which this is, or ranks whose
                ``shuffle(block="auto")`` may not agree.
        """
        striping = stripe_of(rank, world_size, even)
        if self.choice is not None:
            self.choice.check_ranks(striping.world_size)
        return dataclasses.replace(self, striping=striping)

    # -- single samples ----------------------------------------------------------------------------------------------

    def at(self, indices: Sequence[int], *, epoch: int = 0, fetcher: Fetcher | None = None) -> list[Any]:
        """The samples at these places of this order, in the order asked, read side by side; behind `map` stages.

        Any thread, any process. Good for samplers and for looking around; a loader reads ahead, and is faster.

        Args:
            indices: integers, negative ones from the end; the same one may come again.
            epoch: of a shuffled order.
            fetcher: default: the process's own.

        Raises:
            IndexError: there is no such place. InputError: filtered, batched or sharded. As the loader otherwise.
        """
        from headrace.fetch import default_fetcher
        from headrace.loader.random_access import places_of, samples_at

        self._places_stand("at")
        places = places_of(indices, self.stream.size)
        return samples_at(self.stream, self.leaves, self.stages, epoch, places, fetcher or default_fetcher())

    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    @overload
    def __getitem__(self, index: Sequence[int]) -> list[Any]: ...
    @overload
    def __getitem__(self, index: int | str) -> Any: ...
    def __getitem__(self, index: int | str | slice | Sequence[int]) -> Any:
        """A sample by place (``ds[17]``, ``ds[-1]``) or by ``__key__`` (``ds["train/17"]``), samples by places
        (``ds[[3, 1, 2]]``, as `at`), or the part of this order that a slice names, as a Dataset (``ds[10:20]``).

        Raises:
            IndexError, KeyError: there is none. InputError: as `at`; a key of only a part of a source.
        """
        if isinstance(index, slice):
            return self._part(index)
        if isinstance(index, str):
            return self._keyed(index)
        if isinstance(index, (Sequence, np.ndarray)):
            return self.at(index)
        return self.at([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """As `at`: what ``torch.utils.data.DataLoader`` asks of a map-style data set for a batch."""
        return self.at(indices)

    def __contains__(self, key: object) -> bool:
        """Whether a sample has this ``__key__``."""
        return isinstance(key, str) and self._row_of(key) is not None

    def __iter__(self) -> Iterator[Any]:
        """The samples (behind `batch`: the batches) of one epoch, as ``iter(ds.loader())``."""
        return iter(self.loader())

    def _part(self, index: slice) -> Dataset:
        self._places_stand("a slice")
        first, stop, step = index.indices(len(self))
        count = len(range(first, stop, step))
        if not count:
            raise InputError(f"a slice of {len(self):,} samples that holds none", path=str(index))
        stream = Take(self.stream, count) if (first, step) == (0, 1) else Slice(self.stream, first, step, count)
        return dataclasses.replace(self, stream=stream)

    def _keyed(self, key: str) -> Any:
        from headrace.fetch import default_fetcher
        from headrace.loader.random_access import samples_at

        found = self._row_of(key)
        if found is None:
            raise KeyError(key)
        number, row = found
        leaf = self.leaves[number]
        rows = Rows(len(leaf.index), "key")
        return samples_at(rows, (leaf,), self.stages, 0, np.asarray([row], np.int64), default_fetcher())[0]

    def _row_of(self, key: str) -> tuple[int, int] | None:
        from headrace.fetch import default_fetcher
        from headrace.loader.key_lookup import find

        self._places_stand("a key")
        self._refuse(any(leaf.window is not None for leaf in self.leaves), "a key", "windows have none of their own")
        self._refuse(self.stream.is_part, "a key", "look it up before take() and slices")
        return find(self.leaves, self.stages, key, Settings.load(), default_fetcher())

    def _places_stand(self, what: str) -> None:
        """Refuse where nothing stands at a known place."""
        self._unbatched(what)
        self._refuse(self.striping != WHOLE, what, "choose before shard")
        uneven = [stage.kind for stage in self._all_stages() if not stage.keeps_count]
        moves = f"a {uneven[0]} moves what comes behind it: choose before the {uneven[0]}" if uneven else ""
        self._refuse(bool(uneven), what, moves)

    def show(self, n: int = 12, start: int = 0, *, epoch: int = 0) -> Grid:
        """The `n` samples from place `start` on, to be looked at: in a notebook as pictures and text, else as lines.

        Pictures are images as they are stored, and uint8 arrays of shape (height, width) or (height, width, 3).

        Raises:
            As `at`.
        """
        from headrace.loader.shown.showing import Grid

        size = self.stream.size
        stop = start + n if size is None else min(start + n, size)
        return Grid(self.at(range(start, stop), epoch=epoch))

    # -- samples -----------------------------------------------------------------------------------------------------

    def map(
        self, fn: Callable[[Any], Any], threads: int | Literal["auto"] = "auto", on_error: Skip | None = None, *,
        processes: int | Literal["auto"] | None = None,
    ) -> Dataset:  # fmt: skip
        """Apply `fn` to every sample, on threads; it should release the GIL where it computes. Behind `batch` it gets
        whole batches, and what it returns is what the loop sees.

        `threads`: how many; all functions share them, so the largest number holds. With ``"auto"`` everywhere the
        loader finds how many while it runs: one to a core at first, more, up to 64, as long as that decodes more.
        ``Loader.stats().decode`` says what it found.

        `on_error` allows some samples to be missing, failed reads included; one budget for the whole loader, the last
        one given holds. Without it the first failure is raised in the loop as BadSampleError, with the cause.

        `processes` runs `fn` in so many worker processes instead, where it holds the GIL; ``"auto"``: as many as this
        process may use cores, which ranks on one machine share. They are started afresh (as ``spawn`` does) when the
        first epoch begins, last over the loader's epochs, and end with the loader. Stages that follow each other share
        them, and one way there. Where the interpreter has no GIL, threads are used: see ``Loader.stats().processes``.
        `ds[i]` and `at` call `fn` in this process.

        There, `fn` may rely on this: it is sent once to each worker (so it is defined at the top of a module, or
        cloudpickle is installed), which calls it for one sample at a time, on one thread. What it keeps in globals
        stays for the worker's life. The generators of `random` and NumPy are seeded anew in each worker, so what must
        be repeatable is seeded from the sample's key. PyTorch computes on one thread. Bytes are read-only, as on
        threads. A worker that ends is replaced: the sample that it was at is a bad sample, others that it had may be
        given to `fn` a second time.

        Raises:
            InputError: a number below 1; `processes` behind `batch`.
        """
        return self._with(Stage("map", fn, _number(threads, "map"), processes or 0), on_error, processes)

    def filter(
        self, fn: Callable[[Any], bool], threads: int | Literal["auto"] = "auto", on_error: Skip | None = None, *,
        processes: int | Literal["auto"] | None = None,
    ) -> Dataset:  # fmt: skip
        """Keep samples for which ``fn(sample)`` is true; behind `batch`, batches. `processes`: see `map`."""
        return self._with(Stage("filter", fn, _number(threads, "filter"), processes or 0), on_error, processes)

    def flat_map(
        self, fn: Callable[[Any], Iterable[Any]], threads: int | Literal["auto"] = "auto", on_error: Skip | None = None,
        *, processes: int | Literal["auto"] | None = None,
    ) -> Dataset:  # fmt: skip
        """Each sample becomes what ``fn(sample)`` gives: several samples, one or none.

        The state is exact also among the samples that come of one: `fn` must give the same ones each time. `threads`,
        `on_error` and `processes` as of `map`.

        Raises:
            InputError: behind `batch`.
        """
        self._unbatched("flat_map")
        return self._with(Stage("flat_map", fn, _number(threads, "flat_map"), processes or 0), on_error, processes)

    def batch(
        self,
        n: int | None = None,
        drop_last: bool = False,
        *,
        collate: Collate | None = None,
        pad: Mapping[str, Any] | None = None,
        pad_to: Mapping[str, int] | int | None = None,
        bucket: Measure | None = None,
        sizes: Mapping[float, int] | Sequence[float] | None = None,
        window: int | None = None,
        cost: Measure | None = None,
        limit: float | None = None,
    ) -> Dataset:
        """Batches of `n`: a dict of stacked arrays where shapes and types agree, of lists otherwise.

            ds.batch(32)
            ds.batch(32, pad={"tokens": 0})                           # to the longest of each batch
            ds.batch(32, collate=make_graph_batch)                    # gets the list of samples
            ds.batch(bucket=length_of, sizes={64: 128, 256: 32})      # alike in length
            ds.batch(cost=tokens_of, limit=16_384)                    # alike in cost

        A sample that is too long or too dear for any batch, or that a function fails on or gives no number for, is a
        bad sample: see `map`. The state is exact in all of them: a sample that waits for its batch is not done.

        Args:
            n: samples of a batch; with `cost`, at most so many.
            drop_last: only full batches, and (nothing filtered or skipped, no `bucket`, no `cost`) the same number on
                every rank.
            collate: puts a batch together, from the list of its samples, on one thread.
            pad: names, and what their arrays are filled up with, to the longest of the batch: shape (n, longest, …).
            pad_to: the length instead, of all of them or by name: batches of one shape.
            bucket: a sample's length, a number that is zero or more. Samples of one bucket come in one batch.
            sizes: the greatest length of each bucket, and the samples of its batches: ``{64: 128, 256: 32}``; or the
                lengths alone, for batches of `n`.
            window: samples that may wait in the buckets, by default eight batches of the largest. With more, the bucket
                that has waited longest comes as a short batch.
            cost: what a sample costs, a number that is zero or more; the samples of a batch cost `limit` together, or
                less, as the next one would not have fitted. With `bucket`, in each bucket.
            limit: of `cost`.

        Raises:
            InputError: parts that do not fit together.
        """
        self._unbatched("batch")
        if n is not None and n < 1:
            raise InputError(f"batch({n})", hint="at least 1")
        packing = packing_of(
            n, bucket=bucket, sizes=sizes, window=window, cost=cost, limit=limit, pad=pad, pad_to=pad_to,
            collate_with=collate,
        )  # fmt: skip
        size = n if packing is None or (packing.is_even and n is not None) else packing.nominal
        return dataclasses.replace(self, batch_size=size, drop_last=drop_last, packing=packing)

    def pack_documents(
        self,
        length: int,
        batch: int = 1,
        *,
        long: str = SPLIT,
        pad: int = 0,
        window: int | None = None,
        column: str | None = None,
        dtype: str | None = None,
        drop_last: bool = False,
        threads: int = 2,
        on_error: Skip | None = None,
    ) -> Dataset:
        """Batches of `batch` sequences of `length` tokens, each of several whole documents: first fit. In place of
        `batch`.

            ds.shuffle(seed=7).pack_documents(2048, batch=8, pad=50256)

        A batch has ``tokens``, ``positions`` (int32, from 0 in every document) and ``documents`` (int32: 1, 2, … in
        every sequence, 0 where `pad` fills it up), each of shape (batch, length), and ``__key__``, the documents' keys
        of each sequence. A document without tokens is left out. The state is exact: documents that wait in an open
        sequence are not done, and of one that was split each piece counts by itself.

        Args:
            length: tokens of a sequence.
            batch: sequences of a batch.
            long: of a document of more than `length` tokens: ``"split"``: cut into pieces of `length`, each of which is
                as a document of its own; ``"refuse"``: it is a bad sample.
            pad: the token behind a sequence's last document.
            window: sequences that are open at once, by default four batches: more are filled better, and wait longer.
            column: which part of a sample holds its tokens; None: ``tokens``, ``input_ids``, or the only one.
            dtype: of the tokens, as NumPy names it; None: as they are.
            drop_last: only full batches.
            threads: see `map`; so of `on_error`.
            on_error: documents without a list of tokens, with tokens that are not of `dtype`, or refused.

        Raises:
            InputError: parts that do not fit together.
        """
        if length < 1 or batch < 1:
            raise InputError(f"pack_documents({length}, batch={batch})", hint="both at least 1")
        if window is not None and window < batch:
            raise InputError(f"window={window} and batches of {batch}", hint="at least one batch is open")
        if long not in (SPLIT, REFUSE):
            raise InputError(f"long={long!r}", hint='"split" or "refuse"')
        held = None if dtype is None else native(dtype)
        if held is not None:
            check_fits(pad, held, "pad")
        self._unbatched("pack_documents")
        pieces = DocumentPieces(length, column, None if held is None else held.str, long)
        packing = sequences(batch, length, window, pad)
        packed = self._with(Stage("flat_map", pieces, threads), on_error)
        return dataclasses.replace(packed, batch_size=packing.nominal, drop_last=drop_last, packing=packing)

    def unbatch(self) -> Dataset:
        """The samples of the batches, one by one, in their order: what `map` behind `batch` makes of many at once, for
        a loop or a DataLoader that wants single ones. Nothing comes behind it but `loader`.

        A sample has by name what stands at its place in the batch's arrays and lists. So a batch must have as many as
        it was made of, else BadSampleError is raised in the loop. The state is exact also inside a batch, which is then
        made again, of the same samples on as many ranks.

        Raises:
            InputError: not behind `batch`, or behind `to_arrow`.
        """
        self._refuse(self.batch_size is None, "unbatch", "put batch before it")
        self._refuse(self.arrow, "unbatch", "leave out to_arrow")
        self._refuse(self.is_unbatched, "unbatch", "once is enough")
        return dataclasses.replace(self, after=(*self.after, UNBATCH))

    def to_arrow(self) -> Dataset:
        """Batches as ``pyarrow.Table``, straight from the columns of tables: the same rows as without.

        Raises:
            InputError: the source is no table, nothing is batched, or something wants to see single rows: map, filter,
                windows, a mix of several sources.
        """
        from headrace.loader.tables.table_source import index_of

        self._refuse(self.batch_size is None, "to_arrow", "put batch before to_arrow")
        self._refuse(
            index_of(self._plan(prefetch=1)) is None,
            "to_arrow",
            "of tables, opened, shuffled, taken, repeated, batched: whatever sees rows or batches makes dicts",
        )
        return dataclasses.replace(self, arrow=True)

    # -- running -----------------------------------------------------------------------------------------------------

    def loader(
        self,
        prefetch: str | int = "512MB",
        order: str = "exact",
        window: int = 256,
        where: str = "thread",
        *,
        fetcher: Fetcher | None = None,
    ) -> Loader:
        """What runs: iterate it.

        Args:
            prefetch: bytes of samples under way and ready, all stages together; the one knob of memory.
            order: ``"exact"``, or ``"window"``: samples may overtake others up to `window` places ahead.
            window: samples, for ``order="window"``.
            where: ``"thread"``, or ``"process"``: the pipeline runs in a child process that hands batches over shared
                memory, for loops that hold the GIL.
            fetcher: default: the process's own. Not with ``where="process"``.

        Raises:
            InputError, SettingError.
        """
        from headrace.loader.loader import Loader

        if order not in ("exact", "window"):
            raise InputError(f"order={order!r}", hint='"exact" or "window"')
        if where not in ("thread", "process"):
            raise InputError(f"where={where!r}", hint='"thread" or "process"')
        if window < 1:
            raise InputError(f"window={window}", hint="at least 1")
        if self.arrow and where == "process":
            raise InputError('to_arrow() and where="process"', hint="tables are made on threads that hold no GIL")
        uneven = [stage.kind for stage in self._all_stages() if not stage.keeps_count]
        if self.striping.even is not None and (uneven or self.skip is not None or not self.has_even_batches):
            raise InputError(
                f"shard(even={self.striping.even!r}) counts samples, and some ranks would have fewer, or fewer batches",
                hint="leave out filter, flat_map, on_error and batches by length or cost; or leave out even=",
            )
        plan = self._plan(
            prefetch=max(1, parse_bytes(prefetch, name="prefetch")), window=window if order == "window" else None
        )
        return Loader(self, plan, where=where, fetcher=fetcher)

    def _plan(self, prefetch: int, window: int | None = None) -> Plan:
        return Plan(
            leaves=self.leaves,
            stages=self.stages,
            batch=self.batch_size,
            drop_last=self.drop_last,
            skip=self.skip,
            prefetch=prefetch,
            window=window,
            forms=self._forms(),
            packing=self._packing,
            after=self.after,
        )

    def _forms(self) -> Forms | None:
        """What columns of batches are, where records say so and nobody makes others of them."""
        leaf = self.leaves[0]
        if len(self.leaves) > 1 or leaf.window is not None or any(one.kind == "map" for one in self.stages):
            return None
        made = [stage.function for stage in leaf.stages if stage.kind == "map"]
        return made[-1].forms if made and isinstance(made[-1], Records) else None

    @property
    def fingerprint(self) -> str:
        """Digest of the samples and their order: a state fits exactly the datasets with the same one."""
        parts = [self.stream.describe(named=False)]
        for leaf in self.leaves:
            windows = (leaf.window.length, leaf.window.stride) if leaf.window is not None else ()
            parts.append(f"{leaf.index.fingerprint}{windows}")
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()

    @property
    def classes(self) -> list[str] | None:
        """Class names by number, for a dataset opened ``by="class"``."""
        return self.leaves[0].index.classes

    def __len__(self) -> int:
        """Samples in one epoch, all ranks together, before any filter."""
        size = self.stream.size
        if size is None:
            raise TypeError("an endless dataset has no length")
        return size

    def __repr__(self) -> str:
        behind = self.after[:-1] if self.is_unbatched else self.after
        tail, after = ("".join(f".{stage.name}" for stage in stages) for stages in (self.stages, behind))
        after += ".unbatch()" if self.is_unbatched else ""
        batch = f".batch({self._batches})" if self.batch_size else ""
        return f"Dataset({self.stream.describe()}){tail}{batch}{'.to_arrow()' if self.arrow else ''}{after}"

    @property
    def has_even_batches(self) -> bool:
        """Whether every batch but the last has `batch_size` samples, as far as no sample is filtered out or skipped."""
        even = self.packing is None or self.packing.is_even
        return even and all(stage.keeps_count for stage in self.after)

    @property
    def is_unbatched(self) -> bool:
        """Whether batches become single samples again."""
        return bool(self.after) and self.after[-1].kind == UNBATCH.kind

    @property
    def gives_batches(self) -> bool:
        """Whether a loader gives batches, and not single samples."""
        return self.batch_size is not None and not self.is_unbatched

    @property
    def _packing(self) -> Packing | None:
        if not self.is_unbatched:
            return self.packing
        return dataclasses.replace(self.packing or one_by_one(self.batch_size), is_taken_apart=True)

    @property
    def _batches(self) -> str:
        return str(self.batch_size) if self.packing is None else self.packing.describe()

    def _repr_html_(self) -> str:
        size = self.stream.size
        batches = self._batches if self.batch_size else None
        rows = {"samples": "without end" if size is None else f"{size:,}", "batches of": batches}
        return cards.card(repr(self), rows)

    def _with(self, stage: Stage, on_error: Skip | None, processes: int | str | None = None) -> Dataset:
        if processes is not None and processes != "auto" and (not isinstance(processes, int) or processes < 1):
            raise InputError(f"{stage.kind}(processes={processes!r})", hint='at least 1, or "auto"')
        if self.batch_size is not None:
            self._refuse(self.is_unbatched, stage.kind, f"put {stage.kind} before unbatch")
            self._refuse(self.arrow, stage.kind, "put to_arrow last: what sees batches gets dicts")
            self._refuse(on_error is not None, f"{stage.kind}(on_error=…)", "it is about samples: put it before batch")
            self._refuse(processes is not None, f"{stage.kind}(processes=…)", "put it before batch")
            return dataclasses.replace(self, after=(*self.after, stage))
        return dataclasses.replace(self, stages=(*self.stages, stage), skip=on_error or self.skip)

    def _all_stages(self) -> list[Stage]:
        return [*self.stages, *(stage for leaf in self.leaves for stage in leaf.stages)]

    def _unbatched(self, what: str) -> None:
        self._refuse(self.batch_size is not None, what, f"put {what} before batch")

    def _refuse(self, wrong: bool, what: str, hint: str) -> None:
        if wrong:
            raise InputError(f"{what}() cannot come here", hint=hint)


def _number(threads: Any, what: str) -> int:
    """As `Stage` has it."""
    if threads == "auto":
        return ANY_NUMBER
    if not isinstance(threads, int) or threads < 1:
        raise InputError(f"{what}(threads={threads!r})", hint='at least 1, or "auto"')
    return threads
