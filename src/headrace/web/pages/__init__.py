"""What each page shows, a module a page."""

from headrace.web.pages import (
    browse,
    compare,
    data,
    diff,
    files,
    held,
    log,
    metrics,
    models,
    node,
    record,
    run,
    runs,
    samples,
    step,
    why,
)

PAGES = (
    runs.PAGE, run.PAGE, why.PAGE, log.PAGE, metrics.METRICS, metrics.MACHINE, files.PAGE, record.CODE, record.INPUTS,
    held.PAGE, step.PAGE, compare.PAGE, data.ALL, diff.PAGE, data.ONE, samples.PAGE, models.ALL, models.ONE,
    models.VERSION, browse.ROOT, browse.PAGE, node.PAGE,
)  # fmt: skip
"""In the order in which their paths are tried."""
