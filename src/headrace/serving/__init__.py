"""Models behind HTTP: TensorFlow Serving's REST and the Open Inference Protocol. Needs the extra ``serving``.

See README.md in this folder.
"""

from headrace.serving.batching import Rules
from headrace.serving.options import Options, Route, Way
from headrace.serving.server import Server, Supervisor

__all__ = ["Options", "Route", "Rules", "Server", "Supervisor", "Way"]
