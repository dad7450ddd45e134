"""Ray Serve with HAProxy as its proxy (``RAY_SERVE_ENABLE_HA_PROXY``), one replica, `serve.batch` of 64 rows, no wait.

``python serve_ray.py MODEL PORT``, in ``.tools/ray``.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import onnxruntime
from ray import serve


@serve.deployment(num_replicas=1, max_ongoing_requests=256)
class Model:
    def __init__(self, path: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0)
    async def run(self, rows: list[Any]) -> list[Any]:
        made = self.session.run(None, {"x": np.asarray(rows, np.float32)})[0]
        return made.tolist()

    async def __call__(self, request: Any) -> Any:
        asked = await request.json()
        return {"predictions": [await self.run(row) for row in asked["instances"]]}


serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
serve.run(Model.bind(sys.argv[1]), name="small", route_prefix="/")
while True:
    time.sleep(1)
