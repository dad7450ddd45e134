"""Many machines: a job as a gang on a Ray cluster. See README.md. Ray is imported when something is asked of it."""

from headrace.cluster.shells.here import RankShell, rank_shell
from headrace.cluster.submit import Following, submit

__all__ = ["Following", "RankShell", "rank_shell", "submit"]
