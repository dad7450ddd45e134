"""What can be done from pages where it is allowed, a module a thing."""

from headrace.web.acts import delete, rerun, stop, tag

ACTS = (stop.ACT, rerun.ACT, tag.ACT, delete.ACT)
