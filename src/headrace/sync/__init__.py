"""The bucket follows a folder: what changes is sent, whole or by its new bytes, until the job ends. See README.md."""

from headrace.sync.following import sync_folder
from headrace.sync.options import CLASSES, IGNORED, Deletion, FileClass, Mark, SyncOptions
from headrace.sync.recovering import RecoveredSync, recover_syncs
from headrace.sync.report import Backlog, Left, Report
from headrace.sync.sending import TAKEN
from headrace.sync.state import State, Status, statuses
from headrace.sync.syncer import Sync

__all__ = [
    "CLASSES",
    "IGNORED",
    "TAKEN",
    "Backlog",
    "Deletion",
    "FileClass",
    "Left",
    "Mark",
    "RecoveredSync",
    "Report",
    "State",
    "Status",
    "Sync",
    "SyncOptions",
    "recover_syncs",
    "statuses",
    "sync_folder",
]
