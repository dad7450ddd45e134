"""Run a job: what it is, its code and environment, and who follows it."""
