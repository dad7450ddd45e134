"""What a run reads: pinned to object versions at its start, and given to the command as names, mounts or copies."""

from headrace.jobs.inputs.inputs import Inputs, Site
from headrace.jobs.inputs.mounting import clear_mounts

__all__ = ["Inputs", "Site", "clear_mounts"]
