"""The measured process: reads a `Job` from standard input, prints a `Result` as its last line.

Each contender is a module ``peers/<name>.py`` with a docstring that says how it was tuned, and one function:
``batches(job) -> Iterator[Batch]``, or ``run(job) -> Result`` where it is no Python iterator.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import time

from job import Job


def main() -> None:
    job = Job.loads(sys.stdin.read())
    peer = importlib.import_module(f"peers.{job.peer}")
    from meter import measure

    opened = time.perf_counter()
    if hasattr(peer, "run"):
        result = peer.run(job)
    else:
        stream = peer.batches(job)
        result = measure(stream, job, opened)
        if hasattr(peer, "notes"):
            result = dataclasses.replace(result, notes=peer.notes(job))
        stream.close()
    print(result.dumps(), flush=True)


if __name__ == "__main__":
    main()
