"""The row `record` of ``cluster.py``: what its record costs each of 32 ranks, and how often it asks the bucket.

A step is 1 ms of waiting, as for a GPU: then a rank logs two metrics of it. Cost: processor time of the whole process a
step, with and without the call, in turns, all ranks at the same time. 32 processes that wait share two cores; what they
spend does not depend on that much, how long it takes does. Requests: all that reach the store while they log.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from headrace.cluster.local import LocalCluster
from headrace.store import Store
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream

RANKS = 32
LOGGED = """
import json, os, sys, time
from pathlib import Path
import headrace as hr

seconds, home = float(sys.argv[1]), hr.Namespace.load()

def turn(log):
    step, began, until = 0, time.process_time(), time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.001)
        step += 1
        if log:
            hr.log({"loss": 1 / step, "accuracy": step / 1e6}, step=step)
    return (time.process_time() - began) / step * 1e6

def mark(name):
    if os.environ["RANK"] == "0":
        home.exists(f"{os.environ['DATA']}/{name}")

turn(True)
costs = []
for number in range(3):
    without = turn(False)
    mark(f"begin-{number}")
    costs.append(turn(True) - without)
    mark(f"end-{number}")
(Path(os.environ["HEADRACE_OUTPUTS"]) / f"cost-{os.environ['RANK']}.json").write_text(json.dumps(sorted(costs)[1]))
"""


def record(store: Store, bucket: str, folder: Path, environment: Mapping[str, str], seconds: float) -> dict[str, Any]:
    """Microseconds a step and rank, and requests to the store an hour."""
    script = folder / "logged.py"
    script.write_text(LOGGED)
    where = urlsplit(environment["AWS_ENDPOINT_URL_S3"])
    with FaultServer(Upstream(where.hostname or "", where.port or 0)) as between:
        counted = {**environment, "AWS_ENDPOINT_URL_S3": between.endpoint}
        with LocalCluster(variables=counted) as cluster:
            cluster.add(1)
            words = [sys.executable, "-m", "headrace.cli", "run", "-q", "--on", cluster.address, "--nodes", "1", "--id",
                     "record", "--set", f"processes={RANKS}", "--env", f"DATA=s3://{bucket}/marks", "--",
                     sys.executable, str(script), str(seconds)]  # fmt: skip
            subprocess.run(words, cwd=folder, check=True, env={**counted, **cluster.variables()})
        asked, inside = Counter[str](), False
        for one in between.seen:
            if "/marks/" in one.path or one.path.endswith("/marks"):
                inside = "begin-" in one.path or ("end-" not in one.path and inside)
            elif inside:
                asked[one.operation] += 1
    prefix = "home/runs/record/outputs/cost-"
    costs = [json.loads(bytes(store.get(one.key).data)) for page in store.list(prefix) for one in page]
    hourly = {kind: round(count * 3600 / (3 * seconds)) for kind, count in sorted(asked.items())}
    return {
        "row": "record", "ranks": len(costs), "us_a_step": median(costs), "worst_us": max(costs),
        "share_of_1_ms": median(costs) / 1000, "requests_an_hour": hourly,
    }  # fmt: skip
