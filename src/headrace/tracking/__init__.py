"""What is known of runs: their record, logs, metrics and the reason the GPU waits. See README.md.

Imported on first use (PEP 562): `hr.log` brings no more than it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

if TYPE_CHECKING:
    from headrace.tracking.boards import Board as Board
    from headrace.tracking.following import log_lines as log_lines
    from headrace.tracking.logs import Line as Line
    from headrace.tracking.logs import LogReader as LogReader
    from headrace.tracking.mlflow_client import MlflowServer as MlflowServer
    from headrace.tracking.mlflow_mirror import MlflowMirror as MlflowMirror
    from headrace.tracking.mlflow_mirror import send as send
    from headrace.tracking.mlflow_server import ShownMlflow as ShownMlflow
    from headrace.tracking.mlflow_server import serving_mlflow as serving_mlflow
    from headrace.tracking.newest import newest_checkpoint as newest_checkpoint
    from headrace.tracking.plot import draw as draw
    from headrace.tracking.program import Program as Program
    from headrace.tracking.program import find_program as find_program
    from headrace.tracking.reading import MetricsReader as MetricsReader
    from headrace.tracking.reading import Series as Series
    from headrace.tracking.reading import series as series
    from headrace.tracking.record import FINAL as FINAL
    from headrace.tracking.record import Order as Order
    from headrace.tracking.record import RunRecord as RunRecord
    from headrace.tracking.record import as_name as as_name
    from headrace.tracking.record import new_id as new_id
    from headrace.tracking.recorded import AnyRun as AnyRun
    from headrace.tracking.recorded import RecordedRun as RecordedRun
    from headrace.tracking.recorded import as_run as as_run
    from headrace.tracking.runs import Run as Run
    from headrace.tracking.runs import Runs as Runs
    from headrace.tracking.runs import RunView as RunView
    from headrace.tracking.showing import ShownBoard as ShownBoard
    from headrace.tracking.showing import tensorboard as tensorboard
    from headrace.tracking.stopping import Stopped as Stopped
    from headrace.tracking.stopping import stop as stop
    from headrace.tracking.summary import OURS as OURS
    from headrace.tracking.watching import Wanted as Wanted
    from headrace.tracking.watching import Watch as Watch

__all__ = [
    "FINAL", "OURS", "AnyRun", "Board", "Line", "LogReader", "MetricsReader", "MlflowMirror", "MlflowServer", "Order",
    "Program", "RecordedRun", "Run", "RunRecord", "RunView", "Runs", "Series", "ShownBoard", "ShownMlflow",
    "Stopped", "Wanted", "Watch", "as_name", "as_run", "draw", "find_program", "log_lines", "new_id",
    "newest_checkpoint", "send", "series", "serving_mlflow", "stop", "tensorboard",
]  # fmt: skip

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(
        __name__,
        {
            "boards": ("Board",),
            "following": ("log_lines",),
            "logs": ("Line", "LogReader"),
            "mlflow_client": ("MlflowServer",),
            "mlflow_mirror": ("MlflowMirror", "send"),
            "mlflow_server": ("ShownMlflow", "serving_mlflow"),
            "newest": ("newest_checkpoint",),
            "plot": ("draw",),
            "program": ("Program", "find_program"),
            "reading": ("MetricsReader", "Series", "series"),
            "record": ("FINAL", "Order", "RunRecord", "as_name", "new_id"),
            "recorded": ("AnyRun", "RecordedRun", "as_run"),
            "runs": ("Run", "RunView", "Runs"),
            "showing": ("ShownBoard", "tensorboard"),
            "stopping": ("Stopped", "stop"),
            "summary": ("OURS",),
            "watching": ("Wanted", "Watch"),
        },
    )
