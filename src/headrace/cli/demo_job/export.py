"""Publishes what the demonstration's runs have learned, each as a version of the model ``digits``, in ONNX.

Its arguments are those of the training, and the two files of weights in the bucket; it prints, as JSON, the versions'
numbers and some held-out samples.
"""

from __future__ import annotations

import argparse
import io
import json
import os
from typing import Any

import torch

import headrace as hr
from headrace.cli.demo_job.train import Decode, make_model

_SHOWN = 200
"""Samples."""


def main() -> None:
    """Publish both."""
    parser = argparse.ArgumentParser()
    for name in ("epochs", "classes", "side", "channels", "batch"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--test")
    parser.add_argument("weights", nargs=2)
    told = parser.parse_args()
    torch.set_num_threads(1)
    namespace = hr.Namespace.load()
    model = make_model(told.classes, told.channels)
    example = {"input": torch.zeros(2, told.channels, told.side, told.side)}
    numbers: list[int] = []
    for path in told.weights:
        state: Any = torch.load(io.BytesIO(bytes(namespace.read(path))), weights_only=True)
        model.load_state_dict(state.get("model", state))
        numbers.append(hr.models.publish(model.eval(), "digits", example=example, note=path).number)
    decode = Decode(told.side, told.channels)
    held_out = hr.Dataset.open(told.test).shuffle(seed=1).map(decode, threads=2).batch(_SHOWN).loader()
    batch = next(iter(held_out))
    held_out.close()
    shown = {"images": batch["image"].tolist(), "labels": batch["label"].tolist()}
    print(json.dumps({"numbers": numbers, **shown}))


if __name__ == "__main__":
    main()
    os._exit(0)  # without taking PyTorch down, object by object
