"""Run a job: what it is, its code and environment, and who follows it. See README.md."""

from headrace.jobs.backend import Attempt, Backend, LocalBackend, Start
from headrace.jobs.diff import Difference, diff
from headrace.jobs.environment import Invocation
from headrace.jobs.inputs import Site
from headrace.jobs.job import Job
from headrace.jobs.place import AsItLies, Here, Recorded, Source
from headrace.jobs.process import Exit
from headrace.jobs.recover import Recovered, recover
from headrace.jobs.runner import Outcome, Runner
from headrace.jobs.shell import ShellRequest, shell
from headrace.jobs.spec import JobSpec

__all__ = [
    "AsItLies",
    "Attempt",
    "Backend",
    "Difference",
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
    "ShellRequest",
    "Site",
    "Source",
    "Start",
    "diff",
    "recover",
    "shell",
]
