"""wrk, a C load generator, asking for the same objects in random order: the limit of any client on this machine.

It throws the bytes away and keeps no order. Requests are built beforehand, so that its Lua only indexes a table. No
signature is computed. Samples are requests divided by the parts of a sample; with ``shards``, which asks for whole tar
shards instead, those that lie in the bytes received.
"""

from __future__ import annotations

import random
import re
import subprocess
import time
from pathlib import Path

from data import in_shards, samples, shards
from job import BUCKET, Job, Result
from meter import cpu_seconds

_SCRIPT = """
local requests, at = {}, 0
init = function(args)
  for line in io.lines("%s") do requests[#requests + 1] = wrk.format("GET", line) end
  at = math.random(#requests)
end
request = function() at = at %% #requests + 1; return requests[at] end
done = function(summary, latency, all)
  local bad = summary.errors.status + summary.errors.read + summary.errors.connect + summary.errors.timeout
  io.write(string.format("result %%d %%d %%d %%d\\n", summary.requests, summary.duration, summary.bytes, bad))
end
"""


def run(job: Job) -> Result:
    grouped = samples(job.root, job.dataset)
    whole = shards(job.root, job.dataset) if job.options.get("shards") else []
    paths = [f"/{BUCKET}/{key}" for key in whole or [part.key for parts in grouped for part in parts]]
    random.Random(job.seed).shuffle(paths)
    scratch = Path(job.scratch)
    (scratch / "paths").write_text("\n".join(paths) + "\n")
    (scratch / "requests.lua").write_text(_SCRIPT % (scratch / "paths"))
    threads, connections = int(job.options.get("threads", 1)), int(job.options.get("connections", 16))
    command = ["wrk", f"-t{threads}", f"-c{connections}", f"-d{max(1, round(job.window_s))}s", "--timeout", "30s"]
    cpu, began = cpu_seconds(), time.perf_counter()
    done = subprocess.run(
        [*command, "-s", str(scratch / "requests.lua"), job.endpoint], capture_output=True, check=True, text=True
    )
    cpu = cpu_seconds() - cpu
    found = re.search(r"^result (\d+) (\d+) (\d+) (\d+)$", done.stdout, re.MULTILINE)
    if found is None or int(found[4]):
        raise SystemExit(f"wrk: {done.stdout} {done.stderr}")
    requests, micros, size = (int(found[group]) for group in (1, 2, 3))
    held = sum((Path(job.root) / BUCKET / name).stat().st_size for name in whole)
    return Result(
        size * in_shards(job.root, job.dataset) // held if whole else requests // len(grouped[0]),
        micros / 1e6,
        size,
        cpu,
        ttfb=time.perf_counter() - began - micros / 1e6,
        notes=f"{threads} threads, {connections} connections",
    )
