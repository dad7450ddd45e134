"""A training loop whose limit is chosen: ``python why_job.py '{"data": "s3://…", …}'``, under ``headrace run``.

What may be given beside `data` (a path or URL of single objects) and `seconds` (how long it runs) is in `Job`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.base.settings import Settings
from headrace.namespace import Namespace
from headrace.store import open_store
from headrace.store.protocol import Blob, Store
from headrace.testing.faults import FaultStore
from headrace.testing.plan import Fault, Kind, Plan

GETS = frozenset({"get"})
LEAST = 12
_BURST_S = 0.02


@dataclass(frozen=True)
class Job:
    """Seconds and bytes. `stragglers`: their rate, and how much longer they take; `bandwidth`: bytes a second, of all
    requests together; `decode_s`: CPU for a sample, with `threads` or `processes`, holding the interpreter's lock or
    not; `rest_s`: asleep for a sample, beside; `step_s`: of the loop, asleep or `busy`; `checkpoint`: steps between
    two, bytes of one, and how long writing it takes at least; `evaluate`: steps between two pauses, and how long
    one is, nothing being written; `where`, `prefetch`: of the loader. `mounted`: a folder whose files are read
    instead, each once.
    `gate`: a folder where the job says that it is ready, by its process id, and begins when there is a file ``go``:
    jobs side by side do not disturb one another while they start. `packed`: the data are shards; `aside`: checkpoints
    are written by another thread; `told`: a file for what it reached. `together`: the ranks meet after each step;
    `turn_s`: CPU of each rank in its turn, step by step.

    With ``"ranks": {"1": {…}}`` beside, what differs for a rank. It runs for `seconds` from its first step on, and for
    `LEAST` steps; with `mounted` no longer than there are files.
    """

    data: str
    seconds: float = 4.0
    latency_s: float = 0.0
    stragglers: tuple[float, float] | None = None
    bandwidth: float = 0.0
    decode_s: float = 0.0
    threads: int = 2
    processes: int = 0
    gil: bool = False
    rest_s: float = 0.0
    step_s: float = 0.0
    busy: bool = False
    batch: int = 8
    checkpoint: tuple[int, int, float] | None = None
    evaluate: tuple[int, float] | None = None
    prefetch: str = "64MB"
    where: str = "thread"
    mounted: str = ""
    gate: str = ""
    packed: bool = False
    aside: bool = False
    told: str = ""
    together: bool = False
    turn_s: float = 0.0


class Link(FaultStore):
    """A way to the store with a bandwidth of its own, whoever shares it."""

    def __init__(self, inner: Store, plan: Plan, bandwidth: float) -> None:
        super().__init__(inner, plan)
        self._bandwidth, self._busy, self._free_at = bandwidth, threading.Lock(), 0.0

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        blob = super().get(key, start, stop, if_match=if_match)
        if self._bandwidth:
            with self._busy:
                self._free_at = max(time.monotonic(), self._free_at) + len(blob.data) / self._bandwidth
                until = self._free_at
            time.sleep(max(0.0, until - time.monotonic()))
        return blob


def namespace(job: Job) -> Namespace:
    faults: list[Fault] = []
    if job.latency_s:
        faults.append(Fault(Kind.LATENCY, operations=GETS, delay_s=job.latency_s))
    if job.stragglers:
        faults.append(Fault(Kind.LATENCY, operations=GETS, rate=job.stragglers[0], delay_s=job.stragglers[1]))
    settings = Settings.load()
    if not faults and not job.bandwidth:
        return Namespace.load(settings)

    def opener(url: str, options: Any, settings: Settings) -> Store:
        return Link(open_store(url, options, settings), Plan(tuple(faults), seed=7), job.bandwidth)

    return Namespace.load(settings, opener=opener)


def burn(seconds: float, *, gil: bool) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        if gil:
            sum(range(2000))
        else:
            hashlib.pbkdf2_hmac("sha256", b"headrace", b"why", 200)


@dataclass(frozen=True)
class Decode:
    seconds: float
    gil: bool
    rest_s: float = 0.0

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        if self.rest_s:
            time.sleep(self.rest_s)
        burn(self.seconds, gil=self.gil)
        return sample


class Loop:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.step = 0
        self.until = self.began = float("inf")
        self.saving: list[threading.Thread] = []
        self.arrived: list[float] = []  # when each batch was there
        self.waited: list[float] = []
        self.left = 0.0
        self.outputs = Path(os.environ["HEADRACE_OUTPUTS"])

    def take(self) -> bool:
        """One step. Whether there is another."""
        now = time.monotonic()
        self.waited.append(now - self.left if self.left else 0.0)
        self.arrived.append(now)
        if not self.step:
            self.began = time.monotonic()
            self.until = self.began + self.job.seconds
        self._step()
        over = meet(time.monotonic() >= self.until) if self.job.together else time.monotonic() >= self.until
        self.left = time.monotonic()
        return self.step < LEAST or not over

    def _step(self) -> None:
        job, self.step = self.job, self.step + 1
        if job.busy:
            burn(job.step_s, gil=False)
        elif job.step_s:
            time.sleep(job.step_s)
        if job.turn_s and self.step % int(os.environ["WORLD_SIZE"]) == int(os.environ["RANK"]):
            burn(job.turn_s, gil=False)
        if job.checkpoint and self.step % job.checkpoint[0] == 0:
            self.save(*job.checkpoint[1:])
        if job.evaluate and self.step % job.evaluate[0] == 0:
            time.sleep(job.evaluate[1])

    def end(self) -> None:
        """Tell what was reached: steps and the seconds they took. Slow decoding brings batches in bursts: what counts
        ends where a burst begins, as it begins where the first one does.
        """
        for one in self.saving:
            one.join()
        steps, seconds = self.step, self.left - self.began
        longest = max(self.waited)
        bursts = [at for at, waited in enumerate(self.waited) if waited > longest / 2 > _BURST_S]
        if len(bursts) > 1:
            steps, seconds = bursts[-1], self.arrived[bursts[-1]] - self.arrived[0]
        if self.job.told:
            Path(self.job.told).write_text(json.dumps({"steps": steps, "seconds": seconds}))

    def save(self, size: int, seconds: float) -> None:
        folder = self.outputs / "checkpoints" / str(self.step)
        if not self.job.aside:
            self._save(folder, size, seconds)
            return
        for one in self.saving:  # one at a time
            one.join()
        self.saving = [threading.Thread(target=self._save, args=(folder, size, seconds))]
        self.saving[0].start()

    def _save(self, folder: Path, size: int, seconds: float) -> None:
        """As a slow disk would take it."""
        folder.mkdir(parents=True)
        pieces = 16
        with (folder / "model.pt").open("wb", buffering=0) as file:
            for _ in range(pieces):
                file.write(bytes(size // pieces))
                time.sleep(seconds / pieces)
            os.fsync(file.fileno())


def meet(over: bool = False) -> bool:
    """All ranks here, as in a step of many. Whether it is over for any."""
    import torch
    from torch import distributed

    if not distributed.is_initialized():
        torch.set_num_threads(1)
        distributed.init_process_group("gloo")
    told = torch.tensor(float(over))
    distributed.all_reduce(told, distributed.ReduceOp.MAX)
    return bool(told.item())


def wait_at(gate: str) -> None:
    if gate:
        (Path(gate) / f"{os.getpid()}.ready").touch()
        while not (Path(gate) / "go").exists():
            time.sleep(0.02)


def read_files(job: Job, loop: Loop) -> None:
    """As code that knows nothing of headrace: file by file, each once."""
    files = iter(sorted(path for path in Path(job.mounted).rglob("*") if path.is_file()))
    wait_at(job.gate)
    while batch := list(itertools.islice(files, job.batch)):
        for path in batch:
            path.read_bytes()
            burn(job.decode_s, gil=job.gil)
        if not loop.take():
            break
    loop.end()


def main() -> None:
    given = json.loads(sys.argv[1])
    given |= given.pop("ranks", {}).get(os.environ.get("RANK"), {})
    job = Job(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})
    loop = Loop(job)
    if job.mounted:
        read_files(job, loop)
        return
    if job.packed:
        ds = hr.Dataset.open(job.data, namespace=namespace(job)).shuffle(seed=1, block="auto").repeat()
    else:
        ds = hr.Dataset.open(job.data, by="object", namespace=namespace(job)).shuffle(seed=1).repeat()
    if job.decode_s or job.rest_s:
        ds = ds.map(Decode(job.decode_s, job.gil, job.rest_s), threads=job.threads, processes=job.processes or None)
    loader = ds.batch(job.batch).loader(prefetch=job.prefetch, where=job.where)
    if job.together:
        meet()
    wait_at(job.gate)
    if job.together:
        meet()
    for _ in loader:
        if not loop.take():
            break
    loop.end()


if __name__ == "__main__":
    main()
