"""The one HTTP/1.1 client, for threads that block and for the reactor of `headrace.fetch`: see README.md of `store`.

It knows nothing of stores: whoever asks gives the complete head of a request.
"""

from headrace.store.http1.connection import CLOSED, WOULD_BLOCK, Address, Connection, dial, resolve
from headrace.store.http1.endpoint import Endpoint
from headrace.store.http1.failures import BrokenResponse, from_network, lasting
from headrace.store.http1.proxy import PASSWORD_HINT
from headrace.store.http1.request import byte_range, range_line
from headrace.store.http1.response import NOT_MODIFIED, Response, http_time
from headrace.store.http1.retry import Patience, pause_s, persist
from headrace.store.http1.transport import Transport

__all__ = [
    "CLOSED", "NOT_MODIFIED", "PASSWORD_HINT", "WOULD_BLOCK", "Address", "BrokenResponse", "Connection",
    "Endpoint", "Patience", "Response", "Transport", "byte_range", "dial", "from_network", "http_time", "lasting",
    "pause_s", "persist", "range_line", "resolve",
]  # fmt: skip
