"""What each kind of model makes of its files, inside a runtime's process."""

from __future__ import annotations

from headrace.base.errors import UnsupportedError
from headrace.serving.runtimes.frames import Load
from headrace.serving.runtimes.inner import Inner


def loaded(load: Load) -> Inner:
    """Raises UnsupportedError, InputError; what the model's own code and its framework raise."""
    if load.format in ("torch-export", "torchscript"):
        from headrace.serving.runtimes.pytorch import load_pytorch

        return load_pytorch(load)
    if load.format == "saved_model":
        from headrace.serving.runtimes.saved_model import load_saved_model

        return load_saved_model(load)
    if load.format == "python":
        from headrace.serving.runtimes.python_class import load_class

        return load_class(load)
    raise UnsupportedError(
        f"a model of the format {load.format!r} cannot be served",
        hint="served are onnx, torch-export, torchscript, saved_model and python",
    )
