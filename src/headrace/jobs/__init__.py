"""Run a job: what it is, its code and environment, and who follows it. See README.md."""

from headrace.jobs.environment import Invocation
from headrace.jobs.inputs import Site
from headrace.jobs.job import Job
from headrace.jobs.place import Here, Recorded, Source
from headrace.jobs.process import Attempt, Backend, Exit, LocalBackend
from headrace.jobs.recover import Recovered, recover
from headrace.jobs.runner import Outcome, Runner
from headrace.jobs.spec import JobSpec

__all__ = [
    "Attempt",
    "Backend",
    "Exit",
    "Here",
    "Invocation",
    "Job",
    "JobSpec",
    "LocalBackend",
    "Outcome",
    "Recorded",
    "Recovered",
    "Runner",
    "Site",
    "Source",
    "recover",
]
