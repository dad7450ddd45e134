"""What a run reads: pinned to object versions at its start, and given to the command as names, mounts or copies.

`Inputs` is in `headrace.jobs.inputs.inputs`, and imported where it is used: a run without inputs does not pay for it.
"""

from headrace.jobs.inputs.site import Site

__all__ = ["Site"]
