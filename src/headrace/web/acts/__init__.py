"""What can be done from pages where it is allowed, a module a thing."""

from headrace.web.acts import stop

ACTS = (stop.ACT,)
