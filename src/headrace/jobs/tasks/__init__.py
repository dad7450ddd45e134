"""Several tasks of one job, and each of them for several parameters. See README.md; `headrace.jobs` has its face."""
