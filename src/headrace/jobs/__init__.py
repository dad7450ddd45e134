"""Run a job: what it is, its code and environment, and who follows it. See README.md."""

from headrace.jobs.backend import Attempt, Backend, LocalBackend, Start
from headrace.jobs.bring import bring_checkpoint
from headrace.jobs.capture import capture
from headrace.jobs.code import Code
from headrace.jobs.differing import Difference, diff
from headrace.jobs.environment import Invocation
from headrace.jobs.folder import RunFolder, local_home
from headrace.jobs.inputs import Site
from headrace.jobs.job import Job
from headrace.jobs.laid_out_shell import ShellRequest, shell
from headrace.jobs.outputs import open_sync
from headrace.jobs.place import AsItLies, Here, Recorded, Sent, Source
from headrace.jobs.process import Exit, Process
from headrace.jobs.recovering import Recovered, recover
from headrace.jobs.request import RunRequest, TaskOptions, run_here
from headrace.jobs.runner import Outcome, Runner
from headrace.jobs.scratch import Scratch
from headrace.jobs.spec import JobSpec
from headrace.jobs.starting import begin, failure, start, start_again
from headrace.jobs.tasks.child import Report, TaskOrder, serve
from headrace.jobs.tasks.leading import Leading
from headrace.jobs.tasks.specs import swept

__all__ = [
    "AsItLies",
    "Attempt",
    "Backend",
    "Code",
    "Difference",
    "Exit",
    "Here",
    "Invocation",
    "Job",
    "JobSpec",
    "Leading",
    "LocalBackend",
    "Outcome",
    "Process",
    "Recorded",
    "Recovered",
    "Report",
    "RunFolder",
    "RunRequest",
    "Runner",
    "Scratch",
    "Sent",
    "ShellRequest",
    "Site",
    "Source",
    "Start",
    "TaskOptions",
    "TaskOrder",
    "begin",
    "bring_checkpoint",
    "capture",
    "diff",
    "failure",
    "local_home",
    "open_sync",
    "recover",
    "run_here",
    "serve",
    "shell",
    "start",
    "start_again",
    "swept",
]
