"""LitServe, one worker, batches of 64 rows, no wait for more.

``python serve_litserve.py MODEL PORT``, in ``.tools/servers``.
"""

from __future__ import annotations

import sys
from typing import Any

import litserve
import numpy as np
import onnxruntime


class Model(litserve.LitAPI):
    def setup(self, device: str) -> None:  # noqa: ARG002
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])

    def decode_request(self, request):  # LitServe reads annotations
        return np.asarray(request["instances"], np.float32)

    def batch(self, inputs: list[Any]) -> Any:
        return np.concatenate(inputs)

    def unbatch(self, output: Any) -> list[Any]:
        return [output[index : index + 1] for index in range(len(output))]

    def predict(self, x: Any) -> Any:
        return self.session.run(None, {"x": x})[0]

    def encode_response(self, output: Any) -> Any:
        return {"predictions": output.tolist()}


if __name__ == "__main__":
    server = litserve.LitServer(
        Model(max_batch_size=64, batch_timeout=0.0), accelerator="cpu", workers_per_device=1, timeout=60
    )
    server.run(host="127.0.0.1", port=int(sys.argv[2]), generate_client_file=False, log_level="error")
