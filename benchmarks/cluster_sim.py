"""What 1,000 ranks on 128 machines would do with ten million samples: ``python benchmarks/cluster_sim.py``.

Real: the order of samples, the loader's state and its dealing out to another number of ranks, who keeps what of caches
that nodes share, and from when on a request counts as a straggler and is sent again (`headrace.loader.order.order`,
`loader.order.progress_state`, `fetch.rendezvous`, `fetch.level`). Simulated: clock, machines, network,
store, the caches' least-recently-used lists, and what a step of training takes. No byte is read.

Machines are lost at random moments and come back with an empty cache, the job is restarted from outside, and each time
all go on from the newest checkpoint with as many ranks as there are then. Counted are each sample of each epoch, the
requests to the store, the bytes between machines, and the time from a start to the first batch of the last rank.

The store's figures are assumptions from the literature, named in `Store`. The time of an epoch follows from whatever
is scarcest: compute, the store's rate, a machine's requests under way, or its network. A straggler that a rank's
read-ahead does not hide is not in it.

Results go to ``benchmarks/results/cluster_sim.{md,json}``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import OrderedDict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.fetch.level import Latency
from headrace.fetch.rendezvous import Rendezvous
from headrace.loader.order.order import Rows, Shuffle, mix64
from headrace.loader.order.progress_state import Progress, Residual, dump, load

RESULTS = Path(__file__).parent / "results"
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Store:
    """First bytes: half within 30 ms, one in a hundred after 200 ms and more (Durner, Leis and Neumann, "Exploiting
    Cloud Object Storage for High-Performance Analytics", VLDB 2023, measured medians of about 30 ms); one in 2,000
    takes 2 s. 5,500 GET a second and prefix (Amazon S3's documentation of its performance); the data lies in 32.
    """

    p50_s: float = 0.030
    p99_s: float = 0.200
    late: float = 1 / 2000
    late_s: float = 2.0
    gets: float = 32 * 5500

    def first_bytes(self, count: int, random: np.random.Generator) -> NDArray[np.float64]:
        sigma = np.log(self.p99_s / self.p50_s) / 2.326
        found = random.lognormal(np.log(self.p50_s), sigma, count)
        return np.where(random.random(count) < self.late, self.late_s, found)


@dataclass(frozen=True)
class World:
    """What is simulated. `step_s`: what a step computes; `cache`: what one machine's cache holds, a share of the data;
    `a_loss_s`: machines are lost so often, on average; `back_s`: after so long one comes back; `a_restart_s`: the job
    is restarted from outside so often; `start_s`: from an end to the next start, without the first batch.
    """

    samples: int = 10_000_000
    machines: int = 128
    ranks: int = 1000
    epochs: int = 3
    sample_bytes: int = 110_000
    batch: int = 32
    step_s: float = 0.125
    checkpoint: int = 50
    cache: float = 1 / 64
    peers: bool = True
    network: float = 25e9 / 8
    under_way: int = 256
    a_loss_s: float = 40.0
    back_s: float = 60.0
    a_restart_s: float = 100.0
    start_s: float = 20.0
    seed: int = 1
    store: Store = field(default_factory=Store)


@dataclass
class Epoch:
    """What one epoch took."""

    seconds: float = 0.0
    requests: int = 0
    hedges: int = 0
    between_gb: float = 0.0
    done_again: int = 0
    starts: int = 0
    first_batch_s: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    once: bool = False


class Machine:
    """One of them: what its cache holds, the least recently used first, and how its store has answered."""

    def __init__(self, name: str, room: int) -> None:
        self.name, self._room = name, room
        self._held: OrderedDict[int, None] = OrderedDict()
        self.latency = Latency()

    def take(self, rows: Ints) -> int:
        """Look for these; what is missing is fetched, and kept. Returns how many were missing."""
        held, missing = self._held, 0
        for row in rows.tolist():
            if row in held:
                held.move_to_end(row)
            else:
                missing += 1
                held[row] = None
        for _ in range(len(held) - self._room):
            held.popitem(last=False)
        return missing


class Simulation:
    """One history, from the first start to the end of the last epoch."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = np.random.default_rng(world.seed)
        self.stream = Shuffle(Rows(world.samples, "simulated"), seed=world.seed)
        self.words = mix64(np.arange(world.samples, dtype=np.uint64))
        """By which the cache's entries are named: real names are hashes, too."""
        self.room = int(world.samples * world.cache)
        self.alive = [Machine(f"m{number:03d}", self.room) for number in range(world.machines)]
        self.away: list[tuple[float, str]] = []
        self.now = 0.0
        self.lost_at = self._next(world.a_loss_s)
        self.restart_at = self._next(world.a_restart_s)
        self.epochs = [Epoch() for _ in range(world.epochs)]
        self.keeper: NDArray[np.int16] | None = None
        self.up = False

    def run(self) -> list[Epoch]:
        state: dict[str, Any] | None = None
        number = 0
        seen = np.zeros(self.world.samples, np.uint8)
        while number < self.world.epochs:
            epoch = self.epochs[number]
            base, frontier = self._begin(state, number, epoch)
            state, over = self._train(base, frontier, epoch, seen, state)
            if over:
                epoch.once = bool((seen == 1).all())
                seen[:] = 0
                number, state = number + 1, None
        return self.epochs

    # Starting

    def _begin(self, state: dict[str, Any] | None, number: int, epoch: Epoch) -> tuple[Residual, int]:
        """All that live start, and each rank takes up its stripe of what is left."""
        self._come_back()
        stripes = round(self.world.ranks * len(self.alive) / self.world.machines)
        if state is None:
            base, progress = Residual(number, stripes), Progress()
        else:
            ranks = (0, stripes // 2, stripes - 1)
            loaded = [
                load(state, "simulated", "simulated", self.world.samples, rank, stripes, 1) for rank in ranks
            ]
            base, progress = loaded[0]
            if any(one != loaded[0] for one in loaded):
                raise SystemExit("ranks do not agree on what is left")
        if not self.up:
            self.up = True
            self.keeper = self._keepers() if self.world.peers else None
            self.now += self.world.start_s
            first = self._first_batch(base)
            epoch.first_batch_s.append(first)
            epoch.seconds += self.world.start_s + first
            epoch.starts += 1
            self.now += first
        epoch.ranks.append(stripes)
        return base, progress.frontier

    def _come_back(self) -> None:
        if self.up:
            return  # a job that runs takes nobody in
        back = [name for at, name in self.away if at <= self.now]
        self.away = [(at, name) for at, name in self.away if at > self.now]
        self.alive = sorted([*self.alive, *(Machine(name, self.room) for name in back)], key=lambda one: one.name)

    def _keepers(self) -> NDArray[np.int16]:
        """For each sample the place of its keeper among those that live, by the real choice."""
        nodes = Rendezvous(one.name for one in self.alive)
        chunks = np.array_split(self.words, max(1, self.world.samples // 50_000))
        return np.concatenate([nodes.first_of_each(chunk).astype(np.int16) for chunk in chunks])

    def _first_batch(self, base: Residual) -> float:
        """Until the last rank has its first batch, if the store has to answer for all of it."""
        reads = self.world.batch * -(-base.stripes // len(self.alive))
        longest = 0.0
        for machine in self.alive:
            machine.latency = Latency()  # a new process knows nothing of the store
            longest = max(longest, float(self._answers(machine, reads)[0].max()))
        return max(longest, reads * len(self.alive) / self.world.store.gets)

    def _answers(self, machine: Machine, count: int) -> tuple[NDArray[np.float64], int]:
        """How long so many requests at once take, and how many of them are sent again."""
        first = self.world.store.first_bytes(count, self.random)
        if machine.latency.straggling_after is None:
            for one in np.sort(first)[:64].tolist():
                machine.latency.add(one)
        machine.latency.settle()
        after = machine.latency.straggling_after
        late = np.flatnonzero(first > after) if after is not None else np.empty(0, np.int64)
        if after is not None and late.size:
            second = after + self.world.store.first_bytes(late.size, self.random)
            first[late] = np.minimum(first[late], second)
        for one in first[:512].tolist():
            machine.latency.add(one)
        return first, late.size

    # Training

    def _train(
        self, base: Residual, frontier: int, epoch: Epoch, seen: NDArray[np.uint8], state: dict[str, Any] | None
    ) -> tuple[dict[str, Any] | None, bool]:
        """Step by step until the epoch is over or something happens. Returns the newest checkpoint."""
        world = self.world
        longest = base.stripe_size(0, world.samples) or 0
        while frontier < longest:
            stop = min(longest, frontier + world.checkpoint * world.batch)
            rows = self._rows(base, frontier, stop)
            took = self._read(rows, epoch, -(-(stop - frontier) // world.batch))
            ends = min(self.lost_at, self.restart_at)
            if ends < self.now + took:  # before the checkpoint: what came since the last one is done again
                share = max(0.0, (ends - self.now) / took)
                epoch.done_again += int(share * sum(len(one) for one in rows))
                epoch.seconds += max(0.0, ends - self.now)
                self.now = max(self.now, ends)
                self._happen()
                return state, False
            self.now += took
            epoch.seconds += took
            for one in rows:
                seen[one] += 1
            frontier = stop
            state = dump("simulated", "simulated", base, 0, Progress(frontier))
        return state, True

    def _rows(self, base: Residual, frontier: int, stop: int) -> list[Ints]:
        """Of each rank: the rows of its next samples."""
        found: list[Ints] = []
        for stripe in range(base.stripes):
            end = min(stop, base.stripe_size(stripe, self.world.samples) or 0)
            positions = base.positions(base.index(stripe, np.arange(frontier, end, dtype=np.int64)))
            found.append(self.stream.locate(base.epoch, positions)[1])
        return found

    def _read(self, rows: list[Ints], epoch: Epoch, steps: int) -> float:
        """Where these come from, and how long that takes while `steps` are computed."""
        world = self.world
        groups = np.array_split(np.arange(len(rows)), len(self.alive))
        asked = [np.concatenate([rows[rank] for rank in group]) for group in groups]
        came = np.zeros(len(self.alive))
        if self.keeper is not None:
            by_keeper: list[list[Ints]] = [[] for _ in self.alive]
            for place, wanted in enumerate(asked):
                keeper = self.keeper[wanted]
                order = np.argsort(keeper, kind="stable")
                cuts = np.searchsorted(keeper[order], np.arange(len(self.alive) + 1))
                for other in range(len(self.alive)):
                    part = wanted[order[cuts[other] : cuts[other + 1]]]
                    if len(part):
                        by_keeper[other].append(part)
                foreign = int((keeper != place).sum())
                epoch.between_gb += foreign * world.sample_bytes / 1e9
                came[place] += foreign
            asked = [np.concatenate(parts) if parts else np.empty(0, np.int64) for parts in by_keeper]
        missing = [machine.take(wanted) for machine, wanted in zip(self.alive, asked, strict=True)]
        took = steps * world.step_s
        for place, (machine, count) in enumerate(zip(self.alive, missing, strict=True)):
            if count:
                answers, again = self._answers(machine, count)
                epoch.hedges += again
                took = max(took, float(answers.sum()) / world.under_way)
            took = max(took, (count + came[place]) * world.sample_bytes / world.network)
        epoch.requests += sum(missing)
        return max(took, sum(missing) / world.store.gets)

    # What happens

    def _happen(self) -> None:
        self.up = False
        if self.lost_at <= self.now:
            gone = self.alive.pop(int(self.random.integers(len(self.alive))))
            self.away.append((self.now + self.world.back_s, gone.name))
            self.lost_at = self.now + self._next(self.world.a_loss_s)
        if self.restart_at <= self.now:
            self.restart_at = self.now + self._next(self.world.a_restart_s)

    def _next(self, mean: float) -> float:
        return float(self.random.exponential(mean))


def quiet(world: World) -> World:
    """The same, where nothing happens."""
    return World(**{**asdict(world), "store": world.store, "a_loss_s": 1e12, "a_restart_s": 1e12})


_COLUMNS = (
    "case", "epoch", "each sample once", "requests to the store", "of stragglers, again", "GB between machines",
    "samples done again", "starts", "ranks", "first batch, s, worst", "seconds",
)  # fmt: skip


def told(name: str, epochs: list[Epoch]) -> list[str]:
    """A row an epoch."""
    rows: list[str] = []
    for number, one in enumerate(epochs, 1):
        first = f"{max(one.first_batch_s):.2f}" if one.first_batch_s else "–"
        fields = (
            name, number, "yes" if one.once else "**no**", f"{one.requests:,}", f"{one.hedges:,}",
            f"{one.between_gb:,.0f}", f"{one.done_again:,}", one.starts, f"{min(one.ranks)}–{max(one.ranks)}", first,
            f"{one.seconds:,.0f}",
        )  # fmt: skip
        rows.append(f"| {' | '.join(str(field) for field in fields)} |")
    return rows


def page(world: World) -> list[str]:
    """What comes before the rows."""
    return [
        f"# {world.ranks:,} ranks on {world.machines} machines, {world.samples:,} samples: simulated\n",
        (__doc__ or "").split("\n\n", 1)[1].rsplit("\n\n", 1)[0] + "\n",
        "; ".join((
            f"Samples of {world.sample_bytes // 1000} kB", f"batches of {world.batch} a rank",
            f"{world.step_s * 1000:.0f} ms of compute a step", f"a checkpoint each {world.checkpoint} steps",
            f"a machine's cache holds 1/{round(1 / world.cache)} of the data",
            f"{world.network * 8 / 1e9:.0f} Gbit/s and {world.under_way} requests under way a machine.\n",
        )),
        f"| {' | '.join(_COLUMNS)} |",
        "|---" * len(_COLUMNS) + "|",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=World.samples)
    parser.add_argument("--machines", type=int, default=World.machines)
    parser.add_argument("--ranks", type=int, default=World.ranks)
    parser.add_argument("--seeds", type=int, default=3, help="histories with losses")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder")
    args = parser.parse_args()
    world = World(samples=args.samples, machines=args.machines, ranks=args.ranks)
    cases = {
        "quiet, each its own cache": World(**{**asdict(quiet(world)), "store": world.store, "peers": False}),
        "quiet, caches shared": quiet(world),
        **{
            f"losses and restarts, seed {seed}": World(**{**asdict(world), "store": world.store, "seed": seed})
            for seed in range(1, args.seeds + 1)
        },
    }
    lines = page(world)
    results: dict[str, Any] = {"world": asdict(world), "cases": {}}
    for name, one in cases.items():
        began = time.monotonic()
        epochs = Simulation(one).run()
        rows = told(name, epochs)
        print("\n".join(rows), f"({time.monotonic() - began:.0f} s of this machine)", flush=True)
        lines += rows
        results["cases"][name] = [asdict(epoch) for epoch in epochs]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "cluster_sim.md").write_text("\n".join(lines) + "\n")
    (args.out / "cluster_sim.json").write_text(json.dumps(results, indent=1) + "\n")
    if not all(epoch["once"] for case in results["cases"].values() for epoch in case):
        raise SystemExit("a sample came twice, or not at all")


if __name__ == "__main__":
    main()
