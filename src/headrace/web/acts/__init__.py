"""What can be done from pages where it is allowed, a module a thing."""

from headrace.web.acts import delete, delete_file, rerun, stop, tag, upload

ACTS = (
    stop.ACT, rerun.ACT, tag.ACT, delete.ACT, upload.BEGIN, upload.PIECE, upload.DROP, delete_file.ACT,
)  # fmt: skip
