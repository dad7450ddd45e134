"""What each page shows, a module a page."""

from headrace.web.pages import compare, data, files, held, log, metrics, record, run, runs, why

PAGES = (
    runs.PAGE, run.PAGE, why.PAGE, log.PAGE, metrics.METRICS, metrics.MACHINE, files.PAGE, record.CODE, record.INPUTS,
    held.PAGE, compare.PAGE, data.ALL, data.ONE, data.SAMPLES,
)  # fmt: skip
"""In the order in which their paths are tried."""
