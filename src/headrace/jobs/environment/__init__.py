"""The environment a run's command runs in: headrace's own, one built by uv from a lock file, or an image."""

from headrace.jobs.environment.described import Bind, Environment, EnvironmentRequest, Invocation, Limits
from headrace.jobs.environment.prepare import Node, container_name, prepare, stop_container
from headrace.jobs.environment.prepared import Prepared

__all__ = [
    "Bind",
    "Environment",
    "EnvironmentRequest",
    "Invocation",
    "Limits",
    "Node",
    "Prepared",
    "container_name",
    "prepare",
    "stop_container",
]
