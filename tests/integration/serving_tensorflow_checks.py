"""Checks that need TensorFlow; see `tests.frameworks_kit`."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import tensorflow as tf

from tests.frameworks_kit import report
from tests.serving_rig import ServingRig


class Model(tf.Module):
    """Two signatures: numbers, and strings."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def double(self, x: Any) -> Any:
        return {"y": 2 * x}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="raw")])
    def sizes(self, raw: Any) -> Any:
        return {"size": tf.strings.length(raw), "raw_bytes": raw}


def check_a_saved_model_answers_by_each_of_its_signatures() -> None:
    rig = ServingRig(Path.cwd())
    model = Model()
    signatures = {"serving_default": model.double, "sizes": model.sizes}
    tf.saved_model.save(model, str(rig.folder / "made"), signatures=signatures)
    rig.point("tf@prod", rig.publish(rig.folder / "made", "tf"))
    with rig.serving("tf@prod") as asked:
        assert asked.predict([[1, 2], [3, 4]], "tf") == [[2, 4], [6, 8]]
        raw = {"b64": base64.b64encode(b"\xff\xfe\x00").decode()}
        answer = asked.post("/v1/models/tf:predict", {"signature_name": "sizes", "instances": [raw]})
        assert answer.json() == {"predictions": [{"size": 3, "raw_bytes": raw}]}, answer.text
        assert set(asked.get("/v1/models/tf/metadata").json()["metadata"]["signature_def"]["signature_def"]) == {
            "serving_default", "sizes",
        }  # fmt: skip
        assert asked.post("/v1/models/tf:predict", {"instances": [[1]]}).status_code == 400


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import sys

    report(sys.modules[__name__])
